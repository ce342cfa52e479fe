"""The static performance model: estimates, hints and the hover."""

from tilewright_analysis.perf.devices import DEVICES, Device, device_for, has_model
from tilewright_analysis.perf.estimate import Estimate, Figure, estimate
from tilewright_analysis.perf.hints import hints
from tilewright_analysis.perf.hover import Compiled, Timing, hover_markdown

__all__ = [
    "DEVICES",
    "Compiled",
    "Device",
    "Estimate",
    "Figure",
    "Timing",
    "device_for",
    "has_model",
    "estimate",
    "hints",
    "hover_markdown",
]
