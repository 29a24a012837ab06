"""Ops of com.microsoft over images, which ONNX Runtime has on GPUs alone.

They are held against NumPy as their definitions are written, and convolutions against
ONNX's own on ONNX Runtime with its axes exchanged.
"""

from __future__ import annotations

from math import erf
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the extra onnx is not installed")
pytest.importorskip("onnxruntime", reason="it is not installed")

import rlxweb as rlx
from rlxweb.errors import AttributeRefused, ModelError, Unsupported
from tests.onnx.made import model, node, value
from tests.onnx.test_saving import runtime

DOMAIN = "com.microsoft"
RNG = np.random.default_rng(11)
NUMBERS = {"float32": 1, "uint8": 2, "int8": 3, "float16": 10}
GPU = pytest.mark.requires_wgpu
ENGINES = ["cpu", pytest.param("vulkan", marks=GPU)]


def real(*shape: int) -> Any:
    return RNG.standard_normal(shape, dtype=np.float32)


def made(op: str, fed: Any, outputs: int = 1, domain: str = DOMAIN, **how: Any) -> Any:
    """The bytes of a model of one node; operands of None are left out."""
    names = [f"x{i}" if one is not None else "" for i, one in enumerate(fed)]
    inputs = [
        value(name, one.shape, NUMBERS[str(one.dtype)])
        for name, one in zip(names, fed, strict=True)
        if one is not None
    ]
    kind = NUMBERS[str(fed[0].dtype)]
    out = [f"y{i}" for i in range(outputs)]
    return model(
        [node(op, names, out, domain=domain, **how)],
        inputs,
        [value(name, None, kind) for name in out],
        opsets={"": 17, DOMAIN: 1},
    ).SerializeToString()


def feeds(fed: Any) -> dict[str, Any]:
    return {f"x{i}": one for i, one in enumerate(fed) if one is not None}


def run(op: str, *fed: Any, device: str = "cpu", outputs: int = 1, **how: Any) -> Any:
    data = made(op, fed, outputs, **how)
    got = list(rlx.onnx.load(data).run(feeds(fed), device=device).values())
    return got if outputs > 1 else got[0]


