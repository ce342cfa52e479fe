"""The verifier and the performance model of Tilewright kernels."""

from .driver import Budget, check_kernel, check_module, check_unit
from .explain import UnknownCode, codes, explain
from .report import Counterexample, Finding, KernelReport, Obligation

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
