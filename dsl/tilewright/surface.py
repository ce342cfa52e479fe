"""The names that kernels use, with their types and documentation.

Kernel bodies are read by the front end and never executed as Python, so the functions here only tell editors and type
checkers what exists; calling one from ordinary Python raises `KernelBodyError`. The exceptions are declarations that
stand at module level: `sizes`, `choice`, `kernel`, `func`, `Global`, `Const`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal, overload

from tilewright.dtypes import DType
from tilewright.surface_values import (
    Global,
    Order,
    Scalar,
    Size,
    Stage,
    TensorElement,
    Tile,
    View,
    in_kernel,
)

inf: float = float("inf")
"""Positive infinity; `-tw.inf` is the neutral element of a maximum."""
pi: float = 3.141592653589793


# ------------------------------------------------------------------------------------------------ declarations


if TYPE_CHECKING:
    # A class, because Pyrefly takes no variable with the result of a function in an annotation such as Global[f32, N].
    class sizes:
        """Declare problem sizes: `M, N, K = tw.sizes("M", "N", "K")`, or `N = tw.sizes("N")`. Each is at least 1."""

        @overload
        def __new__(cls, name: str, /) -> Any: ...
        @overload
        def __new__(cls, name: str, other: str, /, *more: str) -> tuple[Any, ...]: ...
        def __new__(cls, *names: str) -> Any:
            """A size, or one for each name."""
            ...

    class element_types:
        """Element types that each call decides among by its tensors, declared at module level.

        The first is the default. `T = tw.element_types(f16, bf16)`, then `X: Global[T, N]` and `x.to(T)`;
        `kernel.using(T=bf16)` chooses one.
        """

        def __new__(cls, *types: DType) -> Any:
            """The default."""
            ...

else:

    def sizes(*names: str) -> Any:
        """Declare problem sizes: `M, N, K = tw.sizes("M", "N", "K")`, or `N = tw.sizes("N")`. Each is at least 1."""
        if not names or not all(n.isidentifier() for n in names):
            raise ValueError('sizes are declared by name: M, N = tw.sizes("M", "N")')
        declared = tuple(Size(n) for n in names)
        return declared[0] if len(declared) == 1 else declared

    def element_types(*types: DType) -> Any:
        """Element types that each call decides among by its tensors, declared at module level.

        The first is the default. `T = tw.element_types(f16, bf16)`, then `X: Global[T, N]` and `x.to(T)`;
        `kernel.using(T=bf16)` chooses one.
        """
        if not types:
            raise ValueError("tw.element_types needs at least one element type")
        return types[0]


def choice(*values: int) -> int:
    """The values that tuning may give to a compile-time argument; the first is the default.

    `BM: Const = tw.choice(128, 64)`; `kernel.tune()` tries them.
    """
    if not values:
        raise ValueError("tw.choice needs at least one value")
    return values[0]


def assume(condition: Any) -> None:
    """State a fact about sizes, integer arguments or the elements of index tensors; the verifier relies on it.

    `tw.assume(K % 8 == 0)`: the launch checks it. `tw.assume(OFFSETS[0] == 0)`,
    `tw.assume(lambda e: OFFSETS[e] <= OFFSETS[e + 1])`: holds for all values of the bound names for which every index
    in it is inside its dimension; the interpreter checks it, generated inputs satisfy it, a launch does not look.
    """
    in_kernel("assume")


def zeroed(tensor: Global) -> None:
    """At the top of a kernel: the launch fills `tensor` with zeros before the kernel starts: `tw.zeroed(C)`."""
    in_kernel("zeroed")


def initialized(tensor: Global) -> None:
    """At the top of a kernel: the caller gives `tensor` with values, on which atomic updates build.

    `tw.initialized(T)`.
    """
    in_kernel("initialized")


def strides(tensor: Global, strides: Any) -> None:
    """At the top of a kernel: the strides of `tensor` in elements, `tw.strides(A, (LD, 1))`; row-major by default.

    Each is a size, a positive integer or a product of them. The launch checks them, and that no elements share memory.
    """
    in_kernel("strides")


def func(function: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a helper that kernels may call. It is inlined, and it is not executed as Python either.

    `@tw.func` above `def gelu(x): return x * tw.sigmoid(1.702 * x)`.
    """
    return function


