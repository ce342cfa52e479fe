"""Tuning: the space, what is run, the winner, several runners, and searches that are broken off."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.support import FMA, GEMM, HEAD, unit
from agent.test_optimize import document, stub
from agent.test_runner import fake
from tilewright.frontend import KernelUnit
from tilewright_agent.history import History
from tilewright_agent.jobs import NotRunnable
from tilewright_agent.space import configurations
from tilewright_agent.transport import ConnectionFailed
from tilewright_agent.tune import tune

# A kernel with a space of 12: tiles of three sizes, two numbers of rows, and a choice that no policy knows.
SPACE = """\
@tw.kernel(target="sm_80", warps=4, reference="X + X")
def double(X: Global[f32, M, N], OUT: Global[f32, M, N], *,
           ROWS: Const = tw.choice(1, 2), BN: Const = tw.choice(128, 256, 512), EXTRA: Const = tw.choice(0, 1)):
    for i, j in tw.tiles(tw.cdiv(M, ROWS), tw.cdiv(N, BN)):
        x = tw.load(X.tile((i * ROWS, j * BN), (ROWS, BN)), other=0.0)
        tw.store(OUT.tile((i * ROWS, j * BN), (ROWS, BN)), x + x + x * EXTRA - x * EXTRA)
"""
SIZES = {"M": 512, "N": 4096}

# A GPU that likes BN = 256, and writes down which kernels it was given.
CLOCK = """
time.sleep(SECONDS)
with open(LOG, "a") as log: log.write(job["module"].count("256") and "256 " + job["id"] + chr(10) or "other" + chr(10))
cases = [{"sizes": c["sizes"], "correct": True, "max_error": 1e-6, "message": "",
          "median_ms": (1.0 if "256" in job["module"] else 2.0) * c["sizes"]["M"] / 512 if c["measure"] else None,
          "spread_ms": 0.01, "baseline_ms": 3.0 if c["measure"] else None} for c in job["cases"]]
say({"type": "result", "id": job["id"], "status": "ok", "failure": "", "message": "", "device": "NVIDIA H200",
     "cases": cases})
