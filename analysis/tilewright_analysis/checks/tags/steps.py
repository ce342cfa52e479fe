"""Whether the steps of a loop are what is contracted, where it does not move the indices of its operands evenly.

With `tap = i // cdiv(C, 32)`, `r = tap // S`, `s = tap % S` and channels from `i % cdiv(C, 32) * 32` on, the numbers
below R * S * cdiv(C, 32) are every tap and every block of channels once: their digits (`mixed_radix`). One operand must
show it, the one whose indices depend on the step alone; dimensions of the same extent in the others must go along.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.problem import Related

from ...async_ import forms
from ...context import KernelContext
from ...integers import Question
from ...integers.ranges import known_divisors
from ...mixed_radix import Digit, digit_of, product_of, radices
from ...replay import feasible
from ...report import Counterexample, Obligation
from ..outcome import proved, refuted, situation, unknown
from .counterfactual import determined
from .gathers import CODE, Taken
from .influence import element_left_out

_MOST_TRIES = 40
_TOGETHER = "depends on the row and the step together"


def uneven(one: Taken) -> bool:
    """Whether a loop moves the indices in another way than evenly."""
    names = {b.name for b in one.steps}
    return any(
        isinstance(e, ex.Bin) and e.op in ("//", "%", "min", "max", "cdiv") and ex.names(e) & names
        for i in one.index if i is not None for e in ex.walk(i)
    )  # fmt: skip


def obligation(context: KernelContext, stmt: ir.Stmt, operands: Sequence[Taken]) -> Obligation:
    """The steps of a product take each element of what it contracts once."""
    what = "the steps of the product take each element of what is contracted once"
    span = stmt.span
    reasons: list[str] = []
    for one in operands:
        found = _digits(context, one)
        if isinstance(found, str):
            reasons.append(found)
            continue
        apart = next((a for other in operands if other is not one and (a := _apart(one, other))), "")
        if not apart:
            return proved(CODE, "tags", what, span, "digits of the step")
        reasons.append(apart)
    if (shown := _shown(context, stmt, what, operands)) is not None:
        return shown
    return unknown(context, CODE, "tags", what, span, min(reasons, key=lambda r: _TOGETHER in r))


def confirmed(context: KernelContext, stmt: ir.Stmt, operands: Sequence[Taken]) -> Obligation | None:
    """A finding where running the kernel shows that it leaves out elements which its products should take."""
    return _shown(context, stmt, "each element of what is contracted is taken", operands)


def _shown(context: KernelContext, stmt: ir.Stmt, what: str, operands: Sequence[Taken]) -> Obligation | None:
    missing = _left_out(context, operands)
    if missing is None:
        return None
    one, sizes, at = missing
    place = ", ".join(str(at.get(d, ":")) for d in range(len(one.extents)))
    tensor = one.stmt.tensor
    example = Counterexample(dict(sizes), replayed=True)
    text = (
        f"{tensor}[{place}] changes no result, while other elements of {tensor} do: the products leave it out. "
        f"{situation(example)}"
    )
    related = (Related(one.stmt.span, f"{tensor} is loaded here"),)
    return refuted(context, CODE, "tags", what, stmt.span, text, example=example, related=related, how="small sizes")


@dataclass(frozen=True, slots=True)
class _Part:
    """A contracted dimension: its digit of the step, and how many elements each value of the digit stands for."""

    dim: int
    digit: Digit
    length: int


def _digits(context: KernelContext, one: Taken) -> tuple[_Part, ...] | str:
    """The digits of the step that the contracted dimensions are, all of them; or why they are not known to be."""
    tensor = one.stmt.tensor
    moving = [b for b in one.steps if any(b.name in ex.names(i) for i in one.index if i is not None)]
    if len(moving) != 1 or moving[0].lo != ex.Int(0) or moving[0].step != 1:
        return f"the indices of {tensor} do not count the iterations of one loop from 0 on"
    (step,) = moving
    total = product_of(step.hi)
    rows = {b.name for b in one.lanes} - {one.lane_name}
    parts: list[_Part] = []
    for dim, index in enumerate(one.index):
        if index is None or not one.moves(index):
            continue
        if ex.names(index) & rows:
            return f"what {tensor} is indexed with {_TOGETHER}"
        part = _part(one, dim, index)
        if part is None:
            return f"the index of dimension {dim} of {tensor} is no digit of the step"
        parts.append(part)
    if total is None or (one.lane_name and sum(p.length > 1 for p in parts) != 1):
        return f"the elements of a step of {tensor} do not lie along one dimension"
    if not all(_counts(p.digit.number, step.name) for p in parts):
        return f"what {tensor} is indexed with is computed from something else than the step"
    found = radices([p.digit for p in parts], total)
    if found is None:
        return f"the indices of {tensor} are not all digits of a step below {ex.show(step.hi)}"
    for part, radix in zip(parts, found, strict=True):
        reached = ex.Bin("<=", one.extents[part.dim], ex.mul(radix.expr, ex.Int(part.length)))
        if not context.decider.proves(Question(reached, context.assumptions)):
            return f"{ex.show(reached)} is not known, so that steps reach the end of dimension {part.dim} of {tensor}"
    return tuple(parts)


def _part(one: Taken, dim: int, index: ex.Expr) -> _Part | None:
    if one.lane_name not in ex.names(index):
        return _Part(dim, digit_of(index), 1)
    length = one.shape[one.along]
    form = forms.canonical(index, {}, forms.Facts({}, {}, {}))
    terms = dict(form.terms)
    if terms.pop(ex.Var(one.lane_name), None) != 1 or form.const or len(terms) > 1:
        return None
    if not terms:
        return _Part(dim, Digit(ex.Int(0), digit_of(ex.Int(0)).divisor, None), length)
    ((block, factor),) = terms.items()
    return _Part(dim, digit_of(block), length) if factor == length and one.lane_name not in ex.names(block) else None


def _counts(number: ex.Expr, step: str) -> bool:
    """Whether a number is the step, or the step some iterations ahead."""
    match number:
        case ex.Var(name):
            return name == step
        case ex.Bin("+", ex.Var(name), ex.Int()):
            return name == step
        case _:
            return False


def _apart(one: Taken, other: Taken) -> str:
    """Why a dimension that both operands contract may not go along; empty if each does."""
    for index, extent in zip(other.index, other.extents, strict=True):
        rows = {b.name for b in other.lanes} - {other.lane_name}
        if index is None or not other.moves(index) or ex.names(index) & rows:
            continue
        own = ex.substitute(index, {other.lane_name: ex.Var(one.lane_name)})
        alike = [
            i for i, n in zip(one.index, one.extents, strict=True) if n == extent and i is not None and one.moves(i)
        ]
        if alike and own not in alike:
            return f"whether {other.stmt.tensor} and {one.stmt.tensor} go along in the dimension of {ex.show(extent)}"
    return ""


# ------------------------------------------------------------------------------------------- refutation


def _left_out(
    context: KernelContext, operands: Sequence[Taken]
) -> tuple[Taken, Mapping[str, int], Mapping[int, int]] | None:
    """An operand, sizes and coordinates whose elements never matter, as running the kernel shows."""
    for one in operands:
        rows = {b.name for b in one.lanes} - {one.lane_name}
        moving = [(d, i) for d, i in enumerate(one.index) if i is not None and one.moves(i)]
        if any(ex.names(i) & rows for _, i in moving):
            continue
        tries: list[tuple[Mapping[str, int], Mapping[int, int]]] = []
        for sizes in _sizes(context, operands):
            if not feasible(context.kernel, sizes):
                continue
            ranges: list[list[int]] = []
            for dim, index in moving:
                extent = ex.evaluate(one.extents[dim], sizes)
                # Of a block that lies along the tile the first and the last element.
                counted = one.lane_name in ex.names(index)
                ranges.append(sorted({0, extent - 1}) if counted else list(range(extent)))
            tries += [(sizes, dict(zip((d for d, _ in moving), at, strict=True))) for at in product(*ranges)]
        if (found := element_left_out(context.kernel, one.stmt.tensor, tries[:_MOST_TRIES])) is not None:
            return one, *found
    return None


def _sizes(context: KernelContext, operands: Sequence[Taken]) -> Iterator[dict[str, int]]:
    """Small sizes that the assumptions allow: two or three of everything, and more than one step along a dimension."""
    kernel = context.kernel
    unit = known_divisors(context.assumptions)
    for counts in ((2, 3), (3, 2), (3, 3)):
        sizes = {n: unit.get(n, 1) * counts[i % 2] for i, n in enumerate(kernel.sizes)}
        for one in operands:
            for index, extent in zip(one.index, one.extents, strict=True):
                if index is not None and one.lane_name in ex.names(index) and isinstance(extent, ex.Size):
                    least = unit.get(extent.name, 1)
                    sizes[extent.name] = -(-one.shape[one.along] // least) * least + least
        sizes = determined(kernel, sizes)
        if all(n >= 1 for n in sizes.values()) and all(ex.evaluate(a, sizes) for a in context.assumptions):
            yield sizes
