"""`tilewright check`: verify the kernels of files."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tilewright import dtypes
from tilewright.frontend import KernelUnit, Module
from tilewright_analysis.report import KernelReport, Obligation
from tilewright_server import engine, sources
from tilewright_server.errors import UsageError
from tilewright_server.output.results import FileResult, exit_status

SUMMARY = "verify the kernels of files and folders; show a counterexample for each that is wrong"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare files, format and what to check against."""
    parser.add_argument(
        "paths", nargs="+", metavar="PATH", help="FILE, FILE::KERNEL, or a folder to search for kernels"
    )
    parser.add_argument(
        "--format",
        choices=("text", "json", "sarif", "github"),
        default="text",
        help="text for people (default), or JSON (lines from 0), SARIF 2.1.0, or annotations of GitHub Actions",
    )
    parser.add_argument("--strict", action="store_true", help="fail also when an obligation could not be decided")
    parser.add_argument(
        "--all-configs", action="store_true", help="verify every combination of the choices that the kernels declare"
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="list every obligation")
    add_instance_arguments(parser)


def add_instance_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare --target and --const, which pick one instance of a kernel."""
    parser.add_argument("--target", default="", metavar="T", help="a GPU such as sm_90a (default: as the kernel says)")
    parser.add_argument(
        "--const",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="the value of a compile-time argument or element type, such as BM=64 or T=bf16",
    )


def run(arguments: argparse.Namespace) -> int:
    """Check, print, and return the exit status."""
    constants = parse_constants(arguments.const)
    if arguments.all_configs:
        if constants:
            raise UsageError("--all-configs takes every choice; leave out --const")
        results = [check_configurations(module, arguments.target) for module in _modules(arguments.paths)]
    else:
        results = check_paths(arguments.paths, arguments.target, constants)
    if arguments.format == "text":
        from rich.console import Console

        from tilewright_server.output.text_format import print_results

        console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
        print_results(results, console, verbose=arguments.verbose)
        if not results:
            print(f"no kernels found in {', '.join(arguments.paths)}")
    else:
        rendered = _render(results, arguments.format)
        if rendered:
            print(rendered)
    return exit_status(results, strict=arguments.strict)


def parse_constants(words: Sequence[str]) -> dict[str, int | str]:
    """`["BM=64", "T=bf16"]` as a mapping: whole numbers, and names of element types. Raises UsageError."""
    constants: dict[str, int | str] = {}
    for word in words:
        name, _, value = word.partition("=")
        if value.strip() in dtypes.ALL:
            constants[name.strip()] = value.strip()
            continue
        try:
            constants[name.strip()] = int(value, 0)
        except ValueError:
            raise UsageError(
                f"--const {word}: write NAME=VALUE with a whole number or an element type, such as BM=64 or T=bf16"
            ) from None
    return constants


def check_paths(paths: Sequence[str], target: str, constants: Mapping[str, int | str]) -> list[FileResult]:
    """One result a file. Files of a folder that mention no kernel are left out. Raises UsageError."""
    modules = _modules(paths)
    _require_known(constants, modules)
    return [check_module(module, target, constants) for module in modules]


def _modules(paths: Sequence[str]) -> list[Module]:
    """Files with their kernels; of a file that is only given as FILE::KERNEL, those kernels."""
    given = [sources.KernelPath(Path(p), "") if Path(p).exists() else sources.KernelPath.parse(p) for p in paths]
    whole = {p.file.resolve() for p in given if not p.kernel}
    modules: list[Module] = []
    for path, named in sources.python_files([str(p.file) for p in given]):
        source = sources.read(path)
        if named or sources.mentions_tilewright(source.data):
            module = engine.parse(source)
            if not any(path.resolve().is_relative_to(w) for w in whole):
                wanted = [p.kernel for p in given if p.file.resolve() == path.resolve()]
                chosen = [engine.find_unit(module, name) for name in wanted]
                module = replace(module, units=tuple(u for u in module.units if u in chosen))
            if named or module.units or module.problems:
                modules.append(module)
    return modules


def check_configurations(module: Module, target: str = "") -> FileResult:
    """Check every configuration of every kernel of a module; what several say of one place is told once."""
    from tilewright_server.configurations import check_all, configurations

    found = list(configurations(module.units))
    with _bar(f"{module.source.path}: configurations", len(found)) as advance:
        reports = check_all(module.source, found, target, advance)
    told: set[tuple[str, int, str]] = set()
    once: list[KernelReport] = []
    for report in reports:
        obligations: list[Obligation] = []
        for o in report.obligations:
            place = (o.code, o.span.start, report.kernel.partition("[")[0])
            again = o.finding is not None and place in told
            told |= {place} if o.finding is not None else set()
            obligations.append(replace(o, finding=None) if again else o)
        once.append(replace(report, obligations=tuple(obligations)))
    return FileResult(module.source, engine.file_problems(module), tuple(once))


@contextmanager
def _bar(title: str, total: int) -> Generator[Callable[[int], None]]:
    """A progress bar on a terminal, on the stream for messages; nothing elsewhere."""
    if not sys.stderr.isatty() or total < 2:
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=total)
        yield lambda done: progress.update(task, completed=done)


def check_module(module: Module, target: str = "", constants: Mapping[str, int | str] | None = None) -> FileResult:
    """Check every kernel of a module; a crash of the verifier on one leaves the others checked."""
    reports: list[KernelReport] = []
    crashes: list[str] = []
    for unit in module.units:
        try:
            reports.append(_check_unit(engine.configured(unit, target, constants)))
        except UsageError:
            raise
        except Exception as error:
            traceback.print_exc()
            crashes.append(f"the verifier failed on kernel {unit.name}: {type(error).__name__}: {error}")
    return FileResult(module.source, engine.file_problems(module), tuple(reports), tuple(crashes))


def _check_unit(unit: KernelUnit) -> KernelReport:
    start = time.perf_counter()
    report = engine.check(unit).shift(unit.offset)
    return replace(report, milliseconds=1000 * (time.perf_counter() - start))


def _require_known(constants: Mapping[str, int | str], modules: Sequence[Module]) -> None:
    known = {name for module in modules for unit in module.units for name in engine.names_of_constants(unit)}
    for name in constants.keys() - known:
        there = f"there are {', '.join(sorted(known))}" if known else "these kernels have none"
        raise UsageError(f"--const {name}: no kernel has this compile-time argument; {there}")


def _render(results: Sequence[FileResult], form: str) -> str:
    if form == "json":
        from tilewright_server.output import json_format

        return json_format.render(results)
    if form == "github":
        from tilewright_server.output import github_format

        return github_format.render(results)
    from tilewright_server import installed_version
    from tilewright_server.output import sarif_format

    return sarif_format.render(results, installed_version())
