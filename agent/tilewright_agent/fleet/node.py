"""A machine of a fleet: hands jobs to a worker of its own. These functions run in the processes of dask's workers."""

from __future__ import annotations

import asyncio
import threading

from tilewright_agent.transport import LOCAL, Cancelled, Connection, ConnectionFailed, worker_command
from tilewright_agent.worker.protocol import Message, decode, encode, failed

_connection: Connection | None = None
_opening = threading.Lock()
_running = ""  # the job
_stopped: set[str] = set()


async def greet() -> bytes:
    """The greeting of the worker here, which is started if need be; one with a problem when it cannot be."""
    return await asyncio.to_thread(_greet)


def cancel(identity: str) -> None:
    """End a job that runs here, or is about to."""
    _stopped.add(identity)


def run_job(data: bytes, topic: str) -> bytes:
    """Do a job and return its result, both as lines of the worker's protocol. Progress goes to the client's topic."""
    from distributed.worker import get_worker

    global _running
    worker, job = get_worker(), decode(data)
    identity = str(job["id"])
    _running = identity
    worker.log_event(topic, _said(identity, "start"))
    try:
        return encode(_reach().request(job, lambda message: worker.log_event(topic, message)))
    except Cancelled:
        return encode(failed(identity, "cancelled", "cancelled while it ran"))
    except ConnectionFailed as error:
        _lose()
        return encode(failed(identity, "connection" if error.code == "connection" else error.code, str(error)))
    finally:
        _running = ""
        _stopped.discard(identity)


def _said(identity: str, stage: str) -> Message:
    return {"type": "progress", "id": identity, "stage": stage, "done": 0, "total": 1, "message": ""}


def _greet() -> bytes:
    try:
        return encode(_reach().hello)
    except ConnectionFailed as error:
        return encode({"type": "hello", "problem": str(error)})


def _reach() -> Connection:
    global _connection
    with _opening:
        if _connection is not None and _connection.returncode is not None:
            _lose()
        if _connection is None:
            _connection = Connection(worker_command(LOCAL), lambda: _running in _stopped)
        return _connection


def _lose() -> None:
    global _connection
    if _connection is not None:
        _connection.close()
    _connection = None
