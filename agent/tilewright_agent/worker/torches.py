"""What the judge's and the kernel's side of a GPU share: element types, and names for what torch and CUDA raise."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from .terms import JobError

TYPES: Mapping[str, str] = MappingProxyType({
    "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "i8": "int8", "i16": "int16",
    "i32": "int32", "i64": "int64", "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64", "i1": "bool",
    "f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2",
})  # fmt: skip


def load_torch() -> Any:
    """The torch module. Raises ImportError."""
    return importlib.import_module("torch")


def kind_of(torch: Any, dtype: str) -> Any:
    """The element type of torch. Raises JobError."""
    if dtype not in TYPES:
        raise JobError("bad job", f"unknown element type {dtype!r}")
    return getattr(torch, TYPES[dtype])


def failure_of(device: str, error: Exception) -> JobError:
    """What an error of torch, triton or the driver means for the job."""
    if isinstance(error, JobError):
        return error
    text, kind = str(error).strip(), type(error).__name__
    first = text.splitlines()[0] if text else kind
    if isinstance(error, MemoryError) or kind == "OutOfMemoryError" or "out of memory" in text:
        return JobError("out of memory", f"{device}: {first}")
    if any(words in text for words in ("illegal memory access", "misaligned address", "illegal instruction")):
        return JobError("illegal access", f"{device}: {first}")
    if "No space left on device" in text:
        return JobError("disk full", f"{kind}: {first}")
    failure = "compile" if any(w in kind for w in ("Compilation", "OutOfResources", "PTXAS")) else "launch"
    return JobError(failure, f"{kind}: {text[:2000]}")
