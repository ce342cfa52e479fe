"""Load a generated module into this process, to launch it."""

from __future__ import annotations

import hashlib
import linecache
from functools import lru_cache
from types import ModuleType

from tilewright.lower.lowered import Lowered


def load_module(lowered: Lowered) -> ModuleType:
    """The generated module; one for equal source, so that equal kernels are compiled once.

    What is executed is the code that `lower` wrote, never the kernel's own Python. Needs triton; its ImportError passes
    through. The source stands in `linecache`, where Triton and tracebacks look for it.
    """
    return _load(lowered.entry, lowered.source)


@lru_cache(maxsize=256)
def _load(entry: str, source: str) -> ModuleType:
    name = f"<tilewright {entry} {hashlib.blake2b(source.encode(), digest_size=6).hexdigest()}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    module = ModuleType(name)
    module.__file__ = name
    exec(compile(source, name, "exec"), module.__dict__)
    return module
