"""Test weights quantised to few bits: packing round trips, and MLX reads the same
words.
"""

from __future__ import annotations

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.core.errors import AttributeRefused, DTypeError, ShapeError
from rlxweb.core.quantized_weights import group_counts, pack_codes, unpack_codes
from rlxweb.gpu.port_protocol import AdapterRequest
from tests.engines_under_test import engine


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_codes_round_trip(bits: int) -> None:
    """Codes of every value are packed from a word's lowest bits on, and unpacked
    again.
    """
    codes_per_word = 32 // bits
    codes = np.arange(3 * codes_per_word * 5, dtype=np.uint8).reshape(3, -1)
    codes &= (1 << bits) - 1
    words = pack_codes(codes, bits)
    first = sum(
        int(code) << (bits * index)
        for index, code in enumerate(codes[1, :codes_per_word])
    )
    assert words.shape == (3, 5)
    assert int(words.view(np.uint32)[1, 0]) == first
    np.testing.assert_array_equal(unpack_codes(words, bits), codes)


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("kind", [np.float32, np.float16, np.float64])
@pytest.mark.parametrize(("bits", "size"), [(2, 16), (4, 32), (8, 64), (8, 100)])
def test_errors_are_within_a_scale(
    bits: int, size: int, kind: type, symmetric: bool
) -> None:
    """Most errors are within half a scale, also in partial groups, constant rows and
    zeros.
    """
    w = np.random.default_rng(0).standard_normal((5, 150)).astype(kind)
    w[1], w[2] = 0, 3.25
    quantized = rlx.quantize(w, bits, size, symmetric=symmetric)
    got = rlx.dequantize(*quantized, bits=bits, group_size=size, size=150)
    assert got.dtype == w.dtype
    assert quantized.words.shape == (5, group_counts(150, bits, size)[1])
    scale = np.abs(np.repeat(quantized.scales, size, axis=1)[:, :150].astype(float))
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
    options = {"bits": bits, "group_size": 64}
    mlx_quantized = [np.array(array) for array in mx.quantize(mx.array(w), **options)]
    quantized = rlx.quantize(w, **options)
    assert quantized.biases is not None
    for words, scales, biases in (mlx_quantized, quantized):
        mlx_arrays = [mx.array(a) for a in (words.view(np.uint32), scales, biases)]
        want = np.array(mx.dequantize(*mlx_arrays, **options))
        got = rlx.dequantize(words, scales, biases, **options)
        np.testing.assert_allclose(got, want, atol=1e-6)
        g = rlx.Graph()
        constants = [g.constant(array) for array in (words, scales, biases)]
        g.set_outputs(
            [g.quantized_matmul(g.input("x", (3, 128)), *constants, **options)]
        )
        (product,) = rlx.Session("cpu").compile(g).run({"x": x})
        mlx_product = mx.quantized_matmul(
            mx.array(x), *mlx_arrays, transpose=True, **options
        )
        np.testing.assert_allclose(product, np.array(mlx_product), atol=2e-4)
    # No farther from the weights than theirs: both are of the range of a group.
    error = [
        np.abs(rlx.dequantize(*q, **options) - w).mean()
        for q in (quantized, mlx_quantized)
    ]
    assert error[0] < 1.1 * error[1]


def test_dequantize_in_a_graph() -> None:
    """A graph's `dequantize` is right, and a product with the packed matrix."""
    rng = np.random.default_rng(1)
    w = rng.standard_normal((8, 64)).astype(np.float32)
    x = rng.standard_normal((3, 8)).astype(np.float32)
    quantized = rlx.quantize(w, 4, 32, symmetric=True)
    g = rlx.Graph()
    words, scales = g.constant(quantized.words), g.constant(quantized.scales)
    options = {"bits": 4, "group_size": 32}
    dequantized = g.dequantize(words, scales, **options)
    product = g.quantized_matmul(
        g.input("x", (3, 8)), words, scales, None, False, **options
    )
    g.set_outputs([dequantized, product])
    got = rlx.Session("cpu").compile(g).run({"x": x})
    want = rlx.dequantize(*quantized, **options)
    np.testing.assert_array_equal(got[0], want)
    np.testing.assert_allclose(got[1], x @ want, rtol=1e-5, atol=1e-5)


@pytest.mark.requires_wgpu
def test_epilogue_of_quantized_matmul(adapter: AdapterRequest) -> None:
    """A bias and an activation after a product of packed weights are right."""
    rng = np.random.default_rng(2)
    w = rng.standard_normal((37, 96)).astype(np.float32)
    x = rng.standard_normal((11, 96)).astype(np.float32)
    bias = rng.standard_normal(37).astype(np.float32)
    quantized = rlx.quantize(w, 8, 32)
    assert quantized.biases is not None
    g = rlx.Graph()
    y = g.quantized_matmul(
        g.input("x", x.shape),
        *(g.constant(runner) for runner in quantized),
        bits=8,
        group_size=32,
    )
    g.set_outputs([g.gelu(y + bias)])
    runner = engine(adapter)
    got = runner.run(g, {"x": x})[0]
    want = engine(None).run(g, {"x": x})[0]
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_invalid_arguments_are_rejected() -> None:
    """Invalid bits, groups, shapes and values are rejected."""
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
    quantized = rlx.quantize(w)
    with pytest.raises(ShapeError, match=r"\[rows, 16\] for rows of 72 weights"):
        rlx.dequantize(*quantized, size=72)
    with pytest.raises(ShapeError, match=r"one value per group, \[2, 1\]"):
        rlx.dequantize(quantized.words, quantized.scales[:1])
    g = rlx.Graph()
    x, words = g.input("x", (3, 64)), g.constant(quantized.words)
    with pytest.raises(ShapeError, match="require 16 words per row"):
        g.quantized_matmul(x, words, g.constant(quantized.scales), bits=8)
    with pytest.raises(DTypeError, match="i32 or u32"):
        g.quantized_matmul(x, g.cast(words, "f32"), g.constant(quantized.scales))
    with pytest.raises(
        ShapeError, match=r"w must have shape \[\.\.\., 16\], and scales"
    ):
        g.dequantize(words, g.constant(quantized.scales), bits=8)
