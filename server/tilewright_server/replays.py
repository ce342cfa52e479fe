"""The counterexamples of a kernel, run again statement by statement: what each role did before the rule was broken."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import groupby

from tilewright.interpret import KINDS_OF_CODE, ArgumentError, Limits, Schedule, Violation
from tilewright.interpret.execution import compile_kernel
from tilewright.interpret.recording import Executed, recorded
from tilewright.interpret.replaying import attempt
from tilewright.ir import nodes as ir
from tilewright.ir.expr import EvaluationError
from tilewright.source import NO_SPAN, SourceText, Span
from tilewright_analysis.report import Finding
from tilewright_server import engine, sources, stages
from tilewright_server.output.words import pairs, situation
from tilewright_server.sources import KernelPath

LAST = 24
"""Steps shown: the last before the violation."""
_ORDERS = 20


def show(path: str, codes: Collection[str]) -> int:
    """Print the steps of each counterexample of `FILE[::KERNEL]`; 1 if there is one. Raises UsageError."""
    named = KernelPath.parse(path)
    source = sources.read(named.file)
    unit = engine.find_unit(engine.parse(source), named.kernel)
    report = engine.check(unit)
    found = [f for f in report.findings if f.verdict == "refuted" and (not codes or f.code in codes)]
    shown = [f for f in found if f.counterexample is not None and f.counterexample.sizes]
    kernel = stages.expanded_kernel(unit) if shown else None
    for finding in shown:
        assert kernel is not None
        for line in _replayed(kernel, finding, source, unit.offset):
            print(line)
        print()
    if not shown:
        print(f"{path}: {report.verdict}; there is no counterexample to replay")
    return int(bool(shown))


def _replayed(kernel: ir.Kernel, finding: Finding, source: SourceText, offset: int) -> Iterator[str]:
    example = finding.counterexample
    assert example is not None
    yield f"{finding.code}, line {_line(finding.span, source, offset)}: {finding.message}"
    yield from (f"  {line}" for line in situation(example))
    if example.trace:
        yield "  what leads there:"
    for number, step in enumerate(example.trace, 1):
        who = f" [{step.role}]" if step.role else ""
        yield f"    {number}. line {_line(step.span, source, offset)}{who}: {step.text}"
    steps, violation = _run(kernel, example.sizes, finding.code)
    if violation is None:
        yield "  The interpreter runs it at these sizes without stopping: the counterexample shows in the results only."
        return
    yield f"  replayed: the last steps of the interpreter at {pairs(example.sizes)}"
    for (who, at, text), same in groupby(_described(steps, source, offset)):
        times = len(list(same))
        yield f"    {who}line {at}: {text}" + (f"  ({times} times)" if times > 1 else "")
    where = f" [{violation.role}]" if violation.role else ""
    yield f"  then, at line {_line(violation.span, source, offset)}{where}: {violation.kind}: {violation.message}"
    for related in violation.related:
        yield f"    line {_line(related.span, source, offset)}: {related.message}"


def _run(kernel: ir.Kernel, sizes: Mapping[str, int], code: str) -> tuple[list[Executed], Violation | None]:
    """The steps up to the violation that shows what the code claims, or up to any other."""
    wanted = KINDS_OF_CODE.get(code, frozenset())
    best: tuple[list[Executed], Violation | None] = ([], None)
    schedules = [Schedule(), Schedule(happens_before=True, tags=True)]
    schedules += [Schedule(seed, adversarial=True, tags=True) for seed in range(_ORDERS)]
    for schedule in schedules:
        for programs in (None, 1):
            try:
                with recorded(LAST) as steps:
                    found = attempt(compile_kernel(kernel, Limits()), sizes, schedule, programs)
            except (ArgumentError, EvaluationError):
                return best
            if found is not None and found.kind in wanted:
                return list(steps), found
            if found is not None and best[1] is None:
                best = list(steps), found
    return best


def _described(steps: list[Executed], source: SourceText, offset: int) -> Iterator[tuple[str, int, str]]:
    for step in steps:
        if step.stmt.span == NO_SPAN:
            continue
        at = _line(step.stmt.span, source, offset)
        who = f"[{step.who}] " if step.who else ""
        around = f" at {pairs(step.iteration)}" if step.iteration else ""
        yield who, at, f"{source.line_text(at - 1).strip()}{around}"


def _line(span: Span, source: SourceText, offset: int) -> int:
    return source.line_of(span.start + offset) + 1
