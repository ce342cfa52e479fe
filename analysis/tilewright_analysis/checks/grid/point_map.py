"""TW302, TW303: each element of an output that is stored by index tiles is written exactly once.

Two elements (of any programs, iterations and lanes) that the mask chooses must not go to one place; and for each place
of the tensor there must be one that goes there. The second is shown by naming it: the program by its tile numbers, the
iteration of a loop by rounding down from where it starts, the lane by what is left. Where offsets cut a dimension
into segments (`T[0] <= 0` and the extent `<= T[last]` follow from the contracts), every place lies in a segment: the
last whose offset is not past it. Indices that are the digits of one number (`n // Q % P`, `n % Q`) count as that
number, where the mask says that it is below the product of the extents (`mixed_radix`). A map of as many elements as
places, one to one, reaches all of them too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import permutations

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.problem import Related

from ...context import KernelContext, Site
from ...integers import Binder, Question, conjunction
from ...lane_values import Lane, LaneValues, Wrap, lanes, narrowed
from ...mixed_radix import conjuncts, joined, upper_bounds
from ...report import Obligation, Verdict
from ..outcome import Values, fixes_of, proved, settle, unknown
from .permutations import offer, unpermuted
from .writes import outputs

INJECTIVE, COVERAGE = "TW302", "TW303"
_TWIN = "~"


@dataclass(frozen=True)
class PointWrite:
    """A scatter: where its elements go, over sizes, binders and lanes; None where that is not followed.

    `place` has an index for each dimension; in `index`, with its `extents`, digits of one number are that number.
    """

    site: Site
    stmt: ir.Scatter
    shape: tuple[int, ...]
    place: tuple[ex.Expr, ...]
    index: tuple[ex.Expr, ...] | None
    extents: tuple[ex.Expr, ...]
    mask: ex.Expr
    facts: tuple[ex.Expr, ...]
    symbols: tuple[Binder, ...]
    lanes: tuple[Binder, ...]
    wraps: tuple[Wrap, ...]

    @property
    def binders(self) -> tuple[Binder, ...]:
        """Everything that tells one element from another."""
        return (*self.site.loops, *self.lanes)


def check(context: KernelContext) -> Iterator[Obligation]:
    """One obligation for each pair of scatters to a tensor, and one for the tensor."""
    tiles = outputs(context)
    found: dict[str, list[PointWrite]] = {}
    updated: dict[str, ir.Scatter] = {}
    for site in context.sites:
        if isinstance(site.stmt, ir.Scatter) and site.stmt.op:
            updated.setdefault(site.stmt.tensor, site.stmt)
        elif isinstance(site.stmt, ir.Scatter):
            found.setdefault(site.stmt.tensor, []).append(_write(context, site, site.stmt))
    for tensor, stmt in updated.items():
        stored = tensor in found or any(not isinstance(w.site.stmt, ir.Atomic) for w in tiles.get(tensor, ()))
        if stored:
            missing = f"{tensor} is stored to and updated by index tiles, and nothing orders the two"
            yield unknown(context, INJECTIVE, "grid", f"no element of {tensor} is stored twice", stmt.span, missing)
    for tensor, writes in found.items():
        verdicts: set[Verdict] = set()
        for i, one in enumerate(writes):
            for other in writes[i:]:
                done = _injective(context, one, other)
                verdicts.add(done.verdict)
                yield done
        if tensor in tiles:
            missing = f"{tensor} is stored to by tiles and by index tiles, which are not compared"
            yield unknown(context, INJECTIVE, "grid", f"no element of {tensor} is stored twice", writes[0].stmt.span,
                          missing)  # fmt: skip
        elif "refuted" not in verdicts and not context.kernel.param(tensor).given:
            yield _coverage(context, tensor, writes, verdicts == {"proved"})


def _write(context: KernelContext, site: Site, stmt: ir.Scatter, suffix: str = "") -> PointWrite:
    tile = context.tile(stmt.src)
    shape = tile.shape if tile is not None else ()
    binders, lane = lanes(shape, suffix)
    values = LaneValues(context, site, binders, suffix=suffix)
    mask = values.value(stmt.mask, lane) if stmt.mask is not None else ex.Int(1)
    values.known = (mask,) if mask is not None else ()
    found = [values.value(i, lane) for i in stmt.index]
    index = tuple(f for f in found if f is not None)
    chosen = ex.Int(1) if mask is None else mask
    extents = context.kernel.param(stmt.tensor).type.shape
    known = None
    if len(index) == len(found) and mask is not None:
        known, extents = joined(index, extents, upper_bounds(chosen))
    facts, symbols = tuple(values.facts), tuple(values.symbols)
    return PointWrite(site, stmt, shape, index, known, extents, chosen, facts, symbols, binders, tuple(values.wraps))


def _tracked(write: PointWrite, sizes: tuple[str, ...]) -> bool:
    """False when a value that is not known takes part."""
    if write.index is None:
        return False
    bounds = [e for b in write.site.loops for e in (b.lo, b.hi)]
    names = {n for e in (*write.index, write.mask, *write.facts, *write.site.conditions, *bounds) for n in ex.names(e)}
    return names <= {b.name for b in (*write.binders, *write.symbols)} | {
        s for e in names for s in (e,) if _size(e, write)
    }


def _size(name: str, write: PointWrite) -> bool:
    exprs = (*(write.index or ()), write.mask, *write.facts, *write.site.facts)
    exprs += tuple(e for b in write.site.loops for e in (b.lo, b.hi))
    return any(isinstance(e, ex.Size) and e.name == name for x in exprs for e in ex.walk(x))


def _injective(context: KernelContext, one: PointWrite, other: PointWrite) -> Obligation:
    same = one is other
    what = f"no element of {one.stmt.tensor} is stored twice" + ("" if same else " by two statements")
    related = () if same else (Related(other.stmt.span, "the other store"),)
    sizes = context.kernel.sizes
    if not _tracked(one, sizes) or not _tracked(other, sizes) or one.index is None or other.index is None:
        return unknown(context, INJECTIVE, "grid", what, one.stmt.span, _untracked(), related=related)
    names = frozenset(b.name for b in (*other.binders, *other.symbols))
    env: dict[str, ex.Expr] = {n: ex.Var(n + _TWIN) for n in names}

    def twin(e: ex.Expr) -> ex.Expr:
        return ex.substitute(e, env)

    # Two statements may take different dimensions for digits of one number.
    mine, theirs = (one.index, other.index) if same else (one.place, other.place)
    meet = conjunction(ex.Bin("==", i, twin(j)) for i, j in zip(mine, theirs, strict=True))
    claim = ex.negate(conjunction((one.mask, twin(other.mask), meet)))
    if same:
        alike = conjunction(ex.Bin("==", ex.Var(b.name), twin(ex.Var(b.name))) for b in one.binders)
        claim = ex.Bin("or", claim, alike) if alike != ex.Int(1) else ex.Int(1)
    facts = (*one.site.facts, *one.facts, *(twin(f) for f in (*other.site.facts, *other.facts)))
    twins = tuple(b.renamed(_TWIN, names) for b in (*other.binders, *other.symbols))
    question = Question(claim, tuple(dict.fromkeys(facts)), (*one.binders, *one.symbols, *twins))
    decision = narrowed(context, context.decider.decide(question), (*one.wraps, *other.wraps))

    def message(m: Values) -> str:
        at = ", ".join(str(ex.evaluate(i, m)) for i in one.place)
        how = [", ".join(f"{b.label} = {m[b.name + s]}" for b in w.binders) for w, s in ((one, ""), (other, _TWIN))]
        return f"Element {one.stmt.tensor}[{at}] is written twice: with {how[0]} and with {how[1]}."

    offered = offer(context, one.place, one.facts) if same and decision.verdict != "proved" else None
    hint, fix = offered or ("", None)
    return settle(
        context, one.site, INJECTIVE, "grid", what, decision, message, span=one.stmt.span, related=related, hint=hint,
        fixes=fixes_of(fix),
        element=lambda m: tuple(ex.evaluate(i, m) for i in one.place),
    )  # fmt: skip


def _coverage(context: KernelContext, tensor: str, writes: list[PointWrite], one_to_one: bool) -> Obligation:
    what = f"every element of {tensor} is stored"
    first = writes[0]
    tracked = _tracked(first, context.kernel.sizes)
    if len(writes) > 1 or not tracked:
        missing = "several statements store parts of it" if tracked else _untracked()
        return unknown(context, COVERAGE, "grid", what, first.stmt.span, missing)
    extents = first.extents
    if first.index is not None:
        known = (*conjuncts(first.mask), *first.facts)
        index = unpermuted(context, first.site, first.index, extents, known, (*first.lanes, *first.symbols))
        used = frozenset(n for e in (*index, first.mask) for n in ex.names(e))
        first = replace(first, index=index, symbols=tuple(s for s in first.symbols if s.name in used))
    if one_to_one and first.mask == ex.Int(1) and not first.site.conditions and _as_many(context, first, extents):
        return proved(COVERAGE, "grid", what, first.stmt.span, "counting")
    for questions in _witnesses(context, first, extents):
        if all(context.decider.proves(q) for q in questions):
            return proved(COVERAGE, "grid", what, first.stmt.span, "witness")
    missing = "no program, iteration and lane are known that write a given element"
    return unknown(context, COVERAGE, "grid", what, first.stmt.span, missing)


def _as_many(context: KernelContext, write: PointWrite, extents: tuple[ex.Expr, ...]) -> bool:
    total: ex.Expr = ex.Int(1)
    for b in write.binders:
        if any(isinstance(e, ex.Var | ex.Item) for part in (b.lo, b.hi) for e in ex.walk(part)):
            return False
        total = ex.mul(total, ex.Bin("max", ex.Int(0), ex.cdiv(ex.sub(b.hi, b.lo), ex.Int(b.step))))
    needed: ex.Expr = ex.Int(1)
    for extent in extents:
        needed = ex.mul(needed, extent)
    return context.decider.proves(Question(ex.Bin("<=", needed, total), context.assumptions))


def _witnesses(context: KernelContext, write: PointWrite, extents: tuple[ex.Expr, ...]) -> Iterator[list[Question]]:
    """Questions that name, for a place, the program, iterations and lane that write it."""
    if write.symbols or write.index is None:
        return
    places = tuple(Binder(f"place {d}", f"place {d}", "loop", ex.Int(0), n) for d, n in enumerate(extents))
    programs = [b for b in write.site.loops if b.kind == "program"]
    if len(programs) > 1:
        return
    for digits, facts, more in _digits(context, write, places):
        if sorted(map(ex.show, _factors(programs))) != sorted(ex.show(n) for _, n in digits):
            continue
        # The branches around the store are to be shown, not assumed.
        known = tuple(
            f
            for f in write.site.facts
            if f not in write.site.conditions and not any(isinstance(e, ex.Var) for e in ex.walk(f))
        )
        # Each digit is one of those that there are; then quotients and remainders of the number are the digits.
        claims: list[ex.Expr] = []
        for digit, count in digits:
            claims += [ex.Bin("<=", ex.Int(0), digit), ex.Bin("<", digit, count)]
        plain = write
        if programs:
            plain = _with_digits(write, programs[0].name, digits)
        env: dict[str, ex.Expr] = {}
        if programs:
            number: ex.Expr = ex.Int(0)
            for digit, count in digits:
                number = ex.add(ex.mul(number, count), digit)
            env[programs[0].name] = number
        if not _solve(plain, places, env):
            continue
        assert plain.index is not None
        claims += [ex.substitute(c, env) for c in (*plain.site.conditions, *conjuncts(plain.mask))]
        for b in plain.binders:
            if b.kind == "program":
                continue  # its digits are in range
            value, lo, hi = env[b.name], ex.substitute(b.lo, env), ex.substitute(b.hi, env)
            claims += [ex.Bin("<=", lo, value), ex.Bin("<", value, hi)]
            if b.step > 1:
                claims.append(ex.Bin("==", ex.Bin("%", ex.sub(value, lo), ex.Int(b.step)), ex.Int(0)))
        claims += [
            ex.Bin("==", ex.substitute(i, env), ex.Var(p.name)) for i, p in zip(plain.index, places, strict=True)
        ]
        yield [Question(c, (*known, *facts), (*places, *more)) for c in claims if c != ex.Int(1)]


def _with_digits(write: PointWrite, program: str, digits: tuple[Digit, ...]) -> PointWrite:
    """The write with quotient and remainder of the program number by the last count as its digits."""
    number, (last, count) = ex.Var(program), digits[-1]
    quotient: dict[ex.Expr, ex.Expr] = {ex.Bin("%", number, count): last}
    if len(digits) == 2:
        quotient[ex.Bin("//", number, count)] = digits[0][0]
    if len(digits) == 3:
        quotient[ex.Bin("//", number, ex.mul(digits[1][1], count))] = digits[0][0]
        quotient[ex.Bin("//", ex.Bin("//", number, count), digits[1][1])] = digits[0][0]
        quotient[ex.Bin("%", ex.Bin("//", number, count), digits[1][1])] = digits[1][0]

    def change(e: ex.Expr) -> ex.Expr:
        if e in quotient:
            return quotient[e]
        match e:
            case ex.Bin(op, lhs, rhs):
                return ex.binary(op, change(lhs), change(rhs))
            case ex.Not(arg):
                return ex.negate(change(arg))
            case ex.Item(tensor, index):
                return ex.Item(tensor, tuple(change(i) for i in index))
            case _:
                return e

    binders = tuple(replace(b, lo=change(b.lo), hi=change(b.hi)) if b.kind == "loop" else b for b in write.site.binders)
    site = replace(
        write.site, binders=binders, conditions=tuple(map(change, write.site.conditions)),
        facts=tuple(map(change, write.site.facts)),
    )  # fmt: skip
    return replace(write, site=site, index=tuple(map(change, write.index or ())), mask=change(write.mask))


def _factors(programs: list[Binder]) -> Iterator[ex.Expr]:
    """The factors of the number of programs."""
    pending = [b.hi for b in programs]
    while pending:
        match pending.pop():
            case ex.Bin("*", lhs, rhs):
                pending += [lhs, rhs]
            case other:
                yield other


def _solve(write: PointWrite, places: tuple[Binder, ...], env: dict[str, ex.Expr]) -> bool:
    """Iterations and lanes for the places, given the program; False if a binder is left over."""
    assert write.index is not None
    for b in write.binders:
        if b.name in env:
            continue
        for index, place in zip(write.index, places, strict=True):
            if b.name not in ex.names(index):
                continue
            rest = ex.substitute(index, env | {o.name: o.lo for o in write.binders if o.name not in env and o is not b})
            base = ex.substitute(rest, {b.name: ex.Int(0)})
            step = ex.substitute(rest, {b.name: ex.Int(1)})
            if ex.substitute(ex.sub(step, base), env) not in (ex.Int(1), ex.sub(step, base)):
                continue
            # index = base + b: the last value of b that does not pass the place.
            lo = ex.substitute(b.lo, env)
            distance = ex.sub(ex.Var(place.name), ex.substitute(rest, {b.name: lo}))
            env[b.name] = ex.add(lo, ex.mul(ex.floordiv(distance, ex.Int(b.step)), ex.Int(b.step)))
            break
        else:
            return False
    return True


Digit = tuple[ex.Expr, ex.Expr]


def _digits(
    context: KernelContext, write: PointWrite, places: tuple[Binder, ...]
) -> Iterator[tuple[tuple[Digit, ...], tuple[ex.Expr, ...], tuple[Binder, ...]]]:
    """What the number of a program may be made of, most significant first: (digit, how many there are).

    Tile numbers along the dimensions that a lane runs along, and the segment of a dimension, if offsets cut it.
    """
    tiles: list[Digit] = []
    for place, extent in zip(places, (b.hi for b in places), strict=True):
        lengths = [n for n in write.shape if n > 1] or [1]
        for length in dict.fromkeys(lengths):
            tiles.append((ex.floordiv(ex.Var(place.name), ex.Int(length)), ex.cdiv(extent, ex.Int(length))))
        tiles.append((ex.Var(place.name), extent))
    segments = list(_segments(context, places))
    counts = list(_factors([b for b in write.site.loops if b.kind == "program"]))
    for count in range(0, 3):
        for chosen in permutations(dict.fromkeys(tiles), count):
            yield chosen, (), ()
        for digit, within, facts, more in segments:
            # The tile of the segment that the place lies in, of as many as there are programs for.
            own = [
                (ex.floordiv(within, length), n)
                for n in counts
                if isinstance(n, ex.Bin) and n.op == "cdiv" and isinstance(length := n.rhs, ex.Int)
            ]
            # Or a constant number of programs take the tiles of a segment in turns.
            own += [
                (ex.Bin("%", ex.floordiv(within, ex.Int(length)), n), n)
                for n in counts
                for length in write.shape
                if isinstance(n, ex.Int) and length > 1
            ]
            for chosen in permutations(dict.fromkeys((*own, *tiles)), count):
                for at in range(count + 1):
                    yield (*chosen[:at], digit, *chosen[at:]), facts, more


def _segments(
    context: KernelContext, places: tuple[Binder, ...]
) -> Iterator[tuple[Digit, ex.Expr, tuple[ex.Expr, ...], tuple[Binder, ...]]]:
    """For offsets that cut a dimension: the segment of a place as a symbol, how far in it the place is, and what
    is known of them.

    With T[0] <= 0 and n <= T[last], a place p in [0, n) has a segment s in [0, last) with T[s] <= p < T[s + 1]: the
    last s with T[s] <= p.
    """
    for tensor, shape in context.decider.functions.extents.items():
        if len(shape) != 1 or not any(i.tensor == tensor for c in context.kernel.contracts for i in ex.items(c.expr)):
            continue
        last = ex.Bin("-", shape[0], ex.Int(1))
        match shape[0]:
            case ex.Bin("+", lhs, ex.Int(1)):
                last = lhs
            case _:
                pass
        starts = ex.Bin("<=", ex.Item(tensor, (ex.Int(0),)), ex.Int(0))
        if not context.decider.proves(Question(starts, context.assumptions)):
            continue
        for place in places:
            ends = ex.Bin("<=", place.hi, ex.Item(tensor, (last,)))
            if context.decider.proves(Question(ends, context.assumptions)):
                name = f"segment of {place.name}"
                s, p = ex.Var(name), ex.Var(place.name)
                facts = (
                    ex.Bin("<=", ex.Item(tensor, (s,)), p),
                    ex.Bin("<", p, ex.Item(tensor, (ex.Bin("+", s, ex.Int(1)),))),
                )
                within = ex.sub(p, ex.Item(tensor, (s,)))
                yield (s, last), within, facts, (Binder(name, name, "loop", ex.Int(0), last),)


def _untracked() -> str:
    return "where its elements go is computed in a way that is not followed here"


__all__ = ["COVERAGE", "INJECTIVE", "Lane", "PointWrite", "check"]
