"""Where lanes past an edge would count, and where infinities meet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.ir import nodes as ir

from .lanes import Lanes, Past
from .numbers import Number

EXTREMES: Mapping[str, str] = {
    "max": "max", "argmax": "max", "cummax": "max", "maximum": "max",
    "min": "min", "argmin": "min", "cummin": "min", "minimum": "min",
}  # fmt: skip
"""Operations by the kind of use that they make of lanes."""


@dataclass(frozen=True, slots=True)
class Use:
    """A place where lanes past an edge must not count.

    `kind` says what is neutral: 0 for `sum`, `product`, `accumulation` and `update add`, 1 for `factor`, nothing above
    the others for `max`, minus infinity for `update max`.
    `operand` is the argument whose lanes are meant, `past` the lanes, `axis` the axis that is reduced. `number` is what
    they hold, `inside` what the others hold. A product has two `operands`.
    """

    stmt: ir.Stmt
    kind: str
    operand: str
    axis: int
    past: Past
    number: Number
    inside: Number
    tile: Lanes
    operands: tuple[Lanes, ...] = ()

    @property
    def neutral(self) -> bool:
        """True if lanes that hold such numbers make no difference."""
        if self.kind == "max":
            return self.number.at_most(self.inside)
        if self.kind == "min":
            return self.inside.at_most(self.number)
        if self.kind == "factor":
            return self.number.value == 1.0
        if self.kind in ("update max", "update min"):
            return self.number.kinds == frozenset(("-inf" if self.kind == "update max" else "inf",))
        return self.number.is_zero


@dataclass(frozen=True, slots=True)
class Clash:
    """`stmt` subtracts or adds infinities. `sure` if they cannot cancel."""

    stmt: ir.Compute
    sure: bool
