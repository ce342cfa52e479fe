"""All verdicts of the matrix product in a fresh process: cold, then again, and as a ratio to reading the file.

make bench
"""

import json
import statistics
import subprocess
import sys
from pathlib import Path

GEMM = Path(__file__).parents[2] / "examples" / "gemm.py"

PROGRAM = """
import json, sys, time
from tilewright.frontend import parse_module
from tilewright.source import SourceText
import tilewright_analysis.driver as driver
data = open(sys.argv[1], "rb").read()
start = time.perf_counter()
unit = parse_module(SourceText(data)).unit("gemm")
read = time.perf_counter()
report = driver.check_unit(unit)
cold = time.perf_counter()
driver.check_unit(unit)
again = time.perf_counter()
assert report.verdict == "proved", report
print(json.dumps([read - start, cold - read, again - cold]))
"""


def test_all_verdicts_of_the_matrix_product():
    runs: list[list[float]] = []
    for _ in range(5):
        done = subprocess.run([sys.executable, "-c", PROGRAM, str(GEMM)], capture_output=True, text=True, check=True)
        runs.append(json.loads(done.stdout))
    read, cold, again = (statistics.median(r[i] for r in runs) * 1e3 for i in range(3))
    best = min(r[1] for r in runs) * 1e3
    print(
        f"\ngemm: read {read:.1f} ms, all verdicts cold {cold:.0f} ms (best {best:.0f}, target 300), again {again:.0f} ms; "
        f"cold / again {cold / again:.2f}, verdicts / reading {cold / read:.0f}"
    )
