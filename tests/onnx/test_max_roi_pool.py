"""MaxRoiPool agrees with ONNX Runtime's result on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.core.errors import IndexRefused, ModelError
from tests.onnx.model_factory import single_op_model
from tests.onnx.onnx_runtime import run_onnxruntime

GPU = pytest.mark.requires_wgpu
RNG = np.random.default_rng(17)


def model_and_feeds(
    rng: np.random.Generator,
    shape: Any,
    rois: Any,
    pooled: Any,
    scale: float | None = None,
) -> Any:
    attributes = {} if scale is None else {"spatial_scale": scale}
    model = single_op_model(
        "MaxRoiPool", shape, rois.shape, pooled_shape=pooled, **attributes
    )
    model.opset_import[0].version = 17
    x = rng.standard_normal(shape, dtype=np.float32) - 1
    return model.SerializeToString(), {"a": x, "b": rois}


def random_regions(
    rng: np.random.Generator, count: int, images: int, width: float, height: float
) -> Any:
    """Return regions of which some reach out of the image, or end before they start."""
    rois = rng.uniform(-0.2, 1.2, (count, 5)) * (1, width, height, width, height)
    rois[:, 3:] = np.where(
        rng.random((count, 1)) < 0.8, rois[:, 1:3] + abs(rois[:, 3:]), rois[:, 3:]
    )
    rois[:, 0] = rng.integers(0, images, count)
    return rois.astype(np.float32)


CASES: dict[str, Any] = {
    "bins of two": ((1, 3, 6, 8), random_regions(RNG, 20, 1, 8, 6), [2, 2]),
    "one bin": ((2, 2, 7, 5), random_regions(RNG, 30, 2, 5, 7), [1, 1]),
    "as VGG's": ((2, 4, 14, 19), random_regions(RNG, 50, 2, 300, 220), [7, 7], 1 / 16),
    "more bins than elements": ((1, 1, 3, 2), random_regions(RNG, 20, 1, 2, 3), [5, 4]),
    "an element": ((3, 2, 1, 1), random_regions(RNG, 10, 3, 1, 1), [2, 3]),
    "halves": (
        (1, 1, 6, 6),
        np.array([[0, 0.5, 1.5, 2.5, 3.5], [0, -0.5, -1.5, 4.5, 2.5]], np.float32),
        [2, 2],
    ),
    "no regions": ((1, 2, 4, 4), np.zeros((0, 5), np.float32), [2, 2]),
}


@pytest.mark.parametrize("device", ["cpu", pytest.param("vulkan", marks=GPU)])
@pytest.mark.parametrize("case", CASES)
def test_matches_onnx_runtime(case: str, device: str, rng: np.random.Generator) -> None:
    data, feeds = model_and_feeds(rng, *CASES[case])
    (want,) = run_onnxruntime(data, feeds)
    got = rlx.onnx.load(data).run(feeds, device=device)["y"]
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("shape", "rois", "pooled", "message"),
    [
        ((1, 2, 4, 4), (3, 4), [2, 2], r"regions \[3, 4\]"),
        ((1, 2, 4), (3, 5), [2, 2], r"images \[1, 2, 4\]"),
        ((1, 2, 4, 4), (3, 5), [2], "two sizes"),
        ((1, 2, 4, 4), (3, 5), [0, 2], "two sizes"),
    ],
)
def test_contradicting_shapes_are_refused(
    shape: Any, rois: Any, pooled: Any, message: str, rng: np.random.Generator
) -> None:
    data, feeds = model_and_feeds(rng, shape, np.zeros(rois, np.float32), pooled)
    with pytest.raises(ModelError, match=message):
        rlx.onnx.load(data).run(feeds, device="cpu")


def test_region_of_a_missing_image_is_refused(
    rng: np.random.Generator,
) -> None:
    data, feeds = model_and_feeds(
        rng, (2, 1, 4, 4), np.array([[2, 0, 0, 1, 1]], np.float32), [1, 1]
    )
    with pytest.raises(IndexRefused):
        rlx.onnx.load(data).run(feeds, device="cpu")
