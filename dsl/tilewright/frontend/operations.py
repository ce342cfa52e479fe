"""The built-in operations of the language: one method an operation, named `op_<name>`.

The signature of a method is the signature of the operation; `Operations.call` binds arguments to it.
"""

from __future__ import annotations

import inspect
import math
from dataclasses import replace
from difflib import get_close_matches

from tree_sitter import Node

from tilewright import dtypes
from tilewright.dtypes import DType
from tilewright.frontend.elaborate import SCALARS
from tilewright.frontend.memory_operations import MemoryOperations
from tilewright.frontend.tree import child, text
from tilewright.frontend.values import (
    AnnotationValue,
    Builtin,
    Choices,
    ElementTypes,
    Method,
    RangeValue,
    RoleValue,
    Tensor,
    TensorSlice,
    Value,
    describe,
)
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.expr import Int
from tilewright.targets import TARGETS

_MOST_DIES = 64
_MOST_CONSUMERS = 3  # with the role that loads, four warpgroups of at least 160 registers a thread would not fit
_MOST_UNROLLED = 64
_ORDERS = "tw.row_major(), tw.column_major(), tw.grouped(rows)"


class Operations(MemoryOperations):
    """Evaluates calls of built-in operations and methods."""

    def call(self, node: Node, function: Value, args: list[Value], keywords: dict[str, Value]) -> Value:
        """Bind the arguments to the operation's signature and run it."""
        if isinstance(function, Method):
            name, args = function.name, [function.value, *args]
            method = getattr(Operations, f"method_{name}")
        elif isinstance(function, Builtin):
            name = function.name
            method = getattr(Operations, f"op_{name}", None)
        else:
            raise self.fault("TW003", f"{describe(function)} cannot be called", node)
        if method is None:
            raise self.fault("TW005", f"'{name}' is not an operation", node)
        try:
            return method(self, node, *args, **keywords)
        except TypeError:
            # Binding the arguments before each call would take longer than most operations.
            signature = inspect.signature(method)
            try:
                signature.bind(self, node, *args, **keywords)
            except TypeError as error:
                usage = [n for n in signature.parameters if n not in ("self", "node")]
                raise self.fault("TW005", f"{name}: {error}; it takes ({', '.join(usage)})", node) from None
            raise

    def module_attribute(self, node: Node, name: str) -> Value:
        """`tw.name`."""
        value = module_member(name)
        if value is None:
            close = get_close_matches(name, public_names(), 1, 0.6)
            hint = f"; did you mean 'tw.{close[0]}'?" if close else ""
            raise self.fault("TW002", f"tilewright has no '{name}'{hint}", node)
        return value

    # -------------------------------------------------------------------------------- arguments

    def integer(self, node: Node, value: Value, what: str) -> int:
        """A compile-time integer."""
        if isinstance(value, Int):
            return value.value
        raise self.fault("TW006", f"{what} is an integer known at compile time, not {describe(value)}", node)

    def scalar(self, node: Node, value: Value, what: str) -> ir.Expr:
        """A scalar, at compile time or run time."""
        if isinstance(value, SCALARS):
            return value
        raise self.fault("TW003", f"{what} is an integer scalar, not {describe(value)}", node)

    # -------------------------------------------------------------------------------- scalars

    def op_cdiv(self, node: Node, a: Value, b: Value) -> Value:
        return ex.cdiv(self.scalar(node, a, "the dividend"), self.scalar(node, b, "the divisor"))

    def op_min(self, node: Node, *args: Value, axis: Value = None, keep_dims: Value = Int(0)) -> Value:
        return self.least_or_greatest(node, "min", args, axis, keep_dims)

    def op_max(self, node: Node, *args: Value, axis: Value = None, keep_dims: Value = Int(0)) -> Value:
        return self.least_or_greatest(node, "max", args, axis, keep_dims)

    def least_or_greatest(self, node: Node, name: str, args: tuple[Value, ...], axis: Value, keep: Value) -> Value:
        """Python's min/max of scalars, or the reduction of a tile."""
        if len(args) > 0 and isinstance(args[0], ir.TileRef):
            if len(args) == 2 and isinstance(args[1], Int) and axis is None:
                axis = args[1]
            elif len(args) > 1:
                raise self.fault("TW005", f"element by element the {name} of tiles is tw.{name}imum(a, b)", node)
            return self.reduce(node, "min" if name == "min" else "max", args[0], axis, keep)
        if len(args) < 2:
            raise self.fault("TW005", f"'{name}' takes at least two scalars", node)
        result = self.scalar(node, args[0], f"an argument of {name}")
        for arg in args[1:]:
            result = ex.binary(
                "min" if name == "min" else "max", result, self.scalar(node, arg, f"an argument of {name}")
            )
        return result

    def op_int(self, node: Node, x: Value) -> Value:
        return Int(int(x)) if isinstance(x, float) and math.isfinite(x) else self.scalar(node, x, "the argument of int")

    def op_float(self, node: Node, x: Value) -> Value:
        if isinstance(x, str | float):
            try:
                return float(x)
            except ValueError:
                raise self.fault("TW006", f"'{x}' is not a number", node) from None
        return float(self.integer(node, x, "the argument of float"))

    def op_len(self, node: Node, x: Value) -> Value:
        if isinstance(x, tuple):
            return Int(len(x))
        raise self.fault("TW003", f"{describe(x)} has no length", node)

    # -------------------------------------------------------------------------------- loops and the grid

    def op_range(self, node: Node, a: Value, b: Value = None, c: Value = Int(1)) -> Value:
        lo, hi = (Int(0), a) if b is None else (a, b)
        step = self.integer(node, c, "the step of a loop")
        if step == 0:
            raise self.fault("TW003", "the step of a loop is not 0", node)
        return RangeValue("range", self.scalar(node, lo, "the start"), self.scalar(node, hi, "the end"), step)

    def op_unroll(self, node: Node, start: Value, stop: Value = None, step: Value = Int(1), *, by: Value) -> Value:
        count = self.integer(node, by, "by")
        if not 2 <= count <= _MOST_UNROLLED:
            raise self.fault("TW009", f"tw.unroll writes 2 to {_MOST_UNROLLED} iterations in a row, not {count}", node)
        loop = self.op_range(node, start, stop, step)
        assert isinstance(loop, RangeValue)
        return replace(loop, unroll=count)

    def op_static_range(self, node: Node, start: Value, stop: Value = None, step: Value = Int(1)) -> Value:
        loop = self.op_range(node, start, stop, step)
        assert isinstance(loop, RangeValue)
        return replace(loop, kind="static")

    def step(self, node: Node, value: Value) -> int:
        step = self.integer(node, value, "the step of a pipeline")
        if step < 1:
            raise self.fault("TW003", f"the step of a pipeline is positive, not {step}", node)
        return step

    def op_pipeline(
        self, node: Node, lo: Value, hi: Value, step: Value, *, stages: Value = Int(3), roles: Value = "single",
        order: Value = "load", consumers: Value = Int(1), turns: Value = Int(0),
    ) -> Value:  # fmt: skip
        count = self.integer(node, stages, "stages")
        if roles not in ("split", "single"):
            raise self.fault("TW009", f'roles is "split" or "single", not {describe(roles)}', node)
        if order not in ("load", "compute"):
            raise self.fault(
                "TW009", f'order is "load" or "compute", whichever comes first, not {describe(order)}', node
            )
        if order == "compute" and roles == "split":
            raise self.fault(
                "TW009", 'order= is for roles="single"; split roles load and compute at the same time', node
            )
        if not 2 <= count <= 32:
            raise self.fault("TW009", f"a pipeline has 2 to 32 stages, not {count}", node)
        computing = self.integer(node, consumers, "the number of consumers")
        if not 1 <= computing <= _MOST_CONSUMERS:
            raise self.fault("TW009", f"a pipeline has 1 to {_MOST_CONSUMERS} consumers, not {computing}", node)
        if computing > 1 and roles == "single":
            raise self.fault(
                "TW009", f'consumers={computing} is for roles="split": single roles load what they compute on', node
            )
        alternating = bool(self.integer(node, turns, "turns"))
        if alternating and computing == 1:
            raise self.fault(
                "TW009", "turns=True is for consumers=2 or 3: a single role has no other to wait for", node
            )
        return RangeValue(
            "pipeline",
            self.scalar(node, lo, "the start"),
            self.scalar(node, hi, "the end"),
            self.step(node, step),
            count,
            str(roles),
            first=str(order),
            consumers=computing,
            turns=alternating,
        )

    def op_tiles(self, node: Node, *counts: Value, order: Value = ir.RowMajor(), persistent: Value = Int(0)) -> Value:
        exprs = tuple(self.scalar(node, c, "a number of tiles") for c in counts)
        if not exprs or len(exprs) > 3:
            raise self.fault("TW005", f"a grid has 1 to 3 axes, not {len(exprs)}", node)
        if not isinstance(order, ir.Grouped | ir.RowMajor | ir.ColumnMajor | ir.Xcd):
            raise self.fault("TW009", f"order is {_ORDERS} or tw.xcd(dies), not {describe(order)}", node)
        if isinstance(order.inner if isinstance(order, ir.Xcd) else order, ir.Grouped) and len(exprs) < 2:
            raise self.fault("TW009", "grouped order is for grids of 2 or 3 axes, this one has 1", node)
        flag = bool(self.integer(node, persistent, "persistent"))
        return RangeValue("tiles", Int(0), Int(0), 1, counts=exprs, order=order, persistent=flag)

    def op_grouped(self, node: Node, rows: Value) -> Value:
        count = self.integer(node, rows, "the number of rows in a group")
        if count < 1:
            raise self.fault("TW009", f"a group has at least one row, not {count}", node)
        return ir.Grouped(count)

    def op_xcd(self, node: Node, dies: Value, order: Value = ir.RowMajor()) -> Value:
        count = self.integer(node, dies, "the number of dies")
        if not 1 <= count <= _MOST_DIES:
            raise self.fault("TW009", f"a GPU has 1 to {_MOST_DIES} dies, not {count}", node)
        if not isinstance(order, ir.Grouped | ir.RowMajor | ir.ColumnMajor):
            raise self.fault("TW009", f"within a die the order is {_ORDERS}, not {describe(order)}", node)
        return ir.Xcd(count, order)

    def op_row_major(self, node: Node) -> Value:
        return ir.RowMajor()

    def op_column_major(self, node: Node) -> Value:
        return ir.ColumnMajor()

    def op_programs(self, node: Node, count: Value, *, persistent: Value = Int(0)) -> Value:
        flag = bool(self.integer(node, persistent, "persistent"))
        return RangeValue("programs", Int(0), self.scalar(node, count, "the number of programs"), 1, persistent=flag)

    def op_role(self, node: Node, name: Value, *, warps: Value, registers: Value = None) -> Value:
        if not isinstance(name, str) or not name.isidentifier():
            raise self.fault("TW009", 'a role has a name: tw.role("load", warps=1)', node)
        count = self.integer(node, warps, "warps")
        if count not in (1, 2, 4, 8, 16):
            raise self.fault("TW603", f"a role has 1, 2, 4, 8 or 16 warps, not {count}", node)
        budget = None if registers is None else self.integer(node, registers, "registers")
        if budget is not None and not (24 <= budget <= 256 and budget % 8 == 0):
            raise self.fault(
                "TW602", f"a register budget is a multiple of 8 from 24 to 256 (setmaxnreg), not {budget}", node
            )
        return RoleValue(name, count, budget)

    # -------------------------------------------------------------------------------- declarations

    def op_choice(self, node: Node, *values: Value) -> Value:
        found = tuple(self.integer(node, v, "a choice") for v in values)
        if not found:
            raise self.fault("TW005", "tw.choice needs at least one value", node)
        return Choices(found)

    def op_element_types(self, node: Node, *types: Value) -> Value:
        """Element types that a call decides among; they get the name they are assigned to."""
        left = child(node.parent, "left") if node.parent is not None and node.parent.type == "assignment" else None
        if not self.declarations or left is None or left.type != "identifier":
            raise self.fault(
                "TW005", "element types are declared at module level: T = tw.element_types(f16, bf16)", node
            )
        found = tuple(dict.fromkeys(self.dtype(node, t) for t in types))
        if not found:
            raise self.fault("TW005", "tw.element_types needs at least one element type", node)
        return ElementTypes(text(left), found)

    def op_sizes(self, node: Node, *names: Value) -> Value:
        sizes: list[Value] = []
        for name in names:
            if not isinstance(name, str) or not name.isidentifier():
                raise self.fault("TW005", 'sizes are declared by name: M, N = tw.sizes("M", "N")', node)
            sizes.append(ex.Size(name))
        return tuple(sizes) if len(sizes) != 1 else sizes[0]

    def leading(self, node: Node, value: TensorSlice, indices: list[Node]) -> TensorSlice:
        """`A[b, h]`: fix the leading dimensions of a tensor."""
        name, shape = value.param.name, value.param.type.shape
        prefix = list(value.prefix)
        for index in indices:
            found = None if index.type == "slice" else self.evaluate(index)
            if not isinstance(found, SCALARS):
                what = "':'" if index.type == "slice" else describe(found)
                raise self.fault(
                    "TW003",
                    f"'{name}' is indexed by integer scalars that fix its leading dimensions, not {what}",
                    index,
                )
            if len(prefix) == len(shape):
                raise self.fault(
                    "TW003",
                    f"'{name}' has {len(shape)} dimension{'s' * (len(shape) > 1)}, and each has an index already",
                    index,
                )
            extent = shape[len(prefix)]
            least, most = Int(0), ex.sub(extent, Int(1))
            if isinstance(found, Int) and Int(1) in (ex.less(found, least), ex.less(most, found)):
                raise self.fault("TW003", f"index {found.value} of '{name}' is outside 0 … {ex.show(most)}", index)
            prefix.append(found)
        return TensorSlice(value.param, tuple(prefix))

    def method_tile(self, node: Node, tensor: Value, origin: Value, shape: Value) -> Value:
        """`A.tile((row, column), (rows, columns))`, also of `A[b]`."""
        assert isinstance(tensor, Tensor | TensorSlice)
        prefix = tensor.prefix if isinstance(tensor, TensorSlice) else ()
        rank = len(tensor.param.type.shape) - len(prefix)
        if rank == 0:
            raise self.fault(
                "TW003",
                f"'{tensor.param.name}' has an index for each of its dimensions here, which leaves one element and no "
                "tile; fix fewer of them",
                node,
            )
        starts = origin if isinstance(origin, tuple) else (origin,)
        extents = shape if isinstance(shape, tuple) else (shape,)
        if len(starts) != rank or len(extents) != rank:
            raise self.fault(
                "TW003",
                f"'{tensor.param.name}' has {rank} dimension{'s' * (rank > 1)}{' left' * bool(prefix)}; .tile takes as "
                f"many starts and extents, not {len(starts)} and {len(extents)}",
                node,
            )
        sizes = tuple(self.extent(node, e) for e in extents)
        return ir.View(
            tensor.param.name,
            prefix + tuple(self.scalar(node, s, "the start of a tile") for s in starts),
            (1,) * len(prefix) + sizes,
            len(prefix),
            self.span(node),
        )


