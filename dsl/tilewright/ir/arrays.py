"""Operators of scalar expressions over arrays of integers, for expressions at many points at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.ir.expr import Op


def applied(op: Op, a: Any, b: Any) -> Any:
    """The values of `a op b`, int64 arrays that broadcast, with truth as 0 and 1; a quotient by zero is NumPy's."""
    match op:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
        case "//":
            return a // b
        case "%":
            return a % b
        case "cdiv":
            return -(-a // b)
        case "^":
            return a ^ b
        case "min":
            return np.minimum(a, b)
        case "max":
            return np.maximum(a, b)
        case "and":
            return truth((a != 0) & (b != 0))
        case "or":
            return truth((a != 0) | (b != 0))
        case "<":
            return truth(a < b)
        case "<=":
            return truth(a <= b)
        case "==":
            return truth(a == b)
        case "!=":
            return truth(a != b)


def truth(holds: Any) -> npt.NDArray[np.int64]:
    """0 and 1 for an array of truth values."""
    return np.asarray(holds).astype(np.int64)
