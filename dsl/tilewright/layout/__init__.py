"""Layout algebra: one representation, CuTe and linear notation, and the named families of each target."""

from .errors import LayoutError
from .families import Blocked, DistributedLayout, DotOperand, MmaV2, Slice, Wgmma, default_blocked
from .index_map import Axis, IndexMap, Output
from .linear import bases_of, format_bases, from_bases
from .shared import Padded, SharedLayout, Swizzled, SwizzledShared, default_swizzle

__all__ = [
    "Axis",
    "Blocked",
    "DistributedLayout",
    "DotOperand",
    "IndexMap",
    "LayoutError",
    "MmaV2",
    "Output",
    "Padded",
    "SharedLayout",
    "Slice",
    "Swizzled",
    "SwizzledShared",
    "Wgmma",
    "bases_of",
    "default_blocked",
    "default_swizzle",
    "format_bases",
    "from_bases",
]