PYTHON_FUNCTIONS = ("range", "min", "max", "len", "int", "float")
DECORATORS = ("kernel", "func", "tag_function")
_CONSTANTS: dict[str, Value] = {"inf": math.inf, "pi": math.pi}
_NOT_PUBLIC = frozenset(("range", "len", "int", "float"))


def public_names() -> list[str]:
    """Names that `tw.` offers inside a kernel or at module level."""
    operations = [n.removeprefix("op_") for n in dir(Operations) if n.startswith("op_")]
    return sorted(
        [n for n in operations if n not in _NOT_PUBLIC]
        + [*dtypes.ALL, *_CONSTANTS, "Global", "Scalar", "Const", *DECORATORS]
    )


def module_member(name: str) -> Value:
    """What `tw.<name>` stands for; None when there is no such name."""
    found: DType | None = dtypes.ALL.get(name)
    if found is not None:
        return found
    if name in _CONSTANTS:
        return _CONSTANTS[name]
    if name == "Const":
        return AnnotationValue("Const")
    operation = hasattr(Operations, f"op_{name}") and name not in _NOT_PUBLIC
    if operation or name in ("Global", "Scalar", *DECORATORS):
        return Builtin(name)
    return None


def known_target(name: str) -> bool:
    """True for a target that the tables know."""
    return name in TARGETS
