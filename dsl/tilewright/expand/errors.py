"""Why a policy cannot be expanded."""

from __future__ import annotations

from tilewright.problem import Problem
from tilewright.source import Span


class ExpansionError(Exception):
    """A policy that asks for something impossible, with the problem to report."""

    def __init__(self, code: str, message: str, span: Span) -> None:
        super().__init__(message)
        self.problem = Problem(code, message, span)
