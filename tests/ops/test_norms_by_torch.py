"""Normalisations against PyTorch's, through the methods that bear its names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import rlxweb as rlx
from rlxweb.errors import RlxError
from tests.ops.test_windows_by_torch import drawn, ours, same

pytestmark = pytest.mark.requires_torch
F = torch.nn.functional


def of_torch(*arrays: Any) -> tuple[Any, ...]:
    return tuple(map(torch.from_numpy, arrays))


@pytest.mark.parametrize("op", ["layer_norm", "rms_norm"])
@pytest.mark.parametrize("axes", [(3,), (2, 3), (1, 2, 3)], ids=str)
def test_lines_of_several_axes(op: str, axes: tuple[int, ...]) -> None:
    """Norms over several axes are PyTorch's, with weights and biases and without."""
    x = drawn((2, 3, 4, 5))
    sizes = tuple(x.shape[a] for a in axes)
    w, b = drawn(sizes, 1), drawn(sizes, 2)
    (tx, tw, tb) = of_torch(x, w, b)
    named = getattr(F, op)
    extra = {} if op == "rms_norm" else {"bias": tb}
    want = named(tx, sizes, weight=tw, eps=1e-5, **extra)
    want = want + tb if op == "rms_norm" else want
    same(ours(lambda g, *t: getattr(g, op)(*t, axis=axes), x, w, b), want)
    bare = named(tx, sizes, eps=1e-5)
    same(ours(lambda g, t: getattr(g, op)(t, axis=axes), x), bare)


def test_axes_that_lie_apart() -> None:
    x = drawn((3, 4, 5, 6)) + 2
    got = ours(lambda g, t: g.layer_norm(t, axis=(0, 2)), x)
    how = {"axis": (0, 2), "keepdims": True}
    want = (x - x.mean(**how)) / np.sqrt(x.var(**how) + 1e-5)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_one_over_the_deviation() -> None:
    x = drawn((3, 4, 5)) * 3 + 7
    want = 1 / np.sqrt(x.astype(np.float64).var(axis=(1, 2), keepdims=True) + 1e-5)
    got = ours(lambda g, t: g.inv_std(t, axis=(1, 2)), x)
    np.testing.assert_allclose(got, want, rtol=1e-5)


@pytest.mark.parametrize("shape", [(5, 6), (2, 6, 7), (2, 6, 5, 4)], ids=str)
def test_norms_of_channels(shape: tuple[int, ...]) -> None:
    x, w, b = drawn(shape) * 2 + 1, drawn(shape[1:2], 1), drawn(shape[1:2], 2)
    mean, var = drawn(shape[1:2], 3), np.abs(drawn(shape[1:2], 4)) + 0.1
    (tx, tw, tb, tm, tv) = of_torch(x, w, b, mean, var)
    got = ours(lambda g, *t: g.batch_norm(*t), x, mean, var, w, b)
    same(got, F.batch_norm(tx, tm, tv, tw, tb))
    same(ours(lambda g, *t: g.batch_norm(*t), x, mean, var), F.batch_norm(tx, tm, tv))
    got = ours(lambda g, t: g.batch_norm(t, *g.batch_statistics(t)), x)
    same(got, F.batch_norm(tx, None, None, training=True))
    got = ours(lambda g, t, *ends: g.group_norm(t, 3, *ends), x, w, b)
    same(got, F.group_norm(tx, 3, tw, tb))
    if x.ndim > 2:
        got = ours(lambda g, *t: g.instance_norm(*t), x, w, b)
        same(got, F.instance_norm(tx, weight=tw, bias=tb))


@pytest.mark.parametrize("size", [1, 3, 4])
def test_local_response(size: int) -> None:
    x = drawn((2, 7, 4, 3)) * 5
    got = ours(lambda g, t: g.local_response_norm(t, size, 0.2, 0.6, 1.5), x)
    same(got, F.local_response_norm(*of_torch(x), size, 0.2, 0.6, 1.5))


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, np.inf])
def test_normalize(p: float) -> None:
    x = drawn((4, 5, 3))
    x[1] = 0
    same(ours(lambda g, t: g.normalize(t, p), x), F.normalize(*of_torch(x), p))


HALVES: dict[str, Callable[[Any, Any], Any]] = {
    "batch_statistics": lambda g, x: g.batch_statistics(x)[1],
    "inv_std": lambda g, x: g.inv_std(x, axis=2),
    "local_response_norm": lambda g, x: g.local_response_norm(x, 3),
    "normalize": lambda g, x: g.normalize(x),
}


@pytest.mark.parametrize("name", HALVES)
def test_squares_of_halves_may_be_beyond_halves(name: str) -> None:
    x = (drawn((2, 3, 40)) * 150 + 400).astype(np.float16)
    wide = ours(HALVES[name], x.astype(np.float32))
    np.testing.assert_allclose(ours(HALVES[name], x), wide, rtol=2e-3)


REFUSED: dict[str, Callable[[Any, Any], Any]] = {
    "no axis is named": lambda g, x: g.layer_norm(x, axis=()),
    "axis 4 is outside rank 3": lambda g, x: g.rms_norm(x, axis=4),
    "num_groups=4": lambda g, x: g.group_norm(x, 4),
    "size=0": lambda g, x: g.local_response_norm(x, 0),
    "p=0": lambda g, x: g.normalize(x, 0),
    "p=nan": lambda g, x: g.normalize(x, np.nan),
    r"one number for each channel, \[6\]": lambda g, x: g.instance_norm(x, x[0, 0]),
    r"what broadcasts to its axes, \[6, 5\]|cannot broadcast": lambda g, x: (
        g.layer_norm(x, x[0, 0, :4], axis=(1, 2))
    ),
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_makes_no_sense_is_refused(said: str) -> None:
    g = rlx.Graph("bad")
    with pytest.raises(RlxError, match=said):
        REFUSED[said](g, g.input("x", (2, 6, 5)))
