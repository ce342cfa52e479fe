"""Errors on the way through the front end."""

from __future__ import annotations

from tilewright.problem import Problem


class Fault(Exception):
    """A mistake in the kernel, with the problem to report."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


class Silenced(Exception):
    """A name without value whose reason has been reported already."""
