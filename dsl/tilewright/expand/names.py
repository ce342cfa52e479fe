"""Names for what an expansion adds."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.ir.types import Type


class Names:
    """The types of a kernel under expansion, and new names that collide with none of them."""

    def __init__(self, types: Mapping[str, Type], reserved: set[str]) -> None:
        self.types: dict[str, Type] = dict(types)
        self.reserved = set(reserved)

    def new(self, wanted: str, type_: Type) -> str:
        """`wanted`, or with the first free number behind it; registers the type.

        What is wanted for a temporary begins with its number, which no name of the source does.
        """
        wanted = f"t{wanted}" if wanted[:1].isdigit() else wanted
        name, n = wanted, 1
        while name in self.types or name in self.reserved:
            n += 1
            name = f"{wanted}_{n}"
        self.types[name] = type_
        return name
