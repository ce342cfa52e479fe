"""What lowering gives: source text, how to launch it, where each line comes from. Plain data that travels as JSON."""

from __future__ import annotations

import json
from bisect import bisect_right
from dataclasses import asdict, dataclass
from typing import Any, Literal, cast

from tilewright.source import NO_SPAN, Span


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of the generated kernel, in order.

    `source` is the tensor (descriptor, pointer), the size or the scalar argument it comes from. `type` is Triton's
    signature type.
    `divisibility` is what is known to divide it: the address in bytes for a pointer, the value for a size. `block` and
    `layout` (Gluon source text) belong to a descriptor.
    """

    name: str
    kind: Literal["descriptor", "pointer", "size", "scalar"]
    source: str
    type: str
    divisibility: int = 1
    block: tuple[int, ...] = ()
    layout: str = ""


@dataclass(frozen=True, slots=True)
class SizeSource:
    """A size is the extent of `param` along `axis`, or its stride there in elements."""

    name: str
    param: str
    axis: int
    stride: bool = False


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """How the kernel is launched. Expressions are Python text over the sizes.

    `tiles` counts the units of work. Not persistent: that many programs are launched. Persistent: at most
    `programs_per_sm` for each multiprocessor. `num_warps` is that of the first role; `total_warps` counts all roles,
    padded to warpgroups where there are roles.
    """

    tiles: str
    persistent: bool
    programs_per_sm: int
    num_warps: int
    total_warps: int
    maxnreg: int | None
    waves_per_eu: int | None
    arguments: tuple[Argument, ...]
    sizes: tuple[SizeSource, ...]
    assumptions: tuple[str, ...]

    @property
    def options(self) -> dict[str, int]:
        """What Triton is told besides the arguments."""
        limits = {"maxnreg": self.maxnreg, "waves_per_eu": self.waves_per_eu}
        return {"num_warps": self.num_warps, **{name: n for name, n in limits.items() if n is not None}}


@dataclass(frozen=True, slots=True)
class Lowered:
    """A kernel as a self-contained Python module that imports only triton (and torch inside its launch functions).

    The module defines `entry` (the Gluon kernel), `bind(*arguments)`, which checks the arguments and returns a function
    that launches the kernel on arguments like them, `prepare(*arguments)`, whose result launches it on these, and
    `launch(*arguments)`, which does it at once. `line_map` holds (line, start, end): from that 1-based line on, up to
    the next entry, the text comes from that span of the kernel.
    """

    name: str
    target: str
    entry: str
    source: str
    launch: LaunchPlan
    line_map: tuple[tuple[int, int, int], ...]

    def span_of(self, line: int) -> Span:
        """The span of the kernel that a 1-based line of `source` comes from; `NO_SPAN` for lines of its frame."""
        at = bisect_right(self.line_map, line, key=lambda entry: entry[0]) - 1
        return Span(*self.line_map[at][1:]) if at >= 0 else NO_SPAN

    def to_json(self) -> str:
        """The value as JSON text."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Lowered:
        """The value that `to_json` wrote."""
        data = cast("dict[str, Any]", json.loads(text))
        plan = cast("dict[str, Any]", data["launch"])
        for argument in plan["arguments"]:
            argument["block"] = tuple(argument["block"])
        plan["arguments"] = tuple(Argument(**a) for a in plan["arguments"])
        plan["sizes"] = tuple(SizeSource(**s) for s in plan["sizes"])
        plan["assumptions"] = tuple(plan["assumptions"])
        data["launch"] = LaunchPlan(**plan)
        data["line_map"] = tuple((int(line), int(start), int(end)) for line, start, end in data["line_map"])
        return Lowered(**data)
