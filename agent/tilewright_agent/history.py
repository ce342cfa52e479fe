"""The history: every run of a kernel, with its content, place, verdict, correctness and times, in one SQLite file.

Several processes may write at once. Nothing that was recorded is lost when one of them is killed.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, cast

from tilewright.frontend import KernelUnit
from tilewright_agent.history_schema import HistoryError, connect, history_file, problem
from tilewright_agent.profiles import Profile, from_text, to_text
from tilewright_agent.rewrite import Value
from tilewright_agent.runner import Case, RunResult

__all__ = ["History", "HistoryError", "Record", "Tuning", "history_file", "note", "record_of"]


@dataclass(frozen=True, slots=True)
class Record:
    """One run of one kernel instance.

    `command` is what ran it: "run", "bench", "tune" or "optimize". `key` identifies the content: equal keys mean equal
    kernels. `configuration` holds the policies that a search chose, by name. `file` is an absolute path, `machine` the
    host of the worker, `verdict` that of the verifier or "not checked". `status`, `failure`, `message`, `correct`,
    `max_error` and `cases` are those of `runner.RunResult`; status "not run" is a configuration that was not proved.
    `baseline` says what the baseline times are of, `profile` what a profiler counted. `at` is seconds since 1970, UTC.
    """

    command: str
    kernel: str
    file: str
    key: str
    target: str
    consts: Mapping[str, int] = field(default_factory=dict[str, int])
    configuration: Mapping[str, Value] = field(default_factory=dict[str, Value])
    device: str = ""
    machine: str = ""
    versions: Mapping[str, str] = field(default_factory=dict[str, str])
    verdict: str = "not checked"
    status: str = "ok"
    failure: str = ""
    message: str = ""
    correct: bool | None = None
    max_error: float | None = None
    baseline: str = ""
    cases: tuple[Case, ...] = ()
    at: float = 0.0
    tuning: int | None = None
    id: int = 0
    profile: Profile | None = None

    @property
    def median_ms(self) -> float | None:
        """The time of the first timed shape."""
        return next((c.median_ms for c in self.cases if c.median_ms is not None), None)


@dataclass(frozen=True, slots=True)
class Tuning:
    """A search that may go on after it was killed: its number, and what was recorded before."""

    id: int
    done: tuple[Record, ...]


class History:
    """An open history. Use as a context manager, from one thread. Raises HistoryError, here and in all methods."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or history_file()
        self._connection = connect(self.path)
        self._connection.row_factory = sqlite3.Row

    def __enter__(self) -> History:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def add(self, record: Record) -> int:
        """Write a record and return its number; when this returns, it is on the disk. An `at` of 0 means now."""
        r = record
        with self._transaction() as db:
            done = db.execute(
                """INSERT INTO runs (at, command, kernel, file, key, consts, configuration, target, device, machine,
                versions, verdict, status, failure, message, correct, max_error, baseline, tuning,
                profile) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
                (
                    r.at or time.time(), r.command, r.kernel, r.file, r.key, json.dumps(dict(r.consts)),
                    json.dumps(dict(r.configuration)), r.target, r.device, r.machine, json.dumps(dict(r.versions)),
                    r.verdict, r.status, r.failure, _text(r.message), _flag(r.correct), r.max_error, r.baseline,
                    r.tuning, to_text(r.profile),
                ),
            )  # fmt: skip
            number = int(done.lastrowid or 0)
            db.executemany(
                """INSERT INTO cases (run, number, sizes, correct, max_error, median_ms, spread_ms, baseline_ms,
                baseline_spread_ms, message, warm_ms, baseline_warm_ms)
                VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
                [
                    (
                        number, i, json.dumps(dict(c.sizes)), _flag(c.correct), c.max_error, c.median_ms, c.spread_ms,
                        c.baseline_ms, c.baseline_spread_ms, _text(c.message), c.warm_ms, c.baseline_warm_ms,
                    )
                    for i, c in enumerate(r.cases)
                ],
            )  # fmt: skip
        return number

    def records(self, file: str = "", kernel: str = "", limit: int | None = None) -> list[Record]:
        """Records of a file (all files: empty) and kernel (all kernels: empty), oldest first; the last `limit`."""
        rows = self._rows(
            """SELECT * FROM (SELECT * FROM runs WHERE (?1 = '' OR file = ?1) AND (?2 = '' OR kernel = ?2)
            ORDER BY at DESC, id DESC LIMIT ?3) ORDER BY at, id""",
            (file, kernel, -1 if limit is None else limit),
        )
        return [self._record(row) for row in rows]

    def begin_tuning(self, identity: str, kernel: str, file: str, *, fresh: bool = False) -> Tuning:
        """The unfinished search of that identity, or a new one; `fresh` gives up an unfinished one."""
        with self._transaction() as db:
            if fresh:
                db.execute(
                    "UPDATE tunings SET finished = ? WHERE identity = ? AND finished IS NULL", (time.time(), identity)
                )
            row = db.execute(
                "SELECT id FROM tunings WHERE identity = ? AND finished IS NULL ORDER BY id DESC", (identity,)
            ).fetchone()
            if row is None:
                made = db.execute(
                    "INSERT INTO tunings (identity, kernel, file, started) VALUES (?, ?, ?, ?)",
                    (identity, kernel, file, time.time()),
                )
                return Tuning(int(made.lastrowid or 0), ())
        number = int(row["id"])
        done = [self._record(r) for r in self._rows("SELECT * FROM runs WHERE tuning = ? ORDER BY id", (number,))]
        return Tuning(number, tuple(done))

    def finish_tuning(self, number: int) -> None:
        """The search has come to its end; the next one starts anew."""
        with self._transaction() as db:
            db.execute("UPDATE tunings SET finished = ? WHERE id = ?", (time.time(), number))

    # ---------------------------------------------------------------------------------------- SQL

    @contextmanager
    def _transaction(self) -> Generator[sqlite3.Connection, None, None]:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise problem(self.path, error) from error

    def _rows(self, query: str, values: tuple[object, ...]) -> list[sqlite3.Row]:
        try:
            return self._connection.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise problem(self.path, error) from error

    def _record(self, row: sqlite3.Row) -> Record:
        cases = self._rows("SELECT * FROM cases WHERE run = ? ORDER BY number", (row["id"],))
        return Record(
            row["command"], row["kernel"], row["file"], row["key"], row["target"], _json(row["consts"]),
            _json(row["configuration"]), row["device"], row["machine"], _json(row["versions"]), row["verdict"],
            row["status"], row["failure"], row["message"], _truth(row["correct"]), row["max_error"], row["baseline"],
            tuple(_case(c) for c in cases), row["at"], row["tuning"], row["id"],
            from_text(row["profile"]),
        )  # fmt: skip


