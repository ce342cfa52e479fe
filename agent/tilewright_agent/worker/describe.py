"""What is wrong with an output, in words."""

from __future__ import annotations

from collections.abc import Sequence


def mismatch(
    index: Sequence[int], got: float, want: float, wrong: int, total: int, tolerance: float, unwritten: int
) -> str:
    """A sentence about `wrong` of `total` elements, the first at `index`; `unwritten` of them still hold the poison."""
    where = f"[{', '.join(map(str, index))}]"
    if unwritten:
        why = "never written, or computed from undefined memory"
        return f"{unwritten} of {total} elements are NaN ({why}); the first is {where}"
    first = f"the first is {where}: {got:g} instead of {want:g}"
    return f"{wrong} of {total} elements differ by more than {tolerance:g}; {first}"
