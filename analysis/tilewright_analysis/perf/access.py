"""How well accesses suit the hardware: vector widths of direct loads and stores, bank conflicts of shared memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from tilewright.divisibility import divisor, divisors
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.stages import seen
from tilewright.ir.types import TileType
from tilewright.layout import BankConflicts, Exchange, LayoutError, bank_conflicts, exchange
from tilewright.source import Span

WIDEST_BYTES = 16  # of one load or store instruction of a thread (PTX ISA, ld.global.v4.b32)


@dataclass(frozen=True, slots=True)
class VectorWidth:
    """Bytes that a thread moves with one instruction, and why not `best`: 16, or all that a thread has of the tile."""

    tensor: str
    write: bool
    bytes: int
    best: int
    reason: str
    span: Span


@dataclass(frozen=True, slots=True)
class SharedAccess:
    """Bank conflicts between a register tile and a shared buffer."""

    buffer: str
    tile: str
    write: bool
    conflicts: BankConflicts
    span: Span


@dataclass(frozen=True, slots=True)
class Conversion:
    """A tile that is put into another layout; `bytes` are those of the tile, `why` is what asks for it."""

    tile: str
    source: str
    target: str
    exchange: Exchange
    bytes: int
    why: str
    span: Span

    def __str__(self) -> str:
        cost = {
            "registers": "moves nothing between threads",
            "lanes": f"{self.bytes} bytes by shuffles within warps",
            "warps": f"{self.bytes} bytes written to shared memory and read back",
        }[self.exchange]
        return f"{self.tile} from {self.source} to {self.target}: {cost}" + (f"; {self.why}" if self.why else "")


def conversions(kernel: ir.Kernel) -> Iterator[Conversion]:
    """Each change of the layout of a register tile in a kernel with layouts, given or inferred, with what it takes."""
    for stmt in ir.walk(kernel.body):
        if not isinstance(stmt, ir.Compute) or stmt.op != "convert_layout" or not isinstance(stmt.args[0], ir.TileRef):
            continue
        name = stmt.args[0].name
        old, new = kernel.types[name], kernel.types[stmt.dst]
        if not isinstance(old, TileType) or not isinstance(new, TileType) or old.layout is None or new.layout is None:
            continue
        try:
            widest = exchange(old.layout.linear(old.shape), new.layout.linear(new.shape))
        except LayoutError:
            widest = "warps"
        shown = next((f"'{n}'" for n in (name, stmt.dst) if not n.startswith("%")), "a result")
        size = old.dtype.bytes * prod(old.shape)
        why = re.sub(r"'%[^']*'", "the result", stmt.note)
        yield Conversion(shown, str(old.layout), str(new.layout), widest, size, why, stmt.span)


def vector_widths(kernel: ir.Kernel) -> Iterator[VectorWidth]:
    """Each direct load and store of a kernel with layouts whose last dimension is contiguous in memory."""
    known = divisors(kernel.assumptions)
    for stmt in ir.walk(kernel.body):
        match stmt:
            case ir.Load(view=view, dst=name) | ir.Store(view=view, src=name):
                tile, param = kernel.types[name], kernel.param(view.tensor)
                if not isinstance(tile, TileType) or tile.layout is None or not view.shape:
                    continue
                if param.type.contiguous != len(view.shape) - 1:
                    continue
                size = param.type.dtype.bytes
                best = min(WIDEST_BYTES, size * max(1, prod(view.shape) // (tile.layout.warps * 32)))
                run = min(_contiguous_registers(tile) * size, WIDEST_BYTES)
                # Rows begin at multiples of the strides, and the edge cuts rows at a multiple of what divides their
                # length: neither may fall into the middle of an access.
                limits = (*param.type.strides[:-1], param.type.shape[-1])
                row = min(limits, key=lambda extent: divisor(extent, known))
                width = min(run, divisor(row, known) * size)
                reason = "" if width >= best else _reason(view.tensor, row, divisor(row, known), width, best, size)
                yield VectorWidth(view.tensor, isinstance(stmt, ir.Store), width, best, reason, stmt.span)
            case _:
                pass


def shared_accesses(kernel: ir.Kernel) -> Iterator[SharedAccess]:
    """Bank conflicts of each access to shared memory by ordinary loads and stores, where the layouts are known."""
    for stmt in ir.walk(kernel.body):
        match stmt:
            case ir.SharedLoad(dst=name, src=ref) | ir.SharedStore(src=name, dst=ref):
                tile = kernel.types[name]
                if not isinstance(tile, TileType) or tile.layout is None:
                    continue
                try:
                    buffer = seen(kernel.types, ref)
                    found = bank_conflicts(
                        tile.layout.linear(tile.shape), buffer.layout.linear(buffer.shape), buffer.dtype.bits
                    )
                except LayoutError:
                    continue  # what does not fit is the verifier's to report
                yield SharedAccess(ref.buffer, name, isinstance(stmt, ir.SharedStore), found, stmt.span)
            case _:
                pass


def _reason(tensor: str, row: ex.Expr, known: int, width: int, best: int, size: int) -> str:
    if known * size >= best:
        return f"the layout gives a thread {width // size} neighbouring elements"
    text = ex.show(row)
    known_as = f"of which only a multiple of {known} is known" if known > 1 else "of which nothing is known"
    return f"a row of {tensor} has {text} elements, {known_as}; tw.assume({text} % {best // size} == 0), if that holds"


def _contiguous_registers(tile: TileType) -> int:
    """Neighbouring elements along the last dimension in consecutive registers of a thread."""
    assert tile.layout is not None
    layout = tile.layout.linear(tile.shape)
    run = 1
    while run < layout.inputs[0].extent:
        coordinates = layout.apply(register=run)
        last = f"dim{len(tile.shape) - 1}"
        if coordinates.get(last) != run or any(v for n, v in coordinates.items() if n != last):
            break
        run *= 2
    return run
