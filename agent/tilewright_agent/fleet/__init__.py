"""A fleet: several GPUs behind one scheduler of dask.distributed, with TLS on every connection.

To its client a fleet is a command like any other runner: `python -m tilewright_agent.fleet --scheduler tls://…` speaks
the worker's protocol on stdin and stdout (`bridge`). Each job goes to a machine with a free GPU, where `node` hands it
to a worker. `service` is what runs there and in the middle, `certificates` makes what all of them know each other by.

dask runs what its clients send, so a certificate of the fleet is worth a login on all its machines.
"""

from __future__ import annotations

import argparse

SCHEME = "tls://"
GPU = "GPU"  # the resource of which each job needs one


class FleetError(Exception):
    """The fleet cannot be used as it is set up; the message says what to do."""


def main(argv: list[str] | None = None) -> int:
    """Carry jobs between stdin and stdout and the fleet. Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tilewright_agent.fleet", description="Run Tilewright kernels on a fleet (JSON lines)."
    )
    parser.add_argument("--scheduler", required=True, metavar="tls://HOST:PORT")
    parser.add_argument("--certificates", required=True, metavar="DIR")
    options = parser.parse_args(argv)
    from tilewright_agent.fleet.bridge import serve

    return serve(options.scheduler, options.certificates)
