"""What the asynchronous engine returns, and its limits. Plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tilewright.ir import expr as ex
from tilewright.ir.base import Stmt
from tilewright.ir.expr import Expr
from tilewright.problem import Fix, Related
from tilewright.source import NO_SPAN, Span
from tilewright_analysis.report import Counterexample, Verdict

Places = Mapping[tuple[int, str], Mapping[int, Expr]]


@dataclass(frozen=True, slots=True)
class Budget:
    """Where exploration gives up: `states` distinct normal forms, `steps` executed operations, `seconds` of time."""

    states: int = 20_000
    steps: int = 2_000_000
    seconds: float = 20.0


@dataclass(frozen=True, slots=True)
class AsyncOutcome:
    """The verdict on one obligation.

    `code` is the diagnostic code, `what` the obligation in words, `span` its place (relative to the kernel).
    `counterexample` is set when refuted; `missing` says what would settle an unknown one, whose `counterexample` is a
    place where it may fail, to be tried. `tried`: small sizes may show that an unknown one fails.
    """

    code: str
    what: str
    span: Span
    verdict: Verdict
    message: str = ""
    counterexample: Counterexample | None = None
    related: tuple[Related, ...] = ()
    fixes: tuple[Fix, ...] = ()
    missing: str = ""
    subject: str = ""
    tried: bool = False


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """What the interpreter needs to show a refuted outcome again.

    `sizes` are problem sizes, `tiles` the number of tiles that one program takes (None: not persistent), `iteration`
    the loop variables at the statement under `span`, `role` who executes it.
    """

    code: str
    sizes: Mapping[str, int]
    tiles: int | None
    span: Span
    role: str
    iteration: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Addend:
    """All of a contraction over a dimension of `extent` elements (`index` is None), or the part `index`, of `length`
    elements, over sizes and the program variable `PROGRAM`.
    """

    extent: ex.Expr
    index: ex.Expr | None
    length: int


@dataclass(frozen=True, slots=True)
class End:
    """Where a contraction stops: at the end of `loop`. It begins `ahead` elements before that does, or at 0 (None)."""

    loop: Stmt
    ahead: int | None = None


@dataclass(frozen=True, slots=True)
class AsyncResult:
    """All outcomes, in source order of their spans within each code, and figures of the exploration.

    `summands`: what each program adds, by the subject of the statement that adds to a sum over programs. That the
    programs together add a contraction once is not the engine's to say.
    `places`: by statement that reads a stage (its id) and buffer, what the axes of the tile in it start at, in the
    names of the reader; only what holds whenever the statement runs. `ends`: by statement (its id) that stores a
    contraction over a part of a dimension, where it stops, with the extent of the dimension.
    `contracts`: by product (its id) the extents of the dimensions that it may contract.
    """

    outcomes: tuple[AsyncOutcome, ...]
    summands: Mapping[str, frozenset[Addend]] = field(default_factory=dict[str, "frozenset[Addend]"])
    states: int = 0
    steps: int = 0
    milliseconds: float = 0.0
    places: Places = field(default_factory=dict[tuple[int, str], Mapping[int, Expr]])
    ends: Mapping[int, tuple[tuple[End, Expr], ...]] = field(default_factory=dict[int, "tuple[tuple[End, Expr], ...]"])
    contracts: Mapping[int, frozenset[Expr]] = field(default_factory=dict[int, frozenset[Expr]])

    def of(self, code: str) -> tuple[AsyncOutcome, ...]:
        """The outcomes of one code."""
        return tuple(o for o in self.outcomes if o.code == code)

    @property
    def refuted(self) -> tuple[AsyncOutcome, ...]:
        """The refuted outcomes."""
        return tuple(o for o in self.outcomes if o.verdict == "refuted")


class Unsupported(Exception):
    """The kernel leaves the fragment that the engine can decide. `missing` says what, `span` where."""

    def __init__(self, missing: str, span: Span = NO_SPAN) -> None:
        super().__init__(missing)
        self.missing = missing
        self.span = span


@dataclass(frozen=True, slots=True)
class Issue:
    """A violated rule in one state: what a counterexample is made of.

    `subject` names the obligation within its code: a buffer, a barrier, or the number of a statement. `fatal` issues
    end the path, because what follows them does not depend on the canonical schedule alone. `differs` holds the two
    symbolic coordinates (form, program iteration) whose difference has to be shown with numbers. `tried`: an unknown
    issue that running the kernel at small sizes may turn into a violation.
    """

    code: str
    subject: str
    message: str
    span: Span
    role: str = ""
    iteration: Mapping[str, int] = field(default_factory=dict[str, int])
    related: tuple[Related, ...] = ()
    fixes: tuple[Fix, ...] = ()
    values: Mapping[str, str] = field(default_factory=dict[str, str])
    element: tuple[int, ...] = ()
    touches: frozenset[str] = frozenset()
    fatal: bool = False
    unknown: str = ""
    differs: tuple[tuple[int, int, int], tuple[int, int, int]] | None = None
    short: tuple[int, int] | None = None
    tried: bool = False
    thread: Mapping[str, int] = field(default_factory=dict[str, int])


class Violation(Exception):
    """Raised by a transfer rule with the issue it found."""

    def __init__(self, issue: Issue) -> None:
        super().__init__(issue.message)
        self.issue = issue
