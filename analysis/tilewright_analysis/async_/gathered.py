"""Where the axes of a gathered tile go: where elements of an index tensor say, or along a dimension one by one."""

from __future__ import annotations

from collections import Counter

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.types import TileType


def by_tables(kernel: ir.Kernel, stmt: ir.Gather) -> tuple[bool, ...]:
    """For each axis of the tile, whether an index that varies along it was loaded, or computed from what was."""
    known = _from_memory(kernel)
    result = kernel.types[stmt.dst]
    assert isinstance(result, TileType)
    rank = len(result.shape)
    axes = [False] * rank
    for index in stmt.index:
        if isinstance(index, ir.TileRef) and index.name in known:
            tile = kernel.types[index.name]
            assert isinstance(tile, TileType)
            for axis, extent in enumerate(tile.shape, rank - len(tile.shape)):
                axes[axis] |= extent > 1 or result.shape[axis] == 1
    return tuple(axes)


def _from_memory(kernel: ir.Kernel) -> set[str]:
    """Register tiles that hold something loaded, or computed from it."""
    known: set[str] = set()
    grown = True
    while grown:
        before = len(known)
        for stmt in ir.walk(kernel.body):
            match stmt:
                case ir.Load(dst=dst) | ir.Gather(dst=dst) | ir.SharedLoad(dst=dst):
                    known.add(dst)
                case ir.Compute(dst=dst, args=args) if any(isinstance(a, ir.TileRef) and a.name in known for a in args):
                    known.add(dst)
                case _:
                    pass
        grown = len(known) > before
    return known


def lines_of(kernel: ir.Kernel, stmt: ir.Gather) -> dict[int, tuple[int, ex.Expr]]:
    """Axes of the tile along which an index counts `offset, offset + 1, …`: the dimension it indexes, and the offset.

    None in kernels with products: which part of a contraction a mask leaves out is not followed.
    """
    if any(isinstance(s, ir.Mma | ir.Wgmma | ir.Tcgen05) for s in ir.walk(kernel.body)):
        return {}
    result = kernel.types[stmt.dst]
    assert isinstance(result, TileType)
    lines = _Lines(kernel)
    found: dict[int, tuple[int, ex.Expr]] = {}
    twice: set[int] = set()
    for number, index in enumerate(stmt.index):
        if not isinstance(index, ir.TileRef) or (line := lines.of(index.name)) is None:
            continue
        tile = kernel.types[index.name]
        assert isinstance(tile, TileType)
        axis = line[0] + len(result.shape) - len(tile.shape)
        twice |= {axis} & found.keys()
        found[axis] = (number, line[1])
    return {axis: at for axis, at in found.items() if axis not in twice}


class _Lines:
    """Index tiles that count along one axis, from `arange` and scalars that have one value."""

    def __init__(self, kernel: ir.Kernel) -> None:
        statements = list(ir.walk(kernel.body))
        given = Counter(d for s in statements if isinstance(d := getattr(s, "dst", None), str))
        self._once = {n for n, times in given.items() if times == 1}
        self._scalars = {s.dst for s in statements if isinstance(s, ir.Assign)}
        self._made = {s.dst: s for s in statements if isinstance(s, ir.Compute) and s.dst in self._once}
        self._ranks = {n: len(t.shape) for n, t in kernel.types.items() if isinstance(t, TileType)}

    def of(self, name: str) -> tuple[int, ex.Expr] | None:
        """The axis and the offset; None for tiles that do not count, or are not known to."""
        made = self._made.get(name)
        match made:
            case ir.Compute(op="arange"):
                return (0, ex.Int(0))
            case ir.Compute(op="expand_dims", args=(ir.TileRef(source),), axis=int(at)) if line := self.of(source):
                return (line[0] + (line[0] >= at), line[1])
            case ir.Compute(op="copy" | "broadcast", args=(ir.TileRef(source),)) if line := self.of(source):
                return (line[0] + self._ranks[name] - self._ranks[source], line[1])
            case ir.Compute(op="add" | "sub" as op, args=(ir.TileRef(source), more)) if line := self._moved(
                source, more
            ):
                return (line[0], (ex.add if op == "add" else ex.sub)(line[1], line[2]))
            case ir.Compute(op="add", args=(more, ir.TileRef(source))) if line := self._moved(source, more):
                return (line[0], ex.add(line[1], line[2]))
            case _:
                return None

    def _moved(self, source: str, by: ir.Operand) -> tuple[int, ex.Expr, ex.Expr] | None:
        """A tile that counts, and a scalar by which it is moved, no name in which is assigned again."""
        if not isinstance(by, ex.Expr) or (line := self.of(source)) is None:
            return None
        steady = all(n in self._once for n in ex.names(by) if n in self._scalars)
        return (*line, by) if steady else None
