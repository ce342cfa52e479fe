"""TW108: what a kernel computes is compared with its reference, at small sizes.

A kernel may declare what it computes (`reference=` of `tw.kernel`). That text is data (`tilewright_reference`): it is
read and evaluated by our own evaluator, so comparing runs nobody's code, and the interpreter runs the kernel. Where the
two differ the kernel is refuted, with the element. Where they agree nothing is proved, and no obligation comes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from time import thread_time
from typing import Any

import numpy as np

from tilewright.dtypes import f32
from tilewright.interpret import ArgumentError, Limits, Schedule, Violation
from tilewright.interpret.arguments import Argument
from tilewright.interpret.execution import Compiled, compile_kernel, execute_compiled, outputs
from tilewright.interpret.numeric import Array, decode
from tilewright.interpret.replaying import store_span
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.types import SharedType, TileType
from tilewright_reference import BadReference, Reference, parse_reference
from tilewright_reference.numpy_functions import NumpyFunctions

from ...context import KernelContext
from ...integers.ranges import known_divisors
from ...report import Counterexample, Finding, Obligation
from ..outcome import refuted, situation, unknown
from .trials import allowed, arguments_of, counted_tiles, steps, trials

CODE = "TW108"
WHAT = "the results are those of the reference"
# Largest error of an element, relative to its own magnitude plus the root mean square of the whole output, by the
# narrowest type in which something is computed: several roundings, and any order of summation. What is wrong about a
# kernel is seldom that small.
_TOLERANCE: Mapping[str, float] = {"f64": 1e-3, "f32": 1e-3, "f16": 2e-2, "bf16": 8e-2, "f8e4m3": 0.3, "f8e5m2": 0.5}
# What is beyond these magnitudes becomes infinite, or the greatest value (OFP8); of some types large numbers already.
_GREATEST: Mapping[str, float] = {
    "f64": 1.7e308, "f32": 3.4e38, "bf16": 3.3e38, "f16": 65520.0, "f8e4m3": 448.0, "f8e5m2": 57344.0,
}  # fmt: skip
_SMALL = frozenset(("f16", "f8e4m3", "f8e5m2"))
_SMALLER = 24
_SECONDS = 1.0
# Tiles along every size, multiplied and added up over all runs.
_ALL_STEPS = 80
# Where a run takes long, the first ones must do: all kinds of elements, and a size of two tiles along every axis.
_LEAST, _ENOUGH_SECONDS = 8, 0.25


@dataclass(frozen=True, slots=True)
class Difference:
    """An output element that is not what the reference gives. `wrong` counts such elements of the output."""

    sizes: Mapping[str, int]
    kind: str
    tensor: str
    element: tuple[int, ...]
    got: str
    want: str
    wrong: int = 1
    total: int = 1


def applies(context: KernelContext) -> bool:
    """True if the kernel declares a reference, and nothing is known to be wrong with it yet."""
    return bool(context.reference) and not context.refuted


def check(context: KernelContext) -> Iterator[Obligation]:
    """One obligation if the kernel differs from its reference, or cannot be compared with it; else none."""
    kernel = context.kernel
    stored = outputs(kernel)
    try:
        names = [a.name for a in kernel.arguments]
        reference = parse_reference(context.reference, names, stored, kernel.sizes)
    except BadReference as error:
        yield unknown(context, CODE, "tags", WHAT, kernel.span, f"{error}")
        return
    for name in sorted({n for n, _ in reference.steps} & {p.name for p in kernel.params} - set(stored)):
        text = f"The reference says what {name} is, but the kernel stores nothing to it."
        yield refuted(context, CODE, "tags", WHAT, kernel.param(name).span, text, how="statements")
        return
    comparison = Comparison(kernel, reference)
    found = comparison.first_difference(min(_SECONDS, context.seconds_left()), context.decider.cancelled)
    if found is not None:
        yield _refuted(context, found)
    elif comparison.failed:
        yield unknown(context, CODE, "tags", WHAT, kernel.span, comparison.failed)


class Comparison:
    """A kernel beside its reference. `failed` says why they could not be compared, if they could not at any sizes.

    `stopped` is the fault that the interpreter ran into, at whatever sizes.
    """

    def __init__(self, kernel: ir.Kernel, reference: Reference) -> None:
        self.kernel, self.reference = kernel, reference
        self.compiled: Compiled = compile_kernel(kernel, Limits(events=200_000))
        self.failed, self.stopped = "", ""
        self._narrow = _computed_in(kernel)
        # What is computed in floating point and rounded to integers may fall to either side.
        self._rounding = int(any(isinstance(t, TileType) and t.dtype.is_float for t in kernel.types.values()))
        self._agreed = 0
        self._outputs = outputs(kernel)

    def first_difference(self, seconds: float, cancelled: Callable[[], bool] = lambda: False) -> Difference | None:
        """The first difference at small sizes, made smaller where that shows it too. Stops after `seconds`."""
        begin = thread_time()
        end = begin + seconds
        tiles, taken = counted_tiles(self.kernel), 0
        for number, (sizes, kind) in enumerate(trials(self.kernel, large=not self._narrow & _SMALL)):
            taken += steps(sizes, tiles)
            late = number >= _LEAST and thread_time() > begin + _ENOUGH_SECONDS
            if late or thread_time() > end or taken > _ALL_STEPS or cancelled():
                break
            found = self.difference(sizes, kind)
            if found is not None:
                return self._smaller(found, end + seconds)
        if self._agreed:
            self.failed = ""
        # That it runs into a fault at some sizes is not made up for by others.
        self.failed = self.stopped or self.failed
        return None

    def difference(self, sizes: Mapping[str, int], kind: str) -> Difference | None:
        """The first difference at these sizes, for elements of this kind; None as well where one of both cannot run."""
        try:
            arguments = arguments_of(self.kernel, sizes, kind)
            given = {a.name: _wide(v) for a, v in zip(self.kernel.arguments, arguments, strict=True)}
            with np.errstate(all="ignore"):
                want = self.reference.evaluate(given, NumpyFunctions(), precise=True, sizes=sizes)
                execute_compiled(self.compiled, arguments, Schedule(), 1 if kind == "normal" else None)
        except BadReference as error:
            self.failed = f"{error}"
            return None
        except Violation as violation:
            self.stopped = f"the interpreter stops, {_text(sizes)}: {violation}"
            return None
        except (ArgumentError, ex.EvaluationError, ArithmeticError, ValueError) as error:
            self.failed = f"{error}"
            return None
        self._agreed += 1
        results = dict(zip((a.name for a in self.kernel.arguments), arguments, strict=True))
        for name in self._outputs:
            got = results[name]
            assert isinstance(got, np.ndarray)
            got = decode(got, self.kernel.param(name).type.dtype)
            different = self._compared(name, got, np.asarray(want[name]))
            if different is not None:
                return replace(different, sizes=dict(sizes), kind=kind)
        return None

    def _compared(self, name: str, got: Array, want: Array) -> Difference | None:
        if got.shape != want.shape:
            return Difference({}, "", name, (), f"of shape {_shape(got)}", f"shape {_shape(want)}")
        kind = self.kernel.param(name).type.dtype
        g, w = got.astype(np.float64), want.astype(np.float64)
        known = np.isfinite(w)
        if not kind.is_float:
            wrong = known & ~(np.abs(g - w) <= self._rounding)
        else:
            scale = float(np.sqrt(np.mean(w[known] ** 2))) if known.any() else 0.0
            limit = max(_TOLERANCE[n] for n in {*self._narrow, kind.name}) * (np.abs(np.where(known, w, 0)) + scale)
            with np.errstate(all="ignore"):
                close = np.abs(g - w) <= limit + 1e-6
            most = _GREATEST[kind.name]
            with np.errstate(all="ignore"):
                close |= (np.abs(w) + limit >= most) & (np.abs(g) >= most) & (g * w > 0)
            wrong = known & ~close
        if not wrong.any():
            return None
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        return Difference({}, "", name, at, _number(got[at]), _number(w[at]), int(wrong.sum()), int(wrong.size))

    def _smaller(self, found: Difference, end: float) -> Difference:
        """The same difference with each size as small as it can be, one after the other."""
        left = _SMALLER
        for name in found.sizes:
            least = known_divisors(a.expr for a in self.kernel.assumptions).get(name, 1)
            for value in (least, 2 * least, 3 * least, 5 * least):
                if value >= found.sizes[name] or left == 0 or thread_time() > end:
                    break
                sizes = {**found.sizes, name: value}
                left -= 1
                if allowed(self.kernel, sizes) and (smaller := self.difference(sizes, found.kind)) is not None:
                    found = smaller
                    break
        return found


def _refuted(context: KernelContext, found: Difference) -> Obligation:
    kernel = context.kernel
    example = Counterexample(
        found.sizes,
        element=found.element,
        values={"computed": found.got, "reference": found.want},
        replayed=True,
    )
    where = f"{found.tensor}[{', '.join(map(str, found.element))}]" if found.element else found.tensor
    inputs = {"zeros": ", all inputs 0", "large": ", inputs of about 100"}.get(found.kind, "")
    text = (
        f"{where} is {found.got}; the reference `{_line(context.reference)}` gives {found.want} "
        f"({found.wrong} of {found.total} elements differ{inputs}). One of the two is wrong. {situation(example)}"
    )
    span = store_span(kernel, found.tensor)
    finding = Finding(CODE, text, span, kernel.name, "refuted", "error", example)
    return Obligation(CODE, "tags", WHAT, span, "refuted", finding, "the kernel is run beside its reference")


def _wide(argument: Argument) -> Any:
    """An argument as the reference takes it: nothing is rounded on the way."""
    if not isinstance(argument, np.ndarray):
        return argument
    return argument.astype(np.float64) if argument.dtype.kind == "f" else argument.copy()


def _computed_in(kernel: ir.Kernel) -> frozenset[str]:
    """Floating-point types narrower than f32 that something is computed in, not only stored in at the end."""
    read: set[str] = set()
    for stmt in ir.walk(kernel.body):
        if not isinstance(stmt, ir.Store | ir.TmaStore | ir.Scatter | ir.Atomic):
            named = {o.name if isinstance(o, ir.TileRef) else o for o in ir.operands(stmt)}
            read |= {n for n in named if isinstance(n, str)} - {getattr(stmt, "dst", "")}
    found: set[str] = set()
    for stmt in ir.walk(kernel.body):
        made = kernel.types.get(getattr(stmt, "dst", ""))
        if (isinstance(stmt, ir.Mma) and stmt.precision == "tf32") or (
            isinstance(stmt, ir.Wgmma) and isinstance(b := kernel.types[stmt.b.buffer], SharedType) and b.dtype == f32
        ):
            found.add("f16")  # tf32 has as many bits
        computed = isinstance(stmt, ir.Mma | ir.Wgmma) or (isinstance(stmt, ir.Compute) and stmt.dst in read)
        if computed and isinstance(made, TileType) and made.dtype.is_float and made.dtype.bits < 32:
            found.add(made.dtype.name)
    return frozenset(found)


def _number(value: Any) -> str:
    return f"{float(value):.6g}"


def _shape(array: Array) -> str:
    return "×".join(map(str, array.shape)) or "()"


def _text(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{n} = {v}" for n, v in sizes.items())


def _line(reference: str) -> str:
    """The reference in one line."""
    text = "; ".join(line.strip() for line in reference.strip().splitlines() if line.strip())
    return text if len(text) <= 80 else f"{text[:76]} …"
