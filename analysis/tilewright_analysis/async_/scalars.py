"""Scalars of one role: which are numbers in every state, which are opaque, and functions for the former."""

from __future__ import annotations

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.source import Span
from tilewright_analysis.async_ import code as c
from tilewright_analysis.async_ import forms
from tilewright_analysis.async_.forms import Form
from tilewright_analysis.async_.model import Unsupported
from tilewright_analysis.async_.opaque import assigned, loads, read
from tilewright_analysis.async_.shifts import Uses
from tilewright_analysis.async_.tables import Tables
from tilewright_analysis.async_.turns import Use


class Scalars:
    """Scalars at the current place of a role.

    Names in forms: `$x` for a scalar that changes, `#n` for the position in the n-th loop (both are slots with
    numbers), `%1` for the program variable; in indices of gathers `~0` for the coordinate of an element along an axis.
    """

    def __init__(self, tables: Tables) -> None:
        self.t = tables
        self.slots: dict[str, int] = {}
        self.uses = Uses()
        self.ring_uses: list[Use] = []
        self.env: dict[str, Form] = {}
        self.mutable: set[str] = set()
        self.settled: frozenset[str] = frozenset()
        self.loop_of_slot: dict[str, c.Loop] = {}
        self.in_grid = False  # inside of a persistent program loop

    def slot(self, name: str) -> int:
        """The number of a slot."""
        return self.slots.setdefault(name, len(self.slots))

    def form(self, expr: ex.Expr, span: Span) -> Form:
        """The canonical form of an expression at the current place."""
        env = self.env
        for name in ex.names(expr):
            if name in self.mutable:
                env.setdefault(name, forms.atom(ex.Var("$" + name)))
        form = forms.canonical(expr, env, self.t.facts)
        known = set(self.t.kernel.sizes)
        for name in form.names():
            if not name.startswith(("$", "#", "%", "@", "°", "~")) and name not in known:
                raise Unsupported(f"'{name}' is used where its value is not known to be fixed", span)
        return form

    def computation(self, stmt: ir.Stmt) -> None:
        """Scalars that a statement assigns are functions of those that it reads; a counter is what it counts to."""
        mark, inputs = self.function(stmt)
        made = {n: forms.atom(ex.Item(f"{mark}{n}", inputs)) for n in assigned(stmt)}
        if isinstance(stmt, ir.While) and stmt.counter:
            made[stmt.counter] = self.counted(stmt.counted)
        self.env |= made

    def counted(self, loop: ir.For) -> Form:
        """Where the variable of a range stands that goes on to the first place not below the end."""
        first = self.form(loop.lo, loop.span)
        distance = forms.add(self.form(loop.hi, loop.span), first, -1)
        turns = ex.cdiv(forms.to_expr(distance), ex.Int(loop.step))
        if self.t.facts.bounds(distance)[0] < 0:
            turns = ex.binary("max", ex.Int(0), turns)
        return forms.add(first, forms.canonical(ex.mul(turns, ex.Int(loop.step)), {}, self.t.facts))

    def turns(self, stmt: ir.While) -> tuple[Form, Form, ir.Block]:
        """Where the variable of the counted loop begins, how far it goes, and the body of that loop.

        The number of turns may be one of which nothing is known. What the other scalars are where a turn begins is a
        function of its number.
        """
        if loose := sorted(set(assigned(stmt)) - self.settled):
            raise Unsupported(f"'{loose[0]}' changes in a 'while' loop and in a branch or another loop", stmt.span)
        mark, inputs = self.function(stmt)
        variable = ex.Var(stmt.counted.var)
        others = [n for n in assigned(stmt) if n != stmt.counter]
        begins = (ir.Assign(n, ex.Item(f"{mark}{n}", (*inputs, variable)), span=stmt.span) for n in others)
        body = (*begins, *stmt.body)
        if not stmt.counter:
            return forms.ZERO, forms.atom(ex.Item(f"{mark}turns", inputs)), body
        first = self.form(stmt.counted.lo, stmt.span)
        return first, forms.add(self.form(stmt.counted.hi, stmt.span), first, -1), body

    def function(self, stmt: ir.Stmt) -> tuple[str, tuple[ex.Expr, ...]]:
        """A mark for what a statement computes, and the values of the scalars that it reads.

        Places that data decides are not compared with others; those that scalars alone decide are.
        """
        names = [n for n in read(stmt) if n in self.env or n in self.mutable]
        inputs = tuple(forms.to_expr(self.form(ex.Var(n), stmt.span)) for n in names)
        mark = f"{self.t.computation(stmt)}°" if loads(stmt) else f"°{self.t.computation(stmt)}°"
        return mark, inputs

    def concrete(self, form: Form) -> bool:
        """True when the form has a number in every state."""
        return all(n.startswith(("$", "#")) for n in form.names())

    def scalar(self, expr: ex.Expr, span: Span, what: str) -> tuple[c.Scalar, frozenset[int]]:
        """A scalar that must not depend on sizes, used for its exact value."""
        form = self.form(expr, span)
        if not self.concrete(form):
            raise Unsupported(f"the {what} `{ex.show(expr)}` depends on sizes or the program number", span)
        value = forms.to_expr(form)
        if what in ("stage", "slot", "parity"):
            self.uses.turning.add(len(self.uses.exact))
        self.uses.exact.append(value)
        return self.compiled(value)

    def used(self, name: str, count: int, index: ex.Expr, parity: ex.Expr | None, span: Span) -> None:
        """Note that a statement uses a stage of a buffer or a slot of a barrier, and the parity it waits for."""
        at = forms.to_expr(self.form(index, span))
        self.ring_uses.append(Use(name, count, at, forms.to_expr(self.form(parity, span)) if parity else None))

    def compiled(self, value: ex.Expr) -> tuple[c.Scalar, frozenset[int]]:
        """A concrete expression as a function, and the slots it reads."""
        used = frozenset(self.slot(n) for n in ex.names(value))
        return c.compile_scalar(value, self.slots), used

    def wanders(self, expr: ex.Expr, span: Span) -> bool:
        """True for an index that data decides anew in each iteration, as a page of a block table."""
        names = self.form(expr, span).names()
        return any(n.startswith("@") for n in names) and any(n.startswith(("$", "#")) for n in names)

    def table(self, expr: ex.Expr, span: Span) -> int:
        """The symbol of a coordinate that data decides, the same in all iterations of a loop."""

        def anywhere(e: ex.Expr) -> ex.Expr:
            return ex.Var("#") if any(n.startswith(("$", "#")) for n in ex.names(e)) else e

        form = self.form(expr, span)
        known = {i: ex.Item(i.tensor, tuple(map(anywhere, i.index))) for key, _ in form.terms for i in ex.items(key)}
        moved = forms.ZERO
        for key, factor in form.terms:
            moved = forms.add(moved, forms.scale(forms.atom(known[key] if isinstance(key, ex.Item) else key), factor))
        return self.t.symbol(moved)

    def written(self, expr: ex.Expr, span: Span) -> str:
        """A canonical expression as the kernel may have written it: a scalar, or one plus a number."""
        form = self.form(expr, span)
        for name, known in self.env.items():
            if (distance := forms.add(form, known, -1)).is_constant and not known.is_constant:
                return ex.show(ex.add(ex.Var(name), ex.Int(int(distance.const))))
        return ex.show(expr)

    def _grows(self, e: ex.Expr) -> bool:
        """True for what a loop of unknown length moves on and on."""
        match e:
            case ex.Var(name):
                loop = self.loop_of_slot.get(name)
                return loop is not None and loop.oracle is not None
            case ex.Bin("%", _, ex.Int()):
                return False
            case ex.Bin(_, lhs, rhs):
                return self._grows(lhs) or self._grows(rhs)
            case _:
                return False

    def coordinate(
        self, expr: ex.Expr, span: Span, loading: ir.Stmt | None = None
    ) -> tuple[c.Coordinate, frozenset[int]]:
        """A coordinate of a view: opaque part, number, and how the number moves with loop positions.

        A load may be from a place that moves unevenly without end (`k // 128`), of which then nothing is known.
        """
        form = self.form(expr, span)
        if loading is not None and any(not isinstance(key, ex.Var) and self._grows(key) for key, _ in form.terms):
            nothing, _ = self.compiled(ex.Int(0))
            return c.Coordinate(0, False, nothing, (), ex.show(expr), loading), frozenset()
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
        outer = self.in_grid and any(n.startswith("%") for n in symbolic.names())
        scalar, used = self.compiled(forms.to_expr(value))
        return c.Coordinate(self.t.symbol(symbolic), outer, scalar, tuple(slopes), ex.show(expr)), used
