"""References as data: a small language of tensor expressions, spelled as PyTorch, evaluated by our own evaluator.

`C = A.float() @ B.float()`, or only the right side when there is one output; several assignments are separated by `;`
or line breaks. What is not listed here is refused, so a reference cannot run code.

One text serves twice. *Precise* evaluation gives the values to compare with: inputs are widened to float32 (float64
stays) and casts to narrower types are left out. *Plain* evaluation gives the baseline to race: inputs keep their types
and `.float()` is left out, so that `A.float() @ B.float()` of f16 tensors is the library's f16 product. With 8-bit
floats libraries do not compute; `.float()` makes them bfloat16, which holds each of their values.

An index may be a tensor of integers, as in `TABLE[IDS]`, and the end of a slice a problem size, as in `S[:K]`. Sizes
are numbers elsewhere too (`arange(N)`), `inf` is infinity, and `folded` puts in the values of compile-time constants.
"""

from __future__ import annotations

import ast
import inspect
import math
import operator
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Protocol

MOST_CHARACTERS = 4000


class BadReference(Exception):
    """The reference is no expression of this language, or it failed; the message says where."""


class Backend(Protocol):
    """The tensor library that evaluates."""

    def call(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The function `name` of FUNCTIONS, in PyTorch's meaning, with the tensor first."""
        ...

    def cast(self, tensor: Any, name: str) -> Any:
        """The tensor with the element type `name`, as PyTorch calls it."""
        ...

    def float_bits(self, tensor: Any) -> int:
        """Bits of the floating-point type of a tensor, 0 for other types."""
        ...

    def index_range(self, tensor: Any) -> tuple[int, int]:
        """The smallest and largest element of a tensor of integers. Raises TypeError for other types."""
        ...

    def take(self, tensor: Any, index: tuple[Any, ...]) -> Any:
        """`tensor[index]`, in which parts may be tensors of integers."""
        ...


FUNCTIONS = frozenset((
    "abs", "add", "amax", "amin", "arange", "argmax", "argmin", "argsort", "bincount", "ceil", "clamp", "conv2d", "cos",
    "cumprod", "cumsum", "div", "erf", "exp", "exp2", "expm1", "floor", "gather", "gelu", "log", "log1p", "log2",
    "log_softmax", "logsumexp", "matmul", "maximum", "mean", "minimum", "mul", "neg", "relu", "repeat_interleave",
    "reshape", "round", "rsqrt", "scaled_dot_product_attention", "searchsorted", "sigmoid", "silu", "sin", "softmax",
    "sort", "sqrt", "square", "stack", "sub", "sum", "tanh", "topk", "transpose", "trunc", "unsqueeze", "where",
))  # fmt: skip
CASTS = {"float": "float32", "half": "float16", "bfloat16": "bfloat16", "double": "float64"}
DTYPES = frozenset((*CASTS.values(), "int8", "int16", "int32", "int64", "uint8"))
_OPTIONS = (
    "dim",
    "descending",
    "stable",
    "keepdim",
    "min",
    "max",
    "approximate",
    "is_causal",
    "stride",
    "padding",
    "dilation",
    "minlength",
    "right",
)
_PAIRS = ("sort", "topk")  # their results are `.values` and `.indices`
_MODULES = ("torch", "F", "torch.nn.functional")
_Operation = Callable[[Any, Any], Any]
_BINARY: dict[type[ast.operator], _Operation] = {
    ast.Add: lambda a, b: a + b, ast.Sub: lambda a, b: a - b, ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b, ast.FloorDiv: lambda a, b: a // b, ast.Mod: lambda a, b: a % b,
    ast.Pow: lambda a, b: a**b, ast.MatMult: lambda a, b: a @ b,
    ast.BitAnd: lambda a, b: a & b, ast.BitOr: lambda a, b: a | b,
}  # fmt: skip
_COMPARE: dict[type[ast.cmpop], _Operation] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}  # fmt: skip


