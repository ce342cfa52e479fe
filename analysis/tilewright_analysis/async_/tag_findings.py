"""Broken rules of coordinate tags in words."""

from __future__ import annotations

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.problem import Related
from tilewright_analysis.async_ import code as c
from tilewright_analysis.async_ import forms, said
from tilewright_analysis.async_.expectations import Broken
from tilewright_analysis.async_.model import Issue
from tilewright_analysis.async_.parts import Part, Summand
from tilewright_analysis.async_.reporter import Found, Reporter
from tilewright_analysis.async_.state import Process, State
from tilewright_analysis.async_.tags import Cover, Fixed, Lost, Tag, Value
from tilewright_analysis.async_.words import at, describe, doing, sid, words


class TagFindings:
    """Reports broken tag rules. None of them ends a path."""

    def __init__(self, report: Reporter) -> None:
        self.report = report

    def dim(self, number: int) -> str:
        """A dimension by its extent, or what it counts."""
        if (step := self.report.program.steps.get(number)) is not None:
            return step
        return ex.show(forms.to_expr(self.report.program.dims[number]))

    def coordinate(self, tag: Tag) -> str:
        """A coordinate in words: as written, and its number where it has one."""
        if tag.symbol == 0:
            return str(tag.const)
        return tag.text

    def data(self, tag: Tag) -> frozenset[str]:
        """The tensors whose elements decide a coordinate."""
        return frozenset(n for n in self.report.program.symbols[tag.symbol].names() if n.startswith("@"))

    def moves(self, tag: Tag) -> bool:
        """True for a place that data decides anew in each iteration."""
        return tag.link and "#" in self.report.program.symbols[tag.symbol].names()

    def _differs(self, a: Tag, b: Tag) -> tuple[tuple[int, int, int], tuple[int, int, int]] | None:
        if (a.symbol, a.outer) == (b.symbol, b.outer):
            return None
        return (a.symbol, a.outer, a.const), (b.symbol, b.outer, b.const)

    def lost(self, code: str, subject: str, p: Process, o: c.Instr, lost: Lost, what: str) -> None:
        """A tag is needed that was dropped before."""
        moved = isinstance(lost.stmt, ir.Compute) and lost.stmt.op == "reshape"
        how = "went through a reshape of this axis" if moved else "combines elements of different coordinates"
        missing = f"{what} {how}, so it has no coordinate tag"
        if code == "TW103" and not moved:
            missing += "; if that is meant, name the value and say which coordinate it has with tw.tag"
        issue = Issue(
            code, subject, missing, o.stmt.span, self.report.role(p), dict(at(p)),
            (Related(lost.stmt.span, "the coordinate tag was lost here"),), unknown=missing,
        )  # fmt: skip
        self.report.found.setdefault((code, subject), Found(issue, {}, None))

    def misaligned(self, s: State, p: Process, o: c.Instr, a: Value, b: Value, left: Tag, right: Tag) -> None:
        """Multiplied elements come from different coordinates."""
        d = self.dim(left.dim)
        x, y = self.coordinate(left), self.coordinate(right)
        text = (
            f"{doing(p, o)} multiplies elements of {a.source or 'the left operand'} with {d} = {x} by elements "
            f"of {b.source or 'the right operand'} with {d} = {y}"
        )
        values = {f"{d} of {a.source or 'left'}": x, f"{d} of {b.source or 'right'}": y}
        self.report.note(s, p, o, "TW101", sid(o), text, values=values, differs=self._differs(left, right))

    def other_dimension(self, s: State, p: Process, o: c.Instr, a: Value, b: Value, left: Tag, right: Tag) -> None:
        """Multiplied elements come from different dimensions."""
        x, y = self.dim(left.dim), self.dim(right.dim)
        text = (
            f"{describe(o)} contracts {x} of {a.source or 'the left operand'} with {y} of "
            f"{b.source or 'the right operand'}"
        )
        self.report.note(
            s, p, o, "TW101", sid(o), text, values={"left": x, "right": y},
            unknown=f"whether {x} and {y} are the same dimension"
        )  # fmt: skip

    def turned_operand(
        self, s: State, p: Process, o: c.Instr, a: Value, b: Value, left: Tag, right: Tag, side: str
    ) -> None:
        """An operand lies the wrong way round: its other axis goes along with what it is multiplied by."""
        x, y = self.dim(left.dim), self.dim(right.dim)
        wrong, wanted = (b.source, x) if side == "right" else (a.source, y)
        text = (
            f"{describe(o)} contracts {x} of {a.source or 'the left operand'} with {y} of "
            f"{b.source or 'the right operand'}, but {wanted} is the other axis of the tile of "
            f"{wrong or 'the operand'}: it is to be transposed (`.T`)"
        )
        self.report.note(s, p, o, "TW101", sid(o), text, values={"left": x, "right": y})

    def other_tile(self, s: State, p: Process, o: c.Instr, held: Tag, mine: Tag) -> None:
        """The accumulator belongs to another tile."""
        x, y = f"{self.dim(held.dim)} = {self.coordinate(held)}", f"{self.dim(mine.dim)} = {self.coordinate(mine)}"
        text = f"the accumulator of {doing(p, o)} holds the tile at {x}, the product is the tile at {y}"
        self.report.note(
            s, p, o, "TW101", sid(o), text, values={"accumulator": x, "product": y}, differs=self._differs(held, mine)
        )  # fmt: skip

    def coincidence(self, p: Process, o: c.Instr, code: str, a: Tag, b: Tag) -> None:
        """Two coordinates agree here, but move differently from iteration to iteration."""
        d = self.dim(a.dim)
        missing = f"whether {d} = {a.text} and {d} = {b.text} agree in every iteration, not only{words(at(p))}"
        issue = Issue(code, sid(o), missing, o.stmt.span, self.report.role(p), dict(at(p)), unknown=missing)
        self.report.found.setdefault((code, sid(o)), Found(issue, {}, None))

    def negative(self, p: Process, o: c.Instr, along: Tag) -> None:
        """A contraction that starts below zero, or goes back behind its start, is not decided."""
        d = self.dim(along.dim)
        missing = f"{doing(p, o)} contracts from {d} = {along.const}, which does not continue what came before"
        issue = Issue("TW102", "*", missing, o.stmt.span, self.report.role(p), dict(at(p)), unknown=missing)
        self.report.found.setdefault(("TW102", "*"), Found(issue, {}, None))

    def unordered(self, p: Process, o: c.Instr, cover: Cover) -> None:
        """Two parts of one contraction are added up that follow different loops."""
        d = self.dim(cover.dim)
        missing = f"whether the parts of the contraction over {d} that {doing(p, o)} adds up overlap"
        issue = Issue("TW102", "*", missing, o.stmt.span, self.report.role(p), dict(at(p)), unknown=missing)
        self.report.found.setdefault(("TW102", "*"), Found(issue, {}, None))

    def summed(self, p: Process, o: c.Instr, along: Tag) -> None:
        """Products at different indices of their operands are summed up in a loop."""
        d = self.dim(along.dim)
        missing = (
            f"whether {doing(p, o)}, which adds up products over {d} at one index of the operands after the other, "
            "takes each index once"
        )
        issue = Issue("TW102", "*", missing, o.stmt.span, self.report.role(p), dict(at(p)), unknown=missing)
        self.report.found.setdefault(("TW102", "*"), Found(issue, {}, None))

    def twice(self, s: State, p: Process, o: c.Instr, along: Tag, part: tuple[int, int]) -> None:
        """A part of the contraction is accumulated again. Belongs to every store of the value, so to the kernel."""
        d = self.dim(along.dim)
        text = f"{doing(p, o)} accumulates {d} = {part[0]}..{part[1] - 1} a second time"
        self.report.note(
            s, p, o, "TW102", "*", text, values={"twice": f"{d} = {part[0]}..{part[1] - 1}"}, short=(along.dim, part[0])
        )  # fmt: skip

    def incomplete(self, s: State, p: Process, o: c.Instr, cover: Cover, loop: ir.Stmt | None) -> None:
        """A value is stored before all of a dimension has been contracted."""
        d = self.dim(cover.dim)
        if cover.symbol:
            missing = f"the contraction over {d} starts at {cover.text}, which is not known to be 0"
            self.report.note(s, p, o, "TW102", sid(o), missing, unknown=missing)
            return
        held = " and ".join(f"{i.low}..{i.high - 1}" for i in cover.intervals)
        reached = cover.intervals[0].high if cover.intervals and cover.intervals[0].low <= 0 else 0
        text = f"{doing(p, o)} stores a value contracted over {d} = {held or 'nothing'}, which is not all of [0, {d})"
        # A loop whose end depends on the program, as under a causal mask, leaves out a part on purpose.
        unknown = ""
        if self._partial(p, cover, loop):
            text = f"{doing(p, o)} stores a value contracted over {d} up to an end that depends on the program"
            unknown = f"whether the rest of [0, {d}) contributes nothing"
        self.report.note(
            s, p, o, "TW102", sid(o), text, values={"contracted": held or "nothing"}, short=(cover.dim, reached),
            unknown=unknown
        )  # fmt: skip

    def some_indices(self, s: State, p: Process, o: c.Instr, dim: int, left_out: list[int]) -> None:
        """Products at some of the indices of a dimension are summed up."""
        rest, d = ", ".join(map(str, left_out)), self.dim(dim)
        missing = (
            f"whether the sum of products that {doing(p, o)} stores leaves out index {rest} of the dimension of {d} "
            "on purpose"
        )
        self.report.note(s, p, o, "TW102", sid(o), missing, unknown=missing)

    def added(self, o: c.Instr, summand: Summand) -> None:
        """A program adds a part of a contraction, or all of it."""
        self.report.summands.setdefault(sid(o), set()).add(summand)

    def unfollowed(self, s: State, p: Process, o: c.Instr, cover: Cover) -> None:
        """What a program adds is no part of a contraction that can be numbered."""
        d = self.dim(cover.dim)
        missing = f"which part of the contraction over {d} {doing(p, o)} adds"
        self.report.note(s, p, o, "TW102", sid(o), missing, unknown=missing)

    def uneven(self, s: State, p: Process, o: c.Instr, cover: Cover, part: Part) -> None:
        """The parts of a split contraction leave gaps or overlap."""
        d = self.dim(cover.dim)
        low, high = sorted((part.length, part.stride))
        gap = part.length < part.stride
        text = (
            f"{doing(p, o)} stores part {part.index.text} of the contraction over {d}: {part.length} elements, but the "
            f"parts begin every {part.stride}, so {d} = {low}..{high - 1} is "
            f"{'left out' if gap else 'contracted twice'}"
        )
        # A single store shows it in the second part, if that is a full one: the first tells nothing of the distance.
        short = (cover.dim, part.stride + min(part.length, part.stride))
        values = {"length of a part": str(part.length), "distance of parts": str(part.stride)}
        self.report.note(s, p, o, "TW102", sid(o), text, values=values, short=short)

    def too_few_parts(self, s: State, p: Process, o: c.Instr, cover: Cover, part: Part) -> None:
        """Nothing says that the parts of a split contraction reach its end."""
        d, count = self.dim(cover.dim), self.dim(part.index.dim)
        missing = (
            f"whether {count} parts of {part.length} elements reach the end of {d}: "
            f"tw.assume({count} == tw.cdiv({d}, {part.length})) says so"
        )
        self.report.note(s, p, o, "TW102", sid(o), missing, unknown=missing)

    def _partial(self, p: Process, cover: Cover, loop: ir.Stmt | None) -> bool:
        """True if a contraction goes up to an end that depends on the program; that of `loop`, where it is known."""
        oracles = self.report.program.oracles
        ends = {lp.oracle for lp in p.role.loops if lp.oracle is not None and p.role.code[lp.start].stmt is loop}
        moving = ends | {o for o, _, _ in cover.intervals[-1].high_slopes} if cover.intervals else range(len(oracles))
        return any(
            name.startswith("%") for o in moving if not oracles[o].is_programs for name in oracles[o].trip.form.names()
        )

    def misplaced(self, s: State, p: Process, o: c.Instr, box: c.Box, held: Tag, want: Tag) -> None:
        """A value goes to coordinates it does not carry."""
        d = self.dim(held.dim)
        x, y = self.coordinate(held), self.coordinate(want)
        text = f"{doing(p, o)} puts elements with {d} = {x} at {d} = {y} of {box.tensor}"
        if x == y:
            text += ", but not of one tile: what loads them and what stores them computes it in different ways"
        if self.data(held) != self.data(want):
            if not self._says(held, want) and not self._says(want, held):
                missing = f"{text}: what the table says is not where an element of it stands"
                self._open(p, o, missing)
            return
        self.report.note(
            s, p, o, "TW103", sid(o), text, values={f"{d} of the value": x, f"{d} of {box.tensor}": y},
            differs=self._differs(held, want),
        )  # fmt: skip

    def _says(self, one: Tag, other: Tag) -> bool:
        """True if a table says a coordinate and is read at the other, as a permutation is; `factor` times both."""
        form, place = (self.report.program.symbols[t.symbol] for t in (one, other))
        if len(form.terms) != 1:
            return False
        ((item, factor),) = form.terms
        if not isinstance(item, ex.Item):
            return False
        facts = forms.Facts.of(self.report.program.kernel.assumptions)
        index = [forms.scale(forms.canonical(i, {}, facts), factor) for i in item.index]
        return any(forms.add(i, place, -1).is_constant for i in index)

    def other_element(self, p: Process, o: c.Instr, box: c.Box, held: Tag, want: Tag) -> None:
        """A table decides where a value is stored, by another element than where the value lies."""
        d, x, y = self.dim(held.dim), self.coordinate(held), self.coordinate(want)
        missing = (
            f"{doing(p, o)} puts elements with {d} = {x} where the element {d} = {y} of a table says in {box.tensor}: "
            "whether they belong together is not known"
        )
        self._open(p, o, missing)

    def taken_by(self, p: Process, o: c.Instr, box: c.Box, held: Tag, want: Tag) -> None:
        """A table decides where a value was loaded from, by another element than where the value is stored."""
        d, x, y = self.dim(held.dim), self.coordinate(held), self.coordinate(want)
        missing = (
            f"{doing(p, o)} puts at {d} = {y} of {box.tensor} what the element {d} = {x} of a table says: whether they "
            "belong together is not known"
        )
        self._open(p, o, missing)

    def unknown_place(self, p: Process, o: c.Instr, box: c.Box, held: Tag) -> None:
        """Where an axis goes is computed in a way that is not followed."""
        d = self.dim(held.dim)
        missing = (
            f"{doing(p, o)} puts elements with {d} = {self.coordinate(held)}… into {box.tensor} at indices that are "
            f"computed in a way that is not followed: whether they belong there is not known"
        )
        self._open(p, o, missing)

    def elsewhere(self, p: Process, o: c.Instr, box: c.Box, held: Fixed) -> None:
        """What was multiplied lies at different indices of a dimension that the store does not have."""
        d = self.dim(held.dim)
        where = " and ".join(f"{d} = {self.coordinate(t)}" for t in held.at[:2]) or f"different indices of {d}"
        missing = (
            f"{doing(p, o)} puts what was multiplied of elements at {where} into {box.tensor}, which does not have "
            "this dimension: whether they belong together is not known"
        )
        self._open(p, o, missing)

    def _open(self, p: Process, o: c.Instr, missing: str) -> None:
        issue = Issue("TW103", sid(o), missing, o.stmt.span, self.report.role(p), dict(at(p)), unknown=missing)
        self.report.found.setdefault(("TW103", sid(o)), Found(issue, {}, None))

    def misplaced_dimension(
        self, s: State, p: Process, o: c.Instr, box: c.Box, axis: int, held: Tag, swapped: bool
    ) -> None:
        """A value goes to another dimension than the one it carries."""
        x, y = self.dim(held.dim), self.dim(box.dims[axis])
        text = f"{doing(p, o)} puts dimension {x} of the value along axis {axis} of {box.tensor}, which is {y}"
        unknown = "" if swapped else f"whether {x} and {y} are the same dimension"
        self.report.note(s, p, o, "TW103", sid(o), text, values={"value": x, box.tensor: y}, unknown=unknown)

    def open_expectation(
        self, p: Process, o: said.Expectation, missing: str, related: tuple[Related, ...] = (), *, known: bool = False
    ) -> None:
        """An expectation that is neither shown nor refuted; `known`: running the kernel may refute it."""
        issue = Issue(
            "TW106", sid(o), missing, o.stmt.span, self.report.role(p), dict(at(p)), related, unknown=missing,
            tried=known,
        )  # fmt: skip
        self.report.found.setdefault(("TW106", sid(o)), Found(issue, {}, None))

    def broken_expectation(self, s: State, p: Process, o: said.Expectation, broken: Broken) -> None:
        """An expectation that fails."""
        self.report.note(
            s, p, o, "TW106", sid(o), broken.text, values=dict(broken.sides), differs=broken.differs,
            element=broken.element, thread=broken.thread,
        )  # fmt: skip
