"""Contractions over a part of a dimension, because the rest contributes nothing, as under a causal mask.

A loop over the keys that ends at the last key of its queries, or begins at the first one of their window, leaves out
keys that the mask would take out anyway. Shown by one more iteration that the kernel does not run, at any place before
the beginning of the loop or from its end up to the extent of the dimension: what it would multiply is zero in every
lane. Then running over all of the dimension would add nothing.

Where tables say where the loop begins or ends, as for one of several sequences, they say which elements count. Then no
lane past such an end may count: its tile may reach into what belongs to the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir

from ...async_.model import AsyncResult, End
from ...context import KernelContext, Site
from .axes import defined
from .flow import Flow, Tiles
from .lanes import Edge, Lanes, Past, subsets
from .masks import Mask
from .numbers import Number
from .table_limits import table_limit

Operands = list[tuple[int, str]]
"""Tiles by name, each with the axis along which it is contracted."""
_Mark = tuple[int, ir.Compute]


@dataclass(frozen=True, slots=True)
class Rest:
    """Places that a loop does not come to: those `before` its first one, or those from its end on. With `table`: those
    in its last tile from the end on that a table gives, in the names of the kernel.

    `adds_nothing`: what would be multiplied there is zero in every lane. `limited`: a mask compares coordinates along
    the contraction with others, on the side where these places are; and the loop depends on no more of the program
    than the mask does there. So the mask says which elements count, and the loop need only leave out others.
    """

    loop: ir.For
    extent: ex.Expr
    before: bool
    adds_nothing: bool
    limited: bool
    table: ex.Expr | None = None


def left_out(context: KernelContext, result: AsyncResult, end: End, extent: ex.Expr) -> list[Rest]:
    """The places along a dimension of that `extent` that a contraction leaves out; empty if nothing is known of them.

    They are taken after the loop: what is added to a sum, or to one that is rescaled, may come in any order.
    """
    loop = end.loop
    role = next((b for b in _roles(context.kernel.body) if any(s is loop for s in ir.walk(b))), None)
    if role is None or not isinstance(loop, ir.For):
        return []
    site = next(s for s in context.sites if s.stmt is loop)
    products = _products(result, role, extent)
    inside = defined(loop.body)
    types = dict(context.kernel.types)

    def marked(operands: Operands) -> list[_Mark]:
        marks: list[_Mark] = []
        for axis, name in operands:
            new = f"%rest.{len(types)}"
            types[new] = types[name]
            marks.append((axis, ir.Compute(new, "copy", (ir.TileRef(name),), span=loop.span)))
        return marks

    places = dict(result.places)
    last = table_limit(context, site, loop.hi, "min")
    first = table_limit(context, site, loop.lo, "max")
    parts: list[tuple[bool, ir.For, list[list[_Mark]]]] = []
    for before, lo, hi in _elsewhere(loop, end.ahead, extent, first, last):
        copies: dict[int, ir.Stmt] = {}
        marks = [marked([(axis, name) for axis, name in operands if name in inside]) for _, operands in products]
        # In steps of 1: more places than the loop would come to.
        more = (*_copied(loop.body, copies), *(mark for of_one in marks for _, mark in of_one))
        parts.append((before, ir.For(loop.var, lo, hi, 1, more, span=loop.span), marks))
        places |= {(id(copies[i]), b): axes for (i, b), axes in result.places.items() if i in copies}
        if not all(marks):
            return []
    if not products:
        return []
    here = {id(stmt): marked(operands) for stmt, operands in products} if last is not None else {}
    body = _followed(_without_bystanders(context.kernel.body, role), loop, [more for _, more, _ in parts])
    body = ir.rewrite(body, lambda s: (*(m for _, m in here[id(s)]), s) if id(s) in here else None)
    longer = KernelContext(context.kernel.with_body(body, types), context.decider)
    longer.deadline = context.deadline
    longer.exploration = replace(result, places=places)
    watched = _Watched(longer, extent, None if last is None else site.value(last))
    watched.run()
    found: list[Rest] = []
    for before, more, marks in parts:
        hidden = all(any(watched.is_zero(m) for m in of_one) for of_one in marks)
        every = [mark for of_one in marks for mark in of_one]
        limited = watched.limits(site, more, before, first if before else last, every)
        found.append(Rest(loop, extent, before, hidden, limited))
    if last is not None:
        hidden = all(any(watched.ends(m) for m in of_one) for of_one in here.values())
        found.append(Rest(loop, extent, False, hidden, True, last))
    return found


def _elsewhere(
    loop: ir.For, ahead: int | None, extent: ex.Expr, first: ex.Expr | None, last: ex.Expr | None
) -> list[tuple[bool, ex.Expr, ex.Expr]]:
    """Bounds of places from the end of a loop on, and of those before what was contracted, if it began above zero; of
    those that count, where tables say which.
    """
    found: list[tuple[bool, ex.Expr, ex.Expr]] = []
    if last != loop.hi:
        found.append((False, loop.hi, extent if last is None else last))
    if ahead is not None and first != loop.lo:
        reach = ex.Int(loop.step - 1)
        least = ex.sub(ex.Int(0), reach) if first is None else ex.sub(first, ex.Int(ahead))
        found.append((True, least, ex.sub(loop.lo, ex.add(ex.Int(ahead), reach))))
    return found


class _Watched(Flow):
    """Remembers what marks, and masks of selections, were last, when nothing changed any more."""

    def __init__(self, context: KernelContext, extent: ex.Expr, end: ex.Expr | None) -> None:
        super().__init__(context)
        self._extent, self._end = extent, end
        self._seen: dict[int, Lanes] = {}
        self._masks: dict[int, Mask] = {}

    def is_zero(self, mark: _Mark) -> bool:
        """True if every lane of the tile was zero. Rows past the edge of their tensor are dropped, so do not count."""
        along, stmt = mark
        tile = self._seen.get(id(stmt))
        return (
            tile is not None
            and not tile.lost
            and all(n.is_zero for past, n in tile.held.items() if all(e.axis == along for e in past))
        )

    def ends(self, mark: _Mark) -> bool:
        """True if every lane of the tile past the end that a table gives was zero."""
        along, stmt = mark
        tile = self._seen.get(id(stmt))
        if tile is None or tile.lost:
            return False
        past_it = {e for e in tile.along(along) if e.extent == self._end}
        return bool(past_it) and all(
            n.is_zero for past, n in tile.held.items() if past & past_it and all(e.axis == along for e in past)
        )

    def limits(self, site: Site, rest: ir.For, before: bool, table: ex.Expr | None, marks: Sequence[_Mark]) -> bool:
        """Whether a mask of an operand in the iterations of `rest` says which elements of the table's count there."""
        loop = site.stmt
        assert isinstance(loop, ir.For)
        depends = _coordinates(site.value(loop.lo if before else loop.hi))
        if table is not None:
            depends -= _coordinates(site.value(table))
        return any(
            a.other is not None
            and (a.other if before else a.axis) == along
            and depends <= _coordinates(a.offset) | _coordinates(a.bound)
            for along, mark in marks
            for s in _before(mark, rest.body)
            for a in (self._masks[id(s)].when_true if id(s) in self._masks else ())
        )

    def _viewed(self, stmt: ir.Stmt, view: ir.View, other: float | None) -> Lanes:
        """With an edge at the end that a table gives; past it there are elements like others."""
        tile = super()._viewed(stmt, view, other)
        extents = self._context.kernel.param(view.tensor).type.shape
        if self._end is None or tile.lost:
            return tile
        site, edges = self.site(stmt), set(tile.edges)
        for dim in range(view.lead, len(view.shape)):
            if extents[dim] == self._extent:
                edges.add(Edge(dim - view.lead, site.value(view.origin[dim]), self._end, view.shape[dim]))
        return replace(tile, edges=frozenset(edges), held={p: tile.at(p) for p in subsets(frozenset(edges))})

    def _chosen(self, stmt: ir.Compute, args: list[Lanes], past: Past) -> Number:
        if args[0].mask is not None:
            self._masks[id(stmt)] = args[0].mask
        return super()._chosen(stmt, args, past)

    def _statement(self, stmt: ir.Stmt, tiles: Tiles) -> None:
        super()._statement(stmt, tiles)
        if isinstance(stmt, ir.Compute) and stmt.dst.startswith("%rest."):
            self._seen[id(stmt)] = tiles[stmt.dst]


