"""Expansion of policies into explicit instructions, which interpreter, verifier and lowering take."""

from tilewright.expand.expand import ExpansionError, expand, expand_policies

__all__ = ["ExpansionError", "expand", "expand_policies"]
