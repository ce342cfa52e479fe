"""The asynchronous engine: races, phases, deadlock, fences and coordinate tags, for all trip counts."""

from tilewright_analysis.async_.explore import explore, replay_request
from tilewright_analysis.async_.model import AsyncOutcome, AsyncResult, Budget, ReplayRequest

__all__ = ["AsyncOutcome", "AsyncResult", "Budget", "ReplayRequest", "explore", "replay_request"]
