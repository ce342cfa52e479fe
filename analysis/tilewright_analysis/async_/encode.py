"""From an explicit kernel to flat code: scalars compiled, loop bounds turned into shared oracles.

Everything that the normal form relies on is derived here from the statements, nothing is declared by the kernel:
which scalars are functions of sizes and the program number (opaque, compared by canonical form), which change as the
kernel runs (slots with concrete values), and which conditions compare a position with a trip count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from math import gcd

from tilewright import tag_space
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright_analysis.async_ import code as c
from tilewright_analysis.async_ import forms
from tilewright_analysis.async_.forms import Form
from tilewright_analysis.async_.model import Unsupported
from tilewright_analysis.async_.motion import mixed
from tilewright_analysis.async_.opaque import assigned, is_opaque, settled
from tilewright_analysis.async_.operations import choice, instruction
from tilewright_analysis.async_.origins import Source, guesses, read_ahead, sources
from tilewright_analysis.async_.scalars import Scalars
from tilewright_analysis.async_.shifts import classify
from tilewright_analysis.async_.tables import Pattern, Tables, families, same_registers
from tilewright_analysis.async_.turns import turns


def encode(kernel: ir.Kernel) -> c.Program:
    """The code of every role. Raises Unsupported for what the engine cannot decide."""
    if not ir.is_explicit(kernel):
        raise Unsupported("the kernel has policies; expand it first", kernel.span)
    # Twice: a condition such as `0 < K` ahead of a loop is about the trip count of that loop, known after one pass.
    first, found = _encode(kernel, (), {})
    loops = [o.trip for i, o in enumerate(first.oracles) if not o.is_programs and i in first.ties[i]]
    # And what a loop gathers ahead is told apart from the first copies only when the loop is known.
    return _encode(kernel, tuple(dict.fromkeys(sorted(loops, key=lambda trip: -trip.step))), found.patterns)[0]


def _encode(
    kernel: ir.Kernel, loops: tuple[forms.Trip, ...], patterns: Mapping[str, list[Pattern]]
) -> tuple[c.Program, Tables]:
    tables = Tables(kernel, loops, patterns)
    roles: list[ir.Role] = []
    rest: list[ir.Stmt] = []
    for stmt in kernel.body:
        match stmt:
            case ir.AllocShared(dst=name):
                tables.add_buffer(name, stmt)
            case ir.AllocBarrier(dst=name):
                tables.add_barrier(name, stmt)
            case ir.AllocTensor(dst=name):
                tables.add_tensor(name, stmt)
            case ir.Roles(roles=more):
                roles += more
            case _:
                rest.append(stmt)
    if roles and rest:
        raise Unsupported("statements beside the roles are not modelled; move them into a role", rest[0].span)
    if not roles:
        roles = [ir.Role("", kernel.warps, None, tuple(rest))]
    loads = sources(kernel.body)
    early = {name: tables.buffers[name].stages for name in read_ahead(kernel.body) if name in tables.buffers}
    encoders = [_RoleEncoder(tables, role, loads, early) for role in roles]
    encoded = [e.encode() for e in encoders]
    if sum(o.is_programs for o in tables.oracles) > 1:
        raise Unsupported("the roles run different grids, so their tiles cannot be matched", kernel.span)
    alike, limits = families(tables)
    program = c.Program(
        kernel, encoded, tables.oracles, tables.symbols, tables.dims, tables.buffers, tables.barriers,
        [frozenset(t) for t in tables.ties], alike, limits, *mixed(encoded), same_registers(kernel),
        tag_space.mentioned(kernel), tables.ahead,
        turns(encoded, [e.ring_uses for e in encoders], [e.uses.pinned() for e in encoders]),
        {number: text for number, (_, text) in tables.steps.items()},
    )  # fmt: skip
    return program, tables


class _RoleEncoder(Scalars):
    """Encodes one role."""

    def __init__(
        self, tables: Tables, role: ir.Role, loads: Mapping[str, tuple[Source, ...]], early: Mapping[str, int]
    ) -> None:
        super().__init__(tables)
        self.role = role
        self.loads = loads
        self.early = early
        self.groups = max(1, role.warps // 4)
        self.code: list[c.Instr] = []
        self.loops: list[c.Loop] = []
        self.active: list[c.Loop] = []
        self.lengths: dict[str, int] = {}  # numbers of iterations of loops of constant length, by position
        self.outer: int | None = None  # oracle of the enclosing symbolic loop of level 0
        self.programs = 0
        self.occurrences: Counter[tuple[forms.Trip, int | None, bool]] = Counter()
        self.settled = settled(role.body)
        times = Counter(s.dst for s in ir.walk(role.body) if isinstance(s, ir.Assign))
        self.mutable = {name for name, n in times.items() if n > 1} - self.settled

    def encode(self) -> c.RoleCode:
        # A scalar assigned once is a slot too if it depends on one that changes; find those first.
        changed = True
        assigns = [s for s in ir.walk(self.role.body) if isinstance(s, ir.Assign)]
        while changed:
            more = {s.dst for s in assigns if ex.names(s.value) & self.mutable} - self.mutable - self.settled
            self.mutable |= more
            changed = bool(more)
        for stmt in ir.walk(self.role.body):
            if isinstance(stmt, ir.For | ir.Programs) and any(a.dst == stmt.var for a in assigns):
                raise Unsupported(f"the loop variable '{stmt.var}' is assigned", stmt.span)
        self.block(self.role.body)
        result = c.RoleCode(self.role.name, self.groups, self.code, self.slots, self.loops)
        classify(result, self.uses)
        return result

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
            case ir.If() | ir.While() if is_opaque(stmt) and self.settled.issuperset(assigned(stmt)):
                self.computation(stmt)
            case ir.Programs():
                self.program_loop(stmt)
            case ir.If(cond=cond, then=then, orelse=orelse):
                self.branch(stmt, cond, then, orelse)
            case ir.While():
                first, distance, body = self.turns(stmt)
                self.loop(stmt, stmt.counted.var, first, distance, stmt.counted.step, body)
                self.computation(stmt)
            case ir.Tcgen05(accumulate=again):
                self.product(stmt, again)
            case ir.AllocShared() | ir.AllocBarrier() | ir.AllocTensor() | ir.Roles():
                raise Unsupported("buffers, barriers and roles inside of other statements are not modelled", stmt.span)
            case _:
                instr = self.emit(instruction(self, stmt, self.groups))
                match stmt:
                    case ir.Wgmma(a=a, b=b):
                        read = [ref.buffer for ref in (a, b) if isinstance(ref, ir.BufRef)]
                    case ir.SharedLoad(src=ref):
                        read = [ref.buffer]
                    case _:
                        return
                around = [loop.var for loop in self.active]
                instr.guesses = tuple(
                    g for name in read for g in guesses(self, self.loads.get(name, ()), name, around, stmt)
                )

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
        counted = forms.add(form, forms.atom(ex.Var("$" + stmt.dst)), -1)
        step = int(counted.const) if counted.is_constant else None
        self.emit(c.SetScalar(target, scalar, step, stmt=stmt, uses=used, sets=target))

    def program_loop(self, stmt: ir.Programs) -> None:
        self.programs += 1
        if self.programs > 1:
            raise Unsupported("a second program loop in one role is not modelled", stmt.span)
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
            occurrence = self.occurrence(trip, None, stmt.body)
            oracle = self.t.oracle(trip, None, occurrence, programs=True)
            loop = self.new_loop(stmt.var, 0, oracle, 0, None)
            loop.first = 0
            self.in_grid = True
            self.run_loop(stmt, loop, frozenset(), stmt.body)
            self.in_grid = False
        self.env = before

    def occurrence(self, trip: forms.Trip, outer: int | None, body: ir.Block) -> int:
        """The number of a loop among those over one count; loops that meet barriers are counted by themselves.

        Loops of different roles that run in step thus get one oracle, whatever other loops a role has beside. Any
        numbering is sound: loops over one count with different oracles only run in more ways than they can.
        """
        meets = any(isinstance(s, ir.BarrierWait | ir.BarrierArrive | ir.BarrierExpect) for s in ir.walk(body))
        number = self.occurrences[trip, outer, meets]
        self.occurrences[trip, outer, meets] += 1
        return 2 * number + (not meets)

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
        for name in bottom.names() | extent.names():
            if name.startswith("$"):  # a range is evaluated once, on entry
                raise Unsupported(f"the bounds of this loop use '{name[1:]}', which changes", stmt.span)
        if self.concrete(extent):
            limit = forms.to_expr(extent)
            self.uses.exact.append(limit)
            trips = ex.cdiv(limit, ex.Int(step))
            bound, used = self.compiled(trips)
            loop = self.new_loop(var, len(self.active), None, 0, bound)
            if isinstance(trips, ex.Int):
                self.lengths[f"#{len(self.loops) - 1}"] = max(1, trips.value)
        else:
            if any(n.startswith(("#", "$")) for n in extent.names()):
                raise Unsupported("the number of iterations mixes sizes with the position in another loop", stmt.span)
            level = sum(a.oracle is not None for a in self.active)
            if level > 1 or len(self.active) > level:
                raise Unsupported("this loop is nested too deeply for the engine", stmt.span)
            trip, offset = forms.trip_of(extent, step)
            occurrence = self.occurrence(trip, self.outer, body)
            oracle = self.t.oracle(trip, self.outer, occurrence)
            loop = self.new_loop(var, level, oracle, offset, None)
        loop.first, loop.step = int(bottom.const) if bottom.is_constant else None, step
        fixed = bottom.const.denominator == 1 and not any(n.startswith(("#", "$")) for n in bottom.names())
        loop.begin = self.t.symbol(bottom.without_constant()) if fixed else -1, int(bottom.const)
        self.env[var] = forms.add(bottom, forms.atom(ex.Var(f"#{len(self.loops) - 1}")), step)
        self.run_loop(stmt, loop, used, body)
        self.env = before

    def run_loop(self, stmt: ir.Stmt, loop: c.Loop, used: frozenset[int], body: ir.Block) -> None:
        loop.start = len(self.code)
        filled = (s.dst.buffer for s in body if isinstance(s, ir.TmaLoad | ir.CpAsync | ir.CpGather))
        ahead = max((self.early.get(name, 0) for name in filled), default=0)
        # A loop that begins at a size goes on where another one ended, which shows at its first position.
        stages = max(ahead, int(loop.first is None))
        if stages and loop.oracle is not None:
            # Its first tiles are read ahead of a loop: they are told apart by the position at which they are loaded.
            position = next(n for n, lp in self.loop_of_slot.items() if lp is loop)
            self.uses.exact.append(ex.Bin("<", ex.Var(position), ex.Int(stages)))
            self.t.ahead[loop.oracle] = max(self.t.ahead.get(loop.oracle, 0), ahead)
        self.emit(c.LoopHead(loop, stmt=stmt, uses=used))
        self.active.append(loop)
        if loop.level == 0 and loop.oracle is not None:
            self.outer = loop.oracle
        self.block(body)
        if loop.level == 0 and loop.oracle is not None:
            self.outer = None
        self.active.pop()
        self.emit(c.LoopBack(loop, stmt=stmt, uses=used))
        loop.end = len(self.code)

    def branch(self, stmt: ir.If, cond: ex.Expr, then: ir.Block, orelse: ir.Block) -> None:
        if all(isinstance(s, ir.Compute) for s in (*then, *orelse)):
            self.emit(choice(self, stmt, self.groups))
            return
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

    def product(self, stmt: ir.Tcgen05, again: ex.Expr) -> None:
        """A product into tensor memory: one that adds to the accumulator, or one that starts it; and a commit."""

        def part(of: ir.Stmt) -> None:
            instr = instruction(self, of, self.groups)
            instr.stmt = stmt
            self.emit(instr)

        if isinstance(again, ex.Int):
            part(stmt)
        else:
            no: list[c.Branch | c.Jump] = []
            self.condition(stmt, again, no)
            part(replace(stmt, accumulate=ex.Int(1)))
            jump = c.Jump(stmt=stmt)
            self.emit(jump)
            self.land(no)
            part(replace(stmt, accumulate=ex.Int(0)))
            jump.target = len(self.code)
        part(ir.Tcgen05Commit(stmt.bar))

    def land(self, jumps: Iterable[c.Branch | c.Jump]) -> None:
        for j in jumps:
            j.target = len(self.code)

    def condition(self, stmt: ir.Stmt, cond: ex.Expr, no: list[c.Branch | c.Jump]) -> None:
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

    def concrete_test(self, stmt: ir.Stmt, test: ex.Expr, no: list[c.Branch | c.Jump]) -> None:
        self.uses.exact.append(test)
        scalar, used = self.compiled(test)
        branch = c.Branch(scalar, None, stmt=stmt, uses=used)
        self.emit(branch)
        no.append(branch)

    def positive(self, stmt: ir.Stmt, gap: Form, no: list[c.Branch | c.Jump], text: str) -> None:
        """Test `gap > 0`."""
        least, most = self.t.facts.bounds(gap)
        if least > 0 or most <= 0:
            gap = forms.constant(int(least > 0))
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
        # A condition that moves with a loop of level 0 is about one number for all of its iterations.
        followed = {self.loop_of_slot[n].level for n in position.names() if n in self.uses.positions}
        oracle, value = self.compared(symbolic, position, None if followed == {0} else self.outer)
        slopes = [(k.name, v) for k, v in value.terms if isinstance(k, ex.Var) and k.name in self.uses.positions]
        if len(slopes) > 1 or any(v != 1 for _, v in slopes):
            raise Unsupported(f"the condition `{text}` does not follow one loop step by step", stmt.span)
        rest = value
        for name, v in slopes:
            rest = forms.add(rest, forms.atom(ex.Var(name)), -v)
            tied = self.loop_of_slot[name].oracle
            assert tied is not None
            self.t.ties[oracle].add(tied)
        if not slopes:
            self.t.small[oracle] = max(self.t.small[oracle], self.largest(stmt, rest, text) + 1)
        self.uses.exact.append(forms.to_expr(rest))
        scalar, used = self.compiled(forms.to_expr(value))
        branch = c.Branch(scalar, oracle, stmt=stmt, uses=used)
        self.emit(branch)
        no.append(branch)

    def largest(self, stmt: ir.Stmt, form: Form, text: str) -> int:
        """The largest value of a form over positions in loops of constant length."""
        total = form.const
        for key, coefficient in form.terms:
            match key:
                case ex.Var(name) if name in self.lengths:
                    most = self.lengths[name] - 1
                case ex.Bin("%", _, ex.Int(m)) if m > 0:
                    most = m - 1
                case _:
                    raise Unsupported(f"the condition `{text}` compares a size with a scalar that changes", stmt.span)
            total += max(coefficient * most, 0)
        return int(total)

    def compared(self, symbolic: Form, position: Form, outer: int | None) -> tuple[int, Form]:
        """(oracle, v) with `symbolic + position > 0` equal to `v < N` of the oracle."""
        loops = [a.oracle for a in reversed(self.active) if a.oracle is not None]
        # A trip count is known relative to positions of its own iteration only; constants are compared with any.
        candidates = [
            (self.t.oracles[i].trip, i)
            for i in loops
            if not self.t.oracles[i].is_programs and (position.is_constant or self.t.oracles[i].outer == outer)
        ]
        for trip, i in (*candidates, *((trip, None) for trip in self.t.loops)):
            if len(trip.form.terms) != len(symbolic.terms):
                continue
            factor = trip.form.terms[0][1] / symbolic.terms[0][1]
            if factor <= 0 or forms.scale(symbolic, factor) != trip.form.without_constant():
                continue
            below = forms.add(forms.constant(trip.form.const), forms.scale(position, factor), -1)
            value = forms.scale(below, Fraction(1, trip.step))
            if all(v.denominator == 1 for v in (value.const, *(v for _, v in value.terms))):
                return self.t.oracle(trip, outer, 0) if i is None else i, value
        step = gcd(*(int(v) for _, v in position.terms)) or 1
        bound = forms.add(symbolic, forms.constant(position.const))
        trip, offset = forms.trip_of(bound, step)
        moving = Form(position.terms, Fraction(0))
        value = forms.add(forms.constant(-offset), forms.scale(moving, Fraction(-1, step)))
        # Sizes alone compare in one way, whatever the tile: the roles branch alike, in all iterations.
        alone = not any(n.startswith("%") for n in symbolic.names())
        along = any(n in self.uses.positions for n in position.names())
        return self.t.oracle(trip, None if alone and not along else outer, 0), value
