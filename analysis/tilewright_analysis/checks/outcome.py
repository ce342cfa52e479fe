"""From a decision about integers to an obligation with a message, a counterexample and fixes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.problem import Edit, Fix, Related, Severity
from tilewright.source import NO_SPAN, Span

from ..context import KernelContext, Site
from ..dies import program_of_tile
from ..integers import Decision
from ..report import Counterexample, Family, Finding, Obligation, TraceStep

Values = Mapping[str, int]


def settle(
    context: KernelContext,
    site: Site,
    code: str,
    family: Family,
    what: str,
    decision: Decision,
    message: Callable[[Values], str],
    *,
    span: Span | None = None,
    fixes: Sequence[Fix] = (),
    related: Sequence[Related] = (),
    element: Callable[[Values], tuple[int, ...]] | None = None,
    values: Callable[[Values], Mapping[str, str]] | None = None,
    hint: str = "",
) -> Obligation:
    """The obligation `what` at `site` with the verdict of `decision`.

    `message`, `element` and `values` are called with the values of all sizes and binders of the counterexample. `hint`
    says what would settle it.
    """
    span = span or site.stmt.span
    if decision.verdict == "proved":
        return Obligation(code, family, what, span, "proved", how=decision.how)
    if decision.verdict == "unknown":
        return unknown(context, code, family, what, span, hint or decision.missing)
    model = context.decider.complete(decision.model, context.kernel.sizes, site.facts)
    where: tuple[int, ...] = ()
    shown: Mapping[str, str] = {}
    try:
        text = message(model)
        where = element(model) if element else where
        shown = values(model) if values else shown
    except ex.EvaluationError as error:
        # The model is one where a divisor is zero: that is the fault.
        text = f"There is a {error} here, so nothing is known of this: {what}."
    example = counterexample(context, site, model, element=where, values=shown)
    text = f"{text} {situation(example)}".rstrip()
    return refuted(
        context, code, family, what, span, f"{text} {hint}".rstrip(),
        example=example, fixes=fixes, related=related, how=decision.how,
    )  # fmt: skip


def proved(code: str, family: Family, what: str, span: Span, how: str) -> Obligation:
    """An obligation that holds."""
    return Obligation(code, family, what, span, "proved", how=how)


def refuted(
    context: KernelContext,
    code: str,
    family: Family,
    what: str,
    span: Span,
    message: str,
    *,
    example: Counterexample | None = None,
    fixes: Sequence[Fix] = (),
    related: Sequence[Related] = (),
    how: str = "",
    severity: Severity = "error",
) -> Obligation:
    """An obligation that fails, with the finding that says so."""
    finding = Finding(
        code, message, span, context.kernel.name, "refuted", severity, example, tuple(related), tuple(fixes)
    )
    return Obligation(code, family, what, span, "refuted", finding, how)


def unknown(
    context: KernelContext,
    code: str,
    family: Family,
    what: str,
    span: Span,
    missing: str,
    *,
    related: Sequence[Related] = (),
) -> Obligation:
    """An obligation that nobody decided; the finding says what is missing, and is no error."""
    text = f"Not proved: {what}. {_sentence(missing)}" if missing else f"Not proved: {what}."
    finding = Finding(code, text, span, context.kernel.name, "unknown", "information", None, tuple(related))
    return Obligation(code, family, what, span, "unknown", finding)


def counterexample(
    context: KernelContext,
    site: Site,
    model: Values,
    *,
    element: tuple[int, ...] = (),
    values: Mapping[str, str] | None = None,
) -> Counterexample:
    """The model in the terms of the kernel: sizes, program number and loop variables around `site`."""
    program: int | None = None
    iteration: dict[str, int] = {}
    trace: list[TraceStep] = []
    persistent = {g.stmt.span for g in context.grids if g.stmt.persistent}
    for b in site.loops:
        if b.name not in model:
            continue
        if b.kind == "program" and program is None and b.span not in persistent:
            program = program_of_tile(model[b.name], ex.evaluate(b.hi, model), b.dies)
        iteration[b.label] = model[b.name]
        trace.append(TraceStep(b.span, f"{b.label} = {model[b.name]}", site.role))
    trace.append(TraceStep(site.stmt.span, _described(site.stmt), site.role))
    return Counterexample(
        sizes={s: model[s] for s in context.kernel.sizes if s in model},
        program=program,
        iteration=iteration,
        role=site.role,
        element=element,
        values=dict(values or {}),
        trace=tuple(s for s in trace if s.span != NO_SPAN),
        tables=context.tables(model),
    )


def _described(stmt: ir.Stmt) -> str:
    match stmt:
        case ir.Load(view=view) | ir.TmaLoad(view=view) | ir.CpAsync(view=view):
            return f"the load of {view.tensor}"
        case ir.Gather(tensor=tensor) | ir.CpGather(tensor=tensor):
            return f"the load of {tensor}"
        case ir.Scatter(tensor=tensor, op="add" | "max" | "min"):
            return f"the atomic update of {tensor}"
        case ir.Scatter(tensor=tensor):
            return f"the store to {tensor}"
        case ir.Store(view=view) | ir.TmaStore(view=view):
            return f"the store to {view.tensor}"
        case ir.Atomic(view=view):
            return f"the atomic update of {view.tensor}"
        case ir.Assign(value=ex.Item(tensor)):
            return f"the load of {tensor}"
        case ir.Assign(dst=dst):
            return f"{dst} is computed"
        case ir.Programs() | ir.For() | ir.While():
            return "the loop"
        case _:
            return "here"


def situation(example: Counterexample) -> str:
    """The counterexample in one sentence."""
    parts = [f"{n} = {v}" for n, v in {**example.sizes, **example.iteration}.items()]
    parts += [f"{name} = {_shown(table)}" for name, table in example.tables.items()]
    return f"Counterexample: {', '.join(parts)}." if parts else ""


def _shown(table: object) -> str:
    text = str(table)
    return text if len(text) <= 60 else f"{text[:56]} …]"


def assume_fix(context: KernelContext, condition: ex.Expr) -> Fix | None:
    """Insert `tw.assume(condition)` as the first statement of the kernel; None where its place is unknown."""
    prefix = call_prefix(context)
    return assume_text_fix(context, f"{prefix}assume({ex.show(condition, prefix)})")


def assume_text_fix(context: KernelContext, text: str) -> Fix | None:
    """Insert the assumption `text` as the first statement of the kernel; None where its place is unknown."""
    return first_line_fix(context, f"Add {text}", text)


def first_line_fix(context: KernelContext, title: str, text: str) -> Fix | None:
    """Insert `text` as the first statement of the kernel; None where its place is unknown."""
    starts = [a.span.start for a in context.written.assumptions if a.span != NO_SPAN]
    starts = starts or [s.span.start for s in context.written.body if s.span != NO_SPAN]
    if not starts:
        return None
    return Fix(title, (_line(context, min(starts), text),))


def call_prefix(context: KernelContext) -> str:
    """What stands before the names of the language in the source: `tw.`, or nothing."""
    if context.source is None:
        return "tw."
    found = re.search(r"@\s*(?:(\w+)\.)?kernel\b", context.source)
    return f"{found[1]}." if found and found[1] else ""


def indented(context: KernelContext, fix: Fix) -> Fix:
    """The fix with each inserted line indented like the line it stands before."""
    edits = [
        _line(context, e.span.start, e.text.rstrip("\n")) if e.span.start == e.span.end and e.text.endswith("\n") else e
        for e in fix.edits
    ]
    return Fix(fix.title, tuple(edits))


def _line(context: KernelContext, at: int, text: str) -> Edit:
    """Insert `text` as a line of its own before the line that holds byte `at`."""
    indent = "    "
    if context.source is not None:
        data = context.source.encode("utf-8", "surrogatepass")
        line = max(data.rfind(b"\n", 0, at), data.rfind(b"\r", 0, at)) + 1
        lead = re.match(rb"[ \t]*", data[line:])
        indent = lead[0].decode() if lead else indent
        at = line + len(indent.encode())
    return Edit(Span(at, at), f"{text}\n{indent}")


def fixes_of(*fixes: Fix | None) -> tuple[Fix, ...]:
    """The fixes that exist."""
    return tuple(f for f in fixes if f is not None)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")
