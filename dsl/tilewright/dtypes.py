"""Element types of tiles and tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["float", "int", "uint", "bool"]


@dataclass(frozen=True, slots=True)
class DType:
    """An element type. `bits` is the storage width; `gluon` the name under `triton.experimental.gluon.language`."""

    name: str
    kind: Kind
    bits: int
    gluon: str
    torch: str

    @property
    def bytes(self) -> int:
        """Storage of one element in bytes (`i1` counts as one byte)."""
        return max(1, self.bits // 8)

    @property
    def is_float(self) -> bool:
        """True for floating-point types."""
        return self.kind == "float"

    def __str__(self) -> str:
        return self.name


f16 = DType("f16", "float", 16, "float16", "float16")
bf16 = DType("bf16", "float", 16, "bfloat16", "bfloat16")
f32 = DType("f32", "float", 32, "float32", "float32")
f64 = DType("f64", "float", 64, "float64", "float64")
i8 = DType("i8", "int", 8, "int8", "int8")
i16 = DType("i16", "int", 16, "int16", "int16")
i32 = DType("i32", "int", 32, "int32", "int32")
i64 = DType("i64", "int", 64, "int64", "int64")
u8 = DType("u8", "uint", 8, "uint8", "uint8")
i1 = DType("i1", "bool", 1, "int1", "bool")

ALL: dict[str, DType] = {d.name: d for d in (f16, bf16, f32, f64, i8, i16, i32, i64, u8, i1)}
