"""One program in execution: its processes, barriers, shared memory and asynchronous work, and the scheduler."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field

from tilewright.interpret.barriers import Slot
from tilewright.interpret.errors import Kind, Violation
from tilewright.interpret.happens_before import Knowledge, Ordering
from tilewright.interpret.memory import Region, Stage, Tensor, new_stages
from tilewright.interpret.numeric import Array
from tilewright.interpret.scalars import Env
from tilewright.interpret.schedule import Action, Actions, Limits, Schedule
from tilewright.interpret.tags import Tag
from tilewright.ir import nodes as ir
from tilewright.ir.expr import EvaluationError
from tilewright.ir.types import BarrierType, SharedType, TensorMemoryType
from tilewright.problem import Related

Wait = Callable[[], bool]
"""A condition that a process waits for."""
Events = Generator[Wait | None, None, None]
"""A process: it yields a condition to block on, or None to let others run."""


@dataclass(eq=False, slots=True)
class Tile:
    """A register tile. While `pending` is set, a matrix instruction in flight owns it, and `data` may be missing.

    `readers` counts matrix instructions in flight that read its registers; `same` is the tile whose registers it has in
    another layout.
    """

    data: Array
    tag: Tag | None = None
    pending: bool = False
    readers: int = 0
    same: Tile | None = None

    def held(self, change: int) -> None:
        """Count readers, also of the tile that it is in another layout."""
        tile: Tile | None = self
        while tile is not None:
            tile.readers += change
            tile = tile.same


@dataclass(eq=False, slots=True)
class Sum:
    """What a product in flight will leave in its accumulator."""

    data: Array


@dataclass(eq=False, slots=True)
class Group:
    """The processes of one role, which a `Sync` joins."""

    members: list[Process] = field(default_factory=list["Process"])
    arrived: int = 0
    generation: int = 0


@dataclass(frozen=True, slots=True)
class Pending:
    """An issued asynchronous operation that its process has not waited for: its action, and its completion token."""

    action: Action
    token: int = 0
    tile: Tile | None = None
    written: tuple[Stage, Region, int] | None = None
    use: Action | None = None
    operand: Tile | None = None


@dataclass(eq=False, slots=True)
class Process:
    """One warpgroup of a role (or a whole role), executing its statements in order."""

    machine: Machine
    role: str
    index: int
    count: int
    group: Group
    env: Env
    tiles: dict[str, Tile]
    knowledge: Knowledge
    events: Events | None = None
    stmt: ir.Stmt = field(default_factory=ir.Sync)
    loops: list[str] = field(default_factory=list[str])
    blocked: Wait | None = None
    waiting: str = ""
    finished: bool = False
    priority: float = 0.0
    matrix: deque[Pending] = field(default_factory=deque[Pending])
    stores: deque[Pending] = field(default_factory=deque[Pending])
    open_copies: list[Pending] = field(default_factory=list[Pending])
    copies: deque[list[Pending]] = field(default_factory=deque[list[Pending]])
    until_sync: list[Action] = field(default_factory=list[Action])
    unfenced: list[tuple[Stage, Region, int]] = field(default_factory=list[tuple[Stage, Region, int]])
    fenced: list[tuple[Stage, Region, int]] = field(default_factory=list[tuple[Stage, Region, int]])
    announced: dict[str, int] = field(default_factory=dict[str, int])
    written: int = 0
    # tcgen05: products and arrivals in flight, in order; their tokens; the sums of the accumulators they go to.
    tensor: list[Action] = field(default_factory=list[Action])
    products: int = 0
    accumulating: dict[str, Sum] = field(default_factory=dict[str, Sum])

    @property
    def elected(self) -> bool:
        """True for the process that holds the role's elected thread."""
        return self.index == 0

    def share(self, shape: tuple[int, ...]) -> Region | None:
        """The part of a tile that this process copies when the role shares the work; None: nothing."""
        whole = tuple(slice(0, n) for n in shape)
        if self.count == 1:
            return whole
        for axis, extent in enumerate(shape):
            if extent % self.count == 0:
                part = extent // self.count
                mine = slice(self.index * part, (self.index + 1) * part)
                return (*whole[:axis], mine, *whole[axis + 1 :])
        return whole if self.index == 0 else None

    def tile(self, name: str) -> Tile:
        """The register tile of that name. Raises Violation if it has no value or is still being computed."""
        found = self.tiles.get(name)
        if found is None:
            raise self.violation("uninitialized", f"'{name}' is read before it has a value")
        if found.pending:
            raise self.violation(
                "race",
                f"'{name}' is read while the matrix instruction that computes it is in flight: wait for it first",
            )
        return found

    def assign(self, name: str, tile: Tile) -> None:
        """Give a register tile a value. Raises Violation while a matrix instruction in flight reads its registers."""
        before = self.tiles.get(name)
        if before is not None and before.readers:
            raise self.violation(
                "race",
                f"'{name}' is overwritten while a matrix instruction in flight reads its registers: wait for it first",
            )
        self.tiles[name] = tile

    def violation(
        self,
        kind: Kind,
        message: str,
        *,
        stmt: ir.Stmt | None = None,
        element: tuple[int, ...] = (),
        values: Mapping[str, str] | None = None,
        related: tuple[Related, ...] = (),
    ) -> Violation:
        """A violation at this process's place (or at `stmt`, for asynchronous work it issued earlier)."""
        return Violation(
            kind,
            message,
            span=(stmt or self.stmt).span,
            role=self.label,
            program=self.machine.program,
            iteration={name: self.env[name] for name in self.loops},
            element=element,
            values=values,
            related=related,
        )

    @property
    def label(self) -> str:
        """Role, and warpgroup if there are several."""
        return self.role if self.count == 1 or not self.role else f"{self.role} (warpgroup {self.index})"


