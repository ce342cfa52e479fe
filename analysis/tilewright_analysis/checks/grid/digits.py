"""Row-major tile maps: the coordinates are the digits of the program number, so no two programs share them all.

The solver proves this for two axes in milliseconds, for three in seconds; reading the digits off takes no search at
all.
"""

from __future__ import annotations

from tilewright.ir import expr as ex

from ...integers import Binder, Question
from ...integers.ranges import interval, interval_env
from .writes import Write


def digits_of_program(write: Write, question: Question) -> bool:
    """True when tile coordinates are `t % d1`, `t // d1 % d2`, …, `t // (d1 * d2 * …)` in any order of axes, and one
    that counts the turns of each loop around the store.

    The program number is then the sum of the digits times their weights. Every radix must be positive.
    """
    if not write.site.loops or any(c is None for c in write.coordinates):
        return False
    outer, *inner = write.site.loops
    number = ex.Var(outer.name)
    env = interval_env(question)
    left = [c for c in write.coordinates if c is not None]
    for loop in inner:
        # Where it begins may depend on the program: the digits tell that.
        own = next((c for c in left if _counts_turns(c, loop)), None)
        if own is None or ex.names(loop.lo) & {b.name for b in inner}:
            return False
        left.remove(own)
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


def _counts_turns(coordinate: ex.Expr, loop: Binder) -> bool:
    """True if the coordinate is another one at each turn of a loop, for a given beginning."""
    match coordinate:
        case ex.Var(name):
            return name == loop.name
        case ex.Bin("//", ex.Var(name), ex.Int(length)):
            return name == loop.name and length > 0 and loop.step % length == 0
        case _:
            return False