def _before(mark: ir.Compute, block: ir.Block) -> Iterator[ir.Compute]:
    """The computations of a block that what is marked is made by."""
    names = {a.name for a in mark.args if isinstance(a, ir.TileRef)}
    for stmt in reversed([s for s in ir.walk(block) if isinstance(s, ir.Compute)]):
        if stmt.dst in names and stmt is not mark:
            yield stmt
            names |= {a.name for a in stmt.args if isinstance(a, ir.TileRef)}


def _coordinates(e: ex.Expr) -> set[ex.Expr]:
    """What an expression takes of the number of the program, as `t // m` and `t % m`, and of tables."""

    def digits(e: ex.Expr) -> bool:
        match e:
            case ex.Var():
                return True
            case ex.Bin("//" | "%", lhs, rhs):
                return digits(lhs) and not any(isinstance(x, ex.Var) for x in ex.walk(rhs))
            case _:
                return False

    match e:
        case ex.Item() | ex.Var() | ex.Bin("//" | "%") if isinstance(e, ex.Item) or digits(e):
            return {e}
        case ex.Bin(_, lhs, rhs):
            return _coordinates(lhs) | _coordinates(rhs)
        case ex.Not(arg):
            return _coordinates(arg)
        case _:
            return set()


def _roles(body: ir.Block) -> Iterator[ir.Block]:
    found = [r.body for s in body if isinstance(s, ir.Roles) for r in s.roles]
    yield from found or [body]


