"""Which names a statement reads and writes: register tiles, scalars, and memory as a whole."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir

_MEMORY = "<memory>"


def read_by(stmt: ir.Stmt) -> frozenset[str]:
    """Names whose values a statement or one inside it uses; memory is one of them."""
    return frozenset(n for s in ir.walk((stmt,)) for n in _read(s))


def written_by(stmt: ir.Stmt) -> frozenset[str]:
    """Names that a statement or one inside it gives values; memory is one of them."""
    return frozenset(n for s in ir.walk((stmt,)) for n in _written(s))


def _read(stmt: ir.Stmt) -> Iterator[str]:
    if isinstance(stmt, ir.Tag | ir.ExpectTags):
        return
    if isinstance(stmt, ir.Load | ir.Gather | ir.Atomic) or (isinstance(stmt, ir.Scatter) and stmt.op):
        yield _MEMORY
    for name in ir.operand_names(type(stmt)):
        value = getattr(stmt, name)
        if name not in ("dst", "var"):
            yield from _names(value)


def _names(value: object) -> Iterator[str]:
    match value:
        case str():
            yield value
        case ir.TileRef(name=name):
            yield name
        case ir.View(origin=origin):
            yield from _names(origin)
        case ex.Var() | ex.Bin() | ex.Not() | ex.Item():
            yield from ex.names(value)
        case tuple():
            for part in value:  # pyright: ignore[reportUnknownVariableType]
                yield from _names(part)  # pyright: ignore[reportUnknownArgumentType]
        case _:
            pass


def _written(stmt: ir.Stmt) -> Iterator[str]:
    if isinstance(stmt, ir.Store | ir.Scatter | ir.Atomic):
        yield _MEMORY
    for name in ("dst", "var"):
        value = getattr(stmt, name, None)
        if isinstance(value, str):
            yield value


def exposed(block: ir.Block) -> frozenset[str]:
    """Names whose values from before the block, or from its turn before, are read in it."""
    found, _ = _exposed(block, frozenset())
    return found


def _exposed(block: ir.Block, written: frozenset[str]) -> tuple[frozenset[str], frozenset[str]]:
    """What is read before it is written, and what is written for certain."""
    found: set[str] = set()
    for stmt in block:
        match stmt:
            case ir.If(then=then, orelse=orelse):
                found |= _own(stmt) - written
                ends: list[frozenset[str]] = []
                for inner in (then, orelse):
                    read, end = _exposed(inner, written)
                    found |= read
                    ends.append(end)
                written = ends[0] & ends[1]
            case _ if inner := ir.children(stmt):
                found |= _own(stmt) - written
                for body in inner:
                    found |= _exposed(body, written | frozenset(_written(stmt)))[0]
            case _:
                found |= _own(stmt) - written
                written |= frozenset(_written(stmt)) - {_MEMORY}
    return frozenset(found), written


def _own(stmt: ir.Stmt) -> frozenset[str]:
    return frozenset(_read(stmt))
