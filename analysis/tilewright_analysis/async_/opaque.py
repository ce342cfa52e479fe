"""Scalars that loops with a condition compute: functions of what goes in, of which nothing else is known.

A search in an index tensor, say, changes scalars and nothing else. What it leaves is a function of the scalars that it
reads, since sizes and index tensors do not change while the kernel runs. Branches that load scalars are such
computations too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir


def is_opaque(stmt: ir.Stmt) -> bool:
    """True for a loop with a condition, or a branch that loads scalars, in which only scalars are computed."""
    if not all(isinstance(s, ir.Assign | ir.If | ir.For | ir.While) for s in ir.walk((stmt,))):
        return False
    return isinstance(stmt, ir.While) or (isinstance(stmt, ir.If) and loads(stmt))


def loads(stmt: ir.Stmt) -> bool:
    """True where elements of tensors take part in the scalars that a statement computes."""
    return any(isinstance(s, ir.Assign) and isinstance(s.value, ex.Item) for s in ir.walk((stmt,)))


def assigned(stmt: ir.Stmt) -> list[str]:
    """The scalars that a statement assigns, each once."""
    return list(dict.fromkeys(s.dst for s in ir.walk((stmt,)) if isinstance(s, ir.Assign)))


def read(stmt: ir.Stmt) -> list[str]:
    """The names in the expressions of a statement, sorted."""
    exprs = (e for s in ir.walk((stmt,)) for e in ir.operands(s) if isinstance(e, ex.Expr))
    return sorted({n for e in exprs for n in ex.names(e)})


def settled(body: ir.Block) -> frozenset[str]:
    """Scalars that computations and loops with a condition assign, with one value at each place of the text.

    All assignments to them stand in one block, whose statements run one after the other, or in a computation or the
    body of a loop with a condition there.
    """
    total = Counter(s.dst for s in ir.walk(body) if isinstance(s, ir.Assign))
    found: set[str] = set()
    for block in _blocks(body):
        here = _in_order(block)
        computed = {n for s in block if is_opaque(s) or isinstance(s, ir.While) for n in assigned(s)}
        found |= {n for n in computed if here[n] == total[n]}
    return frozenset(found)


def _in_order(block: ir.Block) -> Counter[str]:
    """How often a block assigns scalars, not counting its branches and other loops."""
    found: Counter[str] = Counter()
    for stmt in block:
        if isinstance(stmt, ir.Assign):
            found[stmt.dst] += 1
        elif is_opaque(stmt):
            found.update(s.dst for s in ir.walk((stmt,)) if isinstance(s, ir.Assign))
        elif isinstance(stmt, ir.While):
            found += _in_order(stmt.body)
    return found


def _blocks(block: ir.Block) -> Iterator[ir.Block]:
    yield block
    for stmt in block:
        if not is_opaque(stmt):
            for inner in ir.children(stmt):
                yield from _blocks(inner)
