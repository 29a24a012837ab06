"""Weights of few bits: what is packed is had back, and others read it."""

from __future__ import annotations

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.errors import AttributeRefused, DTypeError, ShapeError
from rlxweb.gpu.port import Want
from rlxweb.packed_weights import groups_of, pack, unpack
from tests.agreement import engine


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_codes_are_had_back(bits: int) -> None:
    """Codes of every value are packed from a word's lowest bits on, and had back."""
    each = 32 // bits
    codes = np.arange(3 * each * 5, dtype=np.uint8).reshape(3, -1)
    codes &= (1 << bits) - 1
    words = pack(codes, bits)
    first = sum(int(code) << (bits * at) for at, code in enumerate(codes[1, :each]))
    assert words.shape == (3, 5)
    assert int(words.view(np.uint32)[1, 0]) == first
    np.testing.assert_array_equal(unpack(words, bits), codes)


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("kind", [np.float32, np.float16, np.float64])
@pytest.mark.parametrize(("bits", "size"), [(2, 16), (4, 32), (8, 64), (8, 100)])
def test_errors_are_within_a_scale(
    bits: int, size: int, kind: type, symmetric: bool
) -> None:
    """Half a one of most, also of what fills no group, of one number and of zeros."""
    w = np.random.default_rng(0).standard_normal((5, 150)).astype(kind)
    w[1], w[2] = 0, 3.25
    made = rlx.quantize(w, bits, size, symmetric=symmetric)
    got = rlx.dequantize(*made, bits=bits, group_size=size, size=150)
    assert got.dtype == w.dtype
    assert made.words.shape == (5, groups_of(150, bits, size)[1])
    scale = np.abs(np.repeat(made.scales, size, axis=1)[:, :150].astype(float))
    rounding = np.finfo(kind).eps * 2 * np.abs(w).max()
    error = np.abs(got.astype(float) - w)
    assert (error <= scale + rounding * (1 << bits)).all()
    assert (error <= 0.5 * scale + rounding * (1 << bits)).mean() > 0.85
    np.testing.assert_array_equal(got[1], w[1])
    np.testing.assert_allclose(got[2], w[2], rtol=2 * np.finfo(kind).eps)


@pytest.mark.requires_mlx
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_mlx_reads_and_writes_the_same(bits: int) -> None:
    """MLX and rlxweb read each other's words, and give the same products."""
    import mlx.core as mx

    rng = np.random.default_rng(bits)
    w = rng.standard_normal((24, 128)).astype(np.float32)
    x = rng.standard_normal((3, 128)).astype(np.float32)
    how = {"bits": bits, "group_size": 64}
    theirs = [np.array(one) for one in mx.quantize(mx.array(w), **how)]
    ours = rlx.quantize(w, **how)
    assert ours.biases is not None
    for words, scales, biases in (theirs, ours):
        given = [mx.array(a) for a in (words.view(np.uint32), scales, biases)]
        want = np.array(mx.dequantize(*given, **how))
        got = rlx.dequantize(words, scales, biases, **how)
        np.testing.assert_allclose(got, want, atol=1e-6)
        g = rlx.Graph()
        held = [g.constant(one) for one in (words, scales, biases)]
        g.set_outputs([g.quantized_matmul(g.input("x", (3, 128)), *held, **how)])
        (made,) = rlx.Session("cpu").compile(g).run({"x": x})
        theirs_made = mx.quantized_matmul(mx.array(x), *given, transpose=True, **how)
        np.testing.assert_allclose(made, np.array(theirs_made), atol=2e-4)
    # No farther from the weights than theirs: both are of the range of a group.
    error = [np.abs(rlx.dequantize(*q, **how) - w).mean() for q in (ours, theirs)]
    assert error[0] < 1.1 * error[1]


def test_unpacked_in_a_graph() -> None:
    """`dequantize` of a graph, and a product with the matrix as it lies."""
    rng = np.random.default_rng(1)
    w = rng.standard_normal((8, 64)).astype(np.float32)
    x = rng.standard_normal((3, 8)).astype(np.float32)
    made = rlx.quantize(w, 4, 32, symmetric=True)
    g = rlx.Graph()
    words, scales = g.constant(made.words), g.constant(made.scales)
    how = {"bits": 4, "group_size": 32}
    whole = g.dequantize(words, scales, **how)
    product = g.quantized_matmul(
        g.input("x", (3, 8)), words, scales, None, False, **how
    )
    g.set_outputs([whole, product])
    got = rlx.Session("cpu").compile(g).run({"x": x})
    want = rlx.dequantize(*made, **how)
    np.testing.assert_array_equal(got[0], want)
    np.testing.assert_allclose(got[1], x @ want, rtol=1e-5, atol=1e-5)


@pytest.mark.requires_wgpu
def test_what_follows_is_part_of_the_kernel(adapter: Want) -> None:
    """A bias and an activation behind a product of packed weights are right."""
    rng = np.random.default_rng(2)
    w = rng.standard_normal((37, 96)).astype(np.float32)
    x = rng.standard_normal((11, 96)).astype(np.float32)
    bias = rng.standard_normal(37).astype(np.float32)
    made = rlx.quantize(w, 8, 32)
    assert made.biases is not None
    g = rlx.Graph()
    y = g.quantized_matmul(
        g.input("x", x.shape), *(g.constant(one) for one in made), bits=8, group_size=32
    )
    g.set_outputs([g.gelu(y + bias)])
    one = engine(adapter)
    got = one.run(g, {"x": x})[0]
    want = engine(None).run(g, {"x": x})[0]
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_what_is_wrong_is_said() -> None:
    """Bits, groups, shapes and values that cannot be."""
    w = np.ones((2, 64), np.float32)
    with pytest.raises(AttributeRefused, match="2, 4 or 8"):
        rlx.quantize(w, 3)
    with pytest.raises(AttributeRefused, match="multiple of 8"):
        rlx.quantize(w, 4, 12)
    with pytest.raises(ShapeError, match=r"\[N, K\]"):
        rlx.quantize(w[0])
    with pytest.raises(DTypeError, match="not finite"):
        rlx.quantize(np.where(w == 1, np.nan, w))
    with pytest.raises(DTypeError, match="int64"):
        rlx.quantize(w.astype(np.int64))
    made = rlx.quantize(w)
    with pytest.raises(ShapeError, match="hold 72 weights"):
        rlx.dequantize(*made, size=72)
    with pytest.raises(ShapeError, match=r"one for each group, \[2, 1\]"):
        rlx.dequantize(made.words, made.scales[:1])
    g = rlx.Graph()
    x, words = g.input("x", (3, 64)), g.constant(made.words)
    with pytest.raises(ShapeError, match="are 16 words a row"):
        g.quantized_matmul(x, words, g.constant(made.scales), bits=8)
    with pytest.raises(DTypeError, match="i32 or u32"):
        g.quantized_matmul(x, g.cast(words, "f32"), g.constant(made.scales))
    with pytest.raises(ShapeError, match=r"words \[\.\.\., W\]"):
        g.dequantize(words, g.constant(made.scales), bits=8)
