"""Tile IR back to source: `kernel_source` of one kernel, `module_source` of a file that holds it.

What is printed reads back into equal IR: automatic syncs and inferred layouts are left out, since the front end and
`expand` put them back. Notes of the expansion become comments.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable

from tilewright.dtypes import DType
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.tagging import Holder, parameter_names, source
from tilewright.ir.types import GIVEN, BarrierType, SharedType, TensorMemoryType, TileType, row_major
from tilewright.layout_source import register_layout, shared_layout
from tilewright.temporaries import names_of_temporaries

_INFIX: dict[str, tuple[str, int]] = {
    "add": ("+", 9), "sub": ("-", 9), "mul": ("*", 10), "div": ("/", 10), "floordiv": ("//", 10), "mod": ("%", 10),
    "shl": ("<<", 8), "shr": (">>", 8), "and": ("&", 7), "xor": ("^", 6), "or": ("|", 5), "lt": ("<", 4),
    "le": ("<=", 4), "gt": (">", 4), "ge": (">=", 4), "eq": ("==", 4), "ne": ("!=", 4),
}  # fmt: skip
_ATOM, _UNARY = 20, 11
# Names that mean something in what is printed.
_PRINTED = ("tw", "range", "min", "max")


def module_source(kernel: ir.Kernel, *, reference: str = "") -> str:
    """A file that declares the kernel's sizes and holds the kernel."""
    dtypes = {p.type.dtype.name for p in kernel.params} | {s.dtype.name for s in kernel.scalars} | _dtypes_used(kernel)
    imports = ", ".join(["Global", *["Scalar"] * bool(kernel.scalars), *sorted(dtypes)])
    sizes = ""
    if declared := [s for s in kernel.sizes if s not in kernel.integers]:
        names = ", ".join(declared)
        quoted = ", ".join(f'"{s}"' for s in declared)
        sizes = f"{names} = tw.sizes({quoted})\n\n\n"
    head = f"import tilewright as tw\nfrom tilewright import {imports}\n\n{sizes}"
    return head + kernel_source(kernel, reference=reference)


def kernel_source(kernel: ir.Kernel, *, reference: str = "") -> str:
    """The definition of the kernel, decorator included, ending in a line break. Compile-time values stand folded."""
    options = [f'target="{kernel.target}"', f"warps={kernel.warps}"]
    if kernel.registers is not None:
        options.append(f"registers={kernel.registers}")
    if reference:
        options.append(f"reference={json.dumps(reference, ensure_ascii=False)}")
    lines = [f"@tw.kernel({', '.join(options)})"]
    params = [f"{a.name}: {_annotation(a)}" for a in kernel.arguments]
    head = f"def {kernel.name}({', '.join(params)}):"
    if len(head) > 100:
        lines += [f"def {kernel.name}(", *(f"    {p}," for p in params), "):"]
    else:
        lines.append(head)
    declared = {"zeros": "zeroed", "values": "initialized"}
    for p in kernel.params:
        if p.type.strides != row_major(p.type.shape):
            lines.append(f"    tw.strides({p.name}, ({_tuple(map(ex.show, p.type.strides))}))")
    lines += [f"    tw.{declared[p.given]}({p.name})" for p in kernel.params if p.given]
    lines += [f"    tw.assume({ex.show(a.expr)})" for a in kernel.assumptions]
    lines += [f"    tw.assume({contract_source(c)})" for c in kernel.contracts]
    lines += _Printer(kernel).block(kernel.body, 1)
    return "\n".join(lines) + "\n"


def contract_source(contract: ir.Contract) -> str:
    """A data contract as the argument of `tw.assume`."""
    bound = f"lambda {', '.join(contract.variables)}: " if contract.variables else ""
    return bound + ex.show(contract.expr)


def _annotation(argument: ir.Param | ir.ScalarParam) -> str:
    if isinstance(argument, ir.ScalarParam):
        return f"Scalar[{argument.dtype}]"
    return f"Global[{', '.join([argument.type.dtype.name, *(ex.show(s) for s in argument.type.shape)])}]"


def _dtypes_used(kernel: ir.Kernel) -> set[str]:
    used: set[str] = set()
    for stmt in ir.walk(kernel.body):
        match stmt:
            case ir.Compute(dst=dst, op="full" | "cast" | "bitcast"):
                used.add(_dtype(kernel, dst).name)
            case ir.AllocShared(dst=dst) | ir.AllocTensor(dst=dst):
                used.add(_dtype(kernel, dst).name)
            case _:
                pass
    return used


