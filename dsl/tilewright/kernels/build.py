"""Lower the kernels of this package in all configurations that the operators use: `python -m tilewright.kernels.build`.

Writes `lowered.json`, which `shipped` reads.
"""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

from tilewright.function import KernelFunction
from tilewright.kernels import catalogue, shipped
from tilewright.lower import Lowered

TARGET = Path(__file__).with_name(shipped.FILE)


def main() -> None:
    """Write the file."""
    TARGET.write_text(text())
    print(f"{TARGET}: {TARGET.stat().st_size // 1024} KiB")


def text() -> str:
    """What the file holds for the kernels as they are now."""
    numbers: dict[str, int] = {}
    modules: dict[str, object] = {}
    for file, name, values in catalogue.entries():
        lowered = lower(file, name, values)
        lines = [numbers.setdefault(line, len(numbers)) for line in lowered.source.splitlines(keepends=True)]
        modules[shipped.key(name, values)] = {"target": lowered.target, "entry": lowered.entry, "lines": lines}
    # One line or module a row, so that versions of the file can be compared.
    rows = ",\n".join(json.dumps(line) for line in numbers)
    table = ",\n".join(
        f"{json.dumps(name)}: {json.dumps(found, separators=(',', ':'))}" for name, found in modules.items()
    )
    return f'{{"lines": [\n{rows}\n], "modules": {{\n{table}\n}}}}\n'


def lower(file: str, name: str, values: shipped.Values) -> Lowered:
    """A kernel of this package, lowered with these compile-time values."""
    function: KernelFunction = getattr(import_module(f"tilewright.kernels.{file}"), name)
    return function.using(None, **values).lower()  # pyright: ignore[reportArgumentType]


if __name__ == "__main__":
    main()
