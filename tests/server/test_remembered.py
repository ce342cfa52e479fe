"""Verdicts that outlive the process, every configuration of a kernel, and the replay of counterexamples."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from reading import HEADER, read
from tilewright_analysis import check_unit
from tilewright_analysis.record import record, restored
from tilewright_server import cli, verdicts

EXAMPLES = Path(__file__).parents[2] / "examples"
CHOICES = """
@tw.kernel(target="sm_80", warps=4)
def total(X: Global[f32, M, N], Y: Global[f32, M], *, BN: Const = tw.choice(32, 64), STEP: Const = tw.choice(32, 64)):
    for row in tw.tiles(M):
        s = tw.zeros(f32, (1, 1))
        for j in range(0, N, STEP):
            s += tw.sum(tw.load(X.tile((row, j), (1, BN)), other=0.0), axis=1, keep_dims=True)
        tw.store(Y.tile((row,), (1,)), tw.sum(s, axis=1))
"""


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv(verdicts.OFF)
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    return tmp_path / "verdicts.db"


@pytest.mark.parametrize("name", ["faulty_gemm", "online_softmax"])
def test_a_report_is_the_same_after_it_was_kept(name: str) -> None:
    (unit,) = read((EXAMPLES / f"{name}.py").read_bytes()).units
    report = check_unit(unit)
    assert restored(json.loads(json.dumps(record(report)))) == report


def test_data_of_unknown_classes_is_no_report() -> None:
    with pytest.raises(KeyError):
        restored({"$": "Popen", "args": "true"})


def test_a_verdict_is_looked_up_the_second_time(kept: Path) -> None:
    (unit,) = read((EXAMPLES / "softmax.py").read_bytes()).units
    calls: list[str] = []

    def check():
        calls.append(unit.name)
        return check_unit(unit)

    first, second = verdicts.remembered(unit, check), verdicts.remembered(unit, check)
    assert (first, calls) == (second, ["softmax"])
    assert kept.is_file()
    verdicts.remembered(unit.with_consts(BN=512), check)
    assert len(calls) == 2


def test_other_code_of_the_verifier_knows_nothing_of_it(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (unit,) = read((EXAMPLES / "softmax.py").read_bytes()).units
    calls: list[int] = []
    for code in ("one", "two", "two"):
        monkeypatch.setattr(verdicts, "verifier_code", lambda code=code: code)
        verdicts.remembered(unit, lambda: calls.append(1) or check_unit(unit))
    assert len(calls) == 2


def test_what_was_cancelled_is_not_kept(kept: Path) -> None:
    (unit,) = read((EXAMPLES / "softmax.py").read_bytes()).units
    calls: list[int] = []
    for _ in range(2):
        verdicts.remembered(unit, lambda: calls.append(1) or check_unit(unit), lambda: True)
    assert len(calls) == 2


@pytest.mark.parametrize("content", [b"", b"no database at all" * 100, b"SQLite format 3\0" + b"\1" * 4000])
def test_a_file_that_is_no_cache_costs_nothing_but_time(kept: Path, content: bytes) -> None:
    kept.write_bytes(content)
    (unit,) = read((EXAMPLES / "softmax.py").read_bytes()).units
    for _ in range(3):
        assert verdicts.remembered(unit, lambda: check_unit(unit)).verdict == "proved"


def test_a_row_that_is_cut_short_is_a_miss(kept: Path) -> None:
    (unit,) = read((EXAMPLES / "softmax.py").read_bytes()).units
    verdicts.remembered(unit, lambda: check_unit(unit))
    with sqlite3.connect(kept) as connection:
        connection.execute("UPDATE verdicts SET report = substr(report, 1, 100)")
    assert verdicts.remembered(unit, lambda: check_unit(unit)).verdict == "proved"


def test_every_configuration_is_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "k.py"
    path.write_text(f"{HEADER}\n\n{CHOICES}")
    assert cli.main(["check", "--all-configs", str(path)]) == 1
    printed = capsys.readouterr().out
    assert printed.count("total[BN=") == 4
    assert "proved" in printed and "total[BN=32, STEP=32]" in printed
    assert "2 proved, 2 refuted" in printed
    assert printed.count("error[TW102]") == 1, "what several say of one place is told once"


def test_constants_and_all_configurations_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", "--all-configs", "--const", "BN=32", str(EXAMPLES / "softmax.py")]) == 2
    assert "leave out --const" in capsys.readouterr().err


def test_a_counterexample_is_replayed_step_by_step(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", "--replay", str(EXAMPLES / "faulty_gemm.py"), "TW401"]) == 1
    printed = capsys.readouterr().out
    assert "the last steps of the interpreter at" in printed
    assert "tw.wgmma_wait(2) at t = 0, k = " in printed
    assert "race: " in printed


def test_a_proved_kernel_has_nothing_to_replay(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", "--replay", str(EXAMPLES / "softmax.py")]) == 0
    assert "no counterexample" in capsys.readouterr().out


def test_explain_wants_a_code_or_a_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain"]) == 2
    assert "--replay" in capsys.readouterr().err
