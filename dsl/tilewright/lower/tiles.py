"""Tile computations and accesses to global memory as Gluon expressions."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from tilewright.dtypes import DType, bf16, f8e5m2, f16, f32
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.types import TileType
from tilewright.layout import (
    DistributedLayout,
    DotOperand,
    Mfma,
    MmaV2,
    SharedLayout,
    Slice,
    Swizzled,
    SwizzledShared,
    Wgmma,
)
from tilewright.lower.scalars import Scalars
from tilewright.lower.text import Names

Layout = DistributedLayout | SharedLayout

# Gluon functions of one float argument that exist for 32 and 64 bits only; narrower tiles are widened first.
_WIDE_FUNCTIONS = {
    "exp": "gl.exp({0})", "exp2": "gl.exp2({0})", "log": "gl.log({0})", "log2": "gl.log2({0})",
    "sqrt": "gl.sqrt_rn({0})", "rsqrt": "gl.rsqrt({0})", "sin": "gl.sin({0})", "cos": "gl.cos({0})",
    "erf": "gl.erf({0})", "floor": "gl.floor({0})", "ceil": "gl.ceil({0})", "round": "libdevice.nearbyint({0})",
    "trunc": "libdevice.trunc({0})", "log1p": "libdevice.log1p({0})", "expm1": "libdevice.expm1({0})",
    "pow": "libdevice.pow({0}, {1})", "fma": "gl.fma({0}, {1}, {2})",
    "sigmoid": "1.0 / (1.0 + gl.exp(-{0}))", "tanh": "tanh_({0})",
}  # fmt: skip
_OPERATORS = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==",
    "ne": "!=", "and": "&", "or": "|", "xor": "^", "shl": "<<", "shr": ">>", "floordiv": "//", "mod": "%",
}  # fmt: skip


@dataclass
class Constants:
    """Layouts of the module, each bound to a name at its top, and the helper functions it needs."""

    names: Names
    layouts: dict[Layout, str] = field(default_factory=dict[Layout, str])
    helpers: set[str] = field(default_factory=set[str])
    nan: bool = False
    native_float8: bool = True

    def layout(self, layout: Layout) -> str:
        """The name of a layout; slices are written in place from their parent's name."""
        if isinstance(layout, Slice):
            return f"gl.SliceLayout({layout.dim}, {self.layout(layout.parent)})"
        if layout not in self.layouts:
            self.layouts[layout] = self.names.fresh(
                f"{_family(layout)}_{sum(_family(o) == _family(layout) for o in self.layouts)}"
            )
        return self.layouts[layout]

    def helper(self, name: str) -> None:
        """Note that a helper function is called."""
        self.helpers.add(name)
        self.nan = self.nan or name in ("max_", "min_")


# What a scan accumulates with.
_SCANS = {"cumsum": "add_", "cumprod": "multiply_", "cummax": "max_", "cummin": "min_"}


def _family(layout: Layout) -> str:
    match layout:
        case DotOperand(index=index):
            return f"OPERAND_{'AB'[index]}"
        case MmaV2():
            return "MMA"
        case Wgmma():
            return "WGMMA"
        case Mfma():
            return "MFMA"
        case Swizzled():
            return f"SWIZZLE_{layout.bytes}B"
        case SwizzledShared():
            return "SWIZZLED"
        case _:
            return type(layout).__name__.upper()


