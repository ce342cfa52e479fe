"""Load a generated module into this process, to launch it."""

from __future__ import annotations

import hashlib
import linecache
from collections.abc import Callable
from typing import Any

from tilewright.lower.lowered import Lowered


def load_launcher(lowered: Lowered) -> Callable[..., Any]:
    """The module's `launch(*tensors)`.

    What is executed is the code that `lower` wrote, never the kernel's own Python. Needs torch and triton; their
    ImportError passes through. The source stands in `linecache`, where Triton and tracebacks look for it.
    """
    name = f"<tilewright {lowered.entry} {hashlib.blake2b(lowered.source.encode(), digest_size=6).hexdigest()}>"
    linecache.cache[name] = (len(lowered.source), None, lowered.source.splitlines(keepends=True), name)
    namespace: dict[str, Any] = {"__name__": name, "__file__": name}
    exec(compile(lowered.source, name, "exec"), namespace)
    return namespace["launch"]