def tag_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a helper that says which tags the result of an operation has, from those of its operands.

    It takes the result first, then the operands, and returns `tw.tag(result, …)`. It computes nothing, and the verifier
    takes it at its word. `@tw.tag_function` stands above `def product(c, a, b): return tw.tag(c, …)`.
    """
    return function


@overload
def tag(x: Stage, /, **tags: Any) -> None: ...
@overload
def tag(x: Tile, /, **tags: Callable[[Scalar], Any]) -> Tile: ...
@overload
def tag(x: Tile, /, **tags: Callable[[Scalar, Scalar], Any]) -> Tile: ...
@overload
def tag(x: Tile, /, **tags: Callable[[Scalar, Scalar, Scalar], Any]) -> Tile: ...
@overload
def tag(x: Tile, /, **tags: Callable[[Scalar, Scalar, Scalar, Scalar], Any]) -> Tile: ...
def tag(x: Any, /, **tags: Any) -> Any:
    """The tile with tags: named integers that each of its elements carries along, `x = tw.tag(x, SLOT=lambda i, j: j)`.

    A tag is a function of the element, with as many parameters as the tile has dimensions, over scalars in scope and
    tags of other tiles (`a[i, j // 2].K`). Elements loaded from a tensor carry, by themselves, their coordinate along
    each dimension that has a size for extent. Tags cost nothing: they exist for `tw.expect`, and lowering erases them.
    A stage of shared memory is tagged by a statement of its own, without a result.
    """
    in_kernel("tag")


# ------------------------------------------------------------------------------------------------ grid and loops


def tiles(*counts: Any, order: Order | None = None, persistent: bool = False) -> Iterator[Any]:
    """The grid: one iteration for each tile of a grid of `counts` tiles (1 to 3 axes), spread over programs.

    `persistent=True` launches as many programs as fit the device, each of which takes several tiles.

    `for pm, pn in tw.tiles(tw.cdiv(M, 128), tw.cdiv(N, 64)):`
    """
    in_kernel("tiles")


def grouped(rows: int) -> Order:
    """Grid order: groups of `rows` tile rows, each walked column by column, so that programs share operands in L2.

    `order=tw.grouped(8)`.
    """
    in_kernel("grouped")


def xcd(dies: int, order: Order | None = None) -> Order:
    """Grid order for AMD GPUs of several dies (8 XCDs on MI300X and MI350): each takes a run of neighbours in `order`.

    Programs go round the dies, and each die has an L2 cache of its own, so neighbours would not meet there otherwise.
    `order` is `tw.row_major()` (the default) or `tw.grouped(rows)`. Other GPUs take the tiles in `order`. Example:
    `order=tw.xcd(8, tw.grouped(4))`.
    """
    in_kernel("xcd")


def row_major() -> Order:
    """Grid order: the last axis runs fastest (the default). `order=tw.row_major()`."""
    in_kernel("row_major")


def column_major() -> Order:
    """Grid order: the first axis runs fastest. `order=tw.column_major()`."""
    in_kernel("column_major")


def programs(count: Any, *, persistent: bool = False) -> Iterator[Any]:
    """The grid by number: `for t in tw.programs(count)` runs the body for every t below `count`, over all programs."""
    in_kernel("programs")


def pipeline(
    lo: Any,
    hi: Any,
    step: int,
    *,
    stages: int = 3,
    roles: Literal["split", "single"] = "single",
    order: Literal["load", "compute"] = "load",
    consumers: int = 1,
    turns: bool = False,
) -> Iterator[Any]:
    """`range(lo, hi, step)` whose loads run ahead through `stages` stages of shared memory.

    `roles="split"`: one warp loads by TMA, the kernel's warps multiply with wgmma (sm_90a). `roles="single"`: every
    warp copies by cp.async and multiplies with mma (sm_80 and up). `order` (single roles): which comes first in an
    iteration, the loads for a later one or what it computes. `consumers` (split roles): 1 to 3 roles, each of the
    kernel's `warps`, share what is loaded, and each computes its part of the rows of every product; with
    `turns=True` one after the other issues its products.

    `for k in tw.pipeline(0, K, 64, stages=3):`
    """
    in_kernel("pipeline")


def unroll(start: Any, stop: Any = None, step: int = 1, *, by: int) -> Iterator[Any]:
    """`range(start, stop, step)` with `by` iterations in a row in the generated code (2 to 64), and then the rest.

    The loop means the same. `for k in tw.unroll(0, K, 64, by=4):`. Where K is a multiple of 256, there is no rest.
    """
    in_kernel("unroll")


def static_range(start: int, stop: int | None = None, step: int = 1) -> Iterator[int]:
    """`range` unrolled at compile time; its variable is a compile-time integer.

    `for i in tw.static_range(4):`, at most 1024 iterations.
    """
    in_kernel("static_range")


def role(name: str, *, warps: int, registers: int | None = None) -> AbstractContextManager[None]:
    """`with tw.role("load", warps=1):` — consecutive roles run at the same time, each on warps of its own.

    `registers` is the budget of a thread (a multiple of 8 from 24 to 256).
    """
    in_kernel("role")


# ------------------------------------------------------------------------------------------------ tiles


def zeros(dtype: DType, shape: Any) -> Tile:
    """A tile of zeros.

    `tw.zeros(f32, (64, 128))` is a tile `f32[64, 128]`; extents are powers of two or sums of up to three.
    """
    in_kernel("zeros")


def full(dtype: DType, shape: Any, value: Any) -> Tile:
    """A tile whose elements all are `value`. `tw.full(f32, (64,), -tw.inf)` is a tile `f32[64]`."""
    in_kernel("full")


def arange(n: int) -> Tile:
    """The i32 tile 0, 1, …, n - 1. `tw.arange(64)` has shape (64,)."""
    in_kernel("arange")


@overload
def load(view: TensorElement) -> Any: ...


@overload
def load(
    view: View,
    *,
    mask: Tile | None = None,
    other: float | None = None,
    via: Literal["auto", "direct", "cp_async", "tma", "buffer"] = "auto",
) -> Tile: ...


def load(
    view: View | TensorElement,
    *,
    mask: Tile | None = None,
    other: float | None = None,
    via: Literal["auto", "direct", "cp_async", "tma", "buffer"] = "auto",
) -> Any:
    """The elements of `view`. Elements outside the tensor read as `other`; without it the whole view must be inside.

    Where `mask`, a tile of truth values, is false, nothing is read and the element is `other`. With `A.at(…)` every
    other index must be inside. `tw.load(OFFSETS[e])`, an element of a tensor of integers, is a scalar that indices and
    loop bounds may use.
    `via="tma"` and `via="cp_async"` (in a pipeline) fill with zeros what is outside. `via="buffer"`: AMD's buffer
    instructions, whose offsets within a tile have 32 bits.

    `tw.load(A.tile((i, 0), (64, 32)), other=0.0)` has shape (64, 32) and the element type of A.
    """
    in_kernel("load")


def store(
    view: View, tile: Tile, *, mask: Tile | None = None, via: Literal["auto", "direct", "tma", "buffer"] = "auto"
) -> None:
    """Write the elements of `tile` that lie inside the tensor and where `mask` is true; the rest is dropped.

    With `A.at(…)` every index where `mask` is true must be inside.

    `tw.store(C.tile((i, j), (64, 128)), acc.to(f16))`: equal shapes and element types.
    """
    in_kernel("store")


def atomic_add(view: View, value: Tile | Scalar | float, *, mask: Tile | None = None) -> None:
    """Add to the elements of `view` inside the tensor (where `mask` is true); any programs may add to one element.

    `tw.atomic_add(S.tile((j * 64,), (64,)), tw.sum(x, axis=0))`. f16, bf16, f32, i32 or u32. The tensor is `tw.zeroed`
    or `tw.initialized`; the order of additions is open.
    """
    in_kernel("atomic_add")


def atomic_max(view: View, value: Tile | Scalar | float, *, mask: Tile | None = None) -> None:
    """Raise the elements of `view` inside the tensor to at least `value`: f32 (no NaN), i32, u32.

    `tw.atomic_max(T.tile((i * 16,), (16,)), tw.max(x, axis=1))`.
    """
    in_kernel("atomic_max")


def atomic_min(view: View, value: Tile | Scalar | float, *, mask: Tile | None = None) -> None:
    """Lower the elements of `view` inside the tensor to at most `value`: f32 (no NaN), i32, u32.

    `tw.atomic_min(T.tile((i * 16,), (16,)), tw.min(x, axis=1))`.
    """
    in_kernel("atomic_min")


def mma(a: Tile, b: Tile, acc: Tile, *, precision: Literal["tf32", "ieee"] | None = None) -> Tile:
    """`a @ b + acc`: a is (M, K), b (K, N), acc (M, N). `acc = tw.mma(a, b, acc)`.

    Operands are f16 (acc f32 or f16), bf16 (f32), 8-bit floats of either kind (f32 or f16; sm_89 and up, gfx950), i8
    (acc i32) or f32 (f32). For f32, `precision` says whether they may be rounded to tf32, as tensor cores of NVIDIA do;
    "ieee" is for AMD.
    """
    in_kernel("mma")


def cdiv(a: Any, b: Any) -> Any:
    """A / b rounded up: how many tiles of b cover a. Works in ordinary Python on integers too.

    `tw.cdiv(1000, 128) == 8`.
    """
    return -(-a // b)
