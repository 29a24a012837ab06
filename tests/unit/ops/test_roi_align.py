"""RoiAlign: the reference against ONNX's definition, sample by sample, and its
refusals.

Against other programs: tests/onnx, whose node cases and runtime have the op.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from rlxweb.core.errors import AttributeRefused, IndexRefused, ShapeError
from tests.unit.ops.single_op_runner import build_op, run


def weighted_neighbours(image: Any, y: float, x: float) -> list[float]:
    """Return the four elements around a position, times their weights."""
    rows, columns = image.shape
    if not (-1 <= y <= rows and -1 <= x <= columns):
        return [0.0] * 4
    y, x = (min(max(v, 0.0), n - 1.0) for v, n in ((y, rows), (x, columns)))
    values = []
    for a, wy in ((math.floor(y), 1 - y % 1), (math.ceil(y), y % 1)):
        for b, wx in ((math.floor(x), 1 - x % 1), (math.ceil(x), x % 1)):
            values.append(wy * wx * image[a, b])
    return values


def pool_region(image: Any, roi: Any, size: Any, attrs: dict[str, Any]) -> Any:
    shift = 0.5 if attrs["aligned"] else 0.0
    x1, y1, x2, y2 = (v * attrs["scale"] - shift for v in roi.tolist())
    sides = [y2 - y1, x2 - x1]
    if not attrs["aligned"]:
        sides = [max(s, 1.0) for s in sides]
    bins = [s / n for s, n in zip(sides, size, strict=True)]
    counts = [attrs["sampling"] or max(math.ceil(b), 0) for b in bins]
    out = np.zeros(size)
    for p, q in np.ndindex(size):
        samples = [
            weighted_neighbours(
                image,
                y1 + p * bins[0] + (i + 0.5) * bins[0] / counts[0],
                x1 + q * bins[1] + (j + 0.5) * bins[1] / counts[1],
            )
            for i in range(counts[0])
            for j in range(counts[1])
        ]
        if samples:
            sums = [sum(s) for s in samples]
            mean = sum(sums) / len(samples)
            out[p, q] = mean if attrs["mode"] == "avg" else np.max(samples)
    return out


@pytest.mark.parametrize("sampling", [0, 1, 3])
@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("mode", ["avg", "max"])
def test_bins_pool_their_samples(sampling: int, aligned: bool, mode: str) -> None:
    """Regions lie within the image, across its edge, reversed, far larger and far
    off.
    """
    rng = np.random.default_rng(4)
    x = rng.normal(size=(2, 2, 5, 7))
    rois = rng.uniform(-3, 16, (9, 4))
    rois[5], rois[6] = (-40, -60, 80, 70), (50, 60, 70, 65)
    rois[7], rois[8] = (-90, -90, -80, -80), (6, 6, 2, 1)
    images = rng.integers(0, 2, 9).astype(np.int32)
    size = (3, 2)
    attrs = {"sampling": sampling, "aligned": aligned, "mode": mode, "scale": 0.5}
    got = run("roi_align", x, rois, images, size=size, **attrs)
    for r, c in np.ndindex(got.shape[:2]):
        want = pool_region(x[images[r], c], rois[r], size, attrs)
        np.testing.assert_allclose(got[r, c], want, rtol=1e-9, atol=1e-9)


def test_regions_of_no_image_are_refused() -> None:
    x, rois = np.zeros((2, 1, 3, 3), np.float32), np.zeros((2, 4), np.float32)
    with pytest.raises(IndexRefused, match="index 2 at position"):
        run("roi_align", x, rois, np.int32([0, 2]), size=(1, 1))
    with pytest.raises(ShapeError, match="one image index for each region"):
        build_op("roi_align", (2, 1, 3, 3), (2, 5), ((2,), "i32"), size=(1, 1))
    with pytest.raises(AttributeRefused, match="two sizes of at least 1"):
        build_op("roi_align", (2, 1, 3, 3), (2, 4), ((2,), "i32"), size=(0, 1))
