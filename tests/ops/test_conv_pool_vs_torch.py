"""Compare convolutions and pools with PyTorch's, through the methods of the same
names.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

import rlxweb as rlx
from rlxweb.core.errors import RlxError
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import TensorType, registry
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.conv.windows import pool_windows
from tests.engines_under_test import Array

pytestmark = pytest.mark.requires_torch
F = torch.nn.functional
MAX_POOL = registry.get("max_pool")

SHAPES = {1: (2, 6, 19), 2: (2, 6, 9, 11), 3: (1, 4, 6, 5, 7)}
CONV_OPTIONS: list[dict[str, Any]] = [
    {},
    {"stride": 2, "padding": 1},
    {"dilation": 2, "padding": 2},
    {"groups": 2},
    {"padding": "same"},
    {"padding": "valid", "stride": 3},
]
TRANSPOSED_CONV_OPTIONS: list[dict[str, Any]] = [
    {},
    {"stride": 2, "padding": 1},
    {"stride": 3, "output_padding": 2, "groups": 2},
    {"dilation": 2, "padding": 3},
    {"stride": 3, "dilation": 2, "output_padding": 1},
]
POOL_OPTIONS: list[dict[str, Any]] = [
    {},
    {"stride": 2, "padding": 1},
    {"stride": 2, "ceil_mode": True},
    {"stride": 3, "padding": 1, "ceil_mode": True},
]


def random_array(shape: tuple[int, ...], seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def run_on_cpu(build: Callable[..., Tensor], *arrays: Array) -> Array:
    """Return the output of a graph with the arrays as inputs, on the CPU."""
    g = rlx.Graph("one")
    operands = [g.input(f"x{i}", a.shape, str(a.dtype)) for i, a in enumerate(arrays)]
    g.set_outputs([build(g, *operands)])
    compiled = rlx.Session("cpu").compile(g)
    return compiled.run({f"x{i}": a for i, a in enumerate(arrays)})[0]


def assert_close_to_torch(got: Array, want: Any) -> None:
    assert got.shape == tuple(want.shape)
    np.testing.assert_allclose(got, want.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rank", SHAPES)
@pytest.mark.parametrize("options", CONV_OPTIONS, ids=str)
def test_convolution(rank: int, options: dict[str, Any]) -> None:
    x, groups = random_array(SHAPES[rank]), options.get("groups", 1)
    w = random_array((4, x.shape[1] // groups, *(3, 5, 3)[:rank]), 1)
    b = random_array((4,), 2)
    name = f"conv{rank}d"
    got = run_on_cpu(lambda g, *t: getattr(g, name)(*t, **options), x, w, b)
    assert_close_to_torch(
        got, getattr(F, name)(*map(torch.from_numpy, (x, w, b)), **options)
    )


@pytest.mark.parametrize("rank", SHAPES)
@pytest.mark.parametrize("options", TRANSPOSED_CONV_OPTIONS, ids=str)
def test_transposed_convolution(rank: int, options: dict[str, Any]) -> None:
    x, groups = random_array(SHAPES[rank]), options.get("groups", 1)
    w = random_array((x.shape[1], 2, *(3, 4, 2)[:rank]), 1)
    b = random_array((2 * groups,), 2)
    name = f"conv_transpose{rank}d"
    got = run_on_cpu(lambda g, *t: getattr(g, name)(*t, **options), x, w, b)
    assert_close_to_torch(
        got, getattr(F, name)(*map(torch.from_numpy, (x, w, b)), **options)
    )


@pytest.mark.parametrize("rank", SHAPES)
@pytest.mark.parametrize("options", POOL_OPTIONS, ids=str)
def test_pools(rank: int, options: dict[str, Any]) -> None:
    x = random_array(SHAPES[rank])
    torch_input = torch.from_numpy(x)
    for kind in ("max", "avg"):
        name = f"{kind}_pool{rank}d"
        got = run_on_cpu(lambda g, t, name=name: getattr(g, name)(t, 3, **options), x)
        assert_close_to_torch(got, getattr(F, name)(torch_input, 3, **options))
    indices = run_on_cpu(lambda g, t: g.max_pool_indices(t, 3, **options), x)
    torch_pool = getattr(F, f"max_pool{rank}d")
    assert (
        indices == torch_pool(torch_input, 3, **options, return_indices=True)[1].numpy()
    ).all()
    if "padding" not in options:  # PyTorch's takes no absolute values
        name = f"lp_pool{rank}d"
        got = run_on_cpu(
            lambda g, t: getattr(g, name)(t, 3.0, 2, options.get("stride")), x
        )
        assert_close_to_torch(
            got, getattr(F, name)(torch_input.abs(), 3.0, 2, options.get("stride"))
        )


def test_average_pool_may_exclude_padding() -> None:
    x = random_array(SHAPES[2])
    options = {"stride": 2, "padding": 1, "count_include_pad": False}
    want = F.avg_pool2d(torch.from_numpy(x), 3, **options)
    assert_close_to_torch(
        run_on_cpu(lambda g, t: g.avg_pool2d(t, 3, **options), x), want
    )


def test_windows_of_many_elements() -> None:
    """Windows as large as the array, or too many to unroll by im2col, are right."""
    x = random_array((1, 2, 130, 140))
    torch_input = torch.from_numpy(x)
    assert_close_to_torch(
        run_on_cpu(lambda g, t: g.max_pool2d(t, 90, 3), x),
        F.max_pool2d(torch_input, 90, 3),
    )
    assert_close_to_torch(
        run_on_cpu(lambda g, t: g.avg_pool2d(t, 90, 3), x),
        F.avg_pool2d(torch_input, 90, 3),
    )
    image_size = (130, 140)
    assert_close_to_torch(
        run_on_cpu(lambda g, t: g.avg_pool2d(t, image_size), x),
        F.avg_pool2d(torch_input, image_size),
    )


@pytest.mark.parametrize("dilation", [1, 4, 9])
@pytest.mark.parametrize("ceil_mode", [False, True])
def test_empty_windows_are_rejected(dilation: int, ceil_mode: bool) -> None:
    """Windows without an element are rejected; a check of every window says which
    are.
    """
    for size, pad, step in product((1, 2, 5), (0, 1, 4, 8), (1, 3)):
        attrs = {"kernel": 3, "strides": step, "dilations": dilation, "pads": pad}
        full_attrs = MAX_POOL.check_attrs({**attrs, "ceil_mode": ceil_mode})
        x = TensorType((1, 1, size), DType.F32)
        if size + 2 * pad <= 2 * dilation:
            continue  # no window fits at all
        count = pool_windows(x.shape, full_attrs).out_shape[0]
        windows = [
            {i * step - pad + k * dilation for k in range(3)} for i in range(count)
        ]
        if all(window & set(range(size)) for window in windows):
            assert MAX_POOL.infer((x,), full_attrs).shape == (1, 1, count)
            continue
        with pytest.raises(RlxError, match="must contain an element"):
            MAX_POOL.infer((x,), full_attrs)


INVALID_CALLS: dict[str, Callable[[Any, Any, Any], Any]] = {
    r"conv1d of \[1, 4, 6, 6\]: the array has rank 4": lambda g, x, w: g.conv1d(x, w),
    "the array has 4 channels": lambda g, x, w: g.conv(x, g.narrow(w, 1, 0, 3)),
    "groups=3 with weights": lambda g, x, w: g.conv(x, w, groups=3),
    "a window spans 11 elements on spatial axis 0": lambda g, x, w: g.conv(
        x, w, dilation=5
    ),
    "strides=.0.": lambda g, x, w: g.conv(x, w, stride=0),
    "strides=.1, 1, 1.": lambda g, x, w: g.conv(x, w, stride=(1, 1, 1)),
    "pads=.-1.": lambda g, x, w: g.conv(x, w, padding=-1),
    "padding='smae'": lambda g, x, w: g.conv(x, w, padding="smae"),
    "the result would be smaller": lambda g, x, w: g.conv(
        x, w, padding="same", stride=2
    ),
    r"bias has shape \[4\]; expected shape \[2\], one number per output": (
        lambda g, x, w: g.conv(x, w, g.constant(np.zeros(4, np.float32)))
    ),
    "operands are f32 and f16": lambda g, x, w: g.conv(x, g.cast(w, "f16")),
    r"a kernel \[0, 0\]": lambda g, x, w: g.max_pool(x, 0),
    "each window must contain an element": lambda g, x, w: g.max_pool(x, 2, padding=2),
    "use pads smaller than the windows": lambda g, x, w: g.max_pool(x, 3, 1, 1 << 40),
    "p=0.0": lambda g, x, w: g.lp_pool(x, 0.0, 2),
    "to 0 elements": lambda g, x, w: g.conv_transpose(x, w[:, :2], padding=4),
}


@pytest.mark.parametrize("message", INVALID_CALLS)
def test_invalid_arguments_are_rejected_with_both_numbers(message: str) -> None:
    g = rlx.Graph("bad")
    x, w = g.input("x", (1, 4, 6, 6)), g.input("w", (2, 4, 3, 3))
    with pytest.raises(RlxError, match=message):
        INVALID_CALLS[message](g, x, w)


FOLD_OPTIONS: list[dict[str, Any]] = [
    {"kernel_size": 2, "stride": 2},
    {"kernel_size": (3, 2), "padding": 1},
    {"kernel_size": 3, "dilation": 2, "padding": (2, 0), "stride": (1, 3)},
]


@pytest.mark.parametrize("index", range(len(FOLD_OPTIONS)))
def test_folds(index: int) -> None:
    options = FOLD_OPTIONS[index]
    image = torch.from_numpy(random_array((2, 3, 8, 10)))
    x = F.unfold(image, **options)
    want = F.fold(x, (8, 10), **options)
    got = run_on_cpu(lambda g, x: g.fold(x, (8, 10), **options), x.numpy())
    np.testing.assert_allclose(got, want.numpy(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("has_output_size", [False, True])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_max_unpool(rank: int, has_output_size: bool) -> None:
    """Windows do not overlap: with overlapping ones PyTorch may take any value."""
    image = (9, 10, 10) if has_output_size else (8, 11, 5)
    x = torch.from_numpy(random_array((2, 3, *image[:rank])))
    options: dict[str, Any] = {"kernel_size": 2, "stride": 3}
    pooled, indices = getattr(F, f"max_pool{rank}d")(x, **options, return_indices=True)
    size = tuple(x.shape[2:]) if has_output_size else None
    want = getattr(F, f"max_unpool{rank}d")(pooled, indices, 2, 3, output_size=size)
    got = run_on_cpu(
        lambda g, x, indices: g.max_unpool(x, indices, 2, 3, output_size=size),
        pooled.numpy(),
        indices.numpy().astype(np.int32),
    )
    np.testing.assert_array_equal(got, want.numpy())


INVALID_FOLD_CALLS: dict[str, Callable[[Any, Tensor], Any]] = {
    "have 35 windows of 4 elements": lambda g, x: g.fold(x, (6, 8), 2),
    "stride=0": lambda g, x: g.fold(x, (6, 8), 2, stride=0),
    "each of the 2 spatial axes": lambda g, x: g.fold(x, (6, 8), (2, 2, 2)),
    "the same shape [N, C, …]": lambda g, x: g.max_unpool(x, g.narrow(x, 0, 0, 1), 2),
}


@pytest.mark.parametrize("message", INVALID_FOLD_CALLS)
def test_invalid_fold_and_unpool_are_rejected(message: str) -> None:
    g = rlx.Graph("no")
    with pytest.raises(RlxError) as caught:
        INVALID_FOLD_CALLS[message](g, g.input("x", (2, 4, 36)))
    assert message in str(caught.value)
