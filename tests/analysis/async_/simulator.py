"""An independent oracle: runs explicit IR at concrete sizes with random interleaving and random completion of async work.

It shares nothing with the engine but the IR. Shared memory holds concrete tiles or garbage while a copy is in flight;
values carry the concrete coordinates they stand for. `Bad` is raised for whatever a real run could get wrong.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from functools import partial

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.types import BarrierType, SharedType, TensorMemoryType


class Bad(Exception):
    """The run went wrong."""


@dataclass
class Tile:
    """A value: coordinates of its axes, and the starts of contracted steps. `axes` is None for a constant."""

    axes: tuple[int, ...] | None
    steps: tuple[int, ...] = ()
    ready: bool = True


@dataclass
class Bar:
    count: int
    pending: int
    tx: int = 0
    phase: int = 0

    def arrive(self, n: int, tx: int) -> None:
        self.pending -= n
        self.tx += tx
        if self.pending < 0:
            raise Bad("too many arrivals")
        if self.pending == 0 and self.tx < 0:
            raise Bad("too many bytes")
        if self.pending == 0 and self.tx == 0:
            self.phase += 1
            self.pending = self.count


@dataclass(eq=False)
class Product:
    """A product into tensor memory: done when it has been executed."""

    at: tuple[str, int]
    out: Tile
    work: Callable[[], None]
    done: bool = False


GARBAGE = Tile(None)
Work = Callable[[], None]
Blocked = Generator[bool, None, None]


@dataclass
class Proc:
    role: str
    group: int
    groups: int
    env: dict[str, int]
    tiles: dict[str, Tile] = field(default_factory=dict)
    products: list[Work] = field(default_factory=list)
    stores: list[Work] = field(default_factory=list)
    tensor: list[Product] = field(default_factory=list)
    commits: list[tuple[list[Product], Bar]] = field(default_factory=list)
    copies: list[list[Work]] = field(default_factory=list)
    open: list[Work] = field(default_factory=list)
    syncs: int = 0
    done: bool = False
    blocked: bool = False


class Run:
    def __init__(self, kernel: ir.Kernel, sizes: dict[str, int], programs: int, number: int, seed: int) -> None:
        self.k, self.sizes, self.programs, self.number = kernel, sizes, programs, number
        self.rng = random.Random(seed)
        self.memory: dict[tuple[str, int], list[Tile | None]] = {}
        self.dirty: dict[tuple[str, int], bool] = {}
        self.bars: dict[tuple[str, int], Bar] = {}
        self.flying: list[Work] = []
        self.written: dict[tuple[str, tuple[int, ...]], int] = {}
        roles: list[tuple[str, int, ir.Block]] = []
        rest: list[ir.Stmt] = []
        for s in kernel.body:
            match s:
                case ir.AllocShared() | ir.AllocTensor():
                    pass
                case ir.AllocBarrier(dst=name):
                    kind = kernel.types[name]
                    assert isinstance(kind, BarrierType)
                    for i in range(kind.slots):
                        self.bars[name, i] = Bar(kind.arrivals, kind.arrivals)
                case ir.Roles(roles=more):
                    roles += [(r.name, r.warps, r.body) for r in more]
                case _:
                    rest.append(s)
        if not roles:
            roles = [("", kernel.warps, tuple(rest))]
        self.procs: list[tuple[Proc, Blocked]] = []
        for name, warps, body in roles:
            groups = max(1, warps // 4)
            for g in range(groups):
                p = Proc(name, g, groups, dict(sizes))
                self.procs.append((p, self.block(p, body)))

    # ---- helpers
    def value(self, p: Proc, e: ex.Expr) -> int:
        return ex.evaluate(e, p.env)

    def stage(self, p: Proc, ref: ir.BufRef) -> tuple[str, int]:
        kind = self.k.types[ref.buffer]
        assert isinstance(kind, SharedType | TensorMemoryType)
        i = self.value(p, ref.stage)
        if not 0 <= i < kind.stages:
            raise Bad("stage out of range")
        return ref.buffer, i

    def slot(self, p: Proc, ref: ir.BarRef) -> Bar:
        key = ref.barrier, self.value(p, ref.slot)
        if key not in self.bars:
            raise Bad("slot out of range")
        return self.bars[key]

    def origin(self, p: Proc, view: ir.View) -> tuple[int, ...]:
        return tuple(self.value(p, e) for e in view.origin)

    def put(self, at: tuple[str, int], tile: Tile, generic: bool, group: int | None = None) -> None:
        cells = self.memory.setdefault(at, [None, None])
        for g in range(2) if group is None else (group,):
            cells[g] = tile
        self.dirty[at] = generic

    def get(self, at: tuple[str, int], proxied: bool, group: int | None = None) -> Tile:
        cells = self.memory.get(at, [None, None])
        mine = cells if group is None else [cells[group]]
        if proxied and self.dirty.get(at):
            raise Bad("not fenced")
        if any(c is None or c is GARBAGE for c in mine):
            raise Bad(f"garbage in {at}")
        if any(c != mine[0] for c in mine):
            raise Bad(f"torn {at}")
        assert mine[0] is not None
        return mine[0]

    def tile(self, p: Proc, name: str) -> Tile:
        t = p.tiles.get(name)
        if t is None:
            raise Bad("register tile undefined")
        if not t.ready:
            raise Bad("register tile in flight")
        return t

    def product(self, a: Tile, b: Tile, acc: Tile, out: Tile) -> None:
        if a.axes is None or b.axes is None or len(a.axes) != 2 or len(b.axes) != 2:
            raise Bad("operand is no tile")
        if a.axes[1] != b.axes[0]:
            raise Bad("misaligned")
        axes = (a.axes[0], b.axes[1])
        if acc.axes is not None and acc.axes != axes:
            raise Bad("other tile")
        if a.axes[1] in acc.steps:
            raise Bad("twice")
        out.axes, out.steps, out.ready = axes, (*acc.steps, a.axes[1]), True

    def placed(self, view: ir.View, at: tuple[int, ...], t: Tile, depth: int, first: bool = True) -> None:
        if t.axes is not None and t.axes != at:
            raise Bad("misplaced")
        if depth:
            n = -(-self.sizes["K"] // depth)
            if sorted(t.steps) != [i * depth for i in range(n)]:
                raise Bad("incomplete")
        self.written[view.tensor, at] = self.written.get((view.tensor, at), 0) + first

    # ---- statements
    def block(self, p: Proc, body: ir.Block) -> Blocked:
        for s in body:
            match s:
                case ir.Assign():
                    p.env[s.dst] = self.value(p, s.value)
                case ir.If():
                    yield from self.block(p, s.then if self.value(p, s.cond) else s.orelse)
                case ir.For():
                    for v in range(self.value(p, s.lo), self.value(p, s.hi), s.step):
                        p.env[s.var] = v
                        yield from self.block(p, s.body)
                case ir.Programs():
                    total = self.value(p, s.count)
                    step = self.programs if s.persistent else total + 1
                    for v in range(self.number, total, max(1, step)):
                        p.env[s.var] = v
                        yield from self.block(p, s.body)
                case _:
                    yield from self.operation(p, s)
                    yield True

    def operation(self, p: Proc, s: ir.Stmt) -> Blocked:
        elect = isinstance(
            s,
            ir.BarrierArrive
            | ir.BarrierExpect
            | ir.TmaLoad
            | ir.TmaStore
            | ir.TmaStoreWait
            | ir.Tcgen05
            | ir.Tcgen05Commit,
        )
        if elect and p.group:
            return
        match s:
            case ir.BarrierWait():
                b = self.slot(p, s.bar)
                while b.phase % 2 == (self.value(p, s.parity) & 1):
                    yield False
            case ir.BarrierArrive():
                self.slot(p, s.bar).arrive(1, 0)
            case ir.BarrierExpect():
                self.slot(p, s.bar).arrive(1, self.value(p, s.bytes))
            case ir.TmaLoad():
                at, b, tile = self.stage(p, s.dst), self.slot(p, s.bar), Tile(self.origin(p, s.view))
                kind = self.k.types[s.dst.buffer]
                assert isinstance(kind, SharedType)
                if self.rng.random() < 0.7:
                    self.put(at, GARBAGE, False)

                def deliver() -> None:
                    self.put(at, tile, False)
                    b.arrive(0, -kind.stage_bytes)

                self.flying.append(deliver)
            case ir.TmaStore():
                at, where = self.stage(p, s.src), self.origin(p, s.view)
                depth = self.depth()
                p.stores.append(lambda: self.placed(s.view, where, self.get(at, True), depth))
            case ir.TmaStoreWait():
                self.drain(p.stores, s.pending)
            case ir.CpAsync():
                at, tile = self.stage(p, s.dst), Tile(self.origin(p, s.view))
                mine = p.group if p.groups == 2 else None
                if self.rng.random() < 0.5:
                    self.put(at, GARBAGE, True, mine)
                p.open.append(lambda: self.put(at, tile, True, mine))
            case ir.CpCommit():
                p.copies.append(p.open)
                p.open = []
            case ir.CpWait():
                while len(p.copies) > s.pending:
                    for work in p.copies.pop(0):
                        work()
            case ir.SharedLoad():
                p.tiles[s.dst] = self.get(self.stage(p, s.src), False)
            case ir.SharedStore():
                mine = p.group if p.groups == 2 else None
                self.put(self.stage(p, s.dst), self.tile(p, s.src), True, mine)
            case ir.Wgmma():
                bt, acc, out = self.stage(p, s.b), p.tiles[s.acc], Tile(None, ready=False)
                mine = p.group if p.groups == 2 else None
                if isinstance(s.a, ir.TileRef):
                    # Registers are read as late as the product completes.
                    left = partial(self.tile, p, s.a.name)
                else:
                    left = partial(self.get, self.stage(p, s.a), True, mine)
                p.tiles[s.dst] = out
                p.products.append(lambda: self.product(left(), self.get(bt, True), acc, out))
            case ir.WgmmaWait():
                self.drain(p.products, s.pending)
            case ir.Tcgen05():
                self.multiply(p, s)
                self.commit(p, self.slot(p, s.bar))
            case ir.Tcgen05Commit():
                self.commit(p, self.slot(p, s.bar))
            case ir.TensorLoad():
                p.tiles[s.dst] = self.get(self.stage(p, s.src), False)
            case ir.Mma():
                out = Tile(None)
                self.product(self.tile(p, s.a), self.tile(p, s.b), self.tile(p, s.acc), out)
                p.tiles[s.dst] = out
            case ir.FenceAsync():
                for at in self.dirty:
                    self.dirty[at] = False
            case ir.Sync():
                p.syncs += 1
                while any(q.role == p.role and q.syncs < p.syncs for q, _ in self.procs):
                    yield False
            case ir.Compute(op="full"):
                p.tiles[s.dst] = Tile(None)
            case ir.Compute():
                tiles = [self.tile(p, a.name) for a in s.args if isinstance(a, ir.TileRef)]
                axes = next((t.axes for t in tiles if t.axes is not None), None)
                p.tiles[s.dst] = Tile(axes, tiles[0].steps)
            case ir.Load():
                p.tiles[s.dst] = Tile(self.origin(p, s.view))
            case ir.Store():
                self.placed(s.view, self.origin(p, s.view), self.tile(p, s.src), self.depth(), p.group == 0)
            case _:
                raise AssertionError(s)

    def multiply(self, p: Proc, s: ir.Tcgen05) -> None:
        at, bt, into = self.stage(p, s.a), self.stage(p, s.b), self.stage(p, s.acc)
        # Products of one thread into one accumulator execute in order, so this one takes up what those before it leave.
        flying = [q for q in p.tensor if q.at == into and not q.done]
        again = bool(self.value(p, s.accumulate))
        held = flying[-1].out if flying else (self.get(into, False) if again else Tile(None))
        acc = held if again else Tile(None)
        out = Tile(None, ready=False)

        def work() -> None:
            self.product(self.get(at, True), self.get(bt, True), acc, out)
            self.put(into, out, False)

        p.tensor.append(Product(into, out, work))
        if self.rng.random() < 0.7:
            self.put(into, GARBAGE, False)

    def commit(self, p: Proc, b: Bar) -> None:
        p.commits.append(([q for q in p.tensor if not q.done], b))

    def depth(self) -> int:
        """Length of a contraction step; 0 for a kernel without products."""
        for s in ir.walk(self.k.body):
            if isinstance(s, ir.For) and isinstance(s.hi, ex.Size | ex.Bin):
                return s.step
        return 0

    def drain(self, queue: list[Work], pending: int) -> None:
        while len(queue) > pending:
            queue.pop(0)()

    # ---- scheduling
    def go(self, most: int = 100_000) -> None:
        pick = self.rng.choice
        weights = [pick((1, 1, 5, 30)) for _ in self.procs]
        copying, computing = pick((0.02, 0.2, 1, 5)), pick((0.02, 0.2, 1, 5))
        for _ in range(most):
            agents: list[tuple[float, Work]] = []
            for (p, body), w in zip(self.procs, weights, strict=True):
                if not p.done and not p.blocked:
                    agents.append((w, partial(self.step, p, body)))
                agents += [(computing, partial(self.complete, queue)) for queue in (p.products, p.stores) if queue]
                if p.copies:
                    agents.append((computing, partial(self.complete_copies, p)))
                agents += [(computing, partial(self.execute, q)) for q in self.first(p)]
                if p.commits and all(q.done for q in p.commits[0][0]):
                    agents.append((computing, partial(self.signal, p)))
            agents += [(copying, partial(self.deliver, work)) for work in self.flying]
            if not agents:
                break
            _, act = self.rng.choices(agents, [w for w, _ in agents])[0]
            act()
        else:
            raise Bad("no end")
        if any(not p.done for p, _ in self.procs):
            raise Bad("deadlock")
        if any(n != 1 for n in self.written.values()):
            raise Bad("written twice")

    def step(self, p: Proc, body: Blocked) -> None:
        try:
            moved = next(body)
        except StopIteration:
            # Groups that hold no copy, committed to keep count, may stay.
            if p.products or p.stores or any(p.copies) or p.open:
                raise Bad("pending at exit") from None
            p.done = moved = True
            if all(q.done for q, _ in self.procs) and any(not w.done for q, _ in self.procs for w in q.tensor):
                raise Bad("product pending at exit") from None
        p.blocked = not moved
        if moved:
            self.wake()

    def complete(self, queue: list[Work]) -> None:
        queue.pop(0)()
        self.wake()

    def first(self, p: Proc) -> list[Product]:
        """The next product into each accumulator: different ones complete in any order."""
        p.tensor = [q for q in p.tensor if not q.done]
        return list({q.at: q for q in reversed(p.tensor)}.values())

    def execute(self, q: Product) -> None:
        q.work()
        q.done = True

    def signal(self, p: Proc) -> None:
        _, b = p.commits.pop(0)
        b.arrive(1, 0)
        self.wake()

    def complete_copies(self, p: Proc) -> None:
        for work in p.copies.pop(0):
            work()

    def deliver(self, work: Work) -> None:
        self.flying.remove(work)
        work()
        self.wake()

    def wake(self) -> None:
        for q, _ in self.procs:
            q.blocked = False


def simulate(kernel: ir.Kernel, sizes: dict[str, int], programs: int, number: int, seed: int) -> str | None:
    """What goes wrong in one random run, or None."""
    try:
        Run(kernel, sizes, programs, number, seed).go()
    except Bad as bad:
        return str(bad)
    return None


def trial(kernel: ir.Kernel, seeds: int, unit: tuple[int, int, int], persistent: bool) -> tuple[str, object] | None:
    """The first fault in some random runs at random sizes; `unit` are the tile extents of M, N, K.

    Without steps (K = 0) nothing is written to tensor memory; sizes are at least 1, so that is no run to judge by.
    """
    least = int(any(isinstance(s, ir.TensorLoad) for s in ir.walk(kernel.body)))
    for seed in range(seeds):
        rng = random.Random(seed)
        bm, bn, bk = unit
        n = max(least, rng.choice((0, 1, 2, 3, 4, 7)))
        k = max(0, n * bk - rng.choice((0, 0, 8)))
        sizes = {"M": bm * rng.choice((1, 2, 3)), "N": bn * rng.choice((1, 2)), "K": k}
        programs = rng.choice((1, 2)) if persistent else 1
        number = rng.randrange(programs)
        what = simulate(kernel, sizes, programs, number, seed)
        if what is not None:
            return what, (sizes, programs, number, seed)
    return None
