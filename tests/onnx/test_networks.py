"""Trained networks of others against ONNX Runtime, read from their packages.

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
from tests.unit.examples.packages import folder_of
from tests.unit.examples.sounds import song, voice

PACKAGE = "rapidocr_onnxruntime"
SIZES = {
    "ch_PP-OCRv4_det_infer.onnx": (1, 3, 96, 160),
    "ch_ppocr_mobile_v2.0_cls_infer.onnx": (2, 3, 48, 192),
    "ch_PP-OCRv4_rec_infer.onnx": (1, 3, 48, 128),
}


def network(name: str) -> Path:
    return folder_of(PACKAGE) / "models" / name


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


@pytest.mark.full("ch_PP-OCRv4_det_infer.onnx", "ch_PP-OCRv4_rec_infer.onnx")
@pytest.mark.parametrize("name", SIZES)
def test_it_answers_as_onnx_runtime(name: str) -> None:
    path, x = network(name), image(SIZES[name])
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (want,) = session.run(None, {"x": x})
    with rlx.onnx.load(path) as model:
        (found,) = model.run({"x": x}, device="cpu").values()
    assert found.dtype == want.dtype
    np.testing.assert_allclose(found, want, 1e-3, 2e-5)


@pytest.mark.full
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


@pytest.mark.full("dynamic", "QOperator")
@pytest.mark.parametrize("how", FAR)
def test_quantised_it_answers_as_onnx_runtime(how: str, tmp_path: Path) -> None:
    """A quantised network answers as ONNX Runtime does without optimisations.

    Those put other ops in place of QDQ pairs.
    """
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
    data = folder_of("silero_vad") / "data"
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


# --- sound and EEG --------------------------------------------------------------------


def by_onnx_runtime(path: Path, inputs: dict[str, Any]) -> dict[str, Any]:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


@pytest.mark.full
def test_basic_pitch_hears_what_onnx_runtime_hears() -> None:
    """Rounding counts where it is nearly silent: ONNX Runtime with and without its
    optimisations differs by 4e-4.
    """
    path = folder_of("basic_pitch") / "saved_models" / "icassp_2022" / "nmp.onnx"
    x = song(6.0, 22050)[0][: 3 * 43844].reshape(3, 43844, 1)
    inputs = {"serving_default_input_2:0": x}
    want = by_onnx_runtime(path, inputs)
    with rlx.onnx.load(path) as model:
        found = model.run(inputs, device="cpu")
    assert found.keys() == want.keys()
    for name, one in found.items():
        np.testing.assert_allclose(one, want[name], atol=1e-3)


@pytest.mark.full
def test_iclabel_labels_as_onnx_runtime_does() -> None:
    assets = folder_of("mne_icalabel") / "iclabel" / "network" / "assets"
    rng = np.random.default_rng(1)
    inputs = {
        "topo": rng.uniform(-1, 1, (76, 1, 32, 32)).astype(np.float32),
        "psds": rng.uniform(-1, 1, (76, 1, 1, 100)).astype(np.float32),
        "autocorr": rng.uniform(-1, 1, (76, 1, 1, 100)).astype(np.float32),
    }
    path = assets / "ICLabelNet.onnx"
    (want,) = by_onnx_runtime(path, inputs).values()
    with rlx.onnx.load(path) as model:
        (found,) = model.run(inputs, device="cpu").values()
    np.testing.assert_allclose(found, want, atol=2e-5)


SILERO = "silero_vad_op18_ifless.onnx", "silero_vad_16k_sequence.onnx"


def framed(rate: int) -> Any:
    """Frames of a voice, each after the end of the one before it."""
    frame, before = (512, 64) if rate == 16000 else (256, 32)
    x = voice(3.1, rate)
    x = np.concatenate([np.zeros(before, np.float32), x, np.zeros(-len(x) % frame)])
    view = np.lib.stride_tricks.sliding_window_view(x, before + frame)
    return view[::frame].astype(np.float32)


def frame_by_frame(rows: Any, rate: int) -> Any:
    """Probabilities of speech by ONNX Runtime."""
    path = folder_of("silero_vad") / "data" / SILERO[0]
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    state, made = np.zeros((2, 1, 128), np.float32), []
    for row in rows:
        feeds = {"input": row[None], "state": state, "sr": np.array(rate, np.int64)}
        heard, state = session.run(None, feeds)
        made.append(float(heard[0, 0]))
    return np.array(made)


@pytest.mark.parametrize("rate", [16000, 8000])
def test_silero_hears_what_onnx_runtime_hears(rate: int) -> None:
    """Silero hears what ONNX Runtime hears, frame by frame and many at once."""
    rows = framed(rate)
    want = frame_by_frame(rows, rate)
    assert want.max() > 0.6
    assert want.min() < 0.1
    heard = of_a_stream(rows, rate, device="cpu")
    np.testing.assert_allclose(heard, want, atol=2e-6)
    if rate == 16000:
        np.testing.assert_allclose(of_blocks(rows, 32), want, atol=2e-6)


@pytest.mark.requires_wgpu
def test_the_state_of_silero_stays_on_a_gpu() -> None:
    rows = framed(16000)[:32]
    heard = of_a_stream(rows, 16000, device="vulkan")
    np.testing.assert_allclose(heard, frame_by_frame(rows, 16000), atol=1e-5)


def of_a_stream(rows: Any, rate: int, device: str) -> Any:
    state: Any = np.zeros((2, 1, 128), np.float32)
    sr, made = np.array(rate, np.int64), []
    with rlx.onnx.load(folder_of("silero_vad") / "data" / SILERO[0]) as model:
        for row in rows:
            inputs = {"input": row[None], "state": state, "sr": sr}
            outputs = model.run(inputs, device=device, keep=["stateN"])
            state = outputs["stateN"]
            assert isinstance(state, rlx.DeviceArray)
            made.append(outputs["output"].item())
    return np.array(made)


def of_blocks(rows: Any, block: int) -> Any:
    state: dict[str, Any] = {n: np.zeros((1, 1, 128), np.float32) for n in "hc"}
    made = []
    with rlx.onnx.load(folder_of("silero_vad") / "data" / SILERO[1]) as model:
        for start in range(0, len(rows), block):
            inputs = {"input": rows[start : start + block], **state}
            outputs = model.run(inputs, device="cpu", keep=["hn", "cn"])
            state = {"h": outputs["hn"], "c": outputs["cn"]}
            made.append(outputs["speech_probs"].ravel())
    return np.concatenate(made)
