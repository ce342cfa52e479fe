"""The table of targets."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path

import pytest

from tilewright.targets import TARGETS, Feature, target


def test_code_for_a_plain_target_runs_on_newer_ones_and_architecture_code_only_at_home() -> None:
    runs = {(a, b) for a in TARGETS for b in TARGETS if TARGETS[b].runs(TARGETS[a])}
    newer = {"sm_80": ("sm_86", "sm_89", "sm_90a", "sm_100a"), "sm_86": ("sm_89", "sm_90a", "sm_100a")}
    newer["sm_89"] = ("sm_90a", "sm_100a")
    plain = {(old, new) for old, news in newer.items() for new in news}
    assert runs == plain | {(t, t) for t in TARGETS}


def test_limits_are_consistent() -> None:
    for t in TARGETS.values():
        assert t.shared_per_block + t.reserved_shared <= t.shared_per_sm
        assert t.threads_per_block <= t.threads_per_sm and t.threads_per_sm % t.warp_size == 0
        # A full block can be resident with at least 64 registers a thread.
        assert t.registers_per_sm // t.threads_per_block >= 64


def test_an_unknown_target_is_named_with_the_known_ones() -> None:
    with pytest.raises(KeyError, match="no target 'sm_70'; there are sm_80"):
        target("sm_70")


NVIDIA = [t.name for t in TARGETS.values() if t.backend == "cuda"]
BULK = "cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r1}], [%r1];"
INSTRUCTIONS: dict[Feature, str] = {
    "cp_async": "cp.async.ca.shared.global [%r1], [%rd1], 16;",
    "mma_v2": "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
    "{%f1,%f1,%f1,%f1}, {%r1,%r1,%r1,%r1}, {%r1,%r1}, {%f1,%f1,%f1,%f1};",
    "mbarrier": "mbarrier.init.shared.b64 [%r1], 1;",
    "tma": BULK,
    "wgmma": "wgmma.fence.sync.aligned;",
    "setmaxnreg": "setmaxnreg.inc.sync.aligned.u32 40;",
    "tcgen05": "tcgen05.fence::before_thread_sync;",
}


def ptxas(target: str, body: str, folder: Path, directives: str = ".maxntid 128") -> tuple[bool, str]:
    """Whether ptxas takes a kernel, and what it says of it."""
    spec = importlib.util.find_spec("triton")
    if spec is None or spec.origin is None:
        pytest.skip("needs triton (Linux)")
    tools = Path(spec.origin).parent / "backends" / "nvidia" / "bin"
    tool = tools / ("ptxas-blackwell" if target.startswith("sm_100") else "ptxas")
    source = folder / "kernel.ptx"
    source.write_text(
        f".version 8.7\n.target {target}\n.address_size 64\n.visible .entry k() {directives} {{\n"
        f".reg .b32 %r<4>; .reg .b64 %rd<4>; .reg .f32 %f<4>;\n{body}\nret;\n}}\n"
    )
    run = subprocess.run(
        [tool, "-arch", target, "-o", folder / "out", source], capture_output=True, text=True, check=False
    )
    return run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("name", NVIDIA)
def test_ptxas_takes_the_instructions_that_the_table_has_and_no_others(name: str, tmp_path: Path) -> None:
    taken = {feature for feature, text in INSTRUCTIONS.items() if ptxas(name, text, tmp_path)[0]}
    assert taken == TARGETS[name].features


@pytest.mark.parametrize("name", NVIDIA)
def test_ptxas_knows_the_same_limits(name: str, tmp_path: Path) -> None:
    t = TARGETS[name]

    def fits(threads: int, blocks: int) -> bool:
        return "out of range" not in ptxas(name, "", tmp_path, f".maxntid {threads} .minnctapersm {blocks}")[1]

    assert fits(512, t.threads_per_sm // 512) and not fits(512, t.threads_per_sm // 512 + 1)
    assert fits(32, t.blocks_per_sm) and not fits(32, t.blocks_per_sm + 1)
    most = t.registers_per_thread
    assert "Too many maxnreg" not in ptxas(name, "", tmp_path, f".maxntid 128 .maxnreg {most}")[1]
    assert "Too many maxnreg" in ptxas(name, "", tmp_path, f".maxntid 128 .maxnreg {most + 1}")[1]
