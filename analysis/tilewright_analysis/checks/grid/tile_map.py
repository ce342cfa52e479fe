"""TW301, TW302, TW303: each tile of an output is written exactly once.

The grid sends programs (and the iterations around a store) to tiles of the output. Three things make it right:

- TW301: every program's tile is a tile of the output: its origin is inside the tensor and on the tile grid. Programs
  beyond those that all tiles need may be past the end, where stores drop everything;
- TW302: no two programs write the same tile;
- TW303: no tile is left out.

Range and injectivity are proved separately, with all sizes symbolic; coverage then follows from counting: as many
writes as tiles, each inside, no two alike. Where a store is conditional, coverage is shown by naming the program that
writes a given tile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from math import prod

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.problem import Fix, Related

from ...context import KernelContext
from ...integers import Binder, Decision, Question, conjunction
from ...report import Obligation, Verdict
from ..outcome import Values, assume_fix, call_prefix, counterexample, fixes_of, refuted, settle, situation, unknown
from .digits import digits_of_program
from .splits import split_of
from .unused import unused
from .writes import Fault, Write, outputs, small_faults

RANGE, INJECTIVE, COVERAGE = "TW301", "TW302", "TW303"
_TWIN = "~"
_MOST_STORES = 4


def check(context: KernelContext) -> Iterator[Obligation]:
    """Range of each store, injectivity of each pair of stores, coverage of each output; and that there is one.

    Atomic updates may meet each other, but no store; what they or the launch initialize need not be covered.
    """
    yield from unused(context)
    for tensor, written in outputs(context).items():
        updates = [w for w in written if isinstance(w.site.stmt, ir.Atomic)]
        writes = [w for w in written if w not in updates]
        faults = _Faults(context, writes)
        verdicts: set[Verdict] = set()
        ranges = [_range(context, write, faults) for write in writes]
        if any(done.verdict == "refuted" for done in ranges) and not updates:
            larger = _larger_grid(context, tensor, writes, ranges, faults)
            if larger:
                yield from larger
                continue
        for done in ranges:
            verdicts.add(done.verdict)
            yield done
        for i, write in enumerate(writes):
            for other in writes[i:]:
                done = _injective(context, write, other, faults, thorough="refuted" not in verdicts)
                verdicts.add(done.verdict)
                yield done
            for other in updates:
                done = _injective(context, write, other, faults, thorough="refuted" not in verdicts)
                verdicts.add(done.verdict)
                yield done
        if "refuted" not in verdicts and writes and not context.kernel.param(tensor).given:
            # Otherwise the tiles that are missing follow from the fault already reported.
            yield _coverage(context, tensor, writes, verdicts == {"proved"}, faults)


def one_to_one(context: KernelContext, write: Write) -> Iterator[Obligation]:
    """Range, injectivity and coverage of one map from programs to tiles; nothing after the first that is refuted."""
    faults = _Faults(context, (write,))
    done = [_range(context, write, faults)]
    yield done[-1]
    if done[-1].verdict != "refuted":
        done.append(_injective(context, write, write, faults, thorough=True))
        yield done[-1]
    if done[-1].verdict != "refuted":
        yield _coverage(context, write.view.tensor, (write,), all(o.verdict == "proved" for o in done), faults)


class _Faults:
    """Small grids are run when the first claim is not proved at once."""

    def __init__(self, context: KernelContext, writes: Sequence[Write]) -> None:
        self._context, self._writes = context, writes

    def get(self, kind: str) -> Fault | None:
        """The fault of that kind on the smallest grid that shows one."""
        return self._found.get(kind)

    @cached_property
    def _found(self) -> dict[str, Fault]:
        return small_faults(self._context, self._writes)


def _larger_grid(
    context: KernelContext, tensor: str, writes: Sequence[Write], ranges: Sequence[Obligation], faults: _Faults
) -> list[Obligation]:
    """All obligations, proved, if some programs write past the end but each tile is written once; else none."""
    done: list[Obligation] = []
    for write, found in zip(writes, ranges, strict=True):
        if found.verdict == "refuted":
            if not context.decider.proves(write.site.question(conjunction(_inside(write, ends=False)))):
                return []
            found = Obligation(RANGE, "grid", found.what, write.span, "proved", how="stores drop what is past the end")
        done.append(found)
    for i, write in enumerate(writes):
        done += [_injective(context, write, other, faults, thorough=False) for other in writes[i:]]
    if not context.kernel.param(tensor).given:
        counted = len(writes) == 1 and all(o.verdict == "proved" for o in done) and _fills_larger(context, writes[0])
        what = f"every tile of {tensor} is stored"
        done.append(
            Obligation(COVERAGE, "grid", what, writes[0].span, "proved", how="counting in the larger grid")
            if counted
            else _coverage(context, tensor, writes, False, faults)
        )
    return done if all(o.verdict == "proved" for o in done) else []


def _fills_larger(context: KernelContext, write: Write) -> bool:
    """Whether a store, known to be one to one, has as many tiles as a grid that the kernel is written over, all of them
    inside of it, and that grid holds every tile of the output.
    """
    count = _count(write)
    if count is None or any(c is None for c in write.coordinates):
        return False
    for stmt in ir.walk(context.written.body):
        if isinstance(stmt, ir.Tiles) and len(stmt.counts) == len(write.tiles):
            claims = [ex.Bin("<=", n, larger) for n, larger in zip(write.tiles, stmt.counts, strict=True)]
            claims.append(ex.Bin("<=", _product(stmt.counts), count))
            inside = [
                ex.Bin("<", c, larger)
                for c, larger in zip(write.coordinates, stmt.counts, strict=True)
                if c is not None
            ]
            if context.decider.proves(Question(conjunction(claims), context.assumptions)) and context.decider.proves(
                write.site.question(conjunction(inside))
            ):
                return True
    return False


def _inside(write: Write, *, ends: bool) -> list[ex.Expr]:
    """The claims that a tile is one of the output; without `ends` it may lie past the end of its axes."""
    parts: list[ex.Expr] = []
    for axis, (origin, coordinate, extent, tiles, b) in enumerate(
        zip(write.origin, write.coordinates, write.extents, write.tiles, write.view.shape, strict=True)
    ):
        number, end = (origin, extent) if coordinate is None else (coordinate, tiles)
        parts.append(ex.Bin("<=", ex.Int(0), number))
        if ends or axis < write.view.lead:
            parts.append(ex.Bin("<", number, end))
        if coordinate is None:
            parts.append(ex.Bin("==", ex.Bin("%", origin, ex.Int(b)), ex.Int(0)))
    return parts


def _range(context: KernelContext, write: Write, faults: _Faults) -> Obligation:
    tensor, shape = write.view.tensor, write.view.shape
    question = write.site.question(conjunction(_inside(write, ends=True)))
    what = f"every tile stored to {tensor} is one of its {_by(shape)} tiles"
    if write.view.lead and "TW202" in context.refuted:
        how = "not decided because of an index that does not exist"
        return Obligation(RANGE, "grid", what, write.span, "unknown", how=how)
    if not context.decider.proves(question) and (fault := faults.get("outside")) and fault.write is write:
        decision = Decision("refuted", "small grids", fault.model)
    else:
        decision = context.decider.decide(question)

    def message(m: Values) -> str:
        at = tuple(ex.evaluate(o, m) for o in write.origin)
        extents = tuple(ex.evaluate(e, m) for e in write.extents)
        text = f"The tile at {_index(tensor, at)}"
        if all(0 <= o < e for o, e in zip(at, extents, strict=True)):
            return f"{text} is not on the grid of {_by(shape)} tiles, so tiles overlap or leave gaps."
        return f"{text} lies outside {tensor} ({_by(extents)}): this program writes no tile of the output."

    return settle(
        context, write.site, RANGE, "grid", what, decision, message,
        span=write.span, element=lambda m: tuple(ex.evaluate(o, m) for o in write.origin),
    )  # fmt: skip


def _injective(context: KernelContext, write: Write, other: Write, faults: _Faults, *, thorough: bool) -> Obligation:
    """With `thorough` all means are used; without, because a fault is known already, only cheap ones."""
    same = write is other
    tensor = write.view.tensor
    what = f"no tile of {tensor} is stored twice" + ("" if same else " by two statements")
    first, second = write.site.question(ex.Int(1)), other.site.question(ex.Int(1))
    names = frozenset(b.name for b in second.binders)
    env: dict[str, ex.Expr] = {n: ex.Var(n + _TWIN) for n in names}
    twins = tuple(b.renamed(_TWIN, names) for b in second.binders)
    facts = (*first.facts, *(t for f in second.facts if (t := ex.substitute(f, env)) not in first.facts))
    apart: list[ex.Expr] = [_differs(write, other, dim, env) for dim in range(len(write.origin))]
    if same:
        apart.append(conjunction(ex.Bin("==", ex.Var(b.name), ex.Var(b.name + _TWIN)) for b in write.site.loops))
    claim = apart[0] if apart else ex.Int(0)
    for part in apart[1:]:
        claim = ex.Bin("or", claim, part)
    question = Question(claim, facts, (*first.binders, *twins))
    if same and digits_of_program(write, question):
        return Obligation(INJECTIVE, "grid", what, write.span, "proved", how="digits")
    fault = None if context.decider.proves(question) else faults.get("twice")
    if fault is not None and (fault.write, fault.second) == (write, other):
        renamed = {n + _TWIN: v for n, v in fault.other.items()}
        decision = Decision("refuted", "small grids", {**fault.model, **renamed})
    elif thorough or context.decider.proves(question):
        decision = context.decider.decide(question)
    else:
        missing = "not decided because of the fault in the map"
        return Obligation(INJECTIVE, "grid", what, write.span, "unknown", how=missing)
    if decision.verdict == "refuted" and _by_one_program(write, other, decision.model):
        if not thorough:
            # Tiles outside of the output would count as written twice; that fault is told already.
            how = "not decided because of the fault in the map"
            return Obligation(INJECTIVE, "grid", what, write.span, "unknown", how=how)
        programs = [b for b in write.site.loops if b.kind == "program"]
        alike = conjunction(ex.Bin("==", ex.Var(b.name), ex.Var(b.name + _TWIN)) for b in programs)
        decision = context.decider.decide(replace(question, claim=ex.Bin("or", claim, alike)))
        if decision.verdict != "refuted":
            missing = (
                "One program stores a tile more than once. The last store counts if its threads store in the order of "
                "the text, which is not checked"
            )
            related = () if same else (Related(other.span, "the other store"),)
            return unknown(context, INJECTIVE, "grid", what, write.span, missing, related=related)

    def message(m: Values) -> str:
        at = tuple(ex.evaluate(o, m) for o in write.origin)
        there = tuple(ex.evaluate(ex.substitute(o, env), m) for o in other.origin)
        one = ", ".join(f"{b.label} = {m[b.name]}" for b in write.site.loops)
        two = ", ".join(f"{b.label} = {m[b.name + _TWIN]}" for b in other.site.loops)
        how = (one or "the first store", two or "the second")
        if at != there:
            return (
                f"The tiles at {_index(tensor, at)} ({how[0]}) and {_index(tensor, there)} ({how[1]}) overlap: "
                f"elements "
                "are written twice."
            )
        return f"The tile at {_index(tensor, at)} is written twice: with {how[0]} and with {how[1]}."

    return settle(
        context, write.site, INJECTIVE, "grid", what, decision, message, span=write.span,
        element=lambda m: tuple(ex.evaluate(o, m) for o in write.origin),
        related=() if same else (Related(other.span, "the other store"),),
        values=lambda m: {f"other {b.label}": str(m[b.name + _TWIN]) for b in other.site.loops},
    )  # fmt: skip


def _by_one_program(write: Write, other: Write, model: Values) -> bool:
    """True when the model speaks of two ordinary stores of one role in one program."""
    ordinary = isinstance(write.site.stmt, ir.Store) and isinstance(other.site.stmt, ir.Store)
    programs = [b.name for b in write.site.loops if b.kind == "program"]
    return ordinary and write.site.role == other.site.role and all(
        n in model and model[n] == model.get(n + _TWIN) for n in programs
    )  # fmt: skip


def _differs(write: Write, other: Write, dim: int, env: dict[str, ex.Expr]) -> ex.Expr:
    """Tiles of the two writes do not meet in `dim`: unequal tile numbers, or disjoint intervals where those are
    unknown.
    """
    a, b = write.coordinates[dim], other.coordinates[dim]
    if a is not None and b is not None and write.view.shape[dim] == other.view.shape[dim]:
        return ex.Bin("!=", a, ex.substitute(b, env))
    x, y = write.origin[dim], ex.substitute(other.origin[dim], env)
    before = ex.Bin("<=", ex.add(x, ex.Int(write.view.shape[dim])), y)
    after = ex.Bin("<=", ex.add(y, ex.Int(other.view.shape[dim])), x)
    return ex.Bin("or", before, after)


def _coverage(
    context: KernelContext, tensor: str, writes: Sequence[Write], one_to_one: bool, faults: _Faults
) -> Obligation:
    what = f"every tile of {tensor} is stored"
    first = writes[0]
    shapes = {w.view.shape for w in writes}
    if len(shapes) == 1:
        counts = [_count(w) for w in writes]
        if None not in counts:
            total: ex.Expr = ex.Int(0)
            for count in counts:
                total = ex.add(total, count or ex.Int(0))
            needed = _product(first.tiles)
            question = Question(ex.Bin("<=", needed, total), context.assumptions)
            if one_to_one and context.decider.proves(question):
                return Obligation(COVERAGE, "grid", what, first.span, "proved", how="counting")
            enough = context.decider.decide(question)
            if enough.verdict == "refuted" and faults.get("missing") is None:
                # Fewer writes than tiles: some tile goes without, whatever the map.
                return _missing(context, first, what, enough.model, None)
    if len(shapes) == 1 and len(writes) <= _MOST_STORES:
        # Several stores, as of roles that share the rows of a tile: each tile is written by one of them.
        for parts in zip(*map(_witnesses, writes), strict=False):
            claim = parts[0].claim
            for part in parts[1:]:
                claim = ex.Bin("or", claim, part.claim)
            if context.decider.decide(replace(parts[0], claim=claim)).verdict == "proved":
                return Obligation(COVERAGE, "grid", what, first.span, "proved", how="witness")
    fault = faults.get("missing")
    if fault is not None:
        return _missing(context, first, what, fault.model, fault.origin)
    reason = "no program is known that writes a given tile" if one_to_one else "range or injectivity is open"
    return unknown(context, COVERAGE, "grid", what, first.span, reason)


def _count(write: Write) -> ex.Expr | None:
    """How often the store runs; None when that depends on conditions or on other binders."""
    if write.site.conditions:
        return None
    counts: list[ex.Expr] = []
    for b in write.site.loops:
        if any(isinstance(e, ex.Var) for part in (b.lo, b.hi) for e in ex.walk(part)):
            return None
        length = ex.sub(b.hi, b.lo)
        counts.append(ex.Bin("max", ex.Int(0), ex.cdiv(length, ex.Int(b.step))))
    return _product(counts)


def _witnesses(write: Write) -> Iterator[Question]:
    """Questions that name, for a tile, the program and iterations that write it: row-major, column-major
    numbering.
    """
    if any(c is None for c in write.coordinates) or not write.tracked:
        return
    programs = [b for b in write.site.loops if b.kind == "program"]
    chosen: dict[str, ex.Expr] = {}
    left: list[int] = []
    for dim, coordinate in enumerate(write.coordinates):
        used = [b for b in write.site.loops if b.kind == "loop" and coordinate and b.name in ex.names(coordinate)]
        if used and write.origin[dim] == ex.Var(used[0].name):
            chosen[used[0].name] = ex.mul(_tile(dim), ex.Int(write.view.shape[dim]))
        else:
            left.append(dim)
    if len(programs) > 1 or len(chosen) + len(programs) != len(write.site.loops):
        return
    tiles = tuple(Binder(f"tile {dim}", f"tile {dim}", "loop", ex.Int(0), n) for dim, n in enumerate(write.tiles))
    # The branches around the store are to be shown, not assumed.
    assumptions = tuple(
        f
        for f in write.site.facts
        if f not in write.site.conditions and not any(isinstance(e, ex.Var) for e in ex.walk(f))
    )
    names = [_tile(dim) for dim in range(len(write.tiles))]
    split = split_of([c if dim in left else ex.Int(0) for dim, c in enumerate(write.coordinates)], names)
    numbers = [_number(dims, write.tiles) for dims in (left, left[::-1])]
    for number in [None, *numbers] if split is not None and programs else numbers:
        env = {
            **chosen,
            **{p.name: split.number if number is None and split else number or ex.Int(0) for p in programs},
        }

        def at(e: ex.Expr, env: dict[str, ex.Expr] = env, plain: bool = number is not None) -> ex.Expr:
            return ex.substitute(e, env) if plain or split is None else split.insert(e, env)

        claims = [at(c) for c in write.site.conditions]
        for b in write.site.loops:
            if number is None and split is not None and b.kind == "program":
                claims += split.range(b)
                continue
            value, lo, hi = env[b.name], at(b.lo), at(b.hi)
            claims += [ex.Bin("<=", lo, value), ex.Bin("<", value, hi)]
            if b.step > 1:
                claims.append(ex.Bin("==", ex.Bin("%", ex.sub(value, lo), ex.Int(b.step)), ex.Int(0)))
        for dim, coordinate in enumerate(write.coordinates):
            if coordinate is not None:
                claims.append(ex.Bin("==", at(coordinate), names[dim]))
        yield Question(conjunction(claims), assumptions, tiles)


def _number(dims: Sequence[int], tiles: Sequence[ex.Expr]) -> ex.Expr:
    """The number of a tile, the last of `dims` fastest."""
    number: ex.Expr = ex.Int(0)
    for dim in dims:
        number = ex.add(ex.mul(number, tiles[dim]), _tile(dim))
    return number


def _tile(dim: int) -> ex.Expr:
    return ex.Var(f"tile {dim}")


def _missing(
    context: KernelContext, write: Write, what: str, model: dict[str, int], origin: tuple[int, ...] | None
) -> Obligation:
    sizes = context.decider.complete(
        {n: v for n, v in model.items() if n in context.kernel.sizes}, context.kernel.sizes, context.assumptions
    )
    tensor = write.view.tensor
    needed = prod(ex.evaluate(t, sizes) for t in write.tiles)
    which = f"the tile at {_index(tensor, origin)}" if origin else "at least one tile"
    example = counterexample(context, write.site, sizes, element=origin or ())
    text = (
        f"No program stores {which}: {tensor} has {needed} tile{'s' if needed != 1 else ''} of "
        f"{_by(write.view.shape)} elements. "
        f"{situation(example)}"
    )
    if _is_updated(context, write):
        prefix = call_prefix(context)
        text += f" If the rest is meant to keep what the caller put there, say so: {prefix}initialized({tensor})."
    return refuted(
        context, COVERAGE, "grid", what, write.span, text, example=example, fixes=_one_tile_fixes(context, write)
    )


def _is_updated(context: KernelContext, write: Write) -> bool:
    """True when a part of the tensor may be meant to stay: it is read, too, or a table says where the tiles go."""
    tensor = write.view.tensor
    reads = (ir.Load, ir.CpAsync, ir.TmaLoad)
    read = any(isinstance(site.stmt, reads) and view.tensor == tensor for site, view in context.views())
    return read or any(True for o in write.origin for _ in ex.items(o))


def _one_tile_fixes(context: KernelContext, write: Write) -> tuple[Fix, ...]:
    """Where the origin of a dimension never moves, one tile must span it: offer that as an assumption."""
    found = [
        assume_fix(context, ex.Bin("<=", extent, ex.Int(b)))
        for origin, extent, b in zip(write.origin, write.extents, write.view.shape, strict=True)
        if origin == ex.Int(0) and not isinstance(extent, ex.Int)
    ]
    return fixes_of(*found)


def _product(factors: Sequence[ex.Expr]) -> ex.Expr:
    result: ex.Expr = ex.Int(1)
    for f in factors:
        result = ex.mul(result, f)
    return result


def _index(tensor: str, at: Sequence[int]) -> str:
    return f"{tensor}[{', '.join(map(str, at))}]"


def _by(shape: Sequence[int]) -> str:
    return "×".join(map(str, shape))