def _without_bystanders(body: ir.Block, role: ir.Block) -> ir.Block:
    """The kernel without the roles that put nothing into the shared memory that a role reads."""
    read = {ref.buffer for ref in _references(role)}

    def feeds(other: ir.Role) -> bool:
        filled = (
            s.dst for s in ir.walk(other.body) if isinstance(s, ir.TmaLoad | ir.CpAsync | ir.CpGather | ir.SharedStore)
        )
        return other.body is role or any(ref.buffer in read for ref in filled)

    return tuple(
        replace(s, roles=tuple(r for r in s.roles if feeds(r))) if isinstance(s, ir.Roles) else s for s in body
    )


def _references(block: ir.Block) -> Iterator[ir.BufRef]:
    return (v for s in ir.walk(block) for v in ir.operands(s) if isinstance(v, ir.BufRef))


def _products(result: AsyncResult, role: ir.Block, extent: ex.Expr) -> list[tuple[ir.Stmt, Operands]]:
    """The products of the role over a dimension of that extent, with their operands in registers."""
    sources = {
        s.dst: s.args[0].name
        for s in ir.walk(role)
        if isinstance(s, ir.Compute) and s.op == "convert_layout" and isinstance(s.args[0], ir.TileRef)
    }
    found: list[tuple[ir.Stmt, Operands]] = []
    for stmt in ir.walk(role):
        match stmt:
            case ir.Wgmma(a=a) if extent in result.contracts.get(id(stmt), ()):
                left = [(1, sources.get(a.name, a.name))] if isinstance(a, ir.TileRef) else []
                found.append((stmt, left))
            case ir.Mma(a=a, b=b) if extent in result.contracts.get(id(stmt), ()):
                found.append((stmt, [(1, sources.get(a, a)), (0, sources.get(b, b))]))
            case ir.Tcgen05():
                found.append((stmt, []))
            case _:
                pass
    return found


def _copied(block: ir.Block, copies: dict[int, ir.Stmt]) -> ir.Block:
    """The block in statements of its own, by the ids of those they are copies of."""
    out: list[ir.Stmt] = []
    for stmt in block:
        match stmt:
            case ir.For(body=body) | ir.While(body=body) | ir.Programs(body=body):
                new: ir.Stmt = replace(stmt, body=_copied(body, copies))
            case ir.If(then=then, orelse=orelse):
                new = replace(stmt, then=_copied(then, copies), orelse=_copied(orelse, copies))
            case _:
                new = replace(stmt)
        copies[id(stmt)] = new
        out.append(new)
    return tuple(out)


def _followed(block: ir.Block, loop: ir.For, after: Sequence[ir.Stmt]) -> ir.Block:
    """The block with statements put after a loop. All other simple statements stay the objects that they are."""
    out: list[ir.Stmt] = []
    for stmt in block:
        if stmt is loop:
            out += (stmt, *after)
            continue
        match stmt:
            case ir.For(body=body) | ir.While(body=body) | ir.Programs(body=body):
                stmt = replace(stmt, body=_followed(body, loop, after))
            case ir.If(then=then, orelse=orelse):
                stmt = replace(stmt, then=_followed(then, loop, after), orelse=_followed(orelse, loop, after))
            case ir.Roles(roles=roles):
                stmt = replace(stmt, roles=tuple(replace(r, body=_followed(r.body, loop, after)) for r in roles))
            case _:
                pass
        out.append(stmt)
    return tuple(out)
