"""Runs counterexamples in the interpreter before anyone sees them.

A refutation of the integers was already evaluated; running the kernel at those sizes shows in addition that the
situation is reached. If nothing goes wrong there, the verifier was wrong, and the obligation becomes unknown.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from math import prod
from time import thread_time

import numpy as np
import numpy.typing as npt

from tilewright.interpret import KINDS_OF_CODE, ArgumentError, Kind, Limits, Schedule, Violation, replay
from tilewright.interpret.execution import compile_kernel, outputs
from tilewright.interpret.replaying import attempt
from tilewright.ir import nodes as ir
from tilewright.ir.erase import without_other_expectations
from tilewright.ir.expr import EvaluationError, evaluate
from tilewright.source import Span

from .checks.outcome import situation
from .checks.tags.counterfactual import determined, tile_lengths
from .integers import Decider, smallest_first
from .integers.ranges import known_divisors
from .report import Counterexample, Family, Finding, Obligation

Values = npt.NDArray[np.int64]
REPLAYED: frozenset[Family] = frozenset(("tags", "memory", "grid", "async"))
# Orders of execution tried for faults that need an unlucky one; the others show in the first run.
_ASYNC_TRIES = 20
# A broken protocol shows as what follows from it, depending on the schedule: a wait that meets the wrong phase lets a
# stage be read too early, or blocks. A stage or slot that does not exist is out of bounds.
_PROTOCOL: frozenset[Kind] = frozenset(
    ("race", "stale", "uninitialized", "deadlock", "phase", "arrivals", "bytes", "bounds")
)
_CONSEQUENCES: dict[str, frozenset[Kind]] = {
    **dict.fromkeys(("TW402", "TW403", "TW405", "TW407"), _PROTOCOL),
    "TW401": frozenset(("bounds",)),
}
_MOST_LARGER = 24
_MOST_SIZES = 4096
_SECONDS_FOR_EXPECTATIONS = 1.0
_MOST_ELEMENTS = 1 << 22
_MOST_PRODUCTS = 1 << 31


def replayed(kernel: ir.Kernel, obligation: Obligation, decider: Decider, before: Collection[str] = ()) -> Obligation:
    """`obligation` with its counterexample marked as replayed, or as unknown if it does not show.

    Left as it is when there is nothing to run: not refuted, no sizes, a family that the interpreter has no notion of,
    or sizes too large for it.
    """
    finding = obligation.finding
    if obligation.verdict != "refuted" or obligation.family not in REPLAYED or finding is None:
        return obligation
    example = finding.counterexample
    if example is not None and any(v < 1 for n, v in example.sizes.items() if n not in kernel.integers):
        # Trip counts alone decided; the smallest sizes that may be launched give the same ones or more.
        kept = {n: v for n, v in example.sizes.items() if v >= 1 or n in kernel.integers}
        sizes = decider.complete(kept, kernel.sizes, tuple(a.expr for a in kernel.assumptions))
        shown = replace(example, sizes=sizes)
        finding = replace(
            finding,
            message=finding.message.replace(situation(example), situation(shown)),
            counterexample=shown,
        )
        obligation, example = replace(obligation, finding=finding), shown
    if example is None or example.replayed or not feasible(kernel, example.sizes):
        return obligation
    if obligation.code == "TW106":
        kernel = without_other_expectations(kernel, obligation.span)
    tries = _ASYNC_TRIES if obligation.family in ("async", "tags") else 0
    found, why = None, "the interpreter runs it at those sizes without a fault"
    try:
        found = _run(kernel, example.sizes, tries, obligation.code, _arrays(example))
    except (ArgumentError, EvaluationError) as error:
        why = f"its sizes cannot be run: {error}"
    if found is not None:
        shown = found.kind in _kinds(obligation.code)
        if obligation.family == "tags" and not shown and any(c.startswith("TW4") for c in before):
            how = "not decided because of the fault in the order of accesses"
            return replace(obligation, verdict="unknown", finding=None, how=how)
        return replace(obligation, finding=replace(finding, counterexample=replace(example, replayed=shown)))
    # Tags are compared as formulas, and the sizes that came out may make two of them equal by accident.
    for sizes in larger_sizes(kernel, example.sizes) if obligation.family == "tags" else ():
        try:
            found = _run(kernel, sizes, 0, obligation.code)
        except (ArgumentError, EvaluationError):  # no tables for these sizes
            continue
        if found is not None and found.kind in _kinds(obligation.code):
            return replace(obligation, finding=_at(finding, example, sizes, found))
    if obligation.code == "TW301":
        # A program that stores nothing is a fault of the map, but none that shows in the output.
        return obligation
    if example.values.get("contracted") == "nothing":
        # A value into which nothing has been contracted does not say over what it should have been: but then no element
        # of an operand changes what is stored.
        if ignored := _without_influence(kernel, example.sizes):
            said = f"No element of {ignored} changes what is stored. {situation(example)}"
            text = finding.message.replace(situation(example), said)
            shown = replace(example, replayed=True)
            return replace(obligation, finding=replace(finding, message=text, counterexample=shown))
        why = "at those sizes the operands do change what is stored"
    return _doubtful(obligation, finding, why)


def _without_influence(kernel: ir.Kernel, sizes: Mapping[str, int]) -> str:
    """A tensor that is loaded for a product but changes no output at these sizes; empty if there is none."""
    from .checks.tags.influence import matters  # which reads what checks share, and those read this module

    stored = set(outputs(kernel))
    for p in kernel.params:
        loads = (s.view for s in ir.walk(kernel.body) if isinstance(s, ir.Load | ir.TmaLoad | ir.CpAsync))
        if (
            any(view.tensor == p.name for view in loads)
            and p.name not in stored
            and p.type.dtype.is_float
            and not matters(kernel, p.name, sizes)
        ):
            return p.name
    return ""


def broken_expectation(kernel: ir.Kernel, span: Span) -> tuple[str, Counterexample] | None:
    """What running the kernel at small sizes says against the expectation at `span`, and where; None: nothing."""
    compiled = compile_kernel(without_other_expectations(kernel, span), Limits())
    end = thread_time() + _SECONDS_FOR_EXPECTATIONS
    for sizes in larger_sizes(kernel, {}):
        found = attempt(compiled, sizes, Schedule(tags=True))
        if found is not None and found.kind == "expectation":
            return found.message, Counterexample(
                sizes, found.program, dict(found.iteration), found.role, {}, found.element, found.values, replayed=True
            )  # fmt: skip
        if thread_time() > end:
            return None
    return None


def _kinds(code: str) -> frozenset[Kind]:
    return KINDS_OF_CODE.get(code, frozenset()) | _CONSEQUENCES.get(code, frozenset())


def _arrays(example: Counterexample) -> dict[str, Values]:
    return {name: np.asarray(table, np.int64) for name, table in example.tables.items()}


def _run(
    kernel: ir.Kernel, sizes: Mapping[str, int], tries: int, code: str, tables: Mapping[str, Values] | None = None
) -> Violation | None:
    """The violation at these sizes, one of the code's own kinds if there is one."""
    # Without tags first where they are not the point: a misplaced tile would stop the run before it counts as missing.
    found = attempt(compile_kernel(kernel, Limits()), sizes, Schedule(), tables=tables) if _tagless(code) else None
    # A persistent grid on a device with room for one program: counters run furthest there.
    for programs in (None, 1):
        if found is None or found.kind not in _kinds(code):
            found = replay(kernel, sizes, tries=tries, programs=programs, code=code, tables=tables) or found
    return found


