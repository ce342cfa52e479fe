"""Counters of a launch beside the predictions of the static model, for a terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.ir import nodes as ir
from tilewright_agent.counted import stall_text
from tilewright_agent.profiles import Profile
from tilewright_server.output.words import pairs

HEAD = ("figure", "counted", "static model")


def text_lines(profile: Profile, kernel: ir.Kernel, device: str) -> Iterator[str]:
    """Lines for a terminal; one that says why where nothing was counted."""
    if not profile.tool:
        yield f"no profile: {profile.why}"
        return
    yield caption(profile)
    rows = [HEAD, *((line.name, line.counted, line.predicted or "–") for line in profile.lines(kernel, device))]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    for name, counted, predicted in rows:
        yield f"  {name:<{widths[0]}}  {counted:>{widths[1]}}  {predicted:>{widths[2]}}"
    if stalls := stall_text(profile.stalls):
        yield f"  warps: {stalls}"


def markdown(profile: Profile, kernel: ir.Kernel, device: str) -> str:
    """The same for a hover."""
    if not profile.tool:
        return f"No profile: {profile.why}"
    rows = [f"| {line.name} | {line.counted} | {line.predicted or '–'} |" for line in profile.lines(kernel, device)]
    table = "\n".join([f"| {' | '.join(HEAD)} |", "| --- | ---: | ---: |", *rows])
    stalls = stall_text(profile.stalls)
    return "\n\n".join([f"**{caption(profile)}**", table, *([f"warps: {stalls}"] if stalls else [])])


def caption(profile: Profile) -> str:
    """Which tool counted what."""
    of = f", {profile.kernels} kernels, the longest" if profile.kernels > 1 else ""
    note = f" ({profile.why})" if profile.why else ""
    return f"counted by {profile.tool} at {pairs(profile.sizes)}{of}{note}"
