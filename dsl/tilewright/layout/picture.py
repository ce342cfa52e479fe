"""A layout as text, small enough for a hover."""

from __future__ import annotations

from collections.abc import Sequence

from .errors import LayoutError
from .families import DistributedLayout
from .index_map import IndexMap
from .inverse import owner_indices
from .shared import SharedLayout

# Editors cut long hovers off, so a picture shows at most this many rows and columns.
LIMIT = 16


def picture(layout: DistributedLayout | SharedLayout | IndexMap, shape: Sequence[int]) -> str:
    """A table of the first 16×16 elements of a tile of rank 1 or 2.

    Distributed layouts show the owner of each element as `w0 l3 r1`, with `+n` when n others hold a copy; shared
    layouts show the offset. A map given as such is pictured by the names of its outputs.
    """
    if len(shape) not in (1, 2):
        raise LayoutError(f"a picture needs a tile of rank 1 or 2, not {list(shape)}")
    mapping = layout if isinstance(layout, IndexMap) else layout.linear(shape)
    rows, columns = (1, shape[0]) if len(shape) == 1 else (shape[0], shape[1])
    shown_rows, shown_columns = min(rows, LIMIT), min(columns, LIMIT)
    cells = [["", *map(str, range(shown_columns))]]
    for row in range(shown_rows):
        line = [str(row)]
        for column in range(shown_columns):
            line.append(_cell(mapping, (column,) if len(shape) == 1 else (row, column)))
        cells.append(line)
    widths = [max(len(line[position]) for line in cells) for position in range(shown_columns + 1)]
    text = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]
    if (shown_rows, shown_columns) != (rows, columns):
        text.append(f"… {shown_rows}×{shown_columns} of {rows}×{columns}")
    return "\n".join(text)


def _cell(mapping: IndexMap, coordinate: tuple[int, ...]) -> str:
    if mapping.outputs[0].name == "offset":
        return str(mapping(*coordinate))
    indices = owner_indices(mapping, coordinate)
    if not indices:
        return "-"
    parts = zip((axis.name for axis in mapping.inputs), mapping.split(indices[0]), strict=True)
    text = " ".join(f"{name[0]}{value}" for name, value in reversed(list(parts)))
    return text if len(indices) == 1 else f"{text} +{len(indices) - 1}"
