"""The names that kernels use, with their types and documentation.

Kernel bodies are read by the front end and never executed as Python, so the functions here only tell editors and type
checkers what exists; calling one from ordinary Python raises `KernelBodyError`. The exceptions are declarations that
stand at module level: `sizes`, `choice`, `kernel`, `func`, `Global`, `Const`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal, NoReturn, overload

from tilewright.dtypes import DType

inf: float = float("inf")
"""Positive infinity; `-tw.inf` is the neutral element of a maximum."""
pi: float = 3.141592653589793


class KernelBodyError(TypeError):
    """An operation of the language was called as ordinary Python."""


def _in_kernel(name: str) -> NoReturn:
    raise KernelBodyError(
        f"tw.{name} belongs into the body of a @tw.kernel function, which Tilewright reads and does not execute; "
        "launch the kernel itself, or call its .interpret(…)"
    )


class Scalar:
    """An integer scalar: a size, a program number, a loop variable, or arithmetic over them (32 bits in the kernel)."""

    def __add__(self, other: Scalar | int) -> Scalar:
        """Sum."""
        _in_kernel("arithmetic")

    __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __floordiv__ = __rfloordiv__ = __add__
    __mod__ = __rmod__ = __xor__ = __rxor__ = __and__ = __lshift__ = __rshift__ = __add__

    def __lt__(self, other: Scalar | int) -> bool:
        """Comparison."""
        _in_kernel("arithmetic")

    __le__ = __gt__ = __ge__ = __lt__

    if TYPE_CHECKING:

        def __index__(self) -> int:
            """Scalars stand where Python expects an integer, for example in `range`."""
            ...


class Size(Scalar):
    """A problem size, declared with `tw.sizes` and bound by the extents of the tensor arguments at launch."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


class Tile:
    """A tile in registers, spread over the threads of its role; `shape` in elements, every extent a power of two."""

    shape: tuple[int, ...]
    dtype: DType

    def to(self, dtype: DType) -> Tile:
        """The tile with elements converted to `dtype`, rounded to nearest even."""
        _in_kernel("to")

    @property
    def T(self) -> Tile:
        """The transposed tile (two dimensions)."""
        _in_kernel("T")

    def __getitem__(self, index: Any) -> Tile:
        """`x[:, None]` adds an axis of extent 1."""
        _in_kernel("index")

    def __add__(self, other: Tile | Scalar | float) -> Tile:
        """Element by element, with NumPy's broadcasting; both sides have the same element type."""
        _in_kernel("arithmetic")

    __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __add__
    __and__ = __or__ = __lt__ = __le__ = __gt__ = __ge__ = __add__

    def __neg__(self) -> Tile:
        """Each element negated."""
        _in_kernel("arithmetic")

    __invert__ = __neg__


class View:
    """A rectangular tile of a tensor in global memory; it may reach over the edge."""


class Stage:
    """One stage of a shared-memory ring, or a single shared tile."""


class Shared(Stage):
    """Shared memory: a ring of tiles, indexed by stage, or a single tile."""

    def __getitem__(self, stage: Scalar | int) -> Stage:
        """The tile of a stage."""
        _in_kernel("index")


class Slot:
    """One mbarrier."""


class Barrier(Slot):
    """An array of mbarriers."""

    def __getitem__(self, slot: Scalar | int) -> Slot:
        """One of the barriers."""
        _in_kernel("index")


class Order:
    """The order in which programs take the tiles of a grid."""


class SharedLayoutSpec:
    """A layout of shared memory."""


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

    def tile(self, origin: Any, shape: Any) -> View:
        """The tile of `shape` elements whose first element is at `origin` (one entry a dimension, in elements)."""
        _in_kernel("tile")


if TYPE_CHECKING:
    Const = int
else:

    class Const:
        """A compile-time integer argument: `BM: Const = 128`, or `= tw.choice(64, 128)` for tuning."""


# ------------------------------------------------------------------------------------------------ declarations


@overload
def sizes(name: str, /) -> Any: ...
@overload
def sizes(name: str, other: str, /, *more: str) -> tuple[Any, ...]: ...
def sizes(*names: str) -> Any:
    """Declare problem sizes: `M, N, K = tw.sizes("M", "N", "K")`. Each is at least 1."""
    if not names or not all(n.isidentifier() for n in names):
        raise ValueError('sizes are declared by name: M, N = tw.sizes("M", "N")')
    declared = tuple(Size(n) for n in names)
    return declared[0] if len(declared) == 1 else declared


def choice(*values: int) -> int:
    """The values that tuning may give to a compile-time argument; the first is the default."""
    if not values:
        raise ValueError("tw.choice needs at least one value")
    return values[0]


def assume(condition: Any) -> None:
    """State a fact about sizes, such as `K % 8 == 0`: the launch checks it, the verifier relies on it."""
    _in_kernel("assume")


