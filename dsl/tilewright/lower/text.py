"""Writing Python text: indented lines that remember their span, and names that are safe to write."""

from __future__ import annotations

import keyword
from collections.abc import Generator
from contextlib import contextmanager

from tilewright.source import NO_SPAN, Span

# Names that generated modules use themselves.
_RESERVED = frozenset((
    "triton", "torch", "gluon", "gl", "tma", "mbarrier", "async_copy", "mma_v2", "cdna3", "cdna4", "fence_async_shared",
    "tcgen05_mma", "tcgen05_commit", "allocate_tensor_memory", "TensorMemoryLayout",
    "warpgroup_mma", "warpgroup_mma_wait", "TensorDescriptor", "PropagateNan", "NAN", "tanh_", "max_", "min_", "add_",
    "multiply_", "argmax_", "argmin_", "floordiv_", "mod_", "philox_", "to_f8e5m2_", "uniform_", "libdevice",
    "launch", "prepare", "bind", "run", "check", "describe", "compiled", "device", "facts", "made", "tensor",
    "tiles", "programs", "processors", "slot", "axis", "extent", "stride",
    "message", "holds", "min", "max", "range", "zip", "enumerate", "float", "int", "bool", "print", "len", "dict",
    "object", "isinstance", "ValueError",
))  # fmt: skip


class Writer:
    """Lines of text under construction. `marks` holds (1-based line, span) wherever the span changes."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.marks: list[tuple[int, Span]] = []
        self.span = NO_SPAN
        self._depth = 0

    def line(self, text: str = "") -> None:
        """One line at the current depth."""
        if not self.marks or self.marks[-1][1] != self.span:
            self.marks.append((len(self.lines) + 1, self.span))
        self.lines.append("    " * self._depth + text if text else "")

    @contextmanager
    def indented(self) -> Generator[None]:
        """Lines inside stand one level deeper."""
        self._depth += 1
        yield
        self._depth -= 1

    @contextmanager
    def at(self, span: Span) -> Generator[None]:
        """Lines inside come from `span`."""
        before, self.span = self.span, span
        yield
        self.span = before

    def append(self, other: Writer) -> None:
        """The lines of another writer, at depth 0."""
        start = len(self.lines)
        self.marks.extend((start + line, span) for line, span in other.marks)
        self.lines.extend(other.lines)


class Names:
    """Generated names: one for each name of the kernel, readable, and never one that the module uses itself."""

    def __init__(self) -> None:
        self._given: dict[str, str] = {}
        self._used: set[str] = set(_RESERVED)

    def __call__(self, name: str) -> str:
        """The generated name of a name of the kernel."""
        if name not in self._given:
            self._given[name] = self.fresh(name)
        return self._given[name]

    def fresh(self, wish: str) -> str:
        """A name that is not used yet, as close to `wish` as possible."""
        base = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in wish.replace("%", "t_"))
        if not base or base[0].isdigit() or base.startswith("__"):
            base = f"n{base}"
        name, serial = base, 1
        while name in self._used or keyword.iskeyword(name) or keyword.issoftkeyword(name):
            serial += 1
            name = f"{base}_{serial}"
        self._used.add(name)
        return name


def comment(text: str, limit: int = 100) -> str:
    """`text` fit for a comment: one line, printable, at most `limit` characters."""
    flat = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"
