"""Contracts that a kernel would need: what to assume of an element of an index tensor so that an index exists."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.problem import Fix

from ..context import KernelContext, Site
from .outcome import assume_text_fix, call_prefix


@dataclass(frozen=True, slots=True)
class Offer:
    """A contract that is missing: the element in words, and the text of the call that states it."""

    element: str
    known: str
    text: str
    fix: Fix | None

    @property
    def sentence(self) -> str:
        """What is missing and what to add."""
        return f"{self.element} is not known to be {self.known}; add {self.text}."


def offered(context: KernelContext, site: Site, index: ex.Expr, extent: ex.Expr | None) -> Offer | None:
    """The contract under which `index`, over sizes and binders, is an element `T[…]` of 0 … `extent` - 1.

    Only the side that does not follow already is offered; `extent` None asks for the lower one alone. None if the
    index is no element, or if it is known to be inside.
    """
    if not isinstance(index, ex.Item):
        return None
    low = ex.Bin("<=", ex.Int(0), index)
    below = not context.decider.proves(site.question(low))
    above = extent is not None and not context.decider.proves(site.question(ex.Bin("<", index, extent)))
    if not below and not above:
        return None
    names, pattern = _pattern(context, index)
    lower, upper = ex.Bin("<=", ex.Int(0), pattern), ex.Bin("<", pattern, extent or ex.Int(0))
    shown = ex.show(pattern)
    if below and above and extent is not None:
        condition, known = f"0 <= {shown} < {ex.show(extent)}", f">= 0 and < {ex.show(extent)}"
    elif below:
        condition, known = ex.show(lower), ">= 0"
    else:
        condition, known = ex.show(upper), f"< {ex.show(extent or ex.Int(0))}"
    prefix = call_prefix(context)
    bound = f"lambda {', '.join(names)}: " if names else ""
    text = f"{prefix}assume({bound}{condition})"
    return Offer(shown, known, text, assume_text_fix(context, text))


def _pattern(context: KernelContext, item: ex.Item) -> tuple[tuple[str, ...], ex.Item]:
    """The element at any index: names for the indices that are not constant, those of the source if it has any."""
    names: list[str] = []
    index: list[ex.Expr] = []
    written = next(
        (
            s.value.index
            for s in ir.walk(context.written.body)
            if isinstance(s, ir.Assign) and isinstance(s.value, ex.Item) and s.value.tensor == item.tensor
        ),
        item.index,
    )
    for at, source in zip(item.index, written, strict=True):
        if isinstance(at, ex.Int):
            index.append(at)
            continue
        wanted = source.name if isinstance(source, ex.Var) and source.name not in names else ""
        names.append(wanted or next(n for n in "ijklmn" if n not in names))
        index.append(ex.Var(names[-1]))
    return tuple(names), ex.Item(item.tensor, tuple(index))
