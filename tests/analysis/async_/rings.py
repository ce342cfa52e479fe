"""Kernels that move tiles through rings, as text: depths that are no powers of two, several rings, loops and roles."""

from __future__ import annotations

from reading import read
from tilewright.expand import expand
from tilewright.ir import nodes as ir

HEADER = """import tilewright as tw
from tilewright import Global, f16

M, N = tw.sizes("M", "N")


@tw.kernel(target="sm_90a", warps=4)
"""


def kernel(text: str) -> ir.Kernel:
    """The explicit kernel of a text."""
    module = read(HEADER + text)
    (unit,) = module.units
    assert unit.kernel is not None and not module.problems and not unit.problems
    return expand(unit.kernel)


def stream(stages: int, *, persistent: bool = True, wrapped: bool = False, loops: int = 1) -> ir.Kernel:
    """One role loads, one stores. `wrapped`: a stage and a phase that wrap by a branch, instead of a counter."""
    s = stages
    count = ["stage = 0", "phase = 0"] if wrapped else ["it = 0"]
    at, phase = ("stage", "phase") if wrapped else (f"it % {s}", f"it // {s} % 2")
    after = ["stage += 1", f"if stage == {s}:", "    stage = 0", "    phase = phase ^ 1"] if wrapped else ["it += 1"]
    store = [
        f"tw.wait(full[{at}], {phase})", f"x = tw.load_shared(ring[{at}])",
        "tw.store(Y.tile((pm * 16, n), (16, 16)), x)", f"tw.arrive(empty[{at}])",
    ]  # fmt: skip
    load = [
        f"tw.wait(empty[{at}], {phase} ^ 1)", f"tw.expect(full[{at}], 512)",
        f"tw.tma_load(X.tile((pm * 16, n), (16, 16)), ring[{at}], full[{at}])",
    ]  # fmt: skip

    def role(name: str, warps: int, body: list[str]) -> list[str]:
        lines = [f'    with tw.role("{name}", warps={warps}):', *(f"        {line}" for line in count)]
        lines.append(f"        for pm in tw.programs(tw.cdiv(M, 16), persistent={persistent}):")
        for _ in range(loops):
            lines += ["            for n in range(0, N, 16):", *(f"                {line}" for line in (*body, *after))]
        return lines

    head = [
        "def stream(X: Global[f16, M, N], Y: Global[f16, M, N]):",
        "    tw.assume(N % 8 == 0)",
        f"    ring = tw.shared(f16, ({s}, 16, 16))",
        f"    full = tw.barrier({s}, arrivals=1)",
        f"    empty = tw.barrier({s}, arrivals=1)",
    ]
    return kernel("\n".join([*head, *role("store", 4, store), *role("load", 1, load)]) + "\n")


def copies_ahead(stages: int) -> ir.Kernel:
    """One role; the first copies in a loop of constant length, cp.async."""
    s = stages
    return kernel(f"""def copies_ahead(X: Global[f16, M, N], Y: Global[f16, M, N]):
    tw.assume(N % 8 == 0)
    ring = tw.shared(f16, ({s}, 16, 16))
    for pm in tw.programs(tw.cdiv(M, 16)):
        for j in range(0, {s - 1}):
            if j * 16 < N:
                tw.cp_async(X.tile((pm * 16, j * 16), (16, 16)), ring[j])
            tw.cp_commit()
        for n in range(0, N, 16):
            tw.cp_wait({s - 2})
            tw.sync()
            x = tw.load_shared(ring[n // 16 % {s}])
            tw.store(Y.tile((pm * 16, n), (16, 16)), x)
            if n + {16 * (s - 1)} < N:
                tw.cp_async(X.tile((pm * 16, n + {16 * (s - 1)}), (16, 16)), ring[(n // 16 + {s - 1}) % {s}])
            tw.cp_commit()
        tw.cp_wait(0)
        tw.sync()
""")


