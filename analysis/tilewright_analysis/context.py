"""Facts about a kernel that all checks share: what surrounds each statement, and scalars over sizes and binders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from time import thread_time

from tilewright.interpret import Violation
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.erase import without_tags
from tilewright.ir.stages import seen
from tilewright.ir.types import SharedType, TileType
from tilewright.layout import LayoutError
from tilewright.source import NO_SPAN, Span

from .async_.model import AsyncResult
from .dies import tile_number
from .inductive import NOTHING, Learned, learn
from .integers import Binder, Decider, Decision, Question
from .walk import first_failure

# A scalar whose expression grows past this many nodes is no longer tracked.
_MAX_NODES = 400


@dataclass(frozen=True)
class Site:
    """A statement with its surroundings.

    `facts` hold whenever the statement runs: assumptions, conditions of the branches around it, and what is known of
    counters. `binders` are the symbols in scope, outermost first; `conditions` the branch conditions alone. `env`
    gives each scalar as an expression over sizes and binders.
    """

    stmt: ir.Stmt
    role: str
    binders: tuple[Binder, ...]
    conditions: tuple[ex.Expr, ...]
    facts: tuple[ex.Expr, ...]
    env: Mapping[str, ex.Expr] = field(compare=False)

    def value(self, expr: ex.Expr) -> ex.Expr:
        """`expr` over sizes and binders."""
        return ex.substitute(expr, self.env)

    def question(self, claim: ex.Expr) -> Question:
        """Does `claim`, over sizes and binders, hold whenever this statement runs?"""
        names = self._variables.union(e.name for e in ex.walk(claim) if isinstance(e, ex.Var))
        kept = tuple(b for b in self.binders if b.kind != "free" or b.name in names)
        unbound = sorted(names - {b.name for b in kept})
        return Question(claim, self.facts, (*kept, *(Binder(n, n, "free") for n in unbound)))

    @cached_property
    def _variables(self) -> frozenset[str]:
        """Symbols other than sizes in facts and bounds."""
        bounds = (e for b in self.binders if b.bounded for e in (b.lo, b.hi))
        return frozenset(e.name for part in (*self.facts, *bounds) for e in ex.walk(part) if isinstance(e, ex.Var))

    @property
    def loops(self) -> tuple[Binder, ...]:
        """Binders of the grid and of loops, without untracked values."""
        return tuple(b for b in self.binders if b.kind != "free")


@dataclass(frozen=True)
class GridSite:
    """A `Programs` statement with its count over sizes."""

    stmt: ir.Programs
    role: str
    count: ex.Expr
    facts: tuple[ex.Expr, ...]


class KernelContext:
    """One explicit kernel, its sites, and the decider that answers questions about it.

    `kernel` is without its statements about tags, `tagged` with them.

    `source` is the text of the kernel if there is one, `written` the kernel before expansion: spans of fixes refer to
    both. `reference` is what the kernel declares to compute; empty where it does not.
    """

    def __init__(
        self, kernel: ir.Kernel, decider: Decider, *, written: ir.Kernel | None = None, source: str | None = None,
        reference: str = "",
    ) -> None:  # fmt: skip
        self.kernel = without_tags(kernel)
        self.tagged = kernel
        self.decider = decider
        self.written = written or kernel
        self.source = source
        self.reference = reference
        self.refuted: set[str] = set()
        self.exploration: AsyncResult | None = None
        self.shown: tuple[Mapping[str, int], Violation | None] | None = None
        self.deadline = inf

    def seconds_left(self) -> float:
        """Computing time of this thread until the deadline that the driver set, at least 0."""
        return max(0.0, self.deadline - thread_time())

    @cached_property
    def sites(self) -> tuple[Site, ...]:
        """Every statement in source order."""
        return tuple(self._walked.sites)

    @cached_property
    def learned(self) -> Mapping[int, Learned]:
        """What is known of each `while` loop, by its id."""
        return self._walked.learned

    @cached_property
    def _walked(self) -> _Walker:
        walker = _Walker(tuple(a.expr for a in self.kernel.assumptions), self.kernel, self.decider)
        walker.block(self.kernel.body, {}, ())
        return walker

    @cached_property
    def grids(self) -> tuple[GridSite, ...]:
        """The `Programs` statements in source order."""
        found: list[GridSite] = []
        for site in self.sites:
            if isinstance(site.stmt, ir.Programs):
                found.append(GridSite(site.stmt, site.role, site.value(site.stmt.count), site.facts))
        return tuple(found)

    @cached_property
    def assumptions(self) -> tuple[ex.Expr, ...]:
        """What the kernel assumes of its sizes."""
        return tuple(a.expr for a in self.kernel.assumptions)

    @cached_property
    def role_warps(self) -> dict[str, int]:
        """Warps of each role by name; the kernel's own under the empty name."""
        found = {"": self.kernel.warps}
        for stmt in ir.walk(self.kernel.body):
            if isinstance(stmt, ir.Roles):
                found |= {r.name: r.warps for r in stmt.roles}
        return found

    def decide(self, site: Site, claim: ex.Expr) -> Decision:
        """Does `claim`, in the names of the source, hold whenever the statement of `site` runs?

        Where the symbols do not tell, the scalars are run at small sizes in search of a counterexample.
        """
        decision = self.decider.decide(site.question(site.value(claim)))
        if decision.verdict != "unknown":
            return decision
        values = first_failure(self.kernel, site.stmt, claim)
        if values is None:
            return decision
        model = {s: values[s] for s in self.kernel.sizes}
        model |= {b.name: values[b.label] for b in site.binders if b.label in values}
        return Decision("refuted", "small sizes", model)

    def shared(self, name: str) -> SharedType | None:
        """The type of a shared buffer; None if the name is something else."""
        found = self.kernel.types.get(name)
        return found if isinstance(found, SharedType) else None

    def stage(self, ref: ir.BufRef) -> SharedType | None:
        """The type of a stage as `ref` sees it; None if its buffer is not shared or has no transposed view."""
        try:
            return seen(self.kernel.types, ref) if self.shared(ref.buffer) is not None else None
        except LayoutError:
            return None

    def tile(self, name: str) -> TileType | None:
        """The type of a register tile; None if the name is something else."""
        found = self.kernel.types.get(name)
        return found if isinstance(found, TileType) else None

    def views(self) -> Iterator[tuple[Site, ir.View]]:
        """Every access to a global tensor."""
        for site in self.sites:
            if isinstance(site.stmt, ir.Load | ir.Store | ir.Atomic | ir.TmaLoad | ir.TmaStore | ir.CpAsync):
                yield site, site.stmt.view
            elif isinstance(site.stmt, ir.Assign) and isinstance(site.stmt.value, ex.Item):
                item = site.stmt.value
                rank = len(item.index)
                yield site, ir.View(item.tensor, item.index, (1,) * rank, rank)

    def tables(self, model: Mapping[str, int]) -> dict[str, list[object]]:
        """The index tensors that a model of a counterexample holds, as nested lists."""
        found: dict[str, list[object]] = {}
        for name in self.decider.functions.extents:
            shape = self.decider.functions.shape(name, model)
            if shape and ex.item_key(name, (0,) * len(shape)) in model:
                found[name] = _nested(name, (), shape, model)
        return found

    def sites_of(self, *kinds: type[ir.Stmt]) -> Iterator[Site]:
        """Sites of statements of the given classes."""
        return (s for s in self.sites if isinstance(s.stmt, kinds))

    @cached_property
    def definitions(self) -> Mapping[str, Site]:
        """The statement that computes a register tile, for those that one statement alone computes."""
        found: dict[str, list[Site]] = {}
        for site in self.sites:
            name = getattr(site.stmt, "dst", None)
            if isinstance(name, str) and self.tile(name) is not None:
                found.setdefault(name, []).append(site)
        return {name: made[0] for name, made in found.items() if len(made) == 1}

    def alloc_span(self, name: str) -> Span:
        """Where a buffer or barrier is allocated."""
        for stmt in ir.walk(self.kernel.body):
            if isinstance(stmt, ir.AllocShared | ir.AllocBarrier | ir.AllocTensor) and stmt.dst == name:
                return stmt.span
        return self.kernel.span


