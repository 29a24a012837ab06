"""Deformable convolution, against the plain one where offsets are whole."""

from __future__ import annotations

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.errors import AttributeRefused, ShapeError
from tests.agreement import oracle
from tests.unit.ops.alone import added, run


def test_offsets_of_whole_elements_move_the_image() -> None:
    """The same offsets for every tap: a convolution of the image moved by them."""
    rng = np.random.default_rng(2)
    x, w = rng.normal(size=(2, 4, 6, 7)), rng.normal(size=(6, 2, 3, 2))
    how = {"strides": (1, 2), "dilations": (2, 1), "pads": (1, 2, 0, 1), "groups": 2}
    out = run("conv", x, w, **how).shape[2:]
    for down, across in ((0, 0), (1, -2), (9, 0)):
        offset = np.zeros((2, 12, *out))
        offset[:, 0::2], offset[:, 1::2] = down, across
        moved = np.zeros((2, 4, 26, 27))
        moved[:, :, 10 - down : 16 - down, 10 - across : 17 - across] = x
        want = run("conv", moved[:, :, 10:16, 10:17], w, **how)
        if (down, across) != (0, 0):  # beyond the edge lies what was moved there
            wide = {**how, "pads": (0, 0, 0, 0)}
            first = moved[:, :, 9:16, 8:18]
            want = run("conv", first, w, **wide)
        got = run("deform_conv", x, w, offset, **how)
        np.testing.assert_allclose(got, want, atol=1e-12)


def test_between_elements_it_is_linear_and_a_mask_weighs() -> None:
    g = rlx.Graph("deformed")
    x, offset = g.input("x", (1, 1, 1, 4)), g.input("o", (1, 2, 1, 4))
    mask, weight = g.input("m", (1, 1, 1, 4)), g.constant(np.float32([[[[2]]]]))
    bias = g.constant(np.float32([10]))
    g.set_outputs([g.deform_conv2d(x, offset, weight, bias, mask=mask)])
    feeds = {
        "x": np.float32([[[[1, 2, 3, 4]]]]),
        "o": np.float32([[[[0, 0, 0.5, np.nan]], [[0.5, -1.25, 0, 0]]]]),
        "m": np.float32([[[[1, 1, 1, 1]]]]),
    }
    (made,) = oracle(g, feeds)
    # halfway 1 and 2; a quarter before the first; half below the last row; nowhere
    assert made.ravel().tolist() == [13.0, 11.5, 13.0, 10.0]
    feeds["m"] *= np.float32(0.5)
    assert oracle(g, feeds)[0].ravel().tolist() == [11.5, 10.75, 11.5, 10.0]


def test_shapes_that_do_not_fit_are_refused() -> None:
    x, w = (1, 4, 5, 5), (2, 4, 3, 3)
    with pytest.raises(ShapeError, match=r"they are \[1, 18, 3, 3\]"):
        added("deform_conv", x, w, (1, 9, 3, 3))
    with pytest.raises(ShapeError, match=r"it is \[1, 9, 3, 3\]"):
        added("deform_conv", x, w, (1, 18, 3, 3), (1, 1, 3, 3))
    with pytest.raises(ShapeError, match="both divide the channels"):
        added("deform_conv", x, w, (1, 54, 3, 3), offset_groups=3)
    with pytest.raises(AttributeRefused, match="2, 2 and 4 numbers"):
        added("deform_conv", x, w, (1, 18, 3, 3), pads=(1, 1))
