"""The worker: runs kernels on the machine that has the device, for a client that speaks JSON lines over its stdio.

It needs the standard library, and torch and triton where there is a GPU. The package imports nothing else of Tilewright
when it starts, so it can be copied to a machine as one file: `python -m tilewright_agent.worker --archive worker.pyz`
here, `python3 worker.pyz` there. `protocol` holds the messages.

Its processes: `supervise` speaks to the client, and kills; `judge` makes inputs, evaluates references, compares and
takes times; the kernel of a job has a process of its own (`candidate`), which `nursery` starts and `confine` limits.
Where a job asks for it, `profile` looks at one more launch, in yet another process (`profiled`).

What a client may do: run any generated module that it sends, with the rights of the account that started the worker.
The worker listens on no socket; whoever can start it over ssh or docker could run that code anyway. The reference of a
job is not code: `tilewright_reference` reads it with a small evaluator of its own.
"""

from __future__ import annotations

import argparse
import sys

from .protocol import PROTOCOL


def main(argv: list[str] | None = None) -> int:
    """Serve jobs on stdin until it ends. Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="tilewright-worker", description="Run Tilewright kernels for a client on stdin and stdout (JSON lines)."
    )
    parser.add_argument("--archive", metavar="FILE", help="write the worker as one Python file and leave")
    parser.add_argument("--version", action="version", version=f"tilewright-worker, protocol {PROTOCOL}")
    # The worker's own processes.
    parser.add_argument("--judge", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--nursery", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--candidate", help=argparse.SUPPRESS)
    parser.add_argument("--profiled", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.archive:
        from .archive import write_archive

        print(f"wrote {write_archive(options.archive)}; start it with: python3 {options.archive}")
        return 0
    from .supervise import serve, worker_command

    command = worker_command()
    if options.judge:
        from .judge import main as judge_main

        return judge_main(command)
    if options.nursery is not None:
        from .nursery import nursery_main

        return nursery_main(options.nursery)
    if options.candidate:
        from .nursery import candidate_main

        return candidate_main(options.candidate)
    if options.profiled:
        from .profiled import main as profiled_main

        return profiled_main(options.profiled)
    return serve(sys.stdin.buffer, sys.stdout.buffer, [*command, "--judge"])
