"""`make fuzz`: kernels made at random, each meant to compute something known, and most of them wrong somewhere.

What the verifier proves must compute it, at many sizes, with poisoned memory and an adversary; what it refutes must have
been replayed; and the expansion must be printed and read back as it was.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import numpy as np

from mutation.cases import Case
from mutation.judge import examples, must_show, run
from reading import HEADER, read
from tilewright.expand import expand_policies
from tilewright.printer import module_source
from tilewright_analysis import check_unit
from tilewright_analysis.driver import Budget

Arrays = list[Any]


@dataclass(frozen=True)
class Made:
    """A random kernel: its text, what it should compute, and sizes to run it at."""

    text: str
    meaning: Callable[[Arrays], Arrays]
    extents: dict[str, tuple[int, ...]]


def made(seed: int) -> Made:
    """The kernel of a seed."""
    choose = random.Random(seed)
    return choose.choice((_rows, _copy, _product))(choose)


def _rows(choose: random.Random) -> Made:
    """A sum or a maximum along rows, over a loop or in one tile."""
    width = choose.choice((32, 64))
    tile = choose.choice((width, width, width, width // 2, 2 * width))
    low = choose.choice(("0", "0", "0", "0", str(width)))
    high = choose.choice(("N", "N", "N", f"N // {width} * {width}", f"N - {width}", f"tw.cdiv(N, {width}) * {width}"))
    rows, maximum = choose.choice((1, 2)), choose.random() < 0.4
    start = choose.choice(("j", "j", "j", f"j + {width}"))
    other = choose.choice(("-tw.inf", "-tw.inf", "0.0")) if maximum else choose.choice(("0.0", "0.0", "1.0"))
    load = f"tw.load(X.tile((i * {rows}, {start}), ({rows}, {tile})), other={other})"
    if maximum:
        init, step = f"tw.full(f32, ({rows}, 1), -tw.inf)", f"s = tw.maximum(s, tw.max({load}, axis=1, keep_dims=True))"
    else:
        init, step = f"tw.zeros(f32, ({rows}, 1))", f"s += tw.sum({load}, axis=1, keep_dims=True)"
    if choose.random() < 0.2:
        step = f"if j + {tile} <= N:\n                {step}"
    count = choose.choice((f"tw.cdiv(M, {rows})", f"tw.cdiv(M, {rows})", f"M // {rows}"))
    text = f"""
@tw.kernel(target="sm_80", warps=4)
def made(X: Global[f32, M, N], Y: Global[f32, M, 1]):
    for i in tw.tiles({count}):
        s = {init}
        for j in range({low}, {high}, {width}):
            {step}
        tw.store(Y.tile((i * {rows}, 0), ({rows}, 1)), s)
"""

    def meaning(arrays: Arrays) -> Arrays:
        x = arrays[0].astype(np.float64)
        return [x.max(1, keepdims=True) if maximum else x.sum(1, keepdims=True)]

    return Made(text, meaning, {"M": (1, 2, 5), "N": (1, 31, 32, 33, 64, 65, 96, 130, 200)})


def _copy(choose: random.Random) -> Made:
    """Each element twice as large, by tiles, with a grid of one or two axes."""
    rows, columns = choose.choice((1, 4, 16)), choose.choice((32, 64))
    grid = choose.choice((f"tw.cdiv(M, {rows}), tw.cdiv(N, {columns})",) * 3 + (
        f"M // {rows}, tw.cdiv(N, {columns})", f"tw.cdiv(N, {columns}), tw.cdiv(M, {rows})",
        f"tw.cdiv(M, {rows}) + 1, tw.cdiv(N, {columns})",
    ))  # fmt: skip
    order = choose.choice(("", "", ", order=tw.grouped(2)", ", persistent=True"))
    there = f"(p * {rows}, q * {columns})"
    here = choose.choice((there,) * 5 + (f"(q * {rows}, p * {columns})", f"(p * {rows}, q * {columns} + 1)"))
    text = f"""
@tw.kernel(target="sm_80", warps=4)
def made(X: Global[f32, M, N], Y: Global[f32, M, N]):
    for p, q in tw.tiles({grid}{order}):
        x = tw.load(X.tile({here}, ({rows}, {columns})){choose.choice((", other=0.0",) * 5 + ("",))})
        tw.store(Y.tile({there}, ({rows}, {columns})), x * 2.0)
