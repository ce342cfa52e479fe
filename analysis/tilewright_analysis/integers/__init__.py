"""Questions about integers: intervals and divisors first, then small examples, then z3."""

from .decide import Decider, Decision
from .functions import Functions
from .order import smallest_first
from .question import MAX_SIZE, Binder, Question, conjunction, sign_claim

__all__ = [
    "MAX_SIZE",
    "Binder",
    "Decider",
    "Decision",
    "Functions",
    "Question",
    "conjunction",
    "sign_claim",
    "smallest_first",
]
