"""Stages of shared memory as a statement sees them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilewright.ir.base import BufRef
from tilewright.ir.types import SharedType, Type
from tilewright.layout import transposed_view


def seen(types: Mapping[str, Type], ref: BufRef) -> SharedType:
    """The type of a stage of shared memory as `ref` sees it: its own, or the transposed one over the same bytes.

    Raises LayoutError where the layout has no transposed view.
    """
    buffer = types[ref.buffer]
    assert isinstance(buffer, SharedType)
    if not ref.transposed:
        return buffer
    return replace(buffer, shape=buffer.shape[::-1], layout=transposed_view(buffer.layout, buffer.shape))
