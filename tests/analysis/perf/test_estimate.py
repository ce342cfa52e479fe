"""The static model against counts made by hand, and against times that were measured."""

from __future__ import annotations

import pytest

from analysis.kernels import cp_async_gemm, fma, kernel, programs, softmax, split_gemm, tensor, view, x
from tilewright.dtypes import f32
from tilewright.ir import nodes as ir
from tilewright.ir.types import TileType
from tilewright_analysis.perf import device_for, estimate
from tilewright_analysis.perf.devices import A100, H100, H200
from tilewright_analysis.perf.resources import measure_resources
from tilewright_analysis.perf.traffic import count_work


def square(n: int) -> dict[str, int]:
    return {"M": n, "N": n, "K": n}


def test_an_elementwise_kernel_moves_each_tensor_once() -> None:
    n = 1_000_001
    result = estimate(fma(), {"N": n})
    assert (result.bytes_read, result.bytes_written) == (8 * n, 4 * n)
    assert result.tiles == -(-n // 1024)


def test_clipped_tiles_count_what_they_hold() -> None:
    result = estimate(fma(block=1024), {"N": 1025})
    assert (result.bytes_read, result.bytes_written) == (8 * 1025, 4 * 1025)


def test_a_product_does_the_work_of_its_padded_tiles() -> None:
    exact, padded = (estimate(split_gemm(), {"M": m, "N": 256, "K": 64}) for m in (128, 129))
    assert exact.flops == 2 * 128 * 256 * 64
    assert padded.flops == 2 * 256 * 256 * 64
    (product,) = exact.products
    assert (product.instr, product.shape, product.executions) == ("wgmma", (128, 256, 64), 1)


def test_l2_traffic_of_a_gemm_is_tiles_times_operands() -> None:
    work = count_work(split_gemm(), square(1024), 132, 50 << 20)
    tiles = (1024 // 128) * (1024 // 256)
    per_tensor = {a.tensor: a.l2 for a in work.accesses}
    assert per_tensor["A"] == tiles * 128 * 1024 * 2
    assert per_tensor["B"] == tiles * 256 * 1024 * 2
    assert per_tensor["C"] == 1024 * 1024 * 2


def test_both_pipelines_move_the_same_bytes() -> None:
    sizes = {"M": 300, "N": 200, "K": 72}
    split = count_work(split_gemm(bm=128, bn=128, bk=32), sizes, 100, 50 << 20)
    single = count_work(cp_async_gemm(bm=128, bn=128, bk=32), sizes, 100, 50 << 20)

    def moved(work: object, tensor: str) -> float:
        return sum(a.l2 for a in work.accesses if a.tensor == tensor)  # type: ignore[attr-defined]

    assert [moved(split, t) for t in "ABC"] == [moved(single, t) for t in "ABC"]
    assert sum(p.flops for p in split.products) == sum(p.flops for p in single.products)


def test_what_fits_the_l2_comes_from_dram_once() -> None:
    result = estimate(split_gemm(), square(2048))
    assert result.bytes_read == 2 * 2048 * 2048 * 2


def test_grouping_programs_saves_dram_traffic() -> None:
    sizes = {"M": 16384, "N": 16384, "K": 2048}
    grouped, rows = (estimate(split_gemm(group=g), sizes) for g in (16, 1))
    assert grouped.bytes_read < 0.7 * rows.bytes_read
    assert grouped.bytes_read >= 2 * 16384 * 2048 * 2


def test_tile_reuse_within_a_wave_is_counted_exactly() -> None:
    # Two programs at a time, row by row: each pair shares its rows of A, and B comes again for each row of tiles.
    kernel_ = split_gemm(bm=128, bn=128, group=1)
    sizes = {"M": 512, "N": 256, "K": 128}
    work = count_work(kernel_, sizes, 2, 1)
    dram = {a.tensor: a.dram for a in work.accesses}
    assert dram["A"] == 512 * 128 * 2
    assert dram["B"] == 4 * 256 * 128 * 2


def test_sampling_keeps_the_totals() -> None:
    n = 3_000_000_000
    work = count_work(fma(), {"N": n}, 132 * 16, 50 << 20)
    assert work.sampled
    assert sum(a.l2 for a in work.accesses) == pytest.approx(12 * n, rel=1e-3)


@pytest.mark.parametrize(
    ("kernel_", "m", "n", "k", "tflops"),
    # docs/measurements.md: one H200, random data, median; where two runs are given there, their mean.
    [
        (split_gemm(), 4096, 4096, 4096, 753),
        (split_gemm(), 8192, 8192, 8192, 792),
        (split_gemm(), 2048, 8192, 8192, 768),
        (split_gemm(), 8192, 8192, 16384, 762),
        (split_gemm(), 1024, 1024, 8192, 186),
        (split_gemm(bn=128, stages=4), 1024, 1024, 8192, 337),
    ],
)
def test_the_prediction_of_a_gemm_is_near_its_measured_rate(
    kernel_: ir.Kernel, m: int, n: int, k: int, tflops: float
) -> None:
    assert estimate(kernel_, {"M": m, "N": n, "K": k}).tflops == pytest.approx(tflops, rel=0.06)


@pytest.mark.parametrize(
    ("kernel_", "sizes", "tbps"),
    [
        (fma(), {"N": 1 << 26}, 4.28),
        (softmax(), {"M": 65536, "N": 1000}, 4.11),
        (softmax(bn=4096), {"M": 32768, "N": 4096}, 4.07),
    ],
)
def test_the_prediction_of_a_streaming_kernel_is_near_its_measured_bandwidth(
    kernel_: ir.Kernel, sizes: dict[str, int], tbps: float
) -> None:
    result = estimate(kernel_, sizes)
    assert result.bound == "DRAM bandwidth"
    assert result.bandwidth / 1e3 == pytest.approx(tbps, rel=0.05)


def test_small_launches_are_bound_by_the_launch() -> None:
    assert estimate(fma(), {"N": 4096}).bound == "launch"


def test_better_kernels_are_predicted_to_be_faster() -> None:
    sizes = square(4096)
    best = estimate(split_gemm(), sizes).microseconds
    for worse in (split_gemm(bm=64, bn=64, warps=4), split_gemm(bn=128), cp_async_gemm(), split_gemm(stages=1)):
        assert estimate(worse, sizes).microseconds > 1.05 * best


def test_a_slower_device_needs_longer() -> None:
    times = [estimate(cp_async_gemm(), square(4096), d).microseconds for d in (H200, H100, A100)]
    assert times == sorted(times)
    assert times[2] > 1.5 * times[0]


def test_occupancy_follows_the_scarcest_resource() -> None:
    gemm = measure_resources(split_gemm(), H200)
    assert (gemm.blocks, gemm.limiter, gemm.threads) == (1, "shared memory", 384)
    assert gemm.accumulators == 128
    assert gemm.shared >= 3 * (128 * 64 + 64 * 256) * 2 + 128 * 256 * 2
    assert gemm.stages == 3
    assert measure_resources(fma(warps=32), H200).blocks <= 2
    assert measure_resources(fma(), H200, registers=128).limiter == "registers"


def test_an_accumulator_beyond_the_registers_of_a_thread_does_not_fit() -> None:
    assert measure_resources(split_gemm(warps=4), H200).blocks == 0


def test_the_last_wave_counts() -> None:
    one_more = estimate(split_gemm(), {"M": 128 * 133, "N": 256, "K": 4096})
    full = estimate(split_gemm(), {"M": 128 * 132, "N": 256, "K": 4096})
    assert full.wave_efficiency == 1.0
    assert one_more.wave_efficiency == pytest.approx(133 / 264)
    assert one_more.microseconds > 1.5 * full.microseconds


def test_every_figure_says_how_it_was_obtained() -> None:
    result = estimate(softmax(), {"M": 4096, "N": 1000})
    assert {"read from DRAM", "predicted time", "registers of a thread", "intensity"} <= {
        f.name for f in result.figures
    }
    assert all(f.how for f in result.figures)


def test_a_branch_that_is_not_taken_moves_nothing() -> None:
    body = (
        programs("i", "cdiv(N, 64)", False,
            ir.If(x("i < 2"), (ir.Load("x", view("X", ("i * 64",), (64,)), 0.0, "direct"),
                                    ir.Store(view("OUT", ("i * 64",), (64,)), "x", "direct"))),
        ),
    )  # fmt: skip
    made = kernel(
        "head", "sm_80", 1, (tensor("X", f32, "N"), tensor("OUT", f32, "N")), body, {"x": TileType(f32, (64,))}
    )
    assert estimate(made, {"N": 64 * 100}).bytes_read == 2 * 64 * 4


def test_devices_are_found_by_name() -> None:
    assert device_for("NVIDIA H200") is H200
    assert device_for("NVIDIA H100 80GB HBM3") is H100
    assert device_for("A100") is A100


def test_a_tile_that_is_loaded_twice_comes_from_dram_once() -> None:
    load = ir.Load("x", view("X", ("i * 64",), (64,)), 0.0, "direct")
    again = ir.Load("y", view("X", ("i * 64",), (64,)), 0.0, "direct")
    store = ir.Store(view("OUT", ("i * 64",), (64,)), "y", "direct")
    types = {"x": TileType(f32, (64,)), "y": TileType(f32, (64,))}
    tensors = (tensor("X", f32, "N"), tensor("OUT", f32, "N"))
    made = kernel("twice", "sm_80", 1, tensors, (programs("i", "cdiv(N, 64)", False, load, again, store),), types)
    work = count_work(made, {"N": 6400}, 100, 1)
    assert sum(a.l2 for a in work.accesses if not a.write) == 2 * 6400 * 4
    assert sum(a.dram for a in work.accesses if not a.write) == 6400 * 4


def test_both_sides_of_a_branch_count_by_their_programs() -> None:
    def load(tile: str) -> tuple[ir.Stmt, ...]:
        at = (f"i * 64 + {0 if tile == 'x' else 1}",)
        return (ir.Load(tile, view("X", at, (64,)), 0.0, "direct"),)

    types = {"x": TileType(f32, (64,)), "y": TileType(f32, (64,))}
    branch = ir.If(x("i < 3"), load("x"), load("y"))
    made = kernel("either", "sm_80", 1, (tensor("X", f32, "N"),), (programs("i", "cdiv(N, 64)", False, branch),), types)
    first, second = count_work(made, {"N": 640}, 100, 1).accesses
    # The last tile begins one element late, so it is clipped by one.
    assert (first.l2, second.l2) == (3 * 64 * 4, (7 * 64 - 1) * 4)


def test_operands_of_mma_are_held_slice_by_slice() -> None:
    shallow, deep = (measure_resources(cp_async_gemm(bk=bk), H200) for bk in (32, 64))
    assert shallow.registers == deep.registers
    assert deep.blocks >= 1
