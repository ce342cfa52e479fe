"""The front end: text of a file to Tile IR, by tree-sitter and an evaluator of our own. Runs no user code."""

from tilewright.frontend.module import Module, parse_module
from tilewright.frontend.unit import KernelUnit

__all__ = ["KernelUnit", "Module", "parse_module"]
