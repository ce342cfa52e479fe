"""The history file: what is written is there, whatever happens to those who write."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.support import FMA, unit
from tilewright_agent import history_schema
from tilewright_agent.history import History, HistoryError, Record, history_file, note, record_of
from tilewright_agent.runner import Case, RunResult

RECORD = Record(
    "run", "gemm", "/home/me/kernels.py", "k1", "sm_90a", {"BM": 128}, {"warps": 8, "roles": "split", "persistent": True},
    "NVIDIA H200", "gpu-box", {"torch": "2.11.0"}, "proved", "ok", "", "", True, 1e-4, "reference",
    (
        Case({"M": 64, "N": 32}, True, 1e-4, 0.2, 0.01, 0.25, 0.02, warm_ms=0.18, baseline_warm_ms=0.22),
        Case({"M": 65, "N": 31}, None, None, message="there is no reference to compare with"),
    ),
    1000.0,
)  # fmt: skip

# Commits records and says so, until it is killed.
WRITER = """
import sys
from dataclasses import replace
from pathlib import Path
from agent.test_history import RECORD
from tilewright_agent.history import History
with History(Path(sys.argv[1])) as history:
    for i in range(int(sys.argv[3])):
        history.add(replace(RECORD, kernel=sys.argv[2], key=str(i)))
        print(i, flush=True)
