"""TW104: lanes past the edge of a tensor take part in a result.

A tile that reaches past the edge of its tensor has lanes without an element. They hold what `other=` says, and then
whatever the arithmetic makes of it. A sum, a maximum or a matrix product over them is right only if they hold what is
neutral there: 0 for a sum, nothing above the other lanes for a maximum, and 0 times a finite number for a product. What
is only stored does not matter, for stores drop these lanes.

The second subject is infinities that cancel: `-inf - -inf` is NaN, which is what a row without any valid lane computes
when its maximum is subtracted. It is reported where running the kernel shows it, and not claimed to be absent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from tilewright.expand import ExpansionError, expand_policies
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.shapes import parts_of
from tilewright.ir.types import TileType
from tilewright.problem import Edit, Fix, Related
from tilewright.source import NO_SPAN, Span

from ...async_.model import AsyncResult
from ...context import KernelContext, Site
from ...plain import plain
from ...report import Obligation
from ..outcome import call_prefix, fixes_of, proved, refuted, situation, unknown
from .counterfactual import (
    Difference,
    first_difference,
    neutralized,
    spoiled,
    trial_sizes,
    uncancelled,
    unequal,
)
from .flow import Flow
from .lanes import Edge
from .uses import Clash, Use

CODE = "TW104"
_NEUTRAL: Mapping[str, float] = {
    "max": float("-inf"), "min": float("inf"), "factor": 1.0, "update max": float("-inf"), "update min": float("inf"),
}  # fmt: skip
_NAMES: Mapping[str, str] = {
    "sum": "sum", "max": "maximum", "min": "minimum", "product": "product", "factor": "running product",
    "update add": "atomic update", "update max": "atomic update", "update min": "atomic update",
}  # fmt: skip
_SECONDS = 5.0
# Small sizes come first, and masks that leave nothing show there; a mask that does not should cost little.
_RUNS_FOR_NAN = 30
_HOW = "lanes past the edge"


def check(context: KernelContext) -> Iterator[Obligation]:
    """One obligation for each reduction, product and accumulation that sees lanes past an edge or infinities."""
    flow = Flow(context).run()
    for _, group in groupby(flow.uses, key=lambda u: (id(u.stmt), u.operand)):
        yield _lanes(context, flow, list(group))
    open_ = [c.stmt for c in flow.clashes if not c.sure]
    for clash in flow.clashes:
        yield from _infinities(context, flow, clash, open_)


# ---------------------------------------------------------------------------------------- lanes past an edge


def _lanes(context: KernelContext, flow: Flow, uses: list[Use]) -> Obligation:
    first = uses[0]
    what = f"lanes past an edge do not change this {_name(first)}"
    span = first.stmt.span
    open_ = [u for u in uses if not u.neutral and not any(flow.exact(e) for e in u.past)]
    if not open_:
        return proved(CODE, "tags", what, span, _HOW)
    use = open_[0]
    if not use.past:
        return unknown(context, CODE, "tags", what, span, f"which lanes are past an edge is not known: {use.tile.lost}")
    site = flow.site(use.stmt)
    found = _shown(context, flow, site, use) or _shown_without_staging(context, use)
    edge = min(use.past, key=lambda e: e.span)
    if found is None:
        missing = (
            f"lanes past the edge of {edge.tensor} hold {use.number} in this {_name(use)}, and no sizes were found at "
            "which that changes what is stored"
        )
        return unknown(context, CODE, "tags", what, span, missing, related=_related(use, edge))
    example = found.example(role=site.role)
    neutral = "what is neutral" if use.kind.endswith(("max", "min")) else "1" if use.kind == "factor" else "0"
    digits = 6 if f"{found.got:.6g}" != f"{found.repaired:.6g}" else 9
    got, repaired = f"{found.got:.{digits}g}", f"{found.repaired:.{digits}g}"
    text = (
        f"Lanes past the edge of {edge.tensor} take part in this {_name(use)} with {use.number} instead of "
        f"{neutral}: {found.where} becomes {got}, and {repaired} without them. {situation(example)}"
    )
    return refuted(
        context, CODE, "tags", what, span, text, example=example, related=_related(use, edge), how=_HOW,
        fixes=fixes_of(_where_fix(context, use)),
    )  # fmt: skip


def _shown(context: KernelContext, flow: Flow, site: Site, use: Use) -> Difference | None:
    """A run in which the lanes change what is stored."""
    stmt = use.stmt
    if isinstance(stmt, ir.Mma):
        left, right = use.operands
        operands = {stmt.a: _ordered(left.along(1)), stmt.b: _ordered(right.along(0))}
    elif isinstance(stmt, ir.Scatter):
        operands = {use.operand: _ordered(use.tile.edges)}
    else:
        operands = {use.operand: _ordered(use.tile.along(use.axis))}
    repaired = neutralized(context.kernel, site, operands, _NEUTRAL.get(use.kind, 0.0))
    if repaired is None:
        return None
    models: list[dict[str, int]] = []
    for edge in _ordered(use.past):
        for home, claim in flow.homes(edge):
            decision = context.decide(home, claim)
            if decision.verdict == "refuted":
                models.append(context.decider.complete(decision.model, context.kernel.sizes, home.facts))
    first = [{s: m[s] for s in context.kernel.sizes if s in m} for m in models]
    seconds = min(_SECONDS, context.seconds_left())
    return first_difference(context.kernel, repaired, trial_sizes(context.kernel, first), seconds, unequal)


def _shown_without_staging(context: KernelContext, use: Use) -> Difference | None:
    """The same in the kernel without staging: a tile in a ring, for another role, cannot be changed alone."""
    if context.written is context.kernel or not any(isinstance(s, ir.Pipeline) for s in ir.walk(context.written.body)):
        return None
    try:
        kernel = expand_policies(plain(context.written))
    except ExpansionError:
        return None
    other = KernelContext(kernel, context.decider, written=context.written, source=context.source)
    other.deadline, other.exploration = context.deadline, AsyncResult(())  # there are no stages to follow
    flow = Flow(other).run()
    for again in flow.uses:
        if (again.stmt.span, again.kind) == (use.stmt.span, use.kind) and not again.neutral and again.past:
            found = _shown(other, flow, flow.site(again.stmt), again)
            if found is not None:
                return found
    return None


def _ordered(edges: frozenset[Edge]) -> list[Edge]:
    return sorted(edges, key=lambda e: (e.span, e.axis))


def _related(use: Use, edge: Edge) -> tuple[Related, ...]:
    found = [Related(edge.span, f"{edge.tensor} is loaded here")]
    at = use.tile.spoiled
    if at is not None and at not in (NO_SPAN, use.stmt.span):
        found.append(Related(at, "after this, lanes past the edge no longer hold what they were given"))
    return tuple(found)


def _name(use: Use) -> str:
    if use.kind == "accumulation":
        return "accumulation"
    return _NAMES[use.kind]


# Calls of several operations, of which the first asks of the argument what the whole does.
_ASK_THE_SAME = {"max": ("softmax",), "sort": ("topk",), "argsort": ("topk",)}


def _where_fix(context: KernelContext, use: Use) -> Fix | None:
    """Wrap the argument of a reduction in `tw.where(columns < N, …, 0.0)`."""
    stmt = use.stmt
    edges = _ordered(use.tile.along(use.axis))
    shape = context.kernel.types.get(use.operand)
    if context.source is None or not isinstance(stmt, ir.Compute) or len(edges) != 1:
        return None
    if not isinstance(shape, TileType) or not shape.dtype.is_float or use.kind == "accumulation":
        return None
    argument = _first_argument(context.source, stmt.span, (stmt.op, *_ASK_THE_SAME.get(stmt.op, ())))
    # The statement may be about a piece of a tile, and the text is about the whole.
    if argument is None or any(
        isinstance(t, TileType) and any(len(parts_of(n)) > 1 for n in t.shape) for t in context.written.types.values()
    ):
        return None
    prefix = call_prefix(context)
    edge, rank = edges[0], len(shape.shape)
    lanes = f"{prefix}arange({shape.shape[use.axis]})"
    origin, extent = ex.show(edge.written, prefix), ex.show(edge.extent, prefix)
    lanes = f"{lanes} < {extent}" if origin == "0" else f"{origin} + {lanes} < {extent}"
    if rank > 1:
        lanes = f"({lanes})[{', '.join(':' if a == use.axis else 'None' for a in range(rank))}]"
    neutral = {"max": f"-{prefix}inf", "min": f"{prefix}inf", "factor": "1.0"}.get(use.kind, "0.0")
    edits = (
        Edit(Span(argument.start, argument.start), f"{prefix}where({lanes}, "),
        Edit(Span(argument.end, argument.end), f", {neutral})"),
    )
    return Fix(f"Put {neutral} into the lanes past the edge", edits)


def _first_argument(source: str, span: Span, names: Sequence[str]) -> Span | None:
    """The place of the first argument of the call of one of `names` at `span`; None if there stands no such call."""
    text = source.encode("utf-8", "surrogatepass")[span.start : span.end]
    start = text.find(b"(") + 1
    if text[: max(0, start - 1)].decode(errors="replace").rpartition(".")[2] not in names:
        return None
    if start == 0 or not text.endswith(b")") or not text[: start - 1].replace(b".", b"").replace(b"_", b"").isalnum():
        return None
    depth = 0
    for i in range(start, len(text)):
        depth += (text[i : i + 1] in (b"(", b"[", b"{")) - (text[i : i + 1] in (b")", b"]", b"}"))
        if depth < 0 or (depth == 0 and text[i : i + 1] == b","):
            return Span(span.start + start, span.start + i)
    return None


# ---------------------------------------------------------------------------------------- infinities that cancel


def _infinities(context: KernelContext, flow: Flow, clash: Clash, open_: list[ir.Compute]) -> Iterator[Obligation]:
    stmt = clash.stmt
    what = "infinities do not cancel to NaN here"
    if clash.sure:
        yield proved(CODE, "tags", what, stmt.span, "signs of infinities")
        return
    # Where an empty row spoils several differences, each by itself is enough.
    others = uncancelled(context.kernel, [s for s in open_ if s is not stmt])
    repaired = uncancelled(context.kernel, open_)
    seconds = min(_SECONDS, context.seconds_left())
    found = first_difference(
        others, repaired, trial_sizes(context.kernel), seconds, spoiled, most=_RUNS_FOR_NAN
    )  # fmt: skip
    if found is None:
        return
    example = found.example(role=flow.site(stmt).role)
    text = (
        f"Infinities of one sign are subtracted here, which is NaN, and {found.where} becomes NaN. A row without any "
        "valid lane has the maximum -inf: subtract 0 instead, with tw.where(m == -tw.inf, 0.0, m). "
        f"{situation(example)}"
    )
    yield refuted(context, CODE, "tags", what, stmt.span, text, example=example, how="interpreter")