def record_of(
    command: str,
    unit: KernelUnit,
    file: str,
    result: RunResult,
    *,
    verdict: str = "not checked",
    configuration: Mapping[str, Value] | None = None,
    baseline: str = "reference",
    tuning: int | None = None,
) -> Record:
    """The record of a run. `file` becomes an absolute path."""
    kernel = unit.kernel
    return Record(
        command, unit.name, str(Path(file).resolve()), unit.key, kernel.target if kernel else "",
        {c.name: c.value for c in kernel.consts} if kernel else {}, configuration or {}, result.device, result.machine,
        result.versions, verdict, result.status, result.failure, result.message, result.correct, result.max_error,
        baseline if unit.reference or baseline != "reference" else "", result.cases, tuning=tuning,
        profile=result.profile,
    )  # fmt: skip


def note(*records: Record) -> str:
    """Write records to the history of this account; what went wrong as text, empty when all is well.

    For commands whose result must not depend on the history.
    """
    try:
        with History() as history:
            for record in records:
                history.add(record)
    except HistoryError as error:
        return str(error)
    return ""


def _case(row: sqlite3.Row) -> Case:
    return Case(
        _json(row["sizes"]), _truth(row["correct"]), row["max_error"], row["median_ms"], row["spread_ms"],
        row["baseline_ms"], row["baseline_spread_ms"], row["message"], warm_ms=row["warm_ms"],
        baseline_warm_ms=row["baseline_warm_ms"],
    )  # fmt: skip


def _json(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _text(text: str) -> str:
    """Without lone surrogates, which SQLite cannot hold."""
    return text.encode("utf-8", "replace").decode()


def _flag(value: bool | None) -> int | None:
    return None if value is None else int(value)


def _truth(value: int | None) -> bool | None:
    return None if value is None else bool(value)
