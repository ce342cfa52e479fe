"""What a profiler on the machine of a runner counted, as the client keeps and shows it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from tilewright.ir import nodes as ir
from tilewright_agent.counted import Line, counted_lines

OLD_WORKER = "the worker there is older and knows no profiles: bring it up to date with `tilewright runner install`"
NO_GPU = "the interpreter has no counters: they need a runner with a GPU"


@dataclass(frozen=True, slots=True)
class Profile:
    """Counters of one launch. `tool` is "ncu", "torch.profiler" or empty; `why` says why it is not Nsight Compute.

    `counters` are named as in `worker.counters` (microseconds, bytes, percent); `stalls` are shares of the cycles of
    resident warps by what they did; `name` and `kernels`: which kernel of how many that the launch started.
    """

    tool: str = ""
    why: str = ""
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    name: str = ""
    kernels: int = 0
    counters: Mapping[str, float] = field(default_factory=dict[str, float])
    stalls: Mapping[str, float] = field(default_factory=dict[str, float])

    def lines(self, kernel: ir.Kernel, device: str) -> tuple[Line, ...]:
        """The counters beside what the static model says."""
        return counted_lines(kernel, self.sizes, device, self.counters)


def profile_of(found: object) -> Profile | None:
    """The profile in an answer of a worker or a row of the history; None where there is none, or no such thing."""
    if not isinstance(found, dict):
        return None
    fields = cast("dict[str, object]", found)
    kernels = fields.get("kernels")
    return Profile(
        _text(fields.get("tool")), _text(fields.get("why")), {n: int(v) for n, v in _figures(fields, "sizes").items()},
        _text(fields.get("name")), kernels if isinstance(kernels, int) else 0, _figures(fields, "counters"),
        _figures(fields, "stalls"),
    )  # fmt: skip


def profile_json(profile: Profile) -> dict[str, object]:
    """The profile as values, as `profile_of` reads them."""
    return {
        "tool": profile.tool, "why": profile.why, "sizes": dict(profile.sizes), "name": profile.name,
        "kernels": profile.kernels, "counters": dict(profile.counters), "stalls": dict(profile.stalls),
    }  # fmt: skip


def to_text(profile: Profile | None) -> str:
    """For the history; empty without a profile."""
    return json.dumps(profile_json(profile)) if profile is not None else ""


def from_text(text: str) -> Profile | None:
    """What `to_text` wrote; None for anything else."""
    try:
        return profile_of(json.loads(text)) if text else None
    except ValueError:
        return None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _figures(fields: Mapping[str, object], name: str) -> dict[str, float]:
    found = fields.get(name)
    if not isinstance(found, dict):
        return {}
    given = cast("dict[str, object]", found)
    return {n: v for n, v in given.items() if isinstance(v, int | float) and not isinstance(v, bool)}
