"""The verifier and the performance model of Tilewright kernels."""

from .driver import Budget, check_kernel, check_module, check_unit
from .report import Counterexample, Finding, KernelReport, Obligation

__all__ = [
    "Budget",
    "Counterexample",
    "Finding",
    "KernelReport",
    "Obligation",
    "check_kernel",
    "check_module",
    "check_unit",
]
