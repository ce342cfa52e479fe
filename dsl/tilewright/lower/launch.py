"""The host side of a generated module: check the tensors, build descriptors, launch."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.lower.lowered import Argument, LaunchPlan
from tilewright.lower.scalars import host
from tilewright.lower.text import Names

# Scalars of a kernel have 32 bits, and a tile may reach over the edge of its tensor by less than this.
_LARGEST_SIZE = 2**31 - 2**16


def launch_functions(plan: LaunchPlan, kernel: ir.Kernel, grid: ex.Expr, names: Names, entry: str) -> Iterator[str]:
    """Lines of `prepare` and `launch`."""
    tensors = ", ".join(names(p.name) for p in kernel.params)
    first = names(kernel.params[0].name)
    descriptors = [a for a in plan.arguments if a.kind == "descriptor"]
    yield from ("", "", f"def prepare({tensors}):")
    yield '    """Check the tensors and return a function that launches the kernel on them.'
    yield ""
    yield '    Raises ValueError for tensors that the kernel does not take."""'
    yield "    import torch"
    if descriptors:
        yield "    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor"
    yield ""
    yield "    def check(holds, message):"
    yield "        if not holds:"
    yield "            raise ValueError(message)"
    yield ""
    for param in kernel.params:
        name, dtype, rank = names(param.name), param.type.dtype.torch, len(param.type.shape)
        yield f"    check({name}.dtype == torch.{dtype} and {name}.dim() == {rank},"
        yield f'          f"{param.name} must be a tensor of {dtype} with {rank} dimensions, not of {{{name}.dtype}} with {{{name}.dim()}}")'
        same = "" if name == first else f" and {name}.device == {first}.device"
        yield f'    check({name}.is_cuda{same}, "{param.name} must be on the GPU, all tensors on the same one")'
    for size in plan.sizes:
        yield f"    {names(size.name)} = {names(size.param)}.shape[{size.axis}]"
        yield f'    check(0 < {names(size.name)} <= {_LARGEST_SIZE}, f"{size.name} = {{{names(size.name)}}} is not in 1 .. {_LARGEST_SIZE}")'
    for param in kernel.params:
        yield from _check_shape(param, names)
    for assumption in kernel.assumptions:
        yield f'    check({host(assumption.expr, names)}, "the kernel assumes {ex.show(assumption.expr)}")'
    aligned = [p for p in kernel.params if any(a.source == p.name for a in plan.arguments)]
    for param in aligned:
        yield f'    check({names(param.name)}.data_ptr() % 16 == 0, "{param.name} must begin at a multiple of 16 bytes")'
    yield f"    tiles = {host(grid, names)}"
    yield '    check(tiles < 2**31, f"{tiles} tiles are too many for one launch")'
    if plan.persistent:
        yield f"    processors = torch.cuda.get_device_properties({first}.device).multi_processor_count"
        yield f"    programs = min(tiles, {plan.programs_per_sm} * processors)"
    else:
        yield "    programs = tiles"
    for argument in descriptors:
        yield from _descriptor(argument, kernel, names)
    yield ""
    yield "    def run():"
    yield f"        with torch.cuda.device({first}.device):"
    arguments = ", ".join(a.name for a in plan.arguments)
    options = f"num_warps={plan.num_warps}" + (f", maxnreg={plan.maxnreg}" if plan.maxnreg is not None else "")
    yield f"            return {entry}[(programs,)]({arguments}, {options})"
    yield ""
    yield "    return run"
    yield ""
    yield ""
    yield f"def launch({tensors}):"
    yield '    """Launch the kernel on the tensors."""'
    yield f"    return prepare({tensors})()"


def _check_shape(param: ir.Param, names: Names) -> Iterator[str]:
    name = names(param.name)
    shape = _sequence(host(e, names) for e in param.type.shape)
    strides = _sequence(host(e, names) for e in param.type.strides)
    yield f"    for axis, (extent, stride) in enumerate(zip({shape}, {strides})):"
    yield f'        check({name}.shape[axis] == extent, f"{param.name}.shape[{{axis}}] is {{{name}.shape[axis]}}, not {{extent}}")'
    # The stride of an axis of extent 1 is never used.
    yield f"        check(extent == 1 or {name}.stride(axis) == stride,"
    yield f'              f"{param.name}.stride({{axis}}) is {{{name}.stride(axis)}}, not {{stride}}")'


def _descriptor(argument: Argument, kernel: ir.Kernel, names: Names) -> Iterator[str]:
    type_ = kernel.param(argument.source).type
    shape = _sequence(host(e, names) for e in type_.shape)
    strides = _sequence(host(e, names) for e in type_.strides)
    name = names(argument.source)
    for stride in type_.strides[:-1]:
        yield f'    check({host(stride, names)} * {type_.dtype.bytes} % 16 == 0, "rows of {argument.source} must be multiples of 16 bytes")'
    yield f"    {argument.name} = TensorDescriptor({name}, {shape}, {strides}, {list(argument.block)}, {argument.layout})"


def _sequence(items: Iterator[str]) -> str:
    return "[" + ", ".join(items) + "]"
