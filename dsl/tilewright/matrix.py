"""Which element types the matrix instructions of each target multiply, and into what.

PTX ISA: "mma.sync" (f16, bf16, tf32 and s8 from sm_80, e4m3 and e5m2 from sm_89), "wgmma.mma_async" (sm_90a) and
"tcgen05.mma" (sm_100a). AMD: "Matrix Arithmetic Instructions" of the CDNA3 and CDNA4 ISA; on CDNA3 the 8-bit floats are
the FNUZ formats, which the language does not have, so its OCP ones are refused there. Each row was compiled by Triton
3.6; what is not in the table makes it fail or abort.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tilewright.dtypes import DType, bf16, f8e4m3, f8e5m2, f16, f32, i8, i32
from tilewright.targets import TARGETS, Target

Instruction = Literal["mma_v2", "wgmma", "tcgen05", "mfma"]
Precision = Literal["", "tf32", "ieee"]
_FLOAT8 = (f8e4m3, f8e5m2)


@dataclass(frozen=True, slots=True)
class Product:
    """Operands of one of the types `operands` (8-bit floats of either kind), summed up in one of `sums`.

    `least` is the compute capability (times ten) from which NVIDIA GPUs have it, `cdna` the first generation of AMD's.
    """

    instruction: Instruction
    operands: tuple[DType, ...]
    sums: tuple[DType, ...]
    least: int = 0
    cdna: int = 0

    def has(self, a: DType, b: DType) -> bool:
        """Whether the operands may be of these types."""
        return a in self.operands and b in self.operands and (a == b or self.operands == _FLOAT8)


PRODUCTS: tuple[Product, ...] = (
    Product("mma_v2", (f16,), (f32, f16)),
    Product("mma_v2", (bf16,), (f32,)),
    Product("mma_v2", (f32,), (f32,)),
    Product("mma_v2", (i8,), (i32,)),
    Product("mma_v2", _FLOAT8, (f32, f16), least=89),
    Product("wgmma", (f16,), (f32, f16)),
    Product("wgmma", (bf16,), (f32,)),
    Product("wgmma", (f32,), (f32,)),
    Product("wgmma", (i8,), (i32,)),
    Product("wgmma", _FLOAT8, (f32, f16)),
    Product("tcgen05", (f16,), (f32,)),
    Product("tcgen05", (bf16,), (f32,)),
    Product("mfma", (f16,), (f32,)),
    Product("mfma", (bf16,), (f32,)),
    Product("mfma", (f32,), (f32,)),
    Product("mfma", (i8,), (i32,)),
    Product("mfma", _FLOAT8, (f32,), cdna=4),
)

# Elements along K of one v_mfma, by generation and rows: V_MFMA_F32_32X32X8_F16, _16X16X16_F16, _32X32X2_F32,
# _16X16X4_F32, V_MFMA_I32_32X32X16_I8 and _16X16X32_I8 (CDNA3 ISA); CDNA4 has twice as much for 16 bits and i8, and
# V_MFMA_F32_32X32X16_FP8_FP8 and _16X16X32_FP8_FP8.
_MFMA_DEPTH: dict[tuple[int, int], dict[DType, int]] = {
    (3, 32): {f16: 8, bf16: 8, f32: 2, i8: 16},
    (3, 16): {f16: 16, bf16: 16, f32: 4, i8: 32},
    (4, 32): {f16: 16, bf16: 16, f32: 2, i8: 32, f8e4m3: 16, f8e5m2: 16},
    (4, 16): {f16: 32, bf16: 32, f32: 4, i8: 64, f8e4m3: 32, f8e5m2: 32},
}


def mfma_depth(cdna: int, rows: int, element: DType) -> int | None:
    """Elements along K of one v_mfma of `rows` rows; None for a type that this generation does not multiply."""
    return _MFMA_DEPTH[cdna, rows].get(element)


def nvidia_depth(element: DType) -> int:
    """Elements along K of one mma.sync, wgmma or tcgen05.mma: 32 bytes."""
    return 256 // element.bits


K_CONTIGUOUS = (
    "wgmma on {dtype} reads both operands with K contiguous, and '{name}' has it along its other axis; only 16-bit "
    "types can be read either way. Store that tensor the other way round, and use .T of its tile"
)


def both_along_k(element: DType) -> bool:
    """Whether wgmma reads both operands with K contiguous only.

    Instruction descriptors transpose 16-bit operands only (PTX ISA, wgmma.mma_async: "imm-trans-a, imm-trans-b").
    """
    return element.bits != 16


def type_problem(a: DType, b: DType, acc: DType) -> str:
    """Why no target multiplies these types, or ''."""
    if any(p.has(a, b) and acc in p.sums for p in PRODUCTS):
        return ""
    sums = [s for p in PRODUCTS if p.has(a, b) for s in p.sums]
    if sums:
        names = " or ".join(dict.fromkeys(s.name for s in sums))
        return f"products of {a} and {b} are summed up in {names}, not {acc}; start from tw.zeros({sums[0]}, …)"
    known = "two f16, two bf16, two f32, two i8, or 8-bit floats of either kind"
    return f"the operands are {known}, not {a} and {b}"


def problem(instruction: Instruction, target: Target, a: DType, b: DType, acc: DType) -> str:
    """Why an instruction that the target has does not multiply these types there, or ''."""
    rows = [p for p in PRODUCTS if p.instruction == instruction]
    fit = next((p for p in rows if p.has(a, b)), None)
    if fit is None:
        found = ", ".join(_name(p) for p in rows if _on(p, target))
        return f"{instruction} multiplies {found}, not {a} and {b}"
    if not _on(fit, target):
        having = [t.name for t in TARGETS.values() if t.has(instruction) and _on(fit, t)]
        why = "; the 8-bit floats of CDNA3 are the FNUZ formats" if target.cdna == 3 else ""
        return f"{instruction} of {target.name} does not multiply {a} and {b}{why}; {', '.join(having)} can"
    if acc not in fit.sums:
        sums = " or ".join(s.name for s in fit.sums)
        return f"{instruction} sums up products of {a} and {b} in {sums}, not {acc}"
    return ""


def precision_problem(instruction: Instruction, element: DType, precision: Precision) -> str:
    """Why an instruction does not have that precision on elements of a type, or ''."""
    if element == f32 and precision == "ieee" and instruction != "mfma":
        return (
            f"{instruction} reads f32 as tf32, with 10 bits after the point; only mfma multiplies f32 as it is: "
            'say precision="tf32" if that is enough'
        )
    return ""


def _on(product: Product, target: Target) -> bool:
    if target.cdna:
        return target.cdna >= product.cdna
    return isinstance(target.arch, int) and target.arch >= product.least


def _name(product: Product) -> str:
    names = " and ".join(t.name for t in product.operands)
    sums = " or ".join(t.name for t in product.sums)
    return f"{names} into {sums}"