"""
    return Made(text, lambda a: [a[0].astype(np.float64) * 2], {"M": (1, 4, 17, 40), "N": (1, 32, 65, 200)})


def _product(choose: random.Random) -> Made:
    """A matrix product with cp.async or TMA."""
    split = choose.random() < 0.5
    depth = choose.choice((32, 64))
    height, width = 64, choose.choice((32, 64))
    stages = choose.choice((1, 2, 3, 4))
    target, via, roles = ("sm_90a", "tma", "split") if split else ("sm_80", "cp_async", "single")
    high = choose.choice(("K", "K", "K", "K", f"K // {depth} * {depth}", f"K - {depth}"))
    low = choose.choice(("0", "0", "0", "0", str(depth)))
    other = choose.choice(("k",) * 5 + (f"k + {depth}",))
    assume = choose.choice(
        ("    tw.assume(K % 8 == 0)\n    tw.assume(N % 8 == 0)\n",) * 6 + ("    tw.assume(K % 8 == 0)\n",)
    )
    order = choose.choice(("", "", ", order=tw.grouped(2)", ", persistent=True"))
    text = f"""
@tw.kernel(target="{target}", warps=4)
def made(A: Global[f16, M, K], B: Global[f16, K, N], C: Global[f16, M, N]):
{assume}    for p, q in tw.tiles(tw.cdiv(M, {height}), tw.cdiv(N, {width}){order}):
        acc = tw.zeros(f32, ({height}, {width}))
        for k in tw.pipeline({low}, {high}, {depth}, stages={stages}, roles="{roles}"):
            a = tw.load(A.tile((p * {height}, k), ({height}, {depth})), via="{via}")
            b = tw.load(B.tile(({other}, q * {width}), ({depth}, {width})), via="{via}")
            acc = tw.mma(a, b, acc)
        tw.store(C.tile((p * {height}, q * {width}), ({height}, {width})), acc.to(f16))
"""
    extents = {"M": (1, 64, 130), "N": (8, 40, 64, 136), "K": (8, 32, 64, 72, 200)}
    return Made(text, lambda a: [a[0].astype(np.float32) @ a[1].astype(np.float32)], extents)


def attacked(seed: int) -> tuple[str, str]:
    """(verdict on the kernel of a seed, what is wrong with that verdict)."""
    one = made(seed)
    module = read(f"{HEADER}\n{one.text}")
    (unit,) = module.units
    if unit.kernel is None or any(p.severity == "error" for p in module.all_problems):
        return "refused", ""
    report = check_unit(unit, budget=Budget(seconds=20.0))
    if report.verdict == "refuted" and report.problems:
        return "refused", ""
    printed = module_source(expand_policies(unit.kernel))
    (again,) = read(printed).units
    if again.kernel is None or _plain(module_source(again.kernel)) != _plain(printed):
        return report.verdict, "what is printed reads back as something else"
    case = Case("", "made", one.meaning, one.extents)
    if report.verdict == "proved":
        _, failure = run(unit.kernel, case)
        return "proved", failure
    if report.verdict == "refuted" and must_show(report, unit.kernel):
        _, failure = run(unit.kernel, case, examples(report))
        return "refuted", "" if failure else "no run shows what was refuted"
    return report.verdict, ""


def _plain(text: str) -> list[str]:
    """The lines without comments, which say why an expansion put a statement there."""
    return [line.partition("  #")[0].rstrip() for line in text.splitlines()]


def main() -> int:
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("--count", type=int, default=2000, help="kernels")
    parser.add_argument("--seed", type=int, default=0, help="of the first of them")
    parser.add_argument("--jobs", type=int, default=2, help="processes at once")
    arguments = parser.parse_args()
    seeds = range(arguments.seed, arguments.seed + arguments.count)
    verdicts: Counter[str] = Counter()
    wrong = 0
    with ProcessPoolExecutor(arguments.jobs, mp_context=get_context("spawn")) as pool:
        for seed, (verdict, fault) in zip(seeds, pool.map(attacked, seeds, chunksize=4), strict=True):
            verdicts[verdict] += 1
            if fault:
                wrong += 1
                print(f"seed {seed}: {verdict}, but {fault}\n{made(seed).text}", flush=True)
    print(f"{len(seeds)} kernels: {', '.join(f'{n} {v}' for v, n in sorted(verdicts.items()))}; wrong verdicts {wrong}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
