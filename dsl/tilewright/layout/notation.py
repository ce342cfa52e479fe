"""CuTe notation: `(128,64):(64,1)`, `8 + 16:2`, `Sw<3,4,3> o 0 o (8,64):(64,1)`, `F2<1,2,5> o 0 o 8:1`.

`str(layout)` prints it; `parse_layout` reads it back. `F2<…>` lists the columns of a matrix that is no CuTe swizzle.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import islice
from math import prod

from . import f2
from .errors import LayoutError
from .index_map import OFFSET, Axis, IndexMap, IntTree, check_congruent, leaves
from .linear import from_columns
from .swizzle import swizzle_columns

_TOKEN = re.compile(r"\s*(Sw<|F2<|-?\d+|[(),:>+o])")


def make_layout(shape: IntTree, stride: IntTree | None = None, offset: int = 0) -> IndexMap:
    """The CuTe layout shape:stride; without a stride the compact one, first mode fastest (LayoutLeft)."""
    if stride is None:
        stride = _compact(shape, 1)
    check_congruent(shape, stride)
    if isinstance(shape, int) or isinstance(stride, int):
        return IndexMap((Axis("0", shape, stride),), OFFSET, offset)
    axes = tuple(
        Axis(str(position), size, step) for position, (size, step) in enumerate(zip(shape, stride, strict=True))
    )
    return IndexMap(axes, OFFSET, offset)


def swizzled(layout: IndexMap, bits: int, base: int, shift: int) -> IndexMap:
    """`Sw<bits,base,shift>` after an affine layout."""
    if layout.post is not None:
        raise LayoutError(f"{layout} already has a swizzle")
    return replace(layout, post=swizzle_columns(bits, base, shift))


def parse_layout(text: str) -> IndexMap:
    """Read CuTe notation; LayoutError says what was expected, and at which column."""
    reader = _Reader(text)
    post: tuple[int, ...] | None = None
    offset = 0
    if reader.peek() in ("Sw<", "F2<"):
        kind = reader.next()
        numbers = [reader.number()]
        while reader.accept(","):
            numbers.append(reader.number())
        reader.expect(">")
        reader.expect("o")
        if kind == "Sw<":
            if len(numbers) != 3:
                raise LayoutError(f"{text!r}: a swizzle has three numbers, Sw<bits,base,shift>")
            post = swizzle_columns(*numbers)
        else:
            post = tuple(numbers)
        first = reader.tree()
        if reader.accept("o"):
            if not isinstance(first, int):
                raise LayoutError(f"{text!r}: the offset after a swizzle is one number")
            offset, first = first, reader.tree()
    else:
        first = reader.tree()
        if reader.accept("+"):
            if not isinstance(first, int):
                raise LayoutError(f"{text!r}: the offset is one number")
            offset, first = first, reader.tree()
    stride = reader.tree() if reader.accept(":") else None
    reader.end()
    return replace(make_layout(first, stride, offset), post=post)


def to_cute(layout: IndexMap) -> IndexMap:
    """The same map with its F2 matrix as a CuTe swizzle, so that it prints as `Sw<B,M,S> o …`.

    LayoutError when no swizzle makes the rest affine.
    """
    if layout.post is None:
        return layout
    columns = layout.columns
    if columns is None:
        raise LayoutError(f"{layout} is not linear over F2")
    width = max((column.bit_length() for column in columns), default=0)
    for bits in range(1, width + 1):
        for base in range(width):
            for shift in (*range(bits, width - base), *range(-bits, base - width, -1)):
                post = swizzle_columns(bits, base, shift)
                # A swizzle undoes itself, so what is left under it is affine when its bits are disjoint.
                plain = [f2.apply(post, value) for value in (*columns, layout.origin)]
                if f2.have_disjoint_bits(plain):
                    split: dict[str, list[int]] = {}
                    rest = iter(plain)
                    for axis in layout.inputs:
                        split[axis.name] = list(islice(rest, f2.log2_exact(axis.extent)))
                    return replace(from_columns(split, layout.outputs, plain[-1]), post=post)
    raise LayoutError(f"{layout} is linear over F2, but no CuTe swizzle after an affine layout")


def _compact(shape: IntTree, scale: int) -> IntTree:
    if isinstance(shape, int):
        return scale
    strides: list[IntTree] = []
    for size in shape:
        strides.append(_compact(size, scale))
        scale *= prod(leaves(size))
    return tuple(strides)


class _Reader:
    """Tokens of the notation."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0

    def peek(self) -> str | None:
        match = _TOKEN.match(self.text, self.position)
        return match.group(1) if match else None

    def next(self) -> str:
        match = _TOKEN.match(self.text, self.position)
        if match is None:
            raise self.error("a layout such as (8,4):(4,1)")
        self.position = match.end()
        return match.group(1)

    def accept(self, token: str) -> bool:
        if self.peek() == token:
            self.next()
            return True
        return False

    def expect(self, token: str) -> None:
        if not self.accept(token):
            raise self.error(f"{token!r}")

    def number(self) -> int:
        token = self.peek()
        if token is None or not token.lstrip("-").isdigit():
            raise self.error("a number")
        return int(self.next())

    def tree(self) -> IntTree:
        if not self.accept("("):
            return self.number()
        branches = [self.tree()]
        while self.accept(","):
            if self.peek() == ")":
                break
            branches.append(self.tree())
        self.expect(")")
        return tuple(branches)

    def end(self) -> None:
        if self.text[self.position :].strip():
            raise self.error("the end of the layout")

    def error(self, expected: str) -> LayoutError:
        return LayoutError(f"{self.text!r}, column {self.position + 1}: expected {expected}")
