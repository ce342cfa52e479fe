"""TW602: more threads or registers than a block may have.

A block has at most 1024 threads; the warps of all roles count, and roles after the first come in whole groups of 4
warps. A thread has at most 255 registers, and all threads together share 65536 (AMD: 512 and 131072, accumulation
registers included). `registers=` of a role is a multiple of 8 from 24 to 256 (PTX ISA, setmaxnreg). A tile that alone
needs more registers than a thread has is refuted; what else lives beside it is an estimate that only the compiler can
settle.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from tilewright.ir import nodes as ir
from tilewright.source import Span
from tilewright.targets import TARGETS, Target

from ...context import KernelContext
from ...report import Obligation
from ..outcome import proved, refuted

CODE = "TW602"
_WARPGROUP = 4
_LEAST, _MOST, _STEP = 24, 256, 8


def check(context: KernelContext) -> Iterator[Obligation]:
    """One obligation for the threads, one for the role budgets, one for the tiles of each role."""
    target = TARGETS.get(context.kernel.target)
    if target is None:
        return
    roles = tuple(r for s in context.kernel.body if isinstance(s, ir.Roles) for r in s.roles)
    yield _threads(context, target, roles)
    if roles:
        yield _budgets(context, target, roles)
        for role in roles:
            limit = role.registers or _left_over(target, roles)
            threads = role.warps * target.warp_size
            yield _tiles(
                context, role.body, threads, min(limit, target.registers_per_thread), f"role {role.name}", role.span
            )
    else:
        share = target.registers_per_sm // (target.warp_size * max(1, context.kernel.warps))
        limit = min(target.registers_per_thread, share, context.kernel.registers or target.registers_per_thread)
        yield _tiles(
            context,
            context.kernel.body,
            context.kernel.warps * target.warp_size,
            limit,
            "the kernel",
            context.kernel.span,
        )


def total_warps(kernel: ir.Kernel) -> int:
    """Warps of a block; those of the roles after the first are padded so that the sum is whole warpgroups (Triton
    3.6).
    """
    roles = tuple(r for s in kernel.body if isinstance(s, ir.Roles) for r in s.roles)
    if len(roles) < 2:
        return kernel.warps
    return -(-sum(r.warps for r in roles) // _WARPGROUP) * _WARPGROUP


def _threads(context: KernelContext, target: Target, roles: tuple[ir.Role, ...]) -> Obligation:
    threads = total_warps(context.kernel) * target.warp_size
    what = f"a block has at most {target.threads_per_block} threads"
    span = roles[0].span if roles else context.kernel.span
    if threads <= target.threads_per_block:
        return proved(CODE, "resources", what, span, f"{threads} threads")
    parts = " + ".join(f"{r.warps} ({r.name})" for r in roles) or str(context.kernel.warps)
    text = (
        f"The kernel has {parts} warps, in whole warpgroups {threads} threads; {target.name} allows "
        f"{target.threads_per_block}."
    )
    return refuted(context, CODE, "resources", what, span, text)


def _budgets(context: KernelContext, target: Target, roles: tuple[ir.Role, ...]) -> Obligation:
    what = f"the register budgets of the roles fit the {target.registers_per_sm} registers of a block"
    for role in roles:
        if role.registers is not None and (role.registers % _STEP or not _LEAST <= role.registers <= _MOST):
            text = (
                f"registers={role.registers} of role {role.name}: a budget is a multiple of {_STEP} from {_LEAST} to "
                f"{_MOST}."
            )
            return refuted(context, CODE, "resources", what, role.span, text)
    used = sum((r.registers or _LEAST) * r.warps * target.warp_size for r in roles)
    if used > target.registers_per_sm:
        text = (
            f"The budgets of the roles add up to {used} registers; {target.name} has {target.registers_per_sm} for a "
            f"block."
        )
        return refuted(context, CODE, "resources", what, roles[0].span, text)
    return proved(CODE, "resources", what, roles[0].span, f"at least {used} of {target.registers_per_sm}")


def _left_over(target: Target, roles: tuple[ir.Role, ...]) -> int:
    """Registers of a thread of the roles without a budget, rounded down as setmaxnreg needs."""
    spent = sum(r.registers * r.warps for r in roles if r.registers is not None)
    sharing = sum(r.warps for r in roles if r.registers is None)
    each = (target.registers_per_sm // target.warp_size - spent) // max(1, sharing)
    return max(_LEAST, each // _STEP * _STEP)


def _tiles(context: KernelContext, block: ir.Block, threads: int, limit: int, who: str, span: Span) -> Obligation:
    what = f"each tile of {who} fits the {limit} registers of a thread"
    largest, name, at = 0, "", span
    for stmt in ir.walk(block):
        dst = getattr(stmt, "dst", None)
        tile = context.tile(dst) if isinstance(dst, str) else None
        if tile is not None:
            registers = -(-prod(tile.shape) * tile.dtype.bytes // (4 * max(1, threads)))
            if registers > largest:
                largest, name, at = registers, str(dst), stmt.span
    if largest <= limit:
        return proved(CODE, "resources", what, span, f"largest tile: {largest} registers")
    tile = context.tile(name)
    text = (
        f"{name} is {tile}: spread over {threads} threads it needs {largest} registers of each thread, and a thread of "
        f"{who} has {limit}. The "
        "rest would spill to memory. Use more warps or a smaller tile."
    )
    return refuted(context, CODE, "resources", what, at, text)
