"""Compare interpolation with PyTorch's, through the methods of the same names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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

SHAPES = {1: (2, 3, 17), 2: (2, 3, 11, 16), 3: (1, 2, 5, 7, 6)}
LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}
SIZE_OPTIONS: list[dict[str, Any]] = [
    {"size": 23},
    {"size": 4},
    {"scale_factor": 2.0},
    {"scale_factor": 3},
    {"scale_factor": 1.7},
    {"scale_factor": 0.45},
]


@pytest.mark.parametrize("rank", SHAPES)
@pytest.mark.parametrize("size_options", SIZE_OPTIONS, ids=str)
def test_resize_over_one_to_three_axes(rank: int, size_options: dict[str, Any]) -> None:
    """Larger and smaller results, by a size and by a factor that gives no whole
    size.
    """
    x = random_array(SHAPES[rank])
    torch_input = torch.from_numpy(x)
    mode_options: list[dict[str, Any]] = [
        {"mode": "nearest"},
        {"mode": "nearest-exact"},
    ]
    mode_options += [
        {"mode": LINEAR[rank], "align_corners": flag} for flag in (False, True)
    ]
    for options in mode_options:
        got = run_on_cpu(
            lambda g, t, options=options: g.interpolate(t, **size_options, **options), x
        )
        assert_close_to_torch(
            got, F.interpolate(torch_input, **size_options, **options)
        )


@pytest.mark.parametrize("size_options", SIZE_OPTIONS, ids=str)
@pytest.mark.parametrize("antialias", [False, True])
def test_cubic_and_antialiased(size_options: dict[str, Any], antialias: bool) -> None:
    x = random_array(SHAPES[2])
    for mode in ("bilinear", "bicubic"):
        options = {"mode": mode, "antialias": antialias, **size_options}
        got = run_on_cpu(lambda g, t, options=options: g.interpolate(t, **options), x)
        assert_close_to_torch(got, F.interpolate(torch.from_numpy(x), **options))


@pytest.mark.parametrize("factor", [1.0, 1.1, 1.3, 2.0, 2.1, 2.4])
@pytest.mark.parametrize("rank", SHAPES)
def test_factors_that_keep_or_double_a_length(rank: int, factor: float) -> None:
    """PyTorch copies in some modes, takes each element twice in one, else
    interpolates.
    """
    modes = ["nearest", "nearest-exact", LINEAR[rank]]
    modes += ["bicubic"] if rank == 2 else []
    for n in (2, 3, 4, 7):
        x = random_array((1, 2, n, 3, 4)[: rank + 2])
        for mode in modes:
            antialias_flags = (
                [False, True] if rank == 2 and "nearest" not in mode else [False]
            )
            for antialias in antialias_flags:
                options = {"mode": mode, "antialias": antialias, "scale_factor": factor}
                got = run_on_cpu(
                    lambda g, t, options=options: g.interpolate(t, **options), x
                )
                assert_close_to_torch(
                    got, F.interpolate(torch.from_numpy(x), **options)
                )


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_grid_sample(mode: str, padding: str, align_corners: bool) -> None:
    """Positions inside and far outside the image."""
    x, grid = random_array((2, 3, 7, 6)), random_array((2, 5, 8, 2), 1) * 1.5
    options = {"mode": mode, "padding_mode": padding, "align_corners": align_corners}
    got = run_on_cpu(lambda g, *t: g.grid_sample(*t, **options), x, grid)
    assert_close_to_torch(
        got, F.grid_sample(torch.from_numpy(x), torch.from_numpy(grid), **options)
    )
    if mode != "bicubic":
        x, grid = random_array((1, 2, 4, 5, 6)), random_array((1, 3, 2, 4, 3), 1) * 1.5
        got = run_on_cpu(lambda g, *t: g.grid_sample(*t, **options), x, grid)
        assert_close_to_torch(
            got, F.grid_sample(torch.from_numpy(x), torch.from_numpy(grid), **options)
        )


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("size", [(2, 3, 5, 4), (2, 1, 3, 1, 4)], ids=str)
def test_affine_grid(size: tuple[int, ...], align_corners: bool) -> None:
    if align_corners:  # PyTorch warns of axes of one element
        size = tuple(max(2, n) for n in size)
    rank = len(size) - 2
    theta = random_array((2, rank, rank + 1))
    got = run_on_cpu(lambda g, t: g.affine_grid(t, size, align_corners), theta)
    assert_close_to_torch(
        got, F.affine_grid(torch.from_numpy(theta), size, align_corners)
    )


INVALID_CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "mode='cubic'": lambda g, x: g.interpolate(x, 3, mode="cubic"),
    "size=None, scale_factor=None": lambda g, x: g.interpolate(x),
    "size=3, scale_factor=2.0": lambda g, x: g.interpolate(x, 3, 2.0),
    "mode='nearest' does not support antialias": lambda g, x: g.interpolate(
        x, 3, antialias=True
    ),
    "one number, or one for each of the 2": lambda g, x: g.interpolate(x, (3, 3, 3)),
    "scale factors must be finite numbers > 0": lambda g, x: g.interpolate(
        x, scale_factor=float("nan")
    ),
    "a size must be an integer": lambda g, x: g.interpolate(x, (2, 2.5)),
    "size=-2, scale=None": lambda g, x: g.interpolate(x, -2),
    "axis 4 is out of range for rank 4": lambda g, x: g.apply(
        "resize", x, axis=4, size=2
    ),
    "expected one grid per array": lambda g, x: g.grid_sample(
        x, g.input("g", (2, 3, 3, 2))
    ),
    "one coordinate per spatial axis": lambda g, x: g.grid_sample(x, x),
    "attribute padding='mirror'": lambda g, x: g.grid_sample(
        x, g.input("g", (1, 3, 3, 2)), padding_mode="mirror"
    ),
    "have 2,147,483,648 positions in total": lambda g, x: g.grid_sample(
        g.input("y", (1, 1, 1 << 16, 1 << 15)), g.input("g", (1, 3, 3, 2))
    ),
    r"affine_grid of theta \[": lambda g, x: g.affine_grid(x, (1, 2, 3, 3)),
    "got -3": lambda g, x: g.affine_grid(x[:, :, :2, :3], (1, 2, -3, 3)),
    "cast theta": lambda g, x: g.affine_grid(
        g.input("maps", (1, 2, 3), "i32"), (1, 2, 3, 3)
    ),
    "the value 3.5 does not fit i32": lambda g, x: g.apply(
        "resize",
        g.cast(x, "i32"),
        axis=2,
        size=2,
        place="tf_crop_and_resize",
        extrapolation=3.5,
    ),
    "roi_end=nan": lambda g, x: g.apply(
        "resize", x, axis=2, size=2, roi_end=float("nan")
    ),
    "attribute place='corner'": lambda g, x: g.apply(
        "resize", x, axis=2, size=2, place="corner"
    ),
}


@pytest.mark.parametrize("message", INVALID_CALLS)
def test_invalid_arguments_are_rejected(message: str) -> None:
    g = rlx.Graph("bad")
    with pytest.raises(RlxError, match=message):
        INVALID_CALLS[message](g, g.input("x", (1, 2, 5, 6)))
