"""Numbers and strings in a kernel."""

from __future__ import annotations

import ast
from functools import lru_cache

from tree_sitter import Node

from tilewright.frontend.tile_operators import TileOperators
from tilewright.frontend.tree import text
from tilewright.frontend.values import Value
from tilewright.ir.expr import Int


@lru_cache(maxsize=1024)
def _literal(source: str) -> object:
    """The value of a literal; kernels repeat few of them, and Python's compiler is slow to start."""
    return ast.literal_eval(source)


class Literals(TileOperators):
    """Literals as values known at compile time."""

    def string(self, node: Node) -> str:
        try:
            value = _literal(text(node))
        except (ValueError, SyntaxError):
            raise self.fault("TW005", "formatted strings are not supported in a kernel", node) from None
        if not isinstance(value, str):
            raise self.fault("TW005", "bytes are not supported in a kernel", node)
        return value

    def number(self, node: Node) -> Value:
        try:
            value = _literal(text(node))
        except (ValueError, SyntaxError):
            raise self.fault("TW001", f"'{text(node)[:40]}' is not a number", node) from None
        if isinstance(value, int):
            return self.bounded(node, Int(value))
        if isinstance(value, float):
            return value
        raise self.fault("TW005", "complex numbers are not supported in a kernel", node)

    def bounded(self, node: Node, value: Value) -> Value:
        """The value, unless it is an integer beyond 64 bits, which no kernel needs and which grows without end."""
        if isinstance(value, Int) and abs(value.value) >= 1 << 63:
            raise self.fault("TW006", "a compile-time integer has at most 64 bits", node)
        return value
