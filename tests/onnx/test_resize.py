"""Compare Resize by fractional scales with ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlxweb.onnx.loading import load
from tests.onnx.model_factory import initializers, make_model, node, value_info
from tests.onnx.onnx_runtime import run_onnxruntime

LENGTHS = [(4, 1.7), (4, 0.7), (5, 2.3), (7, 0.6), (3, 0.5), (4, 0.3), (5, 0.2)]
COORDINATE_MODES = [
    "align_corners",
    "half_pixel",
    "pytorch_half_pixel",
    "asymmetric",
    "tf_crop_and_resize",
]


def resize_model(n: int, scale: float, coordinate_mode: str, mode: str) -> bytes:
    attrs: dict[str, Any] = {
        "mode": mode,
        "coordinate_transformation_mode": coordinate_mode,
    }
    stored_inputs = {"scales": np.array([1, 1, 1, scale], np.float32)}
    if coordinate_mode == "tf_crop_and_resize":
        stored_inputs["roi"] = np.array([0, 0, 0, 0.1, 1, 1, 1, 0.9], np.float32)
    operands = ["x", "roi" if "roi" in stored_inputs else "", "scales"]
    onnx_model = make_model(
        [node("Resize", operands, ["y"], **attrs)],
        [value_info("x", (1, 2, 3, n))],
        [value_info("y", None)],
        initializers(**stored_inputs),
        opsets={"": 19},
    )
    return onnx_model.SerializeToString()


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("coordinate_mode", COORDINATE_MODES)
def test_fractional_lengths(coordinate_mode: str, mode: str) -> None:
    for n, scale in LENGTHS:
        x = np.random.default_rng(n).normal(size=(1, 2, 3, n)).astype(np.float32)
        data = resize_model(n, scale, coordinate_mode, mode)
        (want,) = run_onnxruntime(data, {"x": x})
        got = load(data).run({"x": x}, device="cpu")["y"]
        context = f"{n} elements by {scale}"
        np.testing.assert_allclose(got, want, atol=2e-6, rtol=1e-5, err_msg=context)


def test_align_corners_keeps_corner_values() -> None:
    """Aligned corners with a scale match PyTorch's align_corners=True."""
    x = np.broadcast_to(np.arange(4, dtype=np.float32), (1, 2, 3, 4))
    data = resize_model(4, 1.7, "align_corners", "linear")
    got = load(data).run({"x": x}, device="cpu")["y"]
    np.testing.assert_allclose(got[0, 0, 0], [0, 0.6, 1.2, 1.8, 2.4, 3], rtol=1e-6)
