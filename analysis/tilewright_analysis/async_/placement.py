"""Placement and completeness: the rules for coordinate tags at stores."""

from __future__ import annotations

from tilewright.ir import nodes as ir
from tilewright_analysis.async_ import code as c
from tilewright_analysis.async_.contract import Tags
from tilewright_analysis.async_.ends import end_of, end_of_nothing
from tilewright_analysis.async_.parts import completed, left_out, part_of, summand_of
from tilewright_analysis.async_.state import Process, State
from tilewright_analysis.async_.tags import Cover, Fixed, Lost, Tag, Value
from tilewright_analysis.async_.words import sid


class Placement(Tags):
    """The tag rules of one program, with those at stores."""

    def placed(self, s: State, p: Process, o: c.Instr, box: c.Box, value: Value) -> None:
        """A value goes to a view: its axes must carry the view's coordinates, its contractions must be complete.

        Where it is added to what is there, they may be parts, which are complete together over all programs.
        """
        scattered = isinstance(o.stmt, ir.Scatter)
        added = isinstance(o.stmt, ir.Atomic | ir.Scatter) and o.stmt.op == "add"
        for cover in value.covers if added else ():
            done = completed(cover) if self.complete(s, cover) else cover
            if not scattered and (summand := summand_of(self.program, done, p.outer)) is not None:
                self.report.added(o, summand)
            else:
                self._stops(s, p, o, cover)
                self.report.unfollowed(s, p, o, cover)
        for cover in value.covers if not added else ():
            if self.complete(s, cover):
                continue
            part = part_of(self.program, cover, [self.tag(p, dim, at) for dim, at in box.fixed])
            if part is None:
                self.report.incomplete(s, p, o, cover, self._stops(s, p, o, cover))
            elif part.length != part.stride:
                self.report.uneven(s, p, o, cover, part)
            elif not part.reaches:
                self.report.too_few_parts(s, p, o, cover, part)
        for dim, at in left_out(self.program, value.covers):
            self.report.some_indices(s, p, o, dim, at)
        missing = self._missing(value, p, o)
        # A contraction over nothing needs no other one inside of it.
        if not any(self._empty(s, dim, p) for dim in missing):
            for dim in self._outermost(s, p, missing):
                none = Cover(dim, 0, -1, (), self._around(p), "")
                if added or dim in self.program.steps:
                    # Operands may count the same steps in two ways, and then one of them seems to be missing.
                    self._stops(s, p, o, none)
                    self.report.unfollowed(s, p, o, none)
                else:
                    self.report.incomplete(s, p, o, none, self._stops(s, p, o, none))
        spread = o.spread if isinstance(o, c.Store) else None
        lines = range(len(box.dims)) if spread is None else spread.lines
        for i, dim, at in zip(lines, box.dims, box.origin, strict=True):
            axis = value.axes[i] if i < len(value.axes) else None
            if isinstance(axis, Lost):
                self.report.lost("TW103", sid(o), p, o, axis, "the stored value")
            elif axis is not None:
                self._along(s, p, o, box, i, axis, self.tag(p, dim, at))
        if spread is not None:
            self._spread(s, p, o, spread, box, value)
        self._placed_at(s, p, o, box, value)

    def _outermost(self, s: State, p: Process, missing: list[int]) -> list[int]:
        """Without what is contracted inside of a contraction over nothing."""
        known = (d for d in missing if end_of_nothing(self.program, self.contractions, s, p, d) is not None)
        inside = {i for d in known for i in self.contractions.inside.get(d, ())}
        return [d for d in missing if d not in inside]

    def _stops(self, s: State, p: Process, o: c.Instr, cover: Cover) -> ir.Stmt | None:
        """The loop at whose end a contraction stops that is not complete; None: not known. It is remembered."""
        if cover.intervals:
            stops = end_of(self.program, s, p, cover)
        else:
            stops = end_of_nothing(self.program, self.contractions, s, p, cover.dim)
        self.ends.setdefault(id(o.stmt), set()).add((stops, cover.dim))
        return None if stops is None else stops.loop

    def _along(self, s: State, p: Process, o: c.Instr, box: c.Box, i: int, axis: Tag, want: Tag) -> None:
        """An axis of what is stored goes along a dimension from a coordinate on."""
        if axis.dim == want.dim:
            if not self.agree(s, p, o, "TW103", axis, want):
                if axis.link:
                    self.report.taken_by(p, o, box, axis, want)
                else:
                    self.report.misplaced(s, p, o, box, axis, want)
        elif not axis.link and not (isinstance(o, c.Store) and o.spread is not None and i in o.spread.numbered):
            # What a table decides, or a mask numbers, belongs to that dimension among others.
            self.report.misplaced_dimension(s, p, o, box, i, axis, axis.dim in box.dims)

    def _spread(self, s: State, p: Process, o: c.Instr, spread: c.Spread, box: c.Box, value: Value) -> None:
        """Axes that go where index tiles say, of which the box has nothing."""
        places = self.through(p, spread)
        for i, axis in enumerate(value.axes):
            if i in spread.lines or axis is None:
                continue
            if isinstance(axis, Lost):
                if not spread.by_table[i] and spread.along[i].intersection(axis.dims):
                    self.report.lost("TW103", sid(o), p, o, axis, "the stored value")
                continue
            if spread.by_table[i]:
                want = places[i]
                if isinstance(want, Tag) and want.dim == axis.dim and not self.agree(s, p, o, "TW103", axis, want):
                    self.report.other_element(p, o, box, axis, want)
            elif axis.dim in spread.along[i]:
                self.report.unknown_place(p, o, box, axis)

    def _placed_at(self, s: State, p: Process, o: c.Instr, box: c.Box, value: Value) -> None:
        """Along a dimension that is fixed on both sides, what is stored comes from the index it is stored at.

        What has no coordinate on an axis because it went through a reshape is unknown there.
        """
        wanted: dict[int, list[Tag]] = {}
        for dim, at in box.fixed:
            wanted.setdefault(dim, []).append(self.tag(p, dim, at))
        # Along an axis of one element a reshape has fixed the coordinate; along more, one row may be meant for all.
        spread = o.spread if isinstance(o, c.Store) else None
        lines = range(len(box.dims)) if spread is None else spread.lines
        bare = [
            (dim, at, extent)
            for i, dim, at, extent in zip(lines, box.dims, box.origin, box.shape, strict=True)
            if i < len(value.axes) and value.axes[i] is None
        ]
        for dim, at, extent in bare:
            if extent == 1:
                wanted.setdefault(dim, []).append(self.tag(p, dim, at))
        moved = {dim for dim, _, _ in bare} - wanted.keys()
        for held in value.fixed:
            targets = wanted.get(held.dim, [])
            if held.dim in moved and isinstance(held.lost, ir.Compute) and held.lost.op == "reshape":
                self.report.lost("TW103", sid(o), p, o, Lost(held.lost), "the stored value")
            if targets and held.lost is not None and not held.at:
                self.report.lost("TW103", sid(o), p, o, Lost(held.lost), "the stored value")
            for tag in held.at if targets else ():
                # With several dimensions of one extent an index may stand for any of them.
                if self.report.moves(tag) or any(self.agree(s, p, o, "TW103", tag, want) for want in targets):
                    continue
                if held.lost is not None:
                    self.report.lost("TW103", sid(o), p, o, Lost(held.lost), "the stored value")
                elif tag.link:
                    self.report.taken_by(p, o, box, tag, targets[0])
                else:
                    self.report.misplaced(s, p, o, box, tag, targets[0])
            if not targets and self._apart(held):
                self.report.elsewhere(p, o, box, held)
        for dim, at in box.links:
            want, own = self.tag(p, dim, at), (t for f in value.fixed if f.dim == dim for t in f.at)
            # What a table decides was compared above, with where the table puts it.
            lies = [tag for tag in (*wanted.get(dim, []), *own) if not self.report.data(tag)]
            if lies and not any(self.agree(s, p, o, "TW103", tag, want) for tag in lies):
                self.report.other_element(p, o, box, lies[0], want)

    def _apart(self, held: Fixed) -> bool:
        """Whether what was multiplied lies at different places along a dimension, as far as one can tell."""
        fixed = {(t.symbol, t.outer) for t in held.at if not t.link}
        moving = {t.symbol for t in held.at if self.report.moves(t)}
        tables = {name for t in held.at if self.report.moves(t) for name in self.report.data(t)}
        # An element that is named ahead of a loop may be the first of those that are named in it.
        alone = [t for t in held.at if not t.link and not self.report.data(t) & tables]
        return len(fixed) > 1 or len(moving) > 1 or (bool(moving) and bool(alone))
