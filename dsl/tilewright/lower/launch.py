"""The host side of a generated module: check the tensors, build descriptors, launch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.lower.lowered import Argument, LaunchPlan
from tilewright.lower.scalars import host
from tilewright.lower.text import Names

# Scalars of a kernel have 32 bits, and a tile may reach over the edge of its tensor by less than this.
_LARGEST_SIZE = 2**31 - 2**16


def launch_functions(plan: LaunchPlan, kernel: ir.Kernel, grid: ex.Expr, names: Names, entry: str) -> Iterator[str]:
    """Lines of `bind`, `prepare` and `launch`."""
    tensors = ", ".join(names(a.name) for a in kernel.arguments)
    yield from ("", "", f"def bind({tensors}):")
    yield '    """Check the tensors and return a function that launches the kernel on them, or on others like them.'
    yield ""
    yield "    Others agree in shape, strides, type, device, and in the address modulo 16; they are not checked again."
    if kernel.scalars:
        yield "    Scalars may differ, but for integers that decide the grid, strides, or what the kernel assumes."
    yield '    Raises ValueError for tensors that the kernel does not take."""'
    for line in (*_checks(plan, kernel, names), *_run(plan, kernel, grid, names, entry)):
        yield f"    {line}" if line else ""
    yield from ("", "", f"def prepare({tensors}):")
    yield '    """Check the tensors and return a function that launches the kernel on them."""'
    yield f"    run = bind({tensors})"
    yield f"    return lambda: run({tensors})"
    yield from ("", "", f"def launch({tensors}):")
    yield '    """Launch the kernel on the tensors."""'
    yield f"    return prepare({tensors})()"


def _checks(plan: LaunchPlan, kernel: ir.Kernel, names: Names) -> Iterator[str]:
    first = names(kernel.params[0].name)
    yield "import torch"
    yield ""
    yield "def check(holds, message):"
    yield "    if not holds:"
    yield "        raise ValueError(message)"
    yield ""
    for param in kernel.params:
        name, dtype, rank = names(param.name), param.type.dtype.torch, len(param.type.shape)
        found = f"not {{{name}.dtype}} with {{{name}.dim()}}"
        yield _check(
            f"{name}.dtype == torch.{dtype} and {name}.dim() == {rank}",
            f"{param.name} must be {dtype} with {rank} dimensions, {found}",
        )
        same = "" if name == first else f" and {name}.device == {first}.device"
        yield _check(f"{name}.is_cuda{same}", f"{param.name} must be on the GPU, all tensors on the same one")
    for size in plan.sizes:
        name = names(size.name)
        at = f"stride({size.axis})" if size.stride else f"shape[{size.axis}]"
        yield f"{name} = {names(size.param)}.{at}"
        yield _check(f"0 < {name} <= {_LARGEST_SIZE}", f"{size.name} = {{{name}}} is not in 1 .. {_LARGEST_SIZE}")
    for scalar in kernel.scalars:
        name = names(scalar.name)
        kind, what = ("(int, float)", "a number") if scalar.dtype.is_float else ("int", "an integer")
        yield _check(
            f"isinstance({name}, {kind}) and not isinstance({name}, bool)",
            f"{scalar.name} must be {what}, not {{{name}!r}}",
        )
    for param in kernel.params:
        name = names(param.name)
        yield f"for axis, (extent, stride) in enumerate(zip({_shape(param, names)}, {_strides(param, names)})):"
        found = f"is {{{name}.shape[axis]}}, not {{extent}}"
        yield "    " + _check(f"{name}.shape[axis] == extent", f"{param.name}.shape[{{axis}}] {found}")
        # The stride of an axis of extent 1 is never used.
        found = f"is {{{name}.stride(axis)}}, not {{stride}}"
        yield "    " + _check(f"extent == 1 or {name}.stride(axis) == stride", f"{param.name}.stride({{axis}}) {found}")
        yield _check(f"{name}.data_ptr() % 16 == 0", f"{param.name} must begin at a multiple of 16 bytes")
    yield from _buffer_checks(kernel, names)
    for assumption in kernel.assumptions:
        yield _check(host(assumption.expr, names), f"the kernel assumes {ex.show(assumption.expr)}")