def compute_text(
    stmt: ir.Compute, types: dict[str, TileType], names: Names, scalars: Scalars, constants: Constants
) -> str:
    """The right-hand side of a `Compute`."""
    tile = types[stmt.dst]
    op, dtype = stmt.op, tile.dtype
    rank = len(tile.shape)
    sources = [types[a.name] for a in stmt.args if isinstance(a, ir.TileRef)]
    # Scalars of the device have 32 bits; beside integers of another width they would widen the result.
    element = dtype if op == "where" or not sources else sources[0].dtype
    args = [
        _operand(a, types, names, scalars, rank if op in ir.ELEMENTWISE or op == "broadcast" else None, element)
        for a in stmt.args
    ]
    layout = constants.layout(tile.layout) if tile.layout is not None else ""
    match op:
        case "full":
            return f"gl.full({_shape(tile.shape)}, {args[0]}, gl.{dtype.gluon}, {layout})"
        case "arange":
            return _cast(f"gl.arange(0, {tile.shape[0]}, layout={layout})", dtype.name == "i32", dtype)
        case "copy":
            return args[0]
        case "cast":
            if dtype == f8e5m2 and not constants.native_float8:
                # What Triton 3.6 does there truncates to f16 first, and turns NaN into zero.
                constants.helper("to_f8e5m2_")
                return f"to_f8e5m2_({args[0]}.to(gl.float32))"
            return f"{args[0]}.to(gl.{dtype.gluon})"
        case "bitcast":
            return f"{args[0]}.to(gl.{dtype.gluon}, bitcast=True)"
        case "neg":
            return f"-{args[0]}"
        case "abs":
            return f"gl.abs({args[0]})"
        case "not":
            return f"~{args[0]}"
        case "isnan":
            return f"{args[0]} != {args[0]}"
        case "div" if dtype == f32:
            # Rounded to nearest, as sqrt is; `/` is off by up to two units in the last place.
            wide = [
                f"gl.to_tensor({t}).to(gl.float32)" if isinstance(a, ex.Expr) and not isinstance(a, ex.Int) else t
                for a, t in zip(stmt.args, args, strict=True)
            ]
            return f"gl.div_rn({wide[0]}, {wide[1]})"
        case "div" if dtype in (f16, bf16):
            # Gluon divides these in f32 and leaves the quotient there.
            return f"({args[0]} / {args[1]}).to(gl.{dtype.gluon})"
        case "floordiv" | "mod" if dtype.kind == "int":
            return _signed_division(op, args, stmt.args[1], dtype, constants)
        case "randint" | "rand":
            constants.helper("philox_")
            if op == "rand":
                constants.helper("uniform_")
            seed = stmt.args[0].value if isinstance(stmt.args[0], ex.Int) else None
            bits = f"philox_({args[0] if seed is None else _key(seed)}, {args[1]})"
            return bits if op == "randint" else f"uniform_({bits})"
        case "argmax" | "argmin":
            return _position(stmt, args[0], sources[0], constants)
        case "sort" | "argsort":
            return _ordered(stmt, args[0], sources[0], layout, constants)
        case _ if op in ir.SCANS:
            constants.helper(_SCANS[op])
            narrow = dtype in (f16, bf16)
            source = f"{args[0]}.to(gl.{f32.gluon})" if narrow else args[0]
            reverse = ", reverse=True" if stmt.reverse else ""
            return _cast(f"gl.associative_scan({source}, {stmt.axis}, {_SCANS[op]}{reverse})", not narrow, dtype)
        case "where":
            return f"gl.where({', '.join(args)})"
        case "maximum" | "minimum":
            if dtype.is_float:
                constants.nan = True
                return f"gl.{op}({args[0]}, {args[1]}, propagate_nan=NAN)"
            return f"gl.{op}({args[0]}, {args[1]})"
        case "sum":
            # Half-width sums are accumulated in f32: adding in f16 would lose a term of 1 beside a sum of 2048.
            narrow = sources[0].dtype in (f16, bf16)
            source = f"{args[0]}.to(gl.{f32.gluon})" if narrow else args[0]
            return _cast(f"gl.sum({source}, {_axis(stmt)})", not narrow and sources[0].dtype == dtype, dtype)
        case "max" | "min":
            constants.helper(f"{op}_")
            keep = ", keep_dims=True" if stmt.keep else ""
            return f"gl.reduce({args[0]}, {stmt.axis}, {op}_{keep})"
        case "expand_dims":
            return f"gl.expand_dims({args[0]}, {stmt.axis})"
        case "broadcast":
            return f"gl.where(gl.full({_shape(tile.shape)}, True, gl.int1, {layout}), {args[0]}, {args[0]})"
        case "transpose":
            return f"gl.convert_layout(gl.permute({args[0]}, [1, 0]), {layout}, assert_trivial=True)"
        case "permute":
            return f"gl.convert_layout(gl.permute({args[0]}, {list(stmt.order)}), {layout}, assert_trivial=True)"
        case "join":
            return f"gl.convert_layout(gl.join({args[0]}, {args[1]}), {layout}, assert_trivial=True)"
        case "half":
            return f"gl.convert_layout(gl.split({args[0]})[{stmt.axis}], {layout}, assert_trivial=True)"
        case "reshape":
            return f"gl.convert_layout(gl.reshape({args[0]}, {list(tile.shape)}), {layout})"
        case "convert_layout":
            return f"gl.convert_layout({args[0]}, {layout})"
        case _ if op in _WIDE_FUNCTIONS:
            narrow = dtype in (f16, bf16)
            if op == "tanh":
                constants.helper("tanh_")
            tiles = [isinstance(a, ir.TileRef) for a in stmt.args]
            wide = [f"{a}.to(gl.{f32.gluon})" if narrow and t else a for a, t in zip(args, tiles, strict=True)]
            text = _WIDE_FUNCTIONS[op].format(*wide)
            return _cast(text, not narrow, dtype)
        case _:
            return f"{args[0]} {_OPERATORS[op]} {args[1]}"


