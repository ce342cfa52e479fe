"""The file of the history: where it is, its tables, and how older ones are brought up to date."""

from __future__ import annotations

import os
import sqlite3
import sys
import time
from pathlib import Path

BUSY_SECONDS = 20.0  # how long to wait for another process that is writing

# Entry n brings a file of version n to n + 1. Entries are never changed once released, only added.
MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE tunings (
        id INTEGER PRIMARY KEY, identity TEXT NOT NULL, kernel TEXT NOT NULL, file TEXT NOT NULL,
        started REAL NOT NULL, finished REAL
    ) STRICT;
    CREATE TABLE runs (
        id INTEGER PRIMARY KEY, at REAL NOT NULL, command TEXT NOT NULL, kernel TEXT NOT NULL, file TEXT NOT NULL,
        key TEXT NOT NULL, consts TEXT NOT NULL, configuration TEXT NOT NULL, target TEXT NOT NULL,
        device TEXT NOT NULL, machine TEXT NOT NULL, versions TEXT NOT NULL, verdict TEXT NOT NULL,
        status TEXT NOT NULL, failure TEXT NOT NULL, message TEXT NOT NULL, correct INTEGER, max_error REAL,
        baseline TEXT NOT NULL, tuning INTEGER REFERENCES tunings (id)
    ) STRICT;
    CREATE TABLE cases (
        run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE, number INTEGER NOT NULL, sizes TEXT NOT NULL,
        correct INTEGER, max_error REAL, median_ms REAL, spread_ms REAL, baseline_ms REAL, baseline_spread_ms REAL,
        message TEXT NOT NULL, PRIMARY KEY (run, number)
    ) STRICT;
    CREATE INDEX runs_of_kernel ON runs (file, kernel, at);
    CREATE INDEX runs_of_tuning ON runs (tuning);
    CREATE INDEX tunings_open ON tunings (identity) WHERE finished IS NULL;
    """,
    """
    ALTER TABLE cases ADD COLUMN warm_ms REAL;
    ALTER TABLE cases ADD COLUMN baseline_warm_ms REAL;
    """,
    "ALTER TABLE runs ADD COLUMN profile TEXT NOT NULL DEFAULT ''",
)
VERSION = len(MIGRATIONS)


class HistoryError(Exception):
    """The history cannot be read or written; the message names the file and says what to do."""


def history_file() -> Path:
    """Where the history is kept: `TILEWRIGHT_HISTORY`, else `tilewright/history.db` in the platform's data folder."""
    given = os.environ.get("TILEWRIGHT_HISTORY")
    if given:
        return Path(given)
    if sys.platform == "win32":
        folder = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        folder = Path.home() / "Library" / "Application Support"
    else:
        folder = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return folder / "tilewright" / "history.db"


def connect(path: Path) -> sqlite3.Connection:
    """Open the file, making or migrating it. Raises HistoryError.

    What is committed is on the disk (write-ahead log, full synchronization): a process that is killed at any moment, or
    a machine that loses power, loses at most the transaction that it was in.
    """
    connection: sqlite3.Connection | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
        _refuse_newer(_version(connection), path)  # before anything is written
        _use_write_ahead_log(connection)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        _migrate(connection, path)
    except (OSError, sqlite3.Error) as error:
        if connection is not None:
            connection.close()
        raise problem(path, error) from error
    except HistoryError:
        assert connection is not None
        connection.close()
        raise
    return connection


def problem(path: Path, error: Exception) -> HistoryError:
    """What went wrong with the file, and what a person can do about it."""
    text = (error.strerror if isinstance(error, OSError) else None) or str(error)
    if isinstance(error, OSError | sqlite3.OperationalError):
        advice = "check the disk and the permissions, or name another file in TILEWRIGHT_HISTORY"
        if "locked" in text:
            advice = "another process holds it; try again when that has ended"
    else:
        advice = f"move it away and a new one is begun; `sqlite3 {path} .recover` may save what is in it"
    return HistoryError(f"the history {path} cannot be used ({text}): {advice}")


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    """Several processes may open a new file at once; the change of mode does not wait for the others by itself."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    if _version(connection) == VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = _version(connection)  # another process may have been faster
        _refuse_newer(version, path)
        for script in MIGRATIONS[version:]:
            for statement in script.split(";"):  # executescript would commit before each script
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def _refuse_newer(version: int, path: Path) -> None:
    if version > VERSION:
        raise HistoryError(
            f"the history {path} has format {version}, this Tilewright knows formats up to {VERSION}: update "
            "Tilewright, or name another file in TILEWRIGHT_HISTORY"
        )


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])
