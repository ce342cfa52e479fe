"""Tags in the language: printed and read back, expanded, and gone from what is lowered."""

import re
from pathlib import Path

import pytest

from reading import HEADER, read
from tilewright.expand import expand
from tilewright.ir import nodes as ir
from tilewright.ir.erase import has_tags, without_tags
from tilewright.ir.types import TileType
from tilewright.lower import lower
from tilewright.printer import module_source

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))
ASSIGNED = re.compile(r"^( +)(\w+) = tw\.(?:load|zeros|mma|exp|exp2|where|sum|max)\(.*\)$", re.M)

GEMM = f"""{HEADER}

@tw.tag_function
def halves(y, x):
    return tw.tag(y, K=lambda i, j: x[i, (j + 8) % 64].K, SLOT=lambda i, j: i + j)


@tw.kernel(target="sm_90a", warps=8)
def gemm(A: Global[f16, M, K], B: Global[f16, K, N], C: Global[f16, M, N]):
    tw.assume(K % 8 == 0)
    tw.assume(N % 8 == 0)
    for pm, pn in tw.tiles(tw.cdiv(M, 128), tw.cdiv(N, 128), persistent=True):
        acc = tw.zeros(f32, (128, 128))
        for k in tw.pipeline(0, K, 64, stages=3, roles="split"):
            a = tw.load(A.tile((pm * 128, k), (128, 64)), via="tma")
            b = tw.load(B.tile((k, pn * 128), (64, 128)), via="tma")
            a = tw.tag(a, STEP=lambda i, j: k // 64)
            tw.expect(lambda i, c, j: a[i, c].K == b[c, j].K)
            if k > 0:
                tw.expect(lambda i, k: not (a[i, k].STEP == 0 or a[i, k].M < 0))
            acc = tw.mma(a, b, acc)
            tw.expect(lambda i, j: acc[i, j].M == pm * 128 + i)
        c = halves(acc.to(f16), acc)
        tw.expect(lambda w, t, r: c.at(w, t, r).M >= 0)
        tw.expect(lambda i: c[i, 3].M == pm * 128 + i and c[0, i].N == pn * 128 + i)
        tw.store(C.tile((pm * 128, pn * 128), (128, 128)), c, via="tma")
"""


def kernel_of(text: str) -> ir.Kernel:
    module = read(text)
    (unit,) = module.units
    assert unit.kernel is not None, unit.problems
    return unit.kernel


def with_tags(text: str, name: str, types: dict[str, object]) -> str:
    """The text of an example with a tag and an expectation behind each tile that gets a name."""

    def more(match: re.Match[str]) -> str:
        pad, tile = match[1], match[2]
        kind = types.get(tile)
        if not isinstance(kind, TileType) or not kind.shape:
            return match[0]
        indices = ", ".join("ijkl"[: len(kind.shape)])
        return (
            f"{match[0]}\n{pad}{tile} = tw.tag({tile}, OWN=lambda {indices}: {indices[0]})"
            f"\n{pad}tw.expect(lambda {indices}: {tile}[{indices}].OWN == {indices[0]})"
        )

    start = text.index(f"def {name}(")
    end = text.find("\n@", start)
    end = len(text) if end < 0 else end
    return text[:start] + ASSIGNED.sub(more, text[start:end]) + text[end:]


def test_what_is_printed_reads_back():
    kernel = kernel_of(GEMM)
    assert kernel_of(module_source(kernel)).body == kernel.body
    explicit = expand(kernel)
    again = expand(kernel_of(module_source(explicit)))
    assert again.body == explicit.body
    assert sum(isinstance(s, ir.ExpectTags) for s in ir.walk(explicit.body)) == 5


def test_a_name_that_a_lambda_would_hide_is_not_hidden():
    text = GEMM.replace("a[i, k].STEP == 0 or a[i, k].M < 0", "a[i, k].STEP == 0").replace("k > 0", "0 < k")
    printed = module_source(kernel_of(text))
    assert "lambda i, k_: not a[i, k_].STEP == 0" in printed


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_generated_code_is_the_same_with_and_without_tags(path):
    text = path.read_text(encoding="utf-8")
    compared = 0
    for unit in read(text).units:
        if unit.kernel is None or any(p.severity == "error" for p in unit.problems):
            continue
        tagged_text = with_tags(text, unit.name, dict(unit.kernel.types))
        (tagged,) = (u for u in read(tagged_text).units if u.name == unit.name)
        assert tagged.kernel is not None, tagged.problems
        if not has_tags(tagged.kernel):
            continue
        compared += 1
        assert without_tags(tagged.kernel).body == unit.kernel.body
        plain, explicit = expand(unit.kernel), expand(tagged.kernel)
        assert has_tags(explicit)
        assert without_tags(explicit).body == plain.body
        assert explicit.types == plain.types
        assert lower(explicit).source == lower(plain).source
    assert compared or path.stem in ("attention_instructions", "cumulative_sum", "faulty_gemm", "routing")


def test_branches_and_loops_of_nothing_but_tags_are_gone():
    kernel = kernel_of(GEMM)
    assert any(isinstance(s, ir.If) for s in ir.walk(kernel.body))
    assert not any(isinstance(s, ir.If) for s in ir.walk(without_tags(kernel).body))


def test_a_new_name_gets_the_tag_and_the_old_one_does_not():
    text = f"""{HEADER}

@tw.kernel
def copy(A: Global[f32, M, N], C: Global[f32, M, N]):
    for p, q in tw.tiles(tw.cdiv(M, 16), tw.cdiv(N, 64)):
        x = tw.load(A.tile((p * 16, q * 64), (16, 64)), other=0.0)
        y = tw.tag(x, T=lambda i, j: i)
        tw.expect(lambda i, j: y[i, j].T == i)
        tw.store(C.tile((p * 16, q * 64), (16, 64)), y)
"""
    kernel = kernel_of(text)
    (tag,) = (s for s in ir.walk(kernel.body) if isinstance(s, ir.Tag))
    assert tag.of == "y"
    plain = kernel_of(re.sub(r"y = tw\.tag\(x, .*\)", "y = x", re.sub(r".*tw\.expect.*\n", "", text)))
    assert without_tags(kernel).body == plain.body
