"""A loop that leaves out what its mask lets count, or takes more than a table gives it: shown by runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from tilewright.dtypes import i1, i32
from tilewright.expand import ExpansionError, expand_policies
from tilewright.interpret.numeric import Array
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.types import TileType, Type

from ...context import KernelContext
from ...plain import plain
from ...report import Counterexample
from ..outcome import situation
from .counterfactual import Difference, first_difference, trial_sizes
from .rest import Rest

_SECONDS = 3.0
_RUNS = 40
# One element of a few thousand shows; the roundings of sums in another order do not.
_ROUNDING = 1e-3


def shortened(context: KernelContext, parts: Iterable[Rest]) -> tuple[str, Counterexample] | None:
    """What a run says of elements that a loop leaves out, or takes beyond its end; None if none shows that they count.

    Only where a mask or a table says which elements count: else a loop may go over a part of a dimension on purpose.
    """
    open_ = [p for p in parts if not p.adds_nothing]
    if not open_ or not all(p.limited for p in open_):
        return None
    kernel = plain(context.written)
    first = open_[0]
    loops = [s for s in ir.walk(kernel.body) if isinstance(s, ir.For) and s.span == first.loop.span]
    if len(loops) != 1:
        return None
    (loop,) = loops
    beyond = next((p for p in open_ if p.table is not None), None)
    dim = ex.show(first.extent)
    if beyond is not None and beyond.table is not None:
        other = cut_off(kernel, loop, beyond.extent, beyond.table)
        repaired = "without them"
        said = (
            f"Tiles of the loop over {loop.var} reach past {ex.show(beyond.table)}, where the table ends it, and what "
            f"lies beyond in [0, {dim}) counts, too: mask it."
        )
    else:
        other = _longer(kernel, loop, open_)
        repaired = f"with all of [0, {dim})"
        sides = " and ".join("begins too late" if p.before else "ends too early" for p in open_)
        said = f"The loop over {loop.var} {sides}: it leaves out elements of [0, {dim}) that the mask lets count."
    found = difference(context, kernel, other)
    if found is None:
        return None
    example = found.example(repaired)
    text = f"{said} {found.where} becomes {found.got:.6g}, and {found.repaired:.6g} {repaired}. {situation(example)}"
    return text, example


def difference(context: KernelContext, kernel: ir.Kernel, other: ir.Kernel) -> Difference | None:
    """Where two plain kernels differ by more than roundings; what the other makes no number says nothing."""
    try:
        kernel, other = expand_policies(kernel), expand_policies(other)
    except ExpansionError:
        return None
    seconds = min(_SECONDS, context.seconds_left())
    return first_difference(kernel, other, trial_sizes(kernel), seconds, _differ, most=_RUNS)


def _longer(kernel: ir.Kernel, loop: ir.For, parts: Iterable[Rest]) -> ir.Kernel:
    """The kernel with a loop over all of what it leaves out."""
    lo, hi = loop.lo, loop.hi
    for part in parts:
        lo, hi = (ex.Int(0), hi) if part.before else (lo, part.extent)

    def extended(stmt: ir.Stmt) -> ir.Block | None:
        same = isinstance(stmt, ir.For) and (stmt.span, stmt.var) == (loop.span, loop.var)
        return (replace(stmt, lo=lo, hi=hi),) if same else None

    return kernel.with_body(ir.rewrite(kernel.body, extended))


def cut_off(kernel: ir.Kernel, loop: ir.For, extent: ex.Expr, end: ex.Expr) -> ir.Kernel:
    """The kernel with zeros for what is loaded in a loop from the place `end` of a dimension on."""
    types: dict[str, Type] = dict(kernel.types)
    loads = {id(s) for s in ir.walk(loop.body)}

    def cut(stmt: ir.Stmt) -> ir.Block | None:
        if not isinstance(stmt, ir.Load) or id(stmt) not in loads:
            return None
        view, tile = stmt.view, types[stmt.dst]
        assert isinstance(tile, TileType)
        extents = kernel.param(view.tensor).type.shape
        block: list[ir.Stmt] = [stmt]
        for dim in range(view.lead, len(view.shape)):
            if extents[dim] != extent or loop.var not in ex.names(view.origin[dim]):
                continue
            n, axis = len(types), dim - view.lead
            lanes, near, mask = f"%cut.{n}", f"%cut.{n + 1}", f"%cut.{n + 2}"
            length = tile.shape[axis]
            shape = tuple(length if a == axis else 1 for a in range(len(tile.shape)))
            types.update({lanes: TileType(i32, (length,)), near: TileType(i1, (length,)), mask: TileType(i1, shape)})
            block += [
                ir.Compute(lanes, "arange", ()),
                ir.Compute(near, "lt", (ir.TileRef(lanes), ex.sub(end, view.origin[dim]))),
                ir.Compute(mask, "reshape", (ir.TileRef(near),)),
                ir.Compute(stmt.dst, "where", (ir.TileRef(mask), ir.TileRef(stmt.dst), 0.0)),
            ]
        return tuple(block)

    body = ir.rewrite(kernel.body, cut)
    return kernel.with_body(body, types)


def _differ(got: Array, want: Array) -> Array:
    """Elements that are not about the same."""
    with np.errstate(all="ignore"):
        near = np.abs(got - want) <= _ROUNDING * (1.0 + np.abs(want))
    return ~near & ~np.isnan(want) & (got != want)
