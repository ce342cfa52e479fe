"""`make mutants`: mutates every example at both levels and says what the verifier makes of it."""

from __future__ import annotations

import argparse
import os
import random
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from mutation.batch import judged, listed, share
from mutation.judge import KILLED, Judged

_SHOWN = ("survivor", "false alarm", "undecided", "not judged")


def summary(found: Iterable[Judged]) -> str:
    """The last line: kills among the mutants that are not equivalent. One that took too long is not killed.

    What ran at no size is not judged: nothing says whether it is equivalent.
    """
    count = Counter("clean" if not j.operator and j.outcome != "false alarm" else j.outcome for j in found)
    killed = sum(count[o] for o in KILLED)
    total = killed + count["survivor"] + count["undecided"]
    part = 100 * killed / total if total else 100.0
    return (
        f"killed {killed} of {total} ({part:.1f} %), false alarms {count['false alarm']}, "
        f"equivalent {count['equivalent']}, not judged {count['not judged']}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="mutation", description=__doc__)
    parser.add_argument("--only", default="", help="kernels whose name contains this")
    parser.add_argument("--sample", type=int, default=0, help="judge so many mutants, drawn at random")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shard", default="", metavar="I/N", help="judge part I of N")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at once")
    parser.add_argument("--seconds", type=float, default=60.0, help="the most for one mutant")
    parser.add_argument("--stop", type=float, help="begin no further mutant after so many seconds")
    parser.add_argument("--json", type=Path, help="add every verdict to this file of JSON lines; those in it are kept")
    arguments = parser.parse_args()
    try:
        work = share(listed(arguments.only, arguments.jobs), arguments.shard)
    except ValueError as error:
        parser.error(str(error))
    if arguments.sample:
        clean, edited = [w for w in work if not w[2]], [w for w in work if w[2]]
        work = clean + random.Random(arguments.seed).sample(edited, min(arguments.sample, len(edited)))
    done: list[Judged] = []
    for one in judged(work, arguments.jobs, arguments.seconds, arguments.json, arguments.stop):
        done.append(one)
        if one.outcome in _SHOWN:
            print(f"{one.outcome}: {one.kernel} ({one.level}), line {one.line}: {one.operator or 'clean'}: "
                  f"{one.verdict} {' '.join(one.codes)}; {one.failure}", flush=True)  # fmt: skip
        elif sys.stderr.isatty():
            print(f"\r{len(done)} of {len(work)}", end="", file=sys.stderr, flush=True)
    for name in sorted({j.kernel for j in done}):
        print(f"{name}: {summary(j for j in done if j.kernel == name)}")
    runs = [j.runs for j in done if j.outcome == "equivalent"]
    if runs:
        print(f"equivalent: each executed at {min(runs)} to {max(runs)} sizes without a difference")
    for verdict in ("proved", "unknown"):
        left = sum(j.outcome == "survivor" and j.verdict == verdict for j in done)
        print(f"survivors that are {verdict}: {left}")
    print(f"not decided in time: {sum(j.outcome == 'undecided' for j in done)}")
    if len(done) < len(work):
        print(f"not begun: {len(work) - len(done)} of {len(work)}")
    print(summary(done))
    return int(any(j.outcome == "false alarm" for j in done))


if __name__ == "__main__":
    sys.exit(main())
