"""`tilewright lower`: show a kernel at each stage on its way to machine code."""

from __future__ import annotations

import argparse

from tilewright_server import engine, sources, stages
from tilewright_server.commands.check import add_instance_arguments, parse_constants
from tilewright_server.sources import KernelPath

SUMMARY = "show a kernel as syntax tree, Tile IR, explicit source, Gluon, PTX, SASS or AMD assembly"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the kernel, the stage, and the instance."""
    parser.add_argument("kernel", metavar="FILE[::KERNEL]", help="the kernel; its name may be left out if there is one")
    parser.add_argument(
        "--emit", choices=tuple(stages.STAGES), default="gluon", help="the stage to show (default: gluon)"
    )
    add_instance_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the kernel at that stage."""
    path = KernelPath.parse(arguments.kernel)
    module = engine.parse(sources.read(path.file))
    unit = engine.find_unit(module, path.kernel)
    if arguments.emit != "tree":  # a tree shows also what is broken
        unit = engine.configured(unit, arguments.target, parse_constants(arguments.const))
    print(stages.STAGES[arguments.emit](unit).rstrip("\n"))
    return 0