class Machine:
    """One program (thread block): memory, barriers and processes, driven until all processes have finished."""

    def __init__(
        self,
        kernel: ir.Kernel,
        tensors: Mapping[str, Tensor],
        program: int,
        programs: int,
        schedule: Schedule,
        limits: Limits,
        tracked: frozenset[str] = frozenset(),
    ) -> None:
        self.program = program
        # Names of the tags that are mentioned somewhere; the others are not carried.
        self.tracked = tracked
        self.programs = programs
        self.schedule = schedule
        self.limits = limits
        self.tensors = tensors
        self.random = random.Random(f"{schedule.seed} {program}")
        self.actions = Actions(schedule, self.random)
        # How often the order of those who could go on changes: a different habit for each seed.
        self.restlessness = self.random.choice((0.05, 0.3, 1.0))
        self.ordering = Ordering() if schedule.happens_before else None
        self.processes: list[Process] = []
        self.stages: dict[str, list[Stage]] = {}
        self.slots: dict[str, list[Slot]] = {}
        self.loads: list[tuple[int, str, Process, ir.Stmt]] = []
        self.grids: dict[str, int] = {}
        self.iterations = 0
        self._versions: dict[object, int] = {}
        for name, kind in kernel.types.items():
            if isinstance(kind, SharedType | TensorMemoryType):
                self.stages[name] = new_stages(name, kind)
            elif isinstance(kind, BarrierType):
                names = [f"{name}[{i}]" for i in range(kind.slots)]
                self.slots[name] = [Slot(n, kind.arrivals) for n in names]
                for slot in self.slots[name]:
                    slot.on_end.append(self._end_phase)

    def version(self, key: object = None) -> int:
        """A number for one execution of a statement; the same for the same `key` other than None."""
        if key is None:
            key = len(self._versions), "fresh"
        return self._versions.setdefault(key, len(self._versions) + 1)

    def start(self, role: str, warps: int, env: Env, tiles: dict[str, Tile], known: int) -> list[Process]:
        """Add the processes of a role."""
        count = max(1, warps // 4) if self.schedule.split_warpgroups else 1
        group = Group()
        for index in range(count):
            process = Process(self, role, index, count, group, dict(env), dict(tiles), Knowledge(known))
            process.priority = self.random.random()
            group.members.append(process)
        self.processes.extend(group.members)
        return group.members

    def count_iteration(self) -> None:
        """Raise Violation if the loops of this program have run for more iterations than the limits allow."""
        self.iterations += 1
        if self.iterations > self.limits.events:
            raise self._endless()

    def _end_phase(self, slot: Slot) -> None:
        if self.ordering is not None and not self.ordering.end_phase(slot):
            raise Violation(
                "phase",
                f"phase {slot.phase} of {slot.name} ends, but nothing tells its arrivals that every wait for phase "
                f"{slot.phase - 1} has passed: a waiter that is late misses it",
                values={"phase": str(slot.phase)},
            )

    def run(self) -> None:
        """Execute until every process has finished. Raises Violation."""
        if self.schedule.adversarial:
            self._run_adversarial()
        else:
            self._run_in_order()
        if self.actions.pending:
            left = self.actions.pending[0]
            raise Violation(
                "exit", f"{left.what} is still in flight when the program ends", span=left.span, program=self.program
            )
        if self.ordering is not None:
            known = 0
            for process in self.processes:
                known |= process.knowledge.known
            for token, what, process, stmt in self.loads:
                if not known & token:
                    raise process.violation("exit", f"nobody waits for {what} before the program ends", stmt=stmt)

    def _run_in_order(self) -> None:
        events = 0
        while True:
            progress = False
            for process in self.processes:
                while not process.finished and (process.blocked is None or process.blocked()):
                    progress = True
                    self._advance(process)
                    events += 1
            if all(p.finished for p in self.processes):
                return
            if not progress:
                raise self._deadlock()
            if events > self.limits.events:
                raise self._endless()

    def _run_adversarial(self) -> None:
        for _ in range(self.limits.events):
            if all(p.finished for p in self.processes):
                return
            ready: list[Process | Action] = [
                p for p in self.processes if not p.finished and (p.blocked is None or p.blocked())
            ]
            ready += self.actions.ready()
            if not ready:
                raise self._deadlock()
            chosen = max(ready, key=_priority)
            if isinstance(chosen, Action):
                self.actions.finish(chosen)
                continue
            if self.random.random() < self.restlessness:
                chosen.priority = self.random.random()
            self._advance(chosen)
        raise self._endless()

    def _advance(self, process: Process) -> None:
        """Run a process up to its next event."""
        process.blocked = None
        assert process.events is not None
        try:
            process.blocked = next(process.events)
        except StopIteration:
            process.finished = True
        except EvaluationError as error:
            raise process.violation("arithmetic", str(error)) from None
        except Violation as violation:
            if violation.program is None:
                here = process.violation(
                    violation.kind, violation.message, values=violation.values, related=violation.related
                )
                raise here from None
            raise

    def _deadlock(self) -> Violation:
        stuck = [p for p in self.processes if not p.finished and not isinstance(p.stmt, ir.Roles)]
        lines = [f"{p.label or 'the program'} waits for {p.waiting}" for p in stuck]
        # A phase that has all its arrivals and still misses bytes (or got too many) never ends.
        for slots in self.slots.values():
            for slot in slots:
                if slot.pending == 0 and slot.bytes:
                    return stuck[-1].violation(
                        "bytes",
                        f"the announced and the delivered bytes of {slot.name} differ by {slot.bytes}, so its phase "
                        f"{slot.phase} never ends; {'; '.join(lines)}",
                        values={"outstanding bytes": str(slot.bytes)},
                    )
        first = next((p for p in stuck if isinstance(p.stmt, ir.BarrierWait)), stuck[0])
        return first.violation("deadlock", "no one can go on: " + "; ".join(lines))

    def _endless(self) -> Violation:
        return Violation("deadlock", f"the program did not end after {self.limits.events} steps", program=self.program)


def _priority(entity: Process | Action) -> float:
    return entity.priority
