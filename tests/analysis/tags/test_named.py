"""Named tags: what the engine says of an operation is what the interpreter does to every element."""

import random

import numpy as np
import pytest

from tilewright import tag_space
from tilewright.interpret import named_tags
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.base import TileRef
from tilewright.ir.tagging import parameter
from tilewright_analysis.async_ import named
from tilewright_analysis.async_.tags import Func, Tag

BASE = Tag(-1, 0, -1, 0, (), "")


def values(tag: Func, shape: tuple[int, ...]) -> np.ndarray:
    env = {f"~{i}": g for i, g in enumerate(np.ogrid[tuple(slice(0, n) for n in shape)])}
    return np.broadcast_to(tag_space.evaluate(tag.element, env) + tag.base.const, shape)


def factor(shape: tuple[int, ...], rng: random.Random) -> tuple[int, ...]:
    """Another shape of as many elements."""
    left, out = int(np.prod(shape)), []
    while left > 1 and len(out) < 3:
        part = 2 ** rng.randrange(left.bit_length())
        out.append(part)
        left //= part
    return (*out, left) if left > 1 or not out else tuple(out)


def step(shape: tuple[int, ...], rng: random.Random) -> tuple[ir.Compute, tuple[int, ...]]:
    """An operation on a tile of that shape, and the shape of its result."""
    args = (TileRef("x"),)
    match rng.choice(("reshape", "permute", "expand_dims", "sum", "half", "exp", "transpose", "cumsum")):
        case "reshape":
            return ir.Compute("y", "reshape", args), factor(shape, rng)
        case "permute":
            order = tuple(rng.sample(range(len(shape)), len(shape)))
            return ir.Compute("y", "permute", args, order=order), tuple(shape[i] for i in order)
        case "expand_dims" if len(shape) < 4:
            axis = rng.randrange(len(shape) + 1)
            return ir.Compute("y", "expand_dims", args, axis=axis), (*shape[:axis], 1, *shape[axis:])
        case "sum" if len(shape) > 1:
            axis, keep = rng.randrange(len(shape)), rng.random() < 0.5
            return (
                ir.Compute("y", "sum", args, axis=axis, keep=keep),
                (*shape[:axis], *((1,) if keep else ()), *shape[axis + 1 :]),
            )
        case "half" if len(shape) > 1 and shape[-1] == 2:
            return ir.Compute("y", "half", args, axis=rng.randrange(2)), shape[:-1]
        case "transpose" if len(shape) == 2:
            return ir.Compute("y", "transpose", args), shape[::-1]
        case "cumsum":
            return ir.Compute("y", "cumsum", args, axis=0), shape
        case _:
            return ir.Compute("y", "exp", args), shape


@pytest.mark.parametrize("seed", range(200))
def test_chains_of_operations_agree_with_the_interpreter(seed):
    rng = random.Random(seed)
    shape = tuple(2 ** rng.randrange(1, 5) for _ in range(rng.randrange(1, 4)))
    tag: ex.Expr = ex.Int(rng.randrange(9))
    for axis in range(len(shape)):
        if rng.random() < 0.8:
            tag = ex.add(tag, ex.mul(parameter(axis), ex.Int(rng.randrange(1, 20))))
    symbolic = (("T", named.func(BASE, tag)),)
    concrete = {"T": values(named.func(BASE, tag), shape)}
    for _ in range(5):
        stmt, after = step(shape, rng)
        symbolic = named.compute(stmt, [(symbolic, shape)], after)
        concrete = named_tags.computed(stmt, [(concrete, shape)], after)
        shape = after
        found = dict(symbolic)
        assert found.keys() == concrete.keys()
        for name, function in found.items():
            want = concrete[name]
            assert isinstance(function, Func) and want is not None
            assert np.array_equal(values(function, shape), np.broadcast_to(want, shape))


@pytest.mark.parametrize("seed", range(60))
def test_products_and_elementwise_agree_with_the_interpreter(seed):
    rng = random.Random(seed)
    m, k, n = (2 ** rng.randrange(1, 4) for _ in range(3))

    def tags(rows: int, columns: int, names: str) -> dict[str, Func]:
        found: dict[str, Func] = {}
        for name in names:
            along = [ex.mul(parameter(i), ex.Int(rng.choice((0, 0, 1, 3)))) for i in range(2)]
            found[name] = named.func(BASE, ex.add(ex.add(along[0], along[1]), ex.Int(rng.choice((0, 0, 5)))))
        return found

    a, b, acc = tags(m, k, "PQ"), tags(k, n, "QR"), tags(m, n, rng.choice(("", "P", "R", "PQR")))
    stmt = ir.Mma("acc", "a", "b", "acc")
    symbolic = dict(named.product(stmt, named.named(a), named.named(b), named.named(acc), ((m, k), (k, n))))
    shapes = {"a": (m, k), "b": (k, n), "acc": (m, n)}
    arrays = [{x: values(t, shapes[w]) for x, t in found.items()} for w, found in (("a", a), ("b", b), ("acc", acc))]
    concrete = named_tags.product(*arrays)
    assert symbolic.keys() == concrete.keys()
    for name, function in symbolic.items():
        want = concrete[name]
        assert isinstance(function, Func) == (want is not None), name
        if isinstance(function, Func) and want is not None:
            assert np.array_equal(values(function, (m, n)), np.broadcast_to(want, (m, n)))
