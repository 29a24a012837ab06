"""Interpolation against PyTorch's, through the method that bears its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import rlxweb as rlx
from rlxweb.errors import RlxError
from tests.ops.test_windows_by_torch import drawn, ours, same

pytestmark = pytest.mark.requires_torch
F = torch.nn.functional

SHAPES = {1: (2, 3, 17), 2: (2, 3, 11, 16), 3: (1, 2, 5, 7, 6)}
LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}
HOW: list[dict[str, Any]] = [
    {"size": 23},
    {"size": 4},
    {"scale_factor": 2.0},
    {"scale_factor": 3},
    {"scale_factor": 1.7},
    {"scale_factor": 0.45},
]


@pytest.mark.parametrize("rank", SHAPES)
@pytest.mark.parametrize("how", HOW, ids=str)
def test_any_number_of_axes(rank: int, how: dict[str, Any]) -> None:
    """Larger and smaller, by a size and by a factor that fits no size."""
    x = drawn(SHAPES[rank])
    given = torch.from_numpy(x)
    ways: list[dict[str, Any]] = [{"mode": "nearest"}, {"mode": "nearest-exact"}]
    ways += [{"mode": LINEAR[rank], "align_corners": flag} for flag in (False, True)]
    for way in ways:
        got = ours(lambda g, t, way=way: g.interpolate(t, **how, **way), x)
        same(got, F.interpolate(given, **how, **way))


@pytest.mark.parametrize("how", HOW, ids=str)
@pytest.mark.parametrize("antialias", [False, True])
def test_cubic_and_smoothed(how: dict[str, Any], antialias: bool) -> None:
    x = drawn(SHAPES[2])
    for mode in ("bilinear", "bicubic"):
        way = {"mode": mode, "antialias": antialias, **how}
        got = ours(lambda g, t, way=way: g.interpolate(t, **way), x)
        same(got, F.interpolate(torch.from_numpy(x), **way))


@pytest.mark.parametrize("factor", [1.0, 1.1, 1.3, 2.0, 2.1, 2.4])
@pytest.mark.parametrize("rank", SHAPES)
def test_factors_that_leave_a_length_or_double_it(rank: int, factor: float) -> None:
    """PyTorch copies in some modes, takes each element twice in one, else follows."""
    modes = ["nearest", "nearest-exact", LINEAR[rank]]
    modes += ["bicubic"] if rank == 2 else []
    for n in (2, 3, 4, 7):
        x = drawn((1, 2, n, 3, 4)[: rank + 2])
        for mode in modes:
            smooth = [False, True] if rank == 2 and "nearest" not in mode else [False]
            for antialias in smooth:
                way = {"mode": mode, "antialias": antialias, "scale_factor": factor}
                got = ours(lambda g, t, way=way: g.interpolate(t, **way), x)
                same(got, F.interpolate(torch.from_numpy(x), **way))


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_places_of_a_grid(mode: str, padding: str, align_corners: bool) -> None:
    """Inside and far out."""
    x, grid = drawn((2, 3, 7, 6)), drawn((2, 5, 8, 2), 1) * 1.5
    way = {"mode": mode, "padding_mode": padding, "align_corners": align_corners}
    got = ours(lambda g, *t: g.grid_sample(*t, **way), x, grid)
    same(got, F.grid_sample(torch.from_numpy(x), torch.from_numpy(grid), **way))
    if mode != "bicubic":
        x, grid = drawn((1, 2, 4, 5, 6)), drawn((1, 3, 2, 4, 3), 1) * 1.5
        got = ours(lambda g, *t: g.grid_sample(*t, **way), x, grid)
        same(got, F.grid_sample(torch.from_numpy(x), torch.from_numpy(grid), **way))


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("size", [(2, 3, 5, 4), (2, 1, 3, 1, 4)], ids=str)
def test_grids_of_affine_maps(size: tuple[int, ...], align_corners: bool) -> None:
    if align_corners:  # PyTorch warns of axes of one element
        size = tuple(max(2, n) for n in size)
    rank = len(size) - 2
    theta = drawn((2, rank, rank + 1))
    got = ours(lambda g, t: g.affine_grid(t, size, align_corners), theta)
    same(got, F.affine_grid(torch.from_numpy(theta), size, align_corners))


REFUSED: dict[str, Callable[[Any, Any], Any]] = {
    "mode='cubic'": lambda g, x: g.interpolate(x, 3, mode="cubic"),
    "size=None, scale_factor=None": lambda g, x: g.interpolate(x),
    "size=3, scale_factor=2.0": lambda g, x: g.interpolate(x, 3, 2.0),
    "beside a nearest mode": lambda g, x: g.interpolate(x, 3, antialias=True),
    "one number, or one for each of 2": lambda g, x: g.interpolate(x, (3, 3, 3)),
    "factors are numbers, > 0 and finite": lambda g, x: g.interpolate(
        x, scale_factor=float("nan")
    ),
    "a size must be an integer": lambda g, x: g.interpolate(x, (2, 2.5)),
    "size=-2, scale=None": lambda g, x: g.interpolate(x, -2),
    "axis 4 is outside rank 4": lambda g, x: g.apply("resize", x, axis=4, size=2),
    "a grid each": lambda g, x: g.grid_sample(x, g.input("g", (2, 3, 3, 2))),
    "one number for each axis": lambda g, x: g.grid_sample(x, x),
    "attribute padding='mirror'": lambda g, x: g.grid_sample(
        x, g.input("g", (1, 3, 3, 2)), padding_mode="mirror"
    ),
    "places in": lambda g, x: g.grid_sample(
        g.input("y", (1, 1, 1 << 16, 1 << 15)), g.input("g", (1, 3, 3, 2))
    ),
    r"affine_grid of \[": lambda g, x: g.affine_grid(x, (1, 2, 3, 3)),
    "got -3": lambda g, x: g.affine_grid(x[:, :, :2, :3], (1, 2, -3, 3)),
    "cast the maps": lambda g, x: g.affine_grid(
        g.input("maps", (1, 2, 3), "i32"), (1, 2, 3, 3)
    ),
    "the value 3.5 among i32 elements": lambda g, x: g.apply(
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


@pytest.mark.parametrize("said", REFUSED)
def test_what_makes_no_sense_is_refused(said: str) -> None:
    g = rlx.Graph("bad")
    with pytest.raises(RlxError, match=said):
        REFUSED[said](g, g.input("x", (1, 2, 5, 6)))
