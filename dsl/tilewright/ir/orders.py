"""Orders of a grid: which program takes which tile."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir import expr as ex
from tilewright.ir.expr import Expr, Int


@dataclass(frozen=True, slots=True)
class Grouped:
    """Groups of `rows` tile rows, each walked column by column for L2 reuse; the last may be lower."""

    rows: int


@dataclass(frozen=True, slots=True)
class RowMajor:
    """The last coordinate runs fastest."""


@dataclass(frozen=True, slots=True)
class ColumnMajor:
    """The first coordinate runs fastest."""


Plain = Grouped | RowMajor | ColumnMajor


@dataclass(frozen=True, slots=True)
class Xcd:
    """The tiles of `inner` in `dies` runs of neighbours, one for each die of the GPU, which has an L2 of its own."""

    dies: int
    inner: Plain


Order = Plain | Xcd


def xcd_number(program: Expr, count: Expr, dies: int) -> Expr:
    """The number in [0, count) that program number `program` in [0, count) takes, so that a die takes a run of them.

    Programs go round the dies: die d gets those that are d modulo `dies`, which are count // dies, and one more if
    d < count % dies. So its run begins at d * (count // dies) + min(d, count % dies), and `program // dies` counts
    within. The runs follow each other and each is filled in order, so the map is a bijection of [0, count), for every
    count (AMD CDNA3 white paper: work-groups are dispatched to the XCDs in turn).
    """
    die = ex.mod(program, Int(dies))
    run = ex.mul(die, ex.floordiv(count, Int(dies)))
    longer = ex.binary("min", die, ex.mod(count, Int(dies)))
    return ex.add(ex.add(run, longer), ex.floordiv(program, Int(dies)))
