"""The one error of the layout algebra."""

from __future__ import annotations


class LayoutError(ValueError):
    """A layout operation that has no right answer.

    Attributes:
        coordinate: the flat input index, or the tuple of coordinates, at which the operation breaks;
            None when the operands are malformed rather than incompatible.
        left: what the first side gives at `coordinate` (for a composition: the right value).
        right: what the second side gives at `coordinate` (for a composition: the value of the result refused).
    """

    def __init__(
        self,
        message: str,
        *,
        coordinate: int | tuple[int, ...] | None = None,
        left: int | tuple[int, ...] | None = None,
        right: int | tuple[int, ...] | None = None,
    ) -> None:
        super().__init__(message)
        self.coordinate = coordinate
        self.left = left
        self.right = right
