"""Values relative to references: what happens to a tile if a constant is added to a running maximum.

A *reference* is the result of a maximum (or minimum), one for each row. `x - m` contains minus one m: it has the offset
{m: -1}. Its exponential has the *scale* {m: -1}: it is exp(-m) times a value that m does not change. Products add
scales, sums need equal ones, a logarithm makes an offset of a scale. A result that is right for every choice of
references has neither. (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import inf, log

from tilewright.ir import nodes as ir


class Coefficient(float):
    """A number that has been computed with: equal to those that differ by no more than rounding."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, int | float) and abs(float(self) - float(other)) <= _NEGLIGIBLE

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return 0  # what is equal within a tolerance has no better hash


Form = tuple[tuple[str, float], ...]
"""A sum of references with coefficients, sorted by name. References are named `variable#number`."""

# A constant so small that it only keeps a denominator away from zero.
_TINY = 1e-5
_LN2 = log(2)
_NEGLIGIBLE = 1e-6


@dataclass(frozen=True, slots=True)
class Condition:
    """Which statement made a truth value, inverted or not. `forks`: it compares references, so both cases occur."""

    stmt: int
    inverted: bool = False
    forks: bool = False


@dataclass(frozen=True, slots=True)
class Relative:
    """A tile: the references in its `offset` and its `scale`, at most one of which is not empty.

    `constant`: its only value. `touched`: exponentials relative to references went into it. `lost`: why its scale is
    not known.
    """

    offset: Form = ()
    scale: Form = ()
    constant: float | None = None
    touched: bool = field(default=False)
    lost: str = ""
    condition: Condition | None = None

    @property
    def neutral(self) -> bool:
        """True for zeros and what is as good as zero: they have every scale."""
        return self.constant is not None and abs(self.constant) <= _TINY


DATA = Relative()


class Mismatch(Exception):
    """Two values of different scale are added."""

    def __init__(self, left: Form, right: Form) -> None:
        super().__init__()
        self.left, self.right = left, right


def reference(name: str) -> Relative:
    """The tile that is a reference itself."""
    return Relative(offset=((name, 1.0),))


def plus(one: Form, other: Form, factor: float = 1.0) -> Form:
    """`one + factor * other`."""
    total: dict[str, float] = dict(one)
    for name, coefficient in other:
        total[name] = total.get(name, 0.0) + factor * coefficient
    return tuple(sorted((n, Coefficient(c)) for n, c in total.items() if abs(c) > _NEGLIGIBLE))


def renamed(value: Relative, names: Mapping[str, tuple[str, float]]) -> Relative:
    """The value in other references: each of `names` is that factor times another."""

    def change(form: Form) -> Form:
        result: Form = ()
        for name, coefficient in form:
            new, factor = names.get(name, (name, 1.0))
            result = plus(result, ((new, coefficient * factor),))
        return result

    return replace(value, offset=change(value.offset), scale=change(value.scale))


def product(a: Relative, b: Relative) -> Relative:
    """`a * b`."""
    if any(v.constant == 0 for v in (a, b)):
        return Relative(constant=0.0, touched=a.touched or b.touched)
    if b.constant is not None and a.constant is None:
        return replace(_scaled(a, b.constant), condition=None)
    if a.constant is not None and b.constant is None:
        return replace(_scaled(b, a.constant), condition=None)
    if a.constant is not None and b.constant is not None:
        return Relative(constant=a.constant * b.constant)
    return _plain(a, b, scale=plus(a.scale, b.scale))


def quotient(a: Relative, b: Relative) -> Relative:
    """`a / b`."""
    if a.constant == 0:
        return Relative(constant=0.0, touched=b.touched)
    if b.constant:
        return _scaled(a, 1 / b.constant)
    return _plain(a, b, scale=plus(a.scale, b.scale, -1.0))


def _scaled(value: Relative, factor: float) -> Relative:
    return replace(value, offset=plus((), value.offset, factor) if abs(factor) < inf else ())


def total(a: Relative, b: Relative, sign: float = 1.0) -> Relative:
    """`a + sign * b`. Raises Mismatch if their scales differ and neither is zero."""
    touched = a.touched or b.touched
    if a.constant is not None and b.constant is not None:
        return Relative(constant=a.constant + sign * b.constant, touched=touched)
    if a.neutral and not b.offset:
        return replace(b, touched=touched, constant=None)
    if b.neutral and not a.offset:
        return replace(a, touched=touched, constant=None)
    if a.lost or b.lost:
        return _plain(a, b)
    if a.scale != b.scale:
        raise Mismatch(a.scale, b.scale)
    return _plain(a, b, offset=plus(a.offset, b.offset, sign), scale=a.scale)


