"""Benchmarks: a kernel beside its reference or another kernel, one problem size after the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from tilewright.frontend import KernelUnit
from tilewright.ir import nodes as ir
from tilewright_agent.runner import Progress, Runner, RunResult
from tilewright_analysis.perf.shapes import Sizes, broken_assumption, large_shapes, small_shapes

MOST_SHAPES = 1000


class BadSizes(Exception):
    """The wanted sizes make no sense for the kernel; the message says why."""


def bench(
    session: Runner,
    unit: KernelUnit,
    shapes: Sequence[Sizes],
    against: KernelUnit | None = None,
    progress: Progress | None = None,
    *,
    profile: bool = False,
) -> Iterator[tuple[Sizes, RunResult]]:
    """Run a kernel at each shape, in a job of its own, so that one that does not fit leaves the others.

    Each result has one case; its baseline is `against`, or the reference without that. `profile`: as `Runner.run`.
    Raises what `Runner.run` raises.
    """
    for i, sizes in enumerate(shapes):

        def report(message: str, share: float, done: int = i) -> None:
            if progress is not None:
                progress(message, (done + share) / len(shapes))

        yield sizes, session.run(unit, [sizes], report, 1, against, profile=profile)


def bench_shapes(kernel: ir.Kernel, wanted: Mapping[str, Sequence[int]], *, gpu: bool) -> list[Sizes]:
    """Every combination of the wanted values; sizes that are left out get those of the first default shape.

    With nothing wanted, the default shapes: large ones for a GPU, small ones for the interpreter. Raises BadSizes.
    """
    defaults = (large_shapes(kernel) if gpu else ()) or small_shapes(kernel)
    for name, values in wanted.items():
        if name not in kernel.sizes:
            raise BadSizes(f"{kernel.name} has no size {name}; it has {', '.join(kernel.sizes) or 'none'}")
        if not values or (min(values) < 1 and name not in kernel.integers):
            raise BadSizes(f"the size {name} is a whole number from 1 on")
    missing = [name for name in kernel.sizes if name not in wanted]
    if missing and not defaults:
        raise BadSizes(
            f"say also {', '.join(missing)}: no sizes near the tiles satisfy the assumptions of {kernel.name}"
        )
    if not wanted:
        return list(defaults)
    values = [wanted.get(name) or (defaults[0][name],) for name in kernel.sizes]
    count = 1
    for each in values:
        count *= len(each)
    if count > MOST_SHAPES:
        raise BadSizes(f"these are {count} combinations; {MOST_SHAPES} are the most")
    shapes = [dict(zip(kernel.sizes, each, strict=True)) for each in product(*values)]
    for sizes in shapes:
        if broken := broken_assumption(kernel, sizes):
            text = ", ".join(f"{n} = {v}" for n, v in sizes.items())
            raise BadSizes(f"{kernel.name} assumes {broken}, which {text} breaks")
    return list(shapes)
