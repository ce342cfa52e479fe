"""Jobs for a worker: what to run, on which arguments, compared with what."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.dtypes import DType
from tilewright.expand import ExpansionError, expand
from tilewright.frontend import KernelUnit
from tilewright.interpret import ArgumentError, Violation, run
from tilewright.interpret.numeric import to_bits, to_dtype
from tilewright.ir import nodes as ir
from tilewright.layout import LayoutError
from tilewright.lower import LoweringError, lower
from tilewright.printer import module_source
from tilewright_agent.tables import Draw, draws, encoded, require_satisfied
from tilewright_agent.worker.grade import SETS, TOLERANCE
from tilewright_agent.worker.protocol import PROTOCOL, Message
from tilewright_analysis.perf.shapes import (
    Sizes,
    broken_assumption,
    contracted_sizes,
    declared_strides,
    roles,
    tensor_shapes,
)

JOB_SECONDS = 300.0


class NotRunnable(Exception):
    """The kernel cannot be run; the message says why and, where possible, what to do."""


def build_job(
    unit: KernelUnit,
    kernel: ir.Kernel,
    identity: str,
    shapes: Sequence[Sizes],
    *,
    gpu: bool,
    measured: int = 0,
    against: ir.Kernel | None = None,
) -> Message:
    """A job that checks `kernel` (the unit's, as written) on `shapes` and times the first `measured` of them.

    For a GPU the kernel is lowered here, and small shapes of a kernel without a reference are interpreted here, so that
    the worker needs nothing of the language. `against` is a kernel to race instead of the reference; its arguments
    correspond by position. Raises NotRunnable.
    """
    role = roles(kernel)
    if against is not None:
        _require_same_arguments(kernel, against, shapes)
    arguments = [_argument(a, role) for a in kernel.arguments]
    cases: list[Message] = []
    for i, sizes in enumerate(shapes):
        case: Message = {
            "sizes": dict(sizes), "shapes": {n: list(s) for n, s in tensor_shapes(kernel, sizes).items()},
            "seed": i + 1, "measure": gpu and i < measured,
        }  # fmt: skip
        if strides := declared_strides(kernel, sizes):
            case["strides"] = {n: list(s) for n, s in strides.items()}
        if kernel.scalars:
            case["scalars"] = scalar_values(kernel, sizes, i + 1)
        drawn = _drawn(kernel, against, sizes, i + 1, SETS + 2 if case["measure"] else 1)
        if drawn:
            case["tables"] = [encoded(kernel, draw) for draw in drawn]
        if gpu and not unit.reference and not case["measure"]:
            case |= _interpreted(kernel, role, sizes, i + 1, drawn[0] if drawn else {})
        cases.append(case)
    rival: Message = {}
    if against is not None:
        rival = {"baseline": {"kernel": against.name, **_program(against, gpu)}}
    return {
        "type": "job", "protocol": PROTOCOL, "id": identity, "kernel": unit.name,
        "device": "gpu" if gpu else "interpreter", **_program(kernel, gpu), **rival,
        "arguments": arguments, "reference": unit.reference, "tolerance": _tolerances(kernel, role, shapes),
        "cases": cases, "seconds": JOB_SECONDS,
    }  # fmt: skip


def _drawn(kernel: ir.Kernel, against: ir.Kernel | None, sizes: Sizes, seed: int, count: int) -> list[Draw]:
    """Index tensors of a case: one draw to check on, one for each set that is timed, one for after timing."""
    try:
        drawn = draws(kernel, sizes, seed, count)
        if against is not None:
            require_satisfied(against, [a.name for a in kernel.arguments], drawn, sizes)
        return drawn
    except ArgumentError as error:
        raise NotRunnable(str(error)) from error


def _argument(argument: ir.Param | ir.ScalarParam, role: Mapping[str, str]) -> Message:
    if isinstance(argument, ir.ScalarParam):
        return {"name": argument.name, "dtype": argument.dtype.name, "role": "scalar"}
    return {
        "name": argument.name, "dtype": argument.type.dtype.name, "role": role[argument.name], "distribution": "normal",
    }  # fmt: skip


def scalar_values(kernel: ir.Kernel, sizes: Sizes, seed: int) -> dict[str, int | float]:
    """The scalar arguments of a case: integers are among the sizes, the others are drawn, not 0, in eighths."""
    random = np.random.default_rng(seed)
    drawn = {s.name: float(random.integers(1, 17)) / 8 for s in kernel.scalars if s.dtype.is_float}
    return {s.name: drawn[s.name] if s.name in drawn else sizes[s.name] for s in kernel.scalars}


def _tolerances(kernel: ir.Kernel, role: Mapping[str, str], shapes: Sequence[Sizes]) -> dict[str, float]:
    """Tolerances of float32 outputs of products and of sums by atomic updates; others have those of their type.

    Tensor cores truncate sums, so each step of 16 elements may lose a unit in the last place of a partial sum.
    """
    if any(isinstance(s, ir.Scatter | ir.Atomic) and s.op == "add" for s in ir.walk(kernel.body)):
        # Atomic updates come in any order, and each addition may lose half a unit in the last place of a partial sum.
        terms = max((n for sizes in shapes for n in sizes.values()), default=1)
        written = [p.name for p in kernel.params if role[p.name] != "in" and p.type.dtype.name == "f32"]
        return {name: TOLERANCE["f32"] + terms * 2**-24 for name in written}
    if not any(isinstance(s, ir.Mma | ir.Wgmma) for s in ir.walk(kernel.body)):
        return {}
    depth = max((sizes[n] for sizes in shapes for n in contracted_sizes(kernel)), default=1)
    outputs = [p.name for p in kernel.params if role[p.name] != "in" and p.type.dtype.name == "f32"]
    return {name: TOLERANCE["f32"] + depth / 16 * 2**-23 for name in outputs}


def _program(kernel: ir.Kernel, gpu: bool) -> Message:
    return {
        "module": _generated(kernel) if gpu else "",
        "dsl": {} if gpu else {"source": module_source(kernel), "kernel": kernel.name},
    }


def _require_same_arguments(kernel: ir.Kernel, against: ir.Kernel, shapes: Sequence[Sizes]) -> None:
    """Raises NotRunnable unless both take the same tensors, by position, at every shape."""

    def signature(of: ir.Kernel, sizes: Sizes) -> list[tuple[str, str, tuple[int, ...]]]:
        role, shape = roles(of), tensor_shapes(of, sizes)
        return [
            ("scalar", a.dtype.name, ())
            if isinstance(a, ir.ScalarParam)
            else (role[a.name], a.type.dtype.name, shape[a.name])
            for a in of.arguments
        ]

    for sizes in shapes:
        if missing := [n for n in against.sizes if n not in sizes]:
            raise NotRunnable(f"{against.name} has a size {missing[0]}, which {kernel.name} has not")
        if broken := broken_assumption(against, sizes):
            raise NotRunnable(f"{against.name} assumes {broken}, which {_text(sizes)} breaks")
        mine, other = signature(kernel, sizes), signature(against, sizes)
        if mine == other:
            continue
        if len(mine) != len(other):
            raise NotRunnable(f"{kernel.name} has {len(mine)} arguments, {against.name} has {len(other)}")
        i = next(i for i, (a, b) in enumerate(zip(mine, other, strict=True)) if a != b)
        a, b = (f"{s[1]} {'×'.join(map(str, s[2]))} ({s[0]})" for s in (mine[i], other[i]))
        raise NotRunnable(f"argument {i + 1} is {a} in {kernel.name} and {b} in {against.name}: they cannot be raced")


def _text(sizes: Sizes) -> str:
    return ", ".join(f"{n} = {v}" for n, v in sizes.items())


def _generated(kernel: ir.Kernel) -> str:
    try:
        return lower(expand(kernel)).source
    except (ExpansionError, LoweringError, LayoutError) as error:
        raise NotRunnable(f"{kernel.name} cannot be lowered for {kernel.target}: {error}") from error


def _interpreted(kernel: ir.Kernel, role: Mapping[str, str], sizes: Sizes, seed: int, draw: Draw) -> Message:
    """Inputs of a case, and what the interpreter makes of them."""
    random = np.random.default_rng(seed)
    shapes = tensor_shapes(kernel, sizes)
    strides = declared_strides(kernel, sizes)
    arrays = {p.name: _laid(_random(random, shapes[p.name], p.type.dtype), strides.get(p.name)) for p in kernel.params}
    for name, table in draw.items():
        arrays[name][...] = table
    given = {name: _encode(a) for name, a in arrays.items() if role[name] != "out"}
    values = arrays | scalar_values(kernel, sizes, seed)
    try:
        run(expand(kernel), [values[a.name] for a in kernel.arguments])
    except (ExpansionError, ArgumentError, Violation) as error:
        raise NotRunnable(f"the interpreter cannot run {kernel.name}, and it has no reference: {error}") from error
    expected = {name: _encode(a) for name, a in arrays.items() if role[name] != "in"}
    return {"given": given, "expected": expected}


def _laid(array: Any, strides: Sequence[int] | None) -> Any:
    """The array with these strides, in elements."""
    if strides is None:
        return array
    room = sum((n - 1) * s for n, s in zip(array.shape, strides, strict=True)) + 1
    flat: Any = np.zeros(room, array.dtype)
    laid = np.lib.stride_tricks.as_strided(flat, array.shape, tuple(s * array.itemsize for s in strides))
    laid[...] = array
    return laid


def _random(random: np.random.Generator, shape: Sequence[int], dtype: DType) -> Any:
    """Random elements; bf16 as 16-bit patterns, which is what both the interpreter and the worker read."""
    values = random.standard_normal(shape).astype(np.float32)
    if dtype.name == "bf16":
        return (values.view(np.uint32) >> 16).astype(np.uint16)
    if dtype.kind == "bool":
        return values > 0
    if dtype.name.startswith("f8"):
        return to_bits(to_dtype(values, dtype), dtype)
    if dtype.is_float:
        return values.astype({"f16": np.float16, "f32": np.float32, "f64": np.float64}[dtype.name])
    low = -8 if dtype.name == "i8" else 0
    return random.integers(low, 8, shape).astype(f"{dtype.kind[0]}{dtype.bytes}")


def _encode(array: Any) -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode("ascii")
