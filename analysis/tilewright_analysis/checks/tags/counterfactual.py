"""Runs a kernel beside one in which a suspected fault is repaired: if the outputs differ, the fault matters.

Both run in the interpreter on the same arguments. What is repaired is one statement, by means of the language itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from math import prod
from time import thread_time

import numpy as np

from tilewright.arguments import check_assumptions
from tilewright.dtypes import i1, i32
from tilewright.interpret import ArgumentError, Limits, Schedule, Violation, random_arguments
from tilewright.interpret.arguments import Argument
from tilewright.interpret.execution import compile_kernel, execute_compiled, outputs
from tilewright.interpret.numeric import Array, decode
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.types import TileType, Type
from tilewright.lines import Lines

from ...context import Site
from ...integers import smallest_first
from ...integers.ranges import known_divisors
from ...report import Counterexample
from .lanes import Edge

_MOST_ELEMENTS = 1 << 20
_SEEDS = (0, 1)
_MOST_SIZES = 20_000


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two runs at `sizes` first differ: an output element, as the kernel computes it and as the other does."""

    sizes: Mapping[str, int]
    tensor: str
    element: tuple[int, ...]
    got: float
    repaired: float

    @property
    def where(self) -> str:
        """The output element in words."""
        return f"{self.tensor}[{', '.join(map(str, self.element))}]"

    def example(self, repaired: str = "without the fault", role: str = "") -> Counterexample:
        """The runs as a counterexample; `repaired` says how the kernel of the other one differs."""
        values = {f"{self.where} as it stands": f"{self.got:.9g}", f"{self.where} {repaired}": f"{self.repaired:.9g}"}
        return Counterexample(dict(self.sizes), role=role, element=self.element, values=values, replayed=True)


def first_difference(
    kernel: ir.Kernel,
    repaired: ir.Kernel,
    sizes: Iterable[Mapping[str, int]],
    seconds: float,
    differ: Callable[[Array, Array], Array],
    *,
    without: Collection[str] = (),
    most: int = 120,
) -> Difference | None:
    """The first output element that `differ`, given what both kernels store, marks as different; None if there is none.

    Tensors in `without` are not compared. Stops after `most` runs of both, so that the answer does not depend on the
    load, and in any case after `seconds`. Sizes at which either kernel cannot run are passed over.
    """
    begin = thread_time()
    compiled = [compile_kernel(k, Limits()) for k in (kernel, repaired)]
    for choice in sizes:
        for seed in _SEEDS:
            most -= 1
            if most < 0 or thread_time() - begin > seconds:
                return None
            runs: list[dict[str, Array]] = []
            try:
                given = random_arguments(kernel, choice, seed)
                if seed:  # fractions as well
                    given = [_quarter(a) for a in given]
                for one in compiled:
                    arguments = [a.copy() if isinstance(a, np.ndarray) else a for a in given]
                    execute_compiled(one, arguments, Schedule(), 1)
                    named = zip((a.name for a in kernel.arguments), arguments, strict=True)
                    runs.append({n: a for n, a in named if isinstance(a, np.ndarray)})
            except (Violation, ArgumentError, ex.EvaluationError, ArithmeticError):
                break
            for name in (n for n in outputs(kernel) if n not in without):
                dtype = kernel.param(name).type.dtype
                got, want = (decode(r[name], dtype).astype(np.float64) for r in runs)
                wrong = differ(got, want)
                if wrong.any():
                    element = tuple(int(i) for i in np.argwhere(wrong)[0])
                    return Difference(dict(choice), name, element, float(got[element]), float(want[element]))
    return None


def _quarter(argument: Argument) -> Argument:
    """A quarter of a floating-point argument, in place if it is an array."""
    if isinstance(argument, np.ndarray):
        return np.multiply(argument, 0.25, out=argument) if argument.dtype.kind == "f" else argument
    return argument * 0.25 if isinstance(argument, float) else argument


