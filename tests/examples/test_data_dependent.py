"""Examples whose places data decides: proved, the numbers of NumPy at even and odd sizes, compiled."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reading import read
from tilewright.expand import expand
from tilewright.interpret import Schedule, random_arguments, run
from tilewright.interpret.numeric import decode
from tilewright.ir import nodes as ir
from tilewright.lower import compile_lowered, lower
from tilewright.printer import module_source
from tilewright_analysis import check_unit
from tilewright_analysis.driver import Budget

FOLDER = Path(__file__).parents[2] / "examples"
needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs triton (Linux)")
ALL = [
    ("embedding.py", "embedding"),
    ("embedding.py", "embedding_bag"),
    ("embedding.py", "embedding_backward"),
    ("histogram.py", "histogram"),
    ("histogram.py", "bin_of_each"),
    ("moe_gemm.py", "moe_gemm"),
    ("paged_decode.py", "paged_decode"),
]


def unit(file: str, name: str) -> Any:
    module = read((FOLDER / file).read_bytes())
    assert not module.all_problems, module.all_problems
    return next(u for u in module.units if u.name == name)


def explicit(file: str, name: str) -> ir.Kernel:
    kernel = unit(file, name).kernel
    assert kernel is not None
    return expand(kernel)


def bf16(bits: Any) -> Any:
    return decode(bits, next(iter(explicit("moe_gemm.py", "moe_gemm").params)).type.dtype)


@pytest.mark.parametrize(("file", "name"), ALL)
def test_every_obligation_is_proved(file: str, name: str) -> None:
    report = check_unit(unit(file, name), budget=Budget(seconds=200))
    assert report.verdict == "proved", [f.message for f in report.findings]


@pytest.mark.parametrize(("file", "name"), ALL)
def test_what_is_printed_reads_back(file: str, name: str) -> None:
    written = unit(file, name).kernel
    again = read(module_source(written))
    assert not again.all_problems, again.all_problems
    found = again.units[0].kernel
    assert found is not None and (found.body, found.contracts) == (written.body, written.contracts)


@pytest.mark.parametrize("sizes", [(16, 5, 64), (17, 1, 65), (1, 9, 1)])
def test_embedding_takes_rows(sizes: tuple[int, int, int]) -> None:
    kernel = explicit("embedding.py", "embedding")
    table, ids, out = random_arguments(kernel, dict(zip("TVD", sizes, strict=True)), 3)
    run(kernel, [table, ids, out], schedule=Schedule(1, adversarial=True))
    np.testing.assert_array_equal(out, table[ids])


@pytest.mark.parametrize("sizes", [(16, 5, 64, 4), (19, 3, 70, 3), (1, 1, 1, 1)])
def test_embedding_bag_skips_sentinels(sizes: tuple[int, ...]) -> None:
    kernel = explicit("embedding.py", "embedding_bag")
    for seed in range(3):
        table, ids, out = random_arguments(kernel, dict(zip("TVDL", sizes, strict=True)), seed)
        run(kernel, [table, ids, out])
        want = np.where((ids >= 0)[:, :, None], table[np.maximum(ids, 0)], 0).sum(1)
        np.testing.assert_allclose(out, want)


@pytest.mark.parametrize("sizes", [(16, 5, 64), (40, 3, 70), (1, 1, 1)])
def test_the_gradient_of_an_embedding_adds_up_rows_with_one_id(sizes: tuple[int, ...]) -> None:
    kernel = explicit("embedding.py", "embedding_backward")
    ids, rows, table = random_arguments(kernel, dict(zip("TVD", sizes, strict=True)), 3)
    run(kernel, [ids, rows, table], schedule=Schedule(1, adversarial=True))
    want = np.zeros_like(table)
    np.add.at(want, ids, rows)
    np.testing.assert_allclose(table, want, rtol=1e-6)


@pytest.mark.parametrize(("count", "bins"), [(1, 1), (1024, 7), (3000, 40)])
def test_bins_are_counted(count: int, bins: int) -> None:
    kernel = explicit("histogram.py", "histogram")
    x, counts = random_arguments(kernel, {"T": count, "B": bins}, 1)
    run(kernel, [x, counts])
    np.testing.assert_array_equal(counts, np.bincount(x, minlength=bins))


@pytest.mark.parametrize(("count", "edges"), [(1, 1), (50, 1), (50, 33)])
def test_bins_are_found_by_search(count: int, edges: int) -> None:
    rng = np.random.default_rng(edges)
    x, bounds = rng.integers(-9, 9, count).astype(np.int32), np.sort(rng.integers(-9, 9, edges)).astype(np.int32)
    found = np.full(count, -1, np.int32)
    run(explicit("histogram.py", "bin_of_each"), [x, bounds, found])
    np.testing.assert_array_equal(found, np.searchsorted(bounds, x, "right"))


@pytest.mark.parametrize(
    "offsets", [[0, 64, 128], [0, 0, 5, 5, 70], [0, 48, 80], [0, 1], [0, 0, 0, 3]], ids=lambda o: str(o)
)
@pytest.mark.parametrize("depth", [8, 40])
def test_each_expert_multiplies_its_own_rows(offsets: list[int], depth: int) -> None:
    kernel = explicit("moe_gemm.py", "moe_gemm")
    sizes = {"R": offsets[-1], "E": len(offsets) - 1, "K": depth, "N": 72}
    tables = {"OFFSETS": np.asarray(offsets)}
    x, w, off, y = random_arguments(kernel, sizes, 0, tables)
    run(kernel, [x, w, off, y])
    wide = [decode(a, p.type.dtype) for a, p in zip((x, w, y), (kernel.params[i] for i in (0, 1, 3)), strict=True)]
    for e in range(sizes["E"]):
        rows = slice(offsets[e], offsets[e + 1])
        want = wide[0][rows].astype(np.float32) @ wide[1][e].astype(np.float32)
        np.testing.assert_allclose(wide[2][rows], want, rtol=2**-8)


@needs_triton
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(("file", "name"), ALL)
def test_they_compile(file: str, name: str, target: str) -> None:
    module = read((FOLDER / file).read_bytes())
    kernel = next(u for u in module.units if u.name == name).kernel
    assert kernel is not None
    lowered = lower(expand(replace(kernel, target=target)))
    assert compile_lowered(lowered).registers > 0


@pytest.mark.parametrize("sizes", [(2, 2, 5, 3), (1, 1, 1, 1), (3, 1, 4, 2)])
def test_paged_attention_reads_the_pages_of_each_sequence(sizes: tuple[int, ...]) -> None:
    kernel = explicit("paged_decode.py", "paged_decode")
    named = dict(zip("BHPS", sizes, strict=True)) | {"D": 64}
    for seed in range(2):
        arguments = random_arguments(kernel, named, seed)
        rng = np.random.default_rng(seed)
        for a in arguments[:3]:
            a[...] = rng.standard_normal(a.shape)
        q, keys, values, pages, lengths, out = arguments
        run(kernel, arguments)
        for b in range(named["B"]):
            n = int(lengths[b])
            used = pages[b, : -(-n // 16)]
            for h in range(named["H"]):
                k = keys[used, h].reshape(-1, 64)[:n].astype(np.float64)
                v = values[used, h].reshape(-1, 64)[:n].astype(np.float64)
                scores = q[b, h] @ k.T / 8
                weights = np.exp(scores - scores.max(1, keepdims=True))
                want = weights / weights.sum(1, keepdims=True) @ v
                np.testing.assert_allclose(out[b, h], want, rtol=1e-4, atol=1e-5)
