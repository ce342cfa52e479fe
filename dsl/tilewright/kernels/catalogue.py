"""Every kernel, with its compile-time values, that the operators may launch: what is proved, lowered and shipped."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.kernels import configurations

HALVES = ("f16", "bf16")
FLOATS = ("f32", *HALVES)

ELEMENTWISE = (
    "relu", "leaky_relu", "sigmoid", "tanh", "silu", "gelu", "gelu_tanh", "selu", "elu", "hardsigmoid", "hardtanh",
    "softplus", "softsign", "silu_and_multiply",
)  # fmt: skip

Entry = tuple[str, str, dict[str, int | str]]
"""The file of a kernel in this package, its name, its compile-time values with warps and element types."""


def entries() -> Iterator[Entry]:
    """All of them."""
    for t in FLOATS:
        for name in ELEMENTWISE:
            yield "activations", name, {"T": t}
        yield from _rows(t)
        yield from _reductions(t)
        for bits in range(4, 8):
            values = configurations.of_rotary(1 << bits)
            yield "rotary_embedding", "rotary", {**values, "T": t}
            yield "rotary_embedding", "rotary_neighbours", {**values, "T": t}
    yield "rows", "joined", {}
    for t in HALVES:
        yield from _products(t)
        yield from _attention(t)
    for name, choices in (
        ("gemm_tf32", configurations.TF32), ("gemm_fp8", configurations.FP8), ("gemm_int8", configurations.INT8),
    ):  # fmt: skip
        for values, _ in choices:
            yield "gemm", name, dict(values)


def _widths() -> Iterator[int]:
    yield from (1 << bits for bits in range(5, configurations.LONGEST_ROW.bit_length()))


def _rows(t: str) -> Iterator[Entry]:
    for width in _widths():
        for name, like in configurations.ROWS.items():
            if like == "softmax" and width > configurations.LONGEST_SOFTMAX:
                continue
            file = "quantization" if name.startswith("quantize") else "rows"
            yield file, name, {**configurations.of_rows(like, width), "T": t}
        yield "rows", "cross_entropy", {**configurations.of_cross_entropy(width), "T": t}
    for columns in (1 << 16, 1 << 17):
        yield "rows", "online_softmax", {**configurations.of_pieces(columns), "T": t}
        yield "rows", "online_log_softmax", {**configurations.of_pieces(columns), "T": t}
    yield "rows", "statistics", {"T": t}
    for bits in range(5, 14):
        yield "rows", "group_norm", {**configurations.of_group_norm(1 << bits), "T": t}


def _reductions(t: str) -> Iterator[Entry]:
    for operation in range(4):
        for bits in range(5, 13):
            yield "reductions", "reduce_rows", {**configurations.of_reduction(1 << bits), "OP": operation, "T": t}
        yield "reductions", "reduce_columns", {"OP": operation, "T": t}
    yield "reductions", "cumulative_sum", {"T": t}


def _products(t: str) -> Iterator[Entry]:
    yield "gemm", "gemm_any", {"T": t}
    yield "gemm", "sum_of_parts", {"T": t}
    for values in (dict(tile.values) for tile in configurations.tiles()):
        for name in ("gemm_nn", "gemm_nt", "batched_nn", "batched_nt"):
            yield "gemm", name, {**values, "T": t}
        for activation in range(4):
            yield "gemm", "linear", {**values, "T": t, "ACT": activation}
    for values in (dict(tile.values) for tile in configurations.part_tiles()):
        for part in configurations.PART_LENGTHS:
            yield "gemm", "parts_nn", {**values, "PART": part, "T": t}
            yield "gemm", "parts_nt", {**values, "PART": part, "T": t}
    for shares in configurations.SHARES:
        for values in (configurations.WIDE, configurations.SQUARE):
            yield "grouped", "grouped", {**values, "S": shares, "T": t}
        for values in configurations.GATED:
            yield "grouped", "grouped_gated", {**values, "S": shares, "T": t}


def _attention(t: str) -> Iterator[Entry]:
    for head in configurations.HEADS:
        for mask in configurations.MASKS:
            for shared_by in configurations.SHARED_BY:
                yield "flash_attention", "attention", {**configurations.of_attention(head, mask, shared_by), "T": t}
