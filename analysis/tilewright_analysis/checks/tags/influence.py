"""Shows that an element is left out: a kernel is run twice, on arguments that differ there alone.

If no output differs, except where the element itself is stored, nothing of it has reached a result that should have
gathered it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from tilewright.interpret import ArgumentError, Limits, Schedule, Violation, random_arguments
from tilewright.interpret.arguments import Argument
from tilewright.interpret.execution import Compiled, compile_kernel, execute_compiled, outputs
from tilewright.interpret.numeric import Array, decode
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir

# What an element is set to, beside numbers from -4 to 4: no maximum, minimum or sum overlooks it.
_EXTREMES = (40, -40, 3)


def left_out(
    kernel: ir.Kernel, tensor: str, axis: int, tries: Iterable[tuple[Mapping[str, int], int]]
) -> tuple[Mapping[str, int], int] | None:
    """The first of `tries`, (sizes, coordinate along `axis` of `tensor`), whose elements change no output at other
    coordinates, while others do; None if there is none.
    """
    runs = _Runs(compile_kernel(kernel, Limits()), tensor)
    for sizes, at in tries:
        if not runs.matters(sizes, {axis: at}) and any(
            runs.matters(sizes, {axis: other}) for other in runs.others(sizes, axis, at)
        ):
            return sizes, at
    return None


def element_left_out(
    kernel: ir.Kernel, tensor: str, tries: Iterable[tuple[Mapping[str, int], Mapping[int, int]]]
) -> tuple[Mapping[str, int], Mapping[int, int]] | None:
    """The first of `tries`, (sizes, coordinates along some axes of `tensor`), whose elements change no output, while
    those of another try at these sizes do; None if there is none.
    """
    runs = _Runs(compile_kernel(kernel, Limits()), tensor)
    matter: set[tuple[tuple[str, int], ...]] = set()
    silent: list[tuple[Mapping[str, int], Mapping[int, int]]] = []
    for sizes, at in tries:
        if runs.matters(sizes, at):
            matter.add(tuple(sizes.items()))
        else:
            silent.append((sizes, at))
        if found := next((t for t in silent if tuple(t[0].items()) in matter), None):
            return found
    return None


def matters(kernel: ir.Kernel, tensor: str, sizes: Mapping[str, int]) -> bool:
    """Whether any element of a tensor changes an output at these sizes, as far as a few values of all of them show."""
    return _Runs(compile_kernel(kernel, Limits()), tensor).matters(sizes, {})


class _Runs:
    """Runs of one kernel with some elements of a tensor changed."""

    def __init__(self, compiled: Compiled, tensor: str) -> None:
        self.compiled, self.kernel = compiled, compiled.kernel
        self.tensor, self.type = tensor, self.kernel.param(tensor).type

    def others(self, sizes: Mapping[str, int], axis: int, at: int) -> Iterator[int]:
        """Some other coordinates."""
        extent = ex.evaluate(self.type.shape[axis], sizes)
        yield from sorted({0, extent // 2, max(at - 1, 0), min(at + 1, extent - 1), extent - 1} - {at})

    def matters(self, sizes: Mapping[str, int], at: Mapping[int, int]) -> bool:
        """True if elements at these coordinates along some axes change an output elsewhere, or a run fails."""
        names = [a.name for a in self.kernel.arguments]
        given = dict(zip(names, random_arguments(self.kernel, sizes, 0), strict=True))
        where = tuple(at.get(i, slice(None)) for i in range(len(self.type.shape)))
        dtype = self.type.dtype
        low, high = (-1e9, 1e9) if dtype.is_float else dtype.range
        runs = [_run(self.compiled, given)]
        for value in _EXTREMES:
            tensor = given[self.tensor]
            assert isinstance(tensor, np.ndarray)
            changed = tensor.copy(order="K")
            changed[where] = min(max(value, low), high)
            runs.append(_run(self.compiled, given | {self.tensor: changed}))
            if runs[-1] is None or runs[0] is None:
                return True
            if any(self._differ([r for r in runs if r is not None], name, at) for name in outputs(self.kernel)):
                return True
        return False

    def _differ(self, runs: list[dict[str, Array]], name: str, at: Mapping[int, int]) -> bool:
        """True if runs differ in an output, outside of the coordinate itself if it is one along one axis."""
        kind = self.kernel.param(name).type
        first, *rest = (decode(r[name], kind.dtype) for r in runs)
        keep = np.ones(first.shape, bool)
        for axis, coordinate in at.items() if len(at) == 1 else ():
            for i, extent in enumerate(kind.shape):
                if extent == self.type.shape[axis]:
                    keep[tuple(coordinate if j == i else slice(None) for j in range(len(kind.shape)))] = False
        return any(bool((((one != first) & ~(np.isnan(one) & np.isnan(first))) & keep).any()) for one in rest)


def _run(compiled: Compiled, given: Mapping[str, Argument]) -> dict[str, Array] | None:
    """What the arrays of a run hold after it; None if it fails."""
    arguments = {n: a.copy() if isinstance(a, np.ndarray) else a for n, a in given.items()}
    try:
        with np.errstate(all="ignore"):
            execute_compiled(compiled, list(arguments.values()), Schedule(), 1)
    except (Violation, ArgumentError, ex.EvaluationError, ArithmeticError):
        return None
    return {n: a for n, a in arguments.items() if isinstance(a, np.ndarray)}
