"""What the roles of a kernel share while it is encoded: buffers, barriers, oracles, and numbered forms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.types import BarrierType, SharedType, TensorMemoryType
from tilewright.lines import Lines
from tilewright_analysis.async_ import code as c
from tilewright_analysis.async_ import forms
from tilewright_analysis.async_.forms import Facts, Form
from tilewright_analysis.operands import gathered_operands


def families(tables: Tables) -> tuple[list[tuple[int, ...]], list[int]]:
    """(family, limit) of each oracle: those that count along one quantity, and up to where constants tell them apart.

    Every oracle of a family is ceil((q X + r) / step) for the same X; constants that any of them is compared with are
    carried over to all.
    """
    families: list[tuple[int, ...]] = []
    limits: list[int] = []
    scales: list[Fraction] = []
    for o in tables.oracles:
        scales.append(o.trip.form.terms[0][1] if o.trip.form.terms else Fraction(1))
    for i, o in enumerate(tables.oracles):
        alike = tuple(
            j
            for j, other in enumerate(tables.oracles)
            if other.outer == o.outer
            and scales[i] * scales[j] > 0
            and forms.scale(other.trip.form.without_constant(), scales[i] / scales[j]) == o.trip.form.without_constant()
        )
        reach = max(
            (Fraction(tables.small[j] * tables.oracles[j].trip.step) - tables.oracles[j].trip.form.const)
            / abs(scales[j])
            for j in alike
        )
        limit = -(-(reach * abs(scales[i]) + o.trip.form.const) // o.trip.step)
        known = any(tables.small[j] for j in alike)
        families.append(alike)
        # Whether a loop runs at all decides whether a contraction is empty, so 0 is always told apart.
        least = 0 if o.is_programs else 1
        limits.append(max(least, int(limit) + (len(alike) > 1)) if known else least)
    return families, limits


def same_registers(kernel: ir.Kernel) -> dict[str, tuple[str, ...]]:
    """For each register operand of wgmma, the tiles that it is in another layout."""
    converted = {
        s.dst: s.args[0].name
        for s in ir.walk(kernel.body)
        if isinstance(s, ir.Compute) and s.op == "convert_layout" and isinstance(s.args[0], ir.TileRef)
    }
    operands = {s.a.name for s in ir.walk(kernel.body) if isinstance(s, ir.Wgmma) and isinstance(s.a, ir.TileRef)}
    return {name: (converted[name],) for name in operands if name in converted}


@dataclass(frozen=True, slots=True)
class Pattern:
    """What a gather takes in the iteration `~step` of a loop: the form of each index, None where a table decides."""

    index: tuple[Form | None, ...]
    tables: tuple[str, ...]
    loop: str
    trips: ex.Expr


class Tables:
    """What the roles share: buffers, barriers, oracles, and the numbering of symbols and dimensions."""

    def __init__(self, kernel: ir.Kernel, loops: tuple[forms.Trip, ...], patterns: Mapping[str, list[Pattern]]) -> None:
        self.kernel = kernel
        self.loops = loops
        self.lines = Lines(kernel)
        # The contracted axis of the tiles of gathers, by the id of the statement, where there is one.
        axes = gathered_operands(kernel).axes
        self.contracted = {n: next(iter(found)) for n, found in axes.items() if len(found) == 1}
        # What gathers into each tile or buffer take in iterations of a loop: known from a pass before, and found now.
        self.known_patterns = patterns
        self.patterns: dict[str, list[Pattern]] = {}
        self.facts = Facts.of(kernel.assumptions)
        self.buffers: dict[str, c.Buffer] = {}
        self.barriers: dict[str, c.Barrier] = {}
        self.oracles: list[c.Oracle] = []
        self.ties: list[set[int]] = []
        self.small: list[int] = []
        self.ahead: dict[int, int] = {}
        self.symbols: list[Form] = [forms.ZERO]
        self.dims: list[Form] = []
        # Words for dimensions that are none of a tensor: the steps of a loop, with what tells them from others.
        self.steps: dict[int, tuple[object, str]] = {}
        self._oracle_of: dict[tuple[forms.Trip, int | None, int], int] = {}
        self._computations: list[ir.Stmt] = []
        self._slots = 0

    def add_buffer(self, name: str, stmt: ir.Stmt) -> None:
        """Enter a shared buffer."""
        kind = self.kernel.types[name]
        assert isinstance(kind, SharedType)
        self.buffers[name] = c.Buffer(name, kind.stages, kind.shape, kind.stage_bytes, stmt)

    def add_tensor(self, name: str, stmt: ir.Stmt) -> None:
        """Enter a buffer in tensor memory."""
        kind = self.kernel.types[name]
        assert isinstance(kind, TensorMemoryType)
        rows, columns = kind.shape
        self.buffers[name] = c.Buffer(name, kind.stages, kind.shape, 4 * rows * columns, stmt, tensor=True)

    def add_barrier(self, name: str, stmt: ir.Stmt) -> None:
        """Enter a barrier array."""
        kind = self.kernel.types[name]
        assert isinstance(kind, BarrierType)
        self.barriers[name] = c.Barrier(name, kind.slots, kind.arrivals, self._slots, stmt)
        self._slots += kind.slots

    def oracle(self, trip: forms.Trip, outer: int | None, occurrence: int, programs: bool = False) -> int:
        """The number of the oracle of a trip count."""
        key = (trip, outer, occurrence)
        if key not in self._oracle_of:
            low, high = self.facts.bounds(trip.form)
            low, high = (v if abs(v) == float("inf") else -(-v // trip.step) for v in (low, high))
            if programs:
                low, high = 0.0, float("inf")
            self._oracle_of[key] = len(self.oracles)
            self.oracles.append(c.Oracle(trip, outer, occurrence, low, high, programs))
            self.ties.append(set())
            self.small.append(0)
        return self._oracle_of[key]

    def symbol(self, form: Form) -> int:
        """The number of an opaque form."""
        return _intern(self.symbols, form)

    def computation(self, stmt: ir.Stmt) -> int:
        """The number of what computes scalars; equal statements have one."""
        if stmt not in self._computations:
            self._computations.append(stmt)
        return self._computations.index(stmt)

    def dim(self, extent: Form) -> int:
        """The number of a dimension, known by its extent."""
        for number, known in enumerate(self.dims):
            if known == extent and number not in self.steps:
                return number
        self.dims.append(extent)
        return len(self.dims) - 1

    def steps_of(self, extent: Form, key: object, text: str) -> int:
        """The number of a dimension that counts the steps of a loop, known by `key`; `text` names it in messages."""
        for number, (known, _) in self.steps.items():
            if known == key and self.dims[number] == extent:
                return number
        self.dims.append(extent)
        self.steps[len(self.dims) - 1] = key, text
        return len(self.dims) - 1

    def stages(self, target: str) -> int:
        """The number of stages of a buffer; 1 for a register tile."""
        return self.buffers[target].stages if target in self.buffers else 1


def _intern(table: list[Form], form: Form) -> int:
    if form not in table:
        table.append(form)
    return table.index(form)