def _dtype(kernel: ir.Kernel, name: str) -> DType:
    type_ = kernel.types[name]
    assert isinstance(type_, TileType | SharedType | TensorMemoryType)
    return type_.dtype


class _Printer:
    def __init__(self, kernel: ir.Kernel) -> None:
        self.kernel = kernel
        # Source text and binding strength of temporaries not yet used.
        self.pending: dict[str, tuple[str, int]] = {}
        self.names = names_of_temporaries(kernel)

    # -------------------------------------------------------------------------------- statements

    def block(self, block: ir.Block, depth: int) -> list[str]:
        lines: list[str] = []
        for stmt in block:
            lines += self.statement(stmt, depth)
        return lines or ["    " * depth + "pass"]

    def statement(self, stmt: ir.Stmt, depth: int) -> list[str]:
        pad = "    " * depth
        match stmt:
            case ir.Sync(auto=True):
                return []
            case ir.For():
                call = f"range({self.bounds(stmt)})"
                if stmt.unroll > 1:
                    call = f"tw.unroll({self.bounds(stmt)}, by={stmt.unroll})"
                return [f"{pad}for {stmt.var} in {call}:", *self.block(stmt.body, depth + 1)]
            case ir.While():
                return [f"{pad}while {ex.show(stmt.cond)}:", *self.block(stmt.body, depth + 1)]
            case ir.Programs():
                flag = ", persistent=True" if stmt.persistent else ""
                head = f"{pad}for {stmt.var} in tw.programs({ex.show(stmt.count)}{flag}):"
                return [head, *self.block(stmt.body, depth + 1)]
            case ir.Tiles():
                return [f"{pad}for {', '.join(stmt.vars)} in {self.tiles(stmt)}:", *self.block(stmt.body, depth + 1)]
            case ir.Pipeline():
                args = (
                    f'{ex.show(stmt.lo)}, {ex.show(stmt.hi)}, {stmt.step}, stages={stmt.stages}, roles="{stmt.roles}"'
                )
                if stmt.consumers != 1:
                    args += f", consumers={stmt.consumers}"
                if stmt.turns:
                    args += ", turns=True"
                if stmt.order != "load":
                    args += f', order="{stmt.order}"'
                return [f"{pad}for {stmt.var} in tw.pipeline({args}):", *self.block(stmt.body, depth + 1)]
            case ir.If():
                lines = [f"{pad}if {ex.show(stmt.cond)}:{self.comment(stmt)}", *self.block(stmt.then, depth + 1)]
                if stmt.orelse:
                    lines += [f"{pad}else:", *self.block(stmt.orelse, depth + 1)]
                return lines
            case ir.Roles(roles=roles):
                lines = list[str]()
                for role in roles:
                    registers = f", registers={role.registers}" if role.registers is not None else ""
                    lines.append(f'{pad}with tw.role("{role.name}", warps={role.warps}{registers}):')
                    lines += self.block(role.body, depth + 1)
                return lines
            case _:
                text = self.simple(stmt)
                return [f"{pad}{text}{self.comment(stmt)}"] if text else []

    def comment(self, stmt: ir.Stmt) -> str:
        return f"  # {stmt.note}" if stmt.note else ""

    def bounds(self, loop: ir.For) -> str:
        if loop.step == 1:
            return ex.show(loop.hi) if loop.lo == ex.Int(0) else f"{ex.show(loop.lo)}, {ex.show(loop.hi)}"
        return f"{ex.show(loop.lo)}, {ex.show(loop.hi)}, {loop.step}"

    def tiles(self, stmt: ir.Tiles) -> str:
        args = [ex.show(c) for c in stmt.counts]
        if stmt.order != ir.RowMajor():
            args.append(f"order={self.order(stmt.order)}")
        if stmt.persistent:
            args.append("persistent=True")
        return f"tw.tiles({', '.join(args)})"

    def order(self, order: ir.Order) -> str:
        match order:
            case ir.Grouped(rows):
                return f"tw.grouped({rows})"
            case ir.RowMajor():
                return "tw.row_major()"
            case ir.ColumnMajor():
                return "tw.column_major()"
            case ir.Xcd(dies, ir.RowMajor()):
                return f"tw.xcd({dies})"
            case ir.Xcd(dies, inner):
                return f"tw.xcd({dies}, {self.order(inner)})"

    def simple(self, stmt: ir.Stmt) -> str:
        """One line of source; empty when the statement is a temporary that its user will show."""
        match stmt:
            case ir.Assign(dst=dst, value=value):
                return (
                    f"{dst} = tw.load({ex.show(value)})" if isinstance(value, ex.Item) else f"{dst} = {ex.show(value)}"
                )
            case ir.Compute():
                return self.result(stmt.dst, *self.compute(stmt))
            case ir.Load():
                other = "" if stmt.other is None else f", other={_number(stmt.other)}"
                via = "" if stmt.via in ("auto", "direct") else f', via="{stmt.via}"'
                return self.result(stmt.dst, self.made(stmt.dst, f"tw.load({self.view(stmt.view)}{other}{via})"), _ATOM)
            case ir.Store():
                via = "" if stmt.via in ("auto", "direct") else f', via="{stmt.via}"'
                return f"tw.store({self.view(stmt.view)}, {self.tile(stmt.src)}{via})"
            case ir.Gather():
                other = "" if stmt.other is None else f", other={_number(stmt.other)}"
                via = "" if stmt.via == "direct" else f', via="{stmt.via}"'
                text = f"tw.load({self.points(stmt)}{self.mask(stmt)}{other}{via})"
                return self.result(stmt.dst, self.made(stmt.dst, text), _ATOM)
            case ir.Scatter(op="add" | "max" | "min" as op):
                return f"tw.atomic_{op}({self.points(stmt)}, {self.tile(stmt.src)}{self.mask(stmt)})"
            case ir.Scatter():
                return f"tw.store({self.points(stmt)}, {self.tile(stmt.src)}{self.mask(stmt)})"
            case ir.Atomic():
                mask = "" if stmt.mask is None else f", mask={self.tile(stmt.mask)}"
                return f"tw.atomic_{stmt.op}({self.view(stmt.view)}, {self.tile(stmt.src)}{mask})"
            case ir.Mma():
                how = f', precision="{stmt.precision}"' if stmt.precision else ""
                text = f"tw.mma({self.tile(stmt.a)}, {self.tile(stmt.b)}, {self.tile(stmt.acc)}{how})"
                return self.result(stmt.dst, text, _ATOM)
            case ir.Wgmma():
                left = self.tile(stmt.a.name) if isinstance(stmt.a, ir.TileRef) else self.stage(stmt.a)
                text = f"tw.wgmma({left}, {self.stage(stmt.b)}, {self.tile(stmt.acc)})"
                return self.result(stmt.dst, text, _ATOM)
            case ir.SharedLoad():
                return self.result(stmt.dst, self.made(stmt.dst, f"tw.load_shared({self.stage(stmt.src)})"), _ATOM)
            case ir.SharedStore():
                return f"tw.store_shared({self.stage(stmt.dst)}, {self.tile(stmt.src)})"
            case ir.AllocShared(dst=dst):
                return f"{dst} = {self.shared(dst)}"
            case ir.AllocTensor(dst=dst):
                type_ = self.kernel.types[dst]
                assert isinstance(type_, TensorMemoryType)
                shape = _tuple(map(str, ((type_.stages,) if type_.ring else ()) + type_.shape))
                return f"{dst} = tw.tensor_memory({type_.dtype}, ({shape}))"
            case ir.Tcgen05():
                operands = f"{self.stage(stmt.a)}, {self.stage(stmt.b)}, {self.stage(stmt.acc)}, {self.slot(stmt.bar)}"
                return f"tw.tcgen05_mma({operands}, accumulate={ex.show(stmt.accumulate)})"
            case ir.Tcgen05Commit():
                return f"tw.tcgen05_commit({self.slot(stmt.bar)})"
            case ir.TensorLoad():
                return self.result(stmt.dst, f"tw.load_tensor({self.stage(stmt.src)})", _ATOM)
            case ir.AllocBarrier(dst=dst):
                type_ = self.kernel.types[dst]
                assert isinstance(type_, BarrierType)
                return f"{dst} = tw.barrier({type_.slots}, arrivals={type_.arrivals})"
            case ir.BarrierWait():
                return f"tw.wait({self.slot(stmt.bar)}, {ex.show(stmt.parity)})"
            case ir.BarrierArrive():
                return f"tw.arrive({self.slot(stmt.bar)})"
            case ir.BarrierExpect():
                return f"tw.expect({self.slot(stmt.bar)}, {ex.show(stmt.bytes)})"
            case ir.TmaLoad():
                return f"tw.tma_load({self.view(stmt.view)}, {self.stage(stmt.dst)}, {self.slot(stmt.bar)})"
            case ir.TmaStore():
                return f"tw.tma_store({self.view(stmt.view)}, {self.stage(stmt.src)})"
            case ir.TmaStoreWait():
                return f"tw.tma_store_wait({stmt.pending})"
            case ir.CpAsync():
                return f"tw.cp_async({self.view(stmt.view)}, {self.stage(stmt.dst)})"
            case ir.CpGather():
                return f"tw.cp_async({self.points(stmt)}, {self.stage(stmt.dst)}{self.mask(stmt)})"
            case ir.CpCommit():
                return "tw.cp_commit()"
            case ir.CpWait():
                return f"tw.cp_wait({stmt.pending})"
            case ir.WgmmaWait():
                return f"tw.wgmma_wait({stmt.pending})"
            case ir.FenceAsync():
                return "tw.fence_async()"
            case ir.Sync():
                return "tw.sync()"
            case ir.Tag():
                return self.tags(stmt)
            case ir.ExpectTags():
                return f"tw.expect({self.over_elements(stmt, stmt.cond)})"
            case _:
                raise AssertionError(f"no source form for {type(stmt).__name__}")

    def made(self, dst: str, text: str) -> str:
        """A tile that is made in the layout that the kernel gives it, if it gives one; inferred ones are left out."""
        type_ = self.kernel.types[dst]
        assert isinstance(type_, TileType)
        if type_.layout is None or type_.why != GIVEN:
            return text
        return f"tw.convert_layout({text}, {register_layout(type_.layout)})"

    def result(self, dst: str, text: str, strength: int) -> str:
        if dst.startswith("%") and dst not in self.names:
            self.pending[dst] = (text, strength)
            return ""
        return f"{self.names.get(dst, dst)} = {text}"

    # -------------------------------------------------------------------------------- tags

    def tags(self, stmt: ir.Tag) -> str:
        target = self.holder(stmt.of)
        tags = ", ".join(f"{name}={self.over_elements(stmt, e)}" for name, e in stmt.tags)
        call = f"tw.tag({target}, {tags})"
        return call if isinstance(stmt.of, ir.BufRef) else f"{target} = {call}"

    def over_elements(self, stmt: ir.Tag | ir.ExpectTags, expr: ex.Expr) -> str:
        kernel = self.kernel
        taken = {*_PRINTED, *kernel.types, *kernel.sizes, *(p.name for p in kernel.params), *self.names.values()}
        names = parameter_names(stmt.names, taken.__contains__)
        return f"lambda {', '.join(names.values())}: {source(expr, stmt.uses, self.holder, names)}"

    def holder(self, of: Holder) -> str:
        return self.stage(of) if isinstance(of, ir.BufRef) else self.names.get(of, of)

    # -------------------------------------------------------------------------------- operands

    def tile(self, name: str, least: int = 0) -> str:
        text, strength = self.pending.pop(name, (self.names.get(name, name), _ATOM))
        return f"({text})" if strength < least else text

    def operand(self, value: ir.Operand, least: int = 0) -> str:
        match value:
            case ir.TileRef(name=name):
                return self.tile(name, least)
            case float() | int():
                text = _number(float(value))
                return f"({text})" if value < 0 and least > _UNARY else text
            case _:
                text = ex.show(value)
                return text if isinstance(value, ex.Int | ex.Size | ex.Var) or least == 0 else f"({text})"

    def view(self, view: ir.View) -> str:
        fixed, origin = view.origin[: view.lead], view.origin[view.lead :]
        index = f"[{', '.join(map(ex.show, fixed))}]" if fixed else ""
        if not origin:
            return f"{view.tensor}{index}"
        return f"{view.tensor}{index}.tile(({_tuple(map(ex.show, origin))}), ({_tuple(map(str, view.tile_shape))}))"

    def points(self, stmt: ir.Gather | ir.CpGather | ir.Scatter) -> str:
        return f"{stmt.tensor}.at(({_tuple(self.operand(i) for i in stmt.index)}))"

    def mask(self, stmt: ir.Gather | ir.CpGather | ir.Scatter) -> str:
        return f", mask={self.tile(stmt.mask.name)}" if stmt.mask is not None else ""

    def stage(self, ref: ir.BufRef) -> str:
        type_ = self.kernel.types[ref.buffer]
        assert isinstance(type_, SharedType | TensorMemoryType)
        text = f"{ref.buffer}[{ex.show(ref.stage)}]" if type_.ring else ref.buffer
        return f"{text}.T" if ref.transposed else text

    def slot(self, ref: ir.BarRef) -> str:
        return f"{ref.barrier}[{ex.show(ref.slot)}]"

    def shared(self, name: str) -> str:
        type_ = self.kernel.types[name]
        assert isinstance(type_, SharedType)
        shape = _tuple(map(str, ((type_.stages,) if type_.ring else ()) + type_.shape))
        ring = "" if type_.ring == (len(type_.shape) + type_.ring == 3) else f", ring={type_.ring}"
        return f"tw.shared({type_.dtype}, ({shape}), layout={shared_layout(type_.layout)}{ring})"

    def compute(self, stmt: ir.Compute) -> tuple[str, int]:
        type_ = self.kernel.types[stmt.dst]
        assert isinstance(type_, TileType)
        args = stmt.args
        if stmt.op in _INFIX:
            sign, strength = _INFIX[stmt.op]
            # The right operand is bracketed at equal strength: order matters for - and /, and rounding for + and *.
            left = self.operand(args[0], strength + (strength == 4))
            return f"{left} {sign} {self.operand(args[1], strength + 1)}", strength
        match stmt.op:
            case "neg":
                return f"-{self.operand(args[0], _UNARY)}", _UNARY
            case "not":
                return f"~{self.operand(args[0], _UNARY)}", _UNARY
            case "copy" | "convert_layout":
                source = args[0]
                assert isinstance(source, ir.TileRef)
                text, strength = self.pending.pop(source.name, (self.names.get(source.name, source.name), _ATOM))
                made = self.made(stmt.dst, text) if stmt.op == "convert_layout" else text
                return made, strength if made == text else _ATOM
            case "full":
                shape = f"({_tuple(map(str, type_.shape))})"
                if args[0] == ex.Int(0) or (isinstance(args[0], float) and str(args[0]) == "0.0"):  # not -0.0
                    return self.made(stmt.dst, f"tw.zeros({type_.dtype}, {shape})"), _ATOM
                return self.made(stmt.dst, f"tw.full({type_.dtype}, {shape}, {self.operand(args[0])})"), _ATOM
            case "arange":
                return self.made(stmt.dst, f"tw.arange({type_.shape[0]})"), _ATOM
            case "cast":
                return f"{self.operand(args[0], _ATOM)}.to({type_.dtype})", _ATOM
            case "bitcast":
                return f"tw.bitcast({self.operand(args[0])}, {type_.dtype})", _ATOM
            case "permute":
                return f"tw.permute({self.operand(args[0])}, ({_tuple(map(str, stmt.order))}))", _ATOM
            case "half":
                colons = ":, " * len(type_.shape)
                return f"{self.operand(args[0], _ATOM)}[{colons}{stmt.axis}]", _ATOM
            case "cumsum" | "cumprod" | "cummax" | "cummin":
                reverse = ", reverse=True" if stmt.reverse else ""
                return f"tw.{stmt.op}({self.operand(args[0])}, axis={stmt.axis}{reverse})", _ATOM
            case "sort" | "argsort":
                falling = ", descending=True" if stmt.reverse else ""
                return f"tw.{stmt.op}({self.operand(args[0])}, axis={stmt.axis}{falling})", _ATOM
            case "sum" | "max" | "min" | "argmax" | "argmin":
                keep = ", keep_dims=True" if stmt.keep else ""
                return f"tw.{stmt.op}({self.operand(args[0])}, axis={stmt.axis}{keep})", _ATOM
            case "expand_dims":
                return f"tw.expand_dims({self.operand(args[0])}, {stmt.axis})", _ATOM
            case "broadcast" | "reshape":
                return f"tw.{stmt.op}({self.operand(args[0])}, ({_tuple(map(str, type_.shape))}))", _ATOM
            case _:
                return f"tw.{stmt.op}({', '.join(self.operand(a) for a in args)})", _ATOM


def _tuple(parts: Iterable[str]) -> str:
    items = list(parts)
    return f"{items[0]}," if len(items) == 1 else ", ".join(items)


def _number(value: float) -> str:
    if math.isnan(value):
        return 'float("nan")'
    if math.isinf(value):
        return "tw.inf" if value > 0 else "-tw.inf"
    return repr(value)
