"""Layout inference: gives every register tile of an explicit kernel a layout, and converts where two uses disagree.

Tiles that an elementwise operation combines want one layout, so names fall into classes. A class takes its layout
from, in this order: a layout written in the kernel; the accumulator of a matrix instruction; a class it is a slice of,
or that is a slice of it; else a coalesced blocked layout, with as many elements a thread as one access can move. A
matrix from memory never takes an accumulator's layout: it is loaded coalesced and converted. Where the layout of a name
and the layout that a use needs differ, a `convert_layout` is inserted, and its note says why.
"""

from tilewright.infer.convert import convert_uses
from tilewright.infer.rules import InferenceError, mma_layout, wgmma_layout
from tilewright.infer.solve import Solver
from tilewright.ir import nodes as ir

__all__ = ["InferenceError", "infer_layouts", "mma_layout", "wgmma_layout"]


def infer_layouts(kernel: ir.Kernel) -> ir.Kernel:
    """The kernel with a layout and a reason (`TileType.why`) on every register tile; idempotent.

    Layouts that are already given are obeyed. Raises InferenceError where a matrix instruction cannot have its layout
    (shape, number of warps), or where roles of different size share a tile's name.
    """
    return convert_uses(kernel, Solver(kernel).solve())