@dataclass(frozen=True)
class Reference:
    """A checked reference: assignments in order; every output is assigned."""

    text: str
    steps: tuple[tuple[str, ast.expr], ...]

    def evaluate(
        self, tensors: Mapping[str, Any], backend: Backend, *, precise: bool, sizes: Mapping[str, int] | None = None
    ) -> dict[str, Any]:
        """The assigned tensors by name. Raises BadReference when an operation fails."""
        values = {
            name: backend.cast(t, "float32") if precise and 0 < _bits(t, backend) < 32 else t
            for name, t in tensors.items()
        }
        for name, expression in self.steps:
            values[name] = _Evaluator(values, backend, precise, sizes or {}).value(expression)
        return {name: values[name] for name, _ in self.steps}


def parse_reference(
    text: str, arguments: Sequence[str], outputs: Sequence[str], sizes: Sequence[str] = ()
) -> Reference:
    """The reference in `text` over tensors named `arguments`, which must assign each of `outputs`.

    Slices may end at problem sizes, whose names are `sizes`.

    Raises BadReference for anything outside the language and for an output that is not assigned.
    """
    if len(text) > MOST_CHARACTERS:
        raise BadReference(f"a reference has at most {MOST_CHARACTERS} characters, this one has {len(text)}")
    try:
        tree = ast.parse(inspect.cleandoc(text))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise BadReference(f"reference {text!r} is no Python expression: {error}") from None
    steps: list[tuple[str, ast.expr]] = []
    known = set(arguments)
    for stmt in tree.body:
        match stmt:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                pass
            case ast.Expr(value=value) if len(outputs) == 1:
                name = outputs[0]
            case _:
                wanted = f"write `{next(iter(outputs), 'C')} = …`"
                raise BadReference(f"reference: `{ast.unparse(stmt)}` is no assignment to a name; {wanted}")
        try:
            _check(value, known, frozenset(sizes))
        except RecursionError:
            raise BadReference("the reference is nested too deeply") from None
        known.add(name)
        steps.append((name, value))
    missing = [name for name in outputs if name not in {n for n, _ in steps}]
    if missing:
        raise BadReference(f"the reference {text!r} does not assign the output {missing[0]}")
    return Reference(text, tuple(steps))


