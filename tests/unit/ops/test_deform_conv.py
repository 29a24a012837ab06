"""Deformable convolution, compared with plain convolution at integer offsets."""

from __future__ import annotations

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.core.errors import AttributeRefused, ShapeError
from tests.engines_under_test import reference_outputs
from tests.unit.ops.single_op_runner import build_op, run


def test_integer_offsets_shift_the_image() -> None:
    """The same integer offsets for every tap give a convolution of the shifted
    image.
    """
    rng = np.random.default_rng(2)
    x, w = rng.normal(size=(2, 4, 6, 7)), rng.normal(size=(6, 2, 3, 2))
    attrs = {"strides": (1, 2), "dilations": (2, 1), "pads": (1, 2, 0, 1), "groups": 2}
    out = run("conv", x, w, **attrs).shape[2:]
    for down, across in ((0, 0), (1, -2), (9, 0)):
        offset = np.zeros((2, 12, *out))
        offset[:, 0::2], offset[:, 1::2] = down, across
        shifted = np.zeros((2, 4, 26, 27))
        shifted[:, :, 10 - down : 16 - down, 10 - across : 17 - across] = x
        want = run("conv", shifted[:, :, 10:16, 10:17], w, **attrs)
        if (down, across) != (0, 0):  # beyond the edge lies what was moved there
            unpadded_attrs = {**attrs, "pads": (0, 0, 0, 0)}
            shifted_region = shifted[:, :, 9:16, 8:18]
            want = run("conv", shifted_region, w, **unpadded_attrs)
        got = run("deform_conv", x, w, offset, **attrs)
        np.testing.assert_allclose(got, want, atol=1e-12)


def test_fractional_offsets_interpolate_and_the_mask_scales() -> None:
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
    (result,) = reference_outputs(g, feeds)
    # halfway 1 and 2; a quarter before the first; half below the last row; nowhere
    assert result.ravel().tolist() == [13.0, 11.5, 13.0, 10.0]
    feeds["m"] *= np.float32(0.5)
    assert reference_outputs(g, feeds)[0].ravel().tolist() == [11.5, 10.75, 11.5, 10.0]


def test_shapes_that_do_not_fit_are_refused() -> None:
    x, w = (1, 4, 5, 5), (2, 4, 3, 3)
    with pytest.raises(ShapeError, match=r"expected \[1, 18, 3, 3\]"):
        build_op("deform_conv", x, w, (1, 9, 3, 3))
    with pytest.raises(ShapeError, match=r"expected \[1, 9, 3, 3\]"):
        build_op("deform_conv", x, w, (1, 18, 3, 3), (1, 1, 3, 3))
    with pytest.raises(
        ShapeError, match="offset_groups must divide the number of channels"
    ):
        build_op("deform_conv", x, w, (1, 54, 3, 3), offset_groups=3)
    with pytest.raises(AttributeRefused, match="2 strides, 2 dilations and 4 pads"):
        build_op("deform_conv", x, w, (1, 18, 3, 3), pads=(1, 1))


def test_a_bias_that_is_not_one_number_per_channel_is_refused() -> None:
    g = rlx.Graph("bias")
    x, offset = g.input("x", (1, 1, 3, 4)), g.input("o", (1, 2, 3, 4))
    for channel_count, bias_count in ((1, 8), (8, 1)):
        weight = g.constant(np.ones((channel_count, 1, 1, 1), np.float32))
        bias = g.constant(np.ones(bias_count, np.float32))
        with pytest.raises(ShapeError, match=rf"expected shape \[{channel_count}\]"):
            g.deform_conv2d(x, offset, weight, bias)
