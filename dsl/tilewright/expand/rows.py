"""`consumers=`: several roles compute, each its part of the rows of every product.

Which tiles have the rows, and along which axis, follows from the products of split pipelines: axis 0 of an accumulator
numbers rows, and statements pass that on to their operands and results. A divided tile keeps its name and gets the
extent of one part. The part is the scalar `PART`, which the expansion of roles replaces: places of loads and stores,
and numbers of elements, are moved by `PART` times the rows of a part. What is not divided each role computes for
itself, and the first one stores.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilewright.expand.errors import ExpansionError
from tilewright.expand.names import Names
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.expr import Expr, Int, Var
from tilewright.ir.tagging import parameter
from tilewright.ir.types import TileType
from tilewright.source import Span

PART = "%part"
"""The number of the role that computes; no name of a kernel looks like this."""

_ROWS = 64  # of a wgmma of one warpgroup (PTX ISA, wgmma.mma_async)

Link = tuple[str, str, dict[int, int]]  # a tile, another one, and which axis of this is which axis of that


def consumers_of(block: ir.Block) -> int:
    """How many roles compute. Raises ExpansionError where pipelines do not agree."""
    loops = [s for s in ir.walk(block) if isinstance(s, ir.Pipeline) and s.roles == "split"]
    for loop in loops[1:]:
        if loop.consumers != loops[0].consumers:
            raise ExpansionError(
                "TW005",
                f"consumers={loop.consumers} here, {loops[0].consumers} in the pipeline before: the roles that compute "
                "are those of the whole kernel",
                loop.span,
            )
    return loops[0].consumers if loops else 1


def divide_rows(kernel: ir.Kernel, names: Names, consumers: int) -> ir.Block:
    """The body of `kernel` for the role number `PART`; types of divided tiles in `names` become those of a part.

    Raises ExpansionError where rows meet what is not divided, or do not divide.
    """
    if consumers == 1:
        return kernel.body
    return _Rows(kernel, names, consumers).divided(kernel.body)


class _Rows:
    def __init__(self, kernel: ir.Kernel, names: Names, consumers: int) -> None:
        block = kernel.body
        self.extents = {p.name: p.type.shape for p in kernel.params}
        self.names = names
        self.consumers = consumers
        self.axis: dict[str, int] = {}
        self.links: dict[str, list[tuple[str, dict[int, int], Span]]] = {}
        for stmt in ir.walk(block):
            for one, other, axes in self.linked(stmt):
                self.links.setdefault(one, []).append((other, axes, stmt.span))
                back = {v: k for k, v in axes.items()}
                self.links.setdefault(other, []).append((one, back, stmt.span))
        for loop in ir.walk(block):
            if isinstance(loop, ir.Pipeline) and loop.roles == "split":
                for stmt in loop.body:
                    if isinstance(stmt, ir.Mma):
                        self.number(stmt.dst, 0, stmt.span)
        for stmt in ir.walk(block):
            self.check(stmt)

    def shape(self, name: str) -> tuple[int, ...]:
        type_ = self.names.types[name]
        assert isinstance(type_, TileType)
        return type_.shape

    def number(self, name: str, axis: int, span: Span) -> None:
        """Rows run along `axis` of the tile, and along what that is of tiles that it is computed with."""
        waiting = [(name, axis, span)]
        while waiting:
            name, axis, span = waiting.pop()
            if name in self.axis:
                if self.axis[name] != axis:
                    raise self.refused(f"rows run along axes {self.axis[name]} and {axis} of {shown(name)}", span)
                continue
            type_ = self.names.types[name]
            assert isinstance(type_, TileType)
            if type_.layout is not None:
                raise self.refused(f"the layout of {shown(name)} is given for all of its rows", span)
            extent = type_.shape[axis]
            if extent % (self.consumers * _ROWS):
                raise self.refused(
                    f"{shown(name)} has {extent} rows, which is not {self.consumers} times a multiple of {_ROWS}, "
                    "the rows of wgmma", span
                )  # fmt: skip
            self.axis[name] = axis
            waiting += [(other, axes[axis], at) for other, axes, at in self.links.get(name, ()) if axis in axes]

    def linked(self, stmt: ir.Stmt) -> Iterator[Link]:
        """Tiles of a statement that have axes in common."""
        match stmt:
            case ir.Mma(dst=dst, a=a, acc=acc):
                yield dst, acc, {0: 0, 1: 1}
                yield dst, a, {0: 0}
            case ir.Compute(dst=dst):
                for arg in stmt.args:
                    if isinstance(arg, ir.TileRef):
                        yield dst, arg.name, self.axes(stmt, self.shape(dst), self.shape(arg.name))
            case ir.Gather(dst=dst, index=index, mask=mask):
                for i in (*index, mask):
                    if isinstance(i, ir.TileRef):
                        yield dst, i.name, broadcast(self.shape(dst), self.shape(i.name))
            case ir.Scatter(index=index, mask=mask, src=src):
                for i in (*index, mask):
                    if isinstance(i, ir.TileRef):
                        yield src, i.name, broadcast(self.shape(src), self.shape(i.name))
            case ir.Atomic(src=src, mask=str(mask)):
                yield src, mask, broadcast(self.shape(src), self.shape(mask))
            case _:
                pass

    def axes(self, stmt: ir.Compute, result: tuple[int, ...], operand: tuple[int, ...]) -> dict[int, int]:
        """Which axis of the operand each axis of the result is."""
        match stmt.op:
            case "expand_dims":
                assert stmt.axis is not None
                return {k: k - (k > stmt.axis) for k in range(len(result)) if k != stmt.axis}
            case "transpose":
                return {0: 1, 1: 0}
            case "permute":
                return dict(enumerate(stmt.order))
            case "reshape":
                same = min(len(result), len(operand))
                equal = next((i for i in range(same) if result[i] != operand[i]), same)
                return {k: k for k in range(equal)}
            case "join" | "half":
                return {k: k for k in range(min(len(result), len(operand)))}
            case op if op in ir.REDUCTIONS:
                assert stmt.axis is not None
                kept = [k for k in range(len(operand)) if k != stmt.axis]
                return {(k if stmt.keep else i): k for i, k in enumerate(kept)}
            case _:
                return broadcast(result, operand)

    def check(self, stmt: ir.Stmt) -> None:
        """Refuses what rows in parts cannot be used for."""
        match stmt:
            case ir.Mma(b=b) if b in self.axis:
                raise self.refused(
                    f"{shown(b)} is operand b of a product, which each role needs as a whole, and has rows of another",
                    stmt.span,
                )
            case ir.Mma(a=a, dst=dst) if (a in self.axis) != (dst in self.axis) or self.axis.get(a, 0):
                raise self.refused(f"{shown(a)} is operand a of a product, but rows are not its axis 0", stmt.span)
            case ir.Compute(op=op, axis=axis, args=args) if op in ir.REDUCTIONS or op in ir.SCANS or op in ir.ORDERS:
                for arg in args:
                    if isinstance(arg, ir.TileRef) and self.axis.get(arg.name) == axis:
                        raise self.refused(f"{op} over the rows of {shown(arg.name)}", stmt.span)
            case ir.Compute(dst=dst, op="reshape", args=(ir.TileRef(name=of),)) if (dst in self.axis) != (
                of in self.axis
            ):
                raise self.refused(f"reshape of {shown(of)} mixes rows with other axes", stmt.span)
            case ir.Roles():
                raise self.refused("explicit roles", stmt.span)
            case _:
                pass

    def refused(self, what: str, span: Span) -> ExpansionError:
        return ExpansionError("TW005", f"consumers={self.consumers} divides rows among roles: {what}", span)

    # -------------------------------------------------------------------------------- rewriting

    def divided(self, block: ir.Block) -> ir.Block:
        """The block for one part."""
        body = ir.rewrite(block, self.change)
        for name, axis in self.axis.items():
            type_ = self.names.types[name]
            assert isinstance(type_, TileType)
            own = tuple(n // self.consumers if k == axis else n for k, n in enumerate(type_.shape))
            self.names.types[name] = replace(type_, shape=own)
        return body

    def begin(self, name: str) -> Expr:
        """The row where the part begins."""
        return ex.mul(Var(PART), Int(self.shape(name)[self.axis[name]] // self.consumers))

    def change(self, stmt: ir.Stmt) -> ir.Block | None:
        match stmt:
            case ir.Load(dst=dst, view=view) if dst in self.axis:
                return (replace(stmt, view=self.part_of(view, dst)),)
            case ir.Store(src=src, view=view) | ir.Atomic(src=src, view=view) if src in self.axis:
                return self.where_inside(replace(stmt, view=self.part_of(view, src)), self.axis[src])
            case ir.Store() | ir.Atomic():
                return self.by_the_first(stmt)
            case ir.Scatter(src=src) if src not in self.axis:
                return self.by_the_first(stmt)
            case ir.Compute(dst=dst, op="arange") if dst in self.axis:
                return stmt, ir.Compute(dst, "add", (ir.TileRef(dst), self.begin(dst)), span=stmt.span)
            case ir.Tag() | ir.ExpectTags():
                return (self.tagging(stmt),)
            case _:
                return None

    def where_inside(self, stmt: ir.Store | ir.Atomic, axis: int) -> ir.Block:
        """A store of rows; those of the last tile may all lie past the edge, but for those of the first part."""
        at = stmt.view.lead + axis
        inside = ex.less(stmt.view.origin[at], self.extents[stmt.view.tensor][at])
        guarded = ir.If(inside, (stmt,), span=stmt.span, note="the rows of this role may lie past the edge")
        return (ir.If(ex.binary("==", Var(PART), Int(0)), (stmt,), (guarded,), span=stmt.span),)

    def by_the_first(self, stmt: ir.Stmt) -> ir.Block:
        first = ex.binary("==", Var(PART), Int(0))
        return (ir.If(first, (stmt,), span=stmt.span),)

    def part_of(self, view: ir.View, tile: str) -> ir.View:
        axis, at = self.axis[tile], view.lead + self.axis[tile]
        begin, extent = self.begin(tile), self.shape(tile)[axis] // self.consumers
        origin = tuple(ex.add(o, begin) if d == at else o for d, o in enumerate(view.origin))
        return replace(view, origin=origin, shape=tuple(extent if d == at else n for d, n in enumerate(view.shape)))

    def tagging(self, stmt: ir.Tag | ir.ExpectTags) -> ir.Stmt:
        """What is said of all rows, said of those of the part: parameters that number rows begin at 0 in each."""
        moved: dict[str, Expr] = {}
        if isinstance(stmt, ir.Tag) and isinstance(stmt.of, str) and stmt.of in self.axis:
            moved[parameter(self.axis[stmt.of]).name] = self.begin(stmt.of)
        for use in stmt.uses:
            if not isinstance(use.of, str) or use.of not in self.axis:
                continue
            at = use.index[self.axis[use.of]] if not use.thread else None
            if not isinstance(at, Var):
                raise self.refused(
                    f"what is said of the tags of '{use.label}' chooses rows otherwise than by a parameter itself",
                    stmt.span,
                )
            moved[at.name] = self.begin(use.of)
        for use in stmt.uses:
            rows = self.axis.get(use.of, -1) if isinstance(use.of, str) else -1
            if any(axis != rows and ex.names(at) & moved.keys() for axis, at in enumerate(use.index)):
                raise self.refused(
                    f"the parameter that numbers rows also numbers other elements of '{use.label}'", stmt.span
                )
        env = {name: ex.add(Var(name), begin) for name, begin in moved.items()}
        if isinstance(stmt, ir.Tag):
            return replace(stmt, tags=tuple((n, ex.substitute(e, env)) for n, e in stmt.tags))
        return replace(stmt, cond=ex.substitute(stmt.cond, env))


def broadcast(result: tuple[int, ...], operand: tuple[int, ...]) -> dict[int, int]:
    """Axes of the result along which an operand is not stretched, and which of its own they are (NumPy's rules)."""
    first = len(result) - len(operand)
    return {first + k: k for k, n in enumerate(operand) if n == result[first + k]}


def shown(name: str) -> str:
    """A tile as messages name it."""
    return "a value computed here" if name.startswith("%") else f"'{name}'"
