"""Which names a piece of a kernel assigns, and how often."""

from __future__ import annotations

from collections import Counter

from tree_sitter import Node

from tilewright.frontend.tree import child, parts, text

_OPEN = frozenset((
    "module", "block", "for_statement", "while_statement", "if_statement", "elif_clause", "else_clause",
    "with_statement", "expression_statement", "assignment",
))  # fmt: skip


def assigned_names(node: Node) -> set[str]:
    """Names that a statement assigns, at any depth; loop variables included."""
    return set(count_assignments(node))


def count_assignments(node: Node) -> Counter[str]:
    """How often each name is assigned under `node`, not counting the bodies of roles."""
    counts: Counter[str] = Counter()

    def go(n: Node) -> None:
        if n.type == "with_statement" and n is not node:
            return
        if n.type in ("assignment", "augmented_assignment", "for_statement"):
            left = child(n, "left")
            if left is not None:
                for target in [left] if left.type == "identifier" else parts(left):
                    # `x += 1` needs a variable even where it stands alone.
                    counts[text(target)] += 2 if n.type == "augmented_assignment" else 1
        if n.type in _OPEN:
            for c in n.named_children:
                go(c)

    go(node)
    return counts
