"""The command line and the language server of Tilewright."""

from importlib.metadata import PackageNotFoundError, version


def installed_version() -> str:
    """The version of the installed distribution, or "unknown" when the packages run from a bare checkout."""
    try:
        return version("tilewright")
    except PackageNotFoundError:
        return "unknown"