def exponential(value: Relative, base: float) -> Relative:
    """`base ** value`."""
    if value.constant is not None:
        return Relative(constant=_power(base, value.constant))
    if value.scale or value.lost:
        return Relative(lost=value.lost or "the exponential of an exponential was taken", touched=True)
    return Relative(scale=plus((), value.offset, log(base)), touched=value.touched or bool(value.offset))


def _power(base: float, exponent: float) -> float:
    try:
        return base**exponent
    except OverflowError:
        return inf


def logarithm(value: Relative, base: float) -> Relative:
    """The logarithm of `value`."""
    if value.lost:
        return value
    return Relative(offset=plus((), value.scale, 1 / log(base)), touched=value.touched)


def power(value: Relative, exponent: float) -> Relative:
    """`value ** exponent`."""
    return Relative(scale=plus((), value.scale, exponent), touched=value.touched, lost=value.lost)


def opaque(op: str, *values: Relative) -> Relative:
    """The result of an operation that respects neither offsets nor scales."""
    lost = next((v.lost for v in values if v.lost), "")
    if any(v.scale for v in values):
        lost = lost or f"{op} was applied to it"
    return Relative(touched=any(v.touched for v in values), lost=lost)


def summed(value: Relative) -> Relative:
    """The sum of lanes."""
    return value if value.constant == 0 else replace(value, offset=(), constant=None)


def chosen(a: Relative, b: Relative) -> Relative | None:
    """Either of two values, element by element; None if they have different scales.

    A constant beside something relative is a guard: for a row without any lane, or a lane that does not count.
    """
    touched = a.touched or b.touched
    if a.constant is not None and a.constant == b.constant:
        return replace(a, touched=touched)
    for one, other in ((a, b), (b, a)):
        if one.constant is not None:
            return replace(other, constant=None, touched=touched, condition=None)
    if a.lost or b.lost:
        return _plain(a, b)
    if a.scale != b.scale:
        return None
    return _plain(a, b, offset=a.offset if a.offset == b.offset else (), scale=a.scale)


def _plain(a: Relative, b: Relative, *, offset: Form = (), scale: Form = ()) -> Relative:
    lost = a.lost or b.lost
    return Relative(
        () if lost else offset, () if lost else scale, None, a.touched or b.touched or bool(scale), lost
    )  # fmt: skip


UNARY: Mapping[str, Callable[[Relative], Relative]] = {
    "exp": lambda v: exponential(v, 2.718281828459045),
    "exp2": lambda v: exponential(v, 2.0),
    "log": lambda v: logarithm(v, 2.718281828459045),
    "log2": lambda v: logarithm(v, 2.0),
    "sqrt": lambda v: power(v, 0.5),
    "rsqrt": lambda v: power(v, -0.5),
    "abs": lambda v: replace(v, offset=()),
    "neg": lambda v: replace(
        v, offset=plus((), v.offset, -1.0), constant=None if v.constant is None else -v.constant
    ),
}  # fmt: skip
SAME: frozenset[ir.ComputeOp] = frozenset((
    "copy", "cast", "expand_dims", "broadcast", "transpose", "permute", "reshape", "convert_layout", "half",
))  # fmt: skip
COMPARISONS: frozenset[ir.ComputeOp] = frozenset(("lt", "le", "gt", "ge", "eq", "ne"))


def words(form: Form) -> str:
    """A scale in words."""
    if not form:
        return "relative to no maximum"
    if len(form) == 1 and form[0][1] in (-1.0, -_LN2):
        return f"relative to {label(form[0][0])}"
    unit = _LN2 if all(abs(c / _LN2 - round(c / _LN2)) < 1e-6 for _, c in form) else 1.0
    return f"with the factor {'exp2' if unit != 1.0 else 'exp'}({offset(form, unit)})"


def offset(form: Form, unit: float = 1.0) -> str:
    """A sum of references in words, in units of a coefficient."""
    parts = " ".join(f"{'-' if c < 0 else '+'} {_times(abs(c) / unit)}{label(n)}" for n, c in form)
    return parts.removeprefix("+ ")


def label(name: str) -> str:
    """A reference as the reader knows it."""
    plain = name.split("#")[0]
    text = "a maximum" if plain.startswith("%") else plain
    return f"{text} of an earlier iteration" if name.endswith("~") else text


def _times(coefficient: float) -> str:
    return "" if abs(coefficient - 1) < 1e-6 else f"{coefficient:g} "
