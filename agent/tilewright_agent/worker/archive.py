"""The worker as one file that `python3` runs."""

from __future__ import annotations

import zipfile
from pathlib import Path

import tilewright_reference

_START = "from tilewright_agent.worker import main\n\nif __name__ == '__main__':\n    raise SystemExit(main())\n"


def write_archive(path: str | Path) -> Path:
    """Write this package and the language of references as an executable zip archive and return its path.

    The archive keeps the names of both packages, so the same imports work inside it.
    """
    target = Path(path)
    folder, language = Path(__file__).parent, Path(tilewright_reference.__file__).parent
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("__main__.py", _START)
        archive.writestr("tilewright_agent/__init__.py", '"""The part of Tilewright that a worker needs."""\n')
        for module in sorted(folder.glob("*.py")):
            archive.writestr(f"tilewright_agent/worker/{module.name}", module.read_text(encoding="utf-8"))
        for module in sorted(language.glob("*.py")):
            archive.writestr(f"{language.name}/{module.name}", module.read_text(encoding="utf-8"))
    return target
