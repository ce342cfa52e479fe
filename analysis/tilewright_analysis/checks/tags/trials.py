"""Small sizes and elements at which a kernel is run beside its reference."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import cycle
from math import prod

import numpy as np
from numpy.random import default_rng

from tilewright.arguments import check_assumptions
from tilewright.interpret import ArgumentError, random_arguments
from tilewright.interpret.arguments import Argument
from tilewright.interpret.execution import outputs
from tilewright.interpret.numeric import to_dtype
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir

from ...integers.ranges import known_divisors
from .counterfactual import determined, tile_lengths

# Elements: halves between -2 and 2, whose sums of products are exact; random ones; nothing but zeros; positive ones;
# and large ones, whose exponential is beyond the range of f32.
_KINDS = ("halves", "normal", "zeros", "positive", "large")
_SIZES = 10
_MOST_ELEMENTS = 1 << 16
# Tiles along every size, multiplied: about the iterations of all programs.
_STEPS = 12


def trials(kernel: ir.Kernel, *, large: bool = True) -> Iterator[tuple[dict[str, int], str]]:
    """Sizes with the kind of elements to run them on: small ones on every kind, then different ones in turn.

    `large`: whether the kernel takes numbers whose exponential overflows.
    """
    chosen: list[dict[str, int]] = []
    for sizes in _sizes(kernel):
        if sizes not in chosen:
            chosen.append(sizes)
        if len(chosen) == _SIZES:
            break
    if not chosen:
        return
    kinds = [k for k in _KINDS if large or k != "large"]
    rest = sorted(chosen[1:] or chosen, key=lambda s: (prod(s.values()), tuple(s.values())))
    middle = rest.pop(len(rest) // 3)
    for kind in kinds:
        yield middle, kind
    yield chosen[0], "normal"
    yield chosen[0], "halves"
    turns = cycle(k for k in kinds if k != "zeros")
    for sizes in rest:
        yield sizes, next(turns)


def _sizes(kernel: ir.Kernel) -> Iterator[dict[str, int]]:
    """Sizes that the assumptions allow: a little more than one tile along every axis, and then one as different from
    the other as chance has it, always in the same order.
    """
    unit = known_divisors(a.expr for a in kernel.assumptions)
    tiles, counted = _lengths(kernel), counted_tiles(kernel)
    choices: list[tuple[int, ...]] = []
    two: dict[str, int] = {}
    for name, tile in tiles.items():
        least = unit.get(name, 1)
        tile = -(-tile // least) * least
        some = {least, 3 * least, tile - least, tile, tile + least, 2 * tile + least, 4 * tile + 3 * least}
        some = some if tile > least else {least, 2 * least, 3 * least, 4 * least, 6 * least}
        two[name] = tile + least
        choices.append(tuple(sorted(n for n in some if n > 0)))
    every = prod(len(c) for c in choices)
    generator = default_rng(every)
    numbers = generator.permutation(every)[:4096] if every < 1 << 20 else generator.integers(0, every, 4096)
    for sizes in (two, *(_picked(tiles, choices, int(number)) for number in numbers)):
        sizes = determined(kernel, sizes)
        if steps(sizes, counted) <= _STEPS and allowed(kernel, sizes):
            yield sizes


def _picked(names: Iterable[str], choices: Sequence[tuple[int, ...]], number: int) -> dict[str, int]:
    """The combination of choices with that number."""
    picked: dict[str, int] = {}
    for name, choice in zip(names, choices, strict=True):
        number, digit = divmod(number, len(choice))
        picked[name] = choice[digit]
    return picked


def _lengths(kernel: ir.Kernel) -> dict[str, int]:
    """What a size is cut into: the longest tile along it, or a longer part that an assumption divides it into."""
    found = tile_lengths(kernel)
    for assumption in kernel.assumptions:
        for part in ex.walk(assumption.expr):
            match part:
                case ex.Bin("cdiv" | "//", ex.Size(name), ex.Int(length)) if name in found:
                    found[name] = max(found[name], length)
                case _:
                    pass
    return found


def allowed(kernel: ir.Kernel, sizes: Mapping[str, int]) -> bool:
    """True for sizes that satisfy the assumptions and are small enough to run."""
    try:
        check_assumptions(kernel, sizes)
        elements = [prod(ex.evaluate(e, sizes) for e in p.type.shape) for p in kernel.params]
    except (ArgumentError, ex.EvaluationError):
        return False
    return all(1 <= n <= _MOST_ELEMENTS for n in elements)


def steps(sizes: Mapping[str, int], tiles: Mapping[str, int]) -> int:
    """About the iterations of all programs."""
    return prod(-(-sizes[name] // tile) for name, tile in tiles.items() if sizes[name] > 0)


def counted_tiles(kernel: ir.Kernel) -> dict[str, int]:
    """The tiles along each size, without sizes of which an assumption makes another: a loop runs over one of them."""
    given: set[str] = set()
    for assumption in kernel.assumptions:
        match assumption.expr:
            case ex.Bin("==", ex.Size(), value) | ex.Bin("==", value, ex.Size()):
                given |= ex.names(value)
            case _:
                pass
    return {name: tile for name, tile in _lengths(kernel).items() if tile > 1 or name not in given}


def arguments_of(kernel: ir.Kernel, sizes: Mapping[str, int], kind: str) -> list[Argument]:
    """Arguments whose elements are of one of the kinds; index tensors satisfy the contracts."""
    arguments = random_arguments(kernel, sizes, 0)
    fixed = {i.tensor for c in kernel.contracts for i in ex.items(c.expr)}
    generator, stored = default_rng(len(sizes)), outputs(kernel)
    for param, argument in zip(kernel.arguments, arguments, strict=True):
        if isinstance(param, ir.ScalarParam) or not isinstance(argument, np.ndarray) or param.name in fixed:
            continue
        dtype = param.type.dtype
        if param.name in stored and np.isnan(argument.astype(np.float64)).all():
            continue
        if dtype.is_float:
            values = {
                "halves": argument.astype(np.float64) / 2,
                "normal": generator.standard_normal(argument.shape),
                "zeros": np.zeros(argument.shape),
                "positive": generator.uniform(0.1, 2, argument.shape),
                "large": generator.choice((-1, 1), argument.shape) * generator.uniform(90, 110, argument.shape),
            }[kind]
            argument[...] = to_dtype(values.astype(np.float32), dtype)
        elif kind == "normal" and dtype.kind in ("int", "uint") and dtype.bits >= 32:
            argument[...] = generator.integers(0, min(sizes.values()), argument.shape)  # an index, perhaps
        elif kind in ("normal", "large") and dtype.bits == 8:
            argument[...] = generator.integers(dtype.range[0], dtype.range[1] + 1, argument.shape)
    return arguments
