"""Lanes of tiles in memory: what loads find past the edges of tensors, and what stages of shared memory hold.

Stages of a buffer are not told apart: a buffer holds whatever was ever written to it. Where a stage is read, the
asynchronous engine may know where the tile in it comes from; then its edges are those of that place.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir

from ...async_.model import Places
from ...context import KernelContext, Site
from .lanes import Edge, Lanes, joined, moved, renamed, subsets, uniform, unknown
from .numbers import constant, loaded


class Memory:
    """Edges of all loads of one kernel, and the lanes of its buffers."""

    def __init__(self, context: KernelContext, places: Places) -> None:
        self._context = context
        self._places = places
        self._sites: dict[int, Site] = {}
        for site in context.sites:
            self._sites.setdefault(id(site.stmt), site)
        self._buffers: dict[str, Lanes] = {}
        self._read: list[tuple[str, Lanes | None]] = []
        self._homes: dict[tuple[ex.Expr, ex.Expr], dict[ex.Expr, Site]] = {}

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

    def _keep(self, edge: Edge, origin: ex.Expr) -> None:
        """The edge with another origin stands for the same loads."""
        homes = self._homes.get((edge.origin, edge.extent), {})
        self._homes.setdefault((origin, edge.extent), {}).update(homes)

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
        held = self._held(stmt, ref)
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

    def _holds(self, buffer: str) -> Lanes | None:
        """What a buffer holds; what is read is remembered, since it may change."""
        tile = self._buffers.get(buffer)
        self._read.append((buffer, tile))
        return tile

    def _settled(self) -> bool:
        """True if nothing that was read has changed since."""
        return all(self._buffers.get(buffer) == tile for buffer, tile in self._read)

    def _held(self, stmt: ir.Stmt, ref: ir.BufRef) -> Lanes | None:
        """What a stage holds where it is read: with edges of its own iteration, as far as the place is known."""
        tile = self._holds(ref.buffer)
        known = self._places.get((id(stmt), ref.buffer), {})
        if tile is None or not known:
            return tile
        site = self.site(stmt)
        where: dict[Edge, Edge] = {}
        for edge in tile.edges:
            written = known.get(edge.axis)
            where[edge] = edge
            if written is not None:
                where[edge] = replace(edge, origin=site.value(written), written=written)
                self._keep(edge, where[edge].origin)
        if len(set(where.values())) < len(where):
            return tile
        held = {frozenset(where[e] for e in past): number for past, number in tile.held.items()}
        return replace(tile, edges=frozenset(where.values()), held=held)

    def _starts_inside(self, stmt: ir.Stmt, edge: Edge) -> bool:
        claim = ex.Bin("<", edge.origin, edge.extent)
        return not is_stale(claim) and self._proves(self.site(stmt), claim)

    def _proves(self, site: Site, claim: ex.Expr) -> bool:
        if isinstance(claim, ex.Int):
            return bool(claim.value)
        return self._context.decider.proves(site.question(claim))


def is_stale(origin: ex.Expr) -> bool:
    """Whether an origin is that of some iteration, or of some stage."""
    return any("°" in name for name in ex.names(origin))