def unequal(got: Array, want: Array) -> Array:
    """Elements that are not the same; NaN equals NaN."""
    return (got != want) & ~(np.isnan(got) & np.isnan(want))


def spoiled(got: Array, want: Array) -> Array:
    """Elements that are NaN only in the first."""
    return np.isnan(got) & ~np.isnan(want)


def trial_sizes(kernel: ir.Kernel, first: Iterable[Mapping[str, int]] = ()) -> Iterator[dict[str, int]]:
    """Sizes worth a try: `first` those given, then small ones and ones around a tile, smallest first."""
    seen: list[dict[str, int]] = []
    for choice in (*first, *_small(kernel)):
        sizes = dict(choice)
        if (
            sizes in seen
            or not set(kernel.sizes) <= sizes.keys()
            or any(sizes[n] < 1 for n in kernel.sizes if n not in kernel.integers)
        ):
            continue
        seen.append(sizes)
        try:
            check_assumptions(kernel, sizes)
            elements = [prod(ex.evaluate(e, sizes) for e in p.type.shape) for p in kernel.params]
        except (ArgumentError, ex.EvaluationError):
            continue
        if all(1 <= n <= _MOST_ELEMENTS for n in elements):
            yield sizes


def tile_lengths(kernel: ir.Kernel) -> dict[str, int]:
    """For each size the longest tile along a dimension of that size; 1 where there is none."""
    tiles, lines = dict.fromkeys(kernel.sizes, 1), Lines(kernel)
    for stmt in ir.walk(kernel.body):
        view = getattr(stmt, "view", None)
        if isinstance(view, ir.View) and len(view.shape) == len(kernel.param(view.tensor).type.shape):
            for extent, length in zip(kernel.param(view.tensor).type.shape, view.shape, strict=True):
                if isinstance(extent, ex.Size):
                    tiles[extent.name] = max(tiles.get(extent.name, 1), length)
        if isinstance(stmt, ir.Gather | ir.CpGather | ir.Scatter):
            for extent, index in zip(kernel.param(stmt.tensor).type.shape, stmt.index, strict=True):
                # Along a dimension that an index counts, the tile is as long as the axis on which it does.
                if isinstance(extent, ex.Size) and isinstance(index, ir.TileRef) and lines.of(index.name) is not None:
                    tile = kernel.types[index.name]
                    assert isinstance(tile, TileType)
                    tiles[extent.name] = max(tiles[extent.name], *tile.shape)
    # Rows that lie apart, but not so far that they fill the memory.
    return tiles | dict.fromkeys(kernel.pitches, 4 * max(tiles.values(), default=1))


