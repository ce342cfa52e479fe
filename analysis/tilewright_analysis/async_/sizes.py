"""Concrete sizes at which a symbolic counterexample happens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, product
from math import inf, prod

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright_analysis.async_ import code as c
from tilewright_analysis.async_ import forms
from tilewright_analysis.async_.model import Unsupported
from tilewright_analysis.async_.reporter import Found

LIMIT = 4000  # combinations of sizes that are tried for each grid
# Persistent grids are tried with these (programs, program): the more, the later tiles a program meets at once.
GRIDS = ((1, 0), (2, 1), (3, 1), (3, 2), (4, 3))
PROGRAM = "%1"  # the program variable in canonical forms


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes, the tiles that the program takes (None: not persistent), its number, and the number of programs.

    `numbers` are the two values whose difference is the violation, where it is one of numbers.
    """

    sizes: Mapping[str, int]
    tiles: int | None
    program: int
    programs: int
    numbers: tuple[int, int] | None


def solve(program: c.Program, found: Found) -> Sizes | None:
    """The smallest sizes, in the order tried, that give the decided trip counts and show the difference, or None."""
    try:
        return _Solver(program, found).solve()
    except Unsupported:
        # Elements of index tensors decide it; no tables are searched for here.
        return None


class _Solver:
    def __init__(self, program: c.Program, found: Found) -> None:
        self.program, self.found = program, found
        self.names = program.kernel.sizes
        self.slots = {n: i for i, n in enumerate((*self.names, PROGRAM))}
        self.tiles = next(
            (
                max(1, int(found.oracles.get((i, 0), (1.0, 1.0))[0]))
                for i, o in enumerate(program.oracles)
                if o.is_programs
            ),
            None,
        )
        self.counts = [(self.scalar(o.trip.expr), o) for o in program.oracles]
        # Where each program takes one tile: the number of programs, if sizes alone give it.
        grids = [s.count for s in ir.walk(program.kernel.body) if isinstance(s, ir.Programs) and not s.persistent]
        known = bool(grids) and ex.names(grids[0]) <= set(self.names) and not any(ex.items(grids[0]))
        self.count = grids[0] if known else ex.Int(1)
        self.grid = self.scalar(self.count) if known else None

    def scalar(self, expr: ex.Expr) -> c.Scalar:
        return c.compile_scalar(expr, self.slots)

    def solve(self) -> Sizes | None:
        assumptions = [self.scalar(a.expr) for a in self.program.kernel.assumptions]
        for programs, number in GRIDS:
            for values in islice(self.candidates((self.tiles or 1) * programs), LIMIT):
                found = self.found_at(values, programs, number, assumptions)
                if found is not None:
                    return found
        # The grid may be larger than those: as many programs as give each that number of tiles.
        for values in islice(self.candidates(self.tiles), LIMIT) if self.tiles is not None else ():
            for programs, number in self.grids(values, self.tiles or 1):
                found = self.found_at(values, programs, number, assumptions)
                if found is not None:
                    return found
        return None

    def found_at(
        self, values: tuple[int, ...], programs: int, number: int, assumptions: list[c.Scalar]
    ) -> Sizes | None:
        """The sizes `values` if the issue happens there, in program `number` of `programs`."""
        env = [*values, number]
        try:
            if not all(a(env) for a in assumptions) or not self.fits(env, programs, number):
                return None
            shown = self.shown(env, programs)
        except ZeroDivisionError:
            return None
        if shown is None:
            return None
        sizes = dict(zip(self.names, values, strict=True))
        return Sizes(sizes, self.tiles, number, programs if self.tiles is not None else 1, shown[0])

    def grids(self, values: tuple[int, ...], tiles: int) -> Iterator[tuple[int, int]]:
        """(programs, program) that share the grid at these sizes so that the program takes `tiles` tiles."""
        for count, oracle in self.counts:
            if oracle.is_programs:
                try:
                    total = count([*values, 0])
                except ZeroDivisionError:
                    return
                programs = max(1, -(-total // tiles))
                if programs > GRIDS[-1][0]:
                    yield programs, 0
                    yield programs, max(0, total - (tiles - 1) * programs - 1)

    def at(self, env: list[int], outer: int, programs: int) -> list[int]:
        """The environment in the program's tile number `outer`."""
        return env if self.tiles is None or outer <= 0 else [*env[:-1], env[-1] + outer * programs]

    def fits(self, env: list[int], programs: int, number: int) -> bool:
        if self.grid is not None and number >= self.grid(env):
            return False
        for (i, outer), (low, high) in self.found.oracles.items():
            count, oracle = self.counts[i]
            n = count(self.at(env, outer, programs))
            if oracle.is_programs:
                if -(-(n - number) // programs) != self.tiles:
                    return False
            elif not low <= n <= high:
                return False
        return True

    def shown(self, env: list[int], programs: int) -> tuple[tuple[int, int] | None] | None:
        """A one-tuple with the two numbers that differ (None: no numbers are needed), or None when nothing differs."""
        issue = self.found.issue
        if issue.short is not None:
            dim, reached = issue.short
            extent = self.scalar(forms.to_expr(self.program.dims[dim]))(env)
            return (None,) if extent > reached else None
        if issue.differs is None:
            return (None,)
        a, b = (
            self.scalar(forms.to_expr(self.program.symbols[symbol]))(self.at(env, outer, programs)) + const
            for symbol, outer, const in issue.differs
        )
        return ((a, b),) if a != b else None

    def candidates(self, tiles: int) -> Iterator[tuple[int, ...]]:
        """Combinations of sizes, simple ones first: multiples of the tiles, then just past or before them."""
        steps, facts = self.steps(), forms.Facts.of(self.program.kernel.assumptions)
        # Sizes that are compared with each other are tried equal, and as near as they may be.
        units = {max(facts.multiple.get(n, 1), *steps[n], 1) for n in self.names}
        most = dict.fromkeys(self.names, tiles)
        for (i, _), (low, _) in self.found.oracles.items():
            for n in self.program.oracles[i].trip.form.names() & most.keys():
                if not self.program.oracles[i].is_programs and abs(low) < inf:
                    most[n] = max(most[n], int(low), 1)
        lists: list[list[int]] = []
        for n in self.names:
            unit = facts.multiple.get(n, 1)
            least, greatest = facts.lower.get(n, 1), facts.upper.get(n, inf)
            mine = sorted(steps[n], reverse=True) or [1]
            values = [step * k for step in mine for k in range(1, most[n] + 2)]
            for step in mine:
                for k in range(most[n] + 2):
                    values += [step * k + unit, step * k - unit, step * k + 1]
            values += [near for v in self.named(n) for near in (v, v + unit, v - unit)]
            values += [near for v in sorted(units) for near in (v, v + unit, v - unit)]
            # A size that is at least some large number takes the values just above that.
            values += [-(-(least + v) // unit) * unit for v in values if least > 1 and v >= 0]
            kept = [v for v in dict.fromkeys(values) if least <= v <= greatest and v % unit == 0]
            lists.append([v for v in kept if self.allowed(n, v)])
        everything = product(*lists)
        if prod(map(len, lists)) > 20 * LIMIT:
            yield from everything
            return
        ranks = [{v: i for i, v in enumerate(values)} for values in lists]

        def effort(combination: tuple[int, ...]) -> int:
            return sum(rank[v] for rank, v in zip(ranks, combination, strict=True))

        yield from sorted(everything, key=effort)

    def allowed(self, name: str, value: int) -> bool:
        """False when a trip count of this size alone rules the value out."""
        env = [value] * len(self.slots)
        for (i, _), (low, high) in self.found.oracles.items():
            count, oracle = self.counts[i]
            if (
                not oracle.is_programs
                and oracle.trip.form.names() == frozenset((name,))
                and not low <= count(env) <= high
            ):
                return False
        return True

    def named(self, name: str) -> list[int]:
        """The numbers that assumptions mention together with a size."""
        found: list[int] = []
        for a in self.program.kernel.assumptions:
            for part in ex.walk(a.expr):
                if isinstance(part, ex.Bin) and name in ex.names(part):
                    found += [e.value for e in (part.lhs, part.rhs) if isinstance(e, ex.Int)]
        return list(dict.fromkeys(found))

    def steps(self) -> dict[str, set[int]]:
        """The numbers by which each size is divided anywhere."""
        steps: dict[str, set[int]] = {n: set() for n in self.names}
        exprs = [o.trip.expr for o in self.program.oracles]
        exprs += [*(forms.to_expr(s) for s in self.program.symbols), self.count]
        for e in exprs:
            for part in ex.walk(e):
                match part:
                    case ex.Bin("cdiv" | "//" | "%", inner, ex.Int(d)) if d > 0:
                        for n in ex.names(inner) & steps.keys():
                            steps[n].add(d)
                    case _:
                        pass
        if self.found.issue.short is not None:
            # No loop need run over this dimension, as in the parts of a split contraction.
            dim, reached = self.found.issue.short
            for n in self.program.dims[dim].names() & steps.keys():
                steps[n].add(max(1, reached))
        return steps
