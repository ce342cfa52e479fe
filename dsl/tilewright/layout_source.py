"""Layouts as a kernel writes them."""

from __future__ import annotations

from tilewright.layout import (
    Blocked,
    DistributedLayout,
    DotOperand,
    Mfma,
    MmaV2,
    SharedLayout,
    Slice,
    Swizzled,
    SwizzledShared,
    Wgmma,
)


def register_layout(layout: DistributedLayout) -> str:
    """A layout of registers as a kernel writes it."""
    match layout:
        case Blocked():
            parts = (layout.size_per_thread, layout.threads_per_warp, layout.warps_per_cta, layout.order)
            return f"tw.blocked({', '.join(f'{part}' for part in parts)})"
        case Slice(dim=dim, parent=parent):
            return f"tw.sliced({dim}, {register_layout(parent)})"
        case DotOperand(index=index, parent=parent, k_width=width):
            return f"tw.dot_operand({index}, {register_layout(parent)}, {width})"
        case MmaV2(warps_per_cta=warps):
            return f'tw.accumulator("mma_v2", {warps})'
        case Wgmma(warps_per_cta=warps, instr=(rows, n, k)):
            return f'tw.accumulator("wgmma", {warps}, ({4 * rows}, {n}, {k}))'
        case Mfma(warps_per_cta=warps, instr=shape, generation=generation):
            return f'tw.accumulator("mfma", {warps}, {shape}, generation={generation})'


def shared_layout(layout: SharedLayout) -> str:
    """A layout of shared memory as a kernel writes it."""
    match layout:
        case Swizzled(bytes=width):
            return f"tw.swizzled({width})"
        case SwizzledShared(vec=vec, per_phase=per_phase, max_phase=max_phase):
            return f"tw.swizzled_shared({vec}, {per_phase}, {max_phase})"
        case other:
            raise AssertionError(f"no source form for the layout {other}")
