"""A syntax tree as an indented outline."""

from __future__ import annotations

from collections.abc import Iterator

from tree_sitter import Node

from tilewright.frontend.tree import parse


def render(data: bytes) -> str:
    """One named node a line: its type, its place (1-based line and column), and the text of leaves."""
    return "\n".join(_outline(parse(data).root_node, 0, "")) + "\n"


def _outline(node: Node, depth: int, role: str) -> Iterator[str]:
    place = f"{node.start_point[0] + 1}:{node.start_point[1] + 1}"
    label = f"{role}: {node.type}" if role else node.type
    leaf = f" {node.text.decode('utf-8', 'replace')!r}" if node.text and not node.named_child_count else ""
    broken = " (missing)" if node.is_missing else ""
    yield f"{'  ' * depth}{label} {place}{leaf}{broken}"
    for index, child in enumerate(node.children):
        if child.is_named or child.is_missing:
            yield from _outline(child, depth + 1, node.field_name_for_child(index) or "")
