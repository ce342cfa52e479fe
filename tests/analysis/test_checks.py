"""Each check on a faulty kernel and on its clean twin, built by hand: what the front end would refuse is reached too."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from analysis import kernels as build
from tilewright.dtypes import bf16, f16, f32, i32
from tilewright.ir import nodes as ir
from tilewright.ir.types import BarrierType, SharedType, TileType, Type
from tilewright.layout import Padded, Swizzled, SwizzledShared
from tilewright_analysis import KernelReport, check_kernel
from tilewright_analysis.checks import CHECKS

Change = Callable[[ir.Stmt], ir.Block | None]


def edited(kernel: ir.Kernel, change: Change) -> ir.Kernel:
    return build.synced(kernel.with_body(ir.rewrite(kernel.body, change)))


def retyped(kernel: ir.Kernel, **types: Type) -> ir.Kernel:
    return kernel.with_body(kernel.body, {**kernel.types, **types})


def assigning(name: str, text: str) -> Change:
    return lambda s: (replace(s, value=build.x(text)),) if isinstance(s, ir.Assign) and s.dst == name else None


def counting(text: str, role: str = "") -> Callable[[ir.Kernel], ir.Kernel]:
    """Another number of programs, in one role or everywhere."""

    def change(kernel: ir.Kernel) -> ir.Kernel:
        def programs(s: ir.Stmt) -> ir.Block | None:
            return (replace(s, count=build.x(text)),) if isinstance(s, ir.Programs) else None

        if not role:
            return edited(kernel, programs)
        body = tuple(
            replace(
                s, roles=tuple(replace(r, body=ir.rewrite(r.body, programs)) if r.name == role else r for r in s.roles)
            )
            if isinstance(s, ir.Roles)
            else s
            for s in kernel.body
        )
        return kernel.with_body(body)

    return change


def without(*names: str) -> tuple:
    """The checks except those whose name starts so: they are slow, and have tests of their own."""
    return tuple(c for c in CHECKS if not c.name.startswith(names))


LIGHT = without("asynchronous")


def report(kernel: ir.Kernel) -> KernelReport:
    return check_kernel(kernel, checks=LIGHT)


def refuted(kernel: ir.Kernel) -> set[str]:
    return {o.code for o in report(kernel).obligations if o.verdict == "refuted"}


def gemm(**kwargs: int) -> ir.Kernel:
    return build.split_gemm(**kwargs)


def gemm_sm80(**kwargs: int) -> ir.Kernel:
    kernel = build.cp_async_gemm(**kwargs)
    rows = (ir.Assumption(build.x("K % 8 == 0")), ir.Assumption(build.x("N % 8 == 0")))
    return replace(kernel, assumptions=rows)


@pytest.mark.parametrize(
    "kernel",
    [
        gemm(), gemm(stages=2), gemm(group=1), gemm(bm=64, bn=128, bk=32, warps=4), gemm(persistent=False), gemm_sm80(),
        gemm_sm80(stages=4, group=3), build.fma(), build.fma(block=128), build.softmax(), build.softmax(rows=4, bn=256),
    ],
)  # fmt: skip
def test_clean_kernels_are_proved_completely(kernel: ir.Kernel) -> None:
    done = check_kernel(kernel)
    assert done.verdict == "proved", [f.message for f in done.findings]


GRID_FAULTS = [
    ("fixed group width", lambda k: edited(k, assigning("width", "16")), "TW301", True),
    ("group offset dropped", lambda k: edited(k, assigning("pm", "t % (16 * cdiv(N, 256)) % width")), "TW302", True),
    ("remainder group dropped", counting("cdiv(M, 128) // 16 * 16 * cdiv(N, 256)"), "TW303", True),
    ("rounded down", counting("M // 128 * cdiv(N, 256)"), "TW303", True),
    ("one program too many", counting("cdiv(M, 128) * cdiv(N, 256) + 1"), "TW301", False),
    ("column number not reduced", lambda k: edited(k, assigning("pn", "t // width")), "TW301", True),
    ("roles disagree", counting("cdiv(M, 64) * cdiv(N, 256)", "load"), "TW304", True),
]


@pytest.mark.parametrize(("change", "code", "shows"), [f[1:] for f in GRID_FAULTS], ids=[f[0] for f in GRID_FAULTS])
def test_a_faulty_grid_is_refuted_and_replayed(
    change: Callable[[ir.Kernel], ir.Kernel], code: str, shows: bool
) -> None:
    done = check_kernel(change(gemm()), checks=tuple(c for c in CHECKS if c.family == "grid"))
    finding = next(f for f in done.findings if f.code == code)
    assert finding.verdict == "refuted"
    example = finding.counterexample
    assert example is not None
    assert set(example.sizes) == {"M", "N", "K"}
    assert all(v % 8 == 0 for n, v in example.sizes.items() if n != "M")
    # A program too many stores nothing, so nothing shows.
    assert example.replayed is shows


def test_the_counterexample_of_a_fixed_group_width_is_the_smallest_grid() -> None:
    done = report(edited(gemm(), assigning("width", "16")))
    example = next(f.counterexample for f in done.findings if f.code == "TW301")
    assert example is not None
    assert dict(example.sizes) == {"M": 1, "N": 264, "K": 8}
    assert example.element == (128, 0)


LAYOUT_FAULTS = [
    ("no assumption on rows", replace(gemm(), assumptions=()), "TW501"),
    ("row stride of odd elements", replace(gemm_sm80(), assumptions=()), "TW501"),
    (
        "column-major tensor",
        replace(gemm(), params=(replace(gemm().params[0], type=replace(gemm().params[0].type, strides=(build.x(1), build.x("M")))), *gemm().params[1:])),
        "TW501",
    ),
    ("box and stage differ", retyped(gemm(), a_ring=SharedType(f16, (128, 32), 3, True, Swizzled(64, 16))), "TW502"),
    ("no TMA on the target", replace(gemm(), target="sm_80"), "TW502"),
    ("wgmma on sm_80", replace(gemm(), target="sm_80"), "TW503"),
    ("types of operands differ", retyped(gemm(), b_ring=SharedType(bf16, (64, 256), 3, True, Swizzled(128, 16))), "TW503"),
    ("accumulator of i32", retyped(gemm(), acc=TileType(i32, (128, 256))), "TW503"),
    ("contraction too short", gemm(bk=8), "TW503"),
    ("rows not of a warpgroup", gemm(bm=32, warps=4), "TW503"),
    ("fragment too small", gemm_sm80(bk=8), "TW503"),
    ("copy of 2 bytes", retyped(gemm_sm80(), a_ring=SharedType(f16, (128, 32), 3, True, SwizzledShared(1, 1, 8))), "TW504"),
    ("columns together", retyped(gemm_sm80(), a_ring=SharedType(f16, (128, 32), 3, True, SwizzledShared(8, 2, 4, (0, 1)))), "TW504"),
    ("swizzle wider than a row", retyped(gemm(), a_ring=SharedType(f16, (128, 32), 3, True, Swizzled(128, 16))), "TW505"),
    ("swizzle of other elements", retyped(gemm(), a_ring=SharedType(f16, (128, 64), 3, True, Swizzled(128, 32))), "TW505"),
    ("wgmma on a padded stage", retyped(gemm(), a_ring=SharedType(f16, (128, 64), 3, True, Padded(64, 8, (128, 64)))), "TW505"),
    ("TMA into a transposed stage", retyped(gemm(), a_ring=SharedType(f16, (128, 64), 3, True, Swizzled(128, 16, 2, True))), "TW505"),
    ("extent of 96", retyped(gemm(), c=TileType(f16, (96, 256))), "TW506"),
]  # fmt: skip


@pytest.mark.parametrize(("kernel", "code"), [f[1:] for f in LAYOUT_FAULTS], ids=[f[0] for f in LAYOUT_FAULTS])
def test_a_layout_fault_is_refuted(kernel: ir.Kernel, code: str) -> None:
    done = check_kernel(kernel, checks=tuple(c for c in CHECKS if c.family == "layout"))
    if done.problems:  # the expansion could not even give it layouts
        assert {p.code for p in done.problems} == {code}
    else:
        assert code in {o.code for o in done.obligations if o.verdict == "refuted"}


def roles_with(**change: object) -> ir.Kernel:
    """The split GEMM with other attributes of its first role."""
    kernel = gemm(stages=2)
    return kernel.with_body(
        tuple(
            replace(s, roles=(replace(s.roles[0], **change), *s.roles[1:])) if isinstance(s, ir.Roles) else s
            for s in kernel.body
        )
    )


RESOURCE_FAULTS = [
    ("five stages of 48 KB", gemm(stages=5), "TW601"),
    ("many barriers", retyped(gemm(), full=BarrierType(4000, 1)), "TW601"),
    ("accumulator over the registers", retyped(build.cp_async_gemm(bn=256), acc=TileType(f32, (128, 256))), "TW602"),
    ("budget of 20 registers", roles_with(registers=20), "TW602"),
    ("budgets over the file", roles_with(registers=256), "TW602"),
    ("first role on other warps", roles_with(warps=4), "TW603"),
    ("three warps", replace(build.fma(), warps=3), "TW603"),
    ("roles of one name", roles_with(name="load"), "TW603"),
]


@pytest.mark.parametrize(("kernel", "code"), [f[1:] for f in RESOURCE_FAULTS], ids=[f[0] for f in RESOURCE_FAULTS])
def test_a_resource_fault_is_refuted(kernel: ir.Kernel, code: str) -> None:
    done = check_kernel(kernel, checks=tuple(c for c in CHECKS if c.family == "resources"))
    assert code in {o.code for o in done.obligations if o.verdict == "refuted"} | {p.code for p in done.problems}


def test_a_conversion_that_may_not_fit_is_unknown() -> None:
    kernel = build.cp_async_gemm(stages=5, bm=128, bn=128, bk=64)
    (obligation,) = (o for o in report(kernel).obligations if o.code == "TW601")
    assert obligation.verdict == "unknown"
    assert "layout conversion" in (obligation.finding.message if obligation.finding else "")


@pytest.mark.parametrize(
    ("index", "verdict"), [("it", "refuted"), ("it % 4", "refuted"), ("it % 3", "proved"), ("(it + 7) % 3", "proved")]
)
def test_ring_indices(index: str, verdict: str) -> None:
    def change(s: ir.Stmt) -> ir.Block | None:
        if isinstance(s, ir.TmaLoad) and s.dst.buffer == "a_ring":
            return (replace(s, dst=build.buf("a_ring", index)),)
        return None

    done = check_kernel(edited(gemm(), change), checks=tuple(c for c in CHECKS if c.name == "memory.ring_index"))
    what = f"a_ring[{index}] is one of its 3 stages"
    (verdicts,) = ({o.verdict for o in done.obligations if o.what == what and o.code == "TW202"},)
    assert verdicts == {verdict}


def test_a_load_without_other_is_refuted_at_the_smallest_size() -> None:
    kernel = edited(build.fma(), lambda s: (replace(s, other=None),) if isinstance(s, ir.Load) else None)
    finding = next(f for f in report(kernel).findings if f.code == "TW201")
    assert finding.counterexample is not None
    assert (dict(finding.counterexample.sizes), finding.counterexample.program) == ({"N": 1}, 0)
    assert finding.counterexample.element == (1,)
    assert finding.counterexample.replayed
    divisible = replace(kernel, assumptions=(ir.Assumption(build.x("N % 1024 == 0")),))
    assert report(divisible).verdict == "proved"


def test_shapes_that_fit_only_beside_each_other_are_covered_by_two_stores() -> None:
    def store(first: str, second: str) -> ir.Kernel:
        body = (
            build.programs("i", "cdiv(N, 256)", False,
                ir.Load("x", build.view("X", ("i * 256",), (128,)), 0.0, "direct"),
                ir.Store(build.view("OUT", (first,), (128,)), "x", "direct"),
                ir.Store(build.view("OUT", (second,), (128,)), "x", "direct"),
            ),
        )  # fmt: skip
        params = (build.tensor("X", f32, "N"), build.tensor("OUT", f32, "N"))
        return build.kernel("twice", "sm_80", 4, params, body, {"x": TileType(f32, (128,))}, ("N % 256 == 0",))

    assert refuted(store("i * 256", "i * 256 + 128")) == set()
    # One program that stores twice to a place is open (TW302); what it leaves out is not.
    assert refuted(store("i * 256", "i * 256")) == {"TW303"}
    assert refuted(store("i * 128", "i * 128")) == {"TW303"}
