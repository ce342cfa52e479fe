"""Tile computations and accesses to global memory as Gluon expressions."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from tilewright.dtypes import DType, bf16, f16, f32
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
    "erf": "gl.erf({0})", "floor": "gl.floor({0})", "sigmoid": "1.0 / (1.0 + gl.exp(-{0}))", "tanh": "tanh_({0})",
}  # fmt: skip
_OPERATORS = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==",
    "ne": "!=", "and": "&", "or": "|",
}  # fmt: skip

HELPERS = {
    "tanh_": """\
@gluon.jit
def tanh_(x):
    # exp(-2|x|) never overflows; near 0, where 1 - t cancels, the Taylor series is exact to rounding.
    t = gl.exp(-2.0 * gl.abs(x))
    far = (1.0 - t) / (1.0 + t)
    square = x * x
    near = x * (1.0 + square * (-1.0 / 3.0 + square * (2.0 / 15.0)))
    return gl.where(gl.abs(x) < 0.04, near, gl.where(x < 0.0, -far, far))
""",
    "max_": """\
@gluon.jit
def max_(a, b):
    return gl.maximum(a, b, propagate_nan=NAN)
""",
    "min_": """\
@gluon.jit
def min_(a, b):
    return gl.minimum(a, b, propagate_nan=NAN)
""",
}


@dataclass
class Constants:
    """Layouts of the module, each bound to a name at its top, and the helper functions it needs."""

    names: Names
    layouts: dict[Layout, str] = field(default_factory=dict[Layout, str])
    helpers: set[str] = field(default_factory=set[str])
    nan: bool = False

    def layout(self, layout: Layout) -> str:
        """The name of a layout; slices are written in place from their parent's name."""
        if isinstance(layout, Slice):
            return f"gl.SliceLayout({layout.dim}, {self.layout(layout.parent)})"
        if layout not in self.layouts:
            self.layouts[layout] = self.names.fresh(
                f"{_family(layout)}_{sum(_family(o) == _family(layout) for o in self.layouts)}"
            )
        case Mfma():
            return "MFMA"
        return self.layouts[layout]

    def helper(self, name: str) -> None:
        """Note that a helper function is called."""
        self.helpers.add(name)
        self.nan = self.nan or name in ("max_", "min_")


def _family(layout: Layout) -> str:
    match layout:
        case DotOperand(index=index):
            return f"OPERAND_{'AB'[index]}"
        case MmaV2():
            return "MMA"
        case Wgmma():
            return "WGMMA"
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
    args = [
        _operand(a, types, names, scalars, rank if op in ir.ELEMENTWISE or op == "broadcast" else None)
        for a in stmt.args
    ]
    sources = [types[a.name] for a in stmt.args if isinstance(a, ir.TileRef)]
    layout = constants.layout(tile.layout) if tile.layout is not None else ""
    match op:
        case "full":
            return f"gl.full({_shape(tile.shape)}, {args[0]}, gl.{dtype.gluon}, {layout})"
        case "arange":
            return _cast(f"gl.arange(0, {tile.shape[0]}, layout={layout})", dtype.name == "i32", dtype)
        case "copy":
            return args[0]
        case "cast":
            return f"{args[0]}.to(gl.{dtype.gluon})"
        case "neg":
            return f"-{args[0]}"
        case "abs":
            return f"gl.abs({args[0]})"
        case "not":
            return f"{args[0]} == 0" if sources and sources[0].dtype.name != "i1" else f"~{args[0]}"
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
            if not dtype.is_float:
                return f"gl.{op}({args[0]}, {_axis(stmt)})"
            constants.helper(f"{op}_")
            keep = ", keep_dims=True" if stmt.keep else ""
            return f"gl.reduce({args[0]}, {stmt.axis}, {op}_{keep})"
        case "expand_dims":
            return f"gl.expand_dims({args[0]}, {stmt.axis})"
        case "broadcast":
            return f"gl.where(gl.full({_shape(tile.shape)}, True, gl.int1, {layout}), {args[0]}, {args[0]})"
        case "transpose":
            return f"gl.convert_layout(gl.permute({args[0]}, [1, 0]), {layout}, assert_trivial=True)"
        case "convert_layout":
            return f"gl.convert_layout({args[0]}, {layout})"
        case _ if op in _WIDE_FUNCTIONS:
            narrow = dtype in (f16, bf16)
            if op == "tanh":
                constants.helper("tanh_")
            text = _WIDE_FUNCTIONS[op].format(f"{args[0]}.to(gl.{f32.gluon})" if narrow else args[0])
            return _cast(text, not narrow, dtype)
        case _:
            return f"{args[0]} {_OPERATORS[op]} {args[1]}"


def _cast(text: str, same: bool, dtype: DType) -> str:
    return text if same else f"({text}).to(gl.{dtype.gluon})"


def _axis(stmt: ir.Compute) -> str:
    return f"axis={stmt.axis}" + (", keep_dims=True" if stmt.keep else "")


def _operand(arg: ir.Operand, types: dict[str, TileType], names: Names, scalars: Scalars, rank: int | None) -> str:
    match arg:
        case ir.TileRef(name):
            missing = 0 if rank is None or not types[name].shape else rank - len(types[name].shape)
            text = names(name)
            for _ in range(missing):
                text = f"gl.expand_dims({text}, 0)"
            return text
        case float() | int():
            return number(float(arg))
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
    """Where a tile of a tensor lies: its pointers, and the mask of the elements inside the tensor."""

    pointers: str
    mask: str


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
    base, offsets, masks = [names(param.name)], list[str](), list[str]()
    for dim, (stride, origin) in enumerate(zip(param.type.strides, view.origin, strict=True)):
        match stride:
            case ex.Int(1):
                scale = ""
            case ex.Int(value):
                scale = f" * {value}"
            case _:
                wish = f"{stride.name}_wide" if isinstance(stride, ex.Size) else f"{param.name}_stride"
                scale = f" * {hoisted.name(wish, scalars.wide(stride))}"
        if origin != ex.Int(0):
            base.append(f"{scalars.text(origin, 9 + bool(scale))}{scale}")
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
        start = "" if origin == ex.Int(0) else f"{scalars.text(origin, 8)} + "
        masks.append(f"{start}{index} < {scalars.text(param.type.shape[dim], 8)}")
        if not scalars.is_nonnegative(origin):
            masks.append(f"{start}{index} >= 0")
    if len(masks) > 1:
        masks = [f"({mask})" for mask in masks]
    inner = offsets[0] if rank == 1 else f"({' + '.join(offsets)})"
    return Access(f"{' + '.join(base)} + {inner}", " & ".join(masks))
