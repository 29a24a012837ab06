"""Third-party trained networks compared with ONNX Runtime, read from their packages.

The default tier takes the smallest of each kind.

The three of RapidOCR (PaddleOCR's): a detector with transposed convolutions, a
classifier of few channels, and a recogniser with attention. Of sound and EEG: Basic
Pitch, Silero VAD, whose state goes from run to run, and ICLabelNet.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnxruntime import quantization

import rlxweb as rlx
from tests.onnx.onnx_runtime import open_session, session_options
from tests.unit.examples.installed_model_packages import package_folder
from tests.unit.examples.synthetic_audio import synthesize_song, synthesize_voice

PACKAGE = "rapidocr_onnxruntime"
INPUT_SHAPES = {
    "ch_PP-OCRv4_det_infer.onnx": (1, 3, 96, 160),
    "ch_ppocr_mobile_v2.0_cls_infer.onnx": (2, 3, 48, 192),
    "ch_PP-OCRv4_rec_infer.onnx": (1, 3, 48, 128),
}


def network_path(name: str) -> Path:
    return package_folder(PACKAGE) / "models" / name


def synthetic_image(shape: tuple[int, ...]) -> np.ndarray:
    """Return dark strokes on light paper, with values about -1 to 1."""
    rng = np.random.default_rng(3)
    pixels = np.ones(shape, np.float32)
    for _ in range(24):
        top, left = rng.integers(0, shape[2] - 8), rng.integers(0, shape[3] - 14)
        pixels[
            ..., top : top + rng.integers(2, 8), left : left + rng.integers(2, 14)
        ] = -1
    return pixels + rng.normal(0, 0.05, shape).astype(np.float32)


@pytest.mark.full("ch_PP-OCRv4_det_infer.onnx", "ch_PP-OCRv4_rec_infer.onnx")
@pytest.mark.parametrize("name", INPUT_SHAPES)
def test_network_matches_onnx_runtime(name: str) -> None:
    path, x = network_path(name), synthetic_image(INPUT_SHAPES[name])
    session = open_session(path)
    (want,) = session.run(None, {"x": x})
    with rlx.onnx.load(path) as model:
        (got,) = model.run({"x": x}, device="cpu").values()
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got, want, 1e-3, 2e-5)


@pytest.mark.full
@pytest.mark.requires_wgpu
def test_network_matches_the_cpu_on_a_gpu() -> None:
    name = "ch_ppocr_mobile_v2.0_cls_infer.onnx"
    x = synthetic_image(INPUT_SHAPES[name])
    with rlx.onnx.load(network_path(name)) as model:
        (want,) = model.run({"x": x}, device="cpu").values()
        (got,) = model.run({"x": x}, device="vulkan", adapter="llvmpipe").values()
    np.testing.assert_allclose(got, want, 1e-3, 1e-5)


class CalibrationImages(quantization.CalibrationDataReader):
    """Reader of the images from which the quantisation ranges are calibrated."""

    def __init__(self, *images: np.ndarray) -> None:
        self.remaining: Iterator[Any] = iter({"x": pixels} for pixels in images)

    def get_next(self) -> Any:
        return next(self.remaining, None)


MAX_DIFFERENCES = {"dynamic": 0.05, "QDQ": 0.02, "QOperator": 0.02}
"""Largest difference of an output whose values were rounded to the other side."""


def write_quantized(method: str, output_path: Path, x: np.ndarray) -> None:
    """Write the classifier as quantised by ONNX Runtime."""
    path = network_path("ch_ppocr_mobile_v2.0_cls_infer.onnx")
    logging.disable(logging.WARNING)  # it advises what was not asked for
    try:
        if method == "dynamic":
            quantization.quantize_dynamic(path, output_path)
        else:
            kind = quantization.QuantFormat[method]
            quantization.quantize_static(
                path, output_path, CalibrationImages(x), quant_format=kind
            )
    finally:
        logging.disable(logging.NOTSET)


def test_optimised_network_matches_onnx_runtime(tmp_path: Path) -> None:
    name = "ch_ppocr_mobile_v2.0_cls_infer.onnx"
    path, x = tmp_path / "optimised.onnx", synthetic_image(INPUT_SHAPES[name])
    options = session_options()
    level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.graph_optimization_level, options.log_severity_level = level, 4
    options.optimized_model_filepath = str(path)
    session = open_session(network_path(name), options)
    (want,) = session.run(None, {"x": x})
    with rlx.onnx.load(path) as model:
        operators = {(n.domain, n.op) for n in model.record.graph.nodes}
        assert ("com.microsoft", "FusedConv") in operators
        (got,) = model.run({"x": x}, device="cpu").values()
    np.testing.assert_allclose(got, want, 1e-3, 2e-5)


@pytest.mark.full("dynamic", "QOperator")
@pytest.mark.parametrize("method", MAX_DIFFERENCES)
def test_quantised_network_matches_onnx_runtime(method: str, tmp_path: Path) -> None:
    """A quantised network gives the results of ONNX Runtime without optimisations.

    Those put other ops in place of QDQ pairs.
    """
    x, path = synthetic_image((2, 3, 48, 96)), tmp_path / "quantised.onnx"
    write_quantized(method, path, x)
    options = session_options()
    level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.graph_optimization_level, options.log_severity_level = level, 4
    session = open_session(path, options)
    (want,) = session.run(None, {"x": x})
    with rlx.onnx.load(path) as model:
        (got,) = model.run({"x": x}, device="cpu").values()
    np.testing.assert_allclose(got, want, 0, MAX_DIFFERENCES[method])


def test_quantised_lstm_matches_onnx_runtime(tmp_path: Path) -> None:
    """Silero's network for one recording, whose LSTM becomes DynamicQuantizeLSTM,
    matches ONNX Runtime.
    """
    data = package_folder("silero_vad") / "data"
    path, rng = tmp_path / "quantised.onnx", np.random.default_rng(1)
    logging.disable(logging.WARNING)
    try:
        quantization.quantize_dynamic(data / "silero_vad_16k_sequence.onnx", path)
    finally:
        logging.disable(logging.NOTSET)
    shapes = {"input": (12, 576), "h": (1, 1, 128), "c": (1, 1, 128)}
    feeds = {k: rng.normal(0, 0.1, s).astype(np.float32) for k, s in shapes.items()}
    session = open_session(path)
    want = session.run(None, feeds)
    with rlx.onnx.load(path) as model:
        assert "DynamicQuantizeLSTM" in {n.op for n in model.record.graph.nodes}
        got = model.run(feeds, device="cpu")
    for ours, theirs in zip(got.values(), want, strict=True):
        np.testing.assert_allclose(ours, theirs, 1e-4, 1e-5)


# --- sound and EEG --------------------------------------------------------------------


def run_onnx_runtime(path: Path, inputs: dict[str, Any]) -> dict[str, Any]:
    session = open_session(path)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


@pytest.mark.full
def test_basic_pitch_matches_onnx_runtime() -> None:
    """Rounding counts where it is nearly silent: ONNX Runtime with and without its
    optimisations differs by 4e-4.
    """
    path = package_folder("basic_pitch") / "saved_models" / "icassp_2022" / "nmp.onnx"
    x = synthesize_song(6.0, 22050)[0][: 3 * 43844].reshape(3, 43844, 1)
    inputs = {"serving_default_input_2:0": x}
    want = run_onnx_runtime(path, inputs)
    with rlx.onnx.load(path) as model:
        got = model.run(inputs, device="cpu")
    assert got.keys() == want.keys()
    for name, output in got.items():
        np.testing.assert_allclose(output, want[name], atol=1e-3)


@pytest.mark.full
def test_iclabel_matches_onnx_runtime() -> None:
    assets = package_folder("mne_icalabel") / "iclabel" / "network" / "assets"
    rng = np.random.default_rng(1)
    inputs = {
        "topo": rng.uniform(-1, 1, (76, 1, 32, 32)).astype(np.float32),
        "psds": rng.uniform(-1, 1, (76, 1, 1, 100)).astype(np.float32),
        "autocorr": rng.uniform(-1, 1, (76, 1, 1, 100)).astype(np.float32),
    }
    path = assets / "ICLabelNet.onnx"
    (want,) = run_onnx_runtime(path, inputs).values()
    with rlx.onnx.load(path) as model:
        (got,) = model.run(inputs, device="cpu").values()
    np.testing.assert_allclose(got, want, atol=2e-5)


SILERO_FILES = "silero_vad_op18_ifless.onnx", "silero_vad_16k_sequence.onnx"


def voice_frames(rate: int) -> Any:
    """Return frames of a voice, each preceded by the end of the one before it."""
    frame, overlap = (512, 64) if rate == 16000 else (256, 32)
    x = synthesize_voice(3.1, rate)
    x = np.concatenate([np.zeros(overlap, np.float32), x, np.zeros(-len(x) % frame)])
    view = np.lib.stride_tricks.sliding_window_view(x, overlap + frame)
    return view[::frame].astype(np.float32)


def speech_probabilities(rows: Any, rate: int) -> Any:
    """Return ONNX Runtime's probabilities of speech, frame by frame."""
    path = package_folder("silero_vad") / "data" / SILERO_FILES[0]
    session = open_session(path)
    state, probabilities = np.zeros((2, 1, 128), np.float32), []
    for row in rows:
        feeds = {"input": row[None], "state": state, "sr": np.array(rate, np.int64)}
        output, state = session.run(None, feeds)
        probabilities.append(float(output[0, 0]))
    return np.array(probabilities)


