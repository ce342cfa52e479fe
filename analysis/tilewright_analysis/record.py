"""Reports as plain data and back, to keep them: what is read is values of known classes, never code."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any, cast

from tilewright.problem import Edit, Fix, Related
from tilewright.source import Span

from .report import Counterexample, Finding, KernelReport, Obligation, TraceStep

_CLASSES: dict[str, type] = {
    c.__name__: c
    for c in (KernelReport, Obligation, Finding, Counterexample, TraceStep, Related, Fix, Edit, Span)
}  # fmt: skip


def record(value: object) -> Any:
    """A report, or any part of one, as JSON data: a list is a tuple, an object with `$` one of the classes above."""
    if is_dataclass(value) and not isinstance(value, type):
        return {"$": type(value).__name__, **{f.name: record(getattr(value, f.name)) for f in fields(value)}}
    if isinstance(value, dict):
        return {"$": "", **{str(k): record(v) for k, v in cast("dict[str, object]", value).items()}}
    if isinstance(value, tuple | list):
        return [record(v) for v in cast("tuple[object, ...]", value)]
    if value is None or isinstance(value, str | int | float):
        return value
    raise TypeError(f"a report holds no {type(value).__name__}")


def restored(data: Any) -> Any:
    """The value that `record` was given. Raises ValueError, KeyError or TypeError for data that it did not make."""
    if isinstance(data, list):
        return tuple(restored(v) for v in cast("list[Any]", data))
    if not isinstance(data, dict):
        return data
    parts = {str(k): restored(v) for k, v in cast("dict[str, Any]", data).items() if k != "$"}
    name = cast("dict[str, Any]", data)["$"]
    return parts if name == "" else _CLASSES[name](**parts)
