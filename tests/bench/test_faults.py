"""All kernels of the collection of published faults, faulty and fixed, one after another in one process. Computing time.

make bench
"""

import re
import time
from pathlib import Path

from reading import HEADER, read
from tilewright_analysis import check_unit

FAULTS = Path(__file__).parents[1] / "specs" / "faults.md"
TARGET_S = 20


def test_all_published_faults():
    start, kernels = time.process_time(), 0
    for text in re.findall(r"```python\n(.*?)```", FAULTS.read_text(encoding="utf-8"), re.DOTALL):
        for unit in read(text if "import tilewright" in text else f"{HEADER}\n\n{text}").units:
            assert check_unit(unit).obligations or unit.problems
            kernels += 1
    print(f"\n{kernels} kernels of published faults: {time.process_time() - start:.1f} s (target {TARGET_S} s)")
