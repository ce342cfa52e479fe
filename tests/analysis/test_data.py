"""Kernels whose places data decides: contracts offered, examples with tables, round trips, generated inputs."""

from __future__ import annotations

import json

import numpy as np
import pytest

from reading import read
from support import check, check_fix, found
from tilewright.expand import expand
from tilewright.interpret import ArgumentError, random_arguments, run
from tilewright.interpret.contracts import broken
from tilewright.ir import nodes as ir
from tilewright.printer import module_source

HEAD = """import tilewright as tw
from tilewright import Const, Global, f16, f32, i32, i64

E, T, R, N = tw.sizes("E", "T", "R", "N")
"""
ROWS = (
    HEAD
    + """

@tw.kernel(target="sm_80", warps=4)
def rows(X: Global[f32, E, N], IDS: Global[i32, T], Y: Global[f32, T, N]):
    {}
    for t, j in tw.tiles(T, tw.cdiv(N, 64)):
        row = tw.load(IDS[t])
        x = tw.load(X[row].tile((j * 64,), (64,)), other=0.0)
        tw.store(Y[t].tile((j * 64,), (64,)), x)
"""
)
SEGMENTS = (
    HEAD
    + """

@tw.kernel(target="sm_80", warps=4)
def segments(X: Global[f32, R, N], S: Global[f32, E, N], OFFSETS: Global[i32, E + 1], Y: Global[f32, R, N]):
    tw.assume(OFFSETS[0] == 0)
    tw.assume(OFFSETS[E] == R)
    tw.assume(lambda e: OFFSETS[e] <= OFFSETS[e + 1])
    for e, j in tw.tiles(E, tw.cdiv(N, 64)):
        for r in range(tw.load(OFFSETS[e]), tw.load(OFFSETS[e + 1])):
            x = tw.load(X[r].tile((j * 64,), (64,)), other=0.0)
            s = tw.load(S[e].tile((j * 64,), (64,)), other=0.0)
            tw.store(Y[r].tile((j * 64,), (64,)), x * s)
"""
)


def kernel(text: str) -> ir.Kernel:
    module = read(text)
    assert not module.all_problems, module.all_problems
    found = module.units[0].kernel
    assert found is not None
    return found


def problems(text: str) -> list[tuple[str, str]]:
    return [(p.code, p.message) for p in read(text).all_problems]


def rows(contract: str) -> str:
    return ROWS.format(contract)


def test_a_missing_contract_is_offered_as_a_fix() -> None:
    before = rows("pass")
    after = before.replace("    pass\n    for", "    pass\n    tw.assume(lambda t: 0 <= IDS[t] < E)\n    for")
    assert found(check(before), "TW201").fixes[0].title == "Add tw.assume(lambda t: 0 <= IDS[t] < E)"
    check_fix(before, after, "TW201")


def test_a_contract_holds_wherever_its_indices_are_inside() -> None:
    """`IDS[t + 1]` for t from -1 on is every element; `IDS[t]` beside it leaves out the last, or the first."""
    assert check(rows("tw.assume(lambda t: 0 <= IDS[t + 1] < E)")).verdict == "proved"
    assert check(rows("tw.assume(lambda t: 0 <= IDS[t] < E and IDS[t + 1] < E)")).verdict == "refuted"


@pytest.mark.parametrize(
    ("contract", "offer"),
    [
        ("tw.assume(lambda t: IDS[t] < E)", "IDS[t] is not known to be >= 0; add tw.assume(lambda t: 0 <= IDS[t])."),
        ("tw.assume(lambda t: 0 <= IDS[t])", "IDS[t] is not known to be < E; add tw.assume(lambda t: IDS[t] < E)."),
    ],
)
def test_only_the_missing_side_is_offered(contract: str, offer: str) -> None:
    assert offer in found(check(rows(contract)), "TW201").message


def test_an_example_holds_tables_that_satisfy_the_contracts_and_is_replayed() -> None:
    example = found(check(rows("tw.assume(lambda t: IDS[t] < E)")), "TW201").counterexample
    assert example is not None and example.replayed
    (table,) = example.tables.values()
    assert any(int(str(v)) < 0 for v in table) and all(int(str(v)) < example.sizes["E"] for v in table)
    assert json.dumps(dict(example.tables))


@pytest.mark.parametrize("text", [rows("tw.assume(lambda t: 0 <= IDS[t] < E or IDS[t] == -1)"), SEGMENTS])
def test_contracts_and_scalar_loads_read_back_as_they_are_printed(text: str) -> None:
    written = kernel(text)
    again = read(module_source(written)).units[0].kernel
    assert again is not None
    assert (again.contracts, again.body) == (written.contracts, written.body)