def view_span(stmt: ir.Stmt, view: ir.View) -> Span:
    """The place of the tile call, or of the statement if the view has none."""
    return view.span if view.span != NO_SPAN else stmt.span


def _nested(name: str, at: tuple[int, ...], shape: tuple[int, ...], model: Mapping[str, int]) -> list[object]:
    if len(at) + 1 == len(shape):
        return [model.get(ex.item_key(name, (*at, i)), 0) for i in range(shape[-1])]
    return [_nested(name, (*at, i), shape, model) for i in range(shape[len(at)])]


def assigned(block: ir.Block) -> set[str]:
    """Names of scalars that a block assigns, those of its loops included."""
    found: set[str] = set()
    for stmt in ir.walk(block):
        match stmt:
            case ir.Assign(dst=name) | ir.For(var=name) | ir.Programs(var=name):
                found.add(name)
            case _:
                pass
    return found


Env = dict[str, ex.Expr]
Scope = tuple[Binder, ...]


class _Walker:
    """Symbolic execution of scalars: assignments are substituted, values carried around loops become free symbols."""

    def __init__(self, assumptions: Sequence[ex.Expr], kernel: ir.Kernel, decider: Decider) -> None:
        self._kernel = kernel
        self._decider = decider
        self.learned: dict[int, Learned] = {}
        self.sites: list[Site] = []
        self._facts = list(assumptions)
        self._conditions: list[ex.Expr] = []
        self._role = ""
        self._used: dict[str, int] = {}

    def block(self, block: ir.Block, env: Env, scope: Scope) -> Scope:
        """Walk a block, updating `env`; returns the scope with the free symbols that the block added."""
        for stmt in block:
            self.sites.append(Site(stmt, self._role, scope, tuple(self._conditions), tuple(self._facts), dict(env)))
            scope = self._statement(stmt, env, scope)
        return scope

    def _statement(self, stmt: ir.Stmt, env: Env, scope: Scope) -> Scope:
        match stmt:
            case ir.Assign(dst=dst, value=ex.Item(tensor) as item):
                loaded, scope = self._resolve(item, env, scope, stmt.span)
                env[dst] = loaded
                # Whoever comes after an access may take it that the element exists; that is the access's obligation.
                extents = self._kernel.param(tensor).type.shape
                indices = loaded.index if isinstance(loaded, ex.Item) else ()
                for index, extent in zip(indices, extents, strict=True):
                    self._facts += [ex.Bin("<=", ex.Int(0), index), ex.Bin("<", index, extent)]
                return scope
            case ir.Assign(dst=dst, value=value):
                new, scope = self._resolve(value, env, scope, stmt.span)
                if sum(1 for _ in ex.walk(new)) > _MAX_NODES:
                    free = self._free(dst, stmt.span)
                    new, scope = ex.Var(free.name), (*scope, free)
                env[dst] = new
                return scope
            case ir.For(var=var, lo=lo, hi=hi, step=step, body=body):
                lo, scope = self._resolve(lo, env, scope, stmt.span)
                hi, scope = self._resolve(hi, env, scope, stmt.span)
                binder = Binder(self._fresh(var), var, "loop", lo, hi, step, stmt.span)
                return self._loop(body, binder, env, scope)
            case ir.While():
                return self._while(stmt, env, scope)
            case ir.Programs(var=var, count=count, body=body):
                numbered = tile_number(stmt)
                count, scope = self._resolve(count, env, scope, stmt.span)
                if numbered is None:
                    binder = Binder(self._fresh(var), var, "program", ex.Int(0), count, 1, stmt.span)
                    return self._loop(body, binder, env, scope)
                name, dies = numbered
                binder = Binder(self._fresh(name), name, "program", ex.Int(0), count, 1, stmt.span, dies)
                return self._loop(body[1:], binder, env, scope)
            case ir.If(cond=cond, then=then, orelse=orelse):
                cond, scope = self._resolve(cond, env, scope, stmt.span)
                return self._branch(cond, then, orelse, env, scope, stmt.span)
            case ir.Roles(roles=roles):
                for role in roles:
                    before, self._role = self._role, role.name
                    self.block(role.body, dict(env), scope)
                    self._role = before
                return scope
            case _:
                return scope

    def _while(self, stmt: ir.While, env: Env, scope: Scope) -> Scope:
        """As the range of its counter, or some number of turns under the condition; behind it, that is false."""
        known = learn(self._kernel, self._decider, stmt, env, self._facts, scope)
        # Roles may share a statement: it ends if it ends in all of them.
        if id(stmt) not in self.learned or not known.ends:
            self.learned[id(stmt)] = known
        loop = stmt.counted
        self.sites.append(Site(loop, self._role, scope, tuple(self._conditions), tuple(self._facts), dict(env)))
        lo, scope = self._resolve(loop.lo, env, scope, stmt.span)
        hi, scope = self._resolve(loop.hi, env, scope, stmt.span)
        binder = Binder(self._fresh(loop.var), loop.var, "loop", lo, hi, loop.step, stmt.span)
        scope = self._loop(loop.body, binder, env, scope, known)
        if stmt.counter:
            turns = ex.binary("max", ex.Int(0), ex.cdiv(ex.sub(hi, lo), ex.Int(loop.step)))
            env[stmt.counter] = ex.add(lo, ex.mul(turns, ex.Int(loop.step)))
        ended, scope = self._resolve(stmt.cond, env, scope, stmt.span)
        self._facts.append(ex.negate(ended))
        return scope

    def _loop(self, body: ir.Block, binder: Binder, env: Env, scope: Scope, known: Learned = NOTHING) -> Scope:
        """`known` holds whenever an iteration begins and behind the last."""
        carried = [n for n in sorted(assigned(body)) if n in env]
        before = dict(env)
        mark = len(self._facts)
        inner: Env = dict(env)
        inside = scope
        for name in carried:
            free, facts = self._carried(name, body, before[name])
            inside, inner[name] = (*inside, free), ex.Var(free.name)
            self._facts += facts
        inner[binder.label] = ex.Var(binder.name)
        self._facts += known.holding(inner)
        self.block(body, inner, (*inside, binder))
        del self._facts[mark:]
        for name in carried:
            free, facts = self._carried(name, body, before[name])
            scope, env[name] = (*scope, free), ex.Var(free.name)
            self._facts += facts
        self._facts += known.holding(env)
        # A variable that only the body assigns has no value after a loop that may not run.
        env.pop(binder.label, None)
        return scope

    def _carried(self, name: str, body: ir.Block, initial: ex.Expr) -> tuple[Binder, list[ex.Expr]]:
        """A free symbol for a value carried around a loop; a counter that only grows is at least its initial value."""
        free = self._free(name, NO_SPAN)
        grows = True
        for stmt in ir.walk(body):
            match stmt:
                case ir.Assign(dst=dst, value=ex.Bin("+", ex.Var(other), ex.Int(step))) if dst == name == other:
                    grows &= step >= 0
                case ir.Assign(dst=dst) if dst == name:
                    grows = False
                case ir.For(var=var) | ir.Programs(var=var) if var == name:
                    grows = False
                case _:
                    pass
        return free, [ex.Bin("<=", initial, ex.Var(free.name))] if grows else []

    def _branch(self, cond: ex.Expr, then: ir.Block, orelse: ir.Block, env: Env, scope: Scope, span: Span) -> Scope:
        ends: list[Env] = []
        for condition, block in ((cond, then), (ex.negate(cond), orelse)):
            mark = len(self._facts)
            branch = dict(env)
            self._facts.append(condition)
            self._conditions.append(condition)
            self.block(block, branch, scope)
            self._conditions.pop()
            del self._facts[mark:]
            ends.append(branch)
        for name in sorted(assigned(then) | assigned(orelse)):
            values = [e.get(name) for e in ends]
            if values[0] is not None and values[0] == values[1]:
                env[name] = values[0]
            elif values[0] is None or values[1] is None:
                env.pop(name, None)
            else:
                free = self._free(name, span)
                env[name], scope = ex.Var(free.name), (*scope, free)
        return scope

    def _resolve(self, expr: ex.Expr, env: Env, scope: Scope, span: Span) -> tuple[ex.Expr, Scope]:
        """`expr` over symbols; a variable without a known value becomes a free symbol."""
        result = ex.substitute(expr, env)
        known = {b.name for b in scope}
        unknown = sorted({e.name for e in ex.walk(result) if isinstance(e, ex.Var)} - known)
        for name in unknown:
            free = self._free(name, span)
            scope = (*scope, free)
            result = ex.substitute(result, {name: ex.Var(free.name)})
        return result, scope

    def _fresh(self, label: str) -> str:
        self._used[label] = self._used.get(label, 0) + 1
        return label if self._used[label] == 1 else f"{label}'{self._used[label]}"

    def _free(self, label: str, span: Span) -> Binder:
        return Binder(self._fresh(f"{label}?"), label, "free", span=span)
