"""One kernel of a file, by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tilewright.frontend.kernel import Elaborated, elaborate_kernel
from tilewright.frontend.operations import known_target
from tilewright.frontend.tree import parse, parts
from tilewright.frontend.values import Value
from tilewright.ir import nodes as ir
from tilewright.problem import Problem
from tilewright.source import Span
from tilewright.targets import TARGETS


@dataclass(frozen=True)
class KernelUnit:
    """One kernel of a file, by itself: everything but `offset` and `line` depends only on its text and its scope.

    `text` is the kernel with its decorators; all spans (in `kernel`, in `problems`) are relative to its first byte,
    which is byte `offset` of the file. `key` identifies the content: units with equal keys have equal IR and verdicts.
    `types` are the element types chosen for names of `tw.element_types`; every instance made of the unit has them.
    """

    name: str
    offset: int
    text: str
    key: str
    kernel: ir.Kernel | None
    problems: tuple[Problem, ...]
    reference: str
    path: str
    scope: Mapping[str, Value] = field(repr=False, compare=False)
    types: tuple[tuple[str, str], ...] = ()

    @property
    def span(self) -> Span:
        """The kernel's whole text, as an absolute span."""
        return Span(self.offset, self.offset + len(self.text.encode()))

    def with_consts(self, target: str | None = None, **consts: int | str) -> KernelUnit:
        """The unit with other compile-time values, or for another target, elaborated anew.

        Element types are given by their names: `with_consts(BM=64, T="bf16")`.

        An unknown name or target becomes a problem of the result.
        """
        data = self.text.encode()
        node = next((n for n in parts(parse(data).root_node) if n.type == "decorated_definition"), None)
        if node is None or node.has_error:
            return self
        types = dict(self.types) | {name: value for name, value in consts.items() if isinstance(value, str)}
        done = elaborate_kernel(node, 0, self.scope, consts | types, target)
        if target is not None and not known_target(target):
            message = f"unknown target '{target}'; known are {', '.join(TARGETS)}"
            done = Elaborated(None, (*done.problems, Problem("TW009", message, Span(0, 0))))
        suffix = ",".join(f"{k}={v}" for k, v in sorted(consts.items())) + f"@{target or ''}"
        return replace(
            self, kernel=done.kernel, problems=done.problems, reference=done.reference, key=f"{self.key}[{suffix}]",
            types=tuple(types.items()),
        )  # fmt: skip
