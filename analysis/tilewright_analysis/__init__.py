"""The verifier and the performance model of Tilewright kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .explain import UnknownCode, codes, explain
from .report import Counterexample, Finding, KernelReport, Obligation

if TYPE_CHECKING:
    from .driver import Budget, check_kernel, check_module, check_unit

__all__ = [
    "Budget",
    "Counterexample",
    "Finding",
    "KernelReport",
    "Obligation",
    "UnknownCode",
    "check_kernel",
    "check_module",
    "check_unit",
    "codes",
    "explain",
]


def __getattr__(name: str) -> object:
    # The checks load z3. A process that only shows reports, such as the language server, must not.
    if name in ("Budget", "check_kernel", "check_module", "check_unit"):
        from . import driver

        return getattr(driver, name)
    raise AttributeError(f"module 'tilewright_analysis' has no attribute '{name}'")
