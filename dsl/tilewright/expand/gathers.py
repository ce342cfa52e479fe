"""Gathers that a pipeline copies ahead: what computes their indices is computed ahead as well."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tilewright.expand.errors import ExpansionError
from tilewright.expand.names import Names
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.expr import Int, Var


def index_work(loop: ir.Pipeline, body: ir.Block, gather: ir.Gather) -> tuple[int, ...]:
    """Positions in `body` (statements of one iteration) of what computes the indices and the mask of a gather.

    Raises ExpansionError for what a later iteration cannot compute ahead of its turn.
    """
    at = next(i for i, s in enumerate(body) if s is gather)
    found: set[int] = set()
    pending = [(n, at) for n in _read(gather)]
    while pending:
        name, before = pending.pop()
        made = [i for i, s in enumerate(body) if any(getattr(x, "dst", None) == name for x in ir.walk((s,)))]
        earlier = [i for i in made if i < before]
        if not made:
            continue  # from outside of the loop, the same in all iterations
        if not earlier:
            raise _fault(gather, name, "is carried from one iteration to the next")
        last = earlier[-1]
        stmt = body[last]
        if last in found:
            continue
        match stmt:
            case ir.Compute(op=op) if op != "rand" and op != "randint":
                pass
            case ir.Load(via="direct" | "buffer") | ir.Gather(via="direct") | ir.Assign():
                pass
            case ir.Load() | ir.Gather():
                raise _fault(
                    gather, name, 'is staged by the same pipeline; load indices with via="direct", into registers'
                )
            case _:
                raise _fault(gather, name, f"is computed by a {_kind(stmt)} of its own iteration")
        found.add(last)
        pending += [(n, last) for n in _read(stmt)]
    return tuple(sorted(found))


def computed_at(work: Sequence[ir.Stmt], variable: str, value: ir.Expr, names: Names) -> tuple[ir.Block, Renaming]:
    """The statements for the iteration with that `value` of the loop variable, and what the names in them became."""
    tiles: dict[str, str] = {}
    scalars: dict[str, ir.Expr] = {variable: value}
    out: list[ir.Stmt] = []
    for stmt in work:
        renaming = Renaming(dict(tiles), dict(scalars))
        if isinstance(stmt, ir.Assign):
            # A copy of an element of a tensor is loaded; anything else is written where it is used.
            if isinstance(stmt.value, ex.Item):
                name = names.new(f"{stmt.dst}_ahead", names.types[stmt.dst])
                out.append(replace(stmt, dst=name, value=ex.substitute(stmt.value, scalars)))
                scalars[stmt.dst] = Var(name)
            else:
                scalars[stmt.dst] = ex.substitute(stmt.value, scalars)
            continue
        dst = getattr(stmt, "dst", None)
        assert isinstance(dst, str)
        wanted = dst if dst.startswith("%") else f"{dst}_ahead"
        tiles[dst] = names.new(wanted, names.types[dst])
        out.append(renaming.applied(replace(stmt, dst=tiles[dst])))  # pyright: ignore[reportCallIssue]
    return tuple(out), Renaming(tiles, scalars)


class Renaming:
    """Tiles and scalars of one iteration under the names that they have when they are computed ahead."""

    def __init__(self, tiles: Mapping[str, str], scalars: Mapping[str, ir.Expr]) -> None:
        self._tiles, self._scalars = tiles, scalars

    def operand(self, value: ir.Operand) -> ir.Operand:
        """The operand as it is ahead."""
        match value:
            case ir.TileRef(name=name):
                return ir.TileRef(self._tiles.get(name, name))
            case float() | int():
                return value
            case _:
                return ex.substitute(value, self._scalars)

    def mask(self, value: ir.TileRef | None) -> ir.TileRef | None:
        """The mask as it is ahead."""
        return None if value is None else ir.TileRef(self._tiles.get(value.name, value.name))

    def applied(self, stmt: ir.Stmt) -> ir.Stmt:
        """The statement with operands as they are ahead."""
        match stmt:
            case ir.Compute(args=args):
                return replace(stmt, args=tuple(map(self.operand, args)))
            case ir.Load(view=view):
                origin = tuple(ex.substitute(o, self._scalars) for o in view.origin)
                return replace(stmt, view=replace(view, origin=origin))
            case ir.Gather(index=index, mask=mask):
                return replace(stmt, index=tuple(map(self.operand, index)), mask=self.mask(mask))
            case _:
                return stmt


def without_unused(body: ir.Block, candidates: Sequence[ir.Stmt], outside: Mapping[str, int]) -> ir.Block:
    """`body` without those `candidates` whose results are now read by nothing, in it or `outside` of it."""
    kept = list(body)
    for stmt in reversed(candidates):
        dst = getattr(stmt, "dst", None)
        rest = [s for s in kept if s is not stmt]
        read = {n for s in ir.walk(tuple(rest)) for n in _read(s)}
        if isinstance(dst, str) and dst not in read and not outside.get(dst):
            kept = rest
    return tuple(kept)


def _read(stmt: ir.Stmt) -> set[str]:
    """Names of tiles and scalars that a statement reads itself."""
    found: set[str] = set()
    for value in ir.operands(stmt):
        match value:
            case ir.TileRef(name=name):
                found.add(name)
            case ir.View(origin=origin):
                found |= {n for e in origin for n in ex.names(e)}
            case ir.BufRef(stage=e) | ir.BarRef(slot=e):
                found |= ex.names(e)
            case Int() | ex.Size():
                pass
            case ex.Var() | ex.Bin() | ex.Not() | ex.Item():
                found |= ex.names(value)
            case str():
                found.add(value)
            case _:
                pass
    return found - ({str(getattr(stmt, "dst", ""))} if not _reads_own(stmt) else set())


def _reads_own(stmt: ir.Stmt) -> bool:
    dst = getattr(stmt, "dst", None)
    match stmt:
        case ir.Compute(args=args):
            return ir.TileRef(str(dst)) in args
        case ir.Mma(a=a, b=b, acc=acc):
            return dst in (a, b, acc)
        case ir.Assign(value=value):
            return dst in ex.names(value)
        case _:
            return False


def _kind(stmt: ir.Stmt) -> str:
    match stmt:
        case ir.For() | ir.While() | ir.Pipeline() | ir.Tiles() | ir.Programs():
            return "loop"
        case ir.If():
            return "branch"
        case ir.Mma():
            return "product"
        case _:
            return "statement"


def _fault(gather: ir.Gather, name: str, why: str) -> ExpansionError:
    shown = "what decides its place" if name.startswith("%") else f"'{name}', which decides its place,"
    return ExpansionError("TW005", f"this load runs ahead, but {shown} {why}", gather.span)
