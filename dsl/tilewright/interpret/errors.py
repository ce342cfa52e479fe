"""What goes wrong in an interpreted kernel: violations with a kind and a place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from tilewright.problem import Related
from tilewright.source import NO_SPAN, Span

Kind = Literal[
    "alignment", "completeness", "placement", "expectation",
    "bounds", "endless", "uninitialized", "stale", "overflow", "arithmetic",
    "grid", "rewritten", "uncovered",
    "race", "phase", "deadlock", "proxy", "bytes", "exit", "arrivals",
    "mismatch",
]  # fmt: skip

KINDS_OF_CODE: Mapping[str, frozenset[Kind]] = {
    "TW101": frozenset(("alignment",)),
    "TW102": frozenset(("completeness",)),
    "TW103": frozenset(("placement",)),
    "TW106": frozenset(("expectation",)),
    "TW201": frozenset(("bounds",)),
    "TW202": frozenset(("bounds",)),
    "TW203": frozenset(("uninitialized",)),
    "TW204": frozenset(("stale", "race", "alignment", "completeness", "placement")),
    "TW205": frozenset(("overflow", "arithmetic")),
    "TW207": frozenset(("endless",)),
    "TW301": frozenset(("grid", "uncovered", "rewritten", "bounds")),
    "TW302": frozenset(("rewritten",)),
    "TW303": frozenset(("uncovered",)),
    "TW304": frozenset(("grid",)),
    "TW305": frozenset(("uninitialized",)),
    "TW401": frozenset(("race", "uninitialized", "stale")),
    "TW402": frozenset(("phase",)),
    "TW403": frozenset(("deadlock", "bytes")),
    "TW404": frozenset(("proxy",)),
    "TW405": frozenset(("bytes",)),
    "TW406": frozenset(("exit",)),
    "TW407": frozenset(("arrivals", "phase", "deadlock")),
}
"""The kinds of violation that show what a diagnostic of the verifier claims."""


class Violation(Exception):
    """The kernel did something that no correct kernel does.

    `kind` names the class of fault, `span` the statement (relative to the kernel), `role` and `program` who executed
    it, `iteration` the loop variables at that moment, `element` the coordinates concerned (of the tensor, or of the
    tile in shared memory), `values` what differs, in words, `related` the other statements of the conflict.
    """

    def __init__(
        self,
        kind: Kind,
        message: str,
        *,
        span: Span = NO_SPAN,
        role: str = "",
        program: int | None = None,
        iteration: Mapping[str, int] | None = None,
        element: tuple[int, ...] = (),
        values: Mapping[str, str] | None = None,
        related: tuple[Related, ...] = (),
    ) -> None:
        self.kind: Kind = kind
        self.message = message
        self.span = span
        self.role = role
        self.program = program
        self.iteration: Mapping[str, int] = dict(iteration or {})
        self.element = element
        self.values: Mapping[str, str] = dict(values or {})
        self.related = related
        super().__init__(message)

    def __str__(self) -> str:
        where = [f"role {self.role}"] if self.role else []
        if self.program is not None:
            where.append(f"program {self.program}")
        where.extend(f"{name} = {value}" for name, value in self.iteration.items())
        if self.element:
            where.append(f"element {self.element}")
        return f"{self.kind}: {self.message}" + (f" ({', '.join(where)})" if where else "")
