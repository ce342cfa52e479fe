"""Ahead-of-time compilation: what the compiler makes of each kernel, and what happens when it cannot."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from analysis.kernels import cp_async_gemm, fma, softmax, split_gemm, x
from dsl.lower.kernels import (
    biased_gemm,
    column_sums,
    math_functions,
    maxima_of_three_axes,
    rotated,
    scaled_by_tma,
    transposed_plus_sums,
    types_and_casts,
)  # fmt: skip
from tilewright.infer import infer_layouts
from tilewright.ir import nodes as ir
from tilewright.lower import Compiled, Lowered, LoweringError, compile_lowered, lower
from tilewright.lower import compile as compile_module
from tilewright.source import NO_SPAN

needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs triton (Linux)")


def slow(value: str) -> object:
    return pytest.param(value, marks=pytest.mark.slow)


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache of the module's own, so that the tests compile what they say."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TILEWRIGHT_CACHE", str(folder))
        yield folder


def lowered(k: ir.Kernel, *assumptions: str) -> Lowered:
    k = replace(k, assumptions=(*k.assumptions, *(ir.Assumption(x(a)) for a in assumptions)))
    return lower(infer_layouts(k))


def opcodes(compiled: Compiled, pattern: str) -> int:
    return len(re.findall(pattern, compiled.ptx))


@needs_triton
def test_the_split_gemm_fits_its_registers_and_uses_the_hardware() -> None:
    c = compile_lowered(lowered(split_gemm()))
    assert (c.registers, c.stack, c.spill_stores, c.num_warps) == (168, 0, 0, 12)
    assert c.shared <= 227 * 1024
    assert opcodes(c, r"wgmma\.mma_async\S+m64n256k16") and opcodes(c, r"cp\.async\.bulk\.tensor\.2d\.shared")
    assert opcodes(c, r"stmatrix") and "HGMMA" in c.sass and "UTMALDG" in c.sass


@needs_triton
@pytest.mark.parametrize("target", ["sm_80", slow("sm_89"), slow("sm_90a"), "sm_100a"])
def test_the_cp_async_gemm_compiles_for_every_later_target(target: str) -> None:
    c = compile_lowered(lowered(cp_async_gemm(), "K % 8 == 0", "N % 8 == 0"), target)
    assert (c.target, c.stack, c.num_warps) == (target, 0, 4)
    # 16 bytes a copy, zeros where the mask is off: the fourth operand is the number of bytes read.
    assert opcodes(c, r"cp\.async\.cg\.shared\.global \[.*\], \[.*\], 0x10, %r\d+;") == 3 * (4 + 4)
    assert opcodes(c, r"ldmatrix\.\S+\.x4") and opcodes(c, r"mma\.sync\.aligned\.m16n8k16")
    assert opcodes(c, r"st\.global\.v4\.b32") == 16


@needs_triton
@pytest.mark.parametrize("target", ["sm_80", slow("sm_90a")])
@pytest.mark.parametrize("build", [fma, softmax, column_sums, math_functions], ids=lambda b: b.__name__)
def test_elementwise_and_row_kernels_compile(build: Callable[[], ir.Kernel], target: str) -> None:
    c = compile_lowered(lowered(build()), target)
    assert c.registers <= 64 and c.spill_stores == 0


@needs_triton
@pytest.mark.parametrize(
    ("shape", "warps"), [((64, 256, 64), 8), ((256, 128, 64), 8), ((64, 16, 64), 4), ((128, 16, 128), 8)], ids=str
)
def test_every_shape_of_the_split_gemm_that_is_not_refused_compiles(shape: tuple[int, int, int], warps: int) -> None:
    bm, bn, bk = shape
    c = compile_lowered(lowered(split_gemm(2, bm, bn, bk, warps=warps)))
    assert c.spill_stores == 0 and opcodes(c, r"wgmma\.mma_async") > 0


@needs_triton
def test_bulk_copies_work_without_roles() -> None:
    c = compile_lowered(lowered(scaled_by_tma()))
    assert c.num_warps == 4 and opcodes(c, r"cp\.async\.bulk\.tensor") == 2


@needs_triton
@pytest.mark.parametrize(
    "build",
    [types_and_casts, maxima_of_three_axes, transposed_plus_sums, rotated, biased_gemm],
    ids=lambda b: b.__name__,
)
def test_operations_of_every_kind_compile(build: Callable[[], ir.Kernel]) -> None:
    assert compile_lowered(lowered(build()), "sm_80").spill_stores == 0


@needs_triton
def test_tiles_inside_the_tensor_are_moved_in_vectors_at_any_size() -> None:
    c = compile_lowered(lowered(fma()), "sm_80")
    assert opcodes(c, r"ld\.global\.v4\.b32") == 4 and opcodes(c, r"st\.global\.v4\.b32") == 2
    # The tile at the edge, element by element: 2 loads of 8, and one store of 8, for each thread.
    assert opcodes(c, r"ld\.global\.b32") == 16 and opcodes(c, r"st\.global\.b32") == 8


@needs_triton
def test_an_assumption_about_the_row_length_gives_vectors() -> None:
    plain, known = (compile_lowered(lowered(softmax(), *a), "sm_80") for a in ((), ("N % 4 == 0",)))
    assert opcodes(plain, r"ld\.global\.v4") == 0 and opcodes(plain, r"ld\.global\.b32") == 8
    assert opcodes(known, r"ld\.global\.v4") == 2 and opcodes(known, r"ld\.global\.b32") == 0


@needs_triton
def test_the_back_end_puts_the_syncs_that_the_verifier_counts_on() -> None:
    """`ir/backend_sync.py` says that these barriers over the role's 256 threads are there; look for each in the PTX."""
    lines = [line.strip() for line in compile_lowered(lowered(split_gemm())).ptx.splitlines()]
    events: list[str] = []
    for line in lines:
        for name, pattern in (
            ("sync", r"bar\.sync\s+0, 256;"), ("arrive", r"(@%p\d+ )?mbarrier\.arrive\.shared"),
            ("store wait", r"cp\.async\.bulk\.wait_group"), ("write", r"stmatrix|st\.shared\.v"),
            ("fence", r"fence\.proxy\.async"), ("bulk store", r"(@%p\d+ )?cp\.async\.bulk\.tensor\.2d\.global\.shared"),
            ("init", r"(@%p\d+ )?mbarrier\.init"),
        ):  # fmt: skip
            if re.match(pattern, line) and not (name == "write" and events[-1:] == ["write"]):
                events.append(name)
    assert events.count("arrive") == 2 and events.count("write") == 1 and events.count("bulk store") == 1
    for at, event in enumerate(events):
        if event == "arrive":
            assert events[at - 1] == "sync"
        if event == "store wait":
            # The last wait ends the kernel: nothing is left to order.
            assert events[at + 1 :][:1] in (["sync"], [])
        if event == "write":
            assert events[at - 2 : at + 4] == ["store wait", "sync", "write", "fence", "sync", "bulk store"]
    # Barriers are initialized, shown to the asynchronous proxy, and then to all threads.
    last = len(events) - 1 - events[::-1].index("init")
    assert events[last : last + 3] == ["init", "fence", "sync"]


