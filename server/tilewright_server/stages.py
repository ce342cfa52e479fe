"""A kernel at each stage on its way to machine code. All functions raise UsageError for one that cannot get there."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping

from tilewright.frontend import KernelUnit
from tilewright.ir.nodes import Kernel
from tilewright.lower import Lowered
from tilewright.lower.compile import Compiled
from tilewright.source import SourceText, Span
from tilewright.targets import TARGETS, Backend
from tilewright_server import engine
from tilewright_server.errors import MissingExtra, UsageError


def syntax_tree(unit: KernelUnit) -> str:
    """The syntax tree, one node a line, with its place in the kernel; also of a kernel that is broken."""
    from tilewright_server.output.tree_text import render

    return render(unit.text.encode("utf-8", "surrogatepass"))


def ir(unit: KernelUnit) -> str:
    """Tile IR as written, policies included."""
    from tilewright_server.output.ir_text import render

    return render(engine.healthy_kernel(unit))


def expanded_kernel(unit: KernelUnit) -> Kernel:
    """The kernel with its policies turned into explicit instructions and its layouts inferred."""
    from tilewright.expand import ExpansionError, expand
    from tilewright.layout import LayoutError

    kernel = engine.healthy_kernel(unit)
    try:
        return expand(kernel)
    except (ExpansionError, LayoutError) as error:
        raise UsageError(f"{unit.name} cannot be expanded: {error}{_place(unit, error)}") from error


def expanded_source(unit: KernelUnit) -> str:
    """The expansion as source in the language."""
    from tilewright.printer import kernel_source

    return kernel_source(expanded_kernel(unit))


def lowered_kernel(unit: KernelUnit) -> Lowered:
    """The kernel lowered to Gluon."""
    from tilewright.lower import LoweringError, lower

    try:
        return lower(expanded_kernel(unit))
    except LoweringError as error:
        raise UsageError(f"{unit.name} cannot be lowered: {error}{_place(unit, error)}") from error


def gluon(unit: KernelUnit) -> str:
    """The generated module of Gluon, with its launcher."""
    return lowered_kernel(unit).source


def compiled_kernel(unit: KernelUnit) -> Compiled:
    """The kernel compiled ahead of time, for its target, in a process of its own."""
    from tilewright.lower import LoweringError
    from tilewright.lower.compile import compile_lowered

    if importlib.util.find_spec("triton") is None:
        raise MissingExtra("compiling", "triton", "gpu")
    try:
        return compile_lowered(lowered_kernel(unit))
    except LoweringError as error:
        detail = f"\n{error.detail}" if error.detail else ""
        raise UsageError(f"{unit.name} cannot be compiled: {error}{_place(unit, error)}{detail}") from error


def ptx(unit: KernelUnit) -> str:
    """PTX of the compiled kernel."""
    _require_backend(unit, "cuda", "PTX", "amdgcn")
    return compiled_kernel(unit).ptx


def sass(unit: KernelUnit) -> str:
    """SASS of the compiled kernel, under a line with its registers, spills and shared memory."""
    _require_backend(unit, "cuda", "SASS", "amdgcn")
    done = compiled_kernel(unit)
    return f"// {_facts(done)}\n{done.sass}"


def amdgcn(unit: KernelUnit) -> str:
    """Assembly of the compiled kernel for AMD, under a line with its registers, spills and shared memory."""
    _require_backend(unit, "hip", "AMD assembly", "ptx or sass")
    done = compiled_kernel(unit)
    return f"; {_facts(done)}\n{done.amdgcn}"


def _facts(done: Compiled) -> str:
    accumulators = f" ({done.accumulators} of them accumulation registers)" if done.accumulators else ""
    return (
        f"{done.target}: {done.registers} registers a thread{accumulators}, {done.spill_stores} bytes spilled, "
        f"{done.shared} bytes of shared memory, {done.num_warps} warps"
    )


def _require_backend(unit: KernelUnit, backend: Backend, what: str, instead: str) -> None:
    target = TARGETS[engine.healthy_kernel(unit).target]
    if target.backend != backend:
        raise UsageError(f"{unit.name} is for {target.name}, for which there is no {what}; --emit {instead}")


STAGES: Mapping[str, Callable[[KernelUnit], str]] = {
    "tree": syntax_tree,
    "ir": ir,
    "expanded": expanded_source,
    "gluon": gluon,
    "ptx": ptx,
    "sass": sass,
    "amdgcn": amdgcn,
}


def _place(unit: KernelUnit, error: Exception) -> str:
    """Where in the kernel the error is, if it says so."""
    span = getattr(error, "span", None)
    if not isinstance(span, Span) or span.end == 0:
        return ""
    source = SourceText.of(unit.text)
    return f"\n  in line {source.line_of(span.start) + 1} of the kernel: {source.text(span).splitlines()[0]}"
