"""Sizes that an assumption makes equal, under one name: dimensions are told apart by the names of their extents.

The engine gets a kernel in which each such size has the name of the first one; what it finds is then about statements
of the kernel as it was given. Kernels that speak of tags keep their names, which are those of tags.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.erase import has_tags
from tilewright.source import Span
from tilewright_analysis.async_.explore import explore
from tilewright_analysis.async_.model import AsyncOutcome, AsyncResult, Budget


def explore_alike(kernel: ir.Kernel, budget: Budget, cancelled: Callable[[], bool]) -> AsyncResult:
    """`explore` for a kernel whose assumptions may make sizes equal."""
    names = equal_sizes(kernel)
    if not names or has_tags(kernel):
        return explore(kernel, budget=budget, cancelled=cancelled)
    body = _renamed(kernel.body, names)
    params = tuple(_renamed(p, names) for p in kernel.params)
    assumptions = (replace(a, expr=ex.substitute(a.expr, names)) for a in kernel.assumptions)
    named = replace(
        kernel,
        params=params,
        body=body,
        sizes=tuple(n for n in kernel.sizes if n not in names),
        assumptions=tuple(a for a in assumptions if not isinstance(a.expr, ex.Int) and not _same(a.expr)),
    )
    result = explore(named, budget=budget, cancelled=cancelled)
    given = {id(new): old for new, old in zip(ir.walk(body), ir.walk(kernel.body), strict=True)}
    subjects = {f"statement {new}": f"statement {id(old)}" for new, old in given.items()}
    return replace(
        result,
        outcomes=tuple(_as_given(o, subjects, names) for o in result.outcomes),
        summands={subjects.get(subject, subject): parts for subject, parts in result.summands.items()},
        places={(id(given[stmt]), buffer): at for (stmt, buffer), at in result.places.items()},
        ends={
            id(given[store]): tuple((replace(end, loop=given[id(end.loop)]), extent) for end, extent in found)
            for store, found in result.ends.items()
        },
        contracts={id(given[product]): over for product, over in result.contracts.items()},
    )


def _as_given(o: AsyncOutcome, subjects: Mapping[str, str], names: Mapping[str, ex.Expr]) -> AsyncOutcome:
    """The outcome for the statement as it was given, with values for all sizes."""
    example = o.counterexample
    if example is not None:
        sizes = dict(example.sizes)
        sizes |= {n: sizes[to.name] for n, to in names.items() if isinstance(to, ex.Size) and to.name in sizes}
        example = replace(example, sizes=sizes)
    return replace(o, subject=subjects.get(o.subject, o.subject), counterexample=example)


def _same(claim: ex.Expr) -> bool:
    return isinstance(claim, ex.Bin) and claim.op == "==" and claim.lhs == claim.rhs


def equal_sizes(kernel: ir.Kernel) -> dict[str, ex.Expr]:
    """For each size that an assumption makes equal to others, the first of them in the order of `kernel.sizes`."""
    first = {name: name for name in kernel.sizes}
    for assumption in kernel.assumptions:
        match assumption.expr:
            case ex.Bin("==", ex.Size(one), ex.Size(other)) if {one, other} <= first.keys():
                kept, gone = sorted((first[one], first[other]), key=kernel.sizes.index)
                first = {name: kept if to == gone else to for name, to in first.items()}
            case _:
                pass
    return {name: ex.Size(to) for name, to in first.items() if name != to}


def _renamed(value: Any, names: Mapping[str, ex.Expr]) -> Any:
    """A part of a kernel with sizes renamed; what has none of them stays the same object."""
    match value:
        case ex.Int() | ex.Size() | ex.Var() | ex.Bin() | ex.Not() | ex.Item():
            return ex.substitute(value, names) if ex.names(value) & names.keys() else value
        case tuple():
            new: tuple[Any, ...] = tuple(_renamed(v, names) for v in value)  # pyright: ignore[reportUnknownVariableType]
            return new if any(a is not b for a, b in zip(new, value, strict=True)) else value  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        case Span():
            return value
        case _ if is_dataclass(value) and not isinstance(value, type):
            parts = {f.name: getattr(value, f.name) for f in fields(value)}
            changed = {n: new for n, v in parts.items() if (new := _renamed(v, names)) is not v}
            return replace(value, **changed) if changed else value
        case _:
            return value