def loads_ahead(stages: int) -> ir.Kernel:
    """One role; the first loads in a loop of constant length, TMA."""
    s = stages
    ahead = f"(n // 16 + {s - 1}) % {s}"
    return kernel(f"""def loads_ahead(X: Global[f16, M, N], Y: Global[f16, M, N]):
    tw.assume(N % 8 == 0)
    ring = tw.shared(f16, ({s}, 16, 16))
    full = tw.barrier({s}, arrivals=1)
    for pm in tw.programs(tw.cdiv(M, 16)):
        for j in range(0, {s - 1}):
            if j * 16 < N:
                tw.expect(full[j], 512)
                tw.tma_load(X.tile((pm * 16, j * 16), (16, 16)), ring[j], full[j])
        for n in range(0, N, 16):
            tw.wait(full[n // 16 % {s}], n // {16 * s} % 2)
            x = tw.load_shared(ring[n // 16 % {s}])
            tw.store(Y.tile((pm * 16, n), (16, 16)), x)
            tw.sync()
            if n + {16 * (s - 1)} < N:
                tw.expect(full[{ahead}], 512)
                tw.tma_load(X.tile((pm * 16, n + {16 * (s - 1)}), (16, 16)), ring[{ahead}], full[{ahead}])
""")


def two_rings(one: int, other: int, *, persistent: bool = True) -> ir.Kernel:
    """Two tensors in rings of different depths."""

    def wait(name: str, depth: int, tensor: str) -> str:
        return f"""
                tw.wait(empty_{name}[it % {depth}], it // {depth} % 2 ^ 1)
                tw.expect(full_{name}[it % {depth}], 512)
                tw.tma_load({tensor}.tile((pm * 16, n), (16, 16)), {name}[it % {depth}], full_{name}[it % {depth}])"""

    def read_(name: str, depth: int, to: str) -> str:
        return f"""
                tw.wait(full_{name}[it % {depth}], it // {depth} % 2)
                {to} = tw.load_shared({name}[it % {depth}])
                tw.arrive(empty_{name}[it % {depth}])"""

    return kernel(f"""def two_rings(X: Global[f16, M, N], W: Global[f16, M, N], Y: Global[f16, M, N]):
    tw.assume(N % 8 == 0)
    one = tw.shared(f16, ({one}, 16, 16))
    other = tw.shared(f16, ({other}, 16, 16))
    full_one = tw.barrier({one}, arrivals=1)
    empty_one = tw.barrier({one}, arrivals=1)
    full_other = tw.barrier({other}, arrivals=1)
    empty_other = tw.barrier({other}, arrivals=1)
    with tw.role("store", warps=4):
        it = 0
        for pm in tw.programs(tw.cdiv(M, 16), persistent={persistent}):
            for n in range(0, N, 16):{read_("one", one, "x")}{read_("other", other, "w")}
                tw.store(Y.tile((pm * 16, n), (16, 16)), x + w)
                it += 1
    with tw.role("load", warps=1):
        it = 0
        for pm in tw.programs(tw.cdiv(M, 16), persistent={persistent}):
            for n in range(0, N, 16):{wait("one", one, "X")}{wait("other", other, "W")}
                it += 1
""")


def three_roles(into: int, out: int, *, persistent: bool = True) -> ir.Kernel:
    """Load, compute, and store through a second ring with fences and bulk stores."""
    s, t = into, out
    grid = f"for pm in tw.programs(tw.cdiv(M, 16), persistent={persistent}):\n            for n in range(0, N, 16):"
    return kernel(f"""def three_roles(X: Global[f16, M, N], Y: Global[f16, M, N]):
    tw.assume(N % 8 == 0)
    ring = tw.shared(f16, ({s}, 16, 16))
    out = tw.shared(f16, ({t}, 16, 16))
    full = tw.barrier({s}, arrivals=1)
    empty = tw.barrier({s}, arrivals=1)
    ready = tw.barrier({t}, arrivals=1)
    free = tw.barrier({t}, arrivals=1)
    with tw.role("compute", warps=4):
        it = 0
        {grid}
                tw.wait(full[it % {s}], it // {s} % 2)
                x = tw.load_shared(ring[it % {s}])
                tw.arrive(empty[it % {s}])
                tw.wait(free[it % {t}], it // {t} % 2 ^ 1)
                tw.store_shared(out[it % {t}], x * 2.0)
                tw.fence_async()
                tw.arrive(ready[it % {t}])
                it += 1
    with tw.role("load", warps=1):
        it = 0
        {grid}
                tw.wait(empty[it % {s}], it // {s} % 2 ^ 1)
                tw.expect(full[it % {s}], 512)
                tw.tma_load(X.tile((pm * 16, n), (16, 16)), ring[it % {s}], full[it % {s}])
                it += 1
    with tw.role("write", warps=1):
        it = 0
        {grid}
                tw.wait(ready[it % {t}], it // {t} % 2)
                tw.tma_store(Y.tile((pm * 16, n), (16, 16)), out[it % {t}])
                tw.tma_store_wait(0)
                tw.arrive(free[it % {t}])
                it += 1
""")
