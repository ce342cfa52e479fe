"""The kinds of values in a kernel, for annotations and editors; kernels do not construct them."""

from __future__ import annotations

from types import EllipsisType
from typing import TYPE_CHECKING, Any, NoReturn, overload

from tilewright.dtypes import DType


class KernelBodyError(TypeError):
    """An operation of the language was called as ordinary Python."""


def in_kernel(name: str) -> NoReturn:
    """Raise KernelBodyError for an operation called as ordinary Python."""
    raise KernelBodyError(
        f"tw.{name} belongs into the body of a @tw.kernel function, which Tilewright reads and does not execute; "
        "launch the kernel itself, or call its .interpret(…)"
    )


class Scalar:
    """A scalar: a size, a program number, a loop variable, or arithmetic over them (32-bit integers in the kernel).

    As an annotation, a number that each launch gives: `n: Scalar[i32]` is an integer, possibly negative unless the
    kernel assumes otherwise; `alpha: Scalar[f32]` is a tile of shape () that broadcasts. `Annotated[Scalar, f32]` means
    the same.

    Arithmetic in ordinary Python, as in the annotation `Global[f32, M * 2]`, gives a scalar without a value: the front
    end reads the expression from the source.
    """

    def __class_getitem__(cls, parameters: Any) -> type[Scalar]:
        """The annotation; the front end reads it from the source."""
        return cls

    def __add__(self, other: Scalar | float) -> Scalar:
        """Sum."""
        return Scalar()

    __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __floordiv__ = __rfloordiv__ = __add__
    __truediv__ = __rtruediv__ = __pow__ = __rpow__ = __add__
    __mod__ = __rmod__ = __xor__ = __rxor__ = __and__ = __lshift__ = __rshift__ = __add__

    def __neg__(self) -> Scalar:
        """Negation."""
        return Scalar()

    def __lt__(self, other: Scalar | float) -> bool:
        """Comparison."""
        in_kernel("arithmetic")

    def to(self, dtype: DType) -> Tile:
        """A floating-point argument in another element type."""
        in_kernel("to")

    __le__ = __gt__ = __ge__ = __lt__

    if TYPE_CHECKING:

        @overload
        def __eq__(self, other: Tile) -> Tile: ...  # pyright: ignore[reportOverlappingOverload]
        @overload
        def __eq__(self, other: object) -> bool: ...
        def __eq__(self, other: object) -> Any:
            """A truth value, or a tile of them when the other side is a tile."""

        __ne__ = __eq__

        def __index__(self) -> int:
            """Scalars stand where Python expects an integer, for example in `range`."""
            ...


class Size(Scalar):
    """A problem size, declared with `tw.sizes` and bound by the extents of the tensor arguments at launch."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


class Element:
    """One element of a tile inside a function of elements: `x[i, j].NAME` is the tag NAME that it carries."""

    def __getattr__(self, tag: str) -> Scalar:
        """A tag: a size of the tensor that the element comes from, or a name that `tw.tag` gave."""
        in_kernel("tag")


class Tile:
    """A tile in registers, spread over the threads of its role.

    `shape` is in elements, powers of two or sums of few.
    """

    shape: tuple[int, ...]
    dtype: DType

    def to(self, dtype: DType) -> Tile:
        """The tile with elements converted to `dtype`, rounded to nearest even."""
        in_kernel("to")

    @property
    def T(self) -> Tile:
        """The transposed tile (two dimensions); of a tile that a pipeline loads, a view of its shared memory."""
        in_kernel("T")

    @overload
    def __getitem__(self, index: slice | tuple[slice | EllipsisType | None, *tuple[Any, ...]] | None) -> Tile: ...
    @overload
    def __getitem__(self, index: Scalar | int | tuple[Scalar | int, *tuple[Scalar | int, ...]]) -> Element: ...
    def __getitem__(self, index: Any) -> Any:
        """`x[:, None]` adds an axis of extent 1; `x[i, j]` is an element, in `tw.tag` and `tw.expect`."""
        in_kernel("index")

    def at(self, warp: Any, lane: Any, register: Any) -> Element:
        """The element that a thread holds in a register, in `tw.expect`: warp of the role, lane of the warp."""
        in_kernel("at")

    def __add__(self, other: Tile | Scalar | float) -> Tile:
        """Element by element, with NumPy's broadcasting; both sides have the same element type."""
        in_kernel("arithmetic")

    __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __pow__ = __rpow__ = __add__
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = __add__
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __lt__ = __le__ = __gt__ = __ge__ = __add__

    def __neg__(self) -> Tile:
        """Each element negated."""
        in_kernel("arithmetic")

    __invert__ = __neg__

    if TYPE_CHECKING:

        def __eq__(self, other: object) -> Tile:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
            """Comparison, element by element: an `i1` tile."""
            ...

        __ne__ = __eq__  # pyright: ignore[reportAssignmentType]


