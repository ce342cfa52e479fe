"""What launching generated modules takes: no front end and no NumPy, so a machine needs torch and triton alone."""

from __future__ import annotations

import hashlib
import linecache
from collections.abc import Sequence
from functools import lru_cache
from types import ModuleType
from typing import Any

from tilewright.targets import target


class LaunchError(RuntimeError):
    """A launch is not possible as things stand: a GPU that the kernel is not for, or a first launch inside a graph."""


@lru_cache(maxsize=1024)
def load_source(entry: str, source: str) -> ModuleType:
    """The module with that source, which lowering wrote for the kernel `entry`; one for equal source.

    Needs triton; its ImportError passes through. The source stands in `linecache`, where Triton and tracebacks look
    for it.
    """
    name = f"<tilewright {entry} {hashlib.blake2b(source.encode(), digest_size=6).hexdigest()}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    module = ModuleType(name)
    module.__file__ = name
    exec(compile(source, name, "exec"), module.__dict__)
    return module


def tensor_kinds(given: Sequence[Any]) -> tuple[Any, ...]:
    """What decides how tensors are launched on."""
    return tuple([(a.shape, a.stride(), a.dtype, a.device, a.data_ptr() & 15) for a in given])


def check_device(name: str, wanted: str, torch: Any, device: Any) -> None:
    """Raise LaunchError unless a kernel for the target `wanted` can be compiled and loaded for `device` now."""
    if device.type != "cuda":
        raise LaunchError(f"{name}: tensors on {device} cannot be launched on; there are cuda and cpu")
    arch = target(wanted).arch
    if torch.version.hip is not None:
        has = str(torch.cuda.get_device_properties(device).gcnArchName).partition(":")[0]
        fits = arch == has
    else:
        major, minor = torch.cuda.get_device_capability(device)
        has, number = f"sm_{major}{minor}", major * 10 + minor
        fits = isinstance(arch, int) and (number == arch if wanted.endswith("a") else number >= arch)
    if not fits:
        raise LaunchError(
            f"{name} is for {wanted}, and {device} is a {torch.cuda.get_device_name(device)} ({has}); "
            f'{name}.using(target="…") gives the kernel another target'
        )
    with torch.cuda.device(device):
        capturing = torch.cuda.is_current_stream_capturing()
    if capturing:
        raise LaunchError(
            f"{name} is not compiled for {device} yet, which a CUDA graph cannot capture: "
            f"launch it once with such arguments before the capture"
        )
