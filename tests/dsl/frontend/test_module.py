"""Files as a whole: what is read, what survives broken neighbours, what an edit costs."""

import pytest

from reading import HEADER, read
from tilewright.frontend import parse_module
from tilewright.ir import nodes as ir
from tilewright.source import SourceText

COPY = """

@tw.kernel
def {name}(X: Global[f32, N], Y: Global[f32, N], *, B: Const = 128):
    for i in tw.tiles(tw.cdiv(N, B)):
        x = tw.load(X.tile((i * B,), (B,)), other=0.0)
        tw.store(Y.tile((i * B,), (B,)), x)
"""


def copy(name: str = "copy") -> str:
    return COPY.format(name=name)


def test_an_ordinary_file_has_no_kernels_and_no_problems():
    module = read("import os\n\ndef f(x):\n    return x @ 3\n\nclass A: pass\nprint(f'{os}')\n")
    assert module.units == () and module.problems == ()


def test_a_syntax_error_in_one_kernel_leaves_the_others_served():
    module = read(HEADER + copy("first") + copy("second").replace("tw.cdiv(N, B)", "tw.cdiv(N, B") + copy("third"))
    by_name = {u.name: u for u in module.units}
    assert by_name["first"].kernel is not None
    assert by_name["third"].kernel is not None
    assert next(p.code for p in module.all_problems) == "TW001"


@pytest.mark.parametrize(
    "text", ["@tw.kernel\ndef f(", "@tw.kernel\ndef f(A:", "def (", "@", "M, = tw.sizes(", "\t@tw.kernel"]
)
def test_unfinished_text_never_raises(text):
    module = read(HEADER + text + copy())
    assert all(p.code.startswith("TW0") for p in module.all_problems)


def test_every_prefix_of_an_example_is_read():
    text = HEADER + copy()
    for end in range(len(text)):
        read(text[:end])


def test_crlf_and_tabs_are_python_too():
    text = (HEADER + copy()).replace("    ", "\t").replace("\n", "\r\n")
    (unit,) = read(text).units
    assert unit.kernel is not None


def test_a_file_that_is_not_utf8_is_refused_with_the_place():
    module = read(HEADER.encode() + b"# caf\xe9\n")
    assert [p.code for p in module.problems] == ["TW010"] and "0xe9" in module.problems[0].message


def test_a_second_kernel_of_the_same_name_is_reported():
    assert [p.code for p in read(HEADER + copy() + copy()).problems] == ["TW011"]


def test_a_size_used_before_it_is_declared():
    module = read(HEADER.replace('M, N, K = tw.sizes("M", "N", "K")', "") + copy() + '\nN = tw.sizes("N")\n')
    (first, *_) = module.all_problems
    assert first.code == "TW008" and "further down" in first.message


def test_an_undefined_name_comes_with_a_suggestion():
    module = read(HEADER + copy().replace("tw.store(", "tw.stor("))
    assert [p.code for p in module.all_problems] == ["TW002"] and "tw.store" in module.all_problems[0].message


def test_ordinary_python_at_module_level_is_left_alone_until_a_kernel_uses_it():
    text = HEADER + "import os\nHOME = os.environ.get('HOME')\nWIDTH = 4 * 32\n"
    assert read(text + copy().replace("B: Const = 128", "B: Const = WIDTH")).all_problems == ()
    (problem,) = read(text + copy().replace("B: Const = 128", "B: Const = HOME")).all_problems[:1]
    assert problem.code == "TW008" and "ordinary Python" in problem.message


def test_recursion_of_helpers_is_reported_not_followed():
    text = (
        HEADER
        + "\n@tw.func\ndef f(x):\n    return f(x)\n"
        + copy().replace("i * B,), (B,)), x)", "i * B,), (B,)), f(x))")
    )
    assert "TW007" in [p.code for p in read(text).all_problems]


def test_an_edit_elaborates_only_its_own_kernel():
    text = HEADER + "".join(copy(f"k{i}") for i in range(5))
    before = read(text)
    after = parse_module(SourceText.of(text.replace("def k2", "# moved down\ndef k2")), before)
    same = [a.kernel is b.kernel for a, b in zip(before.units, after.units, strict=True)]
    assert same == [True, True, False, True, True]
    assert [u.text for u in after.units][3] == before.units[3].text
    assert after.source.text(after.units[4].span).startswith("@tw.kernel")


def test_changing_a_size_declaration_elaborates_everything_again():
    before = read(HEADER + copy())
    after = parse_module(SourceText.of(HEADER.replace('"N"', '"L"') + copy()), before)
    assert before.units[0].kernel != after.units[0].kernel


