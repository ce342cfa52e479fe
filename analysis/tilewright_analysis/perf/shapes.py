"""Problem sizes to run a kernel on: some that its tiles divide, some with remainders, all within its assumptions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.types import SharedType, row_major

Sizes = Mapping[str, int]

LARGE_MATMUL = 4096
LARGE_BATCH = 8
LARGE_BYTES = 512 << 20  # ten times the L2 of an H200, so that DRAM is what is measured
LARGE_TABLES = 128 << 10  # of index tensors that must satisfy contracts: these are sent, not made on the spot
_SEARCH = 512  # how far from the wanted value a size may end up
_TRIES = 20_000


def small_shapes(kernel: ir.Kernel) -> tuple[Sizes, ...]:
    """One shape that the tiles divide, one just over a tile and one within a tile; duplicates are left out.

    Where assumptions forbid a remainder, the nearest allowed size is taken. Empty when no sizes near the tiles satisfy
    the assumptions.
    """
    tiles = tile_extents(kernel)
    depth = max((t.stages for t in kernel.types.values() if isinstance(t, SharedType)), default=1)
    stages = next((s.stages for s in ir.walk(kernel.body) if isinstance(s, ir.Pipeline)), depth)
    contracted = contracted_sizes(kernel)
    even = {n: t * (stages + 1 if n in contracted else 2) for n, t in tiles.items()}
    over = {n: t + max(1, t // 8) + 1 for n, t in tiles.items()}
    within = {n: max(1, t // 2 - 1) for n, t in tiles.items()}
    found = (_satisfy(kernel, wanted, tiles, wanted is even) for wanted in (even, over, within))
    return _distinct(list(found))


def large_shapes(kernel: ir.Kernel) -> tuple[Sizes, ...]:
    """Shapes to time on a GPU: one that the tiles divide and one with remainders.

    A kernel that multiplies matrices gets 4096 along every size, and 8 matrices of a batch; any other the sizes whose
    tensors fill 512 MB.
    """
    tiles = tile_extents(kernel)
    if any(isinstance(s, ir.Mma | ir.Wgmma) for s in ir.walk(kernel.body)):
        indexed = indexed_sizes(kernel)
        wanted = {n: LARGE_BATCH if n in indexed else max(LARGE_MATMUL // t, 1) * t for n, t in tiles.items()}
        even = _satisfy(kernel, wanted, tiles, True)
        while even is not None and table_bytes(kernel, even) > LARGE_TABLES and wanted != tiles:
            wanted = {n: max(1, v // 2 // tiles[n]) * tiles[n] for n, v in wanted.items()}
            even = _satisfy(kernel, wanted, tiles, True)
    else:
        even = _fill(kernel, tiles)
    if even is None:
        return ()
    odd = {n: max(1, even[n] - max(1, t // 3)) if t > 1 else max(1, even[n] - 1) for n, t in tiles.items()}
    return _distinct([even, _satisfy(kernel, odd, tiles, False)])


def tile_extents(kernel: ir.Kernel) -> dict[str, int]:
    """For each problem size the largest extent of a tile along it; 1 where no tensor has the size as an extent."""
    extents = {name: 1 for name in kernel.sizes if name not in kernel.integers | kernel.pitches}
    for view in views(kernel):
        for extent, tile in zip(kernel.param(view.tensor).type.shape, view.shape, strict=True):
            if isinstance(extent, ex.Size):
                extents[extent.name] = max(extents.get(extent.name, 1), tile)
    return extents


def indexed_sizes(kernel: ir.Kernel) -> set[str]:
    """Sizes along which tensors are only indexed (`A[b]`), not tiled: numbers of matrices, heads, parts."""
    indexed: set[str] = set()
    tiled: set[str] = set()
    for view in views(kernel):
        for dim, extent in enumerate(kernel.param(view.tensor).type.shape):
            (indexed if dim < view.lead else tiled).update(ex.names(extent))
    return indexed - tiled


def views(kernel: ir.Kernel) -> Iterator[ir.View]:
    """Every access to a global tensor, in source order."""
    for stmt in ir.walk(kernel.body):
        if isinstance(stmt, ir.Load | ir.Store | ir.Atomic | ir.CpAsync | ir.TmaLoad | ir.TmaStore):
            yield stmt.view


def roles(kernel: ir.Kernel) -> dict[str, str]:
    """For each tensor argument "in", "out" or "inout"."""
    read: set[str] = set()
    written: set[str] = set()
    for stmt in ir.walk(kernel.body):
        if isinstance(stmt, ir.Store | ir.TmaStore | ir.Atomic):
            written.add(stmt.view.tensor)
        elif isinstance(stmt, ir.Load | ir.CpAsync | ir.TmaLoad):
            read.add(stmt.view.tensor)
        elif isinstance(stmt, ir.Scatter):
            written.add(stmt.tensor)
        elif isinstance(stmt, ir.Gather | ir.CpGather):
            read.add(stmt.tensor)
    # What the launch fills with zeros is no input, whatever reads it; what atomic updates build on is one.
    read |= {p.name for p in kernel.params if p.given == "values"}
    read -= {p.name for p in kernel.params if p.given == "zeros"}
    return {
        p.name: "inout" if p.name in read & written else "out" if p.name in written else "in" for p in kernel.params
    }


def contracted_sizes(kernel: ir.Kernel) -> set[str]:
    """Sizes that no output has: those summed over."""
    outputs = {n for n, role in roles(kernel).items() if role != "in"}
    kept = {n for p in kernel.params if p.name in outputs for e in p.type.shape for n in ex.names(e)}
    return set(kernel.sizes) - kept


def tensor_shapes(kernel: ir.Kernel, sizes: Sizes) -> dict[str, tuple[int, ...]]:
    """The shape of each tensor argument at the given sizes. Raises EvaluationError when a size is missing."""
    return {p.name: tuple(ex.evaluate(e, sizes) for e in p.type.shape) for p in kernel.params}


def declared_strides(kernel: ir.Kernel, sizes: Sizes) -> dict[str, tuple[int, ...]]:
    """The strides of tensors that are not row-major without gaps, in elements."""
    return {
        p.name: tuple(ex.evaluate(e, sizes) for e in p.type.strides)
        for p in kernel.params
        if p.type.strides != row_major(p.type.shape)
    }


def table_bytes(kernel: ir.Kernel, sizes: Sizes) -> int:
    """Bytes of the tensors that the data contracts of the kernel speak of."""
    named = {i.tensor for c in kernel.contracts for i in ex.items(c.expr)}
    shapes = tensor_shapes(kernel, sizes)
    return sum(prod(shapes[p.name]) * p.type.dtype.bytes for p in kernel.params if p.name in named)


def broken_assumption(kernel: ir.Kernel, sizes: Sizes) -> str:
    """The first assumption that the sizes break, as text; empty when all hold."""
    for assumption in kernel.assumptions:
        if not ex.evaluate(assumption.expr, sizes):
            return ex.show(assumption.expr)
    return ""


def _fill(kernel: ir.Kernel, tiles: Mapping[str, int]) -> Sizes | None:
    """Double sizes in turn while the tensors stay within `LARGE_BYTES`, the first ones (rows) last."""
    best = _satisfy(kernel, {n: t for n, t in tiles.items()}, tiles, True)
    if best is None:
        return None
    wanted, growing = dict(best), [n for n in reversed(kernel.sizes) if n in tiles]
    while growing:
        for name in list(growing):
            trial = _satisfy(kernel, wanted | {name: wanted[name] * 2}, tiles, True)
            # A size that the assumptions hold back, or that no longer fits, stops growing.
            if trial is None or trial[name] <= wanted[name] or _too_large(kernel, trial):
                growing.remove(name)
            else:
                wanted = dict(trial)
    return wanted


def _too_large(kernel: ir.Kernel, sizes: Sizes) -> bool:
    shapes = tensor_shapes(kernel, sizes)
    whole = sum(prod(shapes[p.name]) * p.type.dtype.bytes for p in kernel.params)
    return whole > LARGE_BYTES or table_bytes(kernel, sizes) > LARGE_TABLES


def _satisfy(kernel: ir.Kernel, wanted: Sizes, tiles: Mapping[str, int], even: bool) -> Sizes | None:
    """Sizes near `wanted` that satisfy all assumptions, found by backtracking; None when there are none near."""
    # What is only indexed first: the number of parts of a split contraction follows from its length, and the other way
    # round there would always be one.
    indexed = indexed_sizes(kernel)
    # Integer arguments last: where assumptions allow, they are as large as the largest size.
    names = sorted(kernel.sizes, key=lambda n: (n in kernel.integers, n in kernel.pitches, n not in indexed))
    tries = 0

    def holds(sizes: dict[str, int]) -> bool:
        known = sizes.keys()
        for assumption in kernel.assumptions:
            if ex.names(assumption.expr) <= known:
                try:
                    if not ex.evaluate(assumption.expr, sizes):
                        return False
                except ex.EvaluationError:
                    return False
        return True

    def go(i: int, sizes: dict[str, int]) -> dict[str, int] | None:
        nonlocal tries
        if i == len(names):
            return sizes
        name = names[i]
        if name in kernel.integers:
            values = _integers(sizes)
        elif name in kernel.pitches:
            values = _pitches(sizes)
        else:
            values = _candidates(wanted[name], tiles.get(name, 1), even)
        for value in values:
            tries += 1
            if tries > _TRIES:
                return None
            trial = {**sizes, name: value}
            if holds(trial) and (done := go(i + 1, trial)) is not None:
                return done
        return None

    found = go(0, {})
    return None if found is None else {n: found[n] for n in kernel.sizes}


def _candidates(wanted: int, tile: int, even: bool) -> Sequence[int]:
    """Values of a size: `wanted` first, then near ones; those of the wanted divisibility by the tile before others."""
    near = sorted(range(max(1, wanted - _SEARCH), wanted + _SEARCH), key=lambda v: (abs(v - wanted), -v))
    multiples = [m * tile for m in range(max(1, wanted // tile), 0, -1)][:64]
    fits = [v for v in near if (v % tile == 0) == (even or tile == 1)]
    return list(dict.fromkeys((multiples if even else []) + fits + near))


def _integers(sizes: Sizes) -> Sequence[int]:
    """Values of an integer argument: those of the sizes, then small ones, then negative ones."""
    return list(dict.fromkeys((*sorted(sizes.values(), reverse=True), *range(1, 65), 0, *range(-1, -9, -1))))


def _pitches(sizes: Sizes) -> Sequence[int]:
    """Values of a size that is a stride: that of a row padded by a multiple of 16 bytes, without padding, larger."""
    return list(dict.fromkeys(v for s in sorted(sizes.values()) for v in (-(-s // 64) * 64 + 64, s, -(-s // 64) * 64)))


def _distinct(found: Sequence[Sizes | None]) -> tuple[Sizes, ...]:
    return tuple(dict(items) for items in dict.fromkeys(tuple(s.items()) for s in found if s is not None))