def folded(text: str, constants: Mapping[str, int | float]) -> str:
    """The reference with the values of constants in the place of their names; what is no Python, as it is."""
    try:
        tree = ast.parse(inspect.cleandoc(text))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return text
    stored = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    names = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} & constants.keys() - stored
    if not names:
        return text

    class Folding(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            return ast.Constant(constants[node.id]) if node.id in names else node

    return ast.unparse(Folding().visit(tree))


def _check(node: ast.expr, names: set[str], sizes: frozenset[str]) -> None:
    """Raise BadReference unless the expression stays inside the language."""

    def refuse(why: str) -> BadReference:
        return BadReference(f"reference: `{ast.unparse(node)}`: {why}")

    match node:
        case ast.Constant(value=bool() | int() | float()):
            pass
        case ast.Name(id=name):
            if name not in names and name not in sizes and name != "inf":
                raise refuse(f"no tensor of that name; there are {', '.join(sorted(names))}")
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            if isinstance(op, ast.Pow) and not _small(right):
                raise refuse("only a small constant may be an exponent")
            _check(left, names, sizes)
            _check(right, names, sizes)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            _check(operand, names, sizes)
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARE:
            _check(left, names, sizes)
            _check(right, names, sizes)
        case ast.Attribute(value=value, attr="T" | "mT"):
            _check(value, names, sizes)
        case ast.Attribute(value=ast.Call() as call, attr="values" | "indices") if _function(call)[1] in _PAIRS:
            _check_call(call, names, sizes)
        case ast.Tuple(elts=elements) | ast.List(elts=elements):
            for element in elements:
                _check(element, names, sizes)
        case ast.Subscript(value=value, slice=index):
            _check(value, names, sizes)
            for part in index.elts if isinstance(index, ast.Tuple) else [index]:
                if isinstance(part, ast.Slice) or _is_index(part, sizes):
                    if not _is_index(part, sizes):
                        raise refuse("the ends of a slice are constants or problem sizes")
                else:
                    _check(part, names, sizes)  # that its elements are integers shows when it is evaluated
        case ast.Call(func=ast.Attribute() | ast.Name()):
            if _function(node)[1] in _PAIRS:
                raise refuse("has two results: write `.values` or `.indices` behind it")
            _check_call(node, names, sizes)
        case _:
            raise refuse("not part of the language of references")


def _check_call(call: ast.Call, names: set[str], sizes: frozenset[str]) -> None:
    """Raise BadReference unless a call is one of the language."""

    def refuse(why: str) -> BadReference:
        return BadReference(f"reference: `{ast.unparse(call)}`: {why}")

    owner, attr = _function(call)
    if owner is None:
        if attr not in FUNCTIONS:
            raise refuse(f"'{attr}' is not one of {', '.join(sorted(FUNCTIONS))}")
    else:
        _check(owner, names, sizes)
        if attr == "to":
            if len(call.args) != 1 or call.keywords or _dtype(call.args[0]) is None:
                raise refuse(f"`.to` takes one of torch.{', torch.'.join(sorted(DTYPES))}")
            return
        if attr not in FUNCTIONS and attr not in CASTS:
            raise refuse(f"'{attr}' is not one of {', '.join(sorted(FUNCTIONS | CASTS.keys()))}")
    for arg in call.args:
        _check(arg, names, sizes)
    for keyword in call.keywords:
        sized = isinstance(keyword.value, ast.Name) and keyword.value.id in sizes
        if keyword.arg not in _OPTIONS or not (sized or _is_plain(keyword.value)):
            raise refuse(f"an option is one of {', '.join(_OPTIONS)}, and constant or a problem size")


def _bits(value: Any, backend: Backend) -> int:
    """Bits of a floating-point tensor; 0 for other tensors and for scalar arguments."""
    return 0 if isinstance(value, int | float) else backend.float_bits(value)


class _Evaluator:
    def __init__(self, values: Mapping[str, Any], backend: Backend, precise: bool, sizes: Mapping[str, int]) -> None:
        self.values, self.backend, self.precise, self.sizes = values, backend, precise, sizes

    def value(self, node: ast.expr) -> Any:
        try:
            return self._value(node)
        except BadReference:
            raise
        except Exception as error:
            raise BadReference(f"reference: `{ast.unparse(node)}` failed: {error}") from error

    def _value(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                if name in self.values:
                    return self.values[name]
                return self.sizes.get(name, math.inf)
            case ast.BinOp(left=left, op=ast.MatMult(), right=right):
                return self.backend.call("matmul", (self._value(left), self._value(right)), {})
            case ast.BinOp(left=left, op=op, right=right):
                return _BINARY[type(op)](self._value(left), self._value(right))
            case ast.UnaryOp(operand=operand):
                return -self._value(operand)
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return _COMPARE[type(op)](self._value(left), self._value(right))
            case ast.Attribute(value=value, attr="values" | "indices" as part):
                return getattr(self._value(value), part)
            case ast.Attribute(value=value):
                return self.backend.call("transpose", (self._value(value), -2, -1), {})
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                return tuple(self._value(e) for e in elements)
            case ast.Subscript(value=value, slice=index):
                parts = index.elts if isinstance(index, ast.Tuple) else [index]
                return self._indexed(self._value(value), parts)
            case ast.Call(args=args, keywords=keywords):
                owner, attr = _function(node)
                options = {k.arg: self._option(k.value) for k in keywords if k.arg}
                if owner is None:
                    return self.backend.call(attr, [self._value(a) for a in args], options)
                tensor = self._value(owner)
                wanted = CASTS.get(attr) or (_dtype(args[0]) if attr == "to" else None)
                if wanted is not None:
                    return self._cast(tensor, wanted)
                return self.backend.call(attr, [tensor, *(self._value(a) for a in args)], options)
            case _:
                raise BadReference(f"reference: `{ast.unparse(node)}` is not part of the language")

    def _option(self, node: ast.expr) -> Any:
        return self.sizes[node.id] if isinstance(node, ast.Name) and node.id in self.sizes else ast.literal_eval(node)

    def _indexed(self, tensor: Any, parts: Sequence[ast.expr]) -> Any:
        names = frozenset(self.sizes)
        if all(_is_index(part, names) for part in parts):
            return tensor[tuple(_index(part, self.sizes) for part in parts)]
        index: list[Any] = []
        for axis, part in enumerate(parts):
            if isinstance(part, ast.Slice) and part.lower is part.upper is part.step is None:
                index.append(slice(None))
                continue
            if _is_index(part, names):
                raise BadReference(f"`{ast.unparse(part)}`: beside a tensor an index is a tensor or `:`")
            numbers = self._value(part)
            # Plain evaluation is timed, and the same data has been looked at before.
            if self.precise:
                low, high = self.backend.index_range(numbers)
                extent = int(tensor.shape[axis])
                if low < -extent or high >= extent:
                    wrong = high if high >= extent else low
                    raise BadReference(f"`{ast.unparse(part)}` has an element {wrong}, the dimension has {extent}")
            index.append(numbers)
        return self.backend.take(tensor, tuple(index))

    def _cast(self, tensor: Any, wanted: str) -> Any:
        bits, narrow = _bits(tensor, self.backend), wanted in ("float16", "bfloat16")
        if bits and wanted in CASTS.values():
            if self.precise and (narrow or (wanted == "float32" and bits == 64)):
                return tensor  # nothing is rounded on the way to the values to compare with
            if not self.precise and not narrow and bits == 8:
                return self.backend.cast(tensor, "bfloat16")
            if not self.precise and not narrow:
                return tensor  # the library's own product is raced in the types of the inputs
        return self.backend.cast(tensor, "float32" if narrow and self.precise else wanted)


def _function(call: ast.Call) -> tuple[ast.expr | None, str]:
    """The tensor that a method belongs to, None for a function (`torch.exp`, `F.silu` or plain `exp`), and the name."""
    match call.func:
        case ast.Attribute(value=owner, attr=attr):
            return (None if ast.unparse(owner) in _MODULES else owner), attr
        case ast.Name(id=name):
            return None, name
        case _:
            raise BadReference(f"reference: `{ast.unparse(call)}` is not part of the language of references")


def _small(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float) and abs(node.value) <= 8


def _is_plain(node: ast.expr) -> bool:
    match node:
        case ast.Constant(value=bool() | int() | float() | str()):
            return True
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float())):
            return True
        case ast.Tuple(elts=elements):
            return all(_is_plain(e) for e in elements)
        case _:
            return False


def _is_index(node: ast.expr, sizes: Set[str]) -> bool:
    """Whether an index is no tensor: a number, a slice, None or `...`."""
    if isinstance(node, ast.Slice):
        ends = (node.lower, node.upper, node.step)
        return all(e is None or (isinstance(e, ast.Name) and e.id in sizes) or _is_index(e, sizes) for e in ends)
    match node:
        case ast.Constant(value=int() | None) | ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int())):
            return True
        case ast.Constant(value=value):
            return value is ...
        case _:
            return False


def _index(node: ast.expr, sizes: Mapping[str, int]) -> Any:
    if isinstance(node, ast.Slice):
        return slice(*(None if p is None else _index(p, sizes) for p in (node.lower, node.upper, node.step)))
    if isinstance(node, ast.Name):
        return sizes[node.id]
    return ast.literal_eval(node)


def _dtype(node: ast.expr) -> str | None:
    match node:
        case ast.Attribute(value=ast.Name(id="torch"), attr=name) if name in DTYPES:
            return name
        case _:
            return None