# ---------------------------------------------------------------------------------------------- the cache


@needs_triton
def test_a_kernel_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first = compile_lowered(lowered(fma(512)), "sm_80")

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    assert compile_lowered(lowered(fma(512)), "sm_80") == first
    with pytest.raises(AssertionError, match="compiled again"):
        compile_lowered(lowered(fma(512)), "sm_90a")


@needs_triton
def test_a_cache_entry_that_was_cut_short_is_compiled_again(cache: Path) -> None:
    first = compile_lowered(lowered(fma(256)), "sm_80")
    for path in cache.rglob("*.json"):
        path.write_text(path.read_text()[:100])
    assert compile_lowered(lowered(fma(256)), "sm_80") == first


@needs_triton
def test_a_cache_that_cannot_be_written_costs_only_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "file"))
    assert compile_lowered(lowered(fma(128)), "sm_80").registers > 0


def test_the_cache_lies_where_the_platform_keeps_caches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TILEWRIGHT_CACHE")
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert compile_module.cache_folder() == tmp_path / "tilewright"
    monkeypatch.setattr("sys.platform", "darwin")
    assert compile_module.cache_folder() == Path.home() / "Library" / "Caches" / "tilewright"


# ------------------------------------------------------------------------------------------------ failures


def broken(low: Lowered, old: str, new: str) -> Lowered:
    assert old in low.source
    return replace(low, source=low.source.replace(old, new))