"""


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    with History(tmp_path / "a folder" / "history.db") as made:
        yield made


def writer(path: Path, name: str, count: int) -> subprocess.Popen[bytes]:
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    command = [sys.executable, "-c", WRITER, str(path), name, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)


def test_a_record_comes_back_as_it_was(history: History) -> None:
    number = history.add(RECORD)
    (found,) = history.records()
    assert found == replace(RECORD, id=number)
    assert found.median_ms == 0.2


def test_records_are_found_by_file_and_kernel_oldest_first(history: History) -> None:
    for at, kernel, file in ((3.0, "a", "/f"), (1.0, "b", "/f"), (2.0, "a", "/g"), (4.0, "a", "/f")):
        history.add(replace(RECORD, at=at, kernel=kernel, file=file))
    assert [r.at for r in history.records()] == [1.0, 2.0, 3.0, 4.0]
    assert [r.at for r in history.records("/f", "a")] == [3.0, 4.0]
    assert [r.at for r in history.records(file="/f")] == [1.0, 3.0, 4.0]
    assert [r.at for r in history.records(limit=2)] == [3.0, 4.0]
    assert history.records("/nowhere") == []


def test_a_run_becomes_a_record_of_its_content() -> None:
    found = unit(FMA).with_consts(BLOCK=512)
    result = RunResult(found.name, "ok", "Device", "label", True, 1e-6, cases=RECORD.cases, machine="box")
    record = record_of("run", found, "kernel.py", result)
    assert (record.key, record.consts, record.target) == (found.key, {"BLOCK": 512}, "sm_80")
    assert (record.file, record.machine) == (str(Path("kernel.py").resolve()), "box")
    assert record.key != record_of("run", unit(FMA), "kernel.py", result).key


@pytest.mark.skipif(os.name != "posix", reason="kills with SIGKILL")
@pytest.mark.parametrize("after", [1, 7, 40])
def test_what_was_committed_survives_a_kill(tmp_path: Path, after: int) -> None:
    path = tmp_path / "history.db"
    process = writer(path, "killed", 100_000)
    assert process.stdout is not None
    said = [int(process.stdout.readline()) for _ in range(after)]
    process.send_signal(signal.SIGKILL)
    said += [int(line) for line in process.stdout.read().split(b"\n")[:-1]]
    process.wait()
    with History(path) as history:
        found = history.records()
        keys = [int(r.key) for r in found]
        assert keys == list(range(len(keys))), "in order, and nothing half written"
        assert len(keys) >= len(said) >= after, "all that was confirmed is there"
        assert all(r.cases == RECORD.cases for r in found)
        history.add(RECORD)  # and it can be written at once
    assert sqlite3.connect(path).execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_several_processes_write_at_once_to_a_file_that_none_has_made(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    processes = [writer(path, name, 25) for name in ("a", "b", "c")]
    assert [p.communicate()[0].count(b"\n") for p in processes] == [25, 25, 25]
    with History(path) as history:
        assert [len(history.records(kernel=name)) for name in ("a", "b", "c")] == [25, 25, 25]


def test_a_failed_write_leaves_nothing_behind(history: History) -> None:
    broken: Any = replace(RECORD, cases=(RECORD.cases[0], Case({"M": 1}, True, message=b"\x00")))  # type: ignore[arg-type]
    with pytest.raises(AttributeError):
        history.add(broken)
    assert history.records() == []
    history.add(RECORD)
    assert len(history.records()) == 1


def test_text_that_sqlite_cannot_hold_is_kept_as_far_as_it_can_be(history: History) -> None:
    history.add(replace(RECORD, message="broken \udc80 name"))
    assert history.records()[0].message == "broken ? name"


# ------------------------------------------------------------------------------------------------ tunings


def test_an_unfinished_search_goes_on_and_a_finished_one_begins_anew(history: History) -> None:
    first = history.begin_tuning("same", "gemm", "/f")
    assert first.done == ()
    history.add(replace(RECORD, tuning=first.id))
    again = history.begin_tuning("same", "gemm", "/f")
    assert (again.id, [r.key for r in again.done]) == (first.id, ["k1"])
    assert history.begin_tuning("another", "gemm", "/f").id != first.id
    assert history.begin_tuning("same", "gemm", "/f", fresh=True).done == ()
    history.finish_tuning(again.id)
    last = history.begin_tuning("same", "gemm", "/f")
    history.finish_tuning(last.id)
    assert history.begin_tuning("same", "gemm", "/f").id not in (first.id, last.id)


# ------------------------------------------------------------------------------------------------ the file itself


@pytest.mark.parametrize(
    "content", [b"this is no database, but it is long enough to look like one" * 40, b"\x00" * 5000]
)
def test_a_file_that_is_no_history_says_what_to_do(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "history.db"
    path.write_bytes(content)
    with pytest.raises(HistoryError) as error:
        History(path)
    assert str(path) in str(error.value) and "move it away" in str(error.value)
    assert path.read_bytes() == content, "what may be of use to its owner is left alone"


def test_a_history_that_was_damaged_inside_says_so(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    with History(path) as history:
        for _ in range(200):
            history.add(RECORD)
    data = bytearray(path.read_bytes())
    data[8192:] = b"\xff" * (len(data) - 8192)
    path.write_bytes(data)
    with pytest.raises(HistoryError, match="move it away"), History(path) as history:
        history.records()


def test_a_history_of_a_newer_tilewright_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    History(path).close()
    raw = sqlite3.connect(path)
    raw.execute("PRAGMA user_version = 99")
    raw.close()
    with pytest.raises(HistoryError, match=r"format 99.*update Tilewright"):
        History(path)


def test_each_older_format_is_brought_up_to_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for version in range(1, history_schema.VERSION + 1):
        path = tmp_path / f"{version}.db"
        raw = sqlite3.connect(path)
        raw.executescript(";".join(history_schema.MIGRATIONS[:version]))
        raw.execute(
            """INSERT INTO runs (id, at, command, kernel, file, key, consts, configuration, target, device, machine,
                versions, verdict, status, failure, message, correct, max_error, baseline, tuning) VALUES (1, 5.0, 'run', 'old', '/f', 'k', '{}', '{}', 'sm_80', 'd', 'm', '{}',
            'proved', 'ok', '', '', 1, 1e-4, '', NULL)"""
        )
        raw.execute(f"PRAGMA user_version = {version}")
        raw.commit()
        raw.close()
        with History(path) as history:
            history.add(RECORD)
            assert [r.kernel for r in history.records()] == ["old", "gemm"]


def test_a_migration_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "history.db"
    with History(path) as history:
        history.add(RECORD)
    steps = (*history_schema.MIGRATIONS, "ALTER TABLE runs ADD COLUMN speed REAL; SELECT * FROM nowhere")
    monkeypatch.setattr(history_schema, "MIGRATIONS", steps)
    monkeypatch.setattr(history_schema, "VERSION", len(steps))
    with pytest.raises(HistoryError, match="nowhere"):
        History(path)
    monkeypatch.undo()
    with History(path) as history:
        assert len(history.records()) == 1


def test_a_folder_that_cannot_be_made_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HistoryError, match="TILEWRIGHT_HISTORY"):
        History(tmp_path / "file" / "history.db")


def test_notes_never_raise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good, bad = tmp_path / "history.db", tmp_path / "bad.db"
    bad.write_bytes(b"no database " * 1000)
    monkeypatch.setenv("TILEWRIGHT_HISTORY", str(good))
    assert note(RECORD, RECORD) == ""
    with History() as history:
        assert len(history.records()) == 2
    monkeypatch.setenv("TILEWRIGHT_HISTORY", str(bad))
    assert "move it away" in note(RECORD)


def test_the_place_follows_the_platform(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TILEWRIGHT_HISTORY")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert history_file() == tmp_path / "tilewright" / "history.db"
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    assert history_file() == tmp_path / "local" / "tilewright" / "history.db"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert "Application Support" in str(history_file())
