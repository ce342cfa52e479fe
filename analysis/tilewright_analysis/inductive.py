"""What holds at every turn of a `while` loop, and whether the loop ends.

Guesses about the scalars that the loop changes (they keep their order, and stay between what they begin with, small
constants and sizes) are all assumed where a turn begins; a guess that some path through the body does not pass on is
dropped, until the rest passes itself on (Flanagan and Leino, "Houdini", FME 2001). What is left holds by induction over
the turns. The loop ends if an integer that is never negative where a turn begins falls on every path.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir

from .integers import Binder, Decider, Question

_MARK = "°"
_MOST_PATHS = 16
_MOST_GUESSES = 40
_ROUNDS = 8

Env = Mapping[str, ex.Expr]


@dataclass(frozen=True, slots=True)
class Learned:
    """What holds whenever a turn begins, and behind the last; `ends` says why the loop ends, or is empty.

    `invariants` are over symbols and, for the scalars that the loop changes, names from `at`.
    """

    invariants: tuple[ex.Expr, ...] = ()
    ends: str = ""

    def holding(self, env: Env) -> list[ex.Expr]:
        """The invariants where the scalars are `env`."""
        return [ex.substitute(i, _at(env)) for i in self.invariants]


def _at(env: Env) -> Env:
    """`env` for expressions that tell the scalars of a loop from symbols of the same names."""
    return {f"{_MARK}{name}": value for name, value in env.items()}


@dataclass(frozen=True, slots=True)
class _Path:
    """One way through a body: what the scalars are at its end, and what holds on it."""

    env: Mapping[str, ex.Expr]
    facts: tuple[ex.Expr, ...]


NOTHING = Learned()


def learn(
    kernel: ir.Kernel,
    decider: Decider,
    loop: ir.While,
    env: Env,
    facts: Sequence[ex.Expr],
    scope: Sequence[Binder],
) -> Learned:
    """What is known of a loop that is entered with scalars `env` under `facts`."""
    return _Loop(kernel, decider, loop, dict(env), tuple(facts), tuple(scope)).learn()


@dataclass
class _Loop:
    kernel: ir.Kernel
    decider: Decider
    loop: ir.While
    env: dict[str, ex.Expr]
    facts: tuple[ex.Expr, ...]
    scope: tuple[Binder, ...]
    _made: list[Binder] = field(default_factory=list[Binder])
    _cond: ex.Expr = ex.Int(1)

    def learn(self) -> Learned:
        carried = sorted({s.dst for s in ir.walk(self.loop.body) if isinstance(s, ir.Assign)} & self.env.keys())
        if not carried:
            return NOTHING
        head: dict[str, ex.Expr] = {n: self._free(n) for n in carried}
        start = {**self.env, **head}
        known = [g for g in self._guesses(carried) if self._proves(ex.substitute(g, _at(self.env)), self.facts)]
        paths: list[_Path] = []
        for _ in range(_ROUNDS):
            assumed = tuple(ex.substitute(g, _at(head)) for g in known)
            entered = (*self.facts, *assumed, ex.substitute(self.loop.cond, start))
            found = self._paths(self.loop.body, _Path(start, entered))
            if found is None:
                return NOTHING
            paths = found
            kept = [g for g in known if all(self._proves(ex.substitute(g, _at(p.env)), p.facts) for p in paths)]
            if kept == known:
                break
            known = kept
        else:
            return NOTHING
        return Learned(tuple(known), self._ends(known, head, paths))

    # ------------------------------------------------------------------------------------ guesses

    def _guesses(self, carried: Sequence[str]) -> Iterator[ex.Expr]:
        """Candidates, likely ones first."""
        every = dict.fromkeys(self._all_guesses(carried))
        yield from list(every)[:_MOST_GUESSES]

    def _all_guesses(self, carried: Sequence[str]) -> Iterator[ex.Expr]:
        marked = {n: ex.Var(f"{_MARK}{n}") for n in carried}
        self._cond = ex.substitute(self.loop.cond, {**self.env, **marked})
        for part in _conjuncts(self._cond):
            match part:
                case ex.Bin("<" | "<=", lhs, rhs):
                    yield ex.Bin("<=", lhs, rhs)
                case ex.Bin("!=", lhs, rhs):
                    yield ex.Bin("<=", lhs, rhs)
                    yield ex.Bin("<=", rhs, lhs)
                case _:
                    pass
        first = {n: self.env[n] for n in carried}
        sizes = dict.fromkeys(s for p in self.kernel.params for s in p.type.shape if isinstance(s, ex.Size))
        for name in carried:
            value = marked[name]
            yield ex.Bin("<=", first[name], value)
            yield ex.Bin("<=", value, first[name])
            yield ex.Bin("<=", ex.Int(0), value)
            yield ex.Bin("<=", ex.Int(-1), value)
            for other in carried:
                if other != name:
                    yield ex.Bin("<=", value, marked[other])
                    yield ex.Bin("<=", value, first[other])
                    yield ex.Bin("<=", first[other], value)
            for size in sizes:
                yield ex.Bin("<", value, size)
                yield ex.Bin("<=", value, size)

    # ------------------------------------------------------------------------------------ one turn

    def _paths(self, block: ir.Block, start: _Path) -> list[_Path] | None:
        """The ways through a block; None where there are too many."""
        paths = [start]
        for stmt in block:
            match stmt:
                case ir.Assign(dst=dst, value=value):
                    paths = [self._assigned(p, dst, value) for p in paths]
                case ir.If(cond=cond, then=then, orelse=orelse):
                    more: list[_Path] = []
                    for p in paths:
                        holds = ex.substitute(cond, p.env)
                        for fact, taken in ((holds, then), (ex.negate(holds), orelse)):
                            found = self._paths(taken, _Path(p.env, (*p.facts, fact)))
                            if found is None:
                                return None
                            more += found
                    paths = more
                case ir.For(var=var, body=body) | ir.While(turn=var, body=body):
                    changed = {s.dst for s in ir.walk(body) if isinstance(s, ir.Assign)} | {var}
                    paths = [self._after(p, stmt, sorted(changed)) for p in paths]
                case _:
                    pass
            if len(paths) > _MOST_PATHS:
                return None
        return paths

    def _assigned(self, path: _Path, dst: str, value: ex.Expr) -> _Path:
        made = ex.substitute(value, path.env)
        facts = path.facts
        if isinstance(made, ex.Item):
            # That the element exists is the obligation of the access, and a fact for whoever comes after it.
            for index, extent in zip(made.index, self.kernel.param(made.tensor).type.shape, strict=True):
                facts = (*facts, ex.Bin("<=", ex.Int(0), index), ex.Bin("<", index, extent))
        return _Path({**path.env, dst: made}, facts)

    def _after(self, path: _Path, stmt: ir.Stmt, changed: Sequence[str]) -> _Path:
        env = {**path.env, **{n: self._free(n) for n in changed}}
        facts = path.facts
        if isinstance(stmt, ir.While):
            facts = (*facts, ex.negate(ex.substitute(stmt.cond, env)))
        return _Path(env, facts)

    # ------------------------------------------------------------------------------------ the end

    def _ends(self, known: Sequence[ex.Expr], head: Env, paths: Sequence[_Path]) -> str:
        """What falls from turn to turn; empty if nothing that is tried does."""
        # Left of `<` or `<=` stays on that side whenever a turn begins, so the distance is never negative.
        for part in dict.fromkeys((*_conjuncts(self._cond), *known)):
            if not isinstance(part, ex.Bin) or part.op not in ("<", "<="):
                continue
            distance = ex.sub(part.rhs, part.lhs)
            before = ex.substitute(distance, _at(head))
            if all(self._proves(ex.Bin("<", ex.substitute(distance, _at(p.env)), before), p.facts) for p in paths):
                return f"{ex.show(distance).replace(_MARK, '')} falls"
        return ""

    # ------------------------------------------------------------------------------------ questions

    def _proves(self, claim: ex.Expr, facts: Sequence[ex.Expr]) -> bool:
        if isinstance(claim, ex.Int):
            return bool(claim.value)
        bound = (*self.scope, *self._made)
        bounds = (e for b in bound if b.bounded for e in (b.lo, b.hi))
        names = {e.name for part in (claim, *facts, *bounds) for e in ex.walk(part) if isinstance(e, ex.Var)}
        loose = sorted(names - {b.name for b in bound})
        kept = tuple(b for b in bound if b.kind != "free" or b.name in names)
        return self.decider.proves(Question(claim, tuple(facts), (*kept, *(Binder(n, n, "free") for n in loose))))

    def _free(self, label: str) -> ex.Expr:
        binder = Binder(f"{label}°{len(self._made) + 1}", label, "free")
        self._made.append(binder)
        return ex.Var(binder.name)


def _conjuncts(e: ex.Expr) -> Iterator[ex.Expr]:
    match e:
        case ex.Bin("and", lhs, rhs):
            yield from _conjuncts(lhs)
            yield from _conjuncts(rhs)
        case _:
            yield e
