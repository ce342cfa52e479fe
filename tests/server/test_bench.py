"""`tilewright bench`: the table, the record, and the exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent.test_bench import body
from agent.test_runner import fake
from server.conftest import HEADER, Run, elementwise

TEXT = HEADER + (elementwise("square") + elementwise("other")).replace("warps=4", 'warps=4, reference="X * X"')


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TILEWRIGHT_HISTORY", str(tmp_path / "history.db"))
    (tmp_path / "kernels.py").write_text(TEXT, encoding="utf-8")
    return tmp_path


def test_the_table_compares_both_kernels_at_each_shape(tilewright: Run, place: Path) -> None:
    runner = fake(place, body(place / "jobs"))
    status, out, err = tilewright(
        "bench", "kernels.py::square", "--against", "kernels.py::other", "--sizes", "N=100,400", "--runner", runner
    )
    assert (status, err) == (0, "")
    on, header, first, second, mean = out.splitlines()
    assert on == "on NVIDIA H200, torch 2.11.0, triton 3.6.0"
    assert header.split() == [
        "shape", "square", "ms", "other", "ms", "ratio", "spread", "baseline", "spread", "error", "result",
    ]  # fmt: skip
    assert first.split() == ["N", "=", "100", "1", "2", "2.000×", "1.0", "%", "0.0", "%", "1.0e-06", "correct"]
    assert second.split()[2:6] == ["400", "4", "8", "2.000×"]
    assert mean.startswith("geometric mean 2.000×")
    records = json.loads(tilewright("history", "kernels.py::square", "--json")[1])
    assert [(r["command"], r["baseline"], r["cases"][0]["median_ms"]) for r in records] == [
        ("bench", "kernels.py::other", 1.0),
        ("bench", "kernels.py::other", 4.0),
    ]


def test_a_shape_that_could_not_be_run_is_said_and_the_others_are_there(tilewright: Run, place: Path) -> None:
    runner = fake(place, body(place / "jobs"))
    status, out, _ = tilewright("bench", "kernels.py::square", "--sizes", "N=13", "N=100", "--runner", runner)
    assert status == 2
    assert "out of memory: too large" in out.splitlines()[2]
    assert "1.000×" in out.splitlines()[3]
    found = json.loads(
        tilewright("bench", "kernels.py::square", "--sizes", "N=13,100", "--runner", runner, "--json")[1]
    )
    assert [(f["status"], f["ratio"], f["baseline"]) for f in found] == [
        ("failed", None, "reference"),
        ("ok", 1.0, "reference"),
    ]


def test_a_worker_lost_on_the_way_keeps_what_was_measured(tilewright: Run, place: Path) -> None:
    deadly = body(place / "jobs").replace("if n == 13:", "if n == 13: os._exit(1)\nif n == 14:")
    runner = fake(place, deadly)
    status, out, err = tilewright("bench", "kernels.py::square", "--sizes", "N=100,13,300", "--runner", runner)
    assert status == 2
    assert "N = 100" in out and "N = 300" not in out
    assert "lost the worker" in err
    assert len(json.loads(tilewright("history", "--json")[1])) == 1


def test_wrong_results_have_no_ratio(tilewright: Run, place: Path) -> None:
    (place / "kernels.py").write_text(TEXT.replace("x * x)", "x + x)"), encoding="utf-8")
    status, out, _ = tilewright("bench", "kernels.py::square", "--sizes", "N=100")
    assert status == 1
    assert "wrong: " in out and "×" not in out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--sizes", "N=many"], "write NAME=VALUES"),
        (["--sizes", "M=100"], "square has no size M; it has N"),
        (["--against", "kernels.py::nothing"], "has no kernel nothing"),
        (["--runner", "no-such-program"], "no-such-program"),
    ],
)
def test_wrong_usage_says_what_to_change(tilewright: Run, words: list[str], says: str) -> None:
    status, out, err = tilewright("bench", "kernels.py::square", *words)
    assert (status, out) == (2, "")
    assert says in err
