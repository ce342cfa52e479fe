"""Running one of the long tasks in a worker process of its own, which ends with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tilewright_server.messages import Call, Failed, Progress, Returned
from tilewright_server.worker_process import WorkerEnded, WorkerProcess


class TaskFailed(Exception):
    """The task has ended without a result; the message is for a person, `details` for the log."""

    def __init__(self, message: str, details: str = "") -> None:
        super().__init__(message)
        self.details = details


async def run_task(
    task: str, arguments: Mapping[str, object], on_progress: Callable[[str, int | None], None]
) -> object:
    """What the task returns. Raises TaskFailed. Cancelling kills the process and what it does."""
    worker = await WorkerProcess.start()
    try:
        worker.send(Call(1, task, arguments))
        while True:
            match await worker.receive():
                case Progress(message=message, percent=percent):
                    on_progress(message, percent)
                case Returned(value=value):
                    return value
                case Failed(message=message, details=details, expected=expected):
                    raise TaskFailed(message if expected else f"error in Tilewright: {message}", details)
                case _:
                    pass
    except WorkerEnded as error:
        raise TaskFailed(f"the process that did it ended unexpectedly ({error})") from error
    finally:
        await worker.kill()
