"""Errors whose message is all that a person needs."""


class UsageError(Exception):
    """The person asked for something that cannot be done; the message says what to change. Exit status 2."""


class MissingExtra(UsageError):
    """A part of Tilewright needs a package that the base install leaves out."""

    def __init__(self, purpose: str, package: str, extra: str) -> None:
        super().__init__(
            f"{purpose} needs the package {package}, which is not installed: pip install 'tilewright[{extra}]'"
        )
