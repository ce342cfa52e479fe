"""Functions that generated modules define for themselves, where Gluon has no function of that meaning."""

from __future__ import annotations

HELPERS = {
    "tanh_": """\
@gluon.jit
def tanh_(x):
    # exp(-2|x|) never overflows; near 0, where 1 - t cancels, the Taylor series is exact to rounding.
    t = gl.exp(-2.0 * gl.abs(x))
    far = (1.0 - t) / (1.0 + t)
    square = x * x
    near = x * (1.0 + square * (-1.0 / 3.0 + square * (2.0 / 15.0)))
    return gl.where(gl.abs(x) < 0.04, near, gl.where(x < 0.0, -far, far))
""",
    "max_": """\
@gluon.jit
def max_(a, b):
    return gl.maximum(a, b, propagate_nan=NAN)
""",
    "min_": """\
@gluon.jit
def min_(a, b):
    return gl.minimum(a, b, propagate_nan=NAN)
""",
    "add_": """\
@gluon.jit
def add_(a, b):
    return a + b
""",
    "multiply_": """\
@gluon.jit
def multiply_(a, b):
    return a * b
""",
    "argmax_": """\
@gluon.jit
def argmax_(a, i, b, j):
    # NaN is greater than any number; of equal elements the first counts.
    greater = (a > b) | ((a != a) & (b == b))
    equal = (a == b) | ((a != a) & (b != b))
    first = greater | (equal & (i < j))
    return gl.where(first, a, b), gl.where(first, i, j)
""",
    "argmin_": """\
@gluon.jit
def argmin_(a, i, b, j):
    # NaN is less than any number; of equal elements the first counts.
    less = (a < b) | ((a != a) & (b == b))
    equal = (a == b) | ((a != a) & (b != b))
    first = less | (equal & (i < j))
    return gl.where(first, a, b), gl.where(first, i, j)
""",
    "ordered_": """\
@gluon.jit
def xor_(a, b):
    return a ^ b


@gluon.jit
def partner_(x, PAIRS: gl.constexpr, LAYOUT: gl.constexpr):
    # The other element of each pair: the two of a pair, combined by xor, without the own one.
    pairs = gl.reshape(x, PAIRS)
    other = gl.expand_dims(gl.reduce(pairs, 1, xor_), 1) ^ pairs
    return gl.convert_layout(gl.reshape(other, x.shape), LAYOUT)


@gluon.jit
def exchanged_(key, index, place, STAGE: gl.constexpr, STEP: gl.constexpr, PAIRS: gl.constexpr,
               FALLING: gl.constexpr, LAYOUT: gl.constexpr):
    # Equal keys are ordered by their index, so that the two elements of a pair always agree which comes first.
    other = partner_(key, PAIRS, LAYOUT)
    source = partner_(index, PAIRS, LAYOUT)
    if FALLING:
        behind = (key < other) | ((key == other) & (index > source))
    else:
        behind = (key > other) | ((key == other) & (index > source))
    swap = behind == (((place >> STEP) & 1) == ((place >> STAGE) & 1))
    return gl.where(swap, other, key), gl.where(swap, source, index)


@gluon.jit
def ordered_(key, place, ROWS: gl.constexpr, BITS: gl.constexpr, REST: gl.constexpr, FALLING: gl.constexpr,
             LAYOUT: gl.constexpr):
    # A bitonic network (Batcher, AFIPS 1968) along an axis of 2 ** BITS elements with ROWS before and REST behind it.
    index = place
    for stage in gl.static_range(1, BITS + 1):
        for turn in gl.static_range(0, stage):
            key, index = exchanged_(
                key, index, place, stage, stage - 1 - turn,
                [ROWS * 2 ** (BITS - stage + turn), 2, REST * 2 ** (stage - 1 - turn)], FALLING, LAYOUT,
            )
    return key, index
""",
    "key_": """\
@gluon.jit
def key_(x, INTEGER: gl.constexpr):
    # Integers in the order of the numbers; NaN is greater than any of them.
    GREATEST: gl.constexpr = 2 ** (INTEGER.primitive_bitwidth - 1) - 1
    bits = x.to(INTEGER, bitcast=True)
    return gl.where(x != x, GREATEST, gl.where(bits < 0, bits ^ GREATEST, bits))


@gluon.jit
def value_(key, FLOAT: gl.constexpr):
    GREATEST: gl.constexpr = 2 ** (FLOAT.primitive_bitwidth - 1) - 1
    return gl.where(key < 0, key ^ GREATEST, key).to(FLOAT, bitcast=True)
""",
    "floordiv_": """\
@gluon.jit
def floordiv_(a, b):
    # The device rounds towards zero.
    quotient = a // b
    rest = a % b
    return gl.where((rest != 0) & ((rest < 0) != (b < 0)), quotient - 1, quotient)
""",
    "mod_": """\
@gluon.jit
def mod_(a, b):
    # The device gives the remainder the sign of the dividend.
    rest = a % b
    return gl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)
""",
    "philox_": """\
@gluon.jit
def philox_(seed, offset):
    # Philox 4x32-10 (Salmon and others, SC 2011): the seed is the key, the offset the counter.
    key = gl.to_tensor(seed).to(gl.uint64)
    k0 = key.to(gl.uint32)
    k1 = (key >> 32).to(gl.uint32)
    c0 = offset.to(gl.uint32)
    c2 = c0 * 0
    c3 = c2
    c1 = c2
    if offset.dtype.primitive_bitwidth > 32:
        c1 = (offset >> 32).to(gl.uint32)
    for _ in gl.static_range(10):
        high0 = gl.umulhi(c0, 0xD2511F53)
        high2 = gl.umulhi(c2, 0xCD9E8D57)
        low0 = c0 * 0xD2511F53
        low2 = c2 * 0xCD9E8D57
        c0 = high2 ^ c1 ^ k0
        c1 = low2
        c2 = high0 ^ c3 ^ k1
        c3 = low0
        k0 = k0 + 0x9E3779B9
        k1 = k1 + 0xBB67AE85
    return c0
""",
    "to_f8e5m2_": """\
@gluon.jit
def to_f8e5m2_(x):
    # To nearest even, saturating. Below 2**-14 codes are multiples of 2**-16, which is the last place of 128 + |x|;
    # above, the mantissa loses 21 bits, and the exponents of f32 and f8e5m2 differ by 112.
    bits = x.to(gl.uint32, bitcast=True)
    size = gl.minimum(gl.abs(x), 57344.0)
    plain = size.to(gl.uint32, bitcast=True)
    small = (size + 128.0).to(gl.uint32, bitcast=True) - 0x43000000
    large = ((plain + 0xFFFFF + ((plain >> 21) & 1)) >> 21) - (112 << 2)
    code = gl.where(size < 2.0**-14, small, large) | ((bits >> 24) & 0x80)
    code = gl.where(x != x, 0x7F, code)
    return code.to(gl.uint8).to(gl.float8e5, bitcast=True)
""",
    "uniform_": """\
@gluon.jit
def uniform_(bits):
    # The magnitude of the signed integer, scaled so that the greatest stays below 1.
    signed = bits.to(gl.int32, bitcast=True)
    return gl.where(signed < 0, -signed - 1, signed).to(gl.float32) * 4.6566127342e-10
""",
}
