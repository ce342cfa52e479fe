"""Kernels without what is said about tags: what is lowered, estimated, and checked for all else."""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir import nodes as ir
from tilewright.source import Span


def without_tags(kernel: ir.Kernel) -> ir.Kernel:
    """The kernel without its statements about tags; branches and loops that hold nothing else go too."""
    return kernel.with_body(_erased(kernel.body)) if has_tags(kernel) else kernel


def without_other_expectations(kernel: ir.Kernel, span: Span) -> ir.Kernel:
    """The kernel without the expectations that stand elsewhere than at `span`."""

    def change(stmt: ir.Stmt) -> ir.Block | None:
        return () if isinstance(stmt, ir.ExpectTags) and stmt.span != span else None

    return kernel.with_body(ir.rewrite(kernel.body, change))


def has_tags(kernel: ir.Kernel) -> bool:
    """True when the kernel says something about tags."""
    return any(isinstance(s, ir.Tag | ir.ExpectTags) for s in ir.walk(kernel.body))


def _erased(block: ir.Block) -> ir.Block:
    out: list[ir.Stmt] = []
    for stmt in block:
        match stmt:
            case ir.Tag() | ir.ExpectTags():
                continue
            case ir.While():
                out.append(replace(stmt, body=_erased(stmt.body)))
            case ir.For() | ir.Tiles() | ir.Programs() | ir.Pipeline():
                body = _erased(stmt.body)
                if body or not stmt.body:
                    out.append(replace(stmt, body=body) if body != stmt.body else stmt)
            case ir.If():
                then, orelse = _erased(stmt.then), _erased(stmt.orelse)
                if then or orelse or not (stmt.then or stmt.orelse):
                    out.append(
                        replace(stmt, then=then, orelse=orelse) if (then, orelse) != (stmt.then, stmt.orelse) else stmt
                    )
            case ir.Roles():
                out.append(replace(stmt, roles=tuple(replace(r, body=_erased(r.body)) for r in stmt.roles)))
            case _:
                out.append(stmt)
    return tuple(out)
