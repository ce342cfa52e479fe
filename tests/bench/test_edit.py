"""From an edit of one kernel among twenty to its verdict, by the way that the language server takes: the file is read
again, and a worker process checks the kernel whose text has changed.

make bench
"""

import asyncio
import statistics
import time
from pathlib import Path

from tilewright.frontend import parse_module
from tilewright.source import SourceText
from tilewright_server.messages import Checked
from tilewright_server.verifier import Event, Job, Verifier

EXAMPLES = Path(__file__).parents[2] / "examples"
EDITS = 12


def twenty(name: str, kernel: str) -> str:
    head, _, rest = (EXAMPLES / f"{name}.py").read_text().partition("@tw.kernel")
    body = "@tw.kernel" + rest.partition("\n\n\n@")[0]
    return head + "\n\n\n".join(body.replace(f"def {kernel}(", f"def {kernel}_{i}(") for i in range(20)) + "\n"


async def edits(text: str, at: int) -> list[float]:
    """Seconds from each edit of a constant at `at` to the verdict, the first ones left out."""
    ended = asyncio.Event()
    verdicts: list[str] = []

    def heard(job: Job, event: Event) -> None:
        if isinstance(event, Checked):
            verdicts.append(event.report.verdict)
            ended.set()

    verifier = Verifier(heard)
    module = parse_module(SourceText.of(text))
    times: list[float] = []
    try:
        for i in range(EDITS):
            # Another size of a group of tiles each time, which no kept verdict is for.
            text = text[:at] + f"{i + 17}" + text[at + 2 :]
            start = time.perf_counter()
            source = SourceText.of(text)
            before, module = module, parse_module(source, module)
            old = {u.key for u in before.units}
            changed = [n for n, u in enumerate(module.units) if u.key not in old]
            assert len(changed) == 1
            ended.clear()
            unit = module.units[changed[0]]
            verifier.submit([Job(i, source, changed[0], unit.name, unit.kernel.target if unit.kernel else "")])
            await ended.wait()
            times.append(time.perf_counter() - start)
    finally:
        await verifier.close()
    assert set(verdicts) == {"proved"}
    return times[2:]


def test_one_edit_among_twenty_kernels():
    text = twenty("gemm", "gemm")
    at = text.index("GROUP: Const = 16", len(text) // 2) + len("GROUP: Const = ")
    times = asyncio.run(edits(text, at))
    print(
        f"\none of 20 kernels edited: verdict after {statistics.median(times) * 1e3:.0f} ms (median), "
        f"{min(times) * 1e3:.0f} ms (best; target 100)"
    )
