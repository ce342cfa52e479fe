"""What a name or an expression of a kernel can stand for while the front end elaborates it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tree_sitter import Node

from tilewright.dtypes import DType
from tilewright.ir import nodes as ir
from tilewright.ir.expr import Bin, Int, Item, Not, Size, Var
from tilewright.layout import DistributedLayout, SharedLayout
from tilewright.source import Span


@dataclass(frozen=True, slots=True)
class Builtin:
    """An operation of the language (`tw.load`) or one of the Python functions it knows (`range`, `min`)."""

    name: str


@dataclass(frozen=True, slots=True)
class TilewrightModule:
    """The module `tilewright` itself, under whatever name the file imports it."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor argument."""

    param: ir.Param


@dataclass(frozen=True, slots=True)
class TensorSlice:
    """A tensor argument with its leading dimensions fixed: `A[b]`, `A[b, h]`."""

    param: ir.Param
    prefix: tuple[ir.Expr, ...]


@dataclass(frozen=True, slots=True)
class Points:
    """`A.at((rows, cols))`: elements of a tensor, one for each element of the index tiles; `shape` is theirs."""

    tensor: str
    index: tuple[ir.Operand, ...]
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SharedBuffer:
    """A shared-memory allocation."""

    name: str


@dataclass(frozen=True, slots=True)
class TensorBuffer:
    """A tensor-memory allocation."""

    name: str


@dataclass(frozen=True, slots=True)
class Barriers:
    """A barrier allocation."""

    name: str


@dataclass(frozen=True, slots=True)
class Method:
    """`value.name`, to be called."""

    value: Value
    name: str


ROW_MAJOR = ir.RowMajor()


@dataclass(frozen=True, slots=True)
class RangeValue:
    """What stands after `in` of a `for`: `kind` names the loop, `args` what it needs."""

    kind: str
    lo: ir.Expr
    hi: ir.Expr
    step: int
    stages: int = 0
    roles: str = "single"
    counts: tuple[ir.Expr, ...] = ()
    order: ir.Order = ROW_MAJOR
    persistent: bool = False
    first: str = "load"
    consumers: int = 1
    unroll: int = 1
    turns: bool = False


@dataclass(frozen=True, slots=True)
class RoleValue:
    """`tw.role(…)` after `with`."""

    name: str
    warps: int
    registers: int | None


@dataclass(frozen=True, slots=True)
class AnnotationValue:
    """`Global[…]`, `Scalar[…]` or `Const` in a parameter list."""

    kind: str
    dtype: DType | None = None
    shape: tuple[ir.Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class Choices:
    """`tw.choice(64, 128)`: values of a compile-time argument."""

    values: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ElementTypes:
    """`T = tw.element_types(f16, bf16)`: an element type that each kernel call decides; the first is the default."""

    name: str
    choices: tuple[DType, ...]


@dataclass(frozen=True)
class Helper:
    """A function marked `@tw.func`, inlined where it is called. `base` is where its text begins in the file.

    `only_tags`: marked `@tw.tag_function`.
    """

    name: str
    node: Node
    text: bytes
    scope: Mapping[str, Value]
    only_tags: bool = False


@dataclass(frozen=True, slots=True)
class Lambda:
    """A function of elements, as `tw.tag` and `tw.expect` take it; its body is read where it is used."""

    node: Node
    parameters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Tagged:
    """The result of `tw.tag`: a tile that gets its tags when it gets a name."""

    tile: ir.TileRef
    stmt: ir.Tag


@dataclass(frozen=True, slots=True)
class Unusable:
    """A name that exists but has no usable value; `why` completes "'x' …". Silent when another problem explains it."""

    why: str
    silent: bool = False
    span: Span | None = None
    code: str = "TW008"


@dataclass(frozen=True, slots=True)
class Condition:
    """The argument of `tw.assume(lambda e: …)`: a condition over elements of tensors at bound indices."""

    parameters: tuple[str, ...]
    body: ir.Expr


Value = (
    Int | Size | Var | Bin | Not | Item | float | str | None
    | tuple["Value", ...]
    | DType | DistributedLayout | SharedLayout
    | Builtin | TilewrightModule | Tensor | TensorSlice | ir.View | ir.TileRef | SharedBuffer | TensorBuffer
    | ir.BufRef | Barriers | ir.BarRef | Method | RangeValue | RoleValue | AnnotationValue | Choices | Helper | Lambda
    | ElementTypes | Tagged | ir.Grouped | ir.RowMajor | ir.ColumnMajor | ir.Xcd | Condition | Points
    | Unusable
)  # fmt: skip


def describe(value: Value) -> str:
    """A few words for messages."""
    match value:
        case Int(v):
            return f"the integer {v}"
        case Size(name):
            return f"the size {name}"
        case Var() | Bin() | Not() | Item():
            return "a scalar known only at run time"
        case float():
            return f"the number {value}"
        case str():
            return f"the string '{value}'"
        case None:
            return "None"
        case tuple():
            return f"a tuple of {len(value)}"
        case DType():
            return f"the element type {value}"
        case Builtin(name):
            return f"the operation '{name}'"
        case TilewrightModule():
            return "the module tilewright"
        case Tensor(param):
            return f"the tensor '{param.name}'"
        case TensorSlice(param, prefix):
            if len(prefix) == len(param.type.shape):
                return f"an element of '{param.name}' in memory"
            return f"'{param.name}' at {len(prefix)} leading ind{'ices' if len(prefix) > 1 else 'ex'}"
        case ir.View(tensor=tensor):
            return f"a tile view of '{tensor}'"
        case ir.TileRef():
            return "a register tile"
        case SharedBuffer(name):
            return f"the shared buffer '{name}'"
        case TensorBuffer(name):
            return f"the tensor memory '{name}'"
        case ir.BufRef(buffer=buffer):
            return f"a stage of '{buffer}'"
        case Barriers(name):
            return f"the barriers '{name}'"
        case ir.BarRef(barrier=barrier):
            return f"a slot of '{barrier}'"
        case Method(name=name):
            return f"the method '{name}'"
        case RangeValue(kind=kind):
            return f"a loop ({kind})"
        case RoleValue():
            return "a role"
        case AnnotationValue(kind=kind):
            return kind
        case Choices():
            return "a choice"
        case ElementTypes(choices=choices):
            return f"one of the element types {', '.join(map(str, choices))}"
        case Helper(name=name):
            return f"the helper '{name}'"
        case Points(tensor=tensor):
            return f"a view of single elements of '{tensor}'"
        case Lambda():
            return "a function of elements"
        case Tagged():
            return "the result of tw.tag, which needs a name first"
        case ir.Grouped() | ir.RowMajor() | ir.ColumnMajor() | ir.Xcd():
            return "a grid order"
        case Condition():
            return "a condition on data"
        case Unusable():
            return "a name without a value"
        case _:
            return f"the layout {value}"
