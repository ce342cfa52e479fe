"""The elements that a statement about tags speaks of: values of the parameters of its lambda, as arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.expr import Expr, Var
from tilewright.ir.stages import seen
from tilewright.ir.tagging import Holder
from tilewright.ir.types import SharedType, TileType, Type
from tilewright.layout import DistributedLayout

Array = npt.NDArray[Any]
Coordinates = tuple[Array, ...]

MOST_ELEMENTS = 1 << 24


class SpaceError(Exception):
    """The elements cannot be listed; the message says why, as the end of a sentence."""


@dataclass(frozen=True, eq=False, slots=True)
class Space:
    """All values of the parameters: an axis of `extents` each.

    `parameters` are open grids that broadcast to `extents`. `coordinates` has, for each mention, the coordinates of the
    element along each axis of its tile; `inside` says where all mentioned elements exist (None: everywhere).
    """

    extents: tuple[int, ...]
    parameters: Mapping[str, Array]
    coordinates: tuple[Coordinates, ...]
    inside: Array | None

    def first(self, wrong: Array) -> tuple[int, ...] | None:
        """The first values of the parameters, in row-major order, for which `wrong` holds and all elements exist."""
        if self.inside is not None:
            wrong = wrong & self.inside
        if not wrong.any():
            return None
        # An axis along which nothing changes has extent 1 here, and its first value is as good as any.
        padded = wrong.reshape((1,) * (len(self.extents) - wrong.ndim) + wrong.shape)
        return tuple(int(i) for i in np.unravel_index(int(np.argmax(padded)), padded.shape))


def space_of(params: int, uses: Sequence[ir.TagUse], types: Mapping[str, Type]) -> Space:
    """The space of a lambda with these mentions. Raises SpaceError."""
    limits = [_limits(use, types) for use in uses]
    extents: list[int] = []
    for number in range(params):
        mine = [
            limit
            for use, bounds in zip(uses, limits, strict=True)
            for at, limit in zip(use.index, bounds, strict=True)
            if at == Var(f"~{number}")
        ]
        if not mine:
            raise SpaceError("a parameter of the lambda is no index by itself")
        extents.append(min(mine))
    return _space(tuple(extents), uses, limits, types)


def element_space(shape: tuple[int, ...], uses: Sequence[ir.TagUse], types: Mapping[str, Type]) -> Space:
    """The space of the elements of a tile."""
    return _space(shape, uses, [_limits(use, types) for use in uses], types)


def _space(
    extents: tuple[int, ...], uses: Sequence[ir.TagUse], limits: Sequence[tuple[int, ...]], types: Mapping[str, Type]
) -> Space:
    if prod(extents) > MOST_ELEMENTS:
        raise SpaceError(f"there are {prod(extents)} combinations of elements, more than are looked at")
    grids = np.ogrid[tuple(slice(0, n) for n in extents)]
    parameters: dict[str, Array] = {f"~{i}": np.asarray(g) for i, g in enumerate(grids)}
    inside: Array | None = None
    coordinates: list[Coordinates] = []
    for use, bounds in zip(uses, limits, strict=True):
        indices = [np.asarray(evaluate(at, parameters)) for at in use.index]
        for at, index, limit in zip(use.index, indices, bounds, strict=True):
            if isinstance(at, Var) and extents[int(at.name[1:])] <= limit:
                continue
            within = (index >= 0) & (index < limit)
            if not within.all():
                inside = within if inside is None else inside & within
        clipped = [np.clip(index, 0, limit - 1) for index, limit in zip(indices, bounds, strict=True)]
        if use.thread:
            owners = owned(*_distributed(use, types))
            coordinates.append(tuple(table[tuple(clipped)] for table in owners))
        else:
            coordinates.append(tuple(clipped))
    return Space(extents, parameters, tuple(coordinates), inside)


def _limits(use: ir.TagUse, types: Mapping[str, Type]) -> tuple[int, ...]:
    """The number of values of each index of a mention."""
    if use.thread:
        return owned(*_distributed(use, types))[0].shape
    return held_shape(use.of, types)


def held_shape(of: Holder, types: Mapping[str, Type]) -> tuple[int, ...]:
    """The shape of what carries tags."""
    kind = seen(types, of) if isinstance(of, ir.BufRef) else types[of]
    assert isinstance(kind, TileType | SharedType)
    return kind.shape


def _distributed(use: ir.TagUse, types: Mapping[str, Type]) -> tuple[DistributedLayout, tuple[int, ...]]:
    kind = types[use.of] if isinstance(use.of, str) else None
    if not isinstance(kind, TileType) or kind.layout is None:
        raise SpaceError("the layout of the tile is not known, so neither is which thread holds what")
    return kind.layout, kind.shape


@lru_cache(maxsize=64)
def owned(layout: DistributedLayout, shape: tuple[int, ...]) -> tuple[Array, ...]:
    """For each axis of a tile its coordinate by (warp, lane, register)."""
    mapping = layout.linear(shape)
    sizes = {axis.name: axis.extent for axis in mapping.inputs}
    wanted = ("warp", "lane", "register")
    tables = [np.zeros(tuple(sizes.get(n, 1) for n in wanted), np.int64) for _ in shape]
    for index in np.ndindex(*tables[0].shape):
        given = {n: v for n, v in zip(wanted, index, strict=True) if n in sizes}
        for table, at in zip(tables, mapping.apply(**given).values(), strict=True):
            table[index] = at
    return tuple(tables)


_ARRAYS: dict[str, Callable[[Any, Any], Any]] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "min": np.minimum, "max": np.maximum, "^": np.bitwise_xor,
    "<": np.less, "<=": np.less_equal, "==": np.equal, "!=": np.not_equal,
    "and": np.logical_and, "or": np.logical_or,
}  # fmt: skip


def evaluate(expr: Expr, env: Mapping[str, Any]) -> Any:
    """The value of an expression over arrays and integers. Raises EvaluationError, as `ir.expr.evaluate` does."""
    match expr:
        case ex.Int(value):
            return value
        case ex.Size(name) | ex.Var(name):
            if name not in env:
                raise ex.EvaluationError(f"'{name}' has no value")
            return env[name]
        case ex.Not(arg):
            return np.logical_not(evaluate(arg, env))
        case ex.Item():
            raise ex.EvaluationError(f"{ex.show(expr)} is known only to the kernel")
        case ex.Bin(op, lhs, rhs):
            left, right = evaluate(lhs, env), evaluate(rhs, env)
            if op not in ("//", "%", "cdiv"):
                return _ARRAYS[op](left, right)
            if not np.all(right):
                raise ex.EvaluationError("division by zero")
            if op == "%":
                return np.mod(left, right)
            return np.floor_divide(left, right) if op == "//" else -np.floor_divide(np.negative(left), right)


def conjuncts(cond: Expr) -> list[Expr]:
    """The conditions that `and` joins."""
    match cond:
        case ex.Bin("and", lhs, rhs):
            return [*conjuncts(lhs), *conjuncts(rhs)]
        case _:
            return [cond]


def mentioned(kernel: ir.Kernel) -> frozenset[str]:
    """Names of the tags that a kernel mentions anywhere."""
    return frozenset(
        use.tag for stmt in ir.walk(kernel.body) if isinstance(stmt, ir.Tag | ir.ExpectTags) for use in stmt.uses
    )
