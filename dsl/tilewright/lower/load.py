"""Load a generated module into this process, to launch it."""

from __future__ import annotations

from types import ModuleType

from tilewright.generated import load_source
from tilewright.lower.lowered import Lowered


def load_module(lowered: Lowered) -> ModuleType:
    """The generated module; one for equal source, so that equal kernels are compiled once.

    What is executed is the code that `lower` wrote, never the kernel's own Python. Needs triton; its ImportError passes
    through.
    """
    return load_source(lowered.entry, lowered.source)
