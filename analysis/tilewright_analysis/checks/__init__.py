"""The checks of the verifier. Each is a function from the facts about a kernel to obligations, in a file of its own.

`CHECKS` is the list the driver runs, cheap ones first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..context import KernelContext
from ..report import Obligation
from .grid import roles_agree, tile_map
from .memory import load_bounds, ring_index, store_bounds

Check = Callable[[KernelContext], Iterable[Obligation]]

CHECKS: tuple[tuple[str, Check], ...] = (
    ("memory.ring_index", ring_index.check),
    ("memory.load_bounds", load_bounds.check),
    ("memory.store_bounds", store_bounds.check),
    ("grid.roles_agree", roles_agree.check),
    ("grid.tile_map", tile_map.check),
)
