"""The checks of the verifier. Each is a function from the facts about a kernel to obligations, in a file of its own.

`CHECKS` is the list the driver runs, cheap ones first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ..context import KernelContext
from ..report import Family, Obligation
from . import asynchronous
from .grid import accumulated, point_map, roles_agree, tile_map
from .layout import copy_width, global_alignment, matrix_shape, power_of_two, swizzle, tma_box
from .memory import (
    endless,
    global_order,
    leading_index,
    load_bounds,
    offset_width,
    point_bounds,
    ring_index,
    store_bounds,
)
from .resources import assumptions, instructions, role_warps, shared_memory, threads_registers
from .tags import blocks, compared, coverage, gathers, precision, scale, selections, validity


@dataclass(frozen=True, slots=True)
class Check:
    """A named check; `codes` are the diagnostics it can give, the first stands for a failure of the check itself.

    `applies` says whether a kernel has anything for it to look at; nothing is missing where it does not.
    """

    name: str
    family: Family
    codes: tuple[str, ...]
    run: Callable[[KernelContext], Iterable[Obligation]]
    applies: Callable[[KernelContext], bool] = lambda _: True


CHECKS: tuple[Check, ...] = (
    Check("layout.power_of_two", "layout", ("TW506",), power_of_two.check),
    Check("layout.swizzle", "layout", ("TW505",), swizzle.check),
    Check("layout.tma_box", "layout", ("TW502",), tma_box.check),
    Check("layout.matrix_shape", "layout", ("TW503",), matrix_shape.check),
    Check("layout.copy_width", "layout", ("TW504",), copy_width.check),
    Check("resources.instructions", "resources", ("TW009",), instructions.check),
    Check("resources.assumptions", "resources", ("TW012",), assumptions.check),
    Check("resources.role_warps", "resources", ("TW603",), role_warps.check),
    Check("resources.threads_registers", "resources", ("TW602",), threads_registers.check),
    Check("resources.shared_memory", "resources", ("TW601",), shared_memory.check),
    Check("layout.global_alignment", "layout", ("TW501",), global_alignment.check),
    Check("memory.ring_index", "memory", ("TW201", "TW202"), ring_index.check),
    Check("memory.leading_index", "memory", ("TW201", "TW202"), leading_index.check),
    Check("memory.load_bounds", "memory", ("TW201",), load_bounds.check),
    Check("memory.store_bounds", "memory", ("TW202",), store_bounds.check),
    Check("memory.point_bounds", "memory", ("TW201", "TW202"), point_bounds.check),
    Check("memory.endless", "memory", ("TW207",), endless.check),
    Check("memory.global_order", "memory", ("TW206",), global_order.check),
    Check("grid.roles_agree", "grid", ("TW304",), roles_agree.check),
    Check("grid.accumulated", "grid", ("TW305",), accumulated.check),
    Check("grid.tile_map", "grid", ("TW301", "TW302", "TW303"), tile_map.check),
    Check("asynchronous", "async", ("TW401", *asynchronous.CODES), asynchronous.check),
    Check("tags.coverage", "tags", ("TW101", "TW102"), coverage.check),
    Check("tags.blocks", "tags", ("TW101",), blocks.check),
    Check("tags.gathers", "tags", ("TW102",), gathers.check),
    Check("tags.validity", "tags", ("TW104",), validity.check),
    Check("tags.selections", "tags", ("TW104",), selections.check),
    Check("tags.scale", "tags", ("TW105",), scale.check),
    Check("tags.precision", "tags", ("TW107",), precision.check),
    Check("grid.point_map", "grid", ("TW302", "TW303"), point_map.check),
    Check("memory.offset_width", "memory", ("TW205",), offset_width.check),
    Check("tags.compared", "tags", ("TW108",), compared.check, compared.applies),
)
