"""Lowering to Gluon: `lower` writes a self-contained module, `compile_lowered` compiles it without needing a GPU."""

from tilewright.lower.compile import Compiled, cache_folder, compile_lowered
from tilewright.lower.errors import LoweringError
from tilewright.lower.lowered import Argument, LaunchPlan, Lowered, SizeSource
from tilewright.lower.module import lower

__all__ = [
    "Argument",
    "Compiled",
    "LaunchPlan",
    "Lowered",
    "LoweringError",
    "SizeSource",
    "cache_folder",
    "compile_lowered",
    "lower",
]
