"""Questions about integers: intervals and divisors first, then small examples, then z3."""

from .decide import Decider, Decision
from .question import MAX_SIZE, Binder, Question, conjunction, sign_claim

__all__ = ["MAX_SIZE", "Binder", "Decider", "Decision", "Question", "conjunction", "sign_claim"]
