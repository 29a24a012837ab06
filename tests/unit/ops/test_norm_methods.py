"""Norms that PyTorch has not, halves whose squares exceed float16, and refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.core.errors import RlxError
from tests.ops.torch_comparison import random_array, run_on_cpu


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
