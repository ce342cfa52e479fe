"""TW012: assumptions that contradict one another. Nothing satisfies them, so everything would be proved."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.parameters import Assumption, Contract
from tilewright.problem import Related

from ...context import KernelContext
from ...integers import Question
from ...report import Obligation
from ..outcome import proved, refuted, unknown

CODE = "TW012"
_NEVER = ex.Int(0)
Said = Assumption | Contract


def check(context: KernelContext) -> Iterator[Obligation]:
    """One obligation for what is assumed of sizes. What is assumed of index tensors gives one if it cannot be."""
    kernel, decider = context.kernel, context.decider

    def of_sizes(some: Sequence[Said]) -> bool | None:
        return decider.possible(Question(_NEVER, tuple(a.expr for a in some)))

    def of_elements(some: Sequence[Said]) -> bool | None:
        functions = replace(decider.functions, contracts=tuple(c for c in some if isinstance(c, Contract)))
        return decider.possible(functions.plain(_first_elements(kernel, some)).question)

    if kernel.assumptions:
        yield _satisfied(context, "sizes", kernel.assumptions, of_sizes)
    if kernel.contracts and of_elements(kernel.contracts) is False:
        yield _satisfied(context, "index tensors", kernel.contracts, of_elements)


def _first_elements(kernel: ir.Kernel, some: Sequence[Said]) -> Question:
    """Whether the first element of every tensor that is spoken of can be nothing at all."""
    ranks = {p.name: len(p.type.shape) for p in kernel.params}
    tensors = dict.fromkeys(i.tensor for c in some for i in ex.items(c.expr))
    first = [ex.Item(t, (ex.Int(0),) * ranks[t]) for t in tensors]
    return Question(_NEVER, (*(a.expr for a in kernel.assumptions), *(ex.Bin("<=", e, e) for e in first)))


def _satisfied(
    context: KernelContext, what: str, all_of_them: Sequence[Said], possible: Callable[[Sequence[Said]], bool | None]
) -> Obligation:
    """Whether some sizes, or some elements, satisfy what is assumed of them."""
    claim = f"the assumptions about {what} do not contradict one another"
    last = max(all_of_them, key=lambda a: a.span)
    answer = possible(all_of_them)
    if answer:
        return proved(CODE, "resources", claim, last.span, "an example")
    if answer is None:
        return unknown(context, CODE, "resources", claim, last.span, f"{what} that satisfy all of them")
    needed = list(all_of_them)
    for one in all_of_them:
        fewer = [a for a in needed if a is not one]
        if fewer and possible(fewer) is False:
            needed = fewer
    needed.sort(key=lambda a: a.span)
    others = " and ".join(f"`{ex.show(a.expr)}`" for a in needed[:-1])
    text = f"No {what} satisfy `{ex.show(needed[-1].expr)}`" + (f" together with {others}" if others else "")
    return refuted(
        context, CODE, "resources", claim, needed[-1].span, f"{text}, so there is nothing to prove or to launch.",
        related=[Related(a.span, "the other assumption") for a in needed[:-1]],
    )  # fmt: skip