def test_incremental_parsing_agrees_with_parsing_afresh():
    import random

    generator = random.Random(7)
    text = HEADER + "".join(copy(f"k{i}") for i in range(3))
    module = read(text)
    for _ in range(150):
        at, drop = generator.randrange(len(text)), generator.randrange(4)
        text = text[:at] + generator.choice(["", "x", "(", "\n", "    ", "1", ":", "é", ","]) + text[at + drop :]
        module = parse_module(SourceText.of(text), module)
        fresh = read(text)
        assert [(u.name, u.offset, u.kernel, u.problems) for u in module.units] == [
            (u.name, u.offset, u.kernel, u.problems) for u in fresh.units
        ]
        assert module.problems == fresh.problems


def test_other_compile_time_values_give_another_instance():
    (unit,) = read(HEADER + copy()).units
    other = unit.with_consts(B=256, target="sm_90a")
    assert other.kernel is not None and other.kernel.const_values() == {"B": 256} and other.kernel.target == "sm_90a"
    assert other.key != unit.key
    (problem,) = unit.with_consts(WRONG=1).problems
    assert problem.code == "TW009" and "it has B" in problem.message


def test_both_spellings_of_a_tensor_annotation_mean_the_same():
    text = HEADER.replace("import Const", "import Annotated_ as _, Const").replace(
        "import Annotated_ as _, ", "import "
    )
    text = text.replace("import tilewright as tw", "from typing import Annotated\nimport tilewright as tw")
    one, other = (
        read(text + copy()).units[0],
        read(text + copy().replace("Global[f32, N]", "Annotated[Global, f32, N]")).units[0],
    )
    assert one.kernel is not None and other.kernel is not None
    assert one.kernel.body == other.kernel.body and one.kernel.params == other.kernel.params


def test_a_file_of_50_000_lines_is_read():
    module = read(HEADER + copy() + "x = 1\n" * 50_000)
    assert module.units[0].kernel is not None and not module.all_problems


def test_every_statement_knows_its_place():
    (unit,) = read("# before\n" + HEADER + copy()).units
    assert unit.kernel is not None
    for stmt in ir.walk(unit.kernel.body):
        assert 0 <= stmt.span.start < stmt.span.end <= len(unit.text)


BROKEN = ["x = tw.load(X.tile((i * B,), (B,), other=0.0)", "y = x[", '"""', "y = (", "y = {1:", "tw.store(", "y ="]


@pytest.mark.parametrize("line", BROKEN)
def test_an_open_bracket_or_string_does_not_swallow_the_next_kernel(line):
    broken = copy("second").replace("        tw.store", f"        {line}\n        tw.store")
    text = HEADER + copy("first") + broken + copy("third") + copy("fourth")
    module = read(text)
    healthy = {u.name for u in module.units if u.kernel is not None}
    assert {"first", "third", "fourth"} <= healthy and "second" not in healthy
    assert any(p.code == "TW001" for p in module.all_problems)
    for unit in module.units:
        assert module.source.text(unit.span) == unit.text


@pytest.mark.parametrize("line", ["y =", "y = 3 4", "\t\ty = x", "else:"])
def test_what_tree_sitter_forgives_python_does_not(line):
    text = HEADER + copy().replace("        tw.store", f"        {line}\n        tw.store")
    assert [p.code for p in read(text).all_problems][:1] == ["TW001"]


def test_a_kernel_that_calls_itself_is_recursion():
    text = HEADER + copy().replace("        tw.store", "        copy(X, Y)\n        tw.store")
    assert [p.code for p in read(text).all_problems] == ["TW007"]


def test_bare_carriage_returns_are_named():
    (problem,) = read((HEADER + copy()).replace("\n", "\r")).problems
    assert problem.code == "TW010" and "carriage returns" in problem.message


def test_an_unknown_target_is_refused():
    (unit,) = read(HEADER + copy()).units
    other = unit.with_consts(target="sm_1")
    assert other.kernel is None and "unknown target" in other.problems[-1].message


def test_many_declarations_stay_cheap():
    import time

    text = HEADER + "x = 1\n" * 5_000
    start = time.process_time()
    module = read(text)
    few = time.process_time() - start
    text = HEADER + "x = 1\n" * 20_000
    start = time.process_time()
    module = read(text)
    assert not module.problems
    assert time.process_time() - start < 12 * few + 0.1  # four times the lines: linear, not quadratic
