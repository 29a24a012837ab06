"""Convolutions and pools against PyTorch's, through the methods that bear its names."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

import rlxweb as rlx
from rlxweb.errors import RlxError
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import TensorType, registry
from rlxweb.ir.tensor import Tensor
from rlxweb.recipes.windows import pool_windows
from tests.agreement import Array

pytestmark = pytest.mark.requires_torch
F = torch.nn.functional
MAX_POOL = registry.get("max_pool")

SHAPES = {1: (2, 6, 19), 2: (2, 6, 9, 11), 3: (1, 4, 6, 5, 7)}
CONVOLUTIONS: list[dict[str, Any]] = [
    {},
    {"stride": 2, "padding": 1},
    {"dilation": 2, "padding": 2},
    {"groups": 2},
    {"padding": "same"},
    {"padding": "valid", "stride": 3},
]
TRANSPOSED: list[dict[str, Any]] = [
    {},
    {"stride": 2, "padding": 1},
    {"stride": 3, "output_padding": 2, "groups": 2},
    {"dilation": 2, "padding": 3},
    {"stride": 3, "dilation": 2, "output_padding": 1},
]
POOLS: list[dict[str, Any]] = [
    {},
    {"stride": 2, "padding": 1},
    {"stride": 2, "ceil_mode": True},
    {"stride": 3, "padding": 1, "ceil_mode": True},
]


def drawn(shape: tuple[int, ...], seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def ours(build: Callable[..., Tensor], *arrays: Array) -> Array:
    """What a graph of the arrays as inputs gives on the CPU."""
    g = rlx.Graph("one")
    given = [g.input(f"x{i}", a.shape, str(a.dtype)) for i, a in enumerate(arrays)]
    g.set_outputs([build(g, *given)])
    compiled = rlx.Session("cpu").compile(g)
    return compiled.run({f"x{i}": a for i, a in enumerate(arrays)})[0]


def same(got: Array, want: Any) -> None:
    assert got.shape == tuple(want.shape)
    np.testing.assert_allclose(got, want.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rank", SHAPES)
@pytest.mark.parametrize("how", CONVOLUTIONS, ids=str)
def test_convolution(rank: int, how: dict[str, Any]) -> None:
    x, groups = drawn(SHAPES[rank]), how.get("groups", 1)
    w, b = drawn((4, x.shape[1] // groups, *(3, 5, 3)[:rank]), 1), drawn((4,), 2)
    name = f"conv{rank}d"
    got = ours(lambda g, *t: getattr(g, name)(*t, **how), x, w, b)
    same(got, getattr(F, name)(*map(torch.from_numpy, (x, w, b)), **how))


@pytest.mark.parametrize("rank", SHAPES)
@pytest.mark.parametrize("how", TRANSPOSED, ids=str)
def test_transposed_convolution(rank: int, how: dict[str, Any]) -> None:
    x, groups = drawn(SHAPES[rank]), how.get("groups", 1)
    w, b = drawn((x.shape[1], 2, *(3, 4, 2)[:rank]), 1), drawn((2 * groups,), 2)
    name = f"conv_transpose{rank}d"
    got = ours(lambda g, *t: getattr(g, name)(*t, **how), x, w, b)
    same(got, getattr(F, name)(*map(torch.from_numpy, (x, w, b)), **how))


@pytest.mark.parametrize("rank", SHAPES)
@pytest.mark.parametrize("how", POOLS, ids=str)
def test_pools(rank: int, how: dict[str, Any]) -> None:
    x = drawn(SHAPES[rank])
    of_torch = torch.from_numpy(x)
    for kind in ("max", "avg"):
        name = f"{kind}_pool{rank}d"
        got = ours(lambda g, t, name=name: getattr(g, name)(t, 3, **how), x)
        same(got, getattr(F, name)(of_torch, 3, **how))
    found = ours(lambda g, t: g.max_pool_indices(t, 3, **how), x)
    named = getattr(F, f"max_pool{rank}d")
    assert (found == named(of_torch, 3, **how, return_indices=True)[1].numpy()).all()
    if "padding" not in how:  # PyTorch's takes no absolute values
        name = f"lp_pool{rank}d"
        got = ours(lambda g, t: getattr(g, name)(t, 3.0, 2, how.get("stride")), x)
        same(got, getattr(F, name)(of_torch.abs(), 3.0, 2, how.get("stride")))


def test_averages_may_leave_the_padding_out() -> None:
    x, how = drawn(SHAPES[2]), {"stride": 2, "padding": 1, "count_include_pad": False}
    want = F.avg_pool2d(torch.from_numpy(x), 3, **how)
    same(ours(lambda g, t: g.avg_pool2d(t, 3, **how), x), want)


def test_windows_of_many_elements() -> None:
    """Windows as large as the array, or than can be laid side by side, are right."""
    x = drawn((1, 2, 130, 140))
    of_torch = torch.from_numpy(x)
    same(ours(lambda g, t: g.max_pool2d(t, 90, 3), x), F.max_pool2d(of_torch, 90, 3))
    same(ours(lambda g, t: g.avg_pool2d(t, 90, 3), x), F.avg_pool2d(of_torch, 90, 3))
    whole = (130, 140)
    same(ours(lambda g, t: g.avg_pool2d(t, whole), x), F.avg_pool2d(of_torch, whole))


@pytest.mark.parametrize("dilation", [1, 4, 9])
@pytest.mark.parametrize("ceil_mode", [False, True])
def test_windows_that_hold_nothing_are_refused(dilation: int, ceil_mode: bool) -> None:
    """Windows that hold nothing are refused; which do is told by looking at each."""
    for size, pad, step in product((1, 2, 5), (0, 1, 4, 8), (1, 3)):
        how = {"kernel": 3, "strides": step, "dilations": dilation, "pads": pad}
        full = MAX_POOL.check_attrs({**how, "ceil_mode": ceil_mode})
        x = TensorType((1, 1, size), DType.F32)
        if size + 2 * pad <= 2 * dilation:
            continue  # no window fits at all
        count = pool_windows(x.shape, full).out[0]
        places = [
            {i * step - pad + k * dilation for k in range(3)} for i in range(count)
        ]
        if all(place & set(range(size)) for place in places):
            assert MAX_POOL.infer((x,), full).shape == (1, 1, count)
            continue
        with pytest.raises(RlxError, match="holds an element"):
            MAX_POOL.infer((x,), full)


REFUSED: dict[str, Callable[[Any, Any, Any], Any]] = {
    r"conv1d of \[1, 4, 6, 6\]: an array of rank 4": lambda g, x, w: g.conv1d(x, w),
    "the array has 4 channels": lambda g, x, w: g.conv(x, g.narrow(w, 1, 0, 3)),
    "groups=3 beside weights": lambda g, x, w: g.conv(x, w, groups=3),
    "a window of 11 over spatial axis 0": lambda g, x, w: g.conv(x, w, dilation=5),
    "strides=.0.": lambda g, x, w: g.conv(x, w, stride=0),
    "strides=.1, 1, 1.": lambda g, x, w: g.conv(x, w, stride=(1, 1, 1)),
    "pads=.-1.": lambda g, x, w: g.conv(x, w, padding=-1),
    "padding='smae'": lambda g, x, w: g.conv(x, w, padding="smae"),
    "there would be fewer": lambda g, x, w: g.conv(x, w, padding="same", stride=2),
    r"bias \[4\] of 2 channels": lambda g, x, w: g.conv(
        x, w, g.constant(np.zeros(4, np.float32))
    ),
    "operands are f32 and f16": lambda g, x, w: g.conv(x, g.cast(w, "f16")),
    r"a kernel of \[0, 0\]": lambda g, x, w: g.max_pool(x, 0),
    "each window holds an element": lambda g, x, w: g.max_pool(x, 2, padding=2),
    "pad less than a window": lambda g, x, w: g.max_pool(x, 3, 1, 1 << 40),
    "p=0.0": lambda g, x, w: g.lp_pool(x, 0.0, 2),
    "leave 0 results": lambda g, x, w: g.conv_transpose(x, w[:, :2], padding=4),
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_makes_no_sense_is_refused_with_both_numbers(said: str) -> None:
    g = rlx.Graph("bad")
    x, w = g.input("x", (1, 4, 6, 6)), g.input("w", (2, 4, 3, 3))
    with pytest.raises(RlxError, match=said):
        REFUSED[said](g, x, w)


FOLDS: list[dict[str, Any]] = [
    {"kernel_size": 2, "stride": 2},
    {"kernel_size": (3, 2), "padding": 1},
    {"kernel_size": 3, "dilation": 2, "padding": (2, 0), "stride": (1, 3)},
]


@pytest.mark.parametrize("at", range(len(FOLDS)))
def test_folds(at: int) -> None:
    how = FOLDS[at]
    image = torch.from_numpy(drawn((2, 3, 8, 10)))
    x = F.unfold(image, **how)
    want = F.fold(x, (8, 10), **how)
    got = ours(lambda g, x: g.fold(x, (8, 10), **how), x.numpy())
    np.testing.assert_allclose(got, want.numpy(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("told", [False, True])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_max_pools_are_undone(rank: int, told: bool) -> None:
    """Windows that do not meet: of those that do PyTorch takes any."""
    image = (9, 10, 10) if told else (8, 11, 5)
    x = torch.from_numpy(drawn((2, 3, *image[:rank])))
    how: dict[str, Any] = {"kernel_size": 2, "stride": 3}
    pooled, at = getattr(F, f"max_pool{rank}d")(x, **how, return_indices=True)
    size = tuple(x.shape[2:]) if told else None
    want = getattr(F, f"max_unpool{rank}d")(pooled, at, 2, 3, output_size=size)
    got = ours(
        lambda g, x, at: g.max_unpool(x, at, 2, 3, output_size=size),
        pooled.numpy(),
        at.numpy().astype(np.int32),
    )
    np.testing.assert_array_equal(got, want.numpy())


UNDONE: dict[str, Callable[[Any, Tensor], Any]] = {
    "have 35 windows of 4 each": lambda g, x: g.fold(x, (6, 8), 2),
    "stride=0": lambda g, x: g.fold(x, (6, 8), 2, stride=0),
    "each of 2 spatial axes": lambda g, x: g.fold(x, (6, 8), (2, 2, 2)),
    "both are [N, C, …]": lambda g, x: g.max_unpool(x, g.narrow(x, 0, 0, 1), 2),
}


@pytest.mark.parametrize("says", UNDONE)
def test_what_is_no_window_is_refused(says: str) -> None:
    g = rlx.Graph("no")
    with pytest.raises(RlxError) as caught:
        UNDONE[says](g, g.input("x", (2, 4, 36)))
    assert says in str(caught.value)
