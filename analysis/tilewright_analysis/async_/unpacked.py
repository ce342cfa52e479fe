"""Nibbles that were packed two in a byte: where `tw.unpack_int4` puts them, twice as many along the last axis.

Byte t of a dimension of T elements holds elements 2t and 2t + 1 of one with 2T. That such a dimension is another one of
the kernel is said by its extent, `2 * T`, or by an assumption, `K == 2 * T`.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright_analysis.async_ import code as c
from tilewright_analysis.async_ import forms
from tilewright_analysis.async_.forms import Facts, Form
from tilewright_analysis.async_.tags import Axis, Tag

_HALF = ex.Int(4)


def unpacked(kernel: ir.Kernel) -> frozenset[str]:
    """Names of tiles that hold the two halves of each byte of another one along their last axis, the lower first."""
    made: dict[str, list[ir.Compute]] = {}
    for stmt in ir.walk(kernel.body):
        if isinstance(stmt, ir.Compute):
            made.setdefault(stmt.dst, []).append(stmt)

    def shifted(arg: object, op: str) -> object:
        """What `arg` is with a shift by half a byte undone; None: it is none."""
        found = made.get(arg.name, []) if isinstance(arg, ir.TileRef) else []
        return found[0].args[0] if len(found) == 1 and found[0].op == op and found[0].args[1] == _HALF else None

    def is_pair(stmt: ir.Compute) -> bool:
        if stmt.op != "join":
            return False
        low, high = stmt.args
        packed = shifted(high, "shr")
        return packed is not None and shifted(shifted(low, "shr"), "shl") == packed

    return frozenset(name for name, stmts in made.items() if all(map(is_pair, stmts)))


def doubled(program: c.Program, facts: Facts, axis: Axis) -> Axis:
    """The axis of the nibbles of bytes along `axis`; None where its dimension is not one of the kernel."""
    if not isinstance(axis, Tag):
        return axis
    wanted = _equal(program, facts, forms.scale(program.dims[axis.dim], 2))
    if wanted is None:
        return None
    symbol = forms.scale(program.symbols[axis.symbol], 2)
    if symbol not in program.symbols:
        program.symbols.append(symbol)
    return replace(
        axis,
        dim=wanted,
        symbol=program.symbols.index(symbol),
        const=2 * axis.const,
        slopes=tuple((oracle, outer, 2 * factor) for oracle, outer, factor in axis.slopes),
        text=f"2 * ({axis.text})",
    )


def _equal(program: c.Program, facts: Facts, extent: Form) -> int | None:
    """The number of the dimension with an extent."""
    names = [extent]
    for assumption in program.kernel.assumptions:
        match assumption.expr:
            case ex.Bin("==", a, b):
                one, other = forms.canonical(a, {}, facts), forms.canonical(b, {}, facts)
                names += [other] if one == extent else [one] if other == extent else []
            case _:
                pass
    return next((program.dims.index(n) for n in names if n in program.dims), None)
