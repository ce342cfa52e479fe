"""The kernels that are mutated: every one of the examples, with its meaning in NumPy and sizes to run it at."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np

from reading import read
from tilewright.expand import expand, expand_policies
from tilewright.frontend import KernelUnit
from tilewright.interpret import ArgumentError, Limits, Schedule, Violation
from tilewright.interpret.execution import compile_kernel, execute_compiled, outputs
from tilewright.ir import nodes as ir
from tilewright.printer import module_source
from tilewright_analysis.checks.tags.counterfactual import trial_sizes

EXAMPLES = Path(__file__).parents[2] / "examples"

Arrays = list[Any]


@dataclass(frozen=True)
class Case:
    """One kernel: `meaning` maps all its arguments to its outputs, in order, which are its last parameters or `results`.

    `extents` gives for each size the values whose combinations are run; some break assumptions on purpose, because an
    edit may remove one. `consts` are tiles small enough for several of them in small matrices.
    """

    file: str
    kernel: str
    meaning: Callable[[Arrays], Arrays]
    extents: Mapping[str, tuple[int, ...]]
    consts: Mapping[str, int] = field(default_factory=dict)
    results: tuple[str, ...] = ()

    def sizes(self) -> list[dict[str, int]]:
        """The sizes to run at, the most different ones first."""
        every = [dict(zip(self.extents, values, strict=True)) for values in product(*self.extents.values())]
        order = np.random.default_rng(len(every)).permutation(len(every))
        return [every[i] for i in order]

    def policy_text(self) -> str:
        """The file with this kernel alone, comments left out, and with the constants of the case."""
        tree = ast.parse((EXAMPLES / f"{self.file}.py").read_text())
        kept: list[ast.stmt] = []
        for stmt in tree.body:
            if isinstance(stmt, ast.FunctionDef) and stmt.name != self.kernel and _is_kernel(stmt):
                continue
            if isinstance(stmt, ast.FunctionDef) and stmt.name == self.kernel:
                names = [a.arg for a in stmt.args.kwonlyargs]
                for name, value in self.consts.items():
                    stmt.args.kw_defaults[names.index(name)] = ast.Constant(value)
            kept.append(stmt)
        return ast.unparse(ast.Module(kept, [])) + "\n"

    def before(self) -> ir.Kernel:
        """The kernel that the edited ones stem from, expanded."""
        kernel = only_unit(self.policy_text()).kernel
        assert kernel is not None
        return expand(kernel)

    def texts(self) -> dict[str, str]:
        """The text at both levels; a kernel that has no policies is at one only."""
        written = self.policy_text()
        unit = only_unit(written)
        assert unit.kernel is not None
        expanded = module_source(expand_policies(unit.kernel), reference=unit.reference)
        found = {"written": written}
        if only_unit(expanded).kernel != unit.kernel:
            found["expanded"] = expanded
        return found


def only_unit(text: str) -> KernelUnit:
    """The only kernel of a text."""
    (unit,) = read(text).units
    return unit


def _is_kernel(function: ast.FunctionDef) -> bool:
    return any("kernel" in ast.unparse(d) for d in function.decorator_list)


def _wide(arrays: Arrays) -> Arrays:
    return [a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays]


def _product(arrays: Arrays) -> Arrays:
    a, b, _ = _wide(arrays)
    return [a @ b]


def _parts(part: int) -> Callable[[Arrays], Arrays]:
    def meaning(arrays: Arrays) -> Arrays:
        a, b, w = arrays
        a, b = a.astype(np.float32), b.astype(np.float32)
        cut = [slice(s * part, (s + 1) * part) for s in range(w.shape[0])]
        return [np.stack([a[:, c] @ b[c] for c in cut])]

    return meaning


def _softmax(arrays: Arrays) -> Arrays:
    x = _wide(arrays)[0]
    e = np.exp(x - x.max(1, keepdims=True))
    return [e / e.sum(1, keepdims=True)]


def _cross_entropy(arrays: Arrays) -> Arrays:
    x, t, _ = _wide(arrays)
    # No column has a class number that is out of range, and the sum of nothing is zero.
    right = np.arange(x.shape[1]) == t[:, None]
    return [np.log(np.exp(x).sum(1)) - np.where(right, x, 0).sum(1)]


def _layer_norm(arrays: Arrays) -> Arrays:
    x, w, b, _ = _wide(arrays)
    return [(x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * w + b]


def _rms_norm(arrays: Arrays) -> Arrays:
    x, w, _ = _wide(arrays)
    return [x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-6) * w]


def _routing(arrays: Arrays) -> Arrays:
    x = _wide(arrays)[0]
    # Lanes past the edge follow the experts that there are, for edits that allow fewer than are chosen.
    x = np.pad(x, ((0, 0), (0, 16)), constant_values=-np.inf)
    p = np.exp(x - x.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    return [-np.sort(-p, 1)[:, :4], np.argsort(-p, 1, kind="stable")[:, :4]]


def _rotary(arrays: Arrays) -> Arrays:
    x, cos, sin, _ = _wide(arrays)
    turned = (x[..., 0] + 1j * x[..., 1]) * (cos + 1j * sin)
    return [np.stack([turned.real, turned.imag], -1)]


def _quantize(arrays: Arrays) -> Arrays:
    x = arrays[0]
    scale = np.maximum(abs(x).max(1), np.float32(1e-30)) * np.float32(1 / 127)
    return [np.clip(np.rint(x / scale[:, None]), -127, 127), scale]


def _dequantize(arrays: Arrays) -> Arrays:
    q, s, _ = arrays
    return [q.astype(np.float64) * s[:, None]]


def _unpack(arrays: Arrays) -> Arrays:
    p = arrays[0]
    return [np.stack([p & 15, p >> 4], -1).astype(np.float64) - 8]


def _gelu(arrays: Arrays) -> Arrays:
    return [np.array([v * 0.5 * math.erfc(-v / math.sqrt(2)) for v in arrays[0].astype(float)])]


def _gelu_tanh(arrays: Arrays) -> Arrays:
    x = _wide(arrays)[0]
    return [0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))]


def _swiglu(arrays: Arrays) -> Arrays:
    g, u, _ = _wide(arrays)
    return [g / (1 + np.exp(-g)) * u]


_SPLIT = {"BM": 128, "BN": 64, "BK": 64, "STAGES": 3, "GROUP": 2}
_SINGLE = {"BM": 64, "BN": 64, "BK": 32, "STAGES": 3}
# K from less than one step to more than twice around the ring; with rows that TMA takes and, last, some that it does not.
_MATRIX = {"M": (1, 128, 300, 640), "N": (8, 64, 136, 65), "K": (8, 64, 200, 520)}
_ROWS = {"M": (1, 3, 6), "N": (1, 7, 8, 31, 64, 65, 128, 200)}
_ROW_TILE = {"BN": 64}
_VECTOR = {"N": (1, 7, 64, 128, 129, 300, 1000)}

LISTED: tuple[Case, ...] = (
    Case("gemm", "gemm", _product, _MATRIX, _SPLIT),
    Case("gemm_instructions", "gemm_instructions", _product, _MATRIX, _SPLIT),
    Case("gemm", "gemm_sm80", _product, _MATRIX, _SINGLE),
    Case("batched_gemm", "batched_gemm", _product, {"BATCH": (1, 3), **_MATRIX}, _SPLIT),
    Case("batched_gemm", "batched_gemm_sm80", _product, {"BATCH": (1, 3), **_MATRIX}, _SINGLE),
    Case("split_k_gemm", "split_k_gemm", _parts(128), {"SPLITS": (1, 2, 3), **_MATRIX, "K": (8, 128, 136, 300)},
         {"PART": 128, "BM": 64, "BN": 64, "BK": 64, "STAGES": 3}),
    Case("split_k_gemm", "split_k_gemm_sm80", _parts(128), {"SPLITS": (1, 2, 3), **_MATRIX, "K": (8, 128, 136, 300)},
         {"PART": 128, "BM": 64, "BN": 64, "BK": 32, "STAGES": 3}),
    Case("split_k_gemm", "sum_of_parts", lambda a: [a[0].astype(np.float64).sum(0)],
         {"SPLITS": (1, 2, 5), "M": (1, 16, 40), "N": (1, 32, 33, 100)}, {"BM": 16, "BN": 32}),
    Case("softmax", "softmax", _softmax, _ROWS, _ROW_TILE),
    Case("online_softmax", "online_softmax", _softmax, _ROWS, {"ROWS": 4, "BN": 32}),
    Case("cross_entropy", "cross_entropy", _cross_entropy, {"M": (1, 3, 6), "N": (1, 8, 31, 64, 65)}, _ROW_TILE),
    Case("layer_norm", "layer_norm", _layer_norm, _ROWS, _ROW_TILE),
    Case("rms_norm", "rms_norm", _rms_norm, _ROWS, _ROW_TILE),
    Case("cumulative_sum", "cumulative_sum", lambda a: [np.cumsum(_wide(a)[0], 1)], _ROWS, _ROW_TILE),
    Case("cumulative_sum", "cumulative_sum_from_the_end", lambda a: [np.cumsum(_wide(a)[0][:, ::-1], 1)[:, ::-1]],
         _ROWS, _ROW_TILE),
    Case("routing", "routing", _routing, {"T": (1, 8, 17), "E": (4, 8, 13, 16)}, {"BT": 8, "BE": 16}),
    Case("rotary", "rotary", _rotary, {"S": (1, 8, 17, 40), "H": (1, 8, 9, 33)}, {"BS": 8, "BH": 8}),
    Case("quantization", "quantize", _quantize, _ROWS, _ROW_TILE),
    Case("quantization", "dequantize", _dequantize, {"M": (1, 4, 9), "N": (1, 32, 33, 100)}, {"BM": 4, "BN": 32}),
    Case("quantization", "unpack", _unpack, {"M": (1, 4, 9), "N": (1, 32, 33, 100)}, {"BM": 4, "BN": 32}),
    Case("activations", "gelu", _gelu, _VECTOR, {"BLOCK": 128}),
    Case("activations", "gelu_tanh", _gelu_tanh, _VECTOR, {"BLOCK": 128}),
    Case("activations", "swiglu", _swiglu, _VECTOR, {"BLOCK": 128}),
    Case("elementwise", "multiply_add", lambda a: [_wide(a)[0] * _wide(a)[1] + _wide(a)[0]], _VECTOR, {"BLOCK": 128}),
)  # fmt: skip


def _unlisted() -> Iterator[Case]:
    """Examples that are not listed: what they compute as they stand is what they mean."""
    listed = {c.kernel for c in LISTED}
    for path in sorted(EXAMPLES.glob("*.py")):
        for unit in read(path.read_bytes()).units:
            if unit.kernel is not None and unit.name not in listed and not path.stem.startswith("faulty"):
                yield _as_it_stands(path.stem, expand(unit.kernel))


def _as_it_stands(file: str, kernel: ir.Kernel) -> Case:
    # An edit may change what is assumed of sizes; what is computed does not hang on that.
    compiled = compile_kernel(replace(kernel, assumptions=()), Limits())
    names = [p.name for p in kernel.params]

    def meaning(arrays: Arrays) -> Arrays:
        arguments = [a.copy() for a in arrays]
        try:
            execute_compiled(compiled, arguments, Schedule(), None)
        except Violation as fault:
            raise ArgumentError(f"the kernel as it stands does not take this: {fault}") from None
        return [arguments[names.index(name)] for name in outputs(kernel)]

    extents: dict[str, set[int]] = {}
    for sizes in islice(trial_sizes(kernel), _TRIALS):
        for name, value in sizes.items():
            extents.setdefault(name, set()).add(value)
    found = {name: tuple(sorted(values)) for name, values in extents.items()}
    return Case(file, kernel.name, meaning, found, results=outputs(kernel))


_TRIALS = 40
CASES: tuple[Case, ...] = (*LISTED, *_unlisted())