"""


def gpu(folder: Path, seconds: float = 0.0, name: str = "NVIDIA H200", body: str = CLOCK) -> str:
    log = folder / "log"
    log.touch()
    folder = folder / f"{name} {time.monotonic_ns()}".replace(" ", "_")
    folder.mkdir()
    text = body.replace("SECONDS", str(seconds)).replace("LOG", repr(str(log)))
    return fake(folder, text, devices=[{"kind": "gpu", "name": name}])


def runs(folder: Path) -> int:
    return len((folder / "log").read_text().splitlines())


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    with History(tmp_path / "history.db") as made:
        yield made


def titles(found: Any) -> set[str]:
    return {v.title for v in found.outcome.variants}


# ------------------------------------------------------------------------------------------------ the space


def test_every_combination_of_choices_is_in_the_space_and_rules_fill_the_rest() -> None:
    found = configurations(unit(SPACE), SIZES, "H200", 40)
    points = [dict(c.point) for c in found]
    chosen = {(p["ROWS"], p["BN"], p["EXTRA"]) for p in points}
    assert chosen >= {(r, b, e) for r in (1, 2) for b in (128, 256, 512) for e in (0, 1)}
    assert {p["BN"] for p in points} == {128, 256, 512}, "rules keep to declared choices"
    assert {p["warps"] for p in points} > {4}, "and vary what is left open"
    assert len({c.unit.text for c in found}) == len(found) <= 40
    assert found[0].title == "as written"
    assert all(c.unit.kernel is not None for c in found)


def test_the_space_is_the_same_each_time_and_obeys_its_limit() -> None:
    first, second = (configurations(unit(SPACE), SIZES, "H200", 7) for _ in range(2))
    assert [c.unit.key for c in first] == [c.unit.key for c in second]
    assert len(first) == 7
    assert len(configurations(unit(SPACE), SIZES, "H200", 1)) == 1


def test_what_cannot_be_is_left_out() -> None:
    huge = GEMM.replace("STAGES: Const = 3", "STAGES: Const = tw.choice(3, 40)")
    found = configurations(unit(huge), {"M": 4096, "N": 4096, "K": 4096}, "H200", 12)
    assert all(dict(c.point)["STAGES"] != 40 for c in found), "40 stages fit no block"


# ------------------------------------------------------------------------------------------------ the search


def test_the_fastest_proved_configuration_wins_and_is_written_into_its_document(tmp_path: Path) -> None:
    text = HEAD + "# before\n" + SPACE + "\n# after\n"
    source, found = document(text, "double")
    steps: list[tuple[int, int]] = []
    result = tune(found, source=source, runners=[gpu(tmp_path)], shapes=[SIZES], limit=12, check=stub(),
                  progress=lambda done, total, message: steps.append((done, total)))  # fmt: skip
    assert (result.total, result.decided, result.resumed) == (12, 12, 0)
    assert "BN: Const = tw.choice(256, 128, 512)" in result.outcome.proposed
    assert result.outcome.proposed.startswith(HEAD + "# before\n") and result.outcome.proposed.endswith("# after\n")
    assert "measured 2 → 1 ms" in result.outcome.summary
    assert steps == [(i, 12) for i in range(1, 13)]
    assert runs(tmp_path) == 12


def test_only_what_is_proved_is_run(tmp_path: Path, history: History) -> None:
    check = stub(lambda u: "unknown" if "choice(256" in u.text else "proved")
    result = tune(unit(SPACE), runners=[gpu(tmp_path)], shapes=[SIZES], limit=12, check=check, history=history)
    assert result.outcome.proposed == result.outcome.original, "the fastest ones were not proved"
    verdicts = [(r.verdict, r.status) for r in history.records()]
    assert verdicts.count(("unknown", "not run")) == 4
    assert verdicts.count(("proved", "ok")) == runs(tmp_path) == 8


def test_the_geometric_mean_over_all_shapes_decides(tmp_path: Path) -> None:
    shapes = [SIZES, {"M": 2048, "N": 4096}]
    result = tune(unit(SPACE), runners=[gpu(tmp_path)], shapes=shapes, limit=4, check=stub())
    times = {round(v.measured_ms or 0.0, 6) for v in result.outcome.variants}
    assert times == {2.0, 4.0}, "of 1 and 4 ms, and of 2 and 8 ms"


def test_a_wrong_configuration_never_wins(tmp_path: Path) -> None:
    wrong = CLOCK.replace('"correct": True', '"correct": "256" not in job["module"]')
    result = tune(unit(SPACE), runners=[gpu(tmp_path, body=wrong)], shapes=[SIZES], limit=12, check=stub())
    assert result.outcome.proposed == result.outcome.original


def test_without_a_gpu_results_are_compared_and_the_model_decides() -> None:
    result = tune(unit(FMA), limit=3, runners=["local", "local"])
    assert result.decided == result.total == 3
    assert all(v.measured_ms is None for v in result.outcome.variants)
    assert "interpreter (no GPU)" in result.outcome.summary and "predictions" in result.outcome.summary


def test_values_given_for_this_run_are_left_aside() -> None:
    given, plain = (tune(u, limit=2, check=stub()) for u in (unit(SPACE).with_consts(BN=512), unit(SPACE)))
    assert given.outcome.original == plain.outcome.original
    assert titles(given) == titles(plain)


@pytest.mark.parametrize(
    ("make", "shapes", "says"),
    [
        (lambda: unit(SPACE.replace("x + x", "x + q")), [SIZES], "not tuned"),
        (lambda: unit(GEMM), [{"M": 64, "N": 64, "K": 7}], "K % 8 == 0"),
    ],
)
def test_what_makes_no_sense_says_so(make: Callable[[], KernelUnit], shapes: list[dict[str, int]], says: str) -> None:
    with pytest.raises(NotRunnable, match=says):
        tune(make(), shapes=shapes, check=stub())


# ------------------------------------------------------------------------------------------------ several runners


def test_two_runners_share_the_work(tmp_path: Path) -> None:
    spent: list[float] = []
    for count in (1, 2):
        runners = [gpu(tmp_path, 0.3) for _ in range(count)]
        start = time.monotonic()
        result = tune(unit(SPACE), runners=runners, shapes=[SIZES], limit=12, check=stub())
        spent.append(time.monotonic() - start)
        assert result.decided == 12
    assert spent[0] > 12 * 0.3
    assert spent[0] / spent[1] > 1.4, spent


def test_runners_with_different_devices_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NotRunnable, match="NVIDIA H200, NVIDIA A100"):
        tune(unit(SPACE), runners=[gpu(tmp_path), gpu(tmp_path, name="NVIDIA A100")], shapes=[SIZES], check=stub())


def test_a_runner_that_cannot_be_reached_leaves_the_others(tmp_path: Path) -> None:
    result = tune(unit(SPACE), runners=["no-such-program", gpu(tmp_path)], shapes=[SIZES], limit=3, check=stub())
    assert result.decided == 3
    assert "no-such-program" in result.outcome.summary
    with pytest.raises(ConnectionFailed, match="no-such-program"):
        tune(unit(SPACE), runners=["no-such-program"], shapes=[SIZES], check=stub())


def test_a_worker_that_dies_is_replaced_and_its_work_done_again(tmp_path: Path) -> None:
    marker = str(tmp_path / "died")
    mortal = f'if job["id"] == "2" and not os.path.exists({marker!r}): open({marker!r}, "w"); os._exit(1)\n' + CLOCK
    result = tune(unit(SPACE), runners=[gpu(tmp_path, body=mortal)], shapes=[SIZES], limit=6, check=stub())
    assert result.decided == 6
    assert "Lost a worker" in result.outcome.summary
    assert all(v.measured_ms is not None for v in result.outcome.variants)


def test_a_kernel_that_takes_each_worker_down_is_given_up_and_the_search_can_go_on(
    tmp_path: Path, history: History
) -> None:
    deadly = 'if "256" in job["module"]: os._exit(1)\n' + CLOCK
    result = tune(
        unit(SPACE), runners=[gpu(tmp_path, body=deadly)], shapes=[SIZES], limit=12, check=stub(), history=history
    )
    assert result.decided == 8
    assert result.outcome.proposed == result.outcome.original
    again = tune(unit(SPACE), runners=[gpu(tmp_path)], shapes=[SIZES], limit=12, check=stub(), history=history)
    assert (again.resumed, again.decided) == (8, 12)
    assert "choice(256" in again.outcome.proposed


# ------------------------------------------------------------------------------------------------ broken off

SEARCH = """
import sys
from agent.test_tune import SIZES, SPACE
from agent.test_optimize import stub
from agent.support import unit
from tilewright_agent.history import History
from tilewright_agent.tune import tune
with History() as history:
    tune(unit(SPACE), runners=[sys.argv[1]], shapes=[SIZES], limit=12, check=stub(), history=history,
         progress=lambda done, total, message: print(done, flush=True))
