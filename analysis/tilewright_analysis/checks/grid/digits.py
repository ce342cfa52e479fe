"""Row-major tile maps: the coordinates are the digits of the program number, so no two programs share them all.

The solver proves this for two axes in milliseconds, for three in seconds; reading the digits off takes no search at
all.
"""

from __future__ import annotations

from tilewright.ir import expr as ex

from ...integers import Question
from ...integers.ranges import interval, interval_env
from .writes import Write


def digits_of_program(write: Write, question: Question) -> bool:
    """True when the tile coordinates are `t % d1`, `t // d1 % d2`, …, `t // (d1 * d2 * …)` in any order of axes.

    The program number is then the sum of the digits times their weights. Every radix must be positive.
    """
    if len(write.site.loops) != 1 or any(c is None for c in write.coordinates):
        return False
    number = ex.Var(write.site.loops[0].name)
    env = interval_env(question)
    left = [c for c in write.coordinates if c is not None]
    weight: ex.Expr = ex.Int(1)
    while left:
        rest = ex.floordiv(number, weight)
        if rest in left:
            return True
        digit = next((c for c in left if isinstance(c, ex.Bin) and c.op == "%" and c.lhs == rest), None)
        if digit is None:
            return False
        low = interval(digit.rhs, env)[0]
        if low is None or low < 1:
            return False
        left.remove(digit)
        weight = digit.rhs if weight == ex.Int(1) else ex.mul(weight, digit.rhs)
    return False
