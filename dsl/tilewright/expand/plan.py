"""In which order a role computes what the body of a split pipeline says, so that products run beside other work.

- `flight`: products into accumulators of their own and nothing else. Those of one iteration are in flight over the back
  edge.
- `ahead`: products that need nothing of their iteration but what is loaded (the *first* ones), something computed from
  them, and products of that (the *last* ones), as in attention. The first products of an iteration are issued before
  the last ones of the iteration before, and run while that is computed.
- `order`: as written, each product awaited where its result is needed.

Statements change places only where none reads or writes what the other writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from tilewright.expand.names import Names
from tilewright.expand.staging import StageRead
from tilewright.ir import nodes as ir
from tilewright.ir.dataflow import read_by, written_by


@dataclass(frozen=True, slots=True)
class Plan:
    """`rest` is the body without its loads; `first`, `held` and `last` number statements of it.

    `first`: the first products and what they start from. `last`: the last products. `held`: what touches registers of
    last products in flight. `uses` says of each loaded tile where it is used: with `ahead`, 0 by the first products,
    1 by what is between, 2 by the last ones; else how many products come before its first use.
    """

    kind: Literal["flight", "ahead", "order"]
    rest: ir.Block
    uses: Mapping[str, tuple[int, ...]]
    first: frozenset[int] = frozenset()
    held: frozenset[int] = frozenset()
    last: frozenset[int] = frozenset()


def plan(loop: ir.Pipeline, reads: Sequence[StageRead], rest: ir.Block, names: Names, resident: frozenset[str]) -> Plan:
    """The plan of a pipeline that reads its stages as `reads` says and does `rest` with them."""
    loaded = {r.dst: r.staged.load.dst for r in reads}
    found = _ahead(rest, frozenset(loaded) | resident, names)
    if found is not None:
        return replace(found, uses=_parts(found, loaded))
    levels = dict.fromkeys((r.staged.load.dst for r in reads), 0)
    first: dict[str, int] = {}
    level: dict[str, int] = {}
    for stmt in rest:
        if isinstance(stmt, ir.Tag | ir.ExpectTags):
            continue
        used = read_by(stmt)
        depth = max((level.get(n, 0) for n in used), default=0)
        for name in used & loaded.keys():
            first.setdefault(loaded[name], depth)
        for name in written_by(stmt):
            level[name] = depth + is_product(stmt)
    kind = "flight" if _keeps_in_flight(rest, frozenset(loaded)) else "order"
    return Plan(kind, rest, {name: (first.get(name, 0),) for name in levels})


def is_product(stmt: ir.Stmt) -> bool:
    """Whether the statement becomes a wgmma."""
    return isinstance(stmt, ir.Mma) and stmt.instr == "auto"


def _keeps_in_flight(rest: ir.Block, loaded: frozenset[str]) -> bool:
    """Whether products into accumulators of their own are all that touches loaded tiles and accumulators."""
    products = [s for s in rest if isinstance(s, ir.Mma)]
    others = [s for s in rest if not isinstance(s, ir.Mma)]
    accumulators = {p.dst for p in products}
    if not products or len(accumulators) < len(products) or any(p.dst != p.acc or not is_product(p) for p in products):
        return False
    if any({p.a, p.b} & accumulators or (p.a not in loaded and p.a in _all_written(others)) for p in products):
        return False
    touched = {n for s in others for n in read_by(s) | written_by(s)}
    return not touched & (accumulators | loaded)


def _all_written(stmts: Sequence[ir.Stmt]) -> set[str]:
    return {n for s in stmts for n in written_by(s)}


def _ahead(rest: ir.Block, in_shared: frozenset[str], names: Names) -> Plan | None:
    """The plan in which first products run ahead; None where the body is not of that form."""
    reads, writes = [read_by(s) - in_shared for s in rest], [written_by(s) for s in rest]
    said = frozenset(i for i, s in enumerate(rest) if isinstance(s, ir.Tag | ir.ExpectTags))
    products = [i for i, s in enumerate(rest) if is_product(s)]
    level: dict[str, int] = {}
    depth: dict[int, int] = {}
    for i, stmt in enumerate(rest):
        depth[i] = max((level.get(n, 0) for n in reads[i]), default=0)
        level |= dict.fromkeys(writes[i], depth[i] + is_product(stmt))
    last = frozenset(i for i in products if depth[i] > 0 and not _continues(rest, i))
    # A product that adds to one before it, as pieces of a tile do, belongs with that.
    for i in products:
        if _continues(rest, i) and any(j in last for j in products if j < i and writes[j] & reads[i]):
            last |= {i}
    first = frozenset(products) - last
    if not first or not last:
        return None
    first = _with_what_it_needs(first, rest, reads, writes)
    if first is None:
        return None
    results = frozenset(n for i in last for n in writes[i])
    operands = frozenset(n for i in last for n in reads[i])
    for i in first:
        before = [j for j in range(i) if j not in first and j not in said]
        if any(_conflict(i, j, reads, writes) for j in before) or (reads[i] | writes[i]) & results:
            return None
        if writes[i] & operands:
            return None
    for i in last:
        after = [j for j in range(i + 1, len(rest)) if j not in last and j not in said]
        if any(_conflict(i, j, reads, writes) for j in after):
            return None
    held: list[int] = []
    for i in range(len(rest)):
        if i in first or i in last or i in said:
            continue
        touches = (reads[i] | writes[i]) & results or writes[i] & operands
        if touches or any(_conflict(i, j, reads, writes) for j in held):
            held.append(i)
    renamed = _with_names(rest, held, last, names)
    return Plan("ahead", renamed, {}, first, frozenset(held), last)


def _continues(rest: ir.Block, i: int) -> bool:
    """Whether a product only adds to the result of another one of the iteration."""
    stmt = rest[i]
    assert isinstance(stmt, ir.Mma)
    makers = [s for s in rest[:i] if stmt.acc in written_by(s)]
    return bool(makers) and is_product(makers[-1])


def _with_what_it_needs(
    first: frozenset[int], rest: ir.Block, reads: Sequence[frozenset[str]], writes: Sequence[frozenset[str]]
) -> frozenset[int] | None:
    """The first products and what their operands are computed by; None if that is more than arithmetic."""
    needed = set(first)
    for i in sorted(first, reverse=True):
        waiting = [i]
        while waiting:
            at = waiting.pop()
            for j in range(at):
                if writes[j] & reads[at] and j not in needed:
                    if not isinstance(rest[j], ir.Compute | ir.Assign):
                        return None
                    needed.add(j)
                    waiting.append(j)
    return frozenset(needed)


def _conflict(i: int, j: int, reads: Sequence[frozenset[str]], writes: Sequence[frozenset[str]]) -> bool:
    return bool(writes[i] & (reads[j] | writes[j]) or writes[j] & reads[i])


def _with_names(rest: ir.Block, held: Sequence[int], last: frozenset[int], names: Names) -> ir.Block:
    """The body where what last products read has a name, as it is carried into the next iteration: an accumulator that
    of the result.
    """
    new: dict[str, str] = {}
    for i in sorted(last):
        product = rest[i]
        assert isinstance(product, ir.Mma)
        for operand in (product.a, product.acc):
            if not operand.startswith("%") or operand in new:
                continue
            maker = next((j for j in held if operand in written_by(rest[j])), None)
            if maker is None:
                continue
            fits = names.types[operand] == names.types[product.dst] and operand == product.acc
            later = [rest[j] for j in held if j > maker]
            if fits and not any(product.dst in read_by(s) | written_by(s) for s in later):
                new[operand] = product.dst
            else:
                new[operand] = names.new("operand", names.types[operand])

    def name(stmt: ir.Stmt) -> ir.Block | None:
        changed = {
            f: new[value] for f in ir.operand_names(type(stmt))
            if isinstance(value := getattr(stmt, f), str) and value in new
        }  # fmt: skip
        if isinstance(stmt, ir.Compute):
            args = tuple(ir.TileRef(new.get(a.name, a.name)) if isinstance(a, ir.TileRef) else a for a in stmt.args)
            return (replace(stmt, args=args, **changed),)
        return (replace(stmt, **changed),) if changed else None

    return ir.rewrite(rest, name) if new else rest


def _parts(found: Plan, loaded: Mapping[str, str]) -> dict[str, tuple[int, ...]]:
    """Where each loaded tile is used."""
    uses: dict[str, set[int]] = {name: set() for name in loaded.values()}
    for i, stmt in enumerate(found.rest):
        part = 0 if i in found.first else 2 if i in found.last else 1
        for name in read_by(stmt) & loaded.keys():
            uses[loaded[name]].add(part)
    return {name: tuple(sorted(parts or {1})) for name, parts in uses.items()}
