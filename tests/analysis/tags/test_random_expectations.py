"""Random kernels with random expectations: what is called proved must hold in every run."""

import random

import pytest

from reading import HEADER, read
from tilewright.expand import expand
from tilewright.interpret import replay
from tilewright_analysis import check_unit

SIZES = ({"M": 1, "N": 1}, {"M": 33, "N": 70}, {"M": 64, "N": 200}, {"M": 17, "N": 64}, {"M": 40, "N": 130})
SHAPES = {"x": (16, 32), "t": (32, 16), "r": (8, 64), "h": (16, 16), "s": (16, 32)}


def expectation(rng: random.Random, names: list[str]) -> str:
    """A condition that is true often enough to be proved, and wrong often enough to be refuted."""
    name = rng.choice(names)
    rows, columns = SHAPES[name]
    row, column = {
        "x": ("p * 16 + i", "n + j"),
        "t": ("p * 16 + j", "n + i"),
        "r": ("p * 16 + 2 * i + j // 32", "n + j % 32"),
        "h": ("p * 16 + i", "n + 2 * j"),
        "s": ("p * 16 + i", "n + j"),
    }[name]
    tag, value = rng.choice((("M", row), ("N", column), ("OWN", "n // 32 + j"), ("OWN", "j")))
    wrong = rng.choice(("", "", "", " + 1", " - n", " + i // 8", f" + j // {columns // 2}", " + p"))
    sides = f"{name}[i, j].{tag} == {value}{wrong}"
    match rng.randrange(6):
        case 0:
            return f"{name}[i, j].{tag} % 32 == ({value}{wrong}) % 32"
        case 1:
            return f"{name}[i, j].{tag} >= {rng.randrange(3)}"
        case 2:
            return f"{sides} or {name}[i, j].M < p * 16 + {rng.randrange(2, 17)}"
        case 3:
            return f"{name}[i, {rng.randrange(columns)}].{tag} <= {name}[i, j].{tag} + {rng.randrange(columns)}"
        case 4 if rows > 1:
            return f"{name}[i + 1, j].M == {name}[i, j].M + {rng.choice((1, 1, 2))} and {sides}"
        case _:
            return sides


def kernel(rng: random.Random) -> str:
    lines = ["x = tw.load(A.tile((p * 16, n), (16, 32)), other=0.0)"]
    names = ["x"]
    if rng.random() < 0.5:
        lines.append(f"x = tw.tag(x, OWN=lambda i, j: {rng.choice(('n // 32 + j', 'j', 'i'))})")
    else:
        lines.append("x = tw.tag(x, OWN=lambda i, j: x[i, (j + 1) % 32].N - n)")
    more = [
        ("t", "t = x.T"),
        ("r", "r = tw.reshape(x, (8, 64))"),
        ("h", "h, odd = tw.split(tw.reshape(x, (16, 16, 2)))"),
    ]
    for name, line in rng.sample(more, rng.randrange(1, 4)):
        lines.append(line)
        names.append(name)
    if rng.random() < 0.7:
        stage = rng.choice(("n // 32 % 2", "0", "(n // 32 + 1) % 2"))
        lines += ["tw.sync()", "tw.store_shared(ring[n // 32 % 2], x)", "tw.sync()"]
        lines.append(f"s = tw.load_shared(ring[{stage}])" if "+" not in stage else "s = x + 0.0")
        names.append("s")
    lines += [f"tw.expect(lambda i, j: {expectation(rng, names)})" for _ in range(4)]
    lines.append("tw.store(C.tile((p * 16, n), (16, 32)), x)")
    body = "\n".join(f"            {line}" for line in lines)
    return f"""{HEADER}

@tw.kernel(target="sm_80", warps=4)
def made(A: Global[f32, M, N], C: Global[f32, M, N]):
    ring = tw.shared(f32, (2, 16, 32))
    for p in tw.tiles(tw.cdiv(M, 16)):
        tw.store_shared(ring[0], tw.zeros(f32, (16, 32)))
        for n in range(0, N, 32):
{body}
"""


@pytest.mark.parametrize("seed", range(40))
def test_proved_expectations_hold_in_every_run(seed):
    text = kernel(random.Random(seed))
    (unit,) = read(text).units
    assert unit.kernel is not None, [p.message for p in unit.problems]
    report = check_unit(unit)
    found = {o.span: o.verdict for o in report.obligations if o.code == "TW106"}
    explicit = expand(unit.kernel)
    for sizes in SIZES:
        shown = replay(explicit, sizes, tries=2, code="TW106")
        if shown is not None and shown.kind == "expectation":
            assert found[shown.span] != "proved", f"{shown}\n{text}"


def test_all_verdicts_come_up():
    verdicts = {"proved": 0, "refuted": 0}
    for seed in range(12):
        (unit,) = read(kernel(random.Random(seed))).units
        for o in check_unit(unit).obligations:
            if o.code == "TW106" and o.verdict in verdicts:
                verdicts[o.verdict] += 1
    assert min(verdicts.values()) > 5, verdicts