def _buffer_checks(kernel: ir.Kernel, names: Names) -> Iterator[str]:
    """Buffer instructions take the offset from the first element of a tile in bytes, in 31 bits."""
    checks: dict[str, None] = {}
    for stmt in ir.walk(kernel.body):
        if isinstance(stmt, ir.Load | ir.Store) and stmt.via == "buffer":
            param, view = kernel.param(stmt.view.tensor), stmt.view
            axes = zip(view.shape[view.lead :], param.type.strides[view.lead :], strict=True)
            furthest = " + ".join(f"{n - 1} * {host(stride, names)}" for n, stride in axes)
            condition = f"({furthest} + 1) * {param.type.dtype.bytes} < 2**31"
            checks[_check(condition, f"a tile of {param.name} reaches over 2 GiB, too far for buffer accesses")] = None
    yield from checks


def _run(plan: LaunchPlan, kernel: ir.Kernel, grid: ex.Expr, names: Names, entry: str) -> Iterator[str]:
    first = names(kernel.params[0].name)
    yield f"tiles = {host(grid, names)}"
    yield _check("tiles < 2**31", "{tiles} tiles are too many for one launch")
    if plan.persistent:
        yield f"processors = torch.cuda.get_device_properties({first}.device).multi_processor_count"
        yield f"programs = min(tiles, {plan.programs_per_sm} * processors)"
    else:
        yield "programs = tiles"
    descriptors = [a for a in plan.arguments if a.kind == "descriptor"]
    if descriptors:
        yield "from triton.experimental.gluon.nvidia.hopper import TensorDescriptor"
        yield ""
    for argument in descriptors:
        yield from _descriptor(argument, kernel.param(argument.source), names)
    if descriptors:
        yield ""
        yield "def describe(tensor, facts):"
        yield "    made = object.__new__(TensorDescriptor)  # whose own checks take longer than the launch"
        yield "    made.__dict__.update(facts, base=tensor)"
        yield "    return made"
        yield ""
    tensors = ", ".join(names(a.name) for a in kernel.arguments)
    arguments = ", ".join(
        f"describe({names(a.source)}, {a.name})" if a.kind == "descriptor" else a.name for a in plan.arguments
    )
    options = ", ".join(f"{name}={value}" for name, value in plan.options.items())
    yield f"device = {first}.device.index"
    yield "compiled = None"
    yield ""
    yield f"def run({tensors}):"
    yield "    nonlocal compiled"
    for scalar in kernel.scalars:
        name = names(scalar.name)
        if scalar.dtype.is_float:
            yield f"    {name} = float({name})"
        else:
            least, most = ex.LEAST_SCALAR, ex.GREATEST_SCALAR
            message = f"{scalar.name} = {{{name}}} is not in {least} .. {most}"
            yield "    " + _check(f"{least} <= {name} <= {most}", message)
    yield "    with torch.cuda.device(device):"
    for param in kernel.params:
        if param.given == "zeros":
            yield f"        {names(param.name)}.zero_()"
    if kernel.integers & ex.names(grid):
        yield "        if programs < 1:"
        yield "            return compiled  # a grid of no tiles"
    yield "        if compiled is None:"
    yield f"            compiled = {entry}[(programs,)]({arguments}, {options})"
    # What the compiler specializes on is the same for all tensors that `run` takes, so there is nothing to look up.
    yield "        else:"
    yield f"            compiled[(programs, 1, 1)]({arguments})"
    yield "    return compiled"
    yield ""
    yield "return run"


def _check(condition: str, message: str) -> str:
    return f'check({condition}, f"{message}")'


def _descriptor(argument: Argument, param: ir.Param, names: Names) -> Iterator[str]:
    size = param.type.dtype.bytes
    for stride in param.type.strides[:-1]:
        yield _check(f"{host(stride, names)} * {size} % 16 == 0", f"rows of {param.name} must be multiples of 16 bytes")
    yield f"{argument.name} = dict("
    yield f"    shape={_shape(param, names)}, strides={_strides(param, names)}, block_shape={list(argument.block)},"
    yield f'    layout={argument.layout}, padding="zero",'
    yield ")"
    yield f"TensorDescriptor({names(param.name)}, **{argument.name})  # raises if it is not possible"


def _shape(param: ir.Param, names: Names) -> str:
    return _sequence(host(e, names) for e in param.type.shape)


def _strides(param: ir.Param, names: Names) -> str:
    return _sequence(host(e, names) for e in param.type.strides)


def _sequence(items: Iterable[str]) -> str:
    return "[" + ", ".join(items) + "]"
