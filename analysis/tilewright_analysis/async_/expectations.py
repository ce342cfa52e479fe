"""What `tw.tag` gives and `tw.expect` states, in one state of the engine.

Both sides of a comparison become canonical forms over sizes, the program, the elements, and one unknown *shift* for
each loop instance, which stands for the states of one normal form: their positions differ by it. A difference without
shifts thus has one value in all of them. What is left over is decided by listing the elements.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright import tag_space
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.tagging import element, shown, thread_of
from tilewright.problem import Related
from tilewright.tag_space import Space
from tilewright_analysis.async_ import code as c
from tilewright_analysis.async_ import forms, said
from tilewright_analysis.async_.forms import Form
from tilewright_analysis.async_.model import Unsupported
from tilewright_analysis.async_.named import named
from tilewright_analysis.async_.scalars import Scalars
from tilewright_analysis.async_.state import Process, State
from tilewright_analysis.async_.tags import Func, Lost, Named, Tag
from tilewright_analysis.async_.words import at as around
from tilewright_analysis.async_.words import words

Mentions = Sequence[Func | Lost | None]
Shifts = Mapping[str, tuple[int, int]]


def canonical(scalars: Scalars, expr: ex.Expr, stmt: ir.Stmt) -> ex.Expr:
    """An expression of a lambda over sizes, slots, loop positions, parameters and mentions. Raises Unsupported."""
    used = ex.names(expr)
    for name in used & scalars.mutable:
        scalars.env.setdefault(name, forms.atom(ex.Var("$" + name)))
    form = forms.canonical(expr, scalars.env, scalars.t.facts)
    for name in sorted(form.names() - set(scalars.t.kernel.sizes)):
        if not name.startswith(("$", "#", "%", "~", "?")):
            raise Unsupported(f"'{name}' is used where its value is not known to be fixed", stmt.span)
        loop = scalars.loop_of_slot.get(name)
        if name.startswith(("$", "#")) and (loop is None or loop.oracle is None):
            scalars.uses.exact.append(ex.Var(name))
        if name.startswith(("$", "#")):
            scalars.slot(name)
    return forms.to_expr(form)


def condition(scalars: Scalars, cond: ex.Expr, stmt: ir.Stmt) -> ex.Expr:
    """A condition with the sides of its comparisons canonical. Raises Unsupported."""
    match cond:
        case ex.Bin("and" | "or" as op, lhs, rhs):
            return ex.Bin(op, condition(scalars, lhs, stmt), condition(scalars, rhs, stmt))
        case ex.Not(arg):
            return ex.Not(condition(scalars, arg, stmt))
        case ex.Bin("<" | "<=" | "==" | "!=" as op, lhs, rhs):
            return ex.Bin(op, canonical(scalars, lhs, stmt), canonical(scalars, rhs, stmt))
        case _:
            return ex.Bin("!=", canonical(scalars, cond, stmt), ex.Int(0))


class Undecided(Exception):
    """A condition is neither shown nor refuted.

    `related`: where what would decide it was lost. `known`: both sides are known, so running the kernel may refute it.
    """

    def __init__(self, missing: str, related: tuple[Related, ...] = (), *, known: bool = False) -> None:
        super().__init__(missing)
        self.missing = missing
        self.related = related
        self.known = known


@dataclass(frozen=True, slots=True)
class Broken:
    """A comparison that fails: the parameters, both sides in words, and as (symbol, program iteration, number).

    `thread` has the warp, lane and register where the condition is about threads.
    """

    element: tuple[int, ...]
    text: str
    sides: Mapping[str, str]
    differs: tuple[tuple[int, int, int], tuple[int, int, int]] | None
    thread: Mapping[str, int]


class Expectations:
    """Evaluates statements about tags for one program."""

    def __init__(self, program: c.Program, facts: forms.Facts) -> None:
        self.program = program
        self.facts = facts
        self._spaces: dict[int, Space | str] = {}
        self._shown: set[Hashable] = set()
        self._bases: dict[tuple[int, int], Form] = {}
        self._held = False

    # ------------------------------------------------------------------------------------------- tags

    def given(self, p: Process, o: said.TagTile, tags: Named, mentions: Mentions) -> Named:
        """`tags` with those that the statement gives."""
        found = dict(tags)
        for name, value, written in o.tags:
            tag = None if value is None else self._function(p, o, value, mentions, written)
            found[name] = tag if tag is not None else Lost(o.stmt)
        return named(found)

    def _function(
        self, p: Process, o: said.TagTile, value: ex.Expr, mentions: Mentions, written: ex.Expr
    ) -> Func | None:
        try:
            form = self._form(p, o, value, mentions)
        except Undecided:
            return None
        base, along = forms.constant(form.const), forms.ZERO
        for key, coefficient in form.terms:
            term = Form(((key, coefficient),), form.const * 0)
            if all(n.startswith("~") for n in ex.names(key)):
                along = forms.add(along, term)
            elif any(n.startswith("~") for n in ex.names(key)):
                return None
            else:
                base = forms.add(base, term)
        start = {f"~{i}": ex.Int(0) for i in range(len(o.about.names))}
        tag = self._coordinate(base, shown(o.about, ex.substitute(written, start)))
        return None if tag is None else Func(tag, forms.to_expr(along))

    def _coordinate(self, form: Form, text: str) -> Tag | None:
        """A form without parameters as a coordinate; None when it is not one."""
        slopes: list[tuple[int, int, int]] = []
        symbolic = forms.ZERO
        for key, coefficient in form.terms:
            if isinstance(key, ex.Var) and key.name.startswith("@") and coefficient.denominator == 1:
                oracle, outer = map(int, key.name[1:].split("."))
                slopes.append((oracle, outer, int(coefficient)))
            elif any(n.startswith("@") for n in ex.names(key)):
                return None
            else:
                symbolic = forms.add(symbolic, forms.scale(forms.atom(key), coefficient))
        outers = {int(n.split("@")[1]) for n in symbolic.names() if "@" in n}
        if len(outers) > 1 or form.const.denominator != 1:
            return None
        plain: dict[str, ex.Expr] = {n: ex.Var(n.split("@")[0]) for n in symbolic.names() if "@" in n}
        symbolic = forms.canonical(ex.substitute(forms.to_expr(symbolic), plain), {}, self.facts)
        if symbolic not in self.program.symbols:
            self.program.symbols.append(symbolic)
        symbol = self.program.symbols.index(symbolic)
        return Tag(-1, symbol, outers.pop() if outers else -1, int(form.const), tuple(slopes), text)

    # ------------------------------------------------------------------------------------------- forms

    def _form(self, p: Process, o: said.TagTile | said.Expectation, expr: ex.Expr, mentions: Mentions) -> Form:
        """The canonical form of an expression in a state. Raises Undecided for a mention of a tag that is not known."""
        env: dict[str, Form] = {}
        for name in ex.names(expr):
            if name.startswith("?"):
                number = int(name[1:])
                env[name] = self._mentioned(o, number, mentions[number])
            elif name.startswith("#") and (loop := o.loops.get(name)) is not None and loop.oracle is not None:
                outer = p.outer if self.program.oracles[loop.oracle].outer is not None else 0
                shift = forms.atom(ex.Var(f"@{loop.oracle}.{outer}"))
                env[name] = forms.add(shift, forms.constant(p.env[loop.slot]))
            elif name.startswith(("#", "$")):
                env[name] = forms.constant(p.env[p.role.slots[name]])
            elif name.startswith("%") and o.grid:
                env[name] = forms.atom(ex.Var(f"{name}@{p.outer}"))
        return forms.canonical(expr, env, self.facts)

    def _mentioned(self, o: said.TagTile | said.Expectation, number: int, tag: Func | Lost | None) -> Form:
        use, what = o.about.uses[number], element(o.about, number)
        if isinstance(tag, Lost):
            lost = Related(tag.stmt.span, f"the tag {use.tag} was lost here")
            raise Undecided(
                f"the tag {use.tag} of {what} is not known: values of different {use.tag} meet before", (lost,)
            )
        if tag is None:
            twice = [t for t in self.program.kernel.params if t.type.shape.count(ex.Size(use.tag)) > 1]
            why = f"no tensor with that size is in it, or {use.tag} was reduced or contracted away"
            if twice:
                why += f", or it comes from {twice[0].name}, which has two dimensions {use.tag}"
            raise Undecided(f"the element {what} carries no tag {use.tag}: {why}")
        index = (
            [ex.Var(f"!{number}.{axis}") for axis in range(len(o.shapes[number]))] if use.thread else list(use.index)
        )
        along = forms.canonical(ex.substitute(tag.element, {f"~{i}": e for i, e in enumerate(index)}), {}, self.facts)
        return forms.add(self._base(tag.base), along)

    def _base(self, base: Tag) -> Form:
        symbolic = self._bases.get((base.symbol, base.outer))
        if symbolic is None:
            symbolic = self._bases[base.symbol, base.outer] = self._symbolic(base)
        form = forms.add(symbolic, forms.constant(base.const))
        for oracle, outer, factor in base.slopes:
            form = forms.add(form, forms.atom(ex.Var(f"@{oracle}.{outer}")), factor)
        return form

    def _symbolic(self, base: Tag) -> Form:
        symbolic = self.program.symbols[base.symbol]
        if base.outer >= 0:
            marked: dict[str, ex.Expr] = {n: ex.Var(f"{n}@{base.outer}") for n in symbolic.names() if n.startswith("%")}
            symbolic = forms.canonical(ex.substitute(forms.to_expr(symbolic), marked), {}, self.facts)
        return symbolic

    # ------------------------------------------------------------------------------------------- conditions

    def broken(
        self, s: State, p: Process, o: said.Expectation, cond: ex.Expr, written: ex.Expr, mentions: Mentions
    ) -> Broken | None:
        """Where one of the conditions that `and` joins fails; None when it holds. Raises Undecided."""
        key = (id(o), cond, self._relative(p, o, mentions))
        if key in self._shown:
            return None
        space = self._space(o)
        self._held = False
        wrong = np.logical_not(self._holds(s, p, o, cond, mentions, space))
        at = space.first(np.asarray(wrong))
        if at is None:
            # What was decided by positions themselves is decided for them alone.
            if not self._held:
                self._shown.add(key)
            return None
        place = o.about.whole(at) if isinstance(o.about, ir.ExpectTags) else at
        where = ", ".join(f"{n} = {v}" for n, v in zip(o.about.names, place, strict=True))
        message = f"{shown(o.about, written)} does not hold for {where}{words(around(p))}"
        if not (isinstance(cond, ex.Bin) and cond.op in ("<", "<=", "==", "!=") and isinstance(written, ex.Bin)):
            return Broken(place, message, {}, None, thread_of(o.about, at))
        left, right = (self._at(self._form(p, o, side, mentions), at, space) for side in (cond.lhs, cond.rhs))
        x, y = self._side(o, written.lhs, mentions, at, left), self._side(o, written.rhs, mentions, at, right)
        if x != y:
            message += f": {x} and {y}"
        values = {shown(o.about, written.lhs): x, shown(o.about, written.rhs): y}
        return Broken(
            place, message, values, self._differs(left, right) if cond.op == "==" else None, thread_of(o.about, at)
        )

    def _relative(self, p: Process, o: said.Expectation, mentions: Mentions) -> Hashable:
        """What the outcome depends on, equal where only positions in loops and the program's tile differ."""
        here = self._positions(p)
        moving = {loop.slot for loop in o.loops.values() if loop.oracle is not None}
        others = tuple(p.env[slot] for slot in sorted(o.uses - moving))
        found: list[Hashable] = []
        for tag in mentions:
            if not isinstance(tag, Func):
                found.append(tag)
                continue
            base, const, ways = tag.base, tag.base.const, list[tuple[int, int | None, int]]()
            for oracle, outer, factor in base.slopes:
                const -= factor * here.get((oracle, outer), 0)
                known = (oracle, outer) in here
                ways.append((oracle, None if known else outer, factor))
            found.append(
                (tag.element, base.symbol, base.outer - p.outer if base.outer >= 0 else None, const, tuple(ways))
            )
        return others, tuple(found)

    def _differs(self, left: Form, right: Form) -> tuple[tuple[int, int, int], tuple[int, int, int]] | None:
        """Both sides as coordinates, where it takes sizes to see that they differ."""
        a, b = self._coordinate(left, ""), self._coordinate(right, "")
        if a is None or b is None or (a.symbol, a.outer) == (b.symbol, b.outer):
            return None
        return (a.symbol, a.outer, a.const), (b.symbol, b.outer, b.const)

    def _holds(self, s: State, p: Process, o: said.Expectation, cond: ex.Expr, mentions: Mentions, space: Space) -> Any:
        """An array over the space, or a truth value. Raises Undecided."""
        match cond:
            case ex.Bin("and", lhs, rhs):
                return np.logical_and(*(self._holds(s, p, o, e, mentions, space) for e in (lhs, rhs)))
            case ex.Bin("or", lhs, rhs):
                return self._either(s, p, o, (lhs, rhs), mentions, space)
            case ex.Not(arg):
                return np.logical_not(self._holds(s, p, o, arg, mentions, space))
            case ex.Bin(op, lhs, rhs):
                left, right = self._form(p, o, lhs, mentions), self._form(p, o, rhs, mentions)
                return self._compared(s, p, op, forms.add(left, right, -1), space)
            case _:
                raise AssertionError(cond)

    def _either(
        self,
        s: State,
        p: Process,
        o: said.Expectation,
        sides: tuple[ex.Expr, ex.Expr],
        mentions: Mentions,
        space: Space,
    ) -> Any:
        """True where one of the sides holds; one that holds everywhere is enough."""
        result: Any = False
        undecided: Undecided | None = None
        for side in sides:
            try:
                result = np.logical_or(result, self._holds(s, p, o, side, mentions, space))
            except Undecided as error:
                undecided = error
        if undecided is not None and space.first(np.logical_not(result)) is not None:
            raise undecided
        return result

    def _compared(self, s: State, p: Process, op: ex.Op, gap: Form, space: Space) -> Any:
        """`gap op 0` for each element."""
        moving = sorted(n for n in gap.names() if n.startswith("@"))
        if moving:
            bounded = self._from_start(p, gap) if op != "==" else None
            if bounded is not None:
                try:
                    return self._compared(s, p, op, bounded, space)
                except Undecided:
                    pass
            still: dict[str, ex.Expr] = dict.fromkeys(moving, ex.Int(0))
            gap = forms.canonical(ex.substitute(forms.to_expr(gap), still), {}, self.facts)
            holds = self._compared(s, p, op, gap, space)
            known = s.exact and all(int(n[1:].split(".")[0]) in self.program.movers for n in moving)
            self._held = True
            if not known and space.first(np.logical_not(holds)) is None:
                raise Undecided(
                    "whether this holds in every iteration is not known: the two sides move differently", known=True
                )
            return holds
        symbolic = [t for t in gap.terms if any(not n.startswith(("~", "!")) for n in ex.names(t[0]))]
        if not symbolic:
            return self._arrays(op, forms.to_expr(gap), space)
        if any(n.startswith(("~", "!")) for key, _ in symbolic for n in ex.names(key)):
            if op == "==":
                return False
            raise Undecided("sizes and elements are combined in a way that is not decided", known=True)
        part = Form(tuple(symbolic), gap.const * 0)
        rest = tag_space.evaluate(forms.to_expr(forms.add(gap, part, -1)), self._values(space))
        low, high = self.facts.bounds(part)
        least, most = np.asarray(rest) + low, np.asarray(rest) + high
        true, false = {
            "<": (most < 0, least >= 0),
            "<=": (most <= 0, least > 0),
            "==": ((least == 0) & (most == 0), (least > 0) | (most < 0)),
            "!=": ((least > 0) | (most < 0), (least == 0) & (most == 0)),
        }[op]
        if op == "==":
            return true
        if not np.all(true | false):
            raise Undecided(
                "it depends on sizes in a way that is not decided; an assumption about them may help", known=True
            )
        return true

    def _from_start(self, p: Process, gap: Form) -> Form | None:
        """`gap` with positions counted from the start of their loops, where they are numbers from 0 on."""
        here = self._positions(p)
        env: dict[str, ex.Expr] = {}
        for name in gap.names():
            if name.startswith("@"):
                oracle, outer = map(int, name[1:].split("."))
                if (oracle, outer) not in here:
                    return None
                env[name] = ex.sub(ex.Var(f"%{name}"), ex.Int(here[oracle, outer]))
        return forms.canonical(ex.substitute(forms.to_expr(gap), env), {}, self.facts)

    def _positions(self, p: Process) -> dict[tuple[int, int], int]:
        """The positions of a process in the loops around it."""
        here: dict[tuple[int, int], int] = {}
        for loop in p.role.loops:
            if loop.oracle is not None and loop.start < p.pc < loop.end:
                outer = p.outer if self.program.oracles[loop.oracle].outer is not None else 0
                here[loop.oracle, outer] = p.env[loop.slot]
        return here

    def _values(self, space: Space) -> dict[str, Any]:
        env: dict[str, Any] = dict(space.parameters)
        for number, coordinates in enumerate(space.coordinates):
            env |= {f"!{number}.{axis}": at for axis, at in enumerate(coordinates)}
        return env

    def _arrays(self, op: ex.Op, gap: ex.Expr, space: Space) -> Any:
        return tag_space.evaluate(ex.Bin(op, gap, ex.Int(0)), self._values(space))

    def _space(self, o: said.Expectation) -> Space:
        found = self._spaces.get(id(o))
        if found is None:
            try:
                found = tag_space.space_of(len(o.about.names), o.about.uses, self.program.kernel.types)
            except tag_space.SpaceError as error:
                found = str(error)
            self._spaces[id(o)] = found
        if isinstance(found, str):
            raise Undecided(found)
        return found

    # ------------------------------------------------------------------------------------------- words

    def _at(self, form: Form, at: tuple[int, ...], space: Space) -> Form:
        """The form for one element."""
        env: dict[str, ex.Expr] = {f"~{i}": ex.Int(v) for i, v in enumerate(at)}
        for name, values in self._values(space).items():
            if name.startswith("!") and name in form.names():
                array = np.asarray(values)
                inner = at[len(at) - array.ndim :]
                place = tuple(min(i, n - 1) for i, n in zip(inner, array.shape, strict=True))
                env[name] = ex.Int(int(array[place]))
        return forms.canonical(ex.substitute(forms.to_expr(form), env), {}, self.facts)

    def _side(self, o: said.Expectation, side: ex.Expr, mentions: Mentions, at: tuple[int, ...], form: Form) -> str:
        """The value of one side for one element: a number, or where it starts and how far from there."""
        if all(n.startswith("@") for n in form.names()):
            # Positions are those of this state.
            return str(int(form.const))
        env: dict[str, ex.Expr] = {f"~{i}": ex.Int(v) for i, v in enumerate(at)}
        for number, tag in enumerate(mentions):
            if isinstance(tag, Func):
                rest = forms.add(form, self._base(tag.base), -1)
                text = tag.base.text if rest.is_constant and side == ex.Var(f"?{number}") else ""
                if text:
                    more = int(rest.const)
                    return f"{text} + {more}" if more else text
        return shown(o.about, ex.substitute(side, env))
