"""Counters in words beside the model."""

from __future__ import annotations

from pathlib import Path

from tilewright.frontend import parse_module
from tilewright.ir import nodes as ir
from tilewright.source import SourceText
from tilewright_agent.counted import counted_lines, stall_text

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SIZES = {"M": 4096, "N": 4096, "K": 4096}
# As counted on an H200, docs/measurements.md.
COUNTERS = {
    "time_us": 182.88, "dram_read_bytes": 144353024.0, "tensor_percent": 94.63, "occupancy_limit_percent": 18.75,
    "registers": 168.0, "conflicts_written": 140905.0, "sm_percent": 89.46,
}  # fmt: skip


def kernel_of(file: str, name: str) -> ir.Kernel:
    module = parse_module(SourceText.of((EXAMPLES / file).read_text(encoding="utf-8"), file))
    kernel = next(unit.kernel for unit in module.units if unit.name == name)
    assert kernel is not None
    return kernel


def test_counters_stand_beside_what_the_model_says() -> None:
    lines = {line.name: line for line in counted_lines(kernel_of("gemm.py", "gemm"), SIZES, "NVIDIA H200", COUNTERS)}
    assert lines["time"].counted == "182.9 µs" and abs(float(lines["time"].predicted.split()[0]) - 182.9) < 5
    assert lines["read from DRAM"].counted == "144.4 MB" and lines["read from DRAM"].predicted.endswith(" MB")
    assert lines["occupancy at most"].counted == lines["occupancy at most"].predicted == "18.8 %"
    assert lines["bank conflicts, writing"].counted == "140,905" and not lines["bank conflicts, writing"].predicted
    assert len(lines) == len(COUNTERS) - 1  # what is no figure for a person is kept, not shown


def test_nothing_is_predicted_for_devices_without_a_model_and_missing_sizes() -> None:
    kernel = kernel_of("gemm.py", "gemm")
    for sizes, device in ((SIZES, "AMD Instinct MI300X"), ({"M": 4096}, "NVIDIA H200")):
        assert not any(line.predicted for line in counted_lines(kernel, sizes, device, COUNTERS))


def test_the_largest_stalls_are_named() -> None:
    shares = {"long_scoreboard": 0.56, "wait": 0.2, "selected": 0.1, "barrier": 0.09, "drain": 0.03, "misc": 0.01}
    assert stall_text(shares) == "long scoreboard 56%, wait 20%, selected 10%, barrier 9%"
    assert stall_text({"misc": 0.01}) == stall_text({}) == ""
