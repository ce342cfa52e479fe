"""TW104 for selections in loops: what `tw.where` lets through, and when.

A loop over tiles goes up to some end, and its last tile may reach past it. A selection that compares where an element
lies with a bound must let nothing through that lies past that end: whether such an element counts would hang on how far
the last tile reaches. A loop over `n // 16` tiles of 16 must not leave out what a selection by `< n` lets through.
A selection that runs only in iterations that need it must change nothing in the others.

What is meant is not known, so none of it is refuted.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.types import TileType

from ...async_ import forms
from ...context import KernelContext, Site
from ...integers import Binder, Question, conjunction
from ...lane_values import Lane, LaneValues, lanes
from ...plain import plain
from ...report import Obligation
from ..outcome import proved, unknown

CODE = "TW104"


def check(context: KernelContext) -> Iterator[Obligation]:
    """One obligation for each selection in a loop by how far it goes, and each that a branch may skip."""
    if not any(isinstance(s, ir.Compute) and s.op == "where" for s in ir.walk(context.kernel.body)):
        return
    other = KernelContext(plain(context.written), context.decider, written=context.written, source=context.source)
    for site in other.sites_of(ir.Compute):
        stmt = site.stmt
        if isinstance(stmt, ir.Compute) and stmt.op == "where":
            yield from _up_to_the_end(other, site, stmt)
    for site in other.sites_of(ir.If):
        yield from _skipped(other, site)


# ------------------------------------------------------------------------------------------- ends of loops


def _up_to_the_end(context: KernelContext, site: Site, stmt: ir.Compute) -> Iterator[Obligation]:
    kind = context.kernel.types[stmt.dst]
    loops = [b for b in site.loops if b.kind == "loop"]
    if not isinstance(kind, TileType) or not loops:
        return
    binders, lane = lanes(kind.shape)
    values = LaneValues(context, site, binders)
    cond = values.value(stmt.args[0], lane)
    if cond is None:
        return
    for loop in loops:
        for axis, length in enumerate(kind.shape):
            for index, end, whole in _walks(loop, lane[axis], length):
                bounds = [b for a, b in _below(cond) if _equal(a, index)] if length > 1 else []
                if not bounds:
                    continue
                if whole:
                    inside = values.question(
                        _either(ex.negate(cond), ex.Bin("<", index, end), *_absent(context, index, end))
                    )
                    yield _nothing_past(context, stmt, inside, _written(context, loop))
                elif any(_equal(b, end) for b in bounds):
                    reaches = site.question(ex.Bin("<=", end, ex.mul(loop.hi, ex.Int(length))))
                    yield _nothing_left(context, stmt, reaches, _written(context, loop), length)


def _walks(loop: Binder, lane: ex.Expr, length: int) -> Iterator[tuple[ex.Expr, ex.Expr, bool]]:
    """How a loop may walk along an axis: (the place of an element, the end, whether the last tile reaches it)."""
    if loop.step == length:
        yield ex.add(ex.Var(loop.name), lane), loop.hi, True
    match loop.hi:
        case ex.Bin("cdiv" | "//" as op, end, ex.Int(tile)) if tile == length and loop.step == 1:
            yield ex.add(ex.mul(ex.Var(loop.name), ex.Int(length)), lane), end, op == "cdiv"
        case _:
            pass


def _below(cond: ex.Expr) -> Iterator[tuple[ex.Expr, ex.Expr]]:
    """Pairs (a, b) with `a < b` in a condition."""
    for e in ex.walk(cond):
        match e:
            case ex.Bin("<", a, b):
                yield a, b
            case ex.Bin("<=", a, b):
                yield a, ex.add(b, ex.Int(1))
            case _:
                pass


def _equal(one: ex.Expr, other: ex.Expr) -> bool:
    nothing = forms.Facts.of(())
    a, b = (forms.canonical(e, {}, nothing) for e in (one, other))
    return forms.add(a, b, -1) == forms.ZERO


def _either(*claims: ex.Expr) -> ex.Expr:
    first, *rest = claims
    return ex.Bin("or", first, _either(*rest)) if rest else first


def _absent(context: KernelContext, index: ex.Expr, end: ex.Expr) -> Iterator[ex.Expr]:
    """Where an element is past the edge of a tensor at which the loop ends as well: that is asked elsewhere."""
    extents = {e for p in context.kernel.params for e in p.type.shape}
    parts = [end.lhs, end.rhs] if isinstance(end, ex.Bin) and end.op == "min" else [end]
    yield from (ex.Bin("<=", part, index) for part in parts if part in extents)


def _written(context: KernelContext, loop: Binder) -> str:
    """The end of a loop as the kernel has it; of one that counts tiles, the end of what it counts them of."""
    for site in context.sites_of(ir.For):
        if site.stmt.span == loop.span and isinstance(site.stmt, ir.For):
            match site.stmt.hi:
                case ex.Bin("cdiv" | "//", whole, ex.Int()):
                    return ex.show(whole)
                case hi:
                    return ex.show(hi)
    return ex.show(loop.hi)


def _nothing_past(context: KernelContext, stmt: ir.Compute, inside: Question, end: str) -> Obligation:
    what = f"the selection lets nothing through past {end}, where the loop ends"
    if context.decider.proves(inside):
        return proved(CODE, "tags", what, stmt.span, "integers")
    missing = (
        f"whether elements past {end} are meant to count: the last tile of the loop may reach past it, and then the "
        "selection lets some of them through"
    )
    return unknown(context, CODE, "tags", what, stmt.span, missing)


def _nothing_left(context: KernelContext, stmt: ir.Compute, reaches: Question, end: str, length: int) -> Obligation:
    what = f"the loop takes all that the selection lets through, up to {end}"
    if context.decider.proves(reaches):
        return proved(CODE, "tags", what, stmt.span, "integers")
    missing = (
        f"whether the last {end} % {length} elements are meant to be left out: the selection lets them through, but "
        f"the loop takes whole tiles of {length} only; tw.cdiv({end}, {length}) counts the last one, too"
    )
    return unknown(context, CODE, "tags", what, stmt.span, missing)


# ------------------------------------------------------------------------------------------- branches


def _skipped(context: KernelContext, site: Site) -> Iterator[Obligation]:
    """A branch that replaces a tile by a selection of its elements, in some iterations."""
    branch = site.stmt
    assert isinstance(branch, ir.If)
    guard = site.value(branch.cond)
    loops = {b.name for b in site.loops if b.kind == "loop"} & ex.names(guard)
    if branch.orelse or not loops:
        return
    within = {id(s) for s in branch.then}
    for inner in context.sites_of(ir.Compute):
        stmt = inner.stmt
        if id(stmt) not in within or not isinstance(stmt, ir.Compute) or stmt.op != "where":
            continue
        kind = context.kernel.types[stmt.dst]
        assert isinstance(kind, TileType)
        binders, lane = lanes(kind.shape)
        values = LaneValues(context, inner, binders)
        cond = values.value(stmt.args[0], lane)
        if cond is None or not ex.names(cond) & loops:
            continue
        what = "where the branch is not taken, the selection would change nothing"
        if context.decider.proves(_without(site, guard, values, cond, lane)):
            yield proved(CODE, "tags", what, stmt.span, "integers")
        else:
            missing = (
                f"whether elements that the selection takes out are meant to count in iterations in which "
                f"`{ex.show(branch.cond)}` is false"
            )
            yield unknown(context, CODE, "tags", what, stmt.span, missing)


def _without(site: Site, guard: ex.Expr, values: LaneValues, cond: ex.Expr, lane: Lane) -> Question:
    """Does the selection let everything through if the guard is false?"""
    facts = (ex.negate(guard), *values.facts)
    base = site.question(conjunction((cond, *facts)))
    own = {b.name for b in (*values.lanes, *values.symbols)}
    outer = tuple(b for b in base.binders if b.name not in own)
    return Question(cond, (*base.facts, *facts), (*outer, *values.lanes, *values.symbols))