def _small(kernel: ir.Kernel) -> Iterator[dict[str, int]]:
    tiles = tile_lengths(kernel)
    unit = known_divisors(a.expr for a in kernel.assumptions)
    choices: list[list[int]] = []
    for name, tile in tiles.items():
        least = unit.get(name, 1)
        tile = -(-tile // least) * least
        choices.append(sorted({least, 2 * least, 3 * least, tile + least, 2 * tile + least}))
    found = islice(smallest_first(choices), _MOST_SIZES)
    return (determined(kernel, dict(zip(tiles, choice, strict=True))) for choice in found)


def determined(kernel: ir.Kernel, sizes: dict[str, int]) -> dict[str, int]:
    """The sizes, those changed that an assumption gives as an expression over others."""
    for assumption in kernel.assumptions:
        match assumption.expr:
            case ex.Bin("==", ex.Size(name), value) | ex.Bin("==", value, ex.Size(name)) if name not in ex.names(value):
                sizes = {**sizes, name: ex.evaluate(value, sizes)}
            case _:
                pass
    return sizes


def neutralized(kernel: ir.Kernel, site: Site, operands: Mapping[str, Iterable[Edge]], fill: float) -> ir.Kernel | None:
    """The kernel with `fill` in the lanes past the given edges of operands of the statement of `site`.

    None if an edge belongs to another iteration than the statement, or is not the operand's own.
    """
    target = site.stmt
    labels: dict[str, ex.Expr] = {b.name: ex.Var(b.label) for b in site.binders}
    types: dict[str, Type] = dict(kernel.types)
    before: list[ir.Stmt] = []
    names: dict[str, str] = {}
    for operand, edges in operands.items():
        tile = types.get(operand)
        if not isinstance(tile, TileType):
            return None
        value = fill if tile.dtype.is_float else float(min(max(fill, tile.dtype.range[0]), tile.dtype.range[1]))
        for edge in edges:
            if {e.name for e in ex.walk(edge.origin) if isinstance(e, ex.Var)} - labels.keys():
                return None
            length = tile.shape[edge.axis]
            shape = tuple(length if a == edge.axis else 1 for a in range(len(tile.shape)))
            lanes, near, mask, new = (f"%past{len(types) + i}" for i in range(4))
            room = ex.sub(edge.extent, ex.substitute(edge.origin, labels))
            types |= {
                lanes: TileType(i32, (length,)), near: TileType(i1, (length,)), mask: TileType(i1, shape), new: tile
            }  # fmt: skip
            before += [
                ir.Compute(lanes, "arange", ()),
                ir.Compute(near, "lt", (ir.TileRef(lanes), room)),
                ir.Compute(mask, "reshape", (ir.TileRef(near),)),
                ir.Compute(new, "where", (ir.TileRef(mask), ir.TileRef(names.get(operand, operand)), value)),
            ]
            names[operand] = new
    return _changed(kernel, target, (*before, _renamed(target, names)), types)


def uncancelled(kernel: ir.Kernel, stmts: Iterable[ir.Compute]) -> ir.Kernel:
    """The kernel in which `stmts`, sums or differences, give 0 where they cancel, infinities included."""
    for stmt in stmts:
        types: dict[str, Type] = dict(kernel.types)
        made = types[stmt.dst]
        assert isinstance(made, TileType)
        same, plain, other = (f"%same{len(types) + i}" for i in range(3))
        types |= {same: TileType(i1, made.shape), plain: made, other: made}
        right = stmt.args[1]
        flip: tuple[ir.Stmt, ...] = ()
        if stmt.op == "add":
            flip, right = (ir.Compute(other, "sub", (0.0, right)),), ir.TileRef(other)
        block = (
            *flip,
            ir.Compute(same, "eq", (stmt.args[0], right)),
            ir.Compute(plain, stmt.op, stmt.args),
            ir.Compute(stmt.dst, "where", (ir.TileRef(same), 0.0, ir.TileRef(plain))),
        )
        kernel = _changed(kernel, stmt, block, types)
    return kernel


def _changed(kernel: ir.Kernel, stmt: ir.Stmt, block: ir.Block, types: Mapping[str, Type]) -> ir.Kernel:
    return kernel.with_body(ir.rewrite(kernel.body, lambda s: block if s is stmt else None), types)


def _renamed(stmt: ir.Stmt, names: Mapping[str, str]) -> ir.Stmt:
    match stmt:
        case ir.Compute(dst=dst, op=op, args=args):
            refs = tuple(ir.TileRef(names.get(a.name, a.name)) if isinstance(a, ir.TileRef) else a for a in args)
            return ir.Compute(
                dst, op, refs, stmt.axis, stmt.keep, stmt.reverse, stmt.order, span=stmt.span
            )  # fmt: skip
        case ir.Scatter(tensor=tensor, index=index, src=src, mask=mask, op=how):
            return ir.Scatter(tensor, index, names.get(src, src), mask, how, span=stmt.span)
        case ir.Mma(dst=dst, a=a, b=b, acc=acc, instr=instr, precision=how):
            return ir.Mma(dst, names.get(a, a), names.get(b, b), acc, instr, how, span=stmt.span)
        case _:
            return stmt
