"""All verdicts of the matrix product and of attention in a fresh process: cold, then again, and as a ratio to reading
the file; and lowering of attention. Computing time, since machines that are shared are slower now and then.

make bench
"""

import json
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"

PROGRAM = """
import json, sys, time
from tilewright.frontend import parse_module
from tilewright.source import SourceText
import tilewright_analysis.driver as driver
data = open(sys.argv[1], "rb").read()
start = time.process_time()
unit = parse_module(SourceText(data)).unit(sys.argv[2]).with_consts(**json.loads(sys.argv[3]))
read = time.process_time()
report = driver.check_unit(unit)
cold = time.process_time()
driver.check_unit(unit)
again = time.process_time()
assert report.verdict == "proved", report
print(json.dumps([read - start, cold - read, again - cold]))
"""


LOWERING = """
import json, sys, time
from tilewright.expand import expand
from tilewright.frontend import parse_module
from tilewright.lower import lower
from tilewright.source import SourceText
data = open(sys.argv[1], "rb").read()
unit = parse_module(SourceText(data)).unit(sys.argv[2]).with_consts(**json.loads(sys.argv[3]))
times = []
for _ in range(3):
    start = time.process_time()
    lower(expand(unit.kernel))
    times.append(time.process_time() - start)
print(json.dumps(times))
"""


def runs_of(program: str, name: str, **consts: int) -> list[list[float]]:
    """What five fresh processes print."""
    command = [sys.executable, "-c", program, str(EXAMPLES / f"{name}.py"), name, json.dumps(consts)]
    done = (subprocess.run(command, capture_output=True, text=True, check=True) for _ in range(5))
    return [json.loads(d.stdout) for d in done]


@pytest.mark.parametrize(
    ("name", "consts", "target"),
    [
        ("gemm", {}, 300),
        ("attention", {"CAUSAL": 0}, 600),
        ("attention", {"CAUSAL": 1}, 600),
        ("attention_instructions", {"CAUSAL": 1}, 600),
    ],
)
def test_all_verdicts(name: str, consts: dict[str, int], target: int) -> None:
    runs = runs_of(PROGRAM, name, **consts)
    read, cold, again = (statistics.median(r[i] for r in runs) * 1e3 for i in range(3))
    best = min(r[1] for r in runs) * 1e3
    print(
        f"\n{name} {consts}: read {read:.1f} ms, all verdicts cold {cold:.0f} ms (best {best:.0f}, target {target}), "
        f"again {again:.0f} ms; cold / again {cold / again:.2f}, verdicts / reading {cold / read:.0f}"
    )


@pytest.mark.parametrize("name", ["attention", "attention_instructions"])
def test_lowering(name: str) -> None:
    runs = runs_of(LOWERING, name, CAUSAL=1)
    cold, warm = (statistics.median(pick(r) for r in runs) * 1e3 for pick in (lambda r: r[0], min))
    print(f"\n{name}: expanded and lowered cold in {cold:.0f} ms (target 50), again in {warm:.0f} ms")