def test_segments_are_computed_as_their_offsets_say() -> None:
    explicit = expand(kernel(SEGMENTS))
    for sizes in (
        {"E": 1, "R": 1, "N": 1, "T": 1},
        {"E": 5, "R": 7, "N": 65, "T": 1},
        {"E": 9, "R": 3, "N": 64, "T": 1},
    ):
        for seed in range(3):
            x, s, offsets, y = random_arguments(explicit, sizes, seed)
            run(explicit, [x, s, offsets, y])
            lengths = np.diff(offsets)
            assert offsets[0] == 0 and offsets[-1] == sizes["R"] and (lengths >= 0).all()
            np.testing.assert_array_equal(y, x * np.repeat(s, lengths, axis=0))


def test_the_interpreter_refuses_data_that_breaks_a_contract() -> None:
    explicit = expand(kernel(SEGMENTS))
    arguments = random_arguments(explicit, {"E": 2, "R": 4, "N": 8, "T": 1}, 0)
    arguments[2][:] = [0, 3, 2]
    with pytest.raises(ArgumentError, match=r"OFFSETS\[2\]|OFFSETS\[E\]"):
        run(explicit, arguments)


@pytest.mark.parametrize(
    "contracts",
    [
        ("tw.assume(lambda t: 0 <= IDS[t] < E or IDS[t] == -1)",),
        ("tw.assume(lambda t: 0 <= IDS[t] < T)", "tw.assume(lambda i, j: i == j or IDS[i] != IDS[j])"),
        ("tw.assume(lambda t: IDS[t] < IDS[t + 1])", "tw.assume(IDS[0] == 3)"),
        ("tw.assume(lambda t: 0 <= IDS[t] < E)", "tw.assume(lambda t: IDS[t] <= IDS[t + 1])"),
        ("tw.assume(lambda t: IDS[t] % 2 == 0 and 0 <= IDS[t] < 20)",),
    ],
)
def test_generated_inputs_satisfy_their_contracts(contracts: tuple[str, ...]) -> None:
    text = kernel(rows("\n    ".join(contracts)))
    for sizes in ({"E": 1, "N": 2, "T": 1}, {"E": 6, "N": 2, "T": 5}, {"E": 40, "N": 2, "T": 33}):
        for seed in range(4):
            _, ids, _ = random_arguments(text, sizes, seed)
            assert not any(broken(c, {"IDS": ids}, sizes) for c in text.contracts)


def test_what_no_table_satisfies_is_said() -> None:
    text = kernel(rows("tw.assume(lambda t: 0 <= IDS[t] < E)\n    tw.assume(lambda i, j: i == j or IDS[i] != IDS[j])"))
    with pytest.raises(ArgumentError, match="no data that satisfies"):
        random_arguments(text, {"E": 2, "N": 1, "T": 3}, 0)


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        ("tw.assume(lambda: E > 0)", "TW005", "the lambda of a contract names its indices"),
        ("tw.assume(lambda e: e < E)", "TW005", "'e' indexes no tensor in this assumption"),
        ("tw.assume(lambda t: X[t, 0] > 0)", "TW004", "'X' holds f32"),
        ("tw.assume(lambda t: Y[t] > 0)", "TW004", "'Y' holds i64; convert the tensor to i32"),
        ("n = tw.load(Y[0])\n    tw.assume(IDS[0] < n)", "TW004", "'Y' holds i64"),
        ("n = tw.load(IDS[0])\n    tw.assume(IDS[0] < n)", "TW005", "this one names 'n'"),
        ("f = lambda t: t", "TW005", "lambda is not supported but in tw.assume"),
        ("n = tw.load(IDS[0], other=0.0)", "TW009", "neither other= nor via="),
        ("n = IDS[0] + 1", "TW003", "an element of 'IDS' in memory"),
        ("n = tw.load(IDS[0].tile((0,), (4,)))", "TW003", "leaves one element and no tile"),
    ],
)
def test_what_is_no_contract_and_no_scalar_is_refused(body: str, code: str, words: str) -> None:
    text = (
        HEAD
        + "\n\n@tw.kernel\ndef k(X: Global[f32, E, N], IDS: Global[i32, T], Y: Global[i64, T], Z: Global[f32, T]):\n"
        f"    {body}\n    tw.store(Z.tile((0,), (64,)), tw.zeros(f32, (64,)))\n"
    )
    assert any(c == code and words in m for c, m in problems(text)), problems(text)


def test_an_index_tensor_that_is_stored_to_is_refused() -> None:
    text = HEAD + (
        "\n\n@tw.kernel\ndef k(IDS: Global[i32, T], Z: Global[f32, T]):\n    n = tw.load(IDS[0])\n"
        "    for i in range(n):\n        tw.store(IDS.tile((i,), (64,)), tw.zeros(i32, (64,)))\n"
    )
    assert any("must not change while the kernel runs" in m for _, m in problems(text))