def _signed_division(op: str, args: list[str], divisor: ir.Operand, dtype: DType, constants: Constants) -> str:
    """`//` or `%` of signed integers, rounded towards minus infinity."""
    if isinstance(divisor, ex.Int) and divisor.value > 0 and divisor.value & (divisor.value - 1) == 0:
        shift = divisor.value.bit_length() - 1
        return f"{args[0]} >> {shift}" if op == "floordiv" else f"{args[0]} & {divisor.value - 1}"
    constants.helper(f"{op}_")
    # A literal would arrive in the helper as an i32.
    typed = [f"gl.to_tensor({a}).to(gl.{dtype.gluon})" if a.strip("(-)").isdecimal() else a for a in args]
    return f"{op}_({', '.join(typed)})"


def _key(seed: int) -> str:
    """A compile-time seed as the 64 bits of a key."""
    return f"gl.to_tensor({seed}).to(gl.int64)"


def _ordered(stmt: ir.Compute, operand: str, source: TileType, layout: str, constants: Constants) -> str:
    """The elements along an axis in order, or where they come from."""
    assert stmt.axis is not None
    constants.helper("ordered_")
    place = _places(stmt.axis, source, constants)
    extent, dtype = source.shape[stmt.axis], source.dtype
    rows, rest = math.prod(source.shape[: stmt.axis]), math.prod(source.shape[stmt.axis + 1 :])
    key, back = operand, "{}"
    if dtype.is_float:
        constants.helper("key_")
        # Zeros of both signs are equal, so for their places they become one.
        number = f"{operand} + 0.0" if stmt.op == "argsort" else operand
        key, back = f"key_({number}, gl.int{dtype.bits})", f"value_({{}}, gl.{dtype.gluon})"
    network = f"ordered_({key}, {place}, {rows}, {extent.bit_length() - 1}, {rest}, {stmt.reverse}, {layout})"
    return f"{network}[1]" if stmt.op == "argsort" else back.format(f"{network}[0]")


def _position(stmt: ir.Compute, operand: str, source: TileType, constants: Constants) -> str:
    """The index of an extreme along an axis: a reduction of pairs of element and index."""
    assert stmt.axis is not None and source.layout is not None
    constants.helper(f"{stmt.op}_")
    index = _places(stmt.axis, source, constants)
    keep = ", keep_dims=True" if stmt.keep else ""
    return f"gl.reduce(({operand}, {index}), {stmt.axis}, {stmt.op}_{keep})[1]"


def _places(axis: int, source: TileType, constants: Constants) -> str:
    """The index of each element along an axis."""
    assert source.layout is not None
    rank, whole = len(source.shape), constants.layout(source.layout)
    index = f"gl.arange(0, {source.shape[axis]}, layout={constants.layout(along(source.layout, axis, rank))})"
    if rank == 1:
        return index
    index = f"{index}[{', '.join(':' if d == axis else 'None' for d in range(rank))}]"
    return f"gl.full({_shape(source.shape)}, 0, gl.int32, {whole}) + {index}"


def along(layout: DistributedLayout, axis: int, rank: int) -> DistributedLayout:
    """The layout of a vector along one axis of a tile."""
    for other in reversed([d for d in range(rank) if d != axis]):
        layout = Slice(other, layout)
    return layout


def _cast(text: str, same: bool, dtype: DType) -> str:
    return text if same else f"({text}).to(gl.{dtype.gluon})"


def _axis(stmt: ir.Compute) -> str:
    return f"axis={stmt.axis}" + (", keep_dims=True" if stmt.keep else "")


def _operand(
    arg: ir.Operand, types: dict[str, TileType], names: Names, scalars: Scalars, rank: int | None, element: DType
) -> str:
    match arg:
        case ir.TileRef(name):
            missing = 0 if rank is None or not types[name].shape else rank - len(types[name].shape)
            text = names(name)
            for _ in range(missing):
                text = f"gl.expand_dims({text}, 0)"
            return text
        case float() | int():
            return number(float(arg))
        case ex.Int():
            return scalars.text(arg, 20)
        case _ if element.kind in ("int", "uint") and element.name != "i32":
            return f"gl.to_tensor({scalars.text(arg)}).to(gl.{element.gluon})"
        case _:
            return scalars.text(arg, 20)