def span_of(k: ir.Kernel, kind: type[ir.Stmt]) -> object:
    return next(s.span for s in ir.walk(k.body) if isinstance(s, kind))


@needs_triton
def test_a_refusal_of_the_compiler_names_the_statement() -> None:
    k = infer_layouts(fma())
    low = broken(lower(k), "p = x * y", "p = x * gl.convert_layout(y, gl.BlockedLayout([1], [32], [4], [0]))")
    with pytest.raises(LoweringError, match=r"the compiler refused the kernel.*Layout mismatch") as caught:
        compile_lowered(low)
    assert caught.value.span == span_of(k, ir.Compute)


@needs_triton
def test_a_message_that_the_compiler_only_prints_is_found_and_placed() -> None:
    k = infer_layouts(split_gemm(bk=64))
    low = broken(lower(k), "gl.float16, [3, 64, 256], SWIZZLE_128B_0", "gl.float16, [3, 32, 256], SWIZZLE_128B_0")
    with pytest.raises(LoweringError) as caught:
        compile_lowered(low)
    assert caught.value.span != NO_SPAN and caught.value.detail


@needs_triton
def test_an_abort_of_the_compiler_is_an_error_and_no_more() -> None:
    low = broken(
        lowered(fma()),
        "from triton.experimental import gluon\n",
        "from triton.experimental import gluon\nimport os; os.abort()\n",
    )
    with pytest.raises(LoweringError, match="the compiler crashed \\(exit status -6\\)"):
        compile_lowered(low)


@needs_triton
def test_a_compiler_that_hangs_is_stopped_with_its_children(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    start = "from triton.experimental import gluon\n"
    child = f"import subprocess\nc = subprocess.Popen(['sleep', '60'])\nopen({str(mark)!r}, 'w').write(str(c.pid))\nc.wait()\n"
    with pytest.raises(LoweringError, match="within 3 seconds"):
        compile_lowered(broken(lowered(fma()), start, start + child), timeout=3)
    with pytest.raises(ProcessLookupError):
        for _ in range(50):
            os.kill(int(mark.read_text()), 0)
            time.sleep(0.1)


@needs_triton
def test_shared_memory_that_the_compiler_adds_counts_against_the_limit() -> None:
    # The operands alone fit 99 KiB; converting a 128 x 128 tile for the store needs scratch memory as well.
    k = cp_async_gemm(stages=2, bm=128, bn=128, bk=128)
    k = replace(k, target="sm_80")
    low = lowered(k, "K % 8 == 0", "N % 8 == 0")
    assert compile_lowered(low, "sm_80").shared > 99 * 1024
    with pytest.raises(LoweringError, match=r"shared memory.*sm_89 has 101376"):
        compile_lowered(low, "sm_89")


def test_a_kernel_runs_on_its_own_target_and_newer_ones() -> None:
    with pytest.raises(LoweringError, match="a kernel for sm_90a does not run on sm_100a"):
        compile_lowered(lowered(split_gemm()), "sm_100a")
    with pytest.raises(LoweringError, match="a kernel for sm_80 does not run on gfx942"):
        compile_lowered(lowered(fma()), "gfx942")
    with pytest.raises(LoweringError, match="unknown target 'sm_75'"):
        compile_lowered(lowered(fma()), "sm_75")


def test_without_triton_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)  # pyright: ignore
    with pytest.raises(LoweringError, match=r"pip install 'tilewright\[gpu\]'"):
        compile_lowered(lowered(fma()))
