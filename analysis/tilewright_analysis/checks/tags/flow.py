"""Follows what lanes past an edge hold through the statements of a kernel, loops to their fixpoint.

Stages of shared memory are not told apart: a buffer holds whatever was ever written to it. What a loop carries around
keeps its edges, but no longer as those of the current iteration.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.types import TileType

from ...context import KernelContext, Site
from .axes import aligned, defined, reshaping, stale
from .lanes import INSIDE, Edge, Lanes, Past, build, joined, matched, moved, renamed, subsets, uniform, unknown, without
from .masks import Atom, Index, Mask, combined, compared, shifted
from .numbers import ANYTHING, FINITE, NATURAL, Number, apply, constant, loaded, scalar, total
from .products import product_lanes, product_uses
from .uses import EXTREMES, Clash, Use

_ROUNDS = 12


Tiles = dict[str, Lanes]


class Flow:
    """Lanes of all tiles of one kernel; `uses` and `clashes` are in source order after `run`."""

    def __init__(self, context: KernelContext) -> None:
        self._context = context
        self._sites: dict[int, Site] = {}
        for site in context.sites:
            self._sites.setdefault(id(site.stmt), site)
        self._uses: dict[tuple[int, str], list[Use]] = {}
        self._clashes: dict[int, Clash] = {}
        self._buffers: Tiles = {}
        self._homes: dict[tuple[ex.Expr, ex.Expr], dict[ex.Expr, Site]] = {}
        self._loops: list[tuple[frozenset[str], frozenset[str]]] = []

    def run(self) -> Flow:
        """Follow the whole kernel until nothing changes."""
        for _ in range(_ROUNDS):
            before = dict(self._buffers)
            self._block(self._context.kernel.body, {})
            if self._buffers == before:
                break
        else:
            self._buffers = {n: unknown(ANYTHING, "what it holds did not settle") for n in self._buffers}
            self._block(self._context.kernel.body, {})
        return self

    @property
    def uses(self) -> list[Use]:
        """All uses; those of one statement and operand stand together."""
        return [u for found in self._uses.values() for u in found]

    @property
    def clashes(self) -> list[Clash]:
        """All additions of infinities."""
        return list(self._clashes.values())

    def site(self, stmt: ir.Stmt) -> Site:
        """The surroundings of a statement."""
        return self._sites[id(stmt)]

    def exact(self, edge: Edge) -> bool:
        """True if the solver proves that no lane of the tile is past this edge."""
        homes = self._homes.get((edge.origin, edge.extent), {})
        return bool(homes) and all(self._proves(site, claim) for claim, site in homes.items())

    def homes(self, edge: Edge) -> Iterable[tuple[Site, ex.Expr]]:
        """The loads that an edge stands for, with what must hold for no lane to be past it."""
        return [(site, claim) for claim, site in self._homes.get((edge.origin, edge.extent), {}).items()]

    # ------------------------------------------------------------------------------------ statements

    def _block(self, block: ir.Block, tiles: Tiles) -> None:
        for stmt in block:
            self._statement(stmt, tiles)

    def _statement(self, stmt: ir.Stmt, tiles: Tiles) -> None:
        match stmt:
            case ir.Load():
                tiles[stmt.dst] = self._load(stmt)
            case ir.Gather():
                inside = loaded(self._context.kernel.param(stmt.tensor).type.dtype)
                if stmt.mask is None:
                    tiles[stmt.dst] = uniform(inside)
                else:
                    fill = constant(stmt.other or 0.0)
                    tiles[stmt.dst] = unknown(inside | fill, "its mask is not followed")
            case ir.Compute():
                tiles[stmt.dst] = self._compute(stmt, tiles)
            case ir.Mma():
                operands = tiles.get(stmt.a), tiles.get(stmt.b)
                tiles[stmt.dst] = self._product(stmt, *operands, tiles.get(stmt.acc))
            case ir.Wgmma(a=a):
                left = tiles.get(a.name) if isinstance(a, ir.TileRef) else self._stage(stmt, a)
                operands = left, self._stage(stmt, stmt.b)
                tiles[stmt.dst] = self._product(stmt, *operands, tiles.get(stmt.acc))
            case ir.TmaLoad(view=view, dst=dst) | ir.CpAsync(view=view, dst=dst):
                self._put(dst.buffer, self._viewed(stmt, view, 0.0))
            case ir.SharedStore():
                self._put(stmt.dst.buffer, tiles.get(stmt.src) or uniform(FINITE))
            case ir.Tcgen05():
                operands = self._stage(stmt, stmt.a), self._stage(stmt, stmt.b)
                self._put(stmt.acc.buffer, self._product(stmt, *operands, self._buffers.get(stmt.acc.buffer)))
            case ir.SharedLoad() | ir.TensorLoad():
                tiles[stmt.dst] = self._stage(stmt, stmt.src) or uniform(FINITE)
            case ir.For(body=body) | ir.Programs(body=body):
                self._loop(stmt, body, tiles)
            case ir.If(then=then, orelse=orelse):
                other = dict(tiles)
                self._block(then, tiles)
                self._block(orelse, other)
                for name, tile in other.items():
                    tiles[name] = joined(tiles[name], tile) if name in tiles else tile
            case ir.Roles(roles=roles):
                for role in roles:
                    self._block(role.body, dict(tiles))
            case _:
                for name in defined((stmt,)):
                    tiles[name] = unknown(FINITE, f"a {type(stmt).__name__.lower()} made it")

    def _loop(self, stmt: ir.Stmt, body: ir.Block, tiles: Tiles) -> None:
        scope = frozenset(b.name for b in self.site(stmt).binders)
        carried = frozenset(n for n in defined(body) if n in tiles)

        def outside(tile: Lanes) -> Lanes:
            for edge in tile.edges:
                self._keep(edge, stale(edge.origin, scope))
            return renamed(tile, lambda e: stale(e, scope))

        self._loops.append((carried, scope))
        inner: Tiles = {}
        head = {n: replace(t, carried=t.carried | {n}) if n in carried else t for n, t in tiles.items()}
        for turn in range(_ROUNDS):
            inner = dict(head)
            self._block(body, inner)
            after = {n: self._either(n, head[n], outside(inner[n])) for n in carried}
            if turn == _ROUNDS - 2:
                after = {n: t if t == head[n] else unknown(ANYTHING, "a loop changes it") for n, t in after.items()}
            if all(after[n] == head[n] for n in carried):
                break
            head |= after
        self._loops.pop()
        tiles |= {n: outside(t) for n, t in inner.items() if n not in tiles}
        tiles |= {n: replace(head[n], carried=tiles[n].carried) for n in carried}

    def _either(self, name: str, one: Lanes, other: Lanes) -> Lanes:
        """What a variable holds that a loop carries: what came in, or what came around."""
        somewhere = ex.Var(f"{name}°")
        one, other, changed = matched(one, other, somewhere)
        for edge in changed:
            self._keep(edge, somewhere)
        return joined(one, other)

    def _keep(self, edge: Edge, origin: ex.Expr) -> None:
        """The edge with another origin stands for the same loads."""
        homes = self._homes.get((edge.origin, edge.extent), {})
        self._homes.setdefault((origin, edge.extent), {}).update(homes)

    # ------------------------------------------------------------------------------------ memory

    def _load(self, stmt: ir.Load) -> Lanes:
        return self._viewed(stmt, stmt.view, stmt.other)

    def _viewed(self, stmt: ir.Stmt, view: ir.View, other: float | None) -> Lanes:
        param = self._context.kernel.param(view.tensor)
        inside = loaded(param.type.dtype)
        if len(view.origin) != len(view.shape) or any(isinstance(o, ir.TileRef) for o in view.origin):
            return unknown(inside, "its elements are gathered")
        if other is None:
            return uniform(inside)  # every element is inside, or TW201 says so
        site = self.site(stmt)
        edges: set[Edge] = set()
        for dim in range(view.lead, len(view.shape)):
            origin, extent, length = view.origin[dim], param.type.shape[dim], view.shape[dim]
            edge = Edge(
                dim - view.lead, site.value(origin), extent, length, origin, view.tensor, stmt.span
            )  # fmt: skip
            claim = ex.Bin("<=", ex.add(edge.origin, ex.Int(length)), extent)
            self._homes.setdefault((edge.origin, extent), {})[claim] = site
            if length > 1 or not self.exact(edge):
                edges.add(edge)
        fill = constant(other)
        return Lanes(frozenset(edges), {p: fill if p else inside for p in subsets(frozenset(edges))})

    def _stage(self, stmt: ir.Stmt, ref: ir.BufRef) -> Lanes | None:
        held = self._buffers.get(ref.buffer)
        return moved(held, lambda a: 1 - a, stmt.span) if held is not None and ref.transposed else held

    def _put(self, buffer: str, tile: Lanes) -> None:
        """Write a tile to a stage: which one, and so which origin it has when it is read, is not known."""

        def loose(e: ex.Expr) -> ex.Expr:
            return ex.Var(f"{buffer}°")

        for edge in tile.edges:
            self._keep(edge, loose(edge.origin))
        tile = replace(renamed(tile, loose), index=None, mask=None, carried=frozenset())
        before = self._buffers.get(buffer)
        self._buffers[buffer] = tile if before is None else joined(before, tile)

    # ------------------------------------------------------------------------------------ computation

    def _compute(self, stmt: ir.Compute, tiles: Tiles) -> Lanes:
        kind = self._context.kernel.types[stmt.dst]
        assert isinstance(kind, TileType)
        names = [a.name for a in stmt.args if isinstance(a, ir.TileRef)]
        operands = [tiles.get(n) or unknown(ANYTHING, "it has no value on some path") for n in names]
        shapes = [t.shape if isinstance(t := self._context.kernel.types[n], TileType) else () for n in names]
        first = operands[0] if operands else uniform(FINITE)
        match stmt.op:
            case "full":
                return uniform(self._number(stmt.args[0]))
            case "arange":
                return replace(uniform(NATURAL), index=Index(0, ex.Int(0)))
            case "sum" | "max" | "min" | "argmax" | "argmin" if stmt.axis is not None:
                return self._reduced(stmt, stmt.op, first, stmt.axis % len(shapes[0]), names[0])
            case "cumsum" | "cumprod" | "cummax" | "cummin" if stmt.axis is not None:
                return self._scanned(stmt, first, stmt.axis % len(shapes[0]), names[0])
            case "expand_dims":
                at = stmt.axis or 0
                return moved(first, lambda a: a + (a >= at), stmt.span)
            case "transpose":
                return moved(first, lambda a: 1 - a, stmt.span)
            case "permute":
                return moved(first, lambda a: stmt.order.index(a), stmt.span)
            case "reshape":
                return moved(first, reshaping(shapes[0], kind.shape), stmt.span)
            case "convert_layout" | "copy":
                return first
            case "cast":
                made = build(first.edges, lambda p: apply("cast", [first.at(p)], kind.dtype), (first,), stmt.span)
                return replace(made, index=None if kind.dtype.is_float else first.index)
            case op if op in ir.ELEMENTWISE or op == "broadcast":
                fitted = [aligned(t, s, kind.shape) for t, s in zip(operands, shapes, strict=True)]
                return self._elementwise(stmt, kind, fitted)
            case _:
                return unknown(first.anywhere | FINITE, f"a {stmt.op} regroups its lanes")

    def _number(self, operand: ir.Operand) -> Number:
        return FINITE if isinstance(operand, ir.TileRef) else scalar(operand)

    def _elementwise(self, stmt: ir.Compute, kind: TileType, tiles: list[Lanes]) -> Lanes:
        args: list[Lanes] = []
        rest = iter(tiles)
        for a in stmt.args:
            args.append(next(rest) if isinstance(a, ir.TileRef) else uniform(self._number(a)))
        if stmt.op == "broadcast":
            return args[0]
        args = self._accumulated(stmt, args)
        edges = frozenset(e for t in args for e in t.edges)
        if stmt.op == "where":
            made = build(edges, lambda p: self._chosen(stmt, args, p), tuple(args[1:]), stmt.span)
            return replace(made, lost=args[0].lost or made.lost)
        cancels = (
            stmt.op in ("add", "sub") and kind.dtype.is_float and self._cancels(stmt, [t.at(INSIDE) for t in args])
        )

        def number(past: Past) -> Number:
            result = apply(stmt.op, [t.at(past) for t in args], kind.dtype)
            # What cancels inside is the subject of a clash, here and past the edges.
            return result.without_nan() if cancels else result

        made = build(edges, number, tuple(args), stmt.span)
        return self._masked(stmt, made, args)

    def _masked(self, stmt: ir.Compute, made: Lanes, args: list[Lanes]) -> Lanes:
        """The result with what is known of it as an index tile or a mask."""
        site = self.site(stmt)
        sides = [
            t.index
            if isinstance(a, ir.TileRef)
            else ex.Int(a)
            if isinstance(a, int)
            else None
            if isinstance(a, float)
            else site.value(a)
            for a, t in zip(stmt.args, args, strict=True)
        ]
        if stmt.op in ("add", "sub"):
            return replace(made, index=shifted(stmt.op, sides[0], sides[1]))
        if stmt.op in ("lt", "le", "gt", "ge"):
            return replace(made, mask=compared(stmt.op, sides[0], sides[1]))
        if stmt.op in ("and", "or", "not"):
            return replace(made, mask=combined(stmt.op, [t.mask or Mask() for t in args]))
        return made

    def _chosen(self, stmt: ir.Compute, args: list[Lanes], past: Past) -> Number:
        """What `where` gives for the lanes past these edges."""
        mask, yes, no = args[0].mask, args[1].at(past), args[2].at(past)
        if mask is None:
            return yes | no
        if any(self._past_implies(stmt, e, a, False) for e in past for a in mask.when_true):
            return no
        if any(self._past_implies(stmt, e, a, False) for e in past for a in mask.when_false):
            return yes
        edges = args[1].edges | args[2].edges
        inside = edges - past
        if mask.exact and all(any(self._past_implies(stmt, e, a, True) for e in inside) for a in mask.when_true):
            return yes
        return yes | no

    def _past_implies(self, stmt: ir.Stmt, edge: Edge, atom: Atom, before: bool) -> bool:
        """Whether lanes past the edge are past the bound of the atom; with `before`, lanes before it before it."""
        if edge.axis != atom.axis:
            return False
        if edge.origin == atom.offset and edge.extent == atom.bound:
            return True
        mine, other = ex.add(edge.extent, atom.offset), ex.add(atom.bound, edge.origin)
        claim = ex.Bin("<=", mine, other) if before else ex.Bin("<=", other, mine)
        return "°" not in ex.show(claim) and self._proves(self.site(stmt), claim)

    def _accumulated(self, stmt: ir.Compute, args: list[Lanes]) -> list[Lanes]:
        """Operands of `acc = acc + x` around a loop without the edges of the iteration: every lane of `acc` counts."""
        if stmt.op not in ("add", "sub", "maximum", "minimum"):
            return args
        loop = next((scope for carried, scope in reversed(self._loops) if stmt.dst in carried), None)
        if loop is None or len(args) != 2:
            return args
        into = [stmt.dst in t.carried for t in args]
        if into not in ([True, False], [False, True]) or (stmt.op == "sub" and into[1]):
            return args
        x, name = args[into.index(False)], stmt.args[into.index(False)]
        acc = args[into.index(True)]
        turning = frozenset(e for e in x.edges - acc.edges if stale(e.origin, loop) != e.origin)
        if not turning or not isinstance(name, ir.TileRef):
            return args
        kind = EXTREMES.get(stmt.op, "accumulation")
        for axis in sorted({e.axis for e in turning}):
            self._use(stmt, kind, name.name, axis, x, x.along(axis) & turning, self._counting(acc, x, kind))
        kept = without(x, turning)
        return [kept if t is x else t for t in args]

    def _counting(self, acc: Lanes, x: Lanes, kind: str) -> Number:
        """What lanes past the edge must not be above (for `max`): whatever the accumulator may hold already."""
        return acc.anywhere | x.at(INSIDE) if kind in ("max", "min") else x.at(INSIDE)

    def _cancels(self, stmt: ir.Compute, numbers: list[Number]) -> bool:
        """Whether infinities may cancel in a sum or difference."""
        one, other = numbers[0], numbers[1]
        flip = {"inf": "-inf", "-inf": "inf"}
        meets = [k if stmt.op == "sub" else flip[k] for k in ("inf", "-inf") if one.may(k)]
        self._clashes.pop(id(stmt), None)
        if not (meets or other.may("inf") or other.may("-inf")):
            return False
        cancels = any(other.may(k) for k in meets)
        self._clashes[id(stmt)] = Clash(stmt, not cancels)
        return cancels

    # ------------------------------------------------------------------------------------ reductions

    def _use(self, stmt: ir.Stmt, kind: str, operand: str, axis: int, tile: Lanes, edges: Past, inside: Number) -> None:
        found: list[Use] = []
        for past in subsets(edges):
            if past:
                found.append(Use(stmt, kind, operand, axis, past, tile.at(past), inside, tile))
        if not edges and tile.lost:
            found.append(Use(stmt, kind, operand, axis, INSIDE, tile.anywhere, tile.anywhere, tile))
        if found:
            self._uses[id(stmt), operand] = found
        else:
            self._uses.pop((id(stmt), operand), None)

    def _reduced(self, stmt: ir.Compute, op: str, tile: Lanes, axis: int, name: str) -> Lanes:
        gone = tile.along(axis)
        kind = EXTREMES.get(op, "sum")
        self._use(stmt, kind, name, axis, tile, gone, tile.at(INSIDE))
        kept = tile.edges - gone

        def number(past: Past) -> Number:
            if op in ("argmax", "argmin"):
                return NATURAL
            lanes = tile.at(past)
            outer = [tile.at(past | more) for more in subsets(gone) if more]
            if op == "sum":
                for other in outer if past else ():
                    lanes |= other
                return total(lanes)
            # Lanes past the edge decide only where no lane is inside.
            if outer and (past or not all(self._starts_inside(stmt, e) for e in gone)):
                for other in outer:
                    lanes |= other
            return lanes

        made = build(kept, number, (tile,), stmt.span)
        if not stmt.keep:
            made = moved(made, lambda a: a - (a > axis), stmt.span)
        return replace(made, lost="" if not made.edges else made.lost) if tile.lost else made

    def _starts_inside(self, stmt: ir.Stmt, edge: Edge) -> bool:
        claim = ex.Bin("<", edge.origin, edge.extent)
        return "°" not in ex.show(claim) and self._proves(self.site(stmt), claim)

    def _scanned(self, stmt: ir.Compute, tile: Lanes, axis: int, name: str) -> Lanes:
        along = tile.along(axis)
        if stmt.reverse:
            kind = "factor" if stmt.op == "cumprod" else EXTREMES.get(stmt.op, "sum")
            self._use(stmt, kind, name, axis, tile, along, tile.at(INSIDE))

        def number(past: Past) -> Number:
            lanes = tile.at(past)
            for more in subsets(along & past):
                lanes |= tile.at(past - more)
            return total(lanes) if stmt.op == "cumsum" else lanes if stmt.op != "cumprod" else FINITE

        return build(tile.edges, number, (tile,), stmt.span)

    def _product(
        self, stmt: ir.Mma | ir.Wgmma | ir.Tcgen05, a: Lanes | None, b: Lanes | None, acc: Lanes | None
    ) -> Lanes:
        left, right, into = (t or uniform(FINITE) for t in (a, b, acc))
        name = "/".join(map(_named, (stmt.a, stmt.b)))
        found = product_uses(stmt, name, left, right)
        self._uses.pop((id(stmt), name), None)
        if found:
            self._uses[id(stmt), name] = found
        return product_lanes(stmt, left, right, into)

    def _proves(self, site: Site, claim: ex.Expr) -> bool:
        if isinstance(claim, ex.Int):
            return bool(claim.value)
        return self._context.decider.proves(site.question(claim))


def _named(operand: str | ir.TileRef | ir.BufRef) -> str:
    match operand:
        case ir.TileRef(name=name) | ir.BufRef(buffer=name):
            return name
        case _:
            return operand
