"""`tilewright fleet`: several GPU machines behind one scheduler, over TLS."""

from __future__ import annotations

import argparse
from pathlib import Path

from tilewright_server.errors import UsageError

SUMMARY = "make certificates for a fleet of GPU machines, and run its scheduler and workers"
CERTIFICATES = "~/.tilewright/fleet"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions."""
    actions = parser.add_subparsers(required=True, metavar="ACTION", dest="action")
    making = actions.add_parser(
        "certificates", help="make what the machines know each other by; copy it to all of them"
    )
    making.add_argument("folder", metavar="DIR", nargs="?", default=CERTIFICATES, help=f"(default: {CERTIFICATES})")
    serving = actions.add_parser("scheduler", help="run the scheduler, on a machine that all others reach")
    serving.add_argument("--host", default="0.0.0.0", help="the address to listen at (default: all)")
    serving.add_argument("--port", type=int, default=8786, help="(default: 8786)")
    working = actions.add_parser("worker", help="offer the GPUs of this machine")
    working.add_argument("scheduler", metavar="tls://HOST:PORT")
    working.add_argument("--gpus", default="0", metavar="N,N", help="the GPUs to offer (default: 0); none: interpret")
    for action in (serving, working):
        action.add_argument("--certificates", metavar="DIR", default=CERTIFICATES, help=f"(default: {CERTIFICATES})")


def run(arguments: argparse.Namespace) -> int:
    """Make certificates, or serve until stopped."""
    from tilewright_agent.fleet import FleetError

    try:
        if arguments.action == "certificates":
            return _certificates(Path(arguments.folder).expanduser())
        from tilewright_agent.fleet.service import run_nodes, run_scheduler

        if arguments.action == "scheduler":
            return run_scheduler(arguments.certificates, arguments.host, arguments.port)
        gpus = [] if arguments.gpus == "none" else [gpu.strip() for gpu in arguments.gpus.split(",") if gpu.strip()]
        return run_nodes(arguments.certificates, arguments.scheduler, gpus)
    except FleetError as error:
        raise UsageError(str(error)) from error


def _certificates(folder: Path) -> int:
    from tilewright_agent.fleet.certificates import make_certificates

    authority, member = make_certificates(folder)
    print(authority, member, sep="\n")
    print(f"Copy both to every machine of the fleet and to those that send it work; {member.name} is secret.")
    return 0
