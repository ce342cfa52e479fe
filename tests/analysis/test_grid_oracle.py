"""Random tile maps against enumeration: a proved map is right at all small sizes, a refuted one is wrong at the sizes shown."""

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from analysis import kernels as build
from tilewright.dtypes import f32
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.types import TileType
from tilewright_analysis import KernelReport, check_kernel
from tilewright_analysis.checks import CHECKS

TILE = 4
GRID = tuple(c for c in CHECKS if c.name in ("grid.tile_map", "memory.store_bounds"))
ROWS, COLUMNS = f"cdiv(M, {TILE})", f"cdiv(N, {TILE})"

counts = st.sampled_from([
    f"{ROWS} * {COLUMNS}", f"{COLUMNS} * {ROWS}", f"{ROWS} * {COLUMNS} + 1", f"M // {TILE} * {COLUMNS}", f"{ROWS}", f"{COLUMNS}",
    f"max({ROWS}, {COLUMNS})", f"{ROWS} * {ROWS}", "M * N", f"cdiv(M * N, {TILE * TILE})", f"cdiv({ROWS}, 2) * 2 * {COLUMNS}",
])  # fmt: skip
tiles = st.sampled_from([
    "t", f"t // {COLUMNS}", f"t % {COLUMNS}", f"t // {ROWS}", f"t % {ROWS}", "0", "j", "t + j", "t * 2 + j", "1",
    f"t // (2 * {COLUMNS}) * 2 + t % (2 * {COLUMNS}) % min(2, {ROWS} - t // (2 * {COLUMNS}) * 2)",
    f"t % (2 * {COLUMNS}) // min(2, {ROWS} - t // (2 * {COLUMNS}) * 2)", f"{ROWS} - 1 - t", f"{COLUMNS} - 1 - t % {COLUMNS}",
])  # fmt: skip
loops = st.sampled_from(["1", COLUMNS, ROWS, "2", f"N // {TILE}"])
guards = st.sampled_from(
    ["1", "1", f"t < {ROWS}", f"t // {COLUMNS} < {ROWS}", "j < 1", f"j < {COLUMNS}", f"t % {COLUMNS} == t"]
)
scales = st.sampled_from([TILE, TILE, TILE, TILE // 2, TILE * 2])
assumed = st.sampled_from(
    [(), (), (f"N <= {TILE}",), (f"M % {TILE} == 0", f"N % {TILE} == 0"), ("M == N",), (f"M <= {TILE}",)]
)


def kernel(count: str, row: str, column: str, loop: str, guard: str, scale: int, facts: tuple[str, ...]) -> ir.Kernel:
    store = ir.Store(build.view("OUT", (f"({row}) * {scale}", f"({column}) * {TILE}"), (TILE, TILE)), "x", "direct")
    body = (build.programs("t", count, False, build.for_("j", 0, loop, 1, build.if_(guard, store))),)
    types = {"x": TileType(f32, (TILE, TILE))}
    return build.kernel("map", "sm_80", 4, (build.tensor("OUT", f32, "M", "N"),), body, types, facts)


def faults(k: ir.Kernel, m: int, n: int) -> set[str]:
    """Codes of what goes wrong at one size."""
    sizes = {"M": m, "N": n}
    grid = k.body[0]
    assert isinstance(grid, ir.Programs)
    (loop,) = grid.body
    assert isinstance(loop, ir.For)
    (branch,) = loop.body
    assert isinstance(branch, ir.If)
    (store,) = branch.then
    assert isinstance(store, ir.Store)
    found: set[str] = set()
    written: dict[tuple[int, int], int] = {}
    for t in range(ex.evaluate(grid.count, sizes)):
        for j in range(ex.evaluate(loop.hi, {**sizes, "t": t})):
            env = {**sizes, "t": t, "j": j}
            if not ex.evaluate(branch.cond, env):
                continue
            row, column = (ex.evaluate(o, env) for o in store.view.origin)
            if not (0 <= row < m and 0 <= column < n) or row % TILE or column % TILE:
                found.add("TW301")
            for at in product(range(max(0, row), min(m, row + TILE)), range(max(0, column), min(n, column + TILE))):
                written[at] = written.get(at, 0) + 1
    if any(c > 1 for c in written.values()):
        found.add("TW302")
    if len(written) < m * n:
        found.add("TW303")
    return found


def verdicts(report: KernelReport) -> dict[str, str]:
    return {o.code: o.verdict for o in report.obligations if o.code.startswith("TW3")}


@settings(max_examples=40, deadline=None)
@given(counts, tiles, tiles, loops, guards, scales, assumed)
def test_tile_maps(
    count: str, row: str, column: str, loop: str, guard: str, scale: int, facts: tuple[str, ...]
) -> None:
    k = build_or_none(count, row, column, loop, guard, scale, facts)
    if k is None:
        return
    report = check_kernel(k, checks=GRID)
    decided = verdicts(report)
    for m, n in product(range(1, 14), range(1, 14)):
        if not all(ex.evaluate(a.expr, {"M": m, "N": n}) for a in k.assumptions):
            continue
        try:
            wrong = faults(k, m, n)
        except ex.EvaluationError:
            continue
        assert not {c for c in wrong if decided.get(c) == "proved"}, (m, n, wrong, decided)
    for finding in report.findings:
        if finding.verdict == "refuted" and finding.code.startswith("TW3"):
            assert finding.counterexample is not None
            sizes = finding.counterexample.sizes
            try:
                wrong = faults(k, sizes["M"], sizes["N"])
            except ex.EvaluationError:
                continue  # a divisor is zero at these sizes, which is a fault as well
            assert finding.code in wrong, finding.message


def build_or_none(*arguments: object) -> ir.Kernel | None:
    """The kernel, or None when a constant guard leaves no branch."""
    k = kernel(*arguments)  # type: ignore[arg-type]
    return k if isinstance(k.body[0], ir.Programs) else None
