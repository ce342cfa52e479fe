"""The state of an exploration: processes, barrier slots, shared memory, oracles. Mutable, cloned at forks."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright_analysis.async_ import code as c
from tilewright_analysis.async_.tags import Value

INF = float("inf")
Instance = tuple[int, int]
"""An oracle and the outer iteration that it belongs to (0 without an outer loop)."""


Iteration = tuple[tuple[str, int], ...]
"""Loop variables and their values, outermost first."""


@dataclass(frozen=True, slots=True)
class Event:
    """One executed operation of a trace, linked to the one before."""

    previous: Event | None
    instr: c.Instr
    role: str
    iteration: Iteration


@dataclass(frozen=True, slots=True)
class Access:
    """One access to a range of rows of a stage that later accesses may have to be ordered after.

    `token` is its completion; `fence` (writes of the generic proxy) its visibility to the asynchronous proxy. `turn`
    numbers the generic writes of the process since its last sync, `queue` names what completes in order. `early`: a
    read of a stage that nothing had been written to, for messages.
    """

    low: int
    high: int
    write: bool
    generic: bool
    token: int
    fence: int | None
    process: int
    queue: str
    turn: int
    instr: c.Instr
    iteration: Iteration
    early: bool = False


class Process:
    """One warpgroup of a role (or the whole role, if it has fewer than four warps)."""

    __slots__ = (
        "at_sync", "code", "copies", "done", "env", "groups", "index", "known", "local", "open", "outer", "pc",
        "products", "role", "stores", "stuck", "tensor", "tiles", "turn",
    )  # fmt: skip

    def __init__(self, index: int, role: c.RoleCode, group: int) -> None:
        self.index = index
        self.role = role
        self.code = role.code
        self.groups = group
        self.pc = 0
        self.env = [0] * len(role.slots)
        self.known: set[int] = set()  # tokens that all its threads know
        self.local: set[int] = set()  # tokens that each thread knows of itself only
        self.products: list[int] = []  # wgmma groups in flight, oldest first
        self.stores: list[int] = []  # bulk-store groups
        self.tensor: set[int] = set()  # products into tensor memory: what a commit tells
        self.copies: list[tuple[int, ...]] = []  # committed cp.async groups
        self.open: list[int] = []  # cp.async copies not committed
        self.tiles: dict[str, Value] = {}
        self.outer = 0  # position in the enclosing loop of level 0
        self.done = False
        self.at_sync = False
        self.stuck: tuple[int, int, int] | None = None
        self.turn = 0

    def clone(self) -> Process:
        """A copy that shares nothing mutable."""
        p = Process.__new__(Process)
        p.index, p.role, p.code, p.groups, p.pc = self.index, self.role, self.code, self.groups, self.pc
        p.env = self.env[:]
        p.known, p.local, p.tensor = set(self.known), set(self.local), set(self.tensor)
        p.products, p.stores, p.copies, p.open = self.products[:], self.stores[:], self.copies[:], self.open[:]
        p.tiles = dict(self.tiles)
        p.outer, p.done, p.at_sync, p.stuck, p.turn = self.outer, self.done, self.at_sync, self.stuck, self.turn
        return p


class Phase:
    """One barrier slot: completed phases, what the running phase still waits for, and what its end tells waiters."""

    __slots__ = (
        "arrivals",
        "barrier",
        "bringing",
        "completed",
        "end",
        "end_before",
        "handed",
        "pending",
        "tx",
        "waits",
    )

    def __init__(self, barrier: c.Barrier) -> None:
        self.barrier = barrier
        self.arrivals = barrier.arrivals
        self.completed = 0
        self.pending = barrier.arrivals
        self.tx = 0
        self.bringing: set[int] = set()
        self.handed: frozenset[int] = frozenset()
        self.end: int | None = None
        self.end_before: int | None = None
        self.waits: tuple[tuple[int, int], ...] = ()  # (process, token) of waits on the last completed phase

    def clone(self) -> Phase:
        """A copy that shares nothing mutable."""
        b = Phase.__new__(Phase)
        b.barrier, b.arrivals, b.completed, b.pending, b.tx = (
            self.barrier, self.arrivals, self.completed, self.pending, self.tx,
        )  # fmt: skip
        b.bringing, b.handed = set(self.bringing), self.handed
        b.end, b.end_before, b.waits = self.end, self.end_before, self.waits
        return b


class State:
    """A state of the whole kernel."""

    __slots__ = ("accesses", "content", "events", "exact", "far", "oracles", "past", "phases", "processes", "tokens")

    def __init__(self, program: c.Program) -> None:
        self.processes: list[Process] = []
        for role in program.roles:
            for g in range(role.groups):
                self.processes.append(Process(len(self.processes), role, g))
        self.phases = [Phase(b) for b in program.barriers.values() for _ in range(b.slots)]
        self.accesses: dict[str, list[Access]] = {name: [] for name in program.buffers}
        self.content: dict[tuple[str, int], Value] = {}
        self.oracles: dict[Instance, tuple[float, float]] = {}
        # Trip counts of iterations that are over: no process can meet them, but a counterexample must still give them.
        self.past: dict[Instance, tuple[float, float]] = {}
        self.tokens = 0
        # The last normal form held the positions themselves, so that everything since is determined by it. So is
        # everything before the first.
        self.exact = True
        # Loops of which the last normal form did not hold the position that coordinates are relative to.
        self.far: frozenset[Instance] = frozenset()
        self.events: Event | None = None  # the last one; kept when a trace is wanted

    def clone(self) -> State:
        """A copy that shares nothing mutable."""
        s = State.__new__(State)
        s.processes = [p.clone() for p in self.processes]
        s.phases = [b.clone() for b in self.phases]
        s.accesses = {name: rows[:] for name, rows in self.accesses.items()}
        s.content = dict(self.content)
        s.oracles = dict(self.oracles)
        s.past = dict(self.past)
        s.tokens = self.tokens
        s.events = self.events
        s.exact, s.far = self.exact, self.far
        return s
