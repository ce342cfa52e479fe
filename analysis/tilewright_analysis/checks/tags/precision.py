"""TW107: a sum over a loop is kept in a type narrower than f32.

Every addition rounds to the type of the sum, so the error grows with the number of iterations, and small terms are
lost as soon as the sum is large; integers of 8 and 16 bits wrap around. Matrix instructions mostly accumulate in f32,
and so do reductions; loops written by hand are followed here, also through shared memory. An accumulator of a product
that is narrower was asked for, so whether it will do stays open. Only what is clearly a sum counts: the value at the
end of an iteration is that at its start with something added, through nothing but additions and conversions. Loops of
few iterations are left alone, and so are additions of what `tw.where` chose, which may be of zeros.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod

from tilewright.dtypes import DType
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.types import TileType
from tilewright.problem import Related
from tilewright.source import Span

from ...context import KernelContext
from ...report import Obligation
from ..outcome import proved, refuted, unknown

CODE = "TW107"
WHAT = "sums over a loop are kept in f32 or wider"
# Additions that may be made in a narrow type: the last bits that so many cost are those of rounding the result.
FEW = 16
# Bits of a significand, the hidden one included (IEEE 754, bfloat16, OFP8).
_ASKED_FOR = "whether that is precise enough (an accumulator in f32 is)"
_SHARED = "@"  # before the names of shared buffers, among those of tiles
_SIGNIFICANT: Mapping[str, int] = {"f16": 11, "bf16": 8, "f8e4m3": 4, "f8e5m2": 3}


@dataclass(frozen=True, slots=True)
class _Sum:
    """A value that is `name` of the beginning of the iteration plus what was added by `stmt`; None: nothing yet.

    `narrow`: a type below f32 that it has passed through. `open`: why that may be meant, or may be no sum.
    """

    name: str
    stmt: ir.Stmt | None = None
    narrow: DType | None = None
    open: str = ""


Sums = dict[str, frozenset[_Sum]]
_NONE: frozenset[_Sum] = frozenset()


def check(context: KernelContext) -> Iterator[Obligation]:
    """One obligation for each addition into a sum over a loop."""
    told: dict[Span, bool] = {}
    for site in context.sites_of(ir.For):
        loop = site.stmt
        assert isinstance(loop, ir.For)
        trips = ex.cdiv(ex.sub(loop.hi, loop.lo), ex.Int(loop.step))
        if isinstance(trips, ex.Int) and trips.value < FEW:
            continue
        for found in _loop_sums(context, loop):
            assert found.stmt is not None
            narrow = found.narrow is not None
            if found.stmt.span in told and (told[found.stmt.span] or not narrow):
                continue
            told[found.stmt.span] = narrow
            yield _obligation(context, loop, found)
    for site in context.sites_of(ir.Compute):
        assert isinstance(site.stmt, ir.Compute)
        at = site.stmt.span
        said = any(narrow and span.start <= at.start and at.end <= span.end for span, narrow in told.items())
        if not said and (open_ := _of_a_tile(context, site.stmt)) is not None:
            yield open_


def _of_a_tile(context: KernelContext, stmt: ir.Compute) -> Obligation | None:
    """A sum of the elements of a tile in a type of integers that it may leave; None where it cannot."""
    source = stmt.args[0] if stmt.args else None
    dtype = _dtype(context, stmt.dst)
    if stmt.op not in ("sum", "cumsum") or dtype is None or dtype.is_float or not isinstance(source, ir.TileRef):
        return None
    kind = context.kernel.types[source.name]
    assert isinstance(kind, TileType)
    length = prod(kind.shape) if stmt.axis is None else kind.shape[stmt.axis]
    low, high = dtype.range
    if dtype.bits >= 32 or length == 1 or length * _most(context, source.name) <= high:
        return None
    text = (
        f"{length} elements are summed up in {dtype}, which holds {low} to {high}. Missing: whether more wraps around, "
        "or is meant to; convert the tile to i32 before"
    )
    return unknown(context, CODE, "tags", "sums of a tile stay inside of their type", stmt.span, text)


def _most(context: KernelContext, name: str) -> int:
    """The largest element of a tile of integers: 1 of what was a truth value, all that the type holds of others."""
    dtype = _dtype(context, name)
    made = [s for s in context.sites_of(ir.Compute) if isinstance(s.stmt, ir.Compute) and s.stmt.dst == name]
    if dtype is None or dtype.name == "i1":
        return 1
    if len(made) == 1 and isinstance(made[0].stmt, ir.Compute) and made[0].stmt.op in ("copy", "cast"):
        source = made[0].stmt.args[0]
        within = _most(context, source.name) if isinstance(source, ir.TileRef) and _is_integer(context, source) else 0
        return min(within, dtype.range[1]) if within else dtype.range[1]
    return dtype.range[1]


def _is_integer(context: KernelContext, operand: ir.TileRef) -> bool:
    dtype = _dtype(context, operand.name)
    return dtype is not None and not dtype.is_float


def _obligation(context: KernelContext, loop: ir.For, found: _Sum) -> Obligation:
    assert found.stmt is not None
    span = found.stmt.span
    if found.narrow is None:
        return proved(CODE, "tags", WHAT, span, "types")
    bits = _SIGNIFICANT.get(found.narrow.name, found.narrow.bits)
    name = f"'{found.name.lstrip(_SHARED)}'" if not found.name.startswith("%") else "the sum"
    if found.open:
        what = f"{name} is summed up over a loop in {found.narrow}, rounded to {bits} bits each time"
        return unknown(context, CODE, "tags", WHAT, span, f"{what}. Missing: {found.open}")
    if not found.narrow.is_float:
        low, high = found.narrow.range
        text = (
            f"{name} is summed up over a loop in {found.narrow}, which holds {low} to {high}. Missing: whether more "
            "wraps around, or is meant to; keep the sum in i32 and convert it after the loop"
        )
        return unknown(context, CODE, "tags", WHAT, span, text)
    text = (
        f"{name[:1].upper()}{name[1:]} is summed up over a loop in {found.narrow}: each addition rounds to {bits} "
        f"bits, so a term below 1/{1 << bits} of the sum is lost, and the error grows with the number of iterations. "
        "Keep the sum in f32 and convert it after the loop."
    )
    around = Related(loop.span, "the loop over which it is summed up")
    return refuted(context, CODE, "tags", WHAT, span, text, related=(around,), how="types", severity="warning")


def _loop_sums(context: KernelContext, loop: ir.For) -> list[_Sum]:
    """What one iteration adds to tiles that it passes on to the next."""
    written = {s.dst for s in ir.walk(loop.body) if isinstance(s, ir.Compute | ir.Mma | ir.Wgmma)}
    sums: Sums = {}
    for name in sorted(written):
        dtype = _dtype(context, name)
        if dtype is not None and (dtype.is_float or _narrow(dtype) is not None):
            sums[name] = frozenset((_Sum(name, None, _narrow(dtype)),))
    for name, why in _kept_in_shared_memory(loop).items():
        held = context.shared(name)
        if held is not None and (held.dtype.is_float or _narrow(held.dtype) is not None):
            sums[_SHARED + name] = frozenset((_Sum(_SHARED + name, None, _narrow(held.dtype), why),))
    passed_on = sorted(written | {name for name in sums if name.startswith(_SHARED)})
    chosen: set[str] = set()
    _block(context, loop.body, sums, chosen)
    return [s for name in passed_on for s in sums.get(name, _NONE) if s.name == name and s.stmt is not None]


def _kept_in_shared_memory(loop: ir.For) -> dict[str, str]:
    """Buffers that ordinary stores alone write in a loop, and what is open about which of their stages it is."""
    stages: dict[str, set[ex.Expr]] = {}
    filled: set[str] = set()
    for stmt in ir.walk(loop.body):
        match stmt:
            case ir.SharedLoad(src=ref):
                stages.setdefault(ref.buffer, set()).add(ref.stage)
            case ir.SharedStore(dst=ref):
                stages.setdefault(ref.buffer, set()).add(ref.stage)
            case ir.TmaLoad(dst=ref) | ir.CpAsync(dst=ref):
                filled.add(ref.buffer)
            case _:
                pass
    return {
        name: "" if len(at) == 1 and all(isinstance(e, ex.Int) for e in at)
        else "whether each iteration goes on with what the one before has left in that stage"
        for name, at in stages.items()
        if name not in filled
    }  # fmt: skip


def _block(context: KernelContext, block: ir.Block, sums: Sums, chosen: set[str]) -> None:
    for stmt in block:
        match stmt:
            case ir.Compute(dst=dst):
                if stmt.op == "where" or (stmt.op in ("copy", "cast", "convert_layout") and _read(stmt) & chosen):
                    chosen.add(dst)
                else:
                    chosen.discard(dst)
                sums[dst] = _through(stmt, sums, chosen, _dtype(context, dst))
            case ir.SharedLoad(dst=dst, src=ref):
                sums[dst] = sums.get(_SHARED + ref.buffer, _NONE)
            case ir.SharedStore(dst=ref, src=src):
                held = context.shared(ref.buffer)
                narrow = _narrow(held.dtype) if held is not None else None
                found = (replace(s, narrow=s.narrow or narrow) for s in sums.get(src, _NONE))
                sums[_SHARED + ref.buffer] = frozenset(found)
            case ir.Mma(dst=dst, acc=acc) | ir.Wgmma(dst=dst, acc=acc):
                dtype = _dtype(context, dst)
                narrow = _narrow(dtype) if dtype is not None else None
                found = sums.pop(acc, _NONE)
                sums.pop(dst, None)
                if narrow is not None:
                    sums[dst] = frozenset(replace(s, stmt=stmt, narrow=narrow, open=_ASKED_FOR) for s in found)
            case ir.If(then=then, orelse=orelse):
                ends: list[Sums] = []
                for branch in (then, orelse):
                    end = dict(sums)
                    _block(context, branch, end, chosen)
                    ends.append(end)
                for name in ends[0].keys() | ends[1].keys():
                    sums[name] = ends[0].get(name, _NONE) | ends[1].get(name, _NONE)
            case ir.For(body=body) | ir.While(body=body):
                # A sum over both loops; that of the inner one alone has an obligation of its own.
                before = dict(sums)
                _block(context, body, sums, chosen)
                for name in before:
                    sums[name] = sums.get(name, _NONE) | before[name]
            case _:
                # Whatever else gives a tile a value: no sum that is followed here.
                for inner in ir.walk((stmt,)):
                    dst = getattr(inner, "dst", None)
                    if isinstance(dst, str):
                        sums.pop(dst, None)


def _through(stmt: ir.Compute, sums: Sums, chosen: set[str], dtype: DType | None) -> frozenset[_Sum]:
    """The sums that an operation passes on."""
    tiles = [a.name if isinstance(a, ir.TileRef) else "" for a in stmt.args]
    match stmt.op:
        case "copy" | "cast" | "convert_layout":
            found = sums.get(tiles[0], _NONE)
        case "add":
            found = _added(stmt, sums, chosen, tiles[0], tiles[1]) | _added(stmt, sums, chosen, tiles[1], tiles[0])
        case "sub":
            found = _added(stmt, sums, chosen, tiles[0], tiles[1])
        case "fma":
            found = frozenset(replace(s, stmt=stmt) for s in sums.get(tiles[2], _NONE))
        case _:
            return _NONE
    narrow = _narrow(dtype) if dtype is not None else None
    return frozenset(replace(s, narrow=s.narrow or narrow) for s in found)


def _added(stmt: ir.Compute, sums: Sums, chosen: set[str], total: str, term: str) -> frozenset[_Sum]:
    return _NONE if term in chosen else frozenset(replace(s, stmt=stmt) for s in sums.get(total, _NONE))


def _read(stmt: ir.Compute) -> set[str]:
    return {a.name for a in stmt.args if isinstance(a, ir.TileRef)}


def _dtype(context: KernelContext, name: str) -> DType | None:
    kind = context.kernel.types.get(name)
    return kind.dtype if isinstance(kind, TileType) else None


def _narrow(dtype: DType) -> DType | None:
    return dtype if dtype.kind in ("float", "int", "uint") and dtype.bits < 32 else None