def normed(x: Any, gamma: Any, beta: Any, groups: int, eps: float, swish: bool) -> Any:
    """Of [N, …, C], in float64."""
    wide = x.astype(float).reshape(len(x), -1, groups, x.shape[-1] // groups)
    mean, var = wide.mean((1, 3), keepdims=True), wide.var((1, 3), keepdims=True)
    made = ((wide - mean) / np.sqrt(var + eps)).reshape(x.shape) * gamma + beta
    return made / (1 + np.exp(-made)) if swish else made


@pytest.mark.parametrize("device", ENGINES)
@pytest.mark.parametrize(
    ("shape", "groups", "activation", "eps"),
    [
        ((2, 4, 5, 8), 4, 0, 1e-5),
        ((1, 3, 3, 6), 2, 1, 1e-3),
        ((2, 2, 7, 5), 1, 1, 1e-5),
        ((3, 1, 2, 4), 4, 0, 1e-5),
    ],
)
def test_norms_of_groups(
    shape: Any, groups: int, activation: int, eps: float, device: str
) -> None:
    x, gamma, beta = real(*shape), real(shape[-1]), real(shape[-1])
    how = {"groups": groups, "activation": activation, "epsilon": eps}
    want = normed(x, gamma, beta, groups, eps, bool(activation))
    got = run("GroupNorm", x, gamma, beta, device=device, **how)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    first = np.ascontiguousarray(np.moveaxis(x, -1, 1))
    got = run("GroupNorm", first, gamma, beta, device=device, channels_last=0, **how)
    np.testing.assert_allclose(np.moveaxis(got, 1, -1), want, rtol=1e-4, atol=1e-5)


def test_a_norm_of_halves_with_wide_weights() -> None:
    x, gamma, beta = real(2, 4, 4, 6).astype(np.float16), real(6), real(6)
    want = normed(x, gamma, beta, 3, 1e-5, True)
    for more in (gamma, gamma.astype(np.float16)):
        like = beta.astype(more.dtype)
        got = run("GroupNorm", x, more, like, groups=3, activation=1)
        assert got.dtype == np.float16
        np.testing.assert_allclose(got, want, rtol=4e-3, atol=4e-3)


@pytest.mark.parametrize("layout", ["whole", "channels", "flat"])
@pytest.mark.parametrize("has_bias", [True, False])
def test_norms_of_a_sum_with_what_was_skipped(layout: str, has_bias: bool) -> None:
    x, gamma, beta = real(2, 3, 5, 8), real(8), real(8)
    skip = real(*{"whole": x.shape, "channels": (2, 1, 1, 8), "flat": (2, 8)}[layout])
    bias = real(8) if has_bias else None
    total = x + (skip[:, None, None] if skip.ndim == 2 else skip)
    total = total if bias is None else total + bias
    want = normed(total, gamma, beta, 2, 1e-5, True)
    how = {"groups": 2, "activation": 1, "outputs": 2}
    got, added = run("SkipGroupNorm", x, gamma, beta, skip, bias, **how)
    np.testing.assert_allclose(added, total, rtol=1e-6)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    x, skip = (
        np.ascontiguousarray(np.moveaxis(one, -1, 1)) if one.ndim == 4 else one
        for one in (x, skip)
    )
    fed = (x, gamma, beta, skip, bias)
    got, added = run("SkipGroupNorm", *fed, channels_last=0, **how)
    np.testing.assert_allclose(np.moveaxis(added, 1, -1), total, rtol=1e-6)
    np.testing.assert_allclose(np.moveaxis(got, 1, -1), want, rtol=1e-4, atol=1e-5)


CONVOLUTIONS: dict[str, Any] = {
    "plain": ((2, 6, 7, 4), (5, 4, 3, 3), {}),
    "strides and pads": (
        (1, 9, 8, 4),
        (6, 4, 3, 3),
        {"strides": [2, 1], "pads": [1, 0, 1, 2], "kernel_shape": [3, 3]},
    ),
    "groups, apart": ((1, 8, 8, 4), (4, 1, 3, 3), {"group": 4, "dilations": [2, 2]}),
    "as large": ((1, 7, 7, 3), (2, 3, 3, 3), {"auto_pad": "SAME_UPPER"}),
    "points of a line": ((2, 9, 3), (4, 3, 1), {}),
}


@pytest.mark.parametrize("device", ENGINES)
@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolutions_of_channels_that_lie_last(case: str, device: str) -> None:
    shape, weights, how = CONVOLUTIONS[case]
    x, w, bias = real(*shape), real(*weights), real(weights[0])
    fed = (np.ascontiguousarray(np.moveaxis(x, -1, 1)), w, bias)
    want = np.moveaxis(
        runtime(made("Conv", fed, domain="", **how), feeds(fed))[0], 1, -1
    )
    got = run("NhwcConv", x, w, bias, device=device, **how)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    more = real(*want.shape)
    fused = {"activation": "LeakyRelu", "activation_params": [0.2], **how}
    got = run("NhwcFusedConv", x, w, bias, more, device=device, **fused)
    total = want + more
    want = np.where(total < 0, 0.2 * total, total)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize(
    "how",
    [
        {"kernel_shape": [2, 3]},
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
        {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1},
        {"kernel_shape": [2, 2], "dilations": [2, 2]},
    ],
)
def test_pools_of_channels_that_lie_last(how: Any, dtype: Any) -> None:
    ends = np.iinfo(dtype)
    x = RNG.integers(ends.min, ends.max + 1, (2, 7, 9, 5)).astype(dtype)
    (want,) = runtime(made("NhwcMaxPool", (x,), **how), {"x0": x})
    np.testing.assert_array_equal(run("NhwcMaxPool", x, **how), want)


def gelu(x: Any) -> Any:
    return x * (1 + np.vectorize(erf)(x.astype(float) / 2**0.5)) / 2


@pytest.mark.parametrize("device", ENGINES)
@pytest.mark.parametrize("shape", [(2, 5, 8), (1, 1, 8), (3, 16, 8)])
def test_what_transformers_of_images_add(shape: Any, device: str) -> None:
    x, bias, skip = real(*shape), real(shape[-1]), real(*shape)
    got = run("BiasAdd", x, bias, skip, device=device)
    np.testing.assert_allclose(got, x + bias + skip, rtol=1e-6, atol=1e-6)
    left, right = np.split(x + bias, 2, -1)
    got = run("BiasSplitGelu", x, bias, device=device)
    np.testing.assert_allclose(got, left * gelu(right), rtol=1e-4, atol=1e-5)


REFUSED: dict[str, Any] = {
    "activation is 2": (
        ("GroupNorm", real(1, 2, 2, 4), real(4), real(4)),
        {"groups": 2, "activation": 2},
    ),
    "num_groups=3": (
        ("GroupNorm", real(1, 2, 2, 4), real(4), real(4)),
        {"groups": 3, "activation": 0},
    ),
    "skip is [1, 2, 1, 4]": (
        ("SkipGroupNorm", real(1, 2, 2, 4), real(4), real(4), real(1, 2, 1, 4)),
        {"groups": 2, "activation": 0},
    ),
    "activation 'Elu'": (
        ("NhwcFusedConv", real(1, 3, 3, 2), real(2, 2, 1, 1)),
        {"activation": "Elu"},
    ),
    "7 channels": (("BiasSplitGelu", real(1, 2, 7), real(7)), {}),
}


@pytest.mark.parametrize("says", REFUSED)
def test_what_is_not_done_is_refused(says: str) -> None:
    given, how = REFUSED[says]
    with pytest.raises((ModelError, Unsupported, AttributeRefused)) as caught:
        run(*given, **how)
    assert says in str(caught.value)
