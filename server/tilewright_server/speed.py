"""What is known about the speed of kernels: the static model, facts of the compiler, and the last measured time.

Compiling takes seconds, so it starts when a person first looks at a kernel, in a process of its own; the facts are
there when they look again.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
from collections.abc import Iterator
from typing import cast

from tilewright.frontend import KernelUnit
from tilewright.source import SourceText
from tilewright_analysis.perf import Compiled, Timing, hover_markdown
from tilewright_server.long_task import TaskFailed, run_task
from tilewright_server.output.run_report import Outcome, counted
from tilewright_server.tasks import CompiledFacts

log = logging.getLogger(__name__)


class Speed:
    """Keeps facts by the content of a kernel, and its last timing by name: that of the version before helps too."""

    def __init__(self) -> None:
        self._compiled: dict[str, Compiled | str] = {}
        self._timings: dict[tuple[str, str], Timing] = {}
        self._outcomes: dict[tuple[str, str], Outcome] = {}
        self._compiling: dict[str, asyncio.Task[None]] = {}

    async def describe(self, source: SourceText, unit: KernelUnit) -> list[str]:
        """Paragraphs of Markdown; none for a kernel that cannot be lowered."""
        if unit.kernel is None:
            return []
        facts = self._compiled.get(unit.key)
        timing = self._timings.get((unit.path, unit.name))
        compiled = facts if isinstance(facts, Compiled) else None
        text = await asyncio.to_thread(hover_markdown, unit.kernel, None, compiled, timing)
        counted = await asyncio.to_thread(self._counted, unit)
        return [text, *counted, *self._compiler_note(source, unit)] if text else counted

    def last_run(self, unit: KernelUnit) -> Outcome | None:
        """What became of the last run of a kernel of this name, perhaps of a version before."""
        return self._outcomes.get((unit.path, unit.name))

    def note_run(self, unit: KernelUnit, outcome: Outcome) -> None:
        """Remember what became of a run, and the time of one on a GPU."""
        self._outcomes[unit.path, unit.name] = outcome
        result = outcome.result
        if result is not None and result["median_ms"] is not None and result["shapes"]:
            timing = Timing(result["device"], result["shapes"][0], result["median_ms"], result["baseline_ms"])
            self._timings[unit.path, unit.name] = timing

    def close(self) -> None:
        """Stop compiling."""
        for task in self._compiling.values():
            task.cancel()

    def _counted(self, unit: KernelUnit) -> list[str]:
        outcome = self.last_run(unit)
        if outcome is None or outcome.result is None or unit.kernel is None:
            return []
        return list(counted(outcome.result, unit.kernel))

    def _compiler_note(self, source: SourceText, unit: KernelUnit) -> Iterator[str]:
        facts = self._compiled.get(unit.key)
        if isinstance(facts, str):
            yield facts
        elif facts is None and importlib.util.find_spec("triton") is None:
            yield "Registers and spills are shown where triton is installed: `pip install 'tilewright[gpu]'`."
        elif facts is None:
            if unit.key not in self._compiling:
                task = asyncio.get_running_loop().create_task(self._compile(source, unit))
                self._compiling[unit.key] = task
            yield "*Compiling, to show registers and spills; look again in a few seconds.*"

    async def _compile(self, source: SourceText, unit: KernelUnit) -> None:
        inputs = {"source": source, "kernel": unit.name, "target": "", "runner": ""}
        try:
            facts = cast(CompiledFacts, await run_task("compile", inputs, lambda message, percent: None))
            self._compiled[unit.key] = Compiled(facts["registers"], facts["spills"], facts["shared"], facts["target"])
        except TaskFailed as error:
            log.info("compiling %s: %s\n%s", unit.name, error, error.details)
            self._compiled[unit.key] = str(error).splitlines()[0]
        finally:
            self._compiling.pop(unit.key, None)
