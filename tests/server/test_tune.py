"""`tilewright tune`: the table, the file, the exit status, and a search that goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent.support import HEAD
from agent.test_tune import SPACE, gpu
from server.conftest import Run


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TILEWRIGHT_HISTORY", str(tmp_path / "history.db"))
    (tmp_path / "kernels.py").write_text(HEAD + SPACE, encoding="utf-8")
    return tmp_path


ARGUMENTS = ("tune", "kernels.py::double", "--sizes", "M=512", "N=4096", "--limit", "4")


def test_the_fastest_is_shown_written_and_recorded(tilewright: Run, place: Path) -> None:
    status, out, err = tilewright(*ARGUMENTS, "--runner", gpu(place), "--runner", gpu(place), "--write")
    assert status == 0, err
    assert out.startswith("4 of 4 configurations decided\n")
    assert "measured 2 → 1 ms" in out and "+           ROWS: Const" in out and "proved" in out
    assert "wrote kernels.py" in err
    assert "BN: Const = tw.choice(256, 128, 512)" in (place / "kernels.py").read_text(encoding="utf-8")
    records = json.loads(tilewright("history", "kernels.py::double", "--json")[1])
    assert [r["command"] for r in records] == ["tune"] * 4
    assert all(r["verdict"] == "proved" and r["configuration"] for r in records)


def test_what_could_not_be_run_is_tried_again_by_the_same_command(tilewright: Run, place: Path) -> None:
    deadly = "os._exit(1)\n"
    status, _, err = tilewright(*ARGUMENTS, "--runner", gpu(place, body=deadly))
    assert status == 2
    assert "same command tries those again" in err or "goes on from there" in err
    found = json.loads(tilewright(*ARGUMENTS, "--runner", gpu(place), "--json")[1])
    assert (found["total"], found["decided"]) == (4, 4)
    assert found["variants"][0]["measured_ms"] == 1.0


def test_a_history_that_cannot_be_used_only_costs_resuming(tilewright: Run, place: Path) -> None:
    (place / "history.db").write_bytes(b"no database " * 1000)
    status, out, err = tilewright(*ARGUMENTS, "--runner", gpu(place))
    assert (status, out.startswith("4 of 4")) == (0, True)
    assert "move it away" in err and "cannot be resumed" in err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--limit", "0"], "1 or more"),
        (["--sizes", "Q=4"], "no size Q"),
        (["--runner", "no-such-program"], "no-such-program"),
        (["--target", "sm_12"], "unknown target"),
    ],
)
def test_wrong_usage_says_what_to_change(tilewright: Run, words: list[str], says: str) -> None:
    status, out, err = tilewright("tune", "kernels.py", *words)
    assert (status, out) == (2, "")
    assert says in err
