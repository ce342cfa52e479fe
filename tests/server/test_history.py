"""`tilewright history`, and that runs find their way into it."""

from __future__ import annotations

import json
import sqlite3
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

from server.conftest import HEADER, Run, elementwise
from tilewright_agent.history import History, Record
from tilewright_agent.runner import Case
from tilewright_server.output.history_plot import plot
from tilewright_server.output.history_series import series

KERNEL = HEADER + elementwise("square").replace("warps=4", 'warps=4, reference="X * X"')


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TILEWRIGHT_HISTORY", str(tmp_path / "history.db"))
    return tmp_path


def record(at: float, median: float | None, **changes: object) -> Record:
    case = Case({"N": 1 << 20}, True, 1e-6, median, 0.01, 0.3 if median else None, 0.02)
    base = Record("run", "square", str(Path("kernels.py").resolve()), "k", "sm_80", {"BLOCK": 1024}, {}, "Pretended GPU",
                  "box", {}, "proved", "ok", "", "", True, 1e-6, "reference", (case,), at)  # fmt: skip
    return replace(base, **changes)  # type: ignore[arg-type]


def add(*records: Record) -> None:
    with History() as history:
        for each in records:
            history.add(each)


def test_before_the_first_run_it_says_so(tilewright: Run, place: Path) -> None:
    status, out, _ = tilewright("history")
    assert (status, "no runs are recorded" in out) == (0, True)
    assert not (place / "history.db").exists(), "looking makes no file"
    assert json.loads(tilewright("history", "--json")[1]) == []


def test_a_run_is_recorded_whatever_became_of_it(tilewright: Run) -> None:
    Path("kernels.py").write_text(KERNEL, encoding="utf-8")
    assert tilewright("run", "kernels.py", "--size", "N=100")[0] == 0
    Path("kernels.py").write_text(KERNEL.replace("x * x)", "x + x)"), encoding="utf-8")
    assert tilewright("run", "kernels.py", "--size", "N=100", "--size", "N=7", "--const", "BLOCK=256")[0] == 1
    assert tilewright("run", "kernels.py", "--runner", "sh -c 'exit 3'")[0] == 2
    right, wrong, lost = json.loads(tilewright("history", "kernels.py::square", "--json")[1])
    assert (right["correct"], right["consts"], right["status"]) == (True, {"BLOCK": 1024}, "ok")
    assert right["file"] == str(Path("kernels.py").resolve())
    assert (wrong["correct"], wrong["consts"]) == (False, {"BLOCK": 256})
    assert [c["sizes"] for c in wrong["cases"]] == [{"N": 100}, {"N": 7}]
    assert (lost["status"], lost["failure"]) == ("failed", "connection")
    assert len({r["key"] for r in (right, wrong)}) == 2, "another content is another key"
    assert right["device"] == "interpreter (no GPU)" and right["machine"]
    table = tilewright("history", "kernels.py")[1].splitlines()
    assert len(table) == 4
    assert [w for line in table[1:] for w in ("correct", "wrong", "connection") if f" {w} " in line] == [
        "correct",
        "wrong",
        "connection",
    ]
    assert "median" not in table[0], "columns without a figure are left out"


@pytest.mark.parametrize("damage", ["no database", "newer"])
def test_a_history_that_cannot_be_used_leaves_the_run_as_it_is(tilewright: Run, place: Path, damage: str) -> None:
    Path("kernels.py").write_text(KERNEL, encoding="utf-8")
    file = place / "history.db"
    if damage == "newer":
        raw = sqlite3.connect(file)
        raw.execute("PRAGMA user_version = 99")
        raw.close()
    else:
        file.write_bytes(b"no database " * 1000)
    before = file.read_bytes()
    status, out, err = tilewright("run", "kernels.py", "--size", "N=100")
    assert (status, "correct" in out) == (0, True)
    assert str(file) in err and ("move it away" in err or "update Tilewright" in err)
    status, out, err = tilewright("history")
    assert (status, out) == (2, "")
    assert str(file) in err
    assert file.read_bytes() == before


