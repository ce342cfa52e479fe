"""The table of targets."""

from __future__ import annotations

import pytest

from tilewright.targets import TARGETS, target


def test_code_for_a_plain_target_runs_on_newer_ones_and_architecture_code_only_at_home() -> None:
    runs = {(a, b) for a in TARGETS for b in TARGETS if TARGETS[b].runs(TARGETS[a])}
    plain = {("sm_80", t) for t in ("sm_89", "sm_90a", "sm_100a")} | {("sm_89", t) for t in ("sm_90a", "sm_100a")}
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