def _tagless(code: str) -> bool:
    return code.startswith(("TW2", "TW3"))


def larger_sizes(kernel: ir.Kernel, sizes: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """One to three tiles in each dimension, full or not: other sizes that keep the assumptions, smallest first."""
    tiles = tile_lengths(kernel)
    unit = known_divisors(a.expr for a in kernel.assumptions)
    choices: list[list[int]] = []
    for name, tile in tiles.items():
        least = unit.get(name, 1)
        tile = -(-tile // least) * least
        choices.append(sorted({tile, 2 * tile, 3 * tile, tile + least, 2 * tile + least}))
    found = 0
    for choice in islice(smallest_first(choices), _MOST_SIZES):
        larger = determined(kernel, dict(zip(tiles, choice, strict=True)))
        if larger == dict(sizes) or not all(evaluate(a.expr, larger) for a in kernel.assumptions):
            continue
        if found == _MOST_LARGER or not feasible(kernel, larger):
            return
        found += 1
        yield larger


def _at(finding: Finding, example: Counterexample, sizes: dict[str, int], found: Violation) -> Finding:
    """The finding with the situation that the interpreter showed instead of its own."""
    shown = replace(
        example,
        sizes=sizes,
        program=found.program,
        iteration=dict(found.iteration),
        element=found.element,
        # Numbers that belong to the other sizes would be wrong.
        values=dict(found.values) or {k: v.rpartition(" = ")[0] or v for k, v in example.values.items()},
        replayed=True,
    )
    if found.kind == "completeness":
        # What was covered depends on the sizes.
        text = f"{found.message[:1].upper()}{found.message[1:]}. {situation(shown)}"
    else:
        text = re.sub(r" \(-?\d+ and -?\d+ at these sizes\)", "", finding.message)
        text = text.replace(situation(example), situation(shown))
    return replace(finding, message=text, counterexample=shown)


def feasible(kernel: ir.Kernel, sizes: Mapping[str, int]) -> bool:
    """True when running the kernel at these sizes takes a moment, not minutes."""
    if not set(kernel.sizes) <= sizes.keys():
        return False
    elements = [prod(evaluate(e, sizes) for e in p.type.shape) for p in kernel.params]
    # Each element of the largest tensor meets every size at most once.
    work = max(elements, default=0) * max((sizes[s] for s in kernel.sizes), default=1)
    return all(0 <= e <= _MOST_ELEMENTS for e in elements) and work <= _MOST_PRODUCTS


def _doubtful(obligation: Obligation, finding: Finding, why: str) -> Obligation:
    text = f"Not proved: {obligation.what}. A counterexample was found, but did not replay: {why}. {finding.message}"
    unknown = replace(finding, message=text, verdict="unknown", severity="information", fixes=())
    return replace(obligation, verdict="unknown", finding=unknown)