def test_the_table_has_a_row_for_each_timed_shape(tilewright: Run) -> None:
    odd = Case({"N": 999}, True, 1e-6, 0.123456, 0.001, 0.1)
    add(record(1.0, 0.2, cases=(record(1.0, 0.2).cases[0], odd, Case({"N": 5}, True, 1e-7))))
    add(record(2.0, 0.15, command="tune", configuration={"warps": 8}))
    lines = tilewright("history")[1].splitlines()
    assert len(lines) == 4
    assert all(word in lines[0] for word in ("when", "kernel", "verdict", "median ms", "spread ms", "ratio"))
    assert "N = 1048576" in lines[1] and " 0.2 " in lines[1] and "1.50" in lines[1]
    assert "N = 999" in lines[2] and "0.1235" in lines[2] and "0.81" in lines[2]
    assert "warps=8" in lines[3] and "BLOCK=1024" in lines[1]
    assert len(tilewright("history", "--last", "1")[1].splitlines()) == 2
    assert tilewright("history", "--last", "0")[0] == 2


def test_the_plot_shows_each_comparable_series(tilewright: Run) -> None:
    add(*(record(1.0 + i, 0.4 - 0.02 * i) for i in range(10)))
    add(record(11.0, 9.0, device="Another GPU"), record(12.0, None))
    out = tilewright("history", "--plot")[1]
    first, second = out.strip().split("\n\n")
    assert first.startswith("square, N = 1048576, on Pretended GPU")
    assert second.startswith("square, N = 1048576, on Another GPU")
    assert "10 runs: best 0.22 ms, last 0.22 ms" in first
    rows = [line.split("┤")[1] for line in first.splitlines() if "┤" in line]
    top, bottom = rows[0], rows[-1]
    # Times fall from the upper left to the lower right.
    drawn = [[i for i, c in enumerate(row) if c != "\u2800"] for row in (top, bottom)]
    assert max(drawn[0]) < len(top) // 4 and min(drawn[1]) > 3 * len(bottom) // 4
    labels = [float(line.split("┤")[0]) for line in first.splitlines() if "┤" in line and line.split("┤")[0].strip()]
    assert labels == sorted(labels, reverse=True) and labels[-1] < 0.22 and labels[0] > 0.4


def test_the_plot_is_of_ascii_and_narrow_where_it_has_to_be() -> None:
    records = [record(1.0 + i, 0.4 - 0.02 * i) for i in range(4)]
    lines = plot(series(records)[0], 20, ascii_only=True)
    rows = [line.split("|")[1] for line in lines if "|" in line]
    assert all(line.isascii() for line in lines) and {len(row) for row in rows} == {20}
    drawn = [row for row in rows if "*" in row]
    assert drawn[0].startswith("*") and drawn[-1].endswith("*") and len(drawn) > 3
    assert rows[-1].count(".") == 4, "the baseline is below"
    (alone,) = series([record(1.0, 0.4)])
    assert sum(line.count("*") for line in plot(alone, 20, ascii_only=True)) == 1


def test_without_times_the_plot_says_what_it_needs(tilewright: Run) -> None:
    add(record(1.0, None))
    assert "GPU" in tilewright("history", "--plot")[1]


def test_the_page_is_whole_and_escapes_what_it_shows(tilewright: Run, place: Path) -> None:
    odd = "<script>alert(1)</script>"
    add(*(record(1.0 + i, 0.4 - 0.02 * i, device=odd, failure="") for i in range(4)), record(9.0, 0.5))
    status, _, err = tilewright("history", "--html", "page.html")
    text = (place / "page.html").read_text(encoding="utf-8")
    assert (status, "wrote 5 runs" in err) == (0, True)
    assert odd not in text and "&lt;script&gt;" in text
    assert "http://" not in text and "https://" not in text, "the page needs no network"
    drawings = text.split("<svg ")[1:]
    assert len(drawings) == 2
    svg = ET.fromstring("<svg " + drawings[0].split("</svg>")[0] + "</svg>")
    points = [p.split(",") for p in next(e for e in svg if e.get("class") == "mine").get("points", "").split()]
    assert len(points) == 4
    assert [float(y) for _, y in points] == sorted(float(y) for _, y in points), "faster is lower"
    assert text.count("<tr>") == 6
    assert tilewright("history", "--html", str(place / "no" / "page.html"))[0] == 2
