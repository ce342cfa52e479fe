"""What changing the layout of a register tile takes: which threads must give elements to which."""

from __future__ import annotations

from typing import Literal

from . import f2
from .index_map import IndexMap, bits_of

Exchange = Literal["registers", "lanes", "warps"]


def exchange(source: IndexMap, target: IndexMap) -> Exchange:
    """The widest exchange: none between threads ("registers"), within warps ("lanes"), or between warps ("warps").

    Both map (register, lane, warp) to coordinates of one tile, linear over F2. Triton moves nothing for the first,
    shuffles for the second and goes through shared memory for the third (ConvertLayoutOpToLLVM.cpp).
    """
    old, new = _columns(source), _columns(target)
    if _stays(old, new, ("register",)):
        return "registers"
    return "lanes" if _stays(old, new, ("register", "lane")) else "warps"


def _stays(old: dict[str, list[int]], new: dict[str, list[int]], own: tuple[str, ...]) -> bool:
    """Whether what a thread (`own` registers) or a warp (registers and lanes) gets is what it has anyway."""
    has = f2.eliminate([column for axis in own for column in old[axis]])
    needs = [column for axis in own for column in new[axis]]
    needs += [a ^ b for axis in old.keys() - set(own) for a, b in zip(old[axis], new[axis], strict=True)]
    return all(has.solve(column) is not None for column in needs)


def _columns(layout: IndexMap) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {axis.name: [] for axis in layout.inputs}
    for name, column in bits_of(layout):
        found[name].append(column)
    return found
