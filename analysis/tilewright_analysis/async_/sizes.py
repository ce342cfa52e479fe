"""Concrete sizes at which a symbolic counterexample happens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, product

from tilewright.ir import expr as ex
from tilewright_analysis.async_ import code as c
from tilewright_analysis.async_ import forms
from tilewright_analysis.async_.findings import Found

LIMIT = 20_000  # combinations of sizes that are tried


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes, the tiles that the program takes (None: not persistent), its number, the number of programs, and the numbers
    that differ.
    """

    sizes: Mapping[str, int]
    tiles: int | None
    program: int
    programs: int
    numbers: tuple[int, int] | None


# Persistent grids are tried with these (programs, program): the more, the later tiles a program meets at once.
GRIDS = ((1, 0), (2, 1), (3, 1), (3, 2), (4, 3))


def solve(program: c.Program, found: Found, *, differing: bool = True) -> Sizes | None:
    """The smallest sizes, in the order tried, that give the decided trip counts and show the difference; None if none do.

    With `differing` false, sizes that only give the trip counts.
    """
    kernel = program.kernel
    tiles = _tiles(program, found)
    for programs, number in GRIDS:
        for sizes in islice(_candidates(program, found, (tiles or 1) * programs), LIMIT):
            if not all(_value(a.expr, sizes) for a in kernel.assumptions):
                continue
            env = {**sizes, "%1": number}
            if _fits(program, found, env, tiles, programs, number):
                shown = _shown(program, found, env, tiles, programs) if differing else (None,)
                if shown is not None:
                    return Sizes(sizes, tiles, number, programs if tiles is not None else 1, shown[0])
    return None


def _at(env: Mapping[str, int], outer: int, tiles: int | None, programs: int) -> Mapping[str, int]:
    """The environment in a program's tile number `outer`."""
    return env if tiles is None or outer < 0 else {**env, "%1": env["%1"] + outer * programs}


def _tiles(program: c.Program, found: Found) -> int | None:
    for i, o in enumerate(program.oracles):
        if o.is_programs:
            return max(1, int(found.oracles.get((i, 0), (1.0, 1.0))[0]))
    return None


def _value(expr: ex.Expr, env: Mapping[str, int]) -> int | None:
    try:
        return ex.evaluate(expr, env)
    except ex.EvaluationError:
        return None


def _fits(
    program: c.Program, found: Found, env: Mapping[str, int], tiles: int | None, programs: int, number: int
) -> bool:
    for (i, outer), (low, high) in found.oracles.items():
        oracle = program.oracles[i]
        n = _value(oracle.trip.expr, _at(env, outer, tiles, programs))
        if n is None:
            return False
        if oracle.is_programs:
            if -(-(n - number) // programs) != tiles:
                return False
        elif not low <= n <= high:
            return False
    return True


def _shown(
    program: c.Program, found: Found, env: Mapping[str, int], tiles: int | None, programs: int
) -> tuple[tuple[int, int] | None] | None:
    """A one-tuple with the two numbers that differ (None: no numbers are needed), or None when nothing differs."""
    issue = found.issue
    if issue.short is not None:
        dim, reached = issue.short
        extent = _value(forms.to_expr(program.dims[dim]), env)
        return (None,) if extent is not None and extent > reached else None
    if issue.differs is None:
        return (None,)
    numbers: list[int] = []
    for symbol, outer, const in issue.differs:
        value = _value(forms.to_expr(program.symbols[symbol]), _at(env, outer, tiles, programs))
        if value is None:
            return None
        numbers.append(value + const)
    return ((numbers[0], numbers[1]),) if numbers[0] != numbers[1] else None


def _candidates(program: c.Program, found: Found, tiles: int) -> Iterator[dict[str, int]]:
    names = program.kernel.sizes
    steps: dict[str, set[int]] = {n: set() for n in names}

    def read(e: ex.Expr) -> None:
        for part in ex.walk(e):
            match part:
                case ex.Bin("cdiv" | "//" | "%", inner, ex.Int(d)) if d > 0:
                    for n in ex.names(inner) & steps.keys():
                        steps[n].add(d)
                case _:
                    pass

    most: dict[str, int] = dict.fromkeys(names, tiles)
    for i, oracle in enumerate(program.oracles):
        read(oracle.trip.expr)
        for n in oracle.trip.form.names() & steps.keys():
            steps[n].add(oracle.trip.step)
            bounds = [low for (j, _), (low, _) in found.oracles.items() if i == j and not oracle.is_programs]
            most[n] = max(most[n], *(int(b) for b in bounds if b < float("inf")), 1)
    for symbol in program.symbols:
        read(forms.to_expr(symbol))
    multiple = forms.Facts.of(program.kernel.assumptions).multiple
    lists: list[list[int]] = []
    for n in names:
        unit = multiple.get(n, 1)
        values: list[int] = []
        for step in sorted(steps[n], reverse=True) or [1]:
            values += [step * k for k in range(1, most[n] + 2)]
        values += [0]
        for step in sorted(steps[n], reverse=True) or [1]:
            for k in range(0, most[n] + 2):
                values += [step * k + unit, step * k - unit, step * k + 1]
        lists.append([v for v in dict.fromkeys(values) if v >= 0 and v % unit == 0])
    for combination in sorted(product(*lists), key=_effort(lists)) if _count(lists) <= LIMIT else product(*lists):
        yield dict(zip(names, combination, strict=True))


def _count(lists: list[list[int]]) -> int:
    total = 1
    for values in lists:
        total *= len(values)
    return total


def _effort(lists: list[list[int]]):
    ranks = [{v: i for i, v in enumerate(values)} for values in lists]

    def effort(combination: tuple[int, ...]) -> int:
        return sum(rank[v] for rank, v in zip(ranks, combination, strict=True))

    return effort
