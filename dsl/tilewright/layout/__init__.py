"""Layout algebra: one representation, CuTe and linear notation, and the named families of each target."""

from .algebra import (
    coalesce,
    coalesce_each,
    complement,
    compose,
    concatenate,
    logical_divide,
    logical_product,
    zipped_divide,
)
from .compare import Collision, Difference, collision, difference, equal, is_injective, is_surjective, uncovered
from .conflicts import BankConflicts, bank_conflicts
from .errors import LayoutError
from .exchange import Exchange, exchange
from .families import Blocked, DistributedLayout, DotOperand, Mfma, MmaV2, Slice, Wgmma, default_blocked
from .index_map import Axis, IndexMap, Output
from .inverse import inverse, left_inverse, owner, owners, right_inverse
from .linear import bases_of, format_bases, from_bases
from .notation import make_layout, parse_layout, swizzled, to_cute
from .picture import picture
from .shared import Padded, SharedLayout, Swizzled, SwizzledShared, default_swizzle, transposed_view

__all__ = [
    "Exchange",
    "exchange",
    "Axis",
    "BankConflicts",
    "Blocked",
    "Collision",
    "Difference",
    "DistributedLayout",
    "DotOperand",
    "IndexMap",
    "LayoutError",
    "Mfma",
    "MmaV2",
    "Output",
    "Padded",
    "SharedLayout",
    "Slice",
    "Swizzled",
    "SwizzledShared",
    "Wgmma",
    "bank_conflicts",
    "bases_of",
    "coalesce",
    "coalesce_each",
    "collision",
    "complement",
    "compose",
    "concatenate",
    "default_blocked",
    "default_swizzle",
    "difference",
    "equal",
    "format_bases",
    "from_bases",
    "inverse",
    "is_injective",
    "is_surjective",
    "left_inverse",
    "logical_divide",
    "logical_product",
    "make_layout",
    "owner",
    "owners",
    "parse_layout",
    "picture",
    "right_inverse",
    "swizzled",
    "to_cute",
    "transposed_view",
    "uncovered",
    "zipped_divide",
]
