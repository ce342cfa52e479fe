"""The last run of a kernel for the editor: a line over the kernel, and a page with all figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilewright.ir import nodes as ir
from tilewright_server.output.words import pairs

if TYPE_CHECKING:
    from tilewright_server.tasks import RunResult

LENS_LENGTH = 90


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a run: its result, or why there is none. `key` is the content that was run, `runner` where."""

    key: str
    runner: str
    result: RunResult | None = None
    failure: str = ""


def run_title(outcome: Outcome, key: str) -> str:
    """Such as "correct · 0.183 ms ± 0.4 % · 1.02× reference · NVIDIA H200"; `key` is what the text has now."""
    old = "before the last edit: " if outcome.key != key else ""
    result = outcome.result
    if result is None:
        first = (outcome.failure.splitlines() or ["no reason is known"])[0]
        return _short(f"{old}✗ {first}")
    parts = [_outcome(result["correct"])]
    timed = next((c for c in result["cases"] if c["median_ms"]), None)
    if timed is not None:
        parts += _figures(timed)
    parts.append(result["device"])
    return old + " · ".join(parts)


def run_page(name: str, kernel: ir.Kernel | None, outcome: Outcome, key: str) -> str:
    """A page of Markdown: outcome, figures of each shape, counters beside the static model."""
    result = outcome.result
    lines = [f"# {name}", ""]
    if outcome.key != key:
        lines += ["*The kernel has been edited since; this is of the version before.*", ""]
    if result is None:
        return "\n".join([*lines, f"Runner `{outcome.runner}`: there is no result.", "", outcome.failure, ""])
    error = f", largest error {result['max_error']:.1e}" if result["max_error"] is not None else ""
    lines += [f"{_outcome(result['correct'])}{error}, on {result['label'] or result['device']}", ""]
    lines += ["| sizes | result | median ms | spread | reference ms | ratio | warm ms |"]
    lines += ["| --- | --- | ---: | ---: | ---: | ---: | ---: |", *(_row(c) for c in result["cases"]), ""]
    lines += [line for text in (result["message"], *result["notes"]) if text for line in (text, "")]
    if kernel is not None:
        lines += [line for text in counted(result, kernel) for line in (text, "")]
    return "\n".join(lines)


def counted(result: RunResult, kernel: ir.Kernel) -> Iterator[str]:
    """The counters of a run beside the model, as Markdown; nothing when none were asked for."""
    from tilewright_agent.profiles import profile_of
    from tilewright_server.output.profile_table import markdown

    found = profile_of(result["profile"])
    if found is not None:
        yield markdown(found, kernel, result["device"])


def _figures(case: Mapping[str, Any]) -> Iterator[str]:
    spread = f" ± {_spread(case)}" if case["spread_ms"] is not None else ""
    yield f"{case['median_ms']:.4g} ms{spread}"
    if case["baseline_ms"]:
        yield f"{case['baseline_ms'] / case['median_ms']:.2f}× reference"


def _row(case: Mapping[str, Any]) -> str:
    mine, other = case["median_ms"], case["baseline_ms"]
    ratio = f"{other / mine:.2f}×" if mine and other else "–"
    sizes = pairs(case["sizes"]).replace(" = ", "\u00a0=\u00a0")  # a narrow column breaks at commas
    cells = (
        sizes, _outcome(case["correct"]), _ms(mine), _spread(case), _ms(other), ratio, _ms(case["warm_ms"])
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _outcome(correct: bool | None) -> str:
    return "not compared" if correct is None else "correct" if correct else "✗ wrong"


def _ms(value: float | None) -> str:
    return f"{value:.4g}" if value else "–"


def _spread(case: Mapping[str, Any]) -> str:
    if case["spread_ms"] is None or not case["median_ms"]:
        return "–"
    return f"{100 * case['spread_ms'] / case['median_ms']:.1f} %"


def _short(text: str) -> str:
    return text if len(text) <= LENS_LENGTH else f"{text[: LENS_LENGTH - 1]}…"