def number(value: float) -> str:
    """A floating-point literal."""
    if math.isnan(value):
        return 'float("nan")'
    if math.isinf(value):
        return 'float("inf")' if value > 0 else 'float("-inf")'
    return repr(value) if value >= 0 and not str(value).startswith("-") else f"({value!r})"


def _shape(shape: tuple[int, ...]) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"


@dataclass(frozen=True)
class Access:
    """Where a tile of a tensor lies: its first element, offsets from there, and the mask of the elements inside.

    `narrow`: the offsets in 32 bits, for buffer instructions; the launch checks that this is enough.
    """

    base: str
    offsets: str
    narrow: str
    mask: str

    @property
    def pointers(self) -> str:
        """A pointer for each element."""
        return f"{self.base} + {self.offsets}"


@dataclass
class Hoisted:
    """Values of a function that never change, computed once at its top: index vectors and 64-bit strides."""

    names: Names
    values: dict[str, str] = field(default_factory=dict[str, str])

    def name(self, wish: str, value: str) -> str:
        """The name that holds `value`."""
        if value not in self.values:
            self.values[value] = self.names.fresh(wish)
        return self.values[value]


def _wide(param: ir.Param, stride: ex.Expr, scalars: Scalars, hoisted: Hoisted) -> str:
    """The name of a stride in 64 bits."""
    wish = f"{stride.name}_wide" if isinstance(stride, ex.Size) else f"{param.name}_stride"
    return hoisted.name(wish, scalars.wide(stride))


def access(
    view: ir.View,
    param: ir.Param,
    layout: DistributedLayout,
    names: Names,
    scalars: Scalars,
    constants: Constants,
    hoisted: Hoisted,
) -> Access:
    """Pointers to the elements of `view`, held in `layout`.

    Offsets between elements of different rows, and those of the tile's origin, are computed in 64 bits: a 32-bit row
    number times a row stride can exceed 2**31.
    """
    rank, lead = len(view.tile_shape), view.lead
    base, offsets, narrow, masks = [names(param.name)], list[str](), list[str](), list[str]()
    for dim, (stride, origin) in enumerate(zip(param.type.strides, view.origin, strict=True)):
        match stride:
            case ex.Int(1):
                scale = ""
            case ex.Int(value) if value * view.shape[dim] < 2**31:
                scale = f" * {value}"  # within the tile
            case _:
                scale = f" * {_wide(param, stride, scalars, hoisted)}"
        if isinstance(origin, ex.Int):
            distance = origin.value * (stride.value if isinstance(stride, ex.Int) else 1)
            if isinstance(stride, ex.Int) and 0 < distance < 2**31:
                base.append(str(distance))
            elif distance:
                base.append(f"{scalars.text(origin, 10)} * {_wide(param, stride, scalars, hoisted)}")
        elif scale:
            base.append(f"{scalars.text(origin, 10)} * {_wide(param, stride, scalars, hoisted)}")
        else:
            base.append(scalars.text(origin, 9))
        if dim < lead:
            # An index that does not exist is the kernel's fault, but must not touch foreign memory either.
            masks.append(f"{scalars.text(origin, 8)} < {scalars.text(param.type.shape[dim], 8)}")
            if not scalars.is_nonnegative(origin):
                masks.append(f"{scalars.text(origin, 8)} >= 0")
            continue
        axis, own = dim - lead, layout
        for other in reversed([d for d in range(rank) if d != axis]):
            own = Slice(other, own)
        arange = f"gl.arange(0, {view.shape[dim]}, layout={constants.layout(own)})"
        index = hoisted.name(f"{param.name}_{'ijklm'[axis]}", arange)
        if rank > 1:
            index = f"{index}[{', '.join(':' if d == axis else 'None' for d in range(rank))}]"
        offsets.append(f"{index}{scale}")
        narrow.append(f"{index} * {scalars.text(stride, 10)}" if scale else index)
        start = "" if origin == ex.Int(0) else f"{scalars.text(origin, 8)} + "
        masks.append(f"{start}{index} < {scalars.text(param.type.shape[dim], 8)}")
        if not scalars.is_nonnegative(origin):
            masks.append(f"{start}{index} >= 0")
    if len(masks) > 1:
        masks = [f"({mask})" for mask in masks]
    inner = offsets[0] if rank == 1 else f"({' + '.join(offsets)})"
    return Access(" + ".join(base), inner, " + ".join(narrow), " & ".join(masks))
