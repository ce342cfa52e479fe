"""CPU interpreter: executes explicit Tile IR with NumPy, as reference semantics and to replay counterexamples."""

from tilewright.arguments import ArgumentError
from tilewright.interpret.errors import KINDS_OF_CODE, Kind, Violation
from tilewright.interpret.execution import Rewritten, RunReport, interpret, run
from tilewright.interpret.replaying import Expected, random_arguments, replay
from tilewright.interpret.schedule import SEQUENTIAL, Limits, Schedule

__all__ = [
    "ArgumentError",
    "Expected",
    "Kind",
    "KINDS_OF_CODE",
    "Limits",
    "Rewritten",
    "RunReport",
    "SEQUENTIAL",
    "Schedule",
    "Violation",
    "interpret",
    "random_arguments",
    "replay",
    "run",
]
