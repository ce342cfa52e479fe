"""Which contractions a stored value must have been through, read off the statements without executing them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tilewright_analysis.async_ import code as c

Dims = frozenset[tuple[int | None, ...]]


def _instructions(role: c.RoleCode) -> Iterator[c.Instr]:
    for o in role.code:
        yield from (*o.then, *o.orelse) if isinstance(o, c.Choice) else (o,)


def contracted_dims(program: c.Program) -> Mapping[tuple[str, int], frozenset[int]]:
    """For each store (also to shared memory), by role name and number: dimensions its value is contracted over.

    A fixpoint over names and buffers of all roles: the dimensions of axes come from views, a product contracts the last
    axis of its left operand, everything else passes its operands' contractions on.
    """
    axes: dict[str, Dims] = {}
    done: dict[str, frozenset[int]] = {}
    needs: dict[tuple[str, int], frozenset[int]] = {}
    changed = True

    def put(name: str, dims: Dims, contracted: frozenset[int]) -> None:
        nonlocal changed
        if not dims <= axes.get(name, frozenset()) or not contracted <= done.get(name, frozenset()):
            axes[name] = axes.get(name, frozenset()) | dims
            done[name] = done.get(name, frozenset()) | contracted
            changed = True

    none: Dims = frozenset()

    def stage(place: c.Place) -> Dims:
        held = axes.get(place.buffer.name, none)
        return frozenset(d[::-1] for d in held) if place.transposed else held

    while changed:
        changed = False
        for role in program.roles:
            # Tiles belong to their role, buffers to all.
            def tile(name: str, role: c.RoleCode = role) -> str:
                return f"{role.name}:{name}"

            for o in _instructions(role):
                match o:
                    case c.TmaLoad(box=box, dst=dst) | c.CpAsync(box=box, dst=dst):
                        put(dst.buffer.name, frozenset({box.dims}), frozenset())
                    case c.Load(box=box, dst=name):
                        put(tile(name), frozenset({box.dims}), frozenset())
                    case c.SharedLoad(dst=name, src=src):
                        put(tile(name), stage(src), done.get(src.buffer.name, frozenset()))
                    case c.SharedStore(dst=dst, src=name):
                        contracted = done.get(tile(name), frozenset())
                        put(dst.buffer.name, axes.get(tile(name), none), contracted)
                        needs[role.name, o.number] = contracted
                    case c.Wgmma() | c.Mma():
                        if isinstance(o, c.Wgmma):
                            left = axes.get(tile(o.a), none) if isinstance(o.a, str) else stage(o.a)
                            right = stage(o.b)
                        else:
                            left, right = axes.get(tile(o.a), none), axes.get(tile(o.b), none)
                        inner = {d[-1] for d in left if d} | {d[0] for d in right if d}
                        over = frozenset(d for d in inner if d is not None)
                        acc = done.get(tile(o.acc), frozenset())
                        rows = {d[0] for d in left} or {None}
                        columns = {d[-1] for d in right} or {None}
                        put(tile(o.dst), frozenset((r, k) for r in rows for k in columns), over | acc)
                    case c.TensorProduct(a=a, b=b, acc=acc):
                        left, right = stage(a), stage(b)
                        inner = {d[-1] for d in left if d} | {d[0] for d in right if d}
                        rows, columns = {d[0] for d in left} or {None}, {d[-1] for d in right} or {None}
                        over = frozenset(d for d in inner if d is not None)
                        put(acc.buffer.name, frozenset((r, k) for r in rows for k in columns), over)
                    case c.TensorLoad(dst=name, src=src):
                        put(tile(name), axes.get(src.buffer.name, none), done.get(src.buffer.name, frozenset()))
                    case c.Compute(writes=name, reads=reads) if name is not None:
                        for r in reads:
                            dims = axes.get(tile(r), none)
                            if o.op.op == "transpose":
                                dims = frozenset(d[::-1] for d in dims)
                            put(tile(name), dims, done.get(tile(r), frozenset()))
                    case c.TmaStore(src=src):
                        needs[role.name, o.number] = done.get(src.buffer.name, frozenset())
                    case c.Store(src=name):
                        needs[role.name, o.number] = done.get(tile(name), frozenset())
                    case _:
                        pass
    return needs
