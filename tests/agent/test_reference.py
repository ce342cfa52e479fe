"""The language of references: what it means precisely and plainly, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright_reference import FUNCTIONS, BadReference, folded, parse_reference
from tilewright_reference.numpy_functions import NumpyFunctions

BACKEND = NumpyFunctions()
RANDOM = np.random.default_rng(1)
X = RANDOM.standard_normal((4, 6)).astype(np.float32)


def value(text: str, *, precise: bool = True, **tensors: Any) -> Any:
    reference = parse_reference(text, list(tensors), ["OUT"])
    return reference.evaluate(tensors, BACKEND, precise=precise)["OUT"]


def test_the_values_to_compare_with_are_computed_in_float32() -> None:
    a = RANDOM.standard_normal((3, 5)).astype(np.float16)
    b = RANDOM.standard_normal((5, 2)).astype(np.float16)
    want = a.astype(np.float32) @ b.astype(np.float32)
    for text in ("A @ B", "A.float() @ B.float()", "OUT = (A @ B).half()", "torch.matmul(A, B).to(torch.float16)"):
        got = value(text, A=a, B=b)
        assert got.dtype == np.float32
        np.testing.assert_array_equal(got, want)


def test_the_baseline_is_computed_in_the_types_of_the_inputs() -> None:
    a = RANDOM.standard_normal((3, 5)).astype(np.float16)
    assert value("A.float() @ A.T.float()", precise=False, A=a).dtype == np.float16


def test_float64_is_not_narrowed() -> None:
    assert value("X.float() * 2", X=X.astype(np.float64)).dtype == np.float64


def test_integers_become_floating_point_when_asked() -> None:
    i = np.arange(4, dtype=np.int32)
    for precise in (True, False):
        assert value("I.float() / 2", precise=precise, I=i).tolist() == [0.0, 0.5, 1.0, 1.5]


def test_softmax_and_friends() -> None:
    e = np.exp(X - X.max(1, keepdims=True))
    softmax = e / e.sum(1, keepdims=True)
    np.testing.assert_allclose(value("torch.softmax(X, 1)", X=X), softmax, rtol=1e-6)
    np.testing.assert_allclose(value("X.softmax(dim=-1)", X=X), softmax, rtol=1e-6)
    np.testing.assert_allclose(value("softmax(X, 1)", X=X), softmax, rtol=1e-6)
    np.testing.assert_allclose(value("F.log_softmax(X, 1).exp()", X=X), softmax, rtol=1e-5)
    text = "E = (X - torch.amax(X, 1, keepdim=True)).exp(); OUT = E / E.sum(1, keepdim=True)"
    np.testing.assert_allclose(value(text, X=X), softmax, rtol=1e-6)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("torch.relu(X)", np.maximum(X, 0)),
        ("F.silu(X)", X / (1 + np.exp(-X))),
        ("torch.sigmoid(X)", 1 / (1 + np.exp(-X))),
        ("X.abs().rsqrt()", 1 / np.sqrt(np.abs(X))),
        ("torch.where(X > 0, X, -X)", np.abs(X)),
        ("torch.clamp(X, min=-0.5, max=0.5)", np.clip(X, -0.5, 0.5)),
        ("X.T[1:3, 0]", X.T[1:3, 0]),
        ("X[None, ..., -1]", X[None, ..., -1]),
        ("X.mean(1)", X.mean(1)),
        ("X**2 + 1", X**2 + 1),
        ("X.reshape(2, 12)", X.reshape(2, 12)),
        ("X.unsqueeze(0)", X[None]),
        ("X.repeat_interleave(2, 1)", np.repeat(X, 2, 1)),
        ("torch.repeat_interleave(X, 3, dim=0)", np.repeat(X, 3, 0)),
    ],
)
def test_operations_mean_what_pytorch_means(text: str, want: Any) -> None:
    np.testing.assert_allclose(value(text, X=X), want, rtol=1e-5)


def test_gelu_both_ways() -> None:
    # x times the normal distribution function at x, and the published approximation of it by tanh.
    x = np.array([-1, 0, 2], np.float32)
    np.testing.assert_allclose(value("F.gelu(X)", X=x), [-0.158655, 0.0, 1.954500], rtol=1e-5)
    tanh = value('F.gelu(X, approximate="tanh")', X=x)
    np.testing.assert_allclose(tanh, [-0.158808, 0.0, 1.954598], rtol=1e-5)


def test_every_function_has_an_implementation() -> None:
    arguments: dict[str, tuple[Any, ...]] = {
        "reshape": (24,), "transpose": (0, 1), "unsqueeze": (0,), "cumsum": (0,), "cumprod": (1,), "logsumexp": (1,),
        "repeat_interleave": (3, 0), "gather": (0, np.zeros(X.shape, np.int64)),
        "topk": (1,),
    }  # fmt: skip
    for name in sorted(FUNCTIONS):
        binary = ("add", "div", "maximum", "minimum", "mul", "sub")
        args = arguments.get(name, (np.abs(X),) if name in binary else ())
        if name == "where":
            args = (X > 0, X, X)
        elif name == "matmul":
            args = (X, X.T)
        elif name == "arange":
            args = (5,)
        elif name == "scaled_dot_product_attention":
            args = (X, X, X)
        elif name == "bincount":
            args = (np.array([3, 0, 3]),)
        elif name == "searchsorted":
            args = (np.array([1, 5]), np.array([0, 5, 7]))
        elif name == "conv2d":
            args = (np.ones((2, 3, 4, 5)), np.ones((6, 3, 2, 2)))
        else:
            args = (np.abs(X) + 1, *args)
        assert np.all(np.isfinite(BACKEND.call(name, args, {}))), name


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "X.__class__",
        "torch.load('file')",
        "torch.hub.load('x', 'y')",
        "(lambda: X)()",
        "[x for x in X]",
        "X.numpy()",
        "open('file')",
        "eval(X)",
        "X(1)",
        "X[0](1)",
        "X if X else X",
        "f'{X}'",
        "X.sum(dim=open('file'))",
        "X[open('file')]",
        "X[UNKNOWN]",
        "X[:UNKNOWN]",
        "X[:X]",
        "X[X.numpy()]",
        "X.to(torch.load)",
        "X ** 10000000",
        "X ** X",
        "UNKNOWN + 1",
        "import os",
        "OUT: int = X",
        "X; X = ",
        "X" + " + X" * 3000,
        "(" * 1000 + "X" + ")" * 1000,
        "-" * 3900 + "X",
    ],
)
def test_what_is_not_listed_is_refused(text: str) -> None:
    with pytest.raises(BadReference):
        parse_reference(text, ["X", "OUT"], ["OUT"])


def test_a_reference_assigns_every_output() -> None:
    with pytest.raises(BadReference, match="does not assign the output Q"):
        parse_reference("P = X", ["X", "P", "Q"], ["P", "Q"])
    with pytest.raises(BadReference, match="no assignment"):
        parse_reference("X", ["X", "P", "Q"], ["P", "Q"])


def test_rows_of_a_table_are_taken_by_their_numbers() -> None:
    ids = np.array([[3, 0], [-1, 2]], np.int32)
    for precise in (True, False):
        np.testing.assert_array_equal(value("X[I]", precise=precise, X=X, I=ids), X[ids])
        np.testing.assert_array_equal(value("X.T[:, I]", precise=precise, X=X, I=ids), X.T[:, ids])
    np.testing.assert_array_equal(value("X[I, J]", X=X, I=ids, J=ids), X[ids, ids])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("X[I + 1]", "an element 4, the dimension has 4"),
        ("X[I - 9]", "an element -9"),
        ("X[X]", "an index has integers"),
        ("X[X > 0]", "an index has integers"),
        ("X[I, 0]", "beside a tensor"),
        ("X[I, I, I]", "failed"),
    ],
)
def test_an_index_that_is_none_is_refused(text: str, says: str) -> None:
    with pytest.raises(BadReference, match=says):
        value(text, X=X, I=np.array([0, 3], np.int32))


def test_a_slice_may_end_at_a_problem_size() -> None:
    reference = parse_reference("X[:M, N:]", ["X"], ["OUT"], ["M", "N"])
    got = reference.evaluate({"X": X}, BACKEND, precise=True, sizes={"M": 3, "N": 2})["OUT"]
    np.testing.assert_array_equal(got, X[:3, 2:])


def test_lines_of_a_reference_may_be_indented() -> None:
    text = """
        E = X + 1
        OUT = E * 2
    """
    np.testing.assert_array_equal(value(text, X=X), (X + 1) * 2)


def test_a_failing_operation_names_itself() -> None:
    with pytest.raises(BadReference, match="X @ X"):
        value("X @ X", X=X)


def test_constants_are_put_in() -> None:
    assert folded("C = A * SCALE + N", {"SCALE": 3, "OTHER": 4}) == "C = A * 3 + N"
    assert folded("C = A * 2", {"SCALE": 3}) == "C = A * 2"
    assert folded("S = A\nC = S + 1", {"S": 3}) == "S = A\nC = S + 1"  # an assigned name is no constant
    assert folded("C = (", {"C": 1}) == "C = ("


def test_sizes_are_numbers_and_inf_is_infinity() -> None:
    reference = parse_reference("where(arange(N) % 2 == 0, X, -inf)", ["X"], ["OUT"], ["N"])
    got = reference.evaluate({"X": X}, BACKEND, precise=True, sizes={"N": 6})["OUT"]
    np.testing.assert_array_equal(got, np.where(np.arange(6) % 2 == 0, X, -np.inf))


def test_attention_and_its_mask() -> None:
    q, k, v = (RANDOM.standard_normal((2, n, 8)) for n in (5, 7, 7))
    scores = q @ k.swapaxes(1, 2) / np.sqrt(8)
    for causal in (0, 1):
        kept = np.tril(np.ones((5, 7))) if causal else np.ones((5, 7))
        e = np.exp(scores) * kept
        got = value(f"scaled_dot_product_attention(Q, K, V, is_causal={causal})", Q=q, K=k, V=v)
        np.testing.assert_allclose(got, e / e.sum(-1, keepdims=True) @ v)


def test_convolution_over_windows() -> None:
    x, w = RANDOM.standard_normal((2, 3, 7, 8)), RANDOM.standard_normal((4, 3, 2, 3))
    got = value("conv2d(X, W, stride=2, padding=1, dilation=2)", X=x, W=w)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    assert got.shape == (2, 4, 4, 3)
    for p in range(4):
        for q in range(3):
            window = padded[:, :, 2 * p : 2 * p + 3 : 2, 2 * q : 2 * q + 5 : 2]
            np.testing.assert_allclose(got[:, :, p, q], np.einsum("ncij,kcij->nk", window, w))


def test_gather_does_not_count_from_the_end() -> None:
    with pytest.raises(BadReference, match="gather has indices -1 to 0"):
        value("X.gather(1, I)", X=X, I=np.array([[0], [-1], [0], [0]]))


def test_sorting_has_two_results_of_which_one_is_taken() -> None:
    x = np.array([[1.0, 3.0, np.nan, 3.0], [0.0, -1.0, 2.0, 5.0]], np.float32)
    text = (
        "C = sort(X, 1).values; D = X.sort(1, descending=True).indices; E = X.topk(2, dim=1).values; F = argsort(X, 0)"
    )
    found = parse_reference(text, ["X"], list("CDEF")).evaluate({"X": x}, BACKEND, precise=True)
    np.testing.assert_array_equal(found["C"], [[1, 3, 3, np.nan], [-1, 0, 2, 5]])
    np.testing.assert_array_equal(found["D"], [[2, 1, 3, 0], [3, 2, 0, 1]])
    np.testing.assert_array_equal(found["E"], [[np.nan, 3], [5, 2]])
    np.testing.assert_array_equal(found["F"], [[1, 1, 1, 0], [0, 0, 0, 1]])
    with pytest.raises(BadReference, match=r"write `.values` or `.indices`"):
        parse_reference("C = sort(X, 1)", ["X"], ["C"])
