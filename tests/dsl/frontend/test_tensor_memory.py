"""Tensor memory in the front end: what it takes, and the messages for what it does not."""

import pytest

from reading import HEADER, read
from tilewright.ir import nodes as ir
from tilewright.ir.types import TensorMemoryType

KERNEL = """
@tw.kernel(target="sm_100a", warps=4)
def k(A: Global[f16, M, K], C: Global[f32, M, N]):
    a = tw.shared(f16, (128, 64))
    b = tw.shared(f16, (64, 64))
    bar = tw.barrier(1)
    {allocation}
    for t in tw.programs(1):
        {use}
        x = tw.zeros(f32, (128, 64))
        tw.store(C.tile((0, 0), (128, 64)), x)
"""
ONE = "acc = tw.tensor_memory(f32, (128, 64))"
RING = "acc = tw.tensor_memory(f32, (2, 128, 64))"


def test_a_ring_and_a_single_accumulator() -> None:
    for allocation, ref, stages, ring in ((ONE, "acc", 1, False), (RING, "acc[1]", 2, True)):
        use = f"tw.tcgen05_mma(a, b, {ref}, bar, accumulate=t > 0)\n        y = tw.load_tensor({ref})"
        module = read(HEADER + KERNEL.format(allocation=allocation, use=use))
        assert not module.all_problems, module.all_problems
        kernel = module.units[0].kernel
        assert kernel is not None
        memory = kernel.types["acc"]
        assert isinstance(memory, TensorMemoryType)
        assert (memory.shape, memory.stages, memory.ring, memory.columns) == ((128, 64), stages, ring, 64 * stages)
        kinds = [type(s) for s in ir.walk(kernel.body)]
        assert kinds.count(ir.AllocTensor) == kinds.count(ir.Tcgen05) == kinds.count(ir.TensorLoad) == 1


@pytest.mark.parametrize(
    ("allocation", "use", "code", "words"),
    [
        ("acc = tw.tensor_memory(f16, (128, 64))", "pass", "TW004", "are f32, not f16"),
        ("acc = tw.tensor_memory(f32, (32, 64))", "pass", "TW503", "128 rows and 32 to 256 columns"),
        ("acc = tw.tensor_memory(f32, (128, 512))", "pass", "TW503", "128 rows and 32 to 256 columns"),
        ("acc = tw.tensor_memory(f32, (3, 128, 256))", "pass", "TW601", "768 columns of tensor memory; a block has 512"),
        (RING, "y = tw.load_tensor(acc)", "TW003", "ring of 2 stages: say which"),
        (ONE, "y = tw.load_tensor(acc[0])", "TW003", "takes no index"),
        (ONE, "y = tw.load_tensor(a)", "TW003", "is in tensor memory"),
        (RING, "y = tw.load_shared(acc[0])", "TW003", "is a stage of shared memory"),
        (ONE, "tw.tcgen05_mma(a, a, acc, bar, accumulate=True)", "TW003", "64 columns of a meet 128 rows of b"),
        (ONE, "tw.tcgen05_mma(a, b, bar, bar, accumulate=True)", "TW003", "the accumulator of tcgen05_mma"),
        (ONE, "tw.tcgen05_commit(acc)", "TW003", "a barrier is needed here, not the tensor memory 'acc'"),
        ("pass", "acc = tw.tensor_memory(f32, (128, 64))", "TW005", "allocated at the top"),
    ],
)  # fmt: skip
def test_mistakes_are_named(allocation: str, use: str, code: str, words: str) -> None:
    problems = read(HEADER + KERNEL.format(allocation=allocation, use=use)).all_problems
    assert [(p.code, words in p.message) for p in problems] == [(code, True)], problems