@pytest.mark.parametrize("rate", [16000, 8000])
def test_silero_matches_onnx_runtime(rate: int) -> None:
    """Silero matches ONNX Runtime, frame by frame and in blocks."""
    rows = voice_frames(rate)
    want = speech_probabilities(rows, rate)
    assert want.max() > 0.6
    assert want.min() < 0.1
    got = run_streaming(rows, rate, device="cpu")
    np.testing.assert_allclose(got, want, atol=2e-6)
    if rate == 16000:
        np.testing.assert_allclose(run_in_blocks(rows, 32), want, atol=2e-6)


@pytest.mark.requires_wgpu
def test_silero_state_stays_on_a_gpu() -> None:
    rows = voice_frames(16000)[:32]
    got = run_streaming(rows, 16000, device="vulkan")
    np.testing.assert_allclose(got, speech_probabilities(rows, 16000), atol=1e-5)


def run_streaming(rows: Any, rate: int, device: str) -> Any:
    state: Any = np.zeros((2, 1, 128), np.float32)
    sr, probabilities = np.array(rate, np.int64), []
    with rlx.onnx.load(
        package_folder("silero_vad") / "data" / SILERO_FILES[0]
    ) as model:
        for row in rows:
            inputs = {"input": row[None], "state": state, "sr": sr}
            outputs = model.run(inputs, device=device, keep=["stateN"])
            state = outputs["stateN"]
            assert isinstance(state, rlx.DeviceArray)
            probabilities.append(outputs["output"].item())
    return np.array(probabilities)


def run_in_blocks(rows: Any, block: int) -> Any:
    state: dict[str, Any] = {n: np.zeros((1, 1, 128), np.float32) for n in "hc"}
    probabilities = []
    with rlx.onnx.load(
        package_folder("silero_vad") / "data" / SILERO_FILES[1]
    ) as model:
        for start in range(0, len(rows), block):
            inputs = {"input": rows[start : start + block], **state}
            outputs = model.run(inputs, device="cpu", keep=["hn", "cn"])
            state = {"h": outputs["hn"], "c": outputs["cn"]}
            probabilities.append(outputs["speech_probs"].ravel())
    return np.concatenate(probabilities)