def func(function: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a helper that kernels may call. It is inlined, and it is not executed as Python either."""
    return function


# ------------------------------------------------------------------------------------------------ grid and loops


def tiles(*counts: Any, order: Order | None = None, persistent: bool = False) -> Iterator[Any]:
    """The grid: one iteration for each tile of a grid of `counts` tiles (1 to 3 axes), spread over programs.

    `persistent=True` launches as many programs as fit the device, each of which takes several tiles.
    """
    _in_kernel("tiles")


def grouped(rows: int) -> Order:
    """Grid order: groups of `rows` tile rows, each walked column by column, so that programs share operands in L2."""
    _in_kernel("grouped")


def row_major() -> Order:
    """Grid order: the last axis runs fastest (the default)."""
    _in_kernel("row_major")


def programs(count: Any, *, persistent: bool = False) -> Iterator[Any]:
    """The grid by number: `for t in tw.programs(count)` runs the body for every t below `count`, over all programs."""
    _in_kernel("programs")


def pipeline(
    lo: Any, hi: Any, step: int, *, stages: int = 3, roles: Literal["split", "single"] = "single"
) -> Iterator[Any]:
    """`range(lo, hi, step)` whose loads run ahead through `stages` stages of shared memory.

    `roles="split"`: one warp loads by TMA, the kernel's warps multiply with wgmma (sm_90a). `roles="single"`: every
    warp copies by cp.async and multiplies with mma (sm_80 and up).
    """
    _in_kernel("pipeline")


def static_range(start: int, stop: int | None = None, step: int = 1) -> Iterator[int]:
    """`range` unrolled at compile time; its variable is a compile-time integer."""
    _in_kernel("static_range")


def role(name: str, *, warps: int, registers: int | None = None) -> AbstractContextManager[None]:
    """`with tw.role("load", warps=1):` — consecutive roles run at the same time, each on warps of its own.

    `registers` is the budget of a thread (a multiple of 8 from 24 to 256).
    """
    _in_kernel("role")


# ------------------------------------------------------------------------------------------------ tiles


def zeros(dtype: DType, shape: Any) -> Tile:
    """A tile of zeros."""
    _in_kernel("zeros")


def full(dtype: DType, shape: Any, value: Any) -> Tile:
    """A tile whose elements all are `value`."""
    _in_kernel("full")


def arange(n: int) -> Tile:
    """The i32 tile 0, 1, …, n - 1."""
    _in_kernel("arange")


def load(view: View, *, other: float | None = None, via: Literal["auto", "direct", "cp_async", "tma"] = "auto") -> Tile:
    """The elements of `view`. Elements outside the tensor read as `other`; without it the whole view must be inside.

    `via="tma"` and `via="cp_async"` (in a pipeline) fill with zeros what is outside.
    """
    _in_kernel("load")


def store(view: View, tile: Tile, *, via: Literal["auto", "direct", "tma"] = "auto") -> None:
    """Write the elements of `tile` that lie inside the tensor; the rest of the view is dropped."""
    _in_kernel("store")


def mma(a: Tile, b: Tile, acc: Tile) -> Tile:
    """`a @ b + acc`: a is (M, K), b (K, N), both f16 or bf16; acc is (M, N) in f32."""
    _in_kernel("mma")


def where(condition: Tile, a: Any, b: Any) -> Tile:
    """`a` where the condition (a comparison) holds, else `b`."""
    _in_kernel("where")


def sum(x: Tile, axis: int | None = None, *, keep_dims: bool = False) -> Tile:
    """Sum over one axis."""
    _in_kernel("sum")


def max(x: Tile, axis: int | None = None, *, keep_dims: bool = False) -> Tile:
    """Maximum over one axis."""
    _in_kernel("max")


def min(x: Tile, axis: int | None = None, *, keep_dims: bool = False) -> Tile:
    """Minimum over one axis."""
    _in_kernel("min")


def maximum(a: Any, b: Any) -> Tile:
    """The larger of two elements, element by element."""
    _in_kernel("maximum")


def minimum(a: Any, b: Any) -> Tile:
    """The smaller of two elements, element by element."""
    _in_kernel("minimum")


def exp(x: Tile) -> Tile:
    """E to the power of each element."""
    _in_kernel("exp")


def exp2(x: Tile) -> Tile:
    """2 to the power of each element: the form the hardware computes."""
    _in_kernel("exp2")


def log(x: Tile) -> Tile:
    """Natural logarithm."""
    _in_kernel("log")


def log2(x: Tile) -> Tile:
    """Logarithm to base 2."""
    _in_kernel("log2")


def sqrt(x: Tile) -> Tile:
    """Square root."""
    _in_kernel("sqrt")


def rsqrt(x: Tile) -> Tile:
    """1 / square root."""
    _in_kernel("rsqrt")


def sin(x: Tile) -> Tile:
    """Sine, in radians."""
    _in_kernel("sin")


def cos(x: Tile) -> Tile:
    """Cosine, in radians."""
    _in_kernel("cos")


def tanh(x: Tile) -> Tile:
    """Hyperbolic tangent."""
    _in_kernel("tanh")


def erf(x: Tile) -> Tile:
    """Error function."""
    _in_kernel("erf")


def sigmoid(x: Tile) -> Tile:
    """1 / (1 + e^-x)."""
    _in_kernel("sigmoid")


def floor(x: Tile) -> Tile:
    """The largest integer not above each element."""
    _in_kernel("floor")


def abs(x: Tile) -> Tile:
    """Absolute value."""
    _in_kernel("abs")


def broadcast(x: Tile, shape: Any) -> Tile:
    """The tile stretched to `shape`."""
    _in_kernel("broadcast")


def expand_dims(x: Tile, axis: int) -> Tile:
    """The tile with a new axis of extent 1 at `axis`."""
    _in_kernel("expand_dims")


def transpose(x: Tile) -> Tile:
    """The tile with its two axes exchanged."""
    _in_kernel("transpose")


def cdiv(a: Any, b: Any) -> Any:
    """A / b rounded up: how many tiles of b cover a. Works in ordinary Python on integers too."""
    return -(-a // b)


# ------------------------------------------------------------------------------------------------ instructions


def shared(dtype: DType, shape: Any, *, layout: SharedLayoutSpec | None = None, ring: bool | None = None) -> Shared:
    """Shared memory. Three dimensions are a ring (stages, rows, columns); `ring=` decides for other ranks.

    The layout defaults to the widest TMA swizzle that fits a row.
    """
    _in_kernel("shared")


def swizzled(bytes: Literal[0, 32, 64, 128]) -> SharedLayoutSpec:
    """The layout of TMA and wgmma: 16-byte vectors of a row xor-ed with the row number, in rows of `bytes` bytes."""
    _in_kernel("swizzled")


def swizzled_shared(vec: int, per_phase: int, max_phase: int) -> SharedLayoutSpec:
    """The layout of cp.async and ldmatrix: vectors of `vec` elements xor-ed with (row // per_phase) % max_phase."""
    _in_kernel("swizzled_shared")


def barrier(slots: int = 1, *, arrivals: int = 1) -> Barrier:
    """`slots` mbarriers. A phase ends after `arrivals` arrivals and when all announced bytes have come."""
    _in_kernel("barrier")


def wait(bar: Slot, parity: Any) -> None:
    """Block until the phase of that parity (0 or 1; the first phase has parity 0) has ended."""
    _in_kernel("wait")


def arrive(bar: Slot) -> None:
    """One thread of the role arrives, after all threads of the role have come here."""
    _in_kernel("arrive")


def expect(bar: Slot, bytes: Any) -> None:
    """One thread arrives and announces that asynchronous copies will deliver `bytes` bytes in this phase."""
    _in_kernel("expect")


def tma_load(view: View, dst: Stage, bar: Slot) -> None:
    """Copy a tile into shared memory asynchronously and count its bytes on `bar`; zeros outside the tensor."""
    _in_kernel("tma_load")


def tma_store(view: View, src: Stage) -> None:
    """Copy a shared tile to global memory asynchronously, as one group; what is outside the tensor is dropped."""
    _in_kernel("tma_store")


def tma_store_wait(pending: int) -> None:
    """Block until at most `pending` bulk-store groups still read shared memory."""
    _in_kernel("tma_store_wait")


def cp_async(view: View, dst: Stage) -> None:
    """Copy a tile into shared memory by cp.async, each thread a part; zeros outside the tensor."""
    _in_kernel("cp_async")


def cp_commit() -> None:
    """Close the group of cp.async copies issued since the last commit."""
    _in_kernel("cp_commit")


def cp_wait(pending: int) -> None:
    """Block until at most `pending` groups of the own thread are in flight; `tw.sync()` shows them to the others."""
    _in_kernel("cp_wait")


def load_shared(src: Stage) -> Tile:
    """A shared tile into registers."""
    _in_kernel("load_shared")


def store_shared(dst: Stage, tile: Tile) -> None:
    """A register tile into shared memory; follow with `tw.fence_async()` before TMA or wgmma reads it."""
    _in_kernel("store_shared")


def wgmma(a: Stage, b: Stage, acc: Tile) -> Tile:
    """Issue `a @ b + acc` asynchronously on operands in shared memory (sm_90a); usable after `tw.wgmma_wait`."""
    _in_kernel("wgmma")


def wgmma_wait(pending: int) -> None:
    """Block until at most `pending` wgmma groups of the warpgroup are in flight."""
    _in_kernel("wgmma_wait")


def fence_async() -> None:
    """Make this thread's ordinary writes to shared memory visible to TMA and wgmma."""
    _in_kernel("fence_async")


def sync() -> None:
    """Barrier over all threads of the role."""
    _in_kernel("sync")
