"""TW102 for sums, maxima and the like: what is reduced over a dimension and stored covers it, each element once.

A reduction of which a part depends on the program or on a loop that is still running, as the sum of one block, is what
its author says it is. One that stands for all programs must reach from the first element to the last: a loop that
starts late or ends early, a tile that is shorter than the row, a step that is not the length of the tile. A mean is
divided by the number of elements, not by the length of the tile that holds them.

What is left out is shown by running the kernel twice (`influence`), what is counted twice by running it beside one
whose step is right.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.types import TileType
from tilewright.problem import Related

from ...context import KernelContext, Site
from ...plain import plain
from ...replay import feasible
from ...report import Counterexample, Obligation
from ..outcome import assume_fix, fixes_of, proved, refuted, situation, unknown
from .added import added
from .counterfactual import first_difference, trial_sizes, unequal
from .influence import left_out
from .meetings import missing
from .reduced import Quotient, Reduced, Stored
from .stretches import Reduction, Scan, Step, Stretch, advance, interleaved
from .summands import in_words

CODE = "TW102"
_HOW = "coordinates of reductions"
_SECONDS = 3.0
_TRIES = 20
_NAMES = {"sum": "sum", "max": "maximum", "min": "minimum", "argmax": "maximum", "argmin": "minimum"}


def check(context: KernelContext) -> Iterator[Obligation]:
    """One obligation for each reduction that reaches a store, and each division of a sum by a number of elements."""
    if not any(isinstance(s, ir.Compute | ir.Store | ir.TmaStore) for s in ir.walk(context.kernel.body)):
        return
    kernel = plain(context.written)
    other = KernelContext(kernel, context.decider, written=context.written, source=context.source)
    reduced = Reduced(other).run()
    seen: set[tuple[object, ...]] = set()
    short: set[Stretch] = set()
    for stored in reduced.stores:
        for reduction in _ordered(stored.value.reductions):
            if reduction.stretch.met:
                if (reduction, reduction.stmt.span) not in seen:
                    seen.add((reduction, reduction.stmt.span))
                    yield _apart(context, stored, reduction)
                continue
            if isinstance(stored.site.stmt, ir.Atomic):
                if stored.site.stmt.op == "add" and reduction.counts:
                    yield added(other, stored, reduction)
                continue
            key = (reduction, stored.tensor, reduction.stmt.span)
            if not _is_whole(reduction.stretch) or key in seen:
                continue
            seen.add(key)
            if reduction.stretch.lost:
                yield _not_followed(context, stored, reduction)
                continue
            for one in _covered(context, stored, reduction):
                again = one.verdict == "refuted" and reduction.stretch in short
                if one.verdict == "refuted":
                    short.add(reduction.stretch)
                how = "not decided because of the other reduction over the same part"
                yield replace(one, verdict="unknown", finding=None, how=how) if again else one
        yield from _running(other, reduced, stored, seen)
    for site, reduction in dict.fromkeys(reduced.overhangs):
        yield _past_the_end(context, site, reduction)
    for quotient in reduced.quotients:
        yield from _divided(context, quotient)
    for stmt, again in reduced.twice.values():
        missing = f"{in_words(again)} is in the sum already; whether it is meant to count twice is not known"
        yield unknown(context, CODE, "tags", "nothing is added twice", stmt.span, missing)
    yield from _of_single_elements(context)


def _of_single_elements(context: KernelContext) -> Iterator[Obligation]:
    """Reductions of tiles of single elements, whose places are not followed here."""
    gathered: set[str] = set()
    for stmt in ir.walk(context.kernel.body):
        match stmt:
            case ir.Gather(dst=dst):
                gathered.add(dst)
            case ir.Compute(dst=dst, args=args, op=op) if any(
                isinstance(a, ir.TileRef) and a.name in gathered for a in args
            ):
                gathered.add(dst)
                if op in ("sum", "max", "min", "argmax", "argmin"):
                    what = f"the {_NAMES[op]} over single elements covers what it stands for"
                    yield unknown(context, CODE, "tags", what, stmt.span, "where single elements lie is not followed")
            case _:
                pass


def _ordered(found: frozenset[Reduction]) -> list[Reduction]:
    return sorted(found, key=lambda r: (r.stmt.span, ex.show(r.stretch.start), ex.show(r.stretch.length), r.op))


def _is_whole(stretch: Stretch) -> bool:
    """True when the stretch is the same for all programs, of a dimension with a size of its own."""
    every = (stretch.start, stretch.length, *(e for s in stretch.steps for e in (s.binder.lo, s.binder.hi)))
    return isinstance(stretch.dim, ex.Size) and not any(isinstance(e, ex.Var) for x in every for e in ex.walk(x))


# ---------------------------------------------------------------------------------------- coverage


def _not_followed(context: KernelContext, stored: Stored, reduction: Reduction) -> Obligation:
    stretch, dim = reduction.stretch, ex.show(reduction.stretch.dim)
    what = f"the {_NAMES[reduction.op]} over {dim} of {stretch.tensor} that {stored.tensor} gets covers [0, {dim})"
    return unknown(context, CODE, "tags", what, reduction.stmt.span, stretch.lost, related=_stored_here(stored))


def _apart(context: KernelContext, stored: Stored, reduction: Reduction) -> Obligation:
    what = f"elements that are combined before a {_NAMES[reduction.op]} is taken carry equal coordinates"
    related = _stored_here(stored)
    return unknown(context, "TW101", "tags", what, reduction.stmt.span, missing(reduction), related=related)


def _past_the_end(context: KernelContext, site: Site, reduction: Reduction) -> Obligation:
    """A tile that may reach past the end that a table gives, of which no lane is taken out."""
    stretch = reduction.stretch
    what = f"the {_NAMES[reduction.op]} of {stretch.tensor} ends where the loop does"
    missing = (
        f"the last tile may reach past the end that the table gives, by up to {ex.show(stretch.length)} - 1 elements "
        f"of {ex.show(stretch.dim)}, and no tw.where takes them out"
    )
    return unknown(context, CODE, "tags", what, site.stmt.span, missing)


def _running(
    context: KernelContext, reduced: Reduced, stored: Stored, seen: set[tuple[object, ...]]
) -> Iterator[Obligation]:
    """Running results that are stored begin with the first element: in the tile, or in a sum that a loop carries."""
    for scan in sorted(stored.value.scans, key=lambda s: (s.stmt.span, ex.show(s.stretch.start))):
        stretch, dim, key = scan.stretch, ex.show(scan.stretch.dim), (scan, scan.stmt.span)
        whole = ex.Bin("<=", stretch.dim, stretch.end) if scan.stmt.reverse else ex.Bin("<=", stretch.start, ex.Int(0))
        if not isinstance(stretch.dim, ex.Size) or key in seen:
            continue
        seen.add(key)
        if not stretch.lost and context.decider.proves(stored.site.question(whole)):
            continue
        what = f"the running results along {dim} of {stretch.tensor} that {stored.tensor} gets count from its start"
        if _carried_on(reduced, stored, scan):
            yield proved(CODE, "tags", what, scan.stmt.span, _HOW)
            continue
        missing = (
            f"the tile begins at {dim} = {ex.show(stretch.start)}, and that the sum of what comes "
            f"{'after' if scan.stmt.reverse else 'before'} it is added once is not shown"
        )
        yield unknown(context, CODE, "tags", what, scan.stmt.span, missing, related=_stored_here(stored))


def _carried_on(reduced: Reduced, stored: Stored, scan: Scan) -> bool:
    """True if the one sum that a loop carries into the stored value is that of all tiles before this one."""
    value, stretch = stored.value, scan.stretch
    moving = [b for b in stored.site.loops if b.kind == "loop" and b.name in stretch.names]
    if scan.stmt.op != "cumsum" or scan.stmt.reverse or len(value.carried) != 1 or len(moving) != 1:
        return False
    (name,), (binder,) = value.carried, moving
    turn = reduced.turns.get(name)
    first = ex.substitute(stretch.start, {binder.name: binder.lo})
    even = stretch.length == ex.Int(advance(stretch.start, binder) or 0)
    if turn is None or turn.carried != value.carried or len(turn.reductions) != 1 or turn.fixed or any(turn.scans):
        return False
    (added_up,) = turn.reductions
    again = any(r.stretch.dim == stretch.dim for r in value.reductions)
    return first == ex.Int(0) and even and added_up.op == "sum" and added_up.stretch == stretch and not again


def _covered(context: KernelContext, stored: Stored, reduction: Reduction) -> Iterator[Obligation]:
    alike = (r.stretch for r in stored.value.reductions if r.op == reduction.op)
    stretch, site = interleaved(reduction.stretch, alike), stored.site
    dim, name = ex.show(stretch.dim), _NAMES[reduction.op]
    span = reduction.stmt.span
    what = f"the {name} over {dim} of {stretch.tensor} that {stored.tensor} gets covers [0, {dim})"
    related = _stored_here(stored)

    def open_(missing: str) -> Obligation:
        return unknown(context, CODE, "tags", what, span, missing, related=related)

    for step in stretch.steps:
        again = _stepped(context, stored, reduction, step, what, related)
        if again is not None:
            yield again
            return
    claim = _all_of(stretch)
    decision = context.decider.decide(site.question(claim))
    if decision.verdict == "proved" and stretch.sometimes:
        shown = _shown_without(context, stretch, {}, whole=True)
        if shown is None:
            yield open_(f"the {name} is taken in one branch only, and nothing says that the other comes to the same")
        else:
            yield _missing(context, stored, reduction, what, shown, "only a part")
        return
    if decision.verdict == "proved" or _in_parts(context, site, stretch, stored.value.reductions):
        yield proved(CODE, "tags", what, span, _HOW)
        return
    if decision.verdict == "unknown":
        yield open_(decision.missing)
        return
    if "TW303" in context.refuted and isinstance(stretch.end, ex.Int):
        how = "not decided because of the tile that does not hold the row"
        yield Obligation(CODE, "tags", what, span, "unknown", how=how)
        return
    if not stretch.names <= ex.names(stretch.dim):
        condition = ex.Bin("<=", stretch.dim, stretch.end)
        yield open_(
            f"it covers [{ex.show(stretch.start)}, {ex.show(stretch.end)}): whether that is all of it depends on "
            f"other sizes. tw.assume({ex.show(condition)}) says so"
        )
        return
    sizes = context.decider.complete(decision.model, context.kernel.sizes, site.facts)
    shown = _shown_without(context, stretch, {s: sizes[s] for s in context.kernel.sizes if s in sizes})
    if shown is None:
        yield open_(
            f"it covers [{ex.show(stretch.start)}, {ex.show(stretch.end)}), but no run showed that any is missing"
        )
        return
    start, end = (ex.evaluate(e, shown[0]) for e in (stretch.start, stretch.end))
    held = f"{dim} = {start}..{min(end, shown[0][dim]) - 1}" if end > start else "nothing"
    yield _missing(context, stored, reduction, what, shown, held)


def _missing(
    context: KernelContext, stored: Stored, reduction: Reduction, what: str, shown: tuple[Mapping[str, int], int],
    held: str,
) -> Obligation:  # fmt: skip
    stretch, (sizes, out) = reduction.stretch, shown
    dim, name = ex.show(stretch.dim), _NAMES[reduction.op]
    text = (
        f"This {name} of {stretch.tensor} covers {held} of [0, {dim}): {dim} = {out} has no part in what is stored to "
        f"{stored.tensor}."
    )
    example = Counterexample(sizes=sizes, values={"covered": held, "left out": f"{dim} = {out}"}, replayed=True)
    fix = assume_fix(context, ex.Bin("<=", stretch.dim, stretch.end)) if isinstance(stretch.end, ex.Int) else None
    return refuted(
        context, CODE, "tags", what, reduction.stmt.span, f"{text} {situation(example)}", example=example,
        related=_stored_here(stored), how=_HOW, fixes=fixes_of(fix),
    )  # fmt: skip


def _stored_here(stored: Stored) -> tuple[Related, ...]:
    return (Related(stored.site.stmt.span, f"its result is stored to {stored.tensor} here"),)


def _all_of(stretch: Stretch) -> ex.Expr:
    return ex.Bin("and", ex.Bin("<=", stretch.start, ex.Int(0)), ex.Bin("<=", stretch.dim, stretch.end))


def _in_parts(context: KernelContext, site: Site, stretch: Stretch, every: frozenset[Reduction]) -> bool:
    """True when this stretch and others of the value, one beginning where the other ends, cover the dimension."""
    parts = [
        r.stretch for r in every if r.stretch.dim == stretch.dim and not r.stretch.sometimes and _is_whole(r.stretch)
    ]

    def holds(claim: ex.Expr) -> bool:
        return context.decider.decide(site.question(claim)).verdict == "proved"

    def reaches(end: ex.Expr, used: tuple[Stretch, ...]) -> bool:
        if stretch in used and holds(ex.Bin("<=", stretch.dim, end)):
            return True
        return any(
            holds(ex.Bin("==", p.start, end)) and reaches(p.end, (*used, p))
            for p in parts
            if p not in used and not p.steps
        )

    return len(parts) > 1 and any(holds(ex.Bin("<=", p.start, ex.Int(0))) and reaches(p.end, (p,)) for p in parts)


def _shown_without(
    context: KernelContext, stretch: Stretch, sizes: Mapping[str, int], *, whole: bool = False
) -> tuple[Mapping[str, int], int] | None:
    """Sizes at which a run shows that an element is left out, and its coordinate; `sizes` are tried first.

    With `whole` the stretch is all of the dimension, and the last element or the first may be missing all the same.
    """

    def tries() -> Iterator[tuple[Mapping[str, int], int]]:
        for choice in islice(trial_sizes(context.kernel, [sizes] if sizes else []), _TRIES):
            start, end, extent = (ex.evaluate(e, choice) for e in (stretch.start, stretch.end, stretch.dim))
            if context.seconds_left() <= 0 or not feasible(context.kernel, choice):
                return
            if whole:
                yield choice, extent - 1
                yield choice, 0
            elif end < extent:
                yield choice, max(end, 0)
            elif start > 0:
                yield choice, 0

    return left_out(context.kernel, stretch.tensor, stretch.axis, tries())


# ---------------------------------------------------------------------------------------- steps


def _stepped(
    context: KernelContext, stored: Stored, reduction: Reduction, step: Step, what: str, related: tuple[Related, ...]
) -> Obligation | None:
    """The obligation if the step of a loop leaves elements out or meets some twice; None where that is harmless."""
    stretch, site, binder = reduction.stretch, stored.site, step.binder
    if step.distance < step.length and not reduction.counts:
        return None
    # A second iteration is where it shows.
    claim = ex.Bin("<=", ex.sub(stretch.dim, ex.Int(min(step.distance, step.length))), stretch.start)
    once = ex.Bin("<=", ex.sub(binder.hi, binder.lo), ex.Int(binder.step))
    decision = context.decider.decide(site.question(ex.Bin("or", once, claim)))
    if decision.verdict == "proved":
        return None
    span, dim = reduction.stmt.span, ex.show(stretch.dim)
    if decision.verdict == "unknown":
        return unknown(context, CODE, "tags", what, span, decision.missing, related=related)
    model = context.decider.complete(decision.model, context.kernel.sizes, site.facts)
    sizes = {s: model[s] for s in context.kernel.sizes if s in model}
    at = ex.evaluate(stretch.start, sizes) + min(step.distance, step.length)
    fault = (
        f"elements from {dim} = {at} on are left out" if step.distance > step.length
        else f"elements from {dim} = {at} on count twice"
    )  # fmt: skip
    text = (
        f"The loop over {binder.label} steps by {step.distance} along {dim}, but the tile that is reduced has "
        f"{step.length} elements: {fault}."
    )
    related = (*related, Related(binder.span, f"{binder.label} advances here"))
    if step.distance > step.length:
        found = left_out(context.kernel, stretch.tensor, stretch.axis, [(sizes, at)])
        shown = found[0] if found else None
    else:
        shown = _shown_twice(context, step)
    if shown is None:
        return unknown(
            context, CODE, "tags", what, span, f"{text} No run showed a difference in what is stored", related=related
        )
    example = Counterexample(sizes=shown, values={"step": str(step.distance), "tile": str(step.length)}, replayed=True)
    return refuted(
        context, CODE, "tags", what, span, f"{text} {situation(example)}", example=example, related=related, how=_HOW
    )


def _shown_twice(context: KernelContext, step: Step) -> Mapping[str, int] | None:
    """Sizes at which the kernel differs from the one whose loop steps by the length of the tile."""
    factor = step.distance // step.binder.step
    if not factor or step.length % factor:
        return None

    def right(stmt: ir.Stmt) -> ir.Block | None:
        same = isinstance(stmt, ir.For) and stmt.span == step.binder.span and stmt.step == step.binder.step
        return (replace(stmt, step=step.length // factor),) if isinstance(stmt, ir.For) and same else None

    return _differs(context, context.kernel.with_body(ir.rewrite(context.kernel.body, right)))


def _differs(context: KernelContext, repaired: ir.Kernel) -> Mapping[str, int] | None:
    seconds = min(_SECONDS, context.seconds_left())
    found = first_difference(context.kernel, repaired, trial_sizes(context.kernel), seconds, unequal)
    return None if found is None else found.sizes


# ---------------------------------------------------------------------------------------- divisors


def _divided(context: KernelContext, quotient: Quotient) -> Iterator[Obligation]:
    """A mean that is divided by the length of what holds the row, right only for one size, or by other sizes."""
    sums = [r for r in _ordered(quotient.reductions) if r.op == "sum" and _is_whole(r.stretch)]
    asked = {n.name for n in ex.walk(quotient.divisor) if isinstance(n, ex.Size)}
    if sums and asked and not any(isinstance(n, ex.Var | ex.Item) for n in ex.walk(quotient.divisor)):
        dims = {ex.show(r.stretch.dim) for r in sums}
        alike = [ex.Bin("==", r.stretch.dim, quotient.divisor) for r in sums]
        if not asked & dims and not any(context.decider.proves(quotient.site.question(c)) for c in alike):
            dim, stretch = ex.show(sums[0].stretch.dim), sums[0].stretch
            what = f"the sum over {dim} of {stretch.tensor} is divided by the number of its elements"
            missing = f"it is divided by {ex.show(quotient.divisor)}, and nothing says that this is {dim}"
            yield unknown(context, CODE, "tags", what, quotient.stmt.span, missing)
            return
    for reduction in _ordered(quotient.reductions):
        stretch = reduction.stretch
        lengths = (stretch.length, _of_tile(context.kernel, reduction.stmt))
        if reduction.op != "sum" or not _is_whole(stretch) or stretch.lost or quotient.divisor not in lengths:
            continue
        dim, span = ex.show(stretch.dim), quotient.stmt.span
        what = f"the sum over {dim} of {stretch.tensor} is divided by the number of its elements"
        decision = context.decider.decide(quotient.site.question(ex.Bin("==", quotient.divisor, stretch.dim)))
        if decision.verdict == "proved":
            yield proved(CODE, "tags", what, span, _HOW)
            continue
        shown = _differs(context, _divided_by(context.kernel, quotient.stmt, stretch.dim))
        if decision.verdict == "unknown" or shown is None:
            yield unknown(context, CODE, "tags", what, span, f"whether {ex.show(quotient.divisor)} is {dim}")
            continue
        number = ex.evaluate(quotient.divisor, shown)
        text = (
            f"The sum over {dim} is divided by {number}, the length of the tiles that hold the row, not by the number "
            f"of its elements: with {dim} = {ex.evaluate(stretch.dim, shown)} the mean is wrong. Divide by {dim}."
        )
        example = Counterexample(sizes=shown, values={"divisor": str(number)}, replayed=True)
        yield refuted(
            context, CODE, "tags", what, span, f"{text} {situation(example)}", example=example,
            related=(Related(reduction.stmt.span, "the sum is taken here"),), how=_HOW,
        )  # fmt: skip
        return


def _of_tile(kernel: ir.Kernel, stmt: ir.Stmt) -> ex.Expr | None:
    """The length of the axis that a reduction takes away; in a loop over the row, a part of it."""
    if not isinstance(stmt, ir.Compute) or stmt.axis is None or not isinstance(stmt.args[0], ir.TileRef):
        return None
    kind = kernel.types[stmt.args[0].name]
    return ex.Int(kind.shape[stmt.axis]) if isinstance(kind, TileType) else None


def _divided_by(kernel: ir.Kernel, quotient: ir.Compute, number: ex.Expr) -> ir.Kernel:
    def change(stmt: ir.Stmt) -> ir.Block | None:
        if isinstance(stmt, ir.Compute) and (stmt.dst, stmt.op, stmt.span) == (
            quotient.dst,
            quotient.op,
            quotient.span,
        ):
            return (replace(stmt, op="div", args=(stmt.args[0], number)),)
        return None

    return kernel.with_body(ir.rewrite(kernel.body, change))
