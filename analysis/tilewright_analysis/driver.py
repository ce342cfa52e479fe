"""Runs the checks over a kernel, a unit or a file, and collects a report. Obligations stream while it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from time import perf_counter, thread_time

from tilewright.expand import ExpansionError, expand, expand_policies
from tilewright.frontend import KernelUnit, Module
from tilewright.ir import nodes as ir
from tilewright.ir.backend_sync import add_backend_sync
from tilewright.layout import LayoutError
from tilewright.problem import Problem
from tilewright.source import Span

from .attempts import tried
from .checks import CHECKS, Check
from .checks.outcome import unknown
from .context import KernelContext
from .integers import Decider, Functions
from .offers import Offers
from .replay import replayed
from .report import Finding, KernelReport, Obligation

OnObligation = Callable[[Obligation], None]
Cancelled = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Budget:
    """`effort` bounds one call to z3, in its own units (half a microsecond each or less, whatever the load);
    obligations left after `seconds` of computing become unknown. Waiting for other work of the machine does not count.
    """

    effort: int = 2_000_000
    seconds: float = 20.0


def check_kernel(
    kernel: ir.Kernel,
    *,
    on_obligation: OnObligation | None = None,
    cancelled: Cancelled | None = None,
    budget: Budget | None = None,
    source: str | None = None,
    reference: str = "",
    checks: Iterable[Check] = CHECKS,
) -> KernelReport:
    """Check a kernel, policy or explicit; spans in the report are relative to the kernel.

    Args:
        kernel: as the front end gives it. Policies are expanded first.
        on_obligation: called with each obligation as soon as it is decided.
        cancelled: asked between steps; when it says yes, the report holds what was decided so far.
        budget: limits of time.
        source: the text of the kernel, for fixes that insert lines.
        reference: what the kernel declares to compute, which its results are compared with.
        checks: which checks to run.
    """
    begin = perf_counter()
    try:
        explicit, inference = _explicit(kernel)
    except ExpansionError as error:
        problem = Finding.of(error.problem, kernel.name)
        return KernelReport(kernel.name, kernel.span, (), (problem,), _ms(begin))
    limits = budget or Budget()
    stop = cancelled or (lambda: False)
    context = KernelContext(
        explicit,
        Decider(limits.effort, stop, Functions.of(explicit)),
        written=kernel,
        source=source,
        reference=reference,
    )
    context.deadline = thread_time() + limits.seconds
    offers = Offers(context, expand)
    found: list[Obligation] = []
    told: set[tuple[str, Span, str, str]] = set()
    for check in checks:
        if stop():
            break
        late = context.seconds_left() <= 0
        for obligation in _run(check, context, late, offers):
            if obligation.verdict != "proved":
                # Pieces of a tile and turns of an unrolled loop have one place in the text, which is told once.
                key = (obligation.code, obligation.span, obligation.what, obligation.verdict)
                if key in told:
                    continue
                told.add(key)
            found.append(obligation)
            if obligation.verdict == "refuted":
                context.refuted.add(obligation.code)
            if on_obligation is not None:
                on_obligation(obligation)
            if stop():
                break
    # Without layouts the kernel is not usable; mostly a check has said why, and better.
    unsaid = inference is not None and not any(o.verdict == "refuted" for o in found)
    problems = (Finding.of(inference, kernel.name),) if inference is not None and unsaid else ()
    return KernelReport(kernel.name, kernel.span, tuple(found), problems, _ms(begin))


def check_unit(
    unit: KernelUnit,
    *,
    on_obligation: OnObligation | None = None,
    cancelled: Cancelled | None = None,
    budget: Budget | None = None,
) -> KernelReport:
    """Check one kernel of a file. Problems of the front end become findings; with errors among them nothing is
    verified.
    """
    problems = tuple(Finding.of(p, unit.name) for p in unit.problems)
    if unit.kernel is None or any(p.severity == "error" for p in problems):
        span = unit.span.shift(-unit.offset)
        return KernelReport(unit.name, unit.kernel.span if unit.kernel else span, (), problems)
    report = check_kernel(
        unit.kernel,
        on_obligation=on_obligation,
        cancelled=cancelled,
        budget=budget,
        source=unit.text,
        reference=unit.reference,
    )
    return replace(report, problems=problems + report.problems)


def check_module(
    module: Module,
    *,
    on_report: Callable[[KernelReport], None] | None = None,
    cancelled: Cancelled | None = None,
    budget: Budget | None = None,
) -> tuple[KernelReport, ...]:
    """Check every kernel of a file; spans are absolute. Problems outside of kernels are in `module.problems`."""
    reports: list[KernelReport] = []
    for unit in module.units:
        if cancelled is not None and cancelled():
            break
        report = check_unit(unit, cancelled=cancelled, budget=budget).shift(unit.offset)
        reports.append(report)
        if on_report is not None:
            on_report(report)
    return tuple(reports)


def _run(check: Check, context: KernelContext, late: bool, offers: Offers) -> Iterable[Obligation]:
    span, code = context.kernel.span, check.codes[0]
    if not check.applies(context):
        return
    if late:
        yield unknown(context, code, check.family, f"check {check.name}", span, "the time for this kernel is used up")
        return
    begin = perf_counter()
    try:
        for obligation in check.run(context):
            decided = tried(context, replayed(context.tagged, obligation, context.decider, context.refuted))
            decided = offers.added(check.run, decided)
            yield replace(decided, milliseconds=_ms(begin))
            begin = perf_counter()
    except Exception as error:
        # One broken check must not take the others with it, nor pass for a proof.
        missing = f"internal error in check {check.name}: {type(error).__name__}: {error}"
        yield replace(
            unknown(context, code, check.family, f"check {check.name}", span, missing), milliseconds=_ms(begin)
        )


def _explicit(kernel: ir.Kernel) -> tuple[ir.Kernel, Problem | None]:
    """The explicit form; and what is wrong if layouts cannot be inferred, in which case tiles have none."""
    try:
        return expand(kernel), None
    except LayoutError as error:
        span = getattr(error, "span", kernel.span)
        explicit = expand_policies(kernel)
        return explicit.with_body(add_backend_sync(explicit.body)), Problem("TW503", f"{error}.", span)


def _ms(begin: float) -> float:
    return (perf_counter() - begin) * 1000
