"""Which gathers the operands of products come from, and along which axis of their tiles they are contracted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tilewright.ir import nodes as ir
from tilewright.ir.types import TileType
from tilewright.source import Span

Gathered = ir.Gather | ir.CpGather
Product = ir.Mma | ir.Wgmma | ir.Tcgen05
Found = tuple[Gathered, int | None]
"""A gather, and the axis of its tile that is contracted; None: it is not followed."""


@dataclass(frozen=True)
class GatheredOperands:
    """`axes` by the id of a gather; for each product the gathers of its operands; the loops in which results are stored
    (by their spans), which are around contractions and no part of them.
    """

    axes: Mapping[int, frozenset[int | None]]
    products: tuple[tuple[Product, tuple[Gathered, ...]], ...]
    outer: frozenset[Span]


def gathered_operands(kernel: ir.Kernel) -> GatheredOperands:
    """The gathers behind the operands of all products of an explicit kernel."""
    tracer = _Tracer(kernel)
    axes: dict[int, set[int | None]] = {}
    products: list[tuple[Product, tuple[Gathered, ...]]] = []
    for stmt in ir.walk(kernel.body):
        if not isinstance(stmt, Product):
            continue
        found = [*tracer.behind(stmt.a, 1), *tracer.behind(stmt.b, 0)]
        for gather, axis in found:
            axes.setdefault(id(gather), set()).add(axis)
        if found:
            products.append((stmt, tuple({id(g): g for g, _ in found}.values())))
    stores = ir.Store | ir.Scatter | ir.Atomic | ir.TmaStore
    outer = frozenset(
        s.span for s in ir.walk(kernel.body)
        if isinstance(s, ir.For) and any(isinstance(x, stores) for x in ir.walk(s.body))
    )  # fmt: skip
    return GatheredOperands({n: frozenset(found) for n, found in axes.items()}, tuple(products), outer)


class _Tracer:
    def __init__(self, kernel: ir.Kernel) -> None:
        self.kernel = kernel
        self.makers: dict[str, list[ir.Stmt]] = {}
        for stmt in ir.walk(kernel.body):
            dst = getattr(stmt, "dst", None)
            name = dst.buffer if isinstance(dst, ir.BufRef) else dst
            if isinstance(name, str):
                self.makers.setdefault(name, []).append(stmt)

    def behind(self, operand: str | ir.TileRef | ir.BufRef, axis: int) -> Iterator[Found]:
        """The gathers that what an operand holds comes from, each once for an axis."""
        yield from dict.fromkeys(self._of(operand, axis, set()))

    def _of(
        self, operand: str | ir.TileRef | ir.BufRef, axis: int | None, seen: set[tuple[str, int | None]]
    ) -> Iterator[Found]:
        match operand:
            case ir.BufRef(buffer=name, transposed=flipped):
                axis = 1 - axis if flipped and axis is not None else axis
            case ir.TileRef(name=name):
                pass
            case name:
                pass
        if (name, axis) in seen:
            return
        seen.add((name, axis))
        for stmt in self.makers.get(name, []):
            match stmt:
                case ir.Gather() | ir.CpGather():
                    yield stmt, axis
                case ir.SharedLoad(src=src):
                    yield from self._of(src, axis, seen)
                case ir.SharedStore(src=src):
                    yield from self._of(src, axis, seen)
                case ir.Compute():
                    for source, at in self._sources(stmt, axis):
                        yield from self._of(source, at, seen)
                case _:
                    pass  # a product is what it is, a tile that lies in one place is followed elsewhere

    def _sources(self, stmt: ir.Compute, axis: int | None) -> Iterator[tuple[str, int | None]]:
        """The operands of a computation that vary along an axis of the result, with the axis that becomes it."""
        result = self.kernel.types[stmt.dst]
        assert isinstance(result, TileType)
        for arg in stmt.args:
            if not isinstance(arg, ir.TileRef):
                continue
            kind = self.kernel.types[arg.name]
            assert isinstance(kind, TileType)
            if axis is None:
                yield arg.name, None
            elif stmt.op == "transpose":
                yield arg.name, 1 - axis
            elif stmt.op == "permute":
                yield arg.name, stmt.order[axis]
            elif stmt.op == "expand_dims" and stmt.axis is not None:
                if axis != stmt.axis:
                    yield arg.name, axis - (axis > stmt.axis)
            elif stmt.op in ir.ELEMENTWISE or stmt.op in ("broadcast", "convert_layout"):
                own = axis - (len(result.shape) - len(kind.shape))
                if own >= 0 and (kind.shape[own] > 1 or result.shape[axis] == 1):
                    yield arg.name, own
            else:
                yield arg.name, None
