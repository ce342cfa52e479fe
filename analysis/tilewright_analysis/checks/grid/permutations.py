"""Index tensors whose elements all differ: what they scatter to is written once, and all of it if they fill the range.

`tw.assume(lambda i, j: P[i] != P[j] or i == j)` says that P has no element twice. If its elements are also inside of a
dimension that has as many elements as P, P is a permutation: each place is P[x] for one x.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilewright.ir import expr as ex
from tilewright.problem import Fix

from ...context import KernelContext, Site
from ...integers import Binder, Question
from ..outcome import assume_text_fix, call_prefix


def unpermuted(
    context: KernelContext,
    site: Site,
    index: Sequence[ex.Expr],
    extents: Sequence[ex.Expr],
    known: Sequence[ex.Expr],
    binders: Sequence[Binder],
) -> tuple[ex.Expr, ...]:
    """The index with P[x] as x wherever P is a permutation of its dimension: as x takes all values, so does P[x].

    `known` holds for the elements that are stored, over `binders` and those of `site`; an index that is P[x] in one
    case of a choice counts if they say which.
    """
    names = _distinct_tensors(context)
    result: list[ex.Expr] = []
    for e, extent in zip(index, extents, strict=True):
        item = _item(context, site, e, known, binders)
        if item is not None and item.tensor in names and _fills(context, item.tensor, extent):
            e = item.index[0]
        result.append(e)
    return tuple(result)


def offer(context: KernelContext, index: Sequence[ex.Expr], facts: Sequence[ex.Expr]) -> tuple[str, Fix | None] | None:
    """What to assume so that no two elements go to one place, if an index tensor without that contract decides it."""
    names = _distinct_tensors(context)
    found = (i.tensor for e in (*index, *facts) for i in ex.items(e) if len(i.index) == 1 and i.tensor not in names)
    tensor = next(found, None)
    if tensor is None:
        return None
    text = f"{call_prefix(context)}assume(lambda i, j: {tensor}[i] != {tensor}[j] or i == j)"
    return f"If {tensor} has no element twice, add {text}.", assume_text_fix(context, text)


def _distinct_tensors(context: KernelContext) -> frozenset[str]:
    """One-dimensional tensors that a contract says to have no element twice."""
    return frozenset(name for c in context.kernel.contracts for name in _distinct(c.expr, c.variables))


def _distinct(e: ex.Expr, variables: Sequence[str]) -> Iterator[str]:
    match e:
        case ex.Bin("or", one, other):
            for differ, same in ((one, other), (other, one)):
                match differ, same:
                    case (
                        ex.Bin("!=", ex.Item(tensor, (ex.Var(i),)), ex.Item(again, (ex.Var(j),))),
                        ex.Bin("==", ex.Var(k), ex.Var(m)),
                    ) if tensor == again and i != j and {i, j} == {k, m} and {i, j} <= set(variables):
                        yield tensor
                    case _:
                        pass
        case _:
            return


def _item(
    context: KernelContext, site: Site, e: ex.Expr, known: Sequence[ex.Expr], binders: Sequence[Binder]
) -> ex.Item | None:
    """The element that an index is, where what is known decides a choice between it and something else."""
    if isinstance(e, ex.Item):
        return e if len(e.index) == 1 else None
    if not isinstance(e, ex.Var):
        return None
    for fact in known:
        match fact:
            case ex.Bin("or", otherwise, ex.Bin("==", ex.Var(name), ex.Item() as item)) if name == e.name:
                rest = tuple(k for k in known if e.name not in ex.names(k))
                base = site.question(ex.negate(otherwise))
                own = {b.name for b in binders}
                outer = tuple(b for b in base.binders if b.name not in own)
                question = Question(ex.negate(otherwise), (*base.facts, *rest), (*outer, *binders))
                return item if len(item.index) == 1 and context.decider.proves(question) else None
            case _:
                pass
    return None


def _fills(context: KernelContext, tensor: str, extent: ex.Expr) -> bool:
    """Whether the elements are inside of a dimension that has no more elements than the tensor."""
    (length,) = context.kernel.param(tensor).type.shape
    at = Binder("at", "at", "loop", ex.Int(0), length)
    element = ex.Item(tensor, (ex.Var("at"),))
    inside = ex.Bin("and", ex.Bin("<=", ex.Int(0), element), ex.Bin("<", element, extent))
    as_many = ex.Bin("<=", extent, length)
    return context.decider.proves(Question(as_many, context.assumptions)) and context.decider.proves(
        Question(inside, context.assumptions, (at,))
    )
