"""Scalar expressions as text: for the device (Gluon, 32-bit integers) and for the host (Python).

Tilewright's division and remainder round towards minus infinity, the device's towards zero. The two agree for operands
that are not negative, which `nonnegative_variables` establishes for most; where it cannot, the text corrects the
result. Divisors are taken to be positive, as the verifier requires.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.lower.errors import LoweringError
from tilewright.source import Span

_BOOLEAN = frozenset(("<", "<=", "==", "!=", "and", "or"))
# Binding strength of Python's operators; an atom binds strongest.
_STRENGTH = {"<": 4, "<=": 4, "==": 4, "!=": 4, "^": 6, "&": 7, "+": 8, "-": 8, "*": 9, "//": 9, "%": 9}
_ATOM = 20
_INT32 = 2**31


@dataclass(frozen=True)
class Scalars:
    """Writes expressions: `rename` gives the generated name of a size or variable, `nonnegative` the variables >= 0."""

    rename: Callable[[str], str]
    nonnegative: frozenset[str]

    def text(self, e: ex.Expr, least: int = 0) -> str:
        """Device text of an integer value, in brackets when it binds weaker than `least`."""
        if _is_boolean(e):
            return f"gl.to_tensor({self.condition(e)}).to(gl.int32)"
        text, strength = self._integer(e)
        return f"({text})" if strength < least else text

    def condition(self, e: ex.Expr, least: int = 0) -> str:
        """Device text of a truth value."""
        match e:
            case ex.Int(value):
                return str(bool(value))
            case ex.Not(arg):
                text, strength = f"not {self.condition(arg, 4)}", 3
            case ex.Bin("and" | "or" as op, lhs, rhs):
                sign = "&" if op == "and" else "|"
                text, strength = f"{self.condition(lhs, _ATOM)} {sign} {self.condition(rhs, _ATOM)}", 5
            case ex.Bin("<" | "<=" | "==" | "!=" as op, lhs, rhs):
                text, strength = f"{self.text(lhs, 5)} {op} {self.text(rhs, 5)}", 4
            case _:
                text, strength = f"{self.text(e, 5)} != 0", 4
        return f"({text})" if strength < least else text

    def is_nonnegative(self, e: ex.Expr) -> bool:
        """Whether the value is certainly >= 0."""
        return is_nonnegative(e, self.nonnegative)

    def wide(self, e: ex.Expr) -> str:
        """Device text of a 64-bit value; products are computed in 64 bits."""
        match e:
            case ex.Bin("*", lhs, rhs):
                return f"{self.wide(lhs)} * {self.text(rhs, 10)}"
            case _:
                return f"gl.to_tensor({self.text(e)}).to(gl.int64)"

    def _integer(self, e: ex.Expr) -> tuple[str, int]:
        match e:
            case ex.Int(value):
                return str(value), _ATOM if value >= 0 else 8
            case ex.Size(name) | ex.Var(name):
                return self.rename(name), _ATOM
            case ex.Bin("min" | "max" as op, lhs, rhs):
                return f"{op}({self.text(lhs)}, {self.text(rhs)})", _ATOM
            case ex.Bin("cdiv", lhs, rhs):
                up = (
                    ex.add(lhs, ex.Int(rhs.value - 1))
                    if isinstance(rhs, ex.Int)
                    else ex.sub(ex.add(lhs, rhs), ex.Int(1))
                )
                return self._quotient(up, rhs, self.is_nonnegative(lhs))
            case ex.Bin("//", lhs, rhs):
                return self._quotient(lhs, rhs, self.is_nonnegative(lhs))
            case ex.Bin("%", lhs, ex.Int(value)) if value & (value - 1) == 0 and value > 0:
                # Right for negative values too, and one instruction.
                return f"{self.text(lhs, 8)} & {value - 1}", 7
            case ex.Bin("%", lhs, rhs):
                divisor = self.text(rhs, 10)
                text = f"{self.text(lhs, 9)} % {divisor}"
                return (text if self.is_nonnegative(lhs) else f"({text} + {divisor}) % {divisor}"), 9
            case ex.Bin(op, lhs, rhs):
                mine = _STRENGTH[op]
                return f"{self.text(lhs, mine)} {op} {self.text(rhs, mine + 1)}", mine
            case ex.Item(tensor, index):
                # Only the value of an assignment is an element of a tensor, and `FunctionEmitter` writes that.
                raise AssertionError(f"{tensor} is read by a statement of its own, not at {index} in an expression")
            case ex.Not():
                raise AssertionError("a truth value is written by `condition`")

    def _quotient(self, lhs: ex.Expr, rhs: ex.Expr, nonnegative: bool) -> tuple[str, int]:
        dividend, divisor = self.text(lhs, 9), self.text(rhs, 10)
        if nonnegative:
            return f"{dividend} // {divisor}", 9
        # Exact once the remainder towards minus infinity is taken off.
        return f"({dividend} - ({dividend} % {divisor} + {divisor}) % {divisor}) // {divisor}", 9


def host(e: ex.Expr, rename: Callable[[str], str] = str) -> str:
    """Python text of an expression over sizes."""
    match e:
        case ex.Int(value):
            return str(value) if value >= 0 else f"({value})"
        case ex.Size(name) | ex.Var(name):
            return rename(name)
        case ex.Not(arg):
            return f"(not {host(arg, rename)})"
        case ex.Item(tensor):
            raise AssertionError(f"the host knows no elements of {tensor}")
        case ex.Bin("min" | "max" as op, lhs, rhs):
            return f"{op}({host(lhs, rename)}, {host(rhs, rename)})"
        case ex.Bin("cdiv", lhs, rhs):
            return f"(-(-{host(lhs, rename)} // {host(rhs, rename)}))"
        case ex.Bin("and" | "or" as op, lhs, rhs):
            return f"(bool({host(lhs, rename)}) {op} bool({host(rhs, rename)}))"
        case ex.Bin(op, lhs, rhs):
            return f"({host(lhs, rename)} {op} {host(rhs, rename)})"


def is_nonnegative(e: ex.Expr, variables: frozenset[str]) -> bool:
    """Whether the value is certainly >= 0, given the variables that are."""
    match e:
        case ex.Int(value):
            return value >= 0
        case ex.Not():
            return True
        case ex.Size(name, least):
            return least >= 0 or name in variables
        case ex.Var(name):
            return name in variables
        case ex.Bin("%"):
            return True
        case ex.Bin("max", lhs, rhs):
            return is_nonnegative(lhs, variables) or is_nonnegative(rhs, variables)
        case ex.Bin("//", lhs, _):
            return is_nonnegative(lhs, variables)
        case ex.Bin("-") | ex.Item():
            return False
        case ex.Bin(op, lhs, rhs):
            return op in _BOOLEAN or (is_nonnegative(lhs, variables) and is_nonnegative(rhs, variables))


def nonnegative_variables(block: ir.Block, assumptions: tuple[ir.Assumption, ...] = ()) -> frozenset[str]:
    """Scalar variables of a block, and scalar arguments, that are >= 0 wherever they have a value.

    Starts from all and drops those with an assignment that may be negative, until none is left to drop: by induction
    over the assignments of a run, the rest never become negative.
    """
    values: dict[str, list[ex.Expr]] = {}
    for stmt in ir.walk(block):
        match stmt:
            case ir.Assign(dst=name, value=value) | ir.For(var=name, lo=value):
                values.setdefault(name, []).append(value)
            case ir.Programs(var=name):
                values.setdefault(name, [])
            case _:
                pass
    assumed = frozenset(n for a in assumptions for n in _assumed_nonnegative(a.expr))
    result = frozenset(values) | assumed
    while True:
        kept = assumed | {n for n in result if all(is_nonnegative(v, result) for v in values.get(n, ()))}
        if kept == result:
            return result
        result = kept


def _assumed_nonnegative(e: ex.Expr) -> Iterator[str]:
    match e:
        case ex.Bin("and", lhs, rhs):
            yield from _assumed_nonnegative(lhs)
            yield from _assumed_nonnegative(rhs)
        case ex.Bin("<", ex.Int(value), ex.Size(name)) if value >= -1:
            yield name
        case ex.Bin("<=", ex.Int(value), ex.Size(name)) if value >= 0:
            yield name
        case _:
            pass


def check_literals(e: ex.Expr, span: Span) -> None:
    """LoweringError for a constant that 32-bit scalars cannot hold."""
    for part in ex.walk(e):
        if isinstance(part, ex.Int) and not -_INT32 <= part.value < _INT32:
            raise LoweringError(f"the constant {part.value} does not fit the 32-bit scalars of a kernel", span)


def _is_boolean(e: ex.Expr) -> bool:
    return isinstance(e, ex.Not) or (isinstance(e, ex.Bin) and e.op in _BOOLEAN)
