"""mbarriers: phases, arrivals and transaction bytes (PTX ISA, "mbarrier")."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(eq=False, slots=True)
class Slot:
    """One mbarrier. A phase ends when `pending` arrivals are left and `bytes` announced bytes outstanding are both 0.

    `bytes` may be negative for a moment: a copy may deliver before its bytes are announced in the same phase.
    """

    name: str
    arrivals: int
    pending: int = 0
    bytes: int = 0
    phase: int = 0
    on_end: list[Callable[[Slot], None]] = field(default_factory=list["Callable[[Slot], None]"])

    def __post_init__(self) -> None:
        self.pending = self.arrivals

    def passed(self, parity: int) -> bool:
        """Whether a wait for the phase of this parity goes through: the running phase has the other parity."""
        return self.phase % 2 != parity

    def announce(self, count: int) -> None:
        """Add to the bytes this phase waits for."""
        self.bytes += count

    def arrive(self) -> bool:
        """Take one arrival; False if the phase has had all its arrivals and only waits for bytes."""
        if self.pending == 0:
            return False
        self.pending -= 1
        self._end_if_complete()
        return True

    def deliver(self, count: int) -> None:
        """Take bytes of a copy."""
        self.bytes -= count
        self._end_if_complete()

    def describe(self) -> str:
        """State in words."""
        return (
            f"{self.name}: phase {self.phase} runs, {self.arrivals - self.pending} of {self.arrivals} arrivals, "
            f"{self.bytes} bytes outstanding"
        )

    def _end_if_complete(self) -> None:
        if self.pending == 0 and self.bytes == 0:
            for call in self.on_end:
                call(self)
            self.phase += 1
            self.pending = self.arrivals
