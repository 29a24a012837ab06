"""Arguments that interpolation and sampling refuse, and how they say it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import rlxweb as rlx
from rlxweb.core.errors import RlxError

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
