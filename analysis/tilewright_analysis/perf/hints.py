"""Performance hints, TW7xx: what costs time although the kernel is right. Hints only, never errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tilewright.expand import ExpansionError, expand
from tilewright.ir import nodes as ir
from tilewright.ir.expr import EvaluationError
from tilewright.layout import LayoutError
from tilewright.source import Span
from tilewright_analysis.perf.access import shared_accesses, vector_widths
from tilewright_analysis.perf.devices import Device, has_model
from tilewright_analysis.perf.estimate import Estimate, estimate
from tilewright_analysis.perf.shapes import large_shapes
from tilewright_analysis.report import Finding

_LOW_OCCUPANCY = 0.25
_LOW_WAVE = 0.85
_FULL_LINE = (
    4  # bytes a thread with which a warp asks for a whole line; they reach full bandwidth (docs/measurements.md)
)


def hints(
    kernel: ir.Kernel, sizes: Mapping[str, int] | None = None, target: str | Device = "H200"
) -> tuple[Finding, ...]:
    """Hints about a kernel, policy or explicit, at the given sizes (default: large ones).

    Spans are relative to the kernel. Empty for a kernel that cannot be expanded (the verifier says what is wrong
    with it), and for targets without a performance model.
    """
    if not has_model(kernel):
        return ()
    try:
        explicit = expand(kernel)
        found = sizes or next(iter(large_shapes(kernel)), None)
        if found is None:
            return ()
        result = estimate(explicit, found, target)
    except (ExpansionError, LayoutError, EvaluationError):
        return ()
    out = [
        *_bank_conflicts(explicit), *_vectors(explicit), *_occupancy(kernel, result), *_waves(kernel, result),
        *_pipeline(kernel, explicit, result),
    ]  # fmt: skip
    return tuple(sorted(_distinct(out), key=lambda f: (f.span, f.code)))


def _distinct(findings: list[Finding]) -> list[Finding]:
    """Findings without repetitions of a message at one place, which expansion can produce."""
    return list({(f.code, f.span, f.message): f for f in findings}.values())


def _hint(code: str, message: str, span: Span, kernel: ir.Kernel) -> Finding:
    return Finding(code, message, span, kernel.name, "unknown", "hint")


def _bank_conflicts(kernel: ir.Kernel) -> Iterator[Finding]:
    for access in shared_accesses(kernel):
        if access.conflicts.excess > 0:
            verb = "storing" if access.write else "loading"
            ways = access.conflicts.excess + 1
            yield _hint(
                "TW701",
                f"{verb} '{access.tile}' takes {ways} times as long as it could: {ways} lanes meet in one bank of "
                f"'{access.buffer}'; give the buffer a swizzled layout, or the tile a layout that follows its rows",
                access.span, kernel,
            )  # fmt: skip


def _vectors(kernel: ir.Kernel) -> Iterator[Finding]:
    for width in vector_widths(kernel):
        if width.bytes < min(width.best, _FULL_LINE):
            verb = "stores to" if width.write else "loads from"
            amount = f"{width.bytes} byte{'s' * (width.bytes > 1)}"
            yield _hint(
                "TW702",
                f"a thread {verb} '{width.tensor}' {amount} at a time, so a warp asks "
                f"for {32 * width.bytes} bytes of a line of 128, where {width.best} a thread would be possible: "
                f"{width.reason}",
                width.span, kernel,
            )  # fmt: skip


def _occupancy(kernel: ir.Kernel, result: Estimate) -> Iterator[Finding]:
    resources, share = result.resources, result.resources.occupancy(result.device)
    # Matrix kernels live on few, large blocks; the others hide latency with threads.
    if not result.products and share < _LOW_OCCUPANCY and resources.limiter != "blocks":
        yield _hint(
            "TW703",
            f"{resources.blocks} block{'s' * (resources.blocks != 1)} of {resources.threads} threads fill {share:.0%} "
            f"of a multiprocessor of the {result.device.name}, limited by {resources.limiter}; smaller tiles would let "
            "more run",
            kernel.span, kernel,
        )  # fmt: skip


def _waves(kernel: ir.Kernel, result: Estimate) -> Iterator[Finding]:
    if result.products and result.tiles and result.wave_efficiency < _LOW_WAVE:
        slots = round(result.tiles / result.waves) if result.waves else 0
        sizes = ", ".join(f"{n} = {v}" for n, v in result.sizes.items())
        yield _hint(
            "TW704",
            f"at {sizes} the {result.tiles} tiles run in {-(-result.tiles // slots)} waves of {slots}, and the last "
            f"wave leaves {1 - result.wave_efficiency:.0%} of all slots empty; other tile sizes may divide better",
            kernel.span, kernel,
        )  # fmt: skip


def _pipeline(kernel: ir.Kernel, explicit: ir.Kernel, result: Estimate) -> Iterator[Finding]:
    loop = next(
        (
            s
            for block in (kernel.body, explicit.body)
            for s in ir.walk(block)
            if isinstance(s, ir.Pipeline | ir.For) and any(isinstance(i, ir.Mma | ir.Wgmma) for i in ir.walk(s.body))
        ),
        None,
    )
    if loop is None:
        return
    loads = [a for a in result.accesses if not a.write]
    if result.resources.stages <= 1 and loads:
        yield _hint(
            "TW705",
            "each step of the loop waits for its own loads: nothing is loaded while the tensor cores work; use "
            "tw.pipeline with 3 or more stages",
            loop.span, kernel,
        )  # fmt: skip
    elif result.bound == "latency":
        others = {n: t for n, t in result.times.items() if n != "latency"}
        next_best = max(others, key=lambda n: others[n])
        yield _hint(
            "TW705",
            f"the loop waits for memory: {result.resources.stages} stages of {result.resources.stage_bytes} bytes keep "
            f"too little in flight (predicted {result.times['latency']:.0f} µs, {next_best} alone "
            f"{others[next_best]:.0f} µs); take more stages or larger tiles",
            loop.span, kernel,
        )  # fmt: skip
