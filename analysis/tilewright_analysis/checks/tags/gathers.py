"""TW102 for operands of products that are gathered: the elements that are multiplied are all that there are.

The asynchronous engine sees that the steps of a loop are taken once each, and that a product takes both operands from
one step (`async_/gathered.py`). Two things remain, and are decided here.

A mask may leave out what does not exist, and whole rows. So where all indices are inside of the tensor, each part of
the mask must hold, apart from parts that do not change along the contraction.

Where a loop does not move the indices evenly, its steps must be the digits of what is contracted (`steps.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from tilewright.ir import expr as ex
from tilewright.lines import points_shape

from ...context import KernelContext, Site
from ...integers import Binder, Question, conjunction
from ...lane_values import Lane, LaneValues, lanes
from ...mixed_radix import conjuncts
from ...operands import Gathered, GatheredOperands, gathered_operands
from ...replay import feasible
from ...report import Obligation
from ..asynchronous import explored
from ..outcome import proved, settle, unknown
from .influence import left_out

CODE = "TW102"


@dataclass(frozen=True)
class Taken:
    """A gathered operand: its indices and mask over sizes, binders and lanes (None where they are not followed).

    `along` is the contracted axis of its tile, `steps` are the loops of the contraction.
    """

    site: Site
    stmt: Gathered
    shape: tuple[int, ...]
    index: tuple[ex.Expr | None, ...]
    mask: ex.Expr | None
    extents: tuple[ex.Expr, ...]
    values: LaneValues
    lanes: tuple[Binder, ...]
    lane: Lane
    along: int
    steps: tuple[Binder, ...]

    @property
    def lane_name(self) -> str:
        """The name of the coordinate along the contracted axis; empty if that has one element."""
        at = self.lane[self.along]
        return at.name if isinstance(at, ex.Var) else ""

    def moves(self, e: ex.Expr) -> bool:
        """Whether an expression changes along the contraction."""
        return bool(ex.names(e) & {self.lane_name, *(b.name for b in self.steps)})


def check(context: KernelContext) -> Iterator[Obligation]:
    """One obligation for each mask of a gathered operand, one for each product whose operands are taken in steps."""
    from .steps import confirmed, obligation, uneven  # which knows what is taken

    found = gathered_operands(context.kernel)
    masked: list[Obligation] = []
    taken: dict[int, Taken] = {}
    for site in context.sites:
        stmt = site.stmt
        if not isinstance(stmt, Gathered) or not (axes := found.axes.get(id(stmt), frozenset())):
            continue
        axis = next(iter(axes))
        if len(axes) > 1 or axis is None:
            if stmt.mask is not None:
                what = f"the mask of the load of {stmt.tensor} leaves out no element that is to be multiplied"
                missing = "along which axis it is contracted is not followed"
                yield unknown(context, CODE, "tags", what, stmt.span, missing)
            continue
        taken[id(stmt)] = one = _taken(context, site, stmt, axis, found)
        if stmt.mask is not None:
            masked.append(_masked(context, one))
    # A load that runs ahead is several copies; what is shown of one needs no doubt about another.
    shown = {o.span for o in masked if o.verdict == "refuted"}
    yield from (o for o in masked if o.verdict != "unknown" or o.span not in shown)
    for product, gathers in found.products:
        mine = [one for g in gathers if (one := taken.get(id(g))) is not None and uneven(one)]
        if mine:
            yield (done := obligation(context, product, mine))
            broken = any(o.verdict == "refuted" and o.code == CODE for o in explored(context).outcomes)
            if done.verdict == "proved" and broken and (shown := confirmed(context, product, mine)) is not None:
                # The engine found that steps are missing, and the interpreter knows no steps.
                yield shown


def _taken(context: KernelContext, site: Site, stmt: Gathered, axis: int, found: GatheredOperands) -> Taken:
    shape = points_shape(context.kernel, stmt)
    binders, lane = lanes(shape)
    values = LaneValues(context, site, binders)
    index = tuple(values.value(i, lane) for i in stmt.index)
    mask = values.value(stmt.mask, lane) if stmt.mask is not None else None
    steps = tuple(b for b in site.loops if b.kind == "loop" and b.span not in found.outer)
    extents = context.kernel.param(stmt.tensor).type.shape
    return Taken(site, stmt, shape, index, mask, extents, values, binders, lane, axis, steps)


def _masked(context: KernelContext, one: Taken) -> Obligation:
    """The mask leaves out nothing but what does not exist, and whole rows."""
    tensor, span = one.stmt.tensor, one.stmt.span
    what = f"the mask of the load of {tensor} leaves out no element that is to be multiplied"
    index = [i for i in one.index if i is not None]
    if one.mask is None or len(index) < len(one.index):
        missing = f"the {'mask' if one.mask is None else 'index'} is computed in a way that is not followed here"
        return unknown(context, CODE, "tags", what, span, missing)
    parts = tuple(conjuncts(one.mask))
    whole = [p for p in parts if not one.moves(p)]
    inside: list[ex.Expr] = []
    for i, n in zip(index, one.extents, strict=True):
        inside += [ex.Bin("<=", ex.Int(0), i), ex.Bin("<", i, n)]
    left = [p for p in parts if one.moves(p) and p not in inside]
    if not left:
        return proved(CODE, "tags", what, span, "it leaves out what does not exist")
    known = (*inside, *whole, *one.values.facts)
    claim = conjunction(left)
    base = one.site.question(conjunction((claim, *known)))
    own = {b.name for b in (*one.lanes, *one.values.symbols)}
    outer = tuple(b for b in base.binders if b.name not in own)
    binders = (*outer, *one.lanes, *one.values.symbols)
    decision = context.decider.decide(Question(claim, (*base.facts, *known), binders))

    def message(m: Mapping[str, int]) -> str:
        at = ", ".join(str(ex.evaluate(i, m)) for i in index)
        return f"The mask of the load of {tensor} leaves out {tensor}[{at}], which exists and is to be multiplied."

    settled = settle(
        context, one.site, CODE, "tags", what, decision, message, span=span,
        element=lambda m: tuple(ex.evaluate(e, m) for e in one.lane),
    )  # fmt: skip
    return _shown(context, one, settled, decision.model) if settled.verdict == "refuted" else settled


def _shown(context: KernelContext, one: Taken, settled: Obligation, model: Mapping[str, int]) -> Obligation:
    """A refutation with what running the kernel says: the element changes no output, while others do."""
    finding = settled.finding
    assert finding is not None and finding.counterexample is not None
    example = finding.counterexample
    values = {**example.sizes, **model}
    if not feasible(context.kernel, example.sizes):
        return unknown(context, CODE, "tags", settled.what, settled.span, f"whether that is meant. {finding.message}")
    for dim, index in enumerate(one.index):
        if index is None or not one.moves(index) or not ex.names(index) <= values.keys():
            continue
        at = ex.evaluate(index, values)
        if left_out(context.kernel, one.stmt.tensor, dim, [(example.sizes, at)]) is not None:
            return replace(settled, finding=replace(finding, counterexample=replace(example, replayed=True)))
    missing = f"whether that is meant, or made up for elsewhere. {finding.message}"
    return unknown(context, CODE, "tags", settled.what, settled.span, missing)
