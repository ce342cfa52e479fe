"""Element types of tiles and tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["float", "int", "uint", "bool"]


@dataclass(frozen=True, slots=True)
class DType:
    """An element type. `bits` is the storage width; `gluon` the name under `triton.experimental.gluon.language`.

    `torch` is its name there; `least` is the compute capability (times ten) from which NVIDIA GPUs convert to it, 0 for
    types that every target has.
    """

    name: str
    kind: Kind
    bits: int
    gluon: str
    torch: str
    least: int = 0

    @property
    def bytes(self) -> int:
        """Storage of one element in bytes (`i1` counts as one byte)."""
        return max(1, self.bits // 8)

    @property
    def is_float(self) -> bool:
        """True for floating-point types."""
        return self.kind == "float"

    @property
    def computes(self) -> bool:
        """False for the 8-bit floating-point types, which are stored and converted but not computed with."""
        return not (self.is_float and self.bits == 8)

    @property
    def range(self) -> tuple[int, int]:
        """The least and the greatest integer of an integer type, (0, 1) for truth values."""
        if self.kind == "int":
            return -(1 << self.bits - 1), (1 << self.bits - 1) - 1
        return 0, (1 << self.bits) - 1

    def __str__(self) -> str:
        return self.name


f16 = DType("f16", "float", 16, "float16", "float16")
bf16 = DType("bf16", "float", 16, "bfloat16", "bfloat16")
f32 = DType("f32", "float", 32, "float32", "float32")
f64 = DType("f64", "float", 64, "float64", "float64")
# OCP 8-bit Floating Point Specification (OFP8). Triton 3.6 refuses float8e4nv below sm_89, which has the instruction.
f8e4m3 = DType("f8e4m3", "float", 8, "float8e4nv", "float8_e4m3fn", 89)
f8e5m2 = DType("f8e5m2", "float", 8, "float8e5", "float8_e5m2")
i8 = DType("i8", "int", 8, "int8", "int8")
i16 = DType("i16", "int", 16, "int16", "int16")
i32 = DType("i32", "int", 32, "int32", "int32")
i64 = DType("i64", "int", 64, "int64", "int64")
u8 = DType("u8", "uint", 8, "uint8", "uint8")
u16 = DType("u16", "uint", 16, "uint16", "uint16")
u32 = DType("u32", "uint", 32, "uint32", "uint32")
u64 = DType("u64", "uint", 64, "uint64", "uint64")
i1 = DType("i1", "bool", 1, "int1", "bool")

ALL: dict[str, DType] = {
    d.name: d for d in (f16, bf16, f32, f64, f8e4m3, f8e5m2, i8, i16, i32, i64, u8, u16, u32, u64, i1)
}
