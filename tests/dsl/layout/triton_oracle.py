"""Asks Triton for layouts, in a process of its own: invalid input aborts it.

Reads a JSON list of questions from standard input and writes the list of answers. A question is an object with
`kind`: "linear" (`layout`, `shape`, `warps`), "shared" (`layout`, `shape`, `bits`) or "conflicts" (`layout`, `shared`,
`shape`, `bits`, `warps`), where layouts are Gluon constructor expressions. `target` is "cuda" or an AMD architecture.
Run with the interpreter of the tests.
"""

import json
import sys
from typing import Any

from triton._C.libtriton import gluon_ir, ir
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import make_backend
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language._semantic import GluonSemantic

TYPES = {8: gl.int8, 16: gl.float16, 32: gl.float32, 64: gl.float64}


class Session:
    """One module for a given number of warps of a target."""

    def __init__(self, warps: int, arch: str) -> None:
        target = GPUTarget("cuda", 90, 32) if arch == "cuda" else GPUTarget("hip", arch, 64)
        self.context = ir.context()
        ir.load_dialects(self.context)
        backend: Any = make_backend(target)
        backend.load_dialects(self.context)
        self.builder = gluon_ir.GluonOpBuilder(self.context)
        options = backend.parse_options({"num_warps": warps, "num_ctas": 1})
        self.module = self.builder.create_module()
        self.module.set_attr("ttg.target", self.builder.get_string_attr(backend.get_target_name(options)))
        for name, value in (("num-warps", warps), ("num-ctas", 1), ("threads-per-warp", target.warp_size)):
            self.module.set_attr(f"ttg.{name}", self.builder.get_int32_attr(value))
        self.semantic = GluonSemantic(self.builder)
        self.functions = 0

    def linear(self, layout: Any, shape: list[int]) -> dict[str, list[list[int]]]:
        value = self.semantic.to_linear_layout(layout, shape).value
        return {"register": value.reg_bases, "lane": value.lane_bases, "warp": value.warp_bases}

    def shared(self, layout: Any, shape: list[int], bits: int) -> list[list[int]]:
        """Bases, offset -> row-major element index; Triton aborts on the question for the tile itself."""
        self.functions += 1
        function = self.builder.get_or_insert_function(
            self.module, f"f{self.functions}", self.builder.get_function_ty([], []), "public", False
        )
        self.builder.set_insertion_point_to_start(function.add_entry_block())
        memory = self.semantic.allocate_shared(TYPES[bits], shape, layout, None)
        size = 1
        for extent in shape:
            size *= extent
        flat = self.builder.get_gluon_layout_from_memdesc(self.builder.create_memdesc_reshape(memory.handle, [size]))
        return flat.offset_bases

    def conflicts(self, layout: Any, shared: Any, shape: list[int], bits: int) -> int:
        return self.builder.get_shared_bank_conflicts(
            layout._to_ir(self.builder), shared._to_ir(self.builder), shape, bits
        )


def main() -> None:
    sessions: dict[tuple[int, str], Session] = {}
    answers: list[Any] = []
    for question in json.load(sys.stdin):
        key = question.get("warps", 4), question.get("target", "cuda")
        if key not in sessions:
            sessions[key] = Session(*key)
        session = sessions[key]
        layout = eval(question["layout"], {"gl": gl})
        if question["kind"] == "linear":
            answers.append(session.linear(layout, question["shape"]))
        elif question["kind"] == "shared":
            answers.append(session.shared(layout, question["shape"], question["bits"]))
        else:
            shared = eval(question["shared"], {"gl": gl})
            answers.append(session.conflicts(layout, shared, question["shape"], question["bits"]))
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
