"""Follows what lanes past an edge hold through the statements of a kernel, loops to their fixpoint.

Stages of shared memory are not told apart: a buffer holds whatever was ever written to it. What a loop carries around
keeps its edges, but no longer as those of the current iteration.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.types import TileType

from ...context import KernelContext
from ..asynchronous import explored
from . import guards
from .axes import aligned, defined, reshaping, stale
from .lanes import INSIDE, Edge, Lanes, Past, build, joined, matched, moved, renamed, subsets, uniform, unknown, without
from .masks import Atom, Index, Mask, combined, compared, shifted
from .memory import Memory, is_stale
from .numbers import ANYTHING, FINITE, NATURAL, NOTHING, Number, apply, constant, loaded, scalar, total
from .products import operand_name, product_lanes, product_uses
from .updates import update_lanes
from .uses import EXTREMES, Clash, Use

_ROUNDS = 12


Tiles = dict[str, Lanes]


class Flow(Memory):
    """Lanes of all tiles of one kernel; `uses` and `clashes` are in source order after `run`."""

    def __init__(self, context: KernelContext) -> None:
        super().__init__(context, explored(context).places)
        self._uses: dict[tuple[int, str], list[Use]] = {}
        self._clashes: dict[int, Clash] = {}
        self._loops: list[tuple[frozenset[str], frozenset[str]]] = []
        self._guards: guards.Guards = {}

    def run(self) -> Flow:
        """Follow the whole kernel until nothing changes."""
        # Roles that read may stand before those that load: what they read must not be taken for something else.
        for site in self._context.sites:
            if isinstance(site.stmt, ir.CpGather):
                self._put(site.stmt.dst.buffer, self._gathered(site.stmt, 0.0))
            if isinstance(site.stmt, ir.TmaLoad | ir.CpAsync):
                self._put(site.stmt.dst.buffer, self._viewed(site.stmt, site.stmt.view, 0.0))
        given: Tiles = {s.name: uniform(FINITE) for s in self._context.kernel.scalars if s.dtype.is_float}
        for _ in range(_ROUNDS):
            self._read.clear()
            self._block(self._context.kernel.body, dict(given))
            if self._settled():
                break
        else:
            self._buffers = {n: unknown(ANYTHING, "what it holds did not settle") for n in self._buffers}
            self._block(self._context.kernel.body, given)
        return self

    @property
    def uses(self) -> list[Use]:
        """All uses; those of one statement and operand stand together."""
        return [u for found in self._uses.values() for u in found]

    @property
    def clashes(self) -> list[Clash]:
        """All additions of infinities."""
        return list(self._clashes.values())

    # ------------------------------------------------------------------------------------ statements

    def _block(self, block: ir.Block, tiles: Tiles) -> None:
        for stmt in block:
            if ir.children(stmt):
                self._guards = guards.within(self._guards, stmt)
            self._statement(stmt, tiles)
            self._guards = guards.after(self._guards, stmt)

    def _statement(self, stmt: ir.Stmt, tiles: Tiles) -> None:
        match stmt:
            case ir.Load():
                tiles[stmt.dst] = self._load(stmt)
            case ir.Gather():
                tiles[stmt.dst] = self._gathered(stmt, stmt.other or 0.0)
            case ir.CpGather():
                self._put(stmt.dst.buffer, self._gathered(stmt, 0.0))
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
                self._put(stmt.acc.buffer, self._product(stmt, *operands, self._holds(stmt.acc.buffer)))
            case ir.SharedLoad() | ir.TensorLoad():
                tiles[stmt.dst] = self._stage(stmt, stmt.src) or uniform(FINITE)
            case ir.For(body=body) | ir.Programs(body=body):
                self._loop(stmt, body, tiles)
            case ir.While():
                self._statement(stmt.counted, tiles)
            case ir.Scatter(op="add" | "max" | "min"):
                self._updated(stmt, tiles)
            case ir.If(cond=cond, then=then, orelse=orelse):
                other = dict(tiles)
                self._block(then, tiles)
                self._block(orelse, other)
                for name, tile in other.items():
                    if name not in tiles:
                        tiles[name] = tile
                    elif tiles[name] != tile:
                        tiles[name] = self._either_way(stmt, cond, tiles[name], tile)
            case ir.Roles(roles=roles):
                for role in roles:
                    self._block(role.body, dict(tiles))
            case _:
                for name in defined((stmt,)):
                    tiles[name] = unknown(FINITE, f"a {type(stmt).__name__.lower()} made it")

    def _gathered(self, stmt: ir.Gather | ir.CpGather, other: float) -> Lanes:
        inside = loaded(self._context.kernel.param(stmt.tensor).type.dtype)
        if stmt.mask is None:
            return uniform(inside)
        return unknown(inside | constant(other), "its mask is not followed")

    def _either_way(self, stmt: ir.Stmt, cond: ex.Expr, then: Lanes, orelse: Lanes) -> Lanes:
        """A tile after a branch."""
        site = self.site(stmt)
        if self._proves(site, site.value(cond)):
            return then
        if self._proves(site, site.value(ex.negate(cond))):
            return orelse
        return joined(self._reached(stmt, cond, then), self._reached(stmt, ex.negate(cond), orelse))

    def _reached(self, stmt: ir.Stmt, cond: ex.Expr, tile: Lanes) -> Lanes:
        """A tile where a branch on `cond` ends: nothing is past edges that the condition excludes."""
        site = self.site(stmt)
        site = replace(site, facts=(*site.facts, site.value(cond)))
        gone = {
            e
            for e in tile.edges
            if not is_stale(e.origin) and self._proves(site, ex.Bin("<=", ex.add(e.origin, ex.Int(e.length)), e.extent))
        }
        if not gone:
            return tile
        return replace(tile, held={past: NOTHING if past & gone else n for past, n in tile.held.items()})

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

    # ------------------------------------------------------------------------------------ computation

    def _compute(self, stmt: ir.Compute, tiles: Tiles) -> Lanes:
        kind = self._context.kernel.types[stmt.dst]
        assert isinstance(kind, TileType)
        names = [a.name for a in stmt.args if isinstance(a, ir.TileRef)]
        operands = [tiles.get(n) or unknown(ANYTHING, "it has no value on some path") for n in names]
        shapes = [t.shape if isinstance(t := self._context.kernel.types[n], TileType) else () for n in names]
        first = operands[0] if operands else uniform(FINITE)
        if stmt.op == "where" and all(s == kind.shape for s in shapes):
            operands = guards.guarded(self._guards, stmt, operands)
        match stmt.op:
            case "full":
                return uniform(self._number(stmt.args[0]))
            case "arange":
                return replace(uniform(NATURAL), index=Index(0, ex.Int(0)))
            case "sum" | "max" | "min" | "argmax" | "argmin" if stmt.axis is not None:
                return self._reduced(stmt, stmt.op, first, stmt.axis % len(shapes[0]), names[0])
            case "cumsum" | "cumprod" | "cummax" | "cummin" if stmt.axis is not None:
                return self._scanned(stmt, first, stmt.axis % len(shapes[0]), names[0])
            case "sort" | "argsort" if stmt.axis is not None:
                return self._ordered(stmt, first, stmt.axis % len(shapes[0]), names[0])
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
                # A narrower type may not hold the index.
                return replace(made, index=first.index if kind.dtype.name in ("i32", "i64") else None)
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
            return replace(made, lost=args[0].lost or made.lost, shown=self._shown(stmt, kind, args))
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
        if any(self._never(stmt, a) for a in mask.when_true):
            return no
        if any(self._past_implies(stmt, e, a, False) for e in past for a in mask.when_false):
            return yes
        edges = args[1].edges | args[2].edges
        inside = edges - past
        if mask.exact and all(any(self._past_implies(stmt, e, a, True) for e in inside) for a in mask.when_true):
            return yes
        return yes | no

    def _shown(self, stmt: ir.Compute, kind: TileType, args: list[Lanes]) -> frozenset[int]:
        """Axes whose first lane the mask of a `where` with minus infinity shows in every lane of the other axes."""
        mask, yes, no = args[0].mask, args[1], args[2]
        if mask is None or not mask.exact or no.anywhere.kinds != frozenset(("-inf",)):
            return frozenset()
        found: set[int] = set()
        for axis in range(len(kind.shape)):
            if any(n.may("-inf") for past, n in yes.held.items() if all(e.axis != axis for e in past)):
                continue
            claims = [ex.Bin("<", a.offset, a.bound) for a in mask.when_true if a.axis == axis]
            if len(claims) == len(mask.when_true) and all(
                not is_stale(c) and self._proves(self.site(stmt), c) for c in claims
            ):
                found.add(axis)
        return frozenset(found)

    def _never(self, stmt: ir.Stmt, atom: Atom) -> bool:
        """Whether no lane at all lies before the bound of its lane along another axis."""
        if atom.other is None or not isinstance(stmt, ir.Compute):
            return False
        kind = self._context.kernel.types[stmt.dst]
        assert isinstance(kind, TileType)
        last = ex.add(atom.bound, ex.Int(kind.shape[atom.other] - 1))
        claim = ex.Bin("<=", last, atom.offset)
        return not is_stale(claim) and self._proves(self.site(stmt), claim)

    def _past_implies(self, stmt: ir.Stmt, edge: Edge, atom: Atom, before: bool) -> bool:
        """Whether lanes past the edge are past the bound of the atom; with `before`, lanes before it before it."""
        if edge.axis != atom.axis or atom.other is not None:
            return False
        if edge.origin == atom.offset and edge.extent == atom.bound:
            return True
        mine, other = ex.add(edge.extent, atom.offset), ex.add(atom.bound, edge.origin)
        claim = ex.Bin("<=", mine, other) if before else ex.Bin("<=", other, mine)
        return not is_stale(claim) and self._proves(self.site(stmt), claim)

    def _accumulated(self, stmt: ir.Compute, args: list[Lanes]) -> list[Lanes]:
        """Operands of `acc = acc + x` around a loop without the edges of the iteration: every lane of `acc` counts."""
        if stmt.op not in ("add", "sub", "maximum", "minimum"):
            return args
        loop = next((scope for carried, scope in reversed(self._loops) if stmt.dst in carried), None)
        if loop is None or len(args) != 2:
            return args
        into = [stmt.dst in t.carried for t in args]
        if sum(into) != 1 or (stmt.op == "sub" and into[1]):
            return args
        x, name = args[into.index(False)], stmt.args[into.index(False)]
        acc = args[into.index(True)]
        turning = frozenset(e for e in x.edges - acc.edges if stale(e.origin, loop) != e.origin)
        if not turning or not isinstance(name, ir.TileRef):
            return args
        kind = EXTREMES.get(stmt.op, "accumulation")
        # Lanes past the edge must not be above (for `max`) whatever the accumulator may hold already.
        counting = acc.anywhere | x.at(INSIDE) if kind in ("max", "min") else x.at(INSIDE)
        for axis in sorted({e.axis for e in turning}):
            self._use(stmt, kind, name.name, axis, x, x.along(axis) & turning, counting)
        kept = without(x, turning)
        return [kept if t is x else t for t in args]

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
            within = all(self._starts_inside(stmt, e) for e in gone)
            if outer and (past or not within):
                for other in outer:
                    lanes |= other
            # A row of which a mask shows the first lane is not empty.
            if op == "max" and axis in tile.shown and within:
                lanes = lanes.without_minus_infinity()
            return lanes

        made = build(kept, number, (tile,), stmt.span)
        if not stmt.keep:
            made = moved(made, lambda a: a - (a > axis), stmt.span)
        return replace(made, lost="" if not made.edges else made.lost) if tile.lost else made

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

    def _ordered(self, stmt: ir.Compute, tile: Lanes, axis: int, name: str) -> Lanes:
        # Lanes past the edge must come last, as those that a minimum or maximum must not notice do.
        kind = EXTREMES["max" if stmt.reverse else "min"]
        self._use(stmt, kind, name, axis, tile, tile.along(axis), tile.at(INSIDE))
        return uniform(NATURAL) if stmt.op == "argsort" else build(tile.edges, tile.at, (tile,), stmt.span)

    def _updated(self, stmt: ir.Scatter, tiles: Tiles) -> None:
        names = [stmt.src, *(i.name for i in (*stmt.index, stmt.mask) if isinstance(i, ir.TileRef))]
        parts = [tiles.get(n) or unknown(ANYTHING, "it has no value on some path") for n in names]
        made = update_lanes(stmt, parts, lambda e, a: self._past_implies(stmt, e, a, False))
        edges = INSIDE if made.lost else made.edges
        self._use(stmt, f"update {stmt.op}", stmt.src, 0, made, edges, made.at(INSIDE))

    def _product(
        self, stmt: ir.Mma | ir.Wgmma | ir.Tcgen05, a: Lanes | None, b: Lanes | None, acc: Lanes | None
    ) -> Lanes:
        left, right, into = (t or uniform(FINITE) for t in (a, b, acc))
        name = "/".join(map(operand_name, (stmt.a, stmt.b)))
        found = product_uses(stmt, name, left, right)
        self._uses.pop((id(stmt), name), None)
        if found:
            self._uses[id(stmt), name] = found
        return product_lanes(stmt, left, right, into)
