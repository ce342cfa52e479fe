"""Rules of statements about tags."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tilewright.ir import nodes as ir
from tilewright.ir.tagging import displaced
from tilewright_analysis.async_ import code as c
from tilewright_analysis.async_ import said
from tilewright_analysis.async_.findings import Findings
from tilewright_analysis.async_.machine import Machine
from tilewright_analysis.async_.named import transposed
from tilewright_analysis.async_.state import Process, State
from tilewright_analysis.async_.tags import OLD, Value


class TagMachine(Machine):
    """A machine that also knows what is said of tags."""

    def __init__(self, program: c.Program, reporter: Findings, interrupted: Callable[[int], bool]) -> None:
        super().__init__(program, reporter, interrupted)
        self._rules |= {said.TagTile: self._tag, said.Expectation: self._expect_tags}

    def _held(self, s: State, p: Process, place: str | c.Place) -> Value | None:
        """What a tile or a stage holds, or will hold when what is in flight is complete; no access."""
        if isinstance(place, str):
            return p.tiles.get(place)
        value = s.content.get((place.buffer.name, int(place.stage(p.env))))
        if value is None or value is OLD:
            return None
        return transposed(value) if place.transposed else value

    def _spoken_of(self, s: State, p: Process, o: said.OverElements, place: str | c.Place) -> None:
        """What is said of a stage is said of what it holds then, so it is ordered like a read of it."""
        if isinstance(place, str) or not 0 <= int(place.stage(p.env)) < place.buffer.stages:
            return
        token = self._token(s)
        self._access(s, p, o, place, int(place.stage(p.env)), write=False, generic=True, queue="tags", token=token)
        # No thread reads anything: whatever a thread does after this point comes after what is said here.
        p.known.add(token)

    def _tag(self, s: State, p: Process, o: said.TagTile) -> bool:
        for place in (o.of, *o.places):
            self._spoken_of(s, p, o, place)
        held = self._held(s, p, o.of)
        if held is None:
            return True
        tags = self.tags.expectations.given(p, o, held.named, self.tags.mentioned(s, p, o, self._held))
        assert isinstance(o.about, ir.Tag)
        value = self.tags.claimed(replace(held, named=tags), displaced(o.about))
        if isinstance(o.of, str):
            p.tiles[o.of] = value
        else:
            value = transposed(value) if o.of.transposed else value
            s.content[o.of.buffer.name, int(o.of.stage(p.env))] = value
        return True

    def _expect_tags(self, s: State, p: Process, o: said.Expectation) -> bool:
        for place in o.places:
            self._spoken_of(s, p, o, place)
        self.tags.expected(s, p, o, self.tags.mentioned(s, p, o, self._held))
        return True
