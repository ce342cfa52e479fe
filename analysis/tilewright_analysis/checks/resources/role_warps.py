"""TW603: roles that the hardware or the back end cannot start.

The number of warps of a kernel and of each role is a power of two; the first role runs on the warps of the kernel;
roles stand in one place, at the top of the body, and have names of their own. wgmma is issued by whole warpgroups, so
a role that uses it has a multiple of 4 warps (PTX ISA, wgmma); so has one that reads tensor memory (PTX ISA,
tcgen05.ld).
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.ir import nodes as ir
from tilewright.source import Span
from tilewright.targets import TARGETS

from ...context import KernelContext
from ...report import Obligation
from ..outcome import proved, refuted

CODE = "TW603"
_WARPGROUP = 4


def check(context: KernelContext) -> Iterator[Obligation]:
    """One obligation for the kernel or for each of its roles."""
    kernel = context.kernel
    groups = [s for s in ir.walk(kernel.body) if isinstance(s, ir.Roles)]
    if not groups:
        yield _outcome(context, "the kernel", kernel.span, _warps("The kernel", kernel.warps, kernel.body))
        return
    roles = [r for g in groups for r in g.roles]
    target = TARGETS.get(kernel.target)
    for i, role in enumerate(roles):
        problem = _warps(f"Role {role.name}", role.warps, role.body)
        if i == 0 and target is not None and not target.has("setmaxnreg"):
            having = ", ".join(t.name for t in TARGETS.values() if t.has("setmaxnreg"))
            problem = problem or f"{target.name} has no roles; targets that do: {having}."
        if i == 0 and role.warps != kernel.warps:
            problem = problem or (
                f"The first role, {role.name}, runs on the {kernel.warps} warps of the kernel, but asks for "
                f"{role.warps}."
            )
        if len(groups) > 1 or groups[0] not in kernel.body:
            problem = problem or "A kernel has its roles in one place, at the top of its body."
        if any(r.name == role.name for r in roles[:i]):
            problem = problem or f"Two roles are called {role.name}."
        yield _outcome(context, f"role {role.name}", role.span, problem)


def _warps(who: str, warps: int, body: ir.Block) -> str:
    if warps < 1 or warps & (warps - 1):
        return f"{who} has {warps} warps; the number of warps is a power of two."
    if warps % _WARPGROUP and any(isinstance(s, ir.TensorLoad) for s in ir.walk(body)):
        return (
            f"{who} reads tensor memory with {warps} warp{'s' if warps > 1 else ''}; each warp reaches 32 of its 128 "
            f"lanes, so it takes whole warpgroups of {_WARPGROUP} warps."
        )
    if warps % _WARPGROUP and any(isinstance(s, ir.Wgmma) for s in ir.walk(body)):
        return (
            f"{who} issues wgmma with {warps} warp{'s' if warps > 1 else ''}; wgmma takes whole warpgroups of "
            f"{_WARPGROUP} warps."
        )
    return ""


def _outcome(context: KernelContext, who: str, span: Span, problem: str) -> Obligation:
    what = f"{who} has a number of warps that can be started"
    if problem:
        return refuted(context, CODE, "resources", what, span, problem)
    return proved(CODE, "resources", what, span, "by inspection")