class View:
    """A rectangular tile of a tensor in global memory; it may reach over the edge."""


class Stage:
    """One stage of a shared-memory ring, or a single shared tile."""

    @property
    def T(self) -> Stage:
        """The stage with its two axes exchanged: a view for `tw.load_shared` and matrix instructions, nothing moves."""
        in_kernel("T")

    @overload
    def __getitem__(self, index: Scalar | int) -> Any: ...
    @overload
    def __getitem__(self, index: tuple[Scalar | int, ...]) -> Element: ...
    def __getitem__(self, index: Any) -> Any:
        """`x[i, j]` is an element, in `tw.tag` and `tw.expect`."""
        in_kernel("index")


class Shared(Stage):
    """Shared memory: a ring of tiles, indexed by stage, or a single tile."""

    @overload
    def __getitem__(self, index: Scalar | int) -> Stage: ...
    @overload
    def __getitem__(self, index: tuple[Scalar | int, ...]) -> Element: ...
    def __getitem__(self, index: Any) -> Any:
        """The tile of a stage; of a single tile an element, in `tw.tag` and `tw.expect`."""
        in_kernel("index")


class Accumulator:
    """One accumulator in tensor memory."""


class TensorMemory(Accumulator):
    """Tensor memory: a ring of accumulators, indexed by stage, or a single one."""

    def __getitem__(self, stage: Scalar | int) -> Accumulator:
        """The accumulator of a stage."""
        in_kernel("index")


class Slot:
    """One mbarrier."""


class Barrier(Slot):
    """An array of mbarriers."""

    def __getitem__(self, slot: Scalar | int) -> Slot:
        """One of the barriers."""
        in_kernel("index")


class Order:
    """The order in which programs take the tiles of a grid."""


class SharedLayoutSpec:
    """A layout of shared memory."""


class RegisterLayoutSpec:
    """A layout of a tile in registers."""


class Global:
    """A tensor argument in global memory: `A: Global[f16, M, K]`, row-major.

    Extents are sizes, integers, or arithmetic over them. `Annotated[Global, f16, M, K]` means the same, for type
    checkers that reject values in `Global[…]`.
    """

    shape: tuple[Scalar, ...]
    dtype: DType

    def __class_getitem__(cls, parameters: Any) -> type[Global]:
        """The annotation; the front end reads it from the source."""
        return cls

    def __getitem__(self, index: Scalar | int | tuple[Scalar | int, ...]) -> TensorElement:
        """`A[b]`, `A[b, h]`: the tensor with its leading dimensions fixed, each index inside its dimension.

        With an index for every dimension it is one element, which `tw.load` reads and contracts speak of.
        """
        in_kernel("index")

    def at(self, index: Any) -> View:
        """Single elements: one for each element of the i32 tiles in `index`, one entry a dimension, tile or scalar.

        The tiles broadcast to the shape of the view: `A.at((rows[:, None], columns[None, :]))`.
        """
        in_kernel("at")

    def tile(self, origin: Any, shape: Any) -> View:
        """The tile of `shape` elements whose first element is at `origin` (one entry a dimension, in elements)."""
        in_kernel("tile")


class TensorElement(Global, Scalar):
    """A tensor with leading dimensions fixed; with all of them fixed, an element: a scalar in contracts."""


if TYPE_CHECKING:
    Const = int
else:

    class Const:
        """A compile-time integer argument: `BM: Const = 128`, or `= tw.choice(64, 128)` for tuning."""
