"""Records of the history as rows of words, as JSON, and as a table for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from rich.table import Table

from tilewright_agent.history import Record
from tilewright_agent.profiles import profile_json
from tilewright_agent.runner import Case
from tilewright_server.output.case_json import case_json
from tilewright_server.output.words import pairs

COLUMNS = (
    "when", "kernel", "command", "configuration", "device", "sizes", "verdict", "result", "error", "median ms",
    "spread ms", "baseline ms", "ratio",
)  # fmt: skip
NUMBERS = frozenset(("error", "median ms", "spread ms", "baseline ms", "ratio"))


def rows(records: Sequence[Record]) -> Iterator[tuple[str, ...]]:
    """A row of `COLUMNS` for each timed shape; records without one have a single row."""
    for record in records:
        timed = [c for c in record.cases if c.median_ms is not None]
        for case in timed or [_summary(record)]:
            yield (
                when(record), record.kernel, record.command, configuration(record), record.device or "–",
                pairs(case.sizes) or "–", record.verdict, outcome(record, case), _number(case.max_error, ".1e"),
                _number(case.median_ms), _number(case.spread_ms, ".2g"), _number(case.baseline_ms), _ratio(case),
            )  # fmt: skip


def table(records: Sequence[Record]) -> Table:
    """The rows for a terminal; columns that hold nothing are left out."""
    found = list(rows(records))
    made = Table(box=None, padding=(0, 1), header_style="bold")
    kept = [i for i in range(len(COLUMNS)) if any(row[i] != "–" for row in found)]
    for i in kept:
        made.add_column(COLUMNS[i], justify="right" if COLUMNS[i] in NUMBERS else "left", overflow="fold")
    for row in found:
        made.add_row(*(row[i] for i in kept))
    return made


def as_json(record: Record) -> dict[str, object]:
    """The record as JSON; times in milliseconds, `when` as ISO 8601 in UTC."""
    return {
        "id": record.id, "when": datetime.fromtimestamp(record.at, UTC).isoformat(), "command": record.command,
        "kernel": record.kernel, "file": record.file, "key": record.key, "consts": dict(record.consts),
        "configuration": dict(record.configuration), "target": record.target, "device": record.device,
        "machine": record.machine, "versions": dict(record.versions), "verdict": record.verdict,
        "status": record.status, "failure": record.failure, "message": record.message, "correct": record.correct,
        "max_error": record.max_error, "baseline": record.baseline,
        "profile": profile_json(record.profile) if record.profile is not None else None,
        "cases": [case_json(case) for case in record.cases],
    }  # fmt: skip


def when(record: Record) -> str:
    """Local time to the second."""
    return datetime.fromtimestamp(record.at).strftime("%Y-%m-%d %H:%M:%S")


def configuration(record: Record) -> str:
    """What a search chose, else the compile-time values."""
    chosen: Mapping[str, object] = record.configuration or record.consts
    return ", ".join(f"{name}={value}" for name, value in chosen.items()) or "–"


def outcome(record: Record, case: Case) -> str:
    """What became of a shape, in a word or two."""
    if record.status != "ok":
        return record.failure or record.status
    return "not compared" if case.correct is None else "correct" if case.correct else "wrong"


def _summary(record: Record) -> Case:
    return Case({}, record.correct, record.max_error)


def _number(value: float | None, form: str = ".4g") -> str:
    return "–" if value is None else f"{value:{form}}"


def _ratio(case: Case) -> str:
    return f"{case.baseline_ms / case.median_ms:.2f}" if case.median_ms and case.baseline_ms else "–"
