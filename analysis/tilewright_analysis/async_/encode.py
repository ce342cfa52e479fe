"""From an explicit kernel to flat code: scalars compiled, loop bounds turned into shared oracles.

Everything that the normal form relies on is derived here from the statements, nothing is declared by the kernel:
which scalars are functions of sizes and the program number (opaque, compared by canonical form), which change as the
kernel runs (slots with concrete values), and which conditions compare a position with a trip count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from fractions import Fraction
from math import gcd

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.types import BarrierType, SharedType, TileType
from tilewright.source import Span
from tilewright_analysis.async_ import code as c
from tilewright_analysis.async_ import forms
from tilewright_analysis.async_.forms import Facts, Form
from tilewright_analysis.async_.model import Unsupported
from tilewright_analysis.async_.shifts import Uses, classify


def encode(kernel: ir.Kernel) -> c.Program:
    """The code of every role. Raises Unsupported for what the engine cannot decide."""
    # Twice: a condition such as `0 < K` ahead of a loop is about the trip count of that loop, known after one pass.
    loops = [o.trip for o in _encode(kernel, ()).oracles if not o.is_programs]
    return _encode(kernel, tuple(dict.fromkeys(sorted(loops, key=lambda trip: -trip.step))))


def _encode(kernel: ir.Kernel, loops: tuple[forms.Trip, ...]) -> c.Program:
    tables = Tables(kernel, loops)
    roles: list[ir.Role] = []
    rest: list[ir.Stmt] = []
    for stmt in kernel.body:
        match stmt:
            case ir.AllocShared(dst=name):
                tables.add_buffer(name, stmt)
            case ir.AllocBarrier(dst=name):
                tables.add_barrier(name, stmt)
            case ir.Roles(roles=more):
                roles += more
            case _:
                rest.append(stmt)
    if roles and rest:
        raise Unsupported("statements beside the roles are not modelled; move them into a role", rest[0].span)
    if not roles:
        roles = [ir.Role("", kernel.warps, None, tuple(rest))]
    encoded = [RoleEncoder(tables, role).encode() for role in roles]
    by_trip: dict[tuple[forms.Trip, int | None], list[int]] = {}
    for i, o in enumerate(tables.oracles):
        by_trip.setdefault((o.trip, o.outer), []).append(i)
    siblings = [tuple(by_trip[o.trip, o.outer]) for o in tables.oracles]
    return c.Program(
        kernel, encoded, tables.oracles, tables.symbols, tables.dims, tables.buffers, tables.barriers,
        [frozenset(t) for t in tables.ties], tables.small, siblings,
    )  # fmt: skip


class Tables:
    """What the roles share: buffers, barriers, oracles, and the numbering of symbols and dimensions."""

    def __init__(self, kernel: ir.Kernel, loops: tuple[forms.Trip, ...]) -> None:
        self.kernel = kernel
        self.loops = loops
        self.facts = Facts.of(kernel.assumptions)
        self.buffers: dict[str, c.Buffer] = {}
        self.barriers: dict[str, c.Barrier] = {}
        self.oracles: list[c.Oracle] = []
        self.ties: list[set[int]] = []
        self.small: list[int] = []
        self.symbols: list[Form] = [forms.ZERO]
        self.dims: list[Form] = []
        self._oracle_of: dict[tuple[forms.Trip, int | None, int], int] = {}
        self._slots = 0

    def add_buffer(self, name: str, stmt: ir.Stmt) -> None:
        kind = self.kernel.types[name]
        assert isinstance(kind, SharedType)
        self.buffers[name] = c.Buffer(name, kind.stages, kind.shape, kind.stage_bytes, stmt)

    def add_barrier(self, name: str, stmt: ir.Stmt) -> None:
        kind = self.kernel.types[name]
        assert isinstance(kind, BarrierType)
        self.barriers[name] = c.Barrier(name, kind.slots, kind.arrivals, self._slots, stmt)
        self._slots += kind.slots

    def oracle(self, trip: forms.Trip, outer: int | None, occurrence: int, programs: bool = False) -> int:
        """The number of the oracle of a trip count."""
        key = (trip, outer, occurrence)
        if key not in self._oracle_of:
            low, high = self.facts.bounds(trip.form)
            low, high = (v if abs(v) == float("inf") else -(-v // trip.step) for v in (low, high))
            if programs:
                low, high = 0.0, float("inf")
            self._oracle_of[key] = len(self.oracles)
            self.oracles.append(c.Oracle(trip, outer, occurrence, low, high, programs))
            self.ties.append(set())
            self.small.append(0)
        return self._oracle_of[key]

    def symbol(self, form: Form) -> int:
        """The number of an opaque form."""
        return _intern(self.symbols, form)

    def dim(self, extent: Form) -> int:
        """The number of a dimension, known by its extent."""
        return _intern(self.dims, extent)


def _intern(table: list[Form], form: Form) -> int:
    if form not in table:
        table.append(form)
    return table.index(form)


class RoleEncoder:
    """Encodes one role. Slot names: `$x` for a scalar that changes, `#n` for the position in the n-th loop."""

    def __init__(self, tables: Tables, role: ir.Role) -> None:
        self.t = tables
        self.role = role
        self.groups = max(1, role.warps // 4)
        self.code: list[c.Instr] = []
        self.slots: dict[str, int] = {}
        self.loops: list[c.Loop] = []
        self.uses = Uses()
        self.env: dict[str, Form] = {}
        self.active: list[c.Loop] = []
        self.outer: int | None = None  # oracle of the enclosing symbolic loop of level 0
        self.program: str | None = None  # slot of the persistent program loop around
        self.programs = 0
        self.occurrences: Counter[tuple[forms.Trip, int | None]] = Counter()
        assigned = Counter(s.dst for s in ir.walk(role.body) if isinstance(s, ir.Assign))
        self.mutable = {name for name, times in assigned.items() if times > 1}
        self.loop_of_slot: dict[str, c.Loop] = {}

    def encode(self) -> c.RoleCode:
        # A scalar assigned once is a slot too if it depends on one that changes; find those first.
        changed = True
        assigns = [s for s in ir.walk(self.role.body) if isinstance(s, ir.Assign)]
        while changed:
            more = {s.dst for s in assigns if ex.names(s.value) & self.mutable} - self.mutable
            self.mutable |= more
            changed = bool(more)
        for stmt in ir.walk(self.role.body):
            if isinstance(stmt, ir.For | ir.Programs) and any(a.dst == stmt.var for a in assigns):
                raise Unsupported(f"the loop variable '{stmt.var}' is assigned", stmt.span)
        self.block(self.role.body)
        result = c.RoleCode(self.role.name, self.groups, self.code, self.slots, self.loops)
        classify(result, self.uses)
        return result

    # ------------------------------------------------------------------------------------------- scalars

    def slot(self, name: str) -> int:
        return self.slots.setdefault(name, len(self.slots))

    def form(self, expr: ex.Expr, span: Span) -> Form:
        env = self.env
        for name in ex.names(expr):
            if name in self.mutable:
                env.setdefault(name, forms.atom(ex.Var("$" + name)))
        form = forms.canonical(expr, env, self.t.facts)
        known = set(self.t.kernel.sizes)
        for name in form.names():
            if not name.startswith(("$", "#", "%")) and name not in known:
                raise Unsupported(f"'{name}' is used where its value is not known to be fixed", span)
        return form

    def concrete(self, form: Form) -> bool:
        return all(n.startswith(("$", "#")) for n in form.names())

    def scalar(self, expr: ex.Expr, span: Span, what: str) -> tuple[c.Scalar, frozenset[int]]:
        """A scalar that must not depend on sizes, used for its exact value."""
        form = self.form(expr, span)
        if not self.concrete(form):
            raise Unsupported(f"the {what} `{ex.show(expr)}` depends on sizes or the program number", span)
        value = forms.to_expr(form)
        self.uses.exact.append(value)
        return self.compiled(value)

    def compiled(self, value: ex.Expr) -> tuple[c.Scalar, frozenset[int]]:
        used = frozenset(self.slot(n) for n in ex.names(value))
        return c.compile_scalar(value, self.slots), used

    def coordinate(self, expr: ex.Expr, span: Span) -> tuple[c.Coordinate, frozenset[int]]:
        form = self.form(expr, span)
        slopes: list[tuple[int, int]] = []
        symbolic = forms.ZERO
        value = forms.constant(form.const)
        rest = forms.constant(form.const)
        for key, coefficient in form.terms:
            term = forms.scale(forms.atom(key), coefficient)
            if self.concrete(term):
                value = forms.add(value, term)
                loop = self.loop_of_slot.get(key.name) if isinstance(key, ex.Var) else None
                if loop is not None and loop.oracle is not None and coefficient.denominator == 1:
                    slopes.append((loop.oracle, int(coefficient)))
                else:
                    rest = forms.add(rest, term)
            elif any(n.startswith(("$", "#")) for n in term.names()):
                raise Unsupported(f"the coordinate `{ex.show(expr)}` is not linear in the loop position", span)
            else:
                symbolic = forms.add(symbolic, term)
        self.uses.exact.append(forms.to_expr(rest))
        outer = self.program is not None and any(n.startswith("%") for n in symbolic.names())
        scalar, used = self.compiled(forms.to_expr(value))
        return c.Coordinate(self.t.symbol(symbolic), outer, scalar, tuple(slopes), ex.show(expr)), used

    # ------------------------------------------------------------------------------------------- control

    def emit(self, instr: c.Instr) -> c.Instr:
        instr.number = len(self.code)
        self.code.append(instr)
        return instr

    def block(self, block: ir.Block) -> None:
        before = dict(self.env)
        for stmt in block:
            self.statement(stmt)
        self.env = before

    def statement(self, stmt: ir.Stmt) -> None:
        match stmt:
            case ir.Assign():
                self.assign(stmt)
            case ir.For(var=var, lo=lo, hi=hi, step=step, body=body):
                bottom, top = self.form(lo, stmt.span), self.form(hi, stmt.span)
                self.loop(stmt, var, bottom, forms.add(top, bottom, -1), step, body)
            case ir.Programs():
                self.program_loop(stmt)
            case ir.If(cond=cond, then=then, orelse=orelse):
                self.branch(stmt, cond, then, orelse)
            case ir.AllocShared() | ir.AllocBarrier() | ir.Roles():
                raise Unsupported("buffers, barriers and roles inside of other statements are not modelled", stmt.span)
            case _:
                self.operation(stmt)

    def assign(self, stmt: ir.Assign) -> None:
        form = self.form(stmt.value, stmt.span)
        if stmt.dst not in self.mutable:
            self.env[stmt.dst] = form
            return
        if not self.concrete(form):
            raise Unsupported(f"'{stmt.dst}' changes and depends on sizes or the program number", stmt.span)
        value = forms.to_expr(form)
        self.uses.assigned.append(("$" + stmt.dst, form))
        scalar, used = self.compiled(value)
        target = self.slot("$" + stmt.dst)
        self.emit(c.SetScalar(target, scalar, stmt=stmt, uses=used, sets=target))

    def program_loop(self, stmt: ir.Programs) -> None:
        self.programs += 1
        number = ex.Var(f"%{self.programs}")
        count = self.form(stmt.count, stmt.span)
        if any(n.startswith(("#", "$")) for n in count.names()) or self.active:
            raise Unsupported("a program loop inside of another loop is not modelled", stmt.span)
        before = dict(self.env)
        self.env[stmt.var] = forms.atom(number)
        if not stmt.persistent:
            self.block(stmt.body)
        else:
            trip = forms.Trip(count, 1)
            occurrence = self.occurrences[trip, None]
            self.occurrences[trip, None] += 1
            oracle = self.t.oracle(trip, None, occurrence, programs=True)
            loop = self.new_loop(stmt.var, 0, oracle, 0, None)
            loop.first = 0
            self.program = f"#{len(self.loops) - 1}"
            self.run_loop(stmt, loop, frozenset(), stmt.body)
            self.program = None
        self.env = before

    def new_loop(self, var: str, level: int, oracle: int | None, offset: int, bound: c.Scalar | None) -> c.Loop:
        name = f"#{len(self.loops)}"
        loop = c.Loop(var, self.slot(name), level, oracle, offset, bound)
        self.loops.append(loop)
        self.loop_of_slot[name] = loop
        if oracle is not None:
            self.t.ties[oracle].add(oracle)
            self.uses.positions.add(name)
        return loop

    def loop(self, stmt: ir.Stmt, var: str, bottom: Form, extent: Form, step: int, body: ir.Block) -> None:
        before = dict(self.env)
        used: frozenset[int] = frozenset()
        if self.concrete(extent):
            limit = forms.to_expr(extent)
            self.uses.exact.append(limit)
            trips = ex.cdiv(limit, ex.Int(step))
            bound, used = self.compiled(trips)
            loop = self.new_loop(var, len(self.active), None, 0, bound)
        else:
            if any(n.startswith(("#", "$")) for n in extent.names()):
                raise Unsupported("the number of iterations mixes sizes with the position in another loop", stmt.span)
            level = sum(a.oracle is not None for a in self.active)
            if level > 1 or len(self.active) > level:
                raise Unsupported("this loop is nested too deeply for the engine", stmt.span)
            trip, offset = forms.trip_of(extent, step)
            occurrence = self.occurrences[trip, self.outer]
            self.occurrences[trip, self.outer] += 1
            oracle = self.t.oracle(trip, self.outer, occurrence)
            loop = self.new_loop(var, level, oracle, offset, None)
        loop.first, loop.step = int(bottom.const) if bottom.is_constant else None, step
        self.env[var] = forms.add(bottom, forms.atom(ex.Var(f"#{len(self.loops) - 1}")), step)
        self.run_loop(stmt, loop, used, body)
        self.env = before

    def run_loop(self, stmt: ir.Stmt, loop: c.Loop, used: frozenset[int], body: ir.Block) -> None:
        loop.start = len(self.code)
        self.emit(c.LoopHead(loop, stmt=stmt, uses=used))
        self.active.append(loop)
        if loop.level == 0 and loop.oracle is not None:
            self.outer = loop.oracle
        self.block(body)
        if loop.level == 0 and loop.oracle is not None:
            self.outer = None
        self.active.pop()
        self.emit(c.LoopBack(loop, stmt=stmt))
        loop.end = len(self.code)

    def branch(self, stmt: ir.If, cond: ex.Expr, then: ir.Block, orelse: ir.Block) -> None:
        no: list[c.Branch | c.Jump] = []
        self.condition(stmt, cond, no)
        self.block(then)
        if orelse:
            jump = c.Jump(stmt=stmt)
            self.emit(jump)
            self.land(no)
            self.block(orelse)
            jump.target = len(self.code)
        else:
            self.land(no)

    def land(self, jumps: Iterable[c.Branch | c.Jump]) -> None:
        for j in jumps:
            j.target = len(self.code)

    def condition(self, stmt: ir.If, cond: ex.Expr, no: list[c.Branch | c.Jump]) -> None:
        """Code that falls through when `cond` holds and otherwise takes one of the jumps added to `no`."""
        match cond:
            case ex.Bin("and", left, right):
                self.condition(stmt, left, no)
                self.condition(stmt, right, no)
            case ex.Bin("or", left, right):
                other: list[c.Branch | c.Jump] = []
                self.condition(stmt, left, other)
                jump = c.Jump(stmt=stmt)
                self.emit(jump)
                self.land(other)
                self.condition(stmt, right, no)
                jump.target = len(self.code)
            case ex.Not(ex.Bin("and" | "or" as op, left, right)):
                self.condition(stmt, ex.Bin("or" if op == "and" else "and", ex.negate(left), ex.negate(right)), no)
            case ex.Not(arg):
                other = []
                self.condition(stmt, arg, other)
                jump = c.Jump(stmt=stmt)
                self.emit(jump)
                no.append(jump)
                self.land(other)
            case ex.Bin("<" | "<=" as op, left, right):
                gap = forms.add(self.form(right, stmt.span), self.form(left, stmt.span), -1)
                self.positive(stmt, forms.add(gap, forms.constant(int(op == "<="))), no, ex.show(cond))
            case ex.Bin("==" | "!=" as op, left, right):
                gap = forms.add(self.form(right, stmt.span), self.form(left, stmt.span), -1)
                if self.concrete(gap):
                    self.concrete_test(stmt, ex.Bin(op, forms.to_expr(gap), ex.Int(0)), no)
                elif op == "==":
                    self.condition(stmt, ex.Bin("and", ex.Bin("<=", left, right), ex.Bin("<=", right, left)), no)
                else:
                    self.condition(stmt, ex.Bin("or", ex.Bin("<", left, right), ex.Bin("<", right, left)), no)
            case _:
                self.condition(stmt, ex.Bin("!=", cond, ex.Int(0)), no)

    def concrete_test(self, stmt: ir.If, test: ex.Expr, no: list[c.Branch | c.Jump]) -> None:
        self.uses.exact.append(test)
        scalar, used = self.compiled(test)
        branch = c.Branch(scalar, None, stmt=stmt, uses=used)
        self.emit(branch)
        no.append(branch)

    def positive(self, stmt: ir.If, gap: Form, no: list[c.Branch | c.Jump], text: str) -> None:
        """Test `gap > 0`."""
        if self.concrete(gap):
            self.concrete_test(stmt, ex.Bin("<", ex.Int(0), forms.to_expr(gap)), no)
            return
        symbolic = Form(tuple(t for t in gap.terms if not self.concrete(Form((t,), Fraction(0)))), Fraction(0))
        position = forms.add(gap, symbolic, -1)
        if any(n.startswith(("#", "$")) for n in symbolic.names()):
            raise Unsupported(f"the condition `{text}` mixes sizes with a loop position", stmt.span)
        if all(coefficient < 0 for _, coefficient in symbolic.terms):
            other: list[c.Branch | c.Jump] = []
            self.positive(stmt, forms.add(forms.scale(gap, -1), forms.constant(1)), other, text)
            jump = c.Jump(stmt=stmt)
            self.emit(jump)
            no.append(jump)
            self.land(other)
            return
        oracle, value = self.compared(symbolic, position)
        slopes = [(k.name, v) for k, v in value.terms if isinstance(k, ex.Var) and k.name in self.uses.positions]
        if len(slopes) > 1 or any(v != 1 for _, v in slopes):
            raise Unsupported(f"the condition `{text}` does not follow one loop step by step", stmt.span)
        rest = value
        for name, v in slopes:
            rest = forms.add(rest, forms.atom(ex.Var(name)), -v)
            tied = self.loop_of_slot[name].oracle
            assert tied is not None
            self.t.ties[oracle].add(tied)
        if not slopes and rest.is_constant:
            self.t.small[oracle] = max(self.t.small[oracle], int(rest.const) + 1)
        self.uses.exact.append(forms.to_expr(rest))
        scalar, used = self.compiled(forms.to_expr(value))
        branch = c.Branch(scalar, oracle, stmt=stmt, uses=used)
        self.emit(branch)
        no.append(branch)

    def compared(self, symbolic: Form, position: Form) -> tuple[int, Form]:
        """(oracle, v) with `symbolic + position > 0` equal to `v < N` of the oracle."""
        loops = [a.oracle for a in reversed(self.active) if a.oracle is not None]
        candidates = [(self.t.oracles[i].trip, i) for i in loops if not self.t.oracles[i].is_programs]
        for trip, i in (*candidates, *((trip, None) for trip in self.t.loops)):
            if len(trip.form.terms) != len(symbolic.terms):
                continue
            factor = trip.form.terms[0][1] / symbolic.terms[0][1]
            if factor <= 0 or forms.scale(symbolic, factor) != trip.form.without_constant():
                continue
            below = forms.add(forms.constant(trip.form.const), forms.scale(position, factor), -1)
            value = forms.scale(below, Fraction(1, trip.step))
            if all(v.denominator == 1 for v in (value.const, *(v for _, v in value.terms))):
                return self.t.oracle(trip, self.outer, 0) if i is None else i, value
        step = gcd(*(int(v) for _, v in position.terms)) or 1
        bound = forms.add(symbolic, forms.constant(position.const))
        trip, offset = forms.trip_of(bound, step)
        moving = Form(position.terms, Fraction(0))
        value = forms.add(forms.constant(-offset), forms.scale(moving, Fraction(-1, step)))
        return self.t.oracle(trip, self.outer, 0), value

    # ------------------------------------------------------------------------------------------- operations

    def operation(self, stmt: ir.Stmt) -> None:
        used: set[int] = set()

        def scalar(expr: ex.Expr, what: str) -> c.Scalar:
            value, more = self.scalar(expr, stmt.span, what)
            used.update(more)
            return value

        def box(view: ir.View) -> c.Box:
            origin: list[c.Coordinate] = []
            for e in view.origin:
                coordinate, more = self.coordinate(e, stmt.span)
                used.update(more)
                origin.append(coordinate)
            extents = self.t.kernel.param(view.tensor).type.shape
            dims = tuple(self.t.dim(forms.canonical(e, {}, self.t.facts)) for e in extents)
            return c.Box(view.tensor, dims, tuple(origin), view.shape)

        def place(ref: ir.BufRef) -> c.Place:
            buffer = self.t.buffers[ref.buffer]
            text = ref.buffer if buffer.stages == 1 else f"{ref.buffer}[{ex.show(ref.stage)}]"
            return c.Place(buffer, scalar(ref.stage, "stage"), text)

        def slot(ref: ir.BarRef) -> c.Slot:
            barrier = self.t.barriers[ref.barrier]
            text = ref.barrier if barrier.slots == 1 else f"{ref.barrier}[{ex.show(ref.slot)}]"
            return c.Slot(barrier, scalar(ref.slot, "slot"), text)

        def shape(name: str) -> tuple[int, ...]:
            kind = self.t.kernel.types[name]
            return kind.shape if isinstance(kind, TileType) else ()

        match stmt:
            case ir.BarrierWait():
                instr: c.Instr = c.Wait(slot(stmt.bar), scalar(stmt.parity, "parity"), stmt=stmt)
            case ir.BarrierArrive():
                instr = c.Arrive(slot(stmt.bar), stmt=stmt, elect=True)
            case ir.BarrierExpect():
                instr = c.Expect(slot(stmt.bar), scalar(stmt.bytes, "byte count"), stmt=stmt, elect=True)
            case ir.TmaLoad():
                instr = c.TmaLoad(box(stmt.view), place(stmt.dst), slot(stmt.bar), stmt=stmt, elect=True)
            case ir.TmaStore():
                instr = c.TmaStore(box(stmt.view), place(stmt.src), stmt=stmt, elect=True)
            case ir.TmaStoreWait():
                instr = c.StoreWait(stmt.pending, stmt=stmt, elect=True)
            case ir.CpAsync():
                instr = c.CpAsync(box(stmt.view), place(stmt.dst), stmt=stmt)
            case ir.CpCommit():
                instr = c.CpCommit(stmt=stmt)
            case ir.CpWait():
                instr = c.CpWait(stmt.pending, stmt=stmt)
            case ir.SharedLoad():
                instr = c.SharedLoad(stmt.dst, place(stmt.src), stmt=stmt, writes=stmt.dst)
            case ir.SharedStore():
                instr = c.SharedStore(place(stmt.dst), stmt.src, stmt=stmt, reads=(stmt.src,))
            case ir.Wgmma():
                a, b = place(stmt.a), place(stmt.b)
                split = self.groups > 1 and a.buffer.shape[0] % (64 * self.groups) == 0
                instr = c.Wgmma(
                    stmt.dst, a, b, stmt.acc, split, stmt=stmt, reads=(stmt.acc,), writes=stmt.dst
                )  # fmt: skip
            case ir.WgmmaWait():
                instr = c.WgmmaWait(stmt.pending, stmt=stmt)
            case ir.Mma():
                instr = c.Mma(
                    stmt.dst, stmt.a, stmt.b, stmt.acc, stmt=stmt, reads=(stmt.a, stmt.b, stmt.acc), writes=stmt.dst
                )  # fmt: skip
            case ir.FenceAsync():
                instr = c.Fence(stmt=stmt)
            case ir.Sync():
                instr = c.RoleSync(stmt=stmt)
            case ir.Compute():
                tiles = tuple(a.name for a in stmt.args if isinstance(a, ir.TileRef))
                instr = c.Compute(
                    stmt, tuple(shape(n) for n in tiles), shape(stmt.dst), stmt=stmt, reads=tiles, writes=stmt.dst
                )  # fmt: skip
            case ir.Load():
                instr = c.Load(stmt.dst, box(stmt.view), stmt=stmt, writes=stmt.dst)
            case ir.Store():
                instr = c.Store(box(stmt.view), stmt.src, stmt=stmt, reads=(stmt.src,))
            case _:
                raise Unsupported(f"{type(stmt).__name__} is not modelled by the asynchronous engine", stmt.span)
        instr.uses = frozenset(used)
        self.emit(instr)