"""


@pytest.mark.skipif(os.name != "posix", reason="kills with SIGKILL")
def test_a_search_that_was_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    runner, file = gpu(tmp_path, 0.1), tmp_path / "history.db"
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1]), "TILEWRIGHT_HISTORY": str(file)}
    process = subprocess.Popen(
        [sys.executable, "-c", SEARCH, runner], stdout=subprocess.PIPE, env=environment, start_new_session=True
    )
    assert process.stdout is not None
    for _ in range(5):
        assert process.stdout.readline()
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    with History(file) as history:
        known = len(history.records())
        assert 5 <= known < 12
        time.sleep(0.5)  # its worker ends what it had begun
        before = runs(tmp_path)
        result = tune(unit(SPACE), runners=[runner], shapes=[SIZES], limit=12, check=stub(), history=history)
        assert (result.resumed, result.decided) == (known, 12)
        assert runs(tmp_path) - before == 12 - known, "nothing is run twice"
        assert "choice(256" in result.outcome.proposed
        # It has come to its end, so the next one measures anew.
        assert tune(unit(SPACE), runners=[runner], shapes=[SIZES], limit=12, check=stub(), history=history).resumed == 0


def test_only_the_same_search_goes_on(tmp_path: Path, history: History) -> None:
    runner = gpu(tmp_path, 0.1)  # slow enough to be broken off in the middle
    asked: list[int] = []

    def broken_off(**options: Any) -> Any:
        asked.clear()
        return tune(unit(SPACE), runners=[runner], limit=6, check=stub(), history=history,
                    progress=lambda done, total, message: asked.append(done),
                    cancelled=lambda: len(asked) >= 3, **options)  # fmt: skip

    first = broken_off(shapes=[SIZES])
    assert 3 <= first.decided < 6 and first.outcome.cancelled
    other = {"M": 1024, "N": 4096}
    assert tune(unit(SPACE), runners=[runner], limit=6, check=stub(), history=history, shapes=[other]).resumed == 0
    changed = unit(SPACE.replace("x + x + x", "x + x + x * 1 + 0 * x"))
    assert tune(changed, runners=[runner], limit=6, check=stub(), history=history, shapes=[SIZES]).resumed == 0
    a100 = gpu(tmp_path, name="NVIDIA A100")
    assert tune(unit(SPACE), runners=[a100], limit=6, check=stub(), history=history, shapes=[SIZES]).resumed == 0
    fresh = tune(unit(SPACE), runners=[runner], limit=6, check=stub(), history=history, shapes=[SIZES], fresh=True)
    assert fresh.resumed == 0


def test_the_history_keeps_what_was_chosen(tmp_path: Path, history: History) -> None:
    tune(unit(SPACE), runners=[gpu(tmp_path)], shapes=[SIZES], limit=3, check=stub(), history=history)
    record = history.records()[0]
    assert (record.command, record.verdict, record.device) == ("tune", "proved", "NVIDIA H200")
    assert json.loads(json.dumps(record.configuration))["BN"] in (128, 256, 512)
    assert record.consts["BN"] == record.configuration["BN"]
