"""The scheduler of a fleet, and the processes that stand for its GPUs. No socket is without TLS."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tilewright_agent.fleet import GPU, SCHEME, FleetError
from tilewright_agent.fleet.certificates import MEMBER, checked_address, security

PORT = 8786
RESTART_SECONDS = 2.0


def run_scheduler(folder: str, host: str, port: int = PORT) -> int:
    """Serve until it is stopped. Raises FleetError."""
    own = security(folder)
    _private(folder)
    from distributed import Scheduler

    async def serve() -> None:
        try:
            scheduler = Scheduler(
                security=own, protocol=SCHEME, host=host, port=port, dashboard=False, dashboard_address="127.0.0.1:0",
                allowed_failures=0,
            )  # fmt: skip
            async with scheduler:
                print(f"the scheduler of the fleet is at {scheduler.address}", flush=True)
                await scheduler.finished()
        except OSError as error:
            raise FleetError(f"cannot listen at {host}:{port}: {error.strerror or error}") from None

    return _until_stopped(serve())


def run_nodes(folder: str, address: str, gpus: Sequence[str]) -> int:
    """Keep a process for each GPU at the scheduler, until stopped; one that dies is started again. Raises FleetError.

    Without GPUs there is one process, whose worker interprets.
    """
    checked_address(address)
    security(folder)
    running: dict[str, subprocess.Popen[bytes]] = {}
    try:
        while True:
            for gpu in gpus or [""]:
                if gpu in running and running[gpu].poll() is None:
                    continue
                if gpu in running:
                    print(
                        f"the process for GPU {gpu or '(none)'} ended with {running[gpu].returncode}; again", flush=True
                    )
                running[gpu] = _start_node(folder, address, gpu)
            time.sleep(RESTART_SECONDS)
    except KeyboardInterrupt:
        return 0
    finally:
        for process in running.values():
            process.terminate()


def run_node(folder: str, address: str) -> int:
    """The process of one GPU. Raises FleetError."""
    own = security(folder)
    _private(folder)
    from distributed import Worker

    async def serve() -> None:
        worker = Worker(
            checked_address(address), security=own, protocol=SCHEME, nthreads=1, resources={GPU: 1}, dashboard=False,
            dashboard_address="127.0.0.1:0", memory_limit=0, death_timeout=60,
        )  # fmt: skip
        async with worker:
            print(f"joined {address} as {worker.address}", flush=True)
            await worker.finished()

    return _until_stopped(serve())


def _start_node(folder: str, address: str, gpu: str) -> subprocess.Popen[bytes]:
    environ = {**os.environ, "CUDA_VISIBLE_DEVICES": gpu}
    program = "import sys; from tilewright_agent.fleet.service import run_node; sys.exit(run_node(*sys.argv[1:]))"
    return subprocess.Popen([sys.executable, "-c", program, folder, address], env=environ)


def _private(folder: str) -> None:
    """Dask's web server cannot be left out, so it gets the certificate too, this machine alone, and no pages."""
    from dask import config

    member = str(Path(folder).expanduser() / MEMBER)
    config.set({
        "distributed.scheduler.dashboard.tls.cert": member, "distributed.scheduler.dashboard.tls.key": member,
        "logging.distributed": "warning", "distributed.scheduler.http.routes": [], "distributed.worker.http.routes": [],
    })  # fmt: skip


def _until_stopped(work: Any) -> int:
    try:
        asyncio.run(work)
    except KeyboardInterrupt:
        return 0
    except TimeoutError as error:
        raise FleetError(f"no answer from the scheduler: {error}") from None
    return 0
