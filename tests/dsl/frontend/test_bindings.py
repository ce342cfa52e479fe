"""Names: Python's stand for values, those of the IR are variables that get overwritten."""

import numpy as np
import pytest

from reading import HEADER, read
from tilewright.expand import expand
from tilewright.interpret import interpret
from tilewright.printer import module_source

HELPERS = """
@tw.func
def twice(x):
    t = x * 2.0
    return t

@tw.func
def square(x):
    return x * x

@tw.func
def exchanged(x, y):
    return y, x
"""


def result(body: str) -> np.ndarray:
    """The output of a kernel with tiles `a` (0, 1, …, 15) and `b` (100), also after printing and reading back."""
    lines = "\n".join("        " + line for line in body.splitlines())
    text = f"""{HEADER}{HELPERS}
@tw.kernel
def k(OUT: Global[f32, N]):
    for i in tw.tiles(tw.cdiv(N, 16)):
        a = tw.arange(16).to(f32)
        b = tw.full(f32, (16,), 100.0)
{lines}
"""
    module = read(text)
    assert not module.all_problems, module.all_problems
    kernel = module.units[0].kernel
    assert kernel is not None
    outputs = []
    printed = read(module_source(kernel))
    assert not printed.all_problems, module_source(kernel)
    for each in (kernel, printed.units[0].kernel):
        out = np.full(16, np.nan, np.float32)
        interpret(expand(each), out)
        outputs.append(out)
    np.testing.assert_array_equal(*outputs)
    return outputs[0]


A = np.arange(16, dtype=np.float32)
STORE = "tw.store(OUT.tile((i * 16,), (16,)), {})"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("a, b = b, a\n" + STORE.format("a - b"), 100 - A),
        ("a, b = tw.maximum(b, 5.0), tw.minimum(a, 7.0)\n" + STORE.format("a - b"), 100 - np.minimum(A, 7)),
        ("a, b = exchanged(a, b)\n" + STORE.format("a - b"), 100 - A),
        ("p, q = 0, 1\nfor n in range(6):\n    p, q = q, p + q\n" + STORE.format("tw.full(f32, (16,), p)"), A * 0 + 8),
        (STORE.format("twice(a) + twice(b)"), 2 * A + 200),
        (STORE.format("square(a + 1.0)"), (A + 1) ** 2),
        (STORE.format("tw.where(1.0 < a + 1.0 < 4.0, a, b)"), np.where((A > 0) & (A < 3), A, 100)),
        ("pair = (a, b)\na = a * 3.0\n" + STORE.format("pair[0] + a"), 4 * A),
        ("v = OUT.tile((i * 16,), (16,))\ni = i + 1\ntw.store(v, a)", A),
        ("n = 0\nv = OUT.tile((n,), (16,))\nfor s in range(3):\n    n += 16\ntw.store(v, a)", A),
        ("x = a.to(f16)\nx = x.to(f32)\nx_2 = b\n" + STORE.format("x"), A),
        ("min_ = a\nrange_ = min(3, i)\n" + STORE.format("min_ + b"), A + 100),
        ("to = a.to\na = b\n" + STORE.format("to(f16).to(f32)"), A),
    ],
    ids=lambda value: value.splitlines()[0] if isinstance(value, str) else "",
)
def test_a_value_is_that_of_its_assignment(body, expected):
    np.testing.assert_array_equal(result(body), expected)


def test_variables_never_take_the_names_that_printed_source_uses():
    text = HEADER + (
        "@tw.kernel\ndef k(X: Global[f32, M, N]):\n    for max in tw.tiles(tw.cdiv(M, 16)):\n"
        "        tw.store(X.tile((max * 16, 0), (16, 16)), tw.zeros(f32, (16, 16)))\n"
        "    X = tw.zeros(f32, (16, 16))\n    N = M + 1\n    N += 1\n"
    )
    kernel = read(text).units[0].kernel
    assert kernel is not None
    assert {"max_2", "X_2", "N_2"} <= set(kernel.types)
    assert not {"max", "X", "N"} & set(kernel.types)


def test_negative_zero_and_nan_print_as_such():
    body = "b = tw.full(f32, (16,), -0.0)\n" + STORE.format('tw.where(a < 8.0, b, tw.full(f32, (16,), float("nan")))')
    out = result(body)
    assert np.signbit(out[0]) and np.isnan(out[15])


@pytest.mark.parametrize(
    ("expression", "code", "words"),
    [
        ("2**64 * 2**64", "TW006", "64 bits"),
        ("99999999999999999999", "TW006", "64 bits"),
        ("(1 << 31) << 31 << 31", "TW006", "64 bits"),
        ("0777", "TW001", "leading zeros"),
        ("3j", "TW005", "complex"),
        ("0.0 ** -1.0", "TW006", "no value"),
        ("(0.0 - 1.0) ** 0.5", "TW006", "no value"),
        ("1e300 ** 9.0", "TW006", "no value"),
        ("1.0 / 0.0", "TW006", "no value"),
    ],
)
def test_numbers_without_value_are_problems(expression, code, words):
    module = read(HEADER + f"@tw.kernel\ndef k(X: Global[f32, N]):\n    x = {expression}\n")
    assert any(p.code == code and words in p.message for p in module.all_problems), module.all_problems


def test_a_function_of_python_is_called_one():
    module = read(HEADER + '@tw.kernel\ndef k(X: Global[f32, N]):\n    print("x")\n')
    assert [p.code for p in module.all_problems] == ["TW002"]
    assert "Python's" in module.all_problems[0].message and "did you mean" not in module.all_problems[0].message
