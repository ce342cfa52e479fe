"""Show a fault of a kernel by running it: at given sizes, in an order that brings it out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tilewright.arguments import check_assumptions
from tilewright.dtypes import DType
from tilewright.interpret.arguments import Argument
from tilewright.interpret.contracts import Tables, index_tables
from tilewright.interpret.errors import KINDS_OF_CODE, Violation
from tilewright.interpret.execution import RESIDENT, Compiled, RunReport, compile_kernel, execute_compiled, outputs
from tilewright.interpret.numeric import STORAGE, Array, poison
from tilewright.interpret.schedule import Limits, Schedule
from tilewright.ir import nodes as ir
from tilewright.ir.expr import evaluate
from tilewright.source import Span

Expected = Callable[[list[Any]], list[Array]]
"""The meaning of a kernel: from all its arguments (outputs poisoned) to its outputs, in parameter order."""


def replay(
    kernel: ir.Kernel,
    sizes: Mapping[str, int],
    *,
    tries: int = 50,
    programs: int | None = None,
    code: str | None = None,
    expected: Expected | None = None,
    tables: Tables | None = None,
) -> Violation | None:
    """The first violation of an explicit kernel at these sizes, or None.

    Runs it with the happens-before check and then up to `tries` times under an adversarial schedule, always with
    tags, on small random integers (sums of their products are exact in float32); checks that each output element is
    written exactly once and, with `expected`, has the expected value. With the `code` of a diagnostic, a violation that
    shows what the diagnostic claims is preferred to an earlier one of another kind. A persistent grid runs with
    `programs` programs, by default with one as well as with three. `tables` gives index tensors by name; others that
    contracts speak of are random and satisfy them.

    Raises ArgumentError if `sizes` break an assumption of the kernel, or no index tensors satisfy its contracts.
    """
    check_assumptions(kernel, sizes)
    wanted = KINDS_OF_CODE.get(code) if code is not None else None
    compiled = compile_kernel(kernel, Limits())
    first: Violation | None = None
    # Few programs take many tiles each, many programs few: a fault may need either.
    counts = (1, RESIDENT) if programs is None else (programs,)
    ordered = Schedule(happens_before=True, tags=True)
    runs = [(ordered, count) for count in counts]
    runs += [(Schedule(n, adversarial=True, tags=True), counts[n % len(counts)]) for n in range(tries)]
    for schedule, count in runs:
        found = attempt(compiled, sizes, schedule, count, expected, tables)
        if found is not None and (wanted is None or found.kind in wanted):
            return found
        first = first or found
    return first


def attempt(
    compiled: Compiled,
    sizes: Mapping[str, int],
    schedule: Schedule,
    programs: int | None = None,
    expected: Expected | None = None,
    tables: Tables | None = None,
) -> Violation | None:
    """The violation of one run on random arguments, or None."""
    kernel = compiled.kernel
    arguments = random_arguments(kernel, sizes, schedule.seed, tables)
    before = [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]
    try:
        report = execute_compiled(compiled, arguments, schedule, programs)
        check_writes(kernel, report)
        if expected is not None:
            _compare(kernel, arguments, expected(before))
    except Violation as violation:
        return violation
    return None


def random_arguments(
    kernel: ir.Kernel, sizes: Mapping[str, int], seed: int, tables: Tables | None = None
) -> list[Argument]:
    """Arguments of a kernel: integers from -4 to 4 in inputs, poison in what it only stores to.

    Index tensors are taken from `tables` or satisfy the contracts of the kernel. Raises ArgumentError if none do.
    `sizes` gives the integer scalars too; floating-point ones are halves from -2 to 2.
    """
    generator = np.random.default_rng(seed)
    given = {**index_tables(kernel, sizes, generator), **(tables or {})}
    loads = (s for s in ir.walk(kernel.body) if isinstance(s, ir.Load | ir.TmaLoad | ir.CpAsync))
    gathers = {s.tensor for s in ir.walk(kernel.body) if isinstance(s, ir.Gather | ir.CpGather)}
    valued = {p.name for p in kernel.params if p.given == "values"}
    poisoned = set(outputs(kernel)) - {s.view.tensor for s in loads} - gathers - valued
    arrays: list[Argument] = []
    for param in kernel.arguments:
        if isinstance(param, ir.ScalarParam):
            arrays.append(int(generator.integers(-4, 5)) / 2 if param.dtype.is_float else sizes[param.name])
            continue
        shape = tuple(evaluate(e, sizes) for e in param.type.shape)
        strides = tuple(evaluate(e, sizes) for e in param.type.strides)
        dtype = param.type.dtype
        low, high = (0, 2) if dtype.kind == "bool" else (0 if dtype.kind == "uint" else -4, 5)
        values = generator.integers(low, high, shape)
        array = _with_strides(shape, strides, dtype)
        if param.name in given:
            values = np.asarray(given[param.name])
        array[...] = poison(dtype) if param.name in poisoned else values
        arrays.append(array)
    return arrays


def check_writes(kernel: ir.Kernel, report: RunReport) -> None:
    """Raise Violation if an element of an output was written twice, or never."""
    for twice in report.rewritten:
        raise Violation(
            "rewritten",
            f"element {twice.element} of {twice.tensor} is written by program {twice.first} and again by program "
            f"{twice.second}",
            span=store_span(kernel, twice.tensor),
            program=twice.second,
            element=twice.element,
        )
    for name, counts in report.write_counts.items():
        if not counts.all():
            at = tuple(int(i) for i in np.argwhere(counts == 0)[0])
            raise Violation(
                "uncovered",
                f"element {at} of {name} is never written ({int((counts == 0).sum())} elements in all)",
                span=store_span(kernel, name),
                element=at,
            )


def _compare(kernel: ir.Kernel, arguments: list[Argument], expected: list[Array]) -> None:
    stored = outputs(kernel)
    if len(stored) != len(expected):
        names = ", ".join(stored) or "no tensor"
        raise Violation("uncovered", f"the kernel stores to {names}, but {len(expected)} output(s) are expected")
    for name, want in zip(stored, expected, strict=True):
        got = arguments[[a.name for a in kernel.arguments].index(name)]
        assert isinstance(got, np.ndarray)
        close = np.isclose(got.astype(np.float64), want.astype(np.float64), rtol=2e-3, atol=1e-3, equal_nan=True)
        if not close.all():
            at = tuple(int(i) for i in np.argwhere(~close)[0])
            raise Violation(
                "mismatch",
                f"element {at} of {name} is {got[at]}, expected {want[at]}",
                span=store_span(kernel, name),
                element=at,
                values={"got": str(got[at]), "expected": str(want[at])},
            )


def store_span(kernel: ir.Kernel, tensor: str) -> Span:
    """Where the kernel first stores to a tensor."""
    writes = [s for s in ir.walk(kernel.body) if isinstance(s, ir.Store | ir.TmaStore | ir.Atomic)]
    stores = [s for s in writes if s.view.tensor == tensor]
    scatters = [s for s in ir.walk(kernel.body) if isinstance(s, ir.Scatter) and s.tensor == tensor]
    return (*stores, *scatters)[0].span if stores or scatters else kernel.span


def _with_strides(shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType) -> Array:
    """A new array with these strides (in elements)."""
    storage = STORAGE[dtype.name]
    room = sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + 1
    flat = np.zeros(room, storage)
    return np.lib.stride_tricks.as_strided(flat, shape, tuple(s * storage.itemsize for s in strides))
