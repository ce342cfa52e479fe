"""All single edits of a kernel: each statement deleted, moved, or changed in one number."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from analysis.kernels import synced, x
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.backend_sync import remove_backend_sync
from tilewright.ir.types import BarrierType, SharedType, TensorMemoryType

Path = tuple[int, ...]


def mutants(kernel: ir.Kernel) -> Iterator[tuple[str, ir.Kernel]]:
    """(name, mutant) for each distinct edit; automatic syncs are recomputed."""
    plain = kernel.with_body(remove_backend_sync(kernel.body))
    seen = {plain.body}
    counts = [0]

    def apply(body: ir.Block, at: int, make: ir.Block) -> ir.Block:
        return (*body[:at], *make, *body[at + 1 :])

    def walk(body: ir.Block, rebuild) -> Iterator[tuple[str, ir.Block]]:
        for i, s in enumerate(body):
            for name, make in edits(s, kernel):
                yield f"{name}: {type(s).__name__} #{counts[0]}", rebuild(apply(body, i, make))
            if i + 1 < len(body) and movable(s) and movable(body[i + 1]):
                yield f"swap: {type(s).__name__} #{counts[0]}", rebuild((*body[:i], body[i + 1], s, *body[i + 2 :]))
            counts[0] += 1
            for field in ("body", "then", "orelse"):
                inner = getattr(s, field, None)
                if isinstance(inner, tuple) and not isinstance(s, ir.Roles):
                    yield from walk(
                        inner,
                        lambda new, i=i, s=s, field=field: rebuild(apply(body, i, (replace(s, **{field: new}),))),
                    )
            if isinstance(s, ir.Roles):
                for r, role in enumerate(s.roles):

                    def put(new: ir.Block, r: int = r, i: int = i, s: ir.Roles = s) -> ir.Block:
                        roles = (*s.roles[:r], replace(s.roles[r], body=new), *s.roles[r + 1 :])
                        return rebuild(apply(body, i, (replace(s, roles=roles),)))

                    yield from walk(role.body, put)

    for name, body in walk(plain.body, lambda b: b):
        if body not in seen:
            seen.add(body)
            yield name, synced(kernel.with_body(body))
    for name, kind in kernel.types.items():
        if isinstance(kind, BarrierType):
            changed = replace(kind, arrivals=kind.arrivals + 1)
            yield f"arrivals of {name}", replace(kernel, types={**kernel.types, name: changed})


def movable(s: ir.Stmt) -> bool:
    return not isinstance(
        s,
        ir.Assign
        | ir.For
        | ir.Programs
        | ir.AllocShared
        | ir.AllocBarrier
        | ir.AllocTensor
        | ir.Roles
        | ir.Compute
        | ir.Mma,
    )


def shifted(ref: ir.BufRef, kernel: ir.Kernel) -> ir.BufRef:
    kind = kernel.types[ref.buffer]
    assert isinstance(kind, SharedType | TensorMemoryType)
    return replace(ref, stage=ex.mod(ex.add(ref.stage, ex.Int(1)), ex.Int(kind.stages)))


def next_slot(ref: ir.BarRef, kernel: ir.Kernel) -> ir.BarRef:
    kind = kernel.types[ref.barrier]
    assert isinstance(kind, BarrierType)
    return replace(ref, slot=ex.mod(ex.add(ref.slot, ex.Int(1)), ex.Int(kind.slots)))


def views(view: ir.View) -> Iterator[tuple[str, ir.View]]:
    if len(view.origin) == 2:
        yield "origin swapped", replace(view, origin=view.origin[::-1])
    for i, length in enumerate(view.shape):
        moved = ex.add(view.origin[i], ex.Int(length))
        yield f"axis {i} one tile on", replace(view, origin=(*view.origin[:i], moved, *view.origin[i + 1 :]))
    text = ex.show(view.origin[0]) + ex.show(view.origin[-1])
    for a, b in (("pm", "pn"), ("pn", "pm")):
        if a in text:
            yield f"{a} for {b}", replace(
                view, origin=tuple(ex.substitute(e, {a: ex.Var(b)}) for e in view.origin)
            )  # fmt: skip


def edits(s: ir.Stmt, kernel: ir.Kernel) -> Iterator[tuple[str, ir.Block]]:
    one = ex.Int(1)
    if not isinstance(
        s,
        ir.AllocShared
        | ir.AllocBarrier
        | ir.AllocTensor
        | ir.Roles
        | ir.For
        | ir.Programs
        | ir.Assign
        | ir.Compute
        | ir.SharedLoad
        | ir.TensorLoad
        | ir.Wgmma
        | ir.Mma,
    ):
        yield "delete", ()
    match s:
        case ir.BarrierWait():
            yield "parity flipped", (replace(s, parity=ex.binary("^", s.parity, one)),)
            yield "parity constant", (replace(s, parity=ex.Int(0)),)
            yield "slot", (replace(s, bar=next_slot(s.bar, kernel)),)
        case ir.BarrierArrive():
            yield "slot", (replace(s, bar=next_slot(s.bar, kernel)),)
            yield "twice", (s, s)
        case ir.BarrierExpect(bytes=ex.Int(n)):
            yield "half the bytes", (replace(s, bytes=ex.Int(n // 2)),)
            yield "twice the bytes", (replace(s, bytes=ex.Int(n * 2)),)
            yield "slot", (replace(s, bar=next_slot(s.bar, kernel)),)
        case ir.TmaLoad():
            yield "stage", (replace(s, dst=shifted(s.dst, kernel)),)
            yield "slot", (replace(s, bar=next_slot(s.bar, kernel)),)
            for name, v in views(s.view):
                yield name, (replace(s, view=v),)
        case ir.CpAsync():
            yield "stage", (replace(s, dst=shifted(s.dst, kernel)),)
            for name, v in views(s.view):
                yield name, (replace(s, view=v),)
        case ir.TmaStore() | ir.Store():
            for name, v in views(s.view):
                yield name, (replace(s, view=v),)
        case ir.SharedLoad():
            yield "stage", (replace(s, src=shifted(s.src, kernel)),)
        case ir.Wgmma():
            if isinstance(s.a, ir.BufRef):
                yield "stage of a", (replace(s, a=shifted(s.a, kernel)),)
            yield "stage of b", (replace(s, b=shifted(s.b, kernel)),)
        case ir.Tcgen05():
            yield "stage of a", (replace(s, a=shifted(s.a, kernel)),)
            yield "stage of b", (replace(s, b=shifted(s.b, kernel)),)
            yield "accumulator", (replace(s, acc=shifted(s.acc, kernel)),)
            yield "slot", (replace(s, bar=next_slot(s.bar, kernel)),)
            yield "always adds", (replace(s, accumulate=one),)
            yield "never adds", (replace(s, accumulate=ex.Int(0)),)
            yield "adds late", (replace(s, accumulate=x("64 < k")),)
            yield "completes twice", (s, ir.Tcgen05Commit(s.bar))
        case ir.Tcgen05Commit():
            yield "slot", (replace(s, bar=next_slot(s.bar, kernel)),)
            yield "twice", (s, s)
            yield "arrives at once", (ir.BarrierArrive(s.bar, span=s.span),)
        case ir.TensorLoad():
            yield "stage", (replace(s, src=shifted(s.src, kernel)),)
        case ir.WgmmaWait() | ir.CpWait() | ir.TmaStoreWait():
            yield "one more pending", (replace(s, pending=s.pending + 1),)
            if s.pending:
                yield "one less pending", (replace(s, pending=s.pending - 1),)
        case ir.Assign(value=value) if s.dst in ("it", "n") and not isinstance(value, ex.Int):
            yield "delete", ()
            yield "counts by two", (replace(s, value=ex.add(value, one)),)
        case ir.If():
            yield "always", s.then
            if isinstance(s.cond, ex.Bin) and isinstance(s.cond.rhs, ex.Size):
                yield "bound later", (replace(s, cond=ex.Bin("<", ex.add(s.cond.lhs, ex.Int(32)), s.cond.rhs)),)
                yield "bound earlier", (replace(s, cond=ex.Bin("<=", s.cond.lhs, s.cond.rhs)),)
        case ir.For():
            yield "starts late", (replace(s, lo=ex.add(s.lo, ex.Int(s.step))),)
            yield "ends early", (replace(s, hi=ex.sub(s.hi, ex.Int(s.step))),)
            yield "floor", (replace(s, hi=ex.mul(ex.floordiv(s.hi, ex.Int(s.step)), ex.Int(s.step))),)
        case _:
            pass
