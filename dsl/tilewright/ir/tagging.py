"""Statements about tags: what a tile's elements stand for, and what must hold of that. Nothing of it is executed.

Expressions inside are over the parameters of the lambda, called `~0`, `~1`, …, over its mentions of tags, called `?0`,
`?1`, … in the order in which they stand, and over the scalars of the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from tilewright.ir import expr as ex
from tilewright.ir.base import BufRef, Stmt
from tilewright.ir.expr import Expr, Var

Holder = str | BufRef
"""What has elements with tags: a register tile by name, or a stage of shared memory."""


@dataclass(frozen=True, slots=True)
class TagUse:
    """The mention `of[index].tag` or, with `thread`, `of.at(warp, lane, register).tag`.

    `index` is over the parameters of the lambda and constants. `label` is what the source calls `of`.
    """

    of: Holder
    tag: str
    index: tuple[Expr, ...]
    thread: bool = False
    label: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Tag(Stmt):
    """From here on element (`~0`, `~1`, …) of `of` carries these tags beside its others; equal names are replaced.

    The values are those of all mentions before the statement. `names` are what the source calls the parameters.
    """

    of: Holder
    tags: tuple[tuple[str, Expr], ...]
    uses: tuple[TagUse, ...] = ()
    names: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class ExpectTags(Stmt):
    """`cond` holds for all values of the `params` parameters for which every mentioned element exists.

    `names` are what the source calls the parameters. `begins`: where they begin for what is said of a piece of a tile.
    """

    params: int
    cond: Expr
    uses: tuple[TagUse, ...]
    names: tuple[str, ...] = field(default=(), compare=False)
    begins: tuple[int, ...] = field(default=(), compare=False)

    def whole(self, values: Sequence[int]) -> tuple[int, ...]:
        """Values of the parameters as the source counts them, in the whole tile."""
        return tuple(v + b for v, b in zip(values, self.begins or (0,) * len(values), strict=True))


Tagging = Tag | ExpectTags


def parameter(number: int) -> Var:
    """A parameter of a lambda."""
    return Var(f"~{number}")


def mention(number: int) -> Var:
    """A mention of a tag."""
    return Var(f"?{number}")


def in_order(exprs: Iterable[Expr], uses: tuple[TagUse, ...]) -> tuple[tuple[Expr, ...], tuple[TagUse, ...]]:
    """The expressions and their mentions, numbered in the order in which they stand, each once."""
    exprs = tuple(exprs)
    order: dict[TagUse, int] = {}
    new: dict[str, Expr] = {}
    for e in exprs:
        for part in ex.walk(e):
            if isinstance(part, Var) and part.name.startswith("?"):
                use = uses[int(part.name[1:])]
                new[part.name] = mention(order.setdefault(use, len(order)))
    return tuple(ex.substitute(e, new) for e in exprs), tuple(order)


def moved(stmt: Tagging, change: Callable[[Holder], Holder]) -> Tagging:
    """The statement about what `change` makes of each tile and stage in it."""
    uses = tuple(replace(u, of=change(u.of)) for u in stmt.uses)
    return replace(stmt, of=change(stmt.of), uses=uses) if isinstance(stmt, Tag) else replace(stmt, uses=uses)


def holders(stmt: Tagging) -> tuple[Holder, ...]:
    """Every tile and stage that the statement speaks of."""
    return tuple(dict.fromkeys((*((stmt.of,) if isinstance(stmt, Tag) else ()), *(u.of for u in stmt.uses))))


def displaced(stmt: Tag) -> frozenset[str]:
    """The tags that the statement gives as those that the element has, plus or minus something that mentions no tag.

    These say how far elements are moved on purpose. Unlike any other tag they cannot hide what coordinates show.
    """
    return frozenset(name for name, value in stmt.tags if _is_displaced(stmt, name, value))


def _is_displaced(stmt: Tag, name: str, value: Expr) -> bool:
    while isinstance(value, ex.Bin) and value.op in ("+", "-"):
        if not _mentions(value.rhs):
            value = value.lhs
        elif value.op == "+" and not _mentions(value.lhs):
            value = value.rhs
        else:
            return False
    if not isinstance(value, Var) or not value.name.startswith("?"):
        return False
    use = stmt.uses[int(value.name[1:])]
    here = tuple(parameter(i) for i in range(len(stmt.names)))
    return (use.of, use.tag, use.index, use.thread) == (stmt.of, name, here, False)


def _mentions(expr: Expr) -> bool:
    return any(name.startswith("?") for name in ex.names(expr))


def source(expr: Expr, uses: Sequence[TagUse], holder: Callable[[Holder], str], params: Mapping[str, str]) -> str:
    """Source text of an expression; `params` names the parameters."""
    named: dict[str, Expr] = {p: Var(text) for p, text in params.items()}
    for number, use in enumerate(uses):
        named[f"?{number}"] = Var(f"{_element(use, holder(use.of), named)}.{use.tag}")
    return ex.show(ex.substitute(expr, named))


def shown(stmt: Tagging, expr: Expr) -> str:
    """An expression of the statement as the source has it, for messages."""
    for i, begin in enumerate(stmt.begins if isinstance(stmt, ExpectTags) else ()):
        if begin:
            expr = _instead(expr, ex.add(parameter(i), ex.Int(begin)), parameter(i))
    named: dict[str, Expr] = {f"~{i}": Var(name) for i, name in enumerate(stmt.names)}
    for number, use in enumerate(stmt.uses):
        named[f"?{number}"] = Var(f"{element(stmt, number)}.{use.tag}")
    return ex.show(ex.substitute(expr, named))


def _instead(expr: Expr, old: Expr, new: Expr) -> Expr:
    """`expr` with one expression for another."""
    if expr == old:
        return new
    match expr:
        case ex.Bin(op, lhs, rhs):
            return ex.Bin(op, _instead(lhs, old, new), _instead(rhs, old, new))
        case ex.Not(arg):
            return ex.Not(_instead(arg, old, new))
        case _:
            return expr


def element(stmt: Tagging, number: int) -> str:
    """The element that a mention speaks of, as the source has it."""
    use = stmt.uses[number]
    return _element(use, use.label, {f"~{i}": Var(name) for i, name in enumerate(stmt.names)})


def thread_of(stmt: Tagging, values: Sequence[int]) -> dict[str, int]:
    """The thread that the first mention of one speaks of, for values of the parameters; empty without one."""
    env = {f"~{i}": v for i, v in enumerate(values)}
    for use in stmt.uses:
        if use.thread:
            return {n: ex.evaluate(e, env) for n, e in zip(("warp", "lane", "register"), use.index, strict=True)}
    return {}


def _element(use: TagUse, holder: str, params: Mapping[str, Expr]) -> str:
    index = ", ".join(ex.show(ex.substitute(e, params)) for e in use.index)
    return f"{holder}.at({index})" if use.thread else f"{holder}[{index}]"


def parameter_names(wanted: Sequence[str], taken: Callable[[str], bool]) -> dict[str, str]:
    """Names for the parameters of a lambda that hide nothing, like those wanted."""
    names: dict[str, str] = {}
    for number, name in enumerate(wanted):
        while taken(name) or name in names.values():
            name += "_"
        names[f"~{number}"] = name
    return names


def outside(index: Expr, shape: Sequence[int], extent: int) -> tuple[tuple[int, ...], int] | None:
    """An element of a tile of `shape` for which `index` is not in [0, extent), and its value; None if there is none.

    Raises EvaluationError where the index has no value.
    """
    used = sorted({int(n[1:]) for n in ex.names(index)})
    for values in product(*(range(shape[axis]) for axis in used)):
        at = ex.evaluate(index, {f"~{axis}": v for axis, v in zip(used, values, strict=True)})
        if not 0 <= at < extent:
            element = [0] * len(shape)
            for axis, v in zip(used, values, strict=True):
                element[axis] = v
            return tuple(element), at
    return None
