"""What is known about a name in a kernel, for a hover."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

from tilewright.frontend import KernelUnit
from tilewright.ir import expr as ex
from tilewright.ir.nodes import Kernel
from tilewright.ir.types import BarrierType, SharedType, TensorMemoryType, TileType, Type
from tilewright.targets import TENSOR_MEMORY_COLUMNS
from tilewright_analysis.tags import coordinate_tags
from tilewright_server.stages import expanded_kernel

log = logging.getLogger(__name__)

CACHED = 64
_explicit: dict[str, Mapping[str, Type]] = {}


@dataclass(frozen=True, slots=True)
class NameFacts:
    """A name, its type in one line, and paragraphs of Markdown about it."""

    name: str
    type: str
    details: tuple[str, ...] = ()


def facts_of(unit: KernelUnit, name: str) -> NameFacts | None:
    """What `name` means in a kernel: tensor, argument, size, compile-time value, tile, buffer, barrier or scalar."""
    kernel = unit.kernel
    if kernel is None:
        return None
    for param in kernel.params:
        if param.name == name:
            return NameFacts(name, _tensor(kernel, name), tuple(_tensor_details(kernel, name)))
    for const in kernel.consts:
        if const.name == name:
            choices = f"one of {', '.join(map(str, const.choices))}" if len(const.choices) > 1 else "no other choices"
            return NameFacts(name, f"Const = {const.value}", (f"compile-time value; {choices}",))
    for types in kernel.element_types:
        if types.name == name:
            choices = ", ".join(map(str, types.choices))
            return NameFacts(name, f"element type {types.value}", (f"tensors decide among {choices}",))
    for scalar in kernel.scalars:
        if scalar.name == name:
            kind = "one number" if scalar.dtype.is_float else "an integer of 32 bits, negative too"
            details = (f"{kind}, which each launch gives", *_assumed(kernel, name))
            return NameFacts(name, f"Scalar[{scalar.dtype}]", details)
    if name in kernel.sizes:
        return NameFacts(name, "size", tuple(_size_details(kernel, name)))
    explicit = _explicit_types(unit)
    known = explicit.get(name) or kernel.types.get(name)
    if known is None:
        return None
    details = list(_details(known, name, explicit))
    if name in (tags := coordinate_tags(kernel)):
        details.append(f"tags: {tags[name]}")
    return NameFacts(name, str(known), tuple(details))


def _explicit_types(unit: KernelUnit) -> Mapping[str, Type]:
    """Types after expansion, with layouts; as written when the kernel cannot be expanded (the verdict says why)."""
    assert unit.kernel is not None
    if unit.key not in _explicit:
        if len(_explicit) >= CACHED:
            _explicit.clear()
        try:
            _explicit[unit.key] = expanded_kernel(unit).types
        except Exception:
            log.info("%s cannot be expanded", unit.name, exc_info=True)
            _explicit[unit.key] = unit.kernel.types
    return _explicit[unit.key]


def _tensor(kernel: Kernel, name: str) -> str:
    kind = kernel.param(name).type
    return f"Global[{', '.join([str(kind.dtype), *map(ex.show, kind.shape)])}]"


def _tensor_details(kernel: Kernel, name: str) -> Iterator[str]:
    kind = kernel.param(name).type
    yield f"tensor in global memory; strides ({', '.join(map(ex.show, kind.strides))}) elements"


def _size_details(kernel: Kernel, name: str) -> Iterator[str]:
    users = [p.name for p in kernel.params if any(name in ex.names(extent) for extent in p.type.shape)]
    yield f"problem size, at least 1; an extent of {', '.join(users)}"
    yield from _assumed(kernel, name)


def _assumed(kernel: Kernel, name: str) -> Iterator[str]:
    about = [ex.show(a.expr) for a in kernel.assumptions if name in ex.names(a.expr)]
    if about:
        yield "assumed: " + ", ".join(f"`{fact}`" for fact in about)


def _details(known: Type, name: str, explicit: Mapping[str, Type]) -> Iterator[str]:
    match known:
        case TileType(dtype=dtype, shape=shape, layout=layout, why=why):
            size = prod(shape) * dtype.bytes
            yield f"tile in registers: {prod(shape)} elements, {_bytes(size)}"
            if layout is not None:
                yield f"layout: {layout}" + (f"\n\nbecause {why}" if why else "")
            ring = explicit.get(f"{name}_ring")
            if isinstance(ring, SharedType):
                yield f"staged through `{name}_ring`: {ring}, {ring.layout}"
        case SharedType(stages=stages, layout=layout):
            yield f"shared memory: {stages} × {_bytes(known.stage_bytes)} = {_bytes(stages * known.stage_bytes)}"
            yield f"layout: {layout}"
        case TensorMemoryType():
            yield f"tensor memory: {known.columns} of {TENSOR_MEMORY_COLUMNS} columns"
        case BarrierType():
            yield "mbarriers in shared memory"
        case _:
            yield "equal in all threads of the program"


def _bytes(count: int) -> str:
    return f"{count / 1024:g} KiB" if count >= 1024 else f"{count} B"
