"""Resize by scales that give no whole length, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlxweb.onnx.loading import load
from tests.onnx.made import model, node, value, weights
from tests.onnx.test_saving import runtime

LENGTHS = [(4, 1.7), (4, 0.7), (5, 2.3), (7, 0.6), (3, 0.5), (4, 0.3), (5, 0.2)]
PLACES = [
    "align_corners",
    "half_pixel",
    "pytorch_half_pixel",
    "asymmetric",
    "tf_crop_and_resize",
]


def resizing(n: int, scale: float, place: str, mode: str) -> bytes:
    how: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": place}
    held = {"scales": np.array([1, 1, 1, scale], np.float32)}
    if place == "tf_crop_and_resize":
        held["roi"] = np.array([0, 0, 0, 0.1, 1, 1, 1, 0.9], np.float32)
    operands = ["x", "roi" if "roi" in held else "", "scales"]
    made = model(
        [node("Resize", operands, ["y"], **how)],
        [value("x", (1, 2, 3, n))],
        [value("y", None)],
        weights(**held),
        opsets={"": 19},
    )
    return made.SerializeToString()


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("place", PLACES)
def test_fractional_lengths(place: str, mode: str) -> None:
    for n, scale in LENGTHS:
        x = np.random.default_rng(n).normal(size=(1, 2, 3, n)).astype(np.float32)
        data = resizing(n, scale, place, mode)
        (want,) = runtime(data, {"x": x})
        got = load(data).run({"x": x}, device="cpu")["y"]
        said = f"{n} elements by {scale}"
        np.testing.assert_allclose(got, want, atol=2e-6, rtol=1e-5, err_msg=said)


def test_aligned_corners_are_the_corners() -> None:
    """Aligned corners of a scale are PyTorch's with align_corners=True."""
    x = np.broadcast_to(np.arange(4, dtype=np.float32), (1, 2, 3, 4))
    data = resizing(4, 1.7, "align_corners", "linear")
    got = load(data).run({"x": x}, device="cpu")["y"]
    np.testing.assert_allclose(got[0, 0, 0], [0, 0.6, 1.2, 1.8, 2.4, 3], rtol=1e-6)
