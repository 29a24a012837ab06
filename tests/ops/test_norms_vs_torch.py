"""Compare normalisations with PyTorch's, through the methods of the same names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import rlxweb as rlx
from rlxweb.core.errors import RlxError
from tests.ops.test_conv_pool_vs_torch import (
    assert_close_to_torch,
    random_array,
    run_on_cpu,
)

pytestmark = pytest.mark.requires_torch
F = torch.nn.functional


def to_torch(*arrays: Any) -> tuple[Any, ...]:
    return tuple(map(torch.from_numpy, arrays))


@pytest.mark.parametrize("op", ["layer_norm", "rms_norm"])
@pytest.mark.parametrize("axes", [(3,), (2, 3), (1, 2, 3)], ids=str)
def test_norms_over_several_axes(op: str, axes: tuple[int, ...]) -> None:
    """Norms over several axes are PyTorch's, with weights and biases and without."""
    x = random_array((2, 3, 4, 5))
    sizes = tuple(x.shape[a] for a in axes)
    w, b = random_array(sizes, 1), random_array(sizes, 2)
    (tx, tw, tb) = to_torch(x, w, b)
    torch_norm = getattr(F, op)
    extra = {} if op == "rms_norm" else {"bias": tb}
    want = torch_norm(tx, sizes, weight=tw, eps=1e-5, **extra)
    want = want + tb if op == "rms_norm" else want
    assert_close_to_torch(
        run_on_cpu(lambda g, *t: getattr(g, op)(*t, axis=axes), x, w, b), want
    )
    without_weights = torch_norm(tx, sizes, eps=1e-5)
    assert_close_to_torch(
        run_on_cpu(lambda g, t: getattr(g, op)(t, axis=axes), x), without_weights
    )


def test_layer_norm_over_nonadjacent_axes() -> None:
    x = random_array((3, 4, 5, 6)) + 2
    got = run_on_cpu(lambda g, t: g.layer_norm(t, axis=(0, 2)), x)
    options = {"axis": (0, 2), "keepdims": True}
    want = (x - x.mean(**options)) / np.sqrt(x.var(**options) + 1e-5)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_inverse_standard_deviation() -> None:
    x = random_array((3, 4, 5)) * 3 + 7
    want = 1 / np.sqrt(x.astype(np.float64).var(axis=(1, 2), keepdims=True) + 1e-5)
    got = run_on_cpu(lambda g, t: g.inv_std(t, axis=(1, 2)), x)
    np.testing.assert_allclose(got, want, rtol=1e-5)


@pytest.mark.parametrize("shape", [(5, 6), (2, 6, 7), (2, 6, 5, 4)], ids=str)
def test_norms_of_channels(shape: tuple[int, ...]) -> None:
    x = random_array(shape) * 2 + 1
    w = random_array(shape[1:2], 1)
    b = random_array(shape[1:2], 2)
    mean, var = random_array(shape[1:2], 3), np.abs(random_array(shape[1:2], 4)) + 0.1
    (tx, tw, tb, tm, tv) = to_torch(x, w, b, mean, var)
    got = run_on_cpu(lambda g, *t: g.batch_norm(*t), x, mean, var, w, b)
    assert_close_to_torch(got, F.batch_norm(tx, tm, tv, tw, tb))
    assert_close_to_torch(
        run_on_cpu(lambda g, *t: g.batch_norm(*t), x, mean, var),
        F.batch_norm(tx, tm, tv),
    )
    got = run_on_cpu(lambda g, t: g.batch_norm(t, *g.batch_statistics(t)), x)
    assert_close_to_torch(got, F.batch_norm(tx, None, None, training=True))
    got = run_on_cpu(
        lambda g, t, *scale_and_bias: g.group_norm(t, 3, *scale_and_bias), x, w, b
    )
    assert_close_to_torch(got, F.group_norm(tx, 3, tw, tb))
    if x.ndim > 2:
        got = run_on_cpu(lambda g, *t: g.instance_norm(*t), x, w, b)
        assert_close_to_torch(got, F.instance_norm(tx, weight=tw, bias=tb))


@pytest.mark.parametrize("size", [1, 3, 4])
def test_local_response(size: int) -> None:
    x = random_array((2, 7, 4, 3)) * 5
    got = run_on_cpu(lambda g, t: g.local_response_norm(t, size, 0.2, 0.6, 1.5), x)
    assert_close_to_torch(got, F.local_response_norm(*to_torch(x), size, 0.2, 0.6, 1.5))


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, np.inf])
def test_normalize(p: float) -> None:
    x = random_array((4, 5, 3))
    x[1] = 0
    assert_close_to_torch(
        run_on_cpu(lambda g, t: g.normalize(t, p), x), F.normalize(*to_torch(x), p)
    )


HALVES: dict[str, Callable[[Any, Any], Any]] = {
    "batch_statistics": lambda g, x: g.batch_statistics(x)[1],
    "inv_std": lambda g, x: g.inv_std(x, axis=2),
    "local_response_norm": lambda g, x: g.local_response_norm(x, 3),
    "normalize": lambda g, x: g.normalize(x),
}


@pytest.mark.parametrize("name", HALVES)
def test_float16_squares_may_exceed_float16(name: str) -> None:
    x = (random_array((2, 3, 40)) * 150 + 400).astype(np.float16)
    wide = run_on_cpu(HALVES[name], x.astype(np.float32))
    np.testing.assert_allclose(run_on_cpu(HALVES[name], x), wide, rtol=2e-3)


INVALID_CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "at least one axis is required": lambda g, x: g.layer_norm(x, axis=()),
    "axis 4 is out of range for rank 3": lambda g, x: g.rms_norm(x, axis=4),
    "num_groups=4": lambda g, x: g.group_norm(x, 4),
    "size=0": lambda g, x: g.local_response_norm(x, 0),
    "p=0": lambda g, x: g.normalize(x, 0),
    "p=nan": lambda g, x: g.normalize(x, np.nan),
    r"expected shape \[6\], one number per channel": lambda g, x: g.instance_norm(
        x, x[0, 0]
    ),
    r"shape of the normalized axes, \[6, 5\]|cannot broadcast": lambda g, x: (
        g.layer_norm(x, x[0, 0, :4], axis=(1, 2))
    ),
}


@pytest.mark.parametrize("message", INVALID_CALLS)
def test_invalid_arguments_are_rejected(message: str) -> None:
    g = rlx.Graph("bad")
    with pytest.raises(RlxError, match=message):
        INVALID_CALLS[message](g, g.input("x", (2, 6, 5)))
