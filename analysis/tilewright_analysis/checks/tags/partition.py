"""Contractions split over programs into parts that loops compute: `s * part` to `min(K, (s + 1) * part)`.

Part s goes from where its loop begins up to the end of the loop's last tile. The parts of all s in [0, S) are all of a
dimension, each element once, if the first begins at 0, each begins where the one before ends (or both lie past the end,
where copies and operands are zero), and the last ends at or past the end. That every s has a program, and one only, is
what TW301 to TW303 say of `W[s]`, and the same questions answer it for sums.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir

from ...async_.model import AsyncOutcome, End
from ...context import KernelContext, Site
from ...integers import Binder, Question
from ...integers.ranges import known_divisors
from ...plain import plain
from ...report import Counterexample, Obligation
from ..grid.sums import first_open, left_open
from ..grid.writes import Write
from ..outcome import proved, refuted, situation
from .counterfactual import trial_sizes
from .influence import left_out
from .shortened import cut_off, difference

_MOST_PARTS = 64
_TRIES = 60


@dataclass(frozen=True, slots=True)
class Parts:
    """`count` parts of a dimension, numbered by `number`: from `begin` on, in steps of `step` while below `end`."""

    number: str
    count: ex.Expr
    begin: ex.Expr
    end: ex.Expr
    step: int

    def at(self, number: ex.Expr) -> tuple[ex.Expr, ex.Expr]:
        """Where a part begins and where its last tile ends."""
        begin, end = (ex.substitute(e, {self.number: number}) for e in (self.begin, self.end))
        length = ex.binary("max", ex.Int(0), ex.sub(end, begin))
        return begin, ex.add(begin, ex.mul(ex.cdiv(length, ex.Int(self.step)), ex.Int(self.step)))


def in_parts(context: KernelContext, o: AsyncOutcome, end: End, extent: ex.Expr) -> Obligation | None:
    """What is known of a store of one part of a contraction over all of a loop; None if it is not one of such parts."""
    site = next((s for s in context.sites if f"statement {id(s.stmt)}" == o.subject), None)
    if site is None or not isinstance(end.loop, ir.For) or end.ahead:
        return None
    for parts in _parts(context, site, end.loop):
        if all(context.decider.proves(q) for q in _questions(context, parts, extent)):
            return proved(o.code, "tags", o.what, o.span, "exploration of all trip counts; the parts are all of it")
        fault = _missing(context, parts, extent) or _twice(context, parts, end.loop, extent)
        if fault is not None:
            text, example = fault
            text = f"{text} {situation(example)}"
            return refuted(context, o.code, "tags", o.what, o.span, text, example=example, how="parts at small sizes")
    return None


def _parts(context: KernelContext, site: Site, loop: ir.For) -> Iterator[Parts]:
    """The parts that a store may be one of: numbered by an index that it has, or by a coordinate of the grid."""
    assigned: dict[str, set[ex.Expr]] = {}
    for stmt in ir.walk(context.kernel.body):
        if isinstance(stmt, ir.Assign):
            assigned.setdefault(stmt.dst, set()).add(stmt.value)
    known = {name: next(iter(values)) for name, values in assigned.items() if len(values) == 1}
    for number, count in _numbers(context, site):
        rest: Mapping[str, ex.Expr] = {n: v for n, v in known.items() if n != number}
        begin, end = loop.lo, loop.hi
        for _ in range(len(rest)):
            begin, end = ex.substitute(begin, rest), ex.substitute(end, rest)
        variables = {e.name for x in (begin, end) for e in ex.walk(x) if isinstance(e, ex.Var)}
        if variables == {number} and not any(ex.items(begin)) and not any(ex.items(end)):
            yield Parts(number, count, begin, end, loop.step)


def _numbers(context: KernelContext, site: Site) -> Iterator[tuple[str, ex.Expr]]:
    """Variables that may number the parts, with how many there are."""
    stmt = site.stmt
    if isinstance(stmt, ir.Store | ir.TmaStore):
        extents = context.kernel.param(stmt.view.tensor).type.shape
        for at, extent in zip(stmt.view.origin[: stmt.view.lead], extents, strict=False):
            if isinstance(at, ex.Var):
                yield at.name, extent
    elif isinstance(stmt, ir.Atomic) and stmt.op == "add" and not left_open(context, stmt):
        extents = context.kernel.param(stmt.view.tensor).type.shape
        origin = tuple(site.value(e) for e in stmt.view.origin)
        grids = [s for s in ir.walk(context.written.body) if isinstance(s, ir.Tiles)]
        for grid in grids:
            for name, count in zip(grid.vars, grid.counts, strict=True):
                first = replace(
                    stmt.view, origin=(ex.Var(name), *stmt.view.origin), shape=(1, *stmt.view.shape),
                    lead=stmt.view.lead + 1,
                )  # fmt: skip
                write = Write(site, first, (site.value(ex.Var(name)), *origin), (count, *extents))
                if first_open(context, write) is None:
                    yield name, count


def _questions(context: KernelContext, parts: Parts, extent: ex.Expr) -> Iterator[Question]:
    """What makes the parts all of the dimension."""
    facts = context.assumptions
    yield Question(ex.Bin("<=", parts.at(ex.Int(0))[0], ex.Int(0)), facts)
    yield Question(ex.Bin("<=", extent, parts.at(ex.sub(parts.count, ex.Int(1)))[1]), facts)

    def follows(number: ex.Expr) -> ex.Expr:
        end, begin = parts.at(number)[1], parts.at(ex.add(number, ex.Int(1)))[0]
        past = ex.Bin("and", ex.Bin("<=", extent, end), ex.Bin("<=", extent, begin))
        return ex.Bin("or", ex.Bin("==", end, begin), past)

    if isinstance(parts.count, ex.Int):
        if parts.count.value > _MOST_PARTS:
            yield Question(ex.Int(0))
        for n in range(min(parts.count.value, _MOST_PARTS) - 1):
            yield Question(follows(ex.Int(n)), facts)
    else:
        number = Binder("part", "part", "loop", ex.Int(0), ex.sub(parts.count, ex.Int(1)))
        yield Question(follows(ex.Var("part")), facts, (number,))


def _missing(context: KernelContext, parts: Parts, extent: ex.Expr) -> tuple[str, Counterexample] | None:
    """An element along the dimension that no part has, which a run shows to change nothing."""
    kernel, dim = context.kernel, ex.show(extent)
    tries = [(sizes, left[-1]) for sizes, left, _ in _wrong(context, parts, extent) if left]
    for p in kernel.params:
        axes = [i for i, e in enumerate(p.type.shape) if e == extent]
        if len(axes) != 1 or p.name not in _loaded(kernel) or not tries:
            continue
        if (shown := left_out(kernel, p.name, axes[0], tries)) is not None:
            sizes, at = shown
            text = (
                f"The {ex.show(parts.count)} parts of [0, {dim}), each from {_written(parts.begin)} to "
                f"{_written(parts.end)}, leave out {dim} = {at}: no result changes with it."
            )
            return text, Counterexample(sizes=sizes, values={"left out": f"{dim} = {at}"}, replayed=True)
    return None


def _twice(
    context: KernelContext, parts: Parts, loop: ir.For, extent: ex.Expr
) -> tuple[str, Counterexample] | None:  # fmt: skip
    """An element that two parts have, where a run shows that the tile that reaches into the next part counts there."""
    kernel = plain(context.written)
    loops = [s for s in ir.walk(kernel.body) if isinstance(s, ir.For) and s.span == loop.span]
    if len(loops) != 1 or not any(again for _, _, again in _wrong(context, parts, extent)):
        return None
    differs = difference(context, kernel, cut_off(kernel, loops[0], extent, loops[0].hi))
    again = None if differs is None else _wrong_at(parts, extent, differs.sizes)[1]
    if differs is None or again is None:
        return None
    (at, number), dim = again, ex.show(extent)
    text = (
        f"Part {number} of [0, {dim}) does not stop at its end, where no tile of {parts.step} ends: {dim} = {at} is in "
        f"the next part, too. {differs.where} becomes {differs.got:.6g}, and {differs.repaired:.6g} if it does."
    )
    return text, Counterexample(sizes=differs.sizes, values={"in two parts": f"{dim} = {at}"}, replayed=True)


def _wrong(
    context: KernelContext, parts: Parts, extent: ex.Expr
) -> Iterator[tuple[Mapping[str, int], list[int], tuple[int, int] | None]]:
    """What is wrong with the parts at small sizes."""
    kernel, unit = context.kernel, known_divisors(context.assumptions)
    first: list[dict[str, int]] = []
    if isinstance(extent, ex.Size):
        least = {n: unit.get(n, 1) for n in kernel.sizes}
        count = parts.count.value if isinstance(parts.count, ex.Int) else 2
        # A tile or two for each part, and a little more.
        more = [n * count * parts.step + rest for n in (1, 2) for rest in (0, least[extent.name], parts.step)]
        first = [{**least, extent.name: -(-n // least[extent.name]) * least[extent.name]} for n in more]
    for sizes in islice(trial_sizes(kernel, first), _TRIES):
        if context.seconds_left() <= 0:
            return
        yield sizes, *_wrong_at(parts, extent, sizes)


def _wrong_at(parts: Parts, extent: ex.Expr, sizes: Mapping[str, int]) -> tuple[list[int], tuple[int, int] | None]:
    """Elements that no part has; and one that two have, with the number of the first of them."""
    taken: dict[int, int] = {}
    again: tuple[int, int] | None = None
    whole = ex.evaluate(extent, sizes)
    for n in range(min(ex.evaluate(parts.count, sizes), _MOST_PARTS)):
        begin, end = (ex.evaluate(e, sizes) for e in parts.at(ex.Int(n)))
        for k in range(max(0, begin), min(end, whole)):
            again = again or ((k, taken[k]) if k in taken else None)
            taken.setdefault(k, n)
    return [k for k in range(whole) if k not in taken], again


def _written(e: ex.Expr) -> str:
    return f"`{ex.show(e)}`"


def _loaded(kernel: ir.Kernel) -> set[str]:
    return {
        s.view.tensor for s in ir.walk(kernel.body) if isinstance(s, ir.Load | ir.TmaLoad | ir.CpAsync)
    }  # fmt: skip
