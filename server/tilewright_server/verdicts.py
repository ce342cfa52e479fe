"""Verdicts that outlive the process: reports in SQLite, by the content of the kernel and the code of the verifier.

A cache is never needed: whatever is wrong with it, be it cut short, locked or from elsewhere, counts as a miss.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from functools import cache
from pathlib import Path

import tilewright
import tilewright_analysis
from tilewright.frontend import KernelUnit
from tilewright.lower.compile import cache_folder
from tilewright_analysis.record import record, restored
from tilewright_analysis.report import KernelReport

OFF = "TILEWRIGHT_NO_VERDICTS"
"""With this variable set, nothing is looked up and nothing kept."""
_MOST = 5000  # reports
_WAIT = 2.0  # seconds for another process to finish writing


def remembered(
    unit: KernelUnit, check: Callable[[], KernelReport], cancelled: Callable[[], bool] | None = None
) -> KernelReport:
    """The report on a kernel: the one that is kept, else that of `check`, which is kept if everything is decided.

    What is open may have been short of time, and is tried again; so is what was cancelled.
    """
    if os.environ.get(OFF):
        return check()
    key = hashlib.sha256(f"{verifier_code()} {unit.key}".encode()).hexdigest()
    found = _read(key)
    if found is None:
        found = check()
        whole = cancelled is None or not cancelled()
        if whole and found.obligations and not any(o.verdict == "unknown" and o.finding for o in found.obligations):
            _write(key, found)
    return found


def file() -> Path:
    """Where reports are kept."""
    return cache_folder() / "verdicts.db"


@cache
def verifier_code() -> str:
    """A digest of the code that verdicts depend on: language and verifier, and the solver."""
    from importlib.metadata import version

    digest = hashlib.sha256(version("z3-solver").encode())
    for package in (tilewright, tilewright_analysis):
        folder = Path(package.__file__ or "").parent
        for path in sorted(folder.rglob("*.py")):
            digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _open() -> sqlite3.Connection:
    path = file()
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path, timeout=_WAIT)
    connection.execute(
        "CREATE TABLE IF NOT EXISTS verdicts "
        "(key TEXT PRIMARY KEY, report TEXT NOT NULL, at REAL DEFAULT (julianday()))"
    )
    return connection


def _read(key: str) -> KernelReport | None:
    try:
        with closing(_open()) as connection:
            row = connection.execute("SELECT report FROM verdicts WHERE key = ?", (key,)).fetchone()
        report = restored(json.loads(row[0])) if row else None
    except (sqlite3.Error, OSError, ValueError, KeyError, TypeError):
        return None
    return report if isinstance(report, KernelReport) else None


def _write(key: str, report: KernelReport) -> None:
    try:
        with closing(_open()) as connection, connection:
            connection.execute(
                "INSERT OR REPLACE INTO verdicts (key, report) VALUES (?, ?)", (key, json.dumps(record(report)))
            )
            connection.execute(
                "DELETE FROM verdicts WHERE key NOT IN (SELECT key FROM verdicts ORDER BY at DESC LIMIT ?)", (_MOST,)
            )
    except sqlite3.DatabaseError as error:
        if "malformed" in str(error) or "not a database" in str(error):
            _discard()
    except OSError:
        pass


def _discard() -> None:
    """A file that is no database would be in the way for good."""
    with suppress(OSError):
        file().unlink()
