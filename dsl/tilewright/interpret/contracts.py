"""Data contracts on arrays: are they satisfied, and arrays that satisfy them.

Generated index tensors know what contracts in practice say of one tensor: which values an element may have (ranges,
sentinels, anything over sizes and that element), elements that grow along the tensor, elements with a fixed value, and
elements that differ from each other. What is generated is checked, so a contract of another kind is never broken in
silence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.arguments import ArgumentError
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.arrays import applied, truth

Values = npt.NDArray[np.int64]
Tables = Mapping[str, npt.NDArray[Any]]
# Points at which one contract is evaluated; of longer ranges, the first and last values.
_MOST_POINTS = 1 << 22
_MOST_CANDIDATES = 4096
_TRIES = 24


def broken(contract: ir.Contract, tables: Tables, sizes: Mapping[str, int]) -> str:
    """The first elements that break a contract, in words; empty if it holds."""
    ranges = _ranges(contract, tables, sizes)
    if ranges is None:
        return ""
    rank = len(ranges)
    env: dict[str, Values] = {n: np.asarray(v, np.int64) for n, v in sizes.items()}
    for axis, (name, values) in enumerate(ranges.items()):
        env[name] = values.reshape((1,) * axis + (-1,) + (1,) * (rank - axis - 1))
    shape = tuple(len(v) for v in ranges.values())
    inside = np.ones(shape, np.bool_)
    holds = np.broadcast_to(_evaluated(contract.expr, env, tables, inside) != 0, shape)
    wrong = inside & ~holds
    if not wrong.any():
        return ""
    first = tuple(int(i) for i in np.unravel_index(int(np.argmax(wrong)), shape)) if rank else ()
    at = {name: int(values[i]) for (name, values), i in zip(ranges.items(), first, strict=True)}
    here = {**sizes, **at}
    found: dict[str, int] = {}
    for item in ex.items(contract.expr):
        cell = tuple(_number(i, here, tables) for i in item.index)
        found[ex.item_key(item.tensor, cell)] = int(tables[item.tensor][cell])
    return ", ".join(f"{name} = {value}" for name, value in found.items())


def check_contracts(kernel: ir.Kernel, tables: Tables, sizes: Mapping[str, int]) -> None:
    """Raise ArgumentError, with the elements, for a contract of the kernel that the arrays break."""
    for contract in kernel.contracts:
        if elements := broken(contract, tables, sizes):
            raise ArgumentError(f"{kernel.name} assumes {_source(contract)}, which does not hold for {elements}")


def index_tables(
    kernel: ir.Kernel, sizes: Mapping[str, int], generator: np.random.Generator
) -> dict[str, npt.NDArray[np.int64]]:
    """An array for each tensor that contracts speak of, random among those that satisfy all of them.

    Raises ArgumentError when none was found.
    """
    named = {i.tensor for c in kernel.contracts for i in ex.items(c.expr)}
    params = [p for p in kernel.params if p.name in named]
    shapes = {p.name: tuple(ex.evaluate(e, sizes) for e in p.type.shape) for p in params}
    failed = ""
    for _ in range(_TRIES if params else 0):
        tables = {
            p.name: _generated(_rules(kernel, p.name, sizes), shapes[p.name], p.type.dtype.range, generator)
            for p in params
        }
        failed = next((_source(c) for c in kernel.contracts if broken(c, tables, sizes)), "")
        if not failed:
            return tables
    if failed:
        values = ", ".join(f"{n} = {v}" for n, v in sizes.items())
        raise ArgumentError(
            f"no data that satisfies {failed} was found for {values}: generated index tensors know allowed values, "
            "elements that grow, fixed elements and elements that differ; pass data instead"
        )
    return {}


# ------------------------------------------------------------------------------------------------ evaluation


def _ranges(contract: ir.Contract, tables: Tables, sizes: Mapping[str, int]) -> dict[str, Values] | None:
    """Values of each bound variable that can keep every index inside; None when there are none."""
    found: dict[str, Values] = {}
    each = int(_MOST_POINTS ** (1 / max(1, len(contract.variables))))
    for name in contract.variables:
        low, high = None, None
        for item in ex.items(contract.expr):
            for index, extent in zip(item.index, tables[item.tensor].shape, strict=True):
                # An index `name + c` or `name - c`, c over sizes.
                offset = _offset(index, name, sizes)
                if offset is not None:
                    low = -offset if low is None else max(low, -offset)
                    high = extent - offset if high is None else min(high, extent - offset)
        if low is None or high is None:
            reach = max(n for t in tables.values() for n in t.shape)
            low, high = -reach, reach
        if low >= high:
            return None
        values = np.arange(low, high, dtype=np.int64)
        found[name] = values if len(values) <= each else np.concatenate((values[: each // 2], values[-each // 2 :]))
    return found


def _offset(index: ex.Expr, name: str, sizes: Mapping[str, int]) -> int | None:
    match index:
        case ex.Var(other) if other == name:
            return 0
        case ex.Bin("+" | "-" as op, ex.Var(other), rest) if other == name and ex.names(rest) <= sizes.keys():
            if any(True for _ in ex.items(rest)):
                return None
            value = ex.evaluate(rest, sizes)
            return value if op == "+" else -value
        case _:
            return None


def _evaluated(e: ex.Expr, env: Mapping[str, Values], tables: Tables, inside: npt.NDArray[np.bool_]) -> Values:
    """The values of an expression; where an index is outside, `inside` is cleared and the value means nothing."""
    match e:
        case ex.Int(value):
            return np.asarray(value, np.int64)
        case ex.Size(name) | ex.Var(name):
            return env[name]
        case ex.Not(arg):
            return truth(_evaluated(arg, env, tables, inside) == 0)
        case ex.Item(tensor, index):
            table, cells = tables[tensor], list[Values]()
            for i, extent in zip(index, table.shape, strict=True):
                at = _evaluated(i, env, tables, inside)
                inside &= (at >= 0) & (at < extent)
                cells.append(np.clip(at, 0, extent - 1))
            if not table.size:  # no index is inside
                return np.zeros(np.broadcast_shapes(*(c.shape for c in cells)), np.int64)
            return table[tuple(np.broadcast_arrays(*cells))].astype(np.int64)
        case ex.Bin(op, lhs, rhs):
            a, b = _evaluated(lhs, env, tables, inside), _evaluated(rhs, env, tables, inside)
            return applied(op, a, b)


def _number(e: ex.Expr, env: Mapping[str, int], tables: Tables) -> int:
    whole = {n: np.asarray(v, np.int64) for n, v in env.items()}
    return int(_evaluated(e, whole, tables, np.ones((), np.bool_)))


def _source(contract: ir.Contract) -> str:
    bound = f"lambda {', '.join(contract.variables)}: " if contract.variables else ""
    return bound + ex.show(contract.expr)


# ------------------------------------------------------------------------------------------------ generation


@dataclass
class _Rules:
    """What contracts say of one tensor. `edges` are numbers that its elements are compared with."""

    allowed: list[tuple[ex.Expr, ex.Item]] = field(default_factory=list[tuple[ex.Expr, ex.Item]])
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    edges: set[int] = field(default_factory=set[int])
    fixed: dict[tuple[int, ...], int] = field(default_factory=dict[tuple[int, ...], int])
    grows: bool = False
    strictly: bool = False
    differs: bool = False


def _rules(kernel: ir.Kernel, tensor: str, sizes: Mapping[str, int]) -> _Rules:
    rules = _Rules(sizes=sizes)
    for contract in kernel.contracts:
        for part in _conjuncts(contract.expr):
            found = list(dict.fromkeys(ex.items(part)))
            if not found or any(i.tensor != tensor for i in found):
                continue
            if len(found) == 1:
                _one_element(rules, part, found[0])
            elif len(found) == 2:
                _two_elements(rules, part, found)
    return rules


def _conjuncts(e: ex.Expr) -> Iterator[ex.Expr]:
    if isinstance(e, ex.Bin) and e.op == "and":
        yield from _conjuncts(e.lhs)
        yield from _conjuncts(e.rhs)
    else:
        yield e


def _one_element(rules: _Rules, part: ex.Expr, item: ex.Item) -> None:
    for comparison in ex.walk(part):
        match comparison:
            case ex.Bin("<" | "<=" | "==" | "!=", lhs, rhs):
                for one, other in ((lhs, rhs), (rhs, lhs)):
                    if one == item and ex.names(other) <= rules.sizes.keys():
                        rules.edges.add(ex.evaluate(other, rules.sizes))
            case _:
                pass
    if all(ex.names(i) <= rules.sizes.keys() for i in item.index):
        match part:
            case ex.Bin("==", lhs, rhs) if item in (lhs, rhs):
                cell = tuple(ex.evaluate(i, rules.sizes) for i in item.index)
                rules.fixed[cell] = ex.evaluate(rhs if lhs == item else lhs, rules.sizes)
            case _:
                pass
    elif all(isinstance(i, ex.Var) for i in item.index) and ex.names(part) <= rules.sizes.keys() | ex.names(item):
        rules.allowed.append((part, item))


def _two_elements(rules: _Rules, part: ex.Expr, found: Sequence[ex.Item]) -> None:
    match part:
        case ex.Bin("<" | "<=" as op, ex.Item() as first, ex.Item() as second):
            i, j = first.index[-1], second.index[-1]
            if ex.sub(j, i) == ex.Bin("-", ex.Bin("+", i, ex.Int(1)), i):
                rules.grows, rules.strictly = True, rules.strictly or op == "<"
        case ex.Bin("or"):
            if any(isinstance(e, ex.Bin) and e.op == "!=" and {e.lhs, e.rhs} == set(found) for e in ex.walk(part)):
                rules.differs = True
        case _:
            pass


def _generated(
    rules: _Rules, shape: tuple[int, ...], limits: tuple[int, int], generator: np.random.Generator
) -> npt.NDArray[np.int64]:
    values = _values(rules, limits, generator)
    count = int(np.prod(shape))
    if rules.differs and len(values) >= count:
        table = generator.choice(values, count, replace=False).reshape(shape)
    else:
        table = generator.choice(values, shape)
        edges = np.asarray(sorted(rules.edges & set(values.tolist())), np.int64)
        if len(edges):
            # What stands beside a bound, and sentinels, are what goes wrong.
            table = np.where(generator.random(shape) < 0.15, generator.choice(edges, shape), table)
    if rules.grows:
        table = np.sort(table, axis=-1)
        if rules.fixed and len(shape) == 1:
            table = _grown(rules, shape[0], table, generator)
    for cell, value in rules.fixed.items():
        if all(0 <= i < n for i, n in zip(cell, shape, strict=True)):
            table[cell] = value
    return table


def _values(rules: _Rules, limits: tuple[int, int], generator: np.random.Generator) -> npt.NDArray[np.int64]:
    """Values that an element may have."""
    points = {*rules.edges, *rules.fixed.values()}
    if not points:
        points = {-4, 4} if limits[0] < 0 else {0, 4}
    low, high = min(points) - 1, max(points) + 1
    near = np.asarray(sorted({p + d for p in points for d in (-1, 0, 1)}), np.int64)
    some = np.arange(low, high + 1) if high - low < _MOST_CANDIDATES else generator.integers(low, high + 1, 2048)
    candidates = np.unique(np.concatenate((near, some)))
    keep = (candidates >= limits[0]) & (candidates <= limits[1])
    for part, item in rules.allowed:
        env: dict[str, Values] = {n: np.asarray(v, np.int64) for n, v in rules.sizes.items()}
        env |= {n: np.zeros((), np.int64) for i in item.index for n in ex.names(i)}
        keep &= _evaluated(_with_value(part, item), {**env, "element": candidates}, {}, np.ones((), np.bool_)) != 0
    if not rules.allowed:
        keep &= (candidates > low) & (candidates < high)
    return candidates[keep] if keep.any() else near


def _with_value(e: ex.Expr, item: ex.Item) -> ex.Expr:
    """`e` with the variable `element` for one element."""
    match e:
        case ex.Item() if e == item:
            return ex.Var("element")
        case ex.Bin(op, lhs, rhs):
            return ex.Bin(op, _with_value(lhs, item), _with_value(rhs, item))
        case ex.Not(arg):
            return ex.Not(_with_value(arg, item))
        case _:
            return e


def _grown(
    rules: _Rules, count: int, table: npt.NDArray[np.int64], generator: np.random.Generator
) -> npt.NDArray[np.int64]:
    """A growing vector through its fixed elements."""
    known = sorted((cell[0], value) for cell, value in rules.fixed.items() if 0 <= cell[0] < count)
    for (i, a), (j, b) in pairwise(known):
        between = j - i - 1
        if rules.strictly and b - a - 1 >= between:
            table[i + 1 : j] = a + 1 + np.sort(generator.choice(b - a - 1, between, replace=False))
        elif not rules.strictly and b >= a:
            table[i + 1 : j] = np.sort(generator.integers(a, b + 1, between))
    if known:
        (first, low), (last, high) = known[0], known[-1]
        step = int(rules.strictly)
        table[:first] = low - step * np.arange(first, 0, -1)
        table[last + 1 :] = high + step * np.arange(1, count - last)
    return table
