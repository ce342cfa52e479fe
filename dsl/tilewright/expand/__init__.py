"""Expansion of policies into explicit instructions: `expand(kernel)` gives what interpreter, verifier and lowering take."""

from tilewright.expand.expand import ExpansionError, expand

__all__ = ["ExpansionError", "expand"]
