"""What values are sums of, so that what is added twice is seen: `sum(x) + sum(x)`, or tiles that a loop adds up along
with their sums.

A summand is an expression over loads: operations by name, elements by tensor and place. Equal ones are equal values.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir

_MOST = 400  # characters of an expression; longer ones are not compared
_MOST_SHOWN = 60
_SAME = frozenset(("copy", "cast", "convert_layout", "expand_dims", "broadcast", "reshape"))
Summands = frozenset[str]
NONE: Summands = frozenset()


def loaded(tensor: str, place: Sequence[ex.Expr]) -> Summands:
    """A tile of a tensor."""
    return frozenset((f"{tensor}[{', '.join(map(ex.show, place))}]",))


def in_words(summand: str) -> str:
    """A summand for a message."""
    inner = summand.removeprefix("sum ").lstrip("0123456789").removeprefix("(").removesuffix(")")
    if "(" in inner or len(inner) > _MOST_SHOWN:
        return "what it adds"
    return f"the sum of {inner}" if summand.startswith("sum ") else inner


def computed(stmt: ir.Compute, operands: Sequence[tuple[Summands, bool]]) -> tuple[Summands, str]:
    """(the summands of a result, one of them that was added before), from those of the operands that are tiles.

    With each operand whether a loop carries it, and with it what nobody has listed.
    """
    if stmt.op == "add" and len(operands) == 2:
        (one, carried), (other, too) = operands
        known = (one or carried) and (other or too)
        again = sorted(s for s in one & other if s.startswith("sum ") or carried or too)
        return (one | other if known else NONE), next(iter(again), "")
    if stmt.op in _SAME and len(operands) == 1:
        return operands[0][0], ""
    if not operands or any(carried or not found for found, carried in operands):
        return NONE, ""
    parts = iter(" + ".join(sorted(found)) for found, _ in operands)
    shown = (
        next(parts) if isinstance(a, ir.TileRef) else a if isinstance(a, float | int) else ex.show(a) for a in stmt.args
    )
    text = f"{stmt.op} {'' if stmt.axis is None else stmt.axis}({', '.join(map(str, shown))})"
    return frozenset((text,)) if len(text) <= _MOST else NONE, ""
