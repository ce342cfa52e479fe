"""Scalar integer expressions: sizes, program numbers, loop variables and arithmetic over them.

Expressions are immutable, compared by value and built through the functions `add`, `mul`, … which fold constants, so an
expression without symbols is always an `Int`. Division and remainder round towards minus infinity, as in Python.
Comparisons and logic give 0 or 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

T = TypeVar("T")
Op = Literal["+", "-", "*", "//", "%", "min", "max", "cdiv", "^", "<", "<=", "==", "!=", "and", "or"]


# Integer arguments leave room below 2**31, as sizes do: for the overhang of a tile and the last step of a loop.
GREATEST_SCALAR = 2**31 - 2**16
LEAST_SCALAR = -GREATEST_SCALAR


class EvaluationError(Exception):
    """An expression has no value: a name is not bound, or a divisor is zero."""


class _Inner:
    """A node with others inside, which keeps what it was asked before: the same expressions are put into sets, walked
    and substituted over and over. Not part of its value; neither compared nor pickled.
    """

    __slots__ = ("kept_below", "kept_folded", "kept_hash", "kept_names")
    kept_hash: int
    kept_below: tuple[Expr, ...]
    kept_names: frozenset[str]
    kept_folded: bool


@dataclass(frozen=True, slots=True)
class Int:
    """An integer constant."""

    value: int


@dataclass(frozen=True, slots=True)
class Size:
    """A run-time integer that every launch gives: a problem size (at least 1), or an integer argument of the kernel.

    `least` is the least value that a launch may give, before assumptions: `LEAST_SCALAR` for an argument.
    """

    name: str
    least: int = 1


@dataclass(frozen=True, slots=True)
class Var:
    """A scalar variable of the kernel: a loop variable, or a name assigned in the body."""

    name: str


@dataclass(frozen=True, slots=True)
class Bin(_Inner):
    """A binary operation."""

    op: Op
    lhs: Expr
    rhs: Expr

    def __hash__(self) -> int:
        try:
            return self.kept_hash
        except AttributeError:
            return _keep(self, "kept_hash", hash((self.op, self.lhs, self.rhs)))

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Bin) or hash(self) != hash(other):
            return False
        return self.op == other.op and self.lhs == other.lhs and self.rhs == other.rhs


@dataclass(frozen=True, slots=True)
class Not(_Inner):
    """Logical negation: 1 when `arg` is 0, else 0."""

    arg: Expr

    def __hash__(self) -> int:
        try:
            return self.kept_hash
        except AttributeError:
            return _keep(self, "kept_hash", hash(("not", self.arg)))

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Not) or hash(self) != hash(other):
            return False
        return self.arg == other.arg


@dataclass(frozen=True, slots=True)
class Item(_Inner):
    """An element of a tensor of integers, as it is before the kernel starts: `OFFSETS[e]`.

    In statements it is the whole value of an assignment, `e0 = tw.load(OFFSETS[e])`; in data contracts it stands
    anywhere. To the verifier it is an uninterpreted function of its indices.
    """

    tensor: str
    index: tuple[Expr, ...]

    def __hash__(self) -> int:
        try:
            return self.kept_hash
        except AttributeError:
            return _keep(self, "kept_hash", hash((self.tensor, self.index)))

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Item) or hash(self) != hash(other):
            return False
        return self.tensor == other.tensor and self.index == other.index


Expr = Int | Size | Var | Bin | Not | Item


def _keep(node: _Inner, name: str, value: T) -> T:
    object.__setattr__(node, name, value)
    return value


# The same expressions are made again and again, by substitutions above all; one object keeps what all of them ask.
_MADE: dict[tuple[Op, Expr, Expr], Bin] = {}
_MOST_MADE = 1 << 15


def _divide(a: int, b: int) -> int:
    if b == 0:
        raise EvaluationError("division by zero")
    return a // b


def _remainder(a: int, b: int) -> int:
    if b == 0:
        raise EvaluationError("remainder by zero")
    return a % b


OPERATIONS: dict[Op, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": _divide,
    "%": _remainder,
    "min": min,
    "max": max,
    "cdiv": lambda a, b: -_divide(-a, b),
    "^": lambda a, b: a ^ b,
    "<": lambda a, b: int(a < b),
    "<=": lambda a, b: int(a <= b),
    "==": lambda a, b: int(a == b),
    "!=": lambda a, b: int(a != b),
    "and": lambda a, b: int(bool(a) and bool(b)),
    "or": lambda a, b: int(bool(a) or bool(b)),
}


def binary(op: Op, lhs: Expr, rhs: Expr) -> Expr:
    """`lhs op rhs` with constants folded and neutral elements dropped.

    Raises EvaluationError for a constant division by zero.
    """
    if isinstance(lhs, Int) and isinstance(rhs, Int):
        return Int(OPERATIONS[op](lhs.value, rhs.value))
    if isinstance(rhs, Int):
        if rhs.value == 0 and op in ("//", "%", "cdiv"):
            raise EvaluationError("division by zero")
        if rhs.value == 0 and op in ("+", "-", "^"):
            return lhs
        if rhs.value == 1 and op in ("*", "//", "cdiv"):
            return lhs
        if rhs.value == 1 and op == "%":
            return Int(0)
        if rhs.value == 0 and op == "*":
            return rhs
    if isinstance(lhs, Int):
        if lhs.value == 0 and op == "+":
            return rhs
        if lhs.value == 1 and op == "*":
            return rhs
        if lhs.value == 0 and op == "*":
            return lhs
    key = (op, lhs, rhs)
    known = _MADE.get(key)
    if known is None:
        if len(_MADE) >= _MOST_MADE:
            _MADE.clear()
        known = _MADE[key] = Bin(op, lhs, rhs)
    return known


def add(lhs: Expr, rhs: Expr) -> Expr:
    """Sum."""
    return binary("+", lhs, rhs)


def sub(lhs: Expr, rhs: Expr) -> Expr:
    """Difference."""
    return binary("-", lhs, rhs)


def mul(lhs: Expr, rhs: Expr) -> Expr:
    """Product."""
    return binary("*", lhs, rhs)


def floordiv(lhs: Expr, rhs: Expr) -> Expr:
    """Quotient rounded down."""
    return binary("//", lhs, rhs)


def mod(lhs: Expr, rhs: Expr) -> Expr:
    """Remainder with the sign of the divisor."""
    return binary("%", lhs, rhs)


def cdiv(lhs: Expr, rhs: Expr) -> Expr:
    """Quotient rounded up."""
    return binary("cdiv", lhs, rhs)


def less(lhs: Expr, rhs: Expr) -> Expr:
    """1 when lhs < rhs."""
    return binary("<", lhs, rhs)


def negate(arg: Expr) -> Expr:
    """Logical not."""
    return Int(int(not arg.value)) if isinstance(arg, Int) else arg.arg if isinstance(arg, Not) else Not(arg)


def evaluate(expr: Expr, env: Mapping[str, int]) -> int:
    """The value of `expr` with sizes and variables taken from `env` by name, elements of tensors by `item_key`.

    Raises EvaluationError for a name that `env` lacks and for division by zero.
    """
    match expr:
        case Int(value):
            return value
        case Size(name) | Var(name):
            if name not in env:
                raise EvaluationError(f"'{name}' has no value")
            return env[name]
        case Not(arg):
            return int(not evaluate(arg, env))
        case Item(tensor, index):
            key = item_key(tensor, (evaluate(i, env) for i in index))
            if key not in env:
                raise EvaluationError(f"'{key}' has no value")
            return env[key]
        case Bin(op, lhs, rhs):
            return OPERATIONS[op](evaluate(lhs, env), evaluate(rhs, env))


def item_key(tensor: str, index: Iterable[int]) -> str:
    """The name under which an environment holds one element of a tensor: `OFFSETS[3]`."""
    return f"{tensor}[{', '.join(map(str, index))}]"


def items(expr: Expr) -> Iterator[Item]:
    """Elements of tensors in `expr`, outermost first."""
    return (e for e in walk(expr) if isinstance(e, Item))


def substitute(expr: Expr, env: Mapping[str, Expr]) -> Expr:
    """`expr` with names replaced by the expressions in `env`; folds again."""
    match expr:
        case Int():
            return expr
        case Size(name) | Var(name):
            return env.get(name, expr)
        case _ if _is_folded(expr) and env.keys().isdisjoint(names(expr)):
            return expr
        case Not(arg):
            return negate(substitute(arg, env))
        case Item(tensor, index):
            return Item(tensor, tuple(substitute(i, env) for i in index))
        case Bin(op, lhs, rhs):
            return binary(op, substitute(lhs, env), substitute(rhs, env))


def _is_folded(expr: Expr) -> bool:
    """True if folding `expr` gives it back."""
    if not isinstance(expr, _Inner):
        return True
    try:
        return expr.kept_folded
    except AttributeError:
        pass
    match expr:
        case Not(arg):
            folded = _is_folded(arg) and not isinstance(arg, Int | Not)
        case Item(_, index):
            folded = all(_is_folded(i) for i in index)
        case Bin(op, lhs, rhs):
            folded = _is_folded(lhs) and _is_folded(rhs)
            if folded and (isinstance(lhs, Int) or isinstance(rhs, Int)):
                try:
                    folded = binary(op, lhs, rhs) == expr
                except EvaluationError:
                    folded = False
    return _keep(expr, "kept_folded", folded)


def walk(expr: Expr) -> tuple[Expr, ...]:
    """Every sub-expression, the expression itself first."""
    if not isinstance(expr, _Inner):
        return (expr,)
    try:
        return (expr, *expr.kept_below)
    except AttributeError:
        pass
    found: list[Expr] = []
    todo: list[Expr] = [expr]
    while todo:
        e = todo.pop()
        found.append(e)
        if isinstance(e, Bin):
            todo += (e.rhs, e.lhs)
        elif isinstance(e, Not):
            todo.append(e.arg)
        elif isinstance(e, Item):
            todo += reversed(e.index)
    # Without the expression itself, which would otherwise hold on to itself.
    return (expr, *_keep(expr, "kept_below", tuple(found[1:])))


def names(expr: Expr) -> frozenset[str]:
    """Names of the sizes and variables in `expr`."""
    if isinstance(expr, Size | Var):
        return frozenset((expr.name,))
    if not isinstance(expr, _Inner):
        return frozenset()
    try:
        return expr.kept_names
    except AttributeError:
        return _keep(expr, "kept_names", frozenset(e.name for e in walk(expr) if isinstance(e, Size | Var)))


# Binding strength, as in Python; calls bind strongest.
_STRENGTH: dict[str, int] = {
    "or": 1, "and": 2, "<": 4, "<=": 4, "==": 4, "!=": 4, "^": 6, "+": 8, "-": 8, "*": 9, "//": 9, "%": 9,
}  # fmt: skip


def show(expr: Expr, prefix: str = "tw.") -> str:
    """The expression as DSL source text; `prefix` stands before `cdiv`. Reading it back gives an equal expression."""

    def go(e: Expr, least: int) -> str:
        match e:
            case Int(value):
                return str(value) if value >= 0 or least < 9 else f"({value})"
            case Size(name) | Var(name):
                return name
            case Not(arg):
                text = f"not {go(arg, 4)}"
                return f"({text})" if least > 3 else text
            case Item(tensor, index):
                return f"{tensor}[{', '.join(go(i, 0) for i in index)}]"
            case Bin(op, lhs, rhs):
                if op in ("min", "max"):
                    return f"{op}({go(lhs, 0)}, {go(rhs, 0)})"
                if op == "cdiv":
                    return f"{prefix}cdiv({go(lhs, 0)}, {go(rhs, 0)})"
                mine = _STRENGTH[op]
                # Comparisons chain in Python, so a comparison inside a comparison always needs brackets.
                text = f"{go(lhs, mine + (mine == 4))} {op} {go(rhs, mine + 1)}"
                return f"({text})" if mine < least else text

    return go(expr, 0)
