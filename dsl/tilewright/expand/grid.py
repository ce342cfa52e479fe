"""Grids: `Tiles` becomes `Programs` with the arithmetic from the program's number to its tile."""

from __future__ import annotations

from tilewright.expand.names import Names
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.expr import Int, Var
from tilewright.ir.types import ScalarType
from tilewright.targets import Target


def expand_tiles(block: ir.Block, names: Names, target: Target) -> ir.Block:
    """`block` with each `Tiles` replaced."""
    return ir.rewrite(block, lambda s: (_programs(s, names, target),) if isinstance(s, ir.Tiles) else None)


def _programs(tiles: ir.Tiles, names: Names, target: Target) -> ir.Programs:
    count = tiles.counts[0]
    for other in tiles.counts[1:]:
        count = ex.mul(count, other)
    order, single = tiles.order, len(tiles.vars) == 1
    dies = order.dies if isinstance(order, ir.Xcd) and target.backend == "hip" else 1
    if isinstance(order, ir.Xcd):
        order = order.inner
    coordinates: ir.Block = ()
    program = tiles.vars[0] if single and dies == 1 else names.new("t", ScalarType())
    number = program
    if dies > 1:
        number = tiles.vars[0] if single else names.new("number", ScalarType())
        value, note = ir.xcd_number(Var(program), count, dies), f"tile number: each of {dies} dies takes a run of them"
        coordinates = (ir.Assign(number, value, span=tiles.span, note=note),)
    if isinstance(order, ir.Grouped):
        coordinates += _grouped(tiles, order.rows, Var(number), names)
    elif not single:
        coordinates += _digits(tiles, Var(number), last_fastest=not isinstance(order, ir.ColumnMajor))
    return ir.Programs(program, count, tiles.persistent, coordinates + tiles.body, span=tiles.span)


def _digits(tiles: ir.Tiles, t: ir.Expr, *, last_fastest: bool) -> ir.Block:
    """Mixed-radix digits of t, the last axis fastest, or the first."""
    axes = list(range(len(tiles.vars)))
    fastest_first = axes[::-1] if last_fastest else axes
    note = f"tile coordinates, {'last' if last_fastest else 'first'} axis fastest"
    digits: dict[int, ir.Expr] = {}
    inner: ir.Expr = Int(1)
    for axis in fastest_first:
        digits[axis] = ex.floordiv(t, inner)
        if axis != fastest_first[-1]:
            digits[axis] = ex.mod(digits[axis], tiles.counts[axis])
        inner = tiles.counts[axis] if axis == fastest_first[0] else ex.mul(inner, tiles.counts[axis])
    return tuple(ir.Assign(tiles.vars[axis], digits[axis], span=tiles.span, note=note) for axis in axes)


def _grouped(tiles: ir.Tiles, rows: int, t: ir.Expr, names: Names) -> ir.Block:
    """Groups of `rows` tile rows, each walked column by column; the last group has what is left.

    Consecutive programs then share columns of B and a few rows of A, which stay in L2 (the order of the Triton matrix
    multiplication tutorial, "grouped ordering"). Of three axes the first is the slowest: matrix after matrix.
    """
    *outer, height, width = tiles.counts
    *slowest, row, column = tiles.vars
    per_group = ex.mul(Int(rows), width)
    first = names.new("first", ScalarType())
    group = names.new("height", ScalarType())

    def assign(name: str, value: ir.Expr, note: str) -> ir.Stmt:
        return ir.Assign(name, value, span=tiles.span, note=note)

    matrices: tuple[ir.Stmt, ...] = ()
    if outer:
        matrix, t_inside = ex.mul(height, width), names.new("inside", ScalarType())
        matrices = (
            assign(slowest[0], ex.floordiv(t, matrix), "tile coordinate along the first axis, the slowest"),
            assign(t_inside, ex.mod(t, matrix), "tile number among those that share it"),
        )
        t = Var(t_inside)
    within = ex.mod(t, per_group)
    return (
        *matrices,
        assign(first, ex.mul(ex.floordiv(t, per_group), Int(rows)), "first tile row of the group"),
        assign(
            group,
            ex.binary("min", Int(rows), ex.sub(height, Var(first))),
            "tile rows in the group: the last may be lower",
        ),
        assign(row, ex.add(Var(first), ex.mod(within, Var(group))), "tile row"),
        assign(column, ex.floordiv(within, Var(group)), "tile column"),
    )
