"""What command line and language server both call: from text to module and verdicts.

The stages on the way to machine code are in `stages`.

The heavy packages are imported when first needed: the server must rest in little memory, so only its worker process
may load the verifier.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tilewright.frontend import KernelUnit, Module, parse_module
from tilewright.frontend.kernel import WARPS
from tilewright.ir.nodes import Kernel
from tilewright.source import SourceText
from tilewright.targets import TARGETS
from tilewright_analysis.report import Finding, KernelReport, Obligation
from tilewright_server.errors import UsageError
from tilewright_server.sources import mentions_tilewright

OnObligation = Callable[[Obligation], None]
Cancelled = Callable[[], bool]


def parse(source: SourceText, previous: Module | None = None) -> Module:
    """The module of a text; never fails. `previous` makes it incremental. Text without kernels costs nothing."""
    if not mentions_tilewright(source.data):
        return Module(source, (), ())
    return parse_module(source, previous)


def configured(unit: KernelUnit, target: str = "", constants: Mapping[str, int | str] | None = None) -> KernelUnit:
    """The unit for another target (empty: its own) and with those of `constants` that it has.

    Raises UsageError for a target that does not exist.
    """
    if target and target not in TARGETS:
        raise UsageError(f"unknown target {target}; there are {', '.join(TARGETS)}")
    own = names_of_constants(unit)
    chosen = {name: value for name, value in (constants or {}).items() if name in own}
    if not target and not chosen:
        return unit
    return unit.with_consts(target or None, **chosen)


def names_of_constants(unit: KernelUnit) -> set[str]:
    """Names of the compile-time arguments, of the element types that a call decides, and `warps`."""
    kernel = unit.kernel
    return {WARPS, *(c.name for c in (*kernel.consts, *kernel.element_types))} if kernel is not None else {WARPS}


def load_verifier() -> None:
    """Import the verifier and its solver."""
    import tilewright_analysis

    _ = tilewright_analysis.check_unit  # a package that loads lazily does it now


def check(
    unit: KernelUnit, *, on_obligation: OnObligation | None = None, cancelled: Cancelled | None = None
) -> KernelReport:
    """The verdict on one kernel; spans are relative to it. `on_obligation` hears of each obligation once decided.

    Verdicts of earlier processes are remembered.
    """
    from tilewright_server import verdicts

    heard: list[Obligation] = []

    def hear(obligation: Obligation) -> None:
        heard.append(obligation)
        if on_obligation is not None:
            on_obligation(obligation)

    def verified() -> KernelReport:
        from tilewright_analysis import check_unit

        return check_unit(unit, on_obligation=hear, cancelled=cancelled)

    report = verdicts.remembered(unit, verified, cancelled)
    if on_obligation is not None and not heard:
        for obligation in report.obligations:
            on_obligation(obligation)
    return report


def file_problems(module: Module) -> tuple[Finding, ...]:
    """The problems of a module that belong to no kernel."""
    return tuple(Finding.of(problem, "") for problem in module.problems)


def find_unit(module: Module, name: str) -> KernelUnit:
    """The kernel of that name, or the only one if `name` is empty. Raises UsageError, naming the kernels there are."""
    names = [unit.name for unit in module.units]
    path = module.source.path
    if not names:
        raise UsageError(f"{path} has no kernels: a kernel is a function under @tw.kernel(…)")
    if not name and len(names) > 1:
        raise UsageError(f"{path} has several kernels; name one: {', '.join(f'{path}::{n}' for n in names)}")
    for unit in module.units:
        if not name or unit.name == name:
            return unit
    raise UsageError(f"{path} has no kernel {name}; it has {', '.join(names)}")


def healthy_kernel(unit: KernelUnit) -> Kernel:
    """The IR of a unit. Raises UsageError with its first problem when the front end rejected it."""
    errors = [problem for problem in unit.problems if problem.severity == "error"]
    if errors or unit.kernel is None:
        reason = f"{errors[0].message} [{errors[0].code}]" if errors else "it could not be understood"
        raise UsageError(f"{unit.name} is invalid: {reason}")
    return unit.kernel
