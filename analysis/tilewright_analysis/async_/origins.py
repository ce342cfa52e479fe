"""Where the tile in a stage comes from, as the reader of the stage would write it.

A role that reads a stage knows the tile by its loop variable, the role that loaded it by another. Candidates are the
origins of all loads into the buffer, with the loading role's loop variable replaced by one of the reader's, or by its
first value. A role that loads for its own later iterations knows the tile by its own variable some steps before. Each
candidate is compared with the coordinates that the stage really carries whenever the statement runs; what
agrees in every state of a finished exploration is a fact that other checks may use.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright_analysis.async_ import code as c
from tilewright_analysis.async_ import forms
from tilewright_analysis.async_.model import Places, Unsupported
from tilewright_analysis.async_.scalars import Scalars

_MOST = 12
_MOST_AHEAD = 4
Loops = tuple[tuple[str, ex.Expr, int], ...]
"""Variables of loops with their first values and steps, outermost first."""


@dataclass(frozen=True, slots=True)
class Source:
    """A load into a buffer: the origin of its tile along each axis, and the loops around it."""

    origin: tuple[ex.Expr, ...]
    loops: Loops


def sources(body: ir.Block) -> dict[str, tuple[Source, ...]]:
    """The loads into each buffer."""
    found: dict[str, dict[Source, None]] = {}

    def go(block: ir.Block, loops: Loops) -> None:
        for stmt in block:
            match stmt:
                case ir.TmaLoad(view=view, dst=ref) | ir.CpAsync(view=view, dst=ref):
                    found.setdefault(ref.buffer, {})[Source(view.origin[view.lead :], loops)] = None
                case ir.For(var=var, lo=lo, step=step, body=inner):
                    go(inner, (*loops, (var, lo, step)))
                case _:
                    for inner in ir.children(stmt):
                        go(inner, loops)

    go(body, ())
    return {name: tuple(loads) for name, loads in found.items()}


def read_ahead(body: ir.Block) -> frozenset[str]:
    """Buffers that are read outside of loops and loaded inside of them."""
    inside: set[str] = set()
    outside: set[str] = set()

    def go(block: ir.Block, depth: int) -> None:
        for stmt in block:
            match stmt:
                case ir.TmaLoad(dst=ref) | ir.CpAsync(dst=ref) | ir.CpGather(dst=ref) if depth:
                    inside.add(ref.buffer)
                case ir.Wgmma(a=a, b=b) if not depth:
                    outside.update(ref.buffer for ref in (a, b) if isinstance(ref, ir.BufRef))
                case ir.SharedLoad(src=ref) if not depth:
                    outside.add(ref.buffer)
                case _:
                    pass
            for inner in ir.children(stmt):
                go(inner, depth + isinstance(stmt, ir.For))

    go(body, 0)
    return frozenset(inside & outside)


def guesses(
    scalars: Scalars, loads: Iterable[Source], buffer: str, variables: Iterable[str], stmt: ir.Stmt
) -> tuple[c.Guess, ...]:
    """What the coordinates of a stage may be at a statement of a role, in whose scope the loop `variables` are."""
    result: list[c.Guess] = []
    for source in loads:
        for axis, origin in enumerate(source.origin):
            for candidate in _candidates(origin, source.loops, tuple(variables)):
                if any((g.axis, g.expr) == (axis, candidate) for g in result) or len(result) >= _MOST:
                    continue
                try:
                    if not _moves_with_loops(scalars, scalars.form(candidate, stmt.span)):
                        continue  # a scalar would have to be kept exactly for it
                    at, _ = scalars.coordinate(candidate, stmt.span)
                except Unsupported:
                    continue
                result.append(c.Guess(buffer, axis, candidate, at))
    return tuple(result)


def _moves_with_loops(scalars: Scalars, form: forms.Form) -> bool:
    """True for multiples of loop positions plus what is fixed."""
    for key, coefficient in form.terms:
        if scalars.concrete(forms.scale(forms.atom(key), coefficient)):
            loop = scalars.loop_of_slot.get(key.name) if isinstance(key, ex.Var) else None
            if loop is None or loop.oracle is None or coefficient.denominator != 1:
                return False
    return True


def _candidates(origin: ex.Expr, loops: Loops, variables: tuple[str, ...]) -> Iterator[ex.Expr]:
    moving = [loop for loop in loops if loop[0] in ex.names(origin)]
    if len(moving) > 1:
        return
    yield origin
    for var, lo, step in moving:
        for value in (*(ex.Var(v) for v in variables), lo):
            yield ex.substitute(origin, {var: value})
        match origin:
            case ex.Bin("+", ex.Var(), ex.Int(distance)) if var in variables:
                for ahead in range(1, _MOST_AHEAD):
                    yield ex.add(ex.Var(var), ex.Int(distance - ahead * step))
            case _:
                pass


def held(program: c.Program, met: set[c.Guess], wrong: set[c.Guess]) -> Places:
    """By statement (its id) and buffer: what the axes of the tile in the stage start at, as guesses that never failed
    say.
    """
    result: dict[tuple[int, str], dict[int, ex.Expr]] = {}
    for role in program.roles:
        for o in role.code:
            for guess in o.guesses:
                if guess in met and guess not in wrong:
                    result.setdefault((id(o.stmt), guess.buffer), {}).setdefault(guess.axis, guess.expr)
    return {key: axes for key, axes in result.items()}
