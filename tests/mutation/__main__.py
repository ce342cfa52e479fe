"""`make mutants`: mutates every example at both levels and says what the verifier makes of it."""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path

from mutation.judge import KILLED, Judged, jobs, judge


def summary(judged: Iterable[Judged]) -> str:
    """The last line: kills among the mutants that are not equivalent."""
    count = Counter("clean" if not j.operator and j.outcome != "false alarm" else j.outcome for j in judged)
    killed = sum(count[o] for o in KILLED)
    total = killed + count["survivor"]
    share = 100 * killed / total if total else 100.0
    return (
        f"killed {killed} of {total} ({share:.1f} %), false alarms {count['false alarm']}, "
        f"equivalent {count['equivalent']}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="mutation", description=__doc__)
    parser.add_argument("--only", default="", help="kernels whose name contains this")
    parser.add_argument("--sample", type=int, default=0, help="judge so many mutants, drawn at random")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at once")
    parser.add_argument("--json", type=Path, help="write every verdict to this file")
    arguments = parser.parse_args()
    work = jobs(arguments.only)
    if arguments.sample:
        clean, edited = [w for w in work if not w[2]], [w for w in work if w[2]]
        work = clean + random.Random(arguments.seed).sample(edited, min(arguments.sample, len(edited)))
    judged: list[Judged] = []
    with ProcessPoolExecutor(arguments.jobs, mp_context=get_context("spawn")) as pool:
        for one in pool.map(judge, *zip(*work, strict=True), chunksize=4):
            judged.append(one)
            if one.outcome in ("survivor", "false alarm"):
                print(f"{one.outcome}: {one.kernel} ({one.level}), line {one.line}: {one.operator or 'clean'}: "
                      f"{one.verdict} {' '.join(one.codes)}; {one.failure}", flush=True)  # fmt: skip
            elif sys.stderr.isatty():
                print(f"\r{len(judged)} of {len(work)}", end="", file=sys.stderr, flush=True)
    for name in sorted({j.kernel for j in judged}):
        print(f"{name}: {summary(j for j in judged if j.kernel == name)}")
    runs = [j.runs for j in judged if j.outcome == "equivalent"]
    if runs:
        print(f"equivalent: each executed at {min(runs)} to {max(runs)} sizes without a difference")
    for verdict in ("proved", "unknown"):
        found = sum(j.outcome == "survivor" and j.verdict == verdict for j in judged)
        print(f"survivors that are {verdict}: {found}")
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps([asdict(j) for j in judged], indent=1) + "\n")
    line = summary(judged)
    print(line)
    return int(any(j.outcome == "false alarm" for j in judged))


if __name__ == "__main__":
    sys.exit(main())
