"""Silero VAD: what the package hears with ONNX Runtime, and the same speech of it."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime
import pytest

from rlxweb.errors import NotFinite, RlxError, ShapeError, UsageError
from rlxweb.io import write_recording
from rlxweb.models.resampling import Resampler, Running
from rlxweb.models.silero import PACKAGE, SEQUENCE, STREAMING, VoiceActivity
from rlxweb.models.speech import SpeechSettings, Turns, segments_of
from tests.unit.models.made_sound import voice
from tests.unit.models.theirs import folder_of, loaded

FOLDER = folder_of(PACKAGE)


@pytest.fixture(scope="module")
def theirs() -> Any:
    """utils_vad of the package; torch stands for what its iterator asks of it."""
    torch = {
        "device": str,
        "Tensor": np.asarray,
        "is_tensor": lambda x: True,
        "no_grad": lambda: lambda own: own,
    }
    stubs = {"torch": torch}
    (module,) = loaded(PACKAGE, ("utils_vad",), stubs)
    return module


@pytest.fixture(scope="module")
def model() -> Iterator[VoiceActivity]:
    with VoiceActivity.load() as made:
        yield made


ASKED: tuple[dict[str, Any], ...] = (
    {},
    {"max_speech_duration_s": 1.5, "min_silence_duration_ms": 400},
    {
        "max_speech_duration_s": 1.5,
        "min_silence_duration_ms": 400,
        "use_max_poss_sil_at_max_speech": False,
        "min_silence_at_max_speech": 40,
    },
    {"threshold": 0.7, "neg_threshold": 0.2, "speech_pad_ms": 200},
    {"threshold": 0.1, "min_speech_duration_ms": 0, "min_silence_duration_ms": 0},
    {"max_speech_duration_s": 0.4, "speech_pad_ms": 0, "min_silence_at_max_speech": 0},
)


@pytest.mark.parametrize("asked", ASKED, ids=range(len(ASKED)))
@pytest.mark.parametrize("rate", [16000, 8000])
def test_speech_is_that_of_the_package(
    theirs: Any, asked: dict[str, Any], rate: int
) -> None:
    """Of probabilities that wander through all there is, many times."""
    settings = SpeechSettings(**asked).checked("test")
    frame = 512 if rate == 16000 else 256
    total = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        wandering = np.convolve(rng.random(700), np.ones(seed % 5 + 1) / (seed % 5 + 1))
        heard = np.clip((wandering - 0.5) * 1.4 + 0.5, 0, 1).tolist()
        n_samples = len(heard) * frame - 100 * (seed % 3)
        found = segments_of(heard, n_samples, rate, frame, settings)
        want = theirs.get_speech_timestamps_from_probs(
            heard, rate, audio_length_samples=n_samples, **asdict(settings)
        )
        assert found == [(one["start"], one["end"]) for one in want]
        total += len(found)
    assert total > 20


def test_a_stream_tells_what_the_packages_iterator_tells(theirs: Any) -> None:
    heard = np.clip(np.random.default_rng(2).random(900) * 1.3 - 0.1, 0, 1).tolist()
    heard = np.repeat(heard, 3).tolist()

    class Told:
        def __init__(self) -> None:
            self.at = iter(heard)

        def reset_states(self) -> None:
            pass

        def __call__(self, x: Any, rate: int) -> Any:
            return SimpleNamespace(item=lambda: next(self.at))

    frame = type("X", (), {"dim": lambda s: 1, "__len__": lambda s: 512})()
    their = theirs.VADIterator(Told())
    own = Turns(SpeechSettings(), 16000, 512)
    events = 0
    for probability in heard:
        want, found = their(frame), own.step(probability)
        if want is None:
            assert found.event == ""
            continue
        ((event, at),) = want.items()
        assert (found.event, round(found.at * 16000)) == (event, at)
        events += 1
    assert events > 50


def _by_onnx_runtime(x: Any, rate: int) -> Any:
    """Probabilities of the package's streaming model, frame by frame."""
    session = onnxruntime.InferenceSession(
        FOLDER / STREAMING, providers=["CPUExecutionProvider"]
    )
    frame, before = (512, 64) if rate == 16000 else (256, 32)
    x = np.concatenate([np.zeros(before), x, np.zeros(-len(x) % frame)])
    state, made = np.zeros((2, 1, 128), np.float32), []
    for at in range(0, len(x) - before, frame):
        row = x[None, at : at + before + frame].astype(np.float32)
        feeds = {"input": row, "state": state, "sr": np.array(rate, np.int64)}
        heard, state = session.run(None, feeds)
        made.append(float(heard[0, 0]))
    return np.array(made)


@pytest.mark.parametrize("rate", [16000, 8000])
def test_what_is_heard_is_what_onnx_runtime_hears(
    model: VoiceActivity, rate: int
) -> None:
    """Many frames at once, one by one, and pushed in pieces of any length."""
    x = voice(3.1, rate)
    want = _by_onnx_runtime(x, rate)
    assert want.max() > 0.6
    assert want.min() < 0.1
    found = model.speech(x, rate, device="cpu")
    np.testing.assert_allclose(found.probabilities, want, atol=2e-6)
    assert len(found) >= 2
    assert 0 < found.spoken < found.seconds
    one = VoiceActivity.load(FOLDER / STREAMING)
    np.testing.assert_allclose(
        one.speech(x, rate, device="cpu").probabilities, want, atol=2e-6
    )
    cuts = [0, 3, 700, 701, 5000, 20000, len(x)]
    with model.stream(rate, device="cpu") as stream:
        for _ in range(2):
            pieces = [x[a:b] for a, b in itertools.pairwise(cuts)]
            frames = [f for piece in pieces for f in stream.push(piece)]
            told = [f.probability for f in frames]
            np.testing.assert_allclose(told, want[: len(told)], atol=2e-6)
            assert len(want) - len(told) <= 1
            events = [f.event for f in frames if f.event]
            assert events[:2] == ["start", "end"]
            stream.reset()
    with pytest.raises(RlxError, match="closed"):
        stream.push(x)
    assert PACKAGE not in sys.modules


@pytest.mark.requires_wgpu
def test_the_state_stays_on_a_gpu(model: VoiceActivity) -> None:
    x = voice(1.0)
    want = _by_onnx_runtime(x, 16000)
    with model.stream(device="vulkan") as stream:
        told = [frame.probability for frame in stream.push(x)]
    np.testing.assert_allclose(told, want[: len(told)], atol=1e-5)


def test_a_file_of_another_rate_is_heard_alike(
    model: VoiceActivity, tmp_path: Path
) -> None:
    """By the sequence model alone as well; and a stream at a microphone's rate."""
    x = voice(3.0, 48000)
    path = str(tmp_path / "voice.wav")
    write_recording(path, np.stack([x, x]), fs=48000)
    heard: list[tuple[float, float]] = []
    found = model.speech(path, device="cpu", tell=lambda *told: heard.append(told))
    assert heard[-1] == (3.0, 3.0)
    want = model.speech(voice(3.0), 16000, device="cpu")
    assert len(found) == len(want)
    for one, other in zip(found, want, strict=True):
        np.testing.assert_allclose(one, other, atol=0.1)
    alone = VoiceActivity.load((FOLDER / SEQUENCE).read_bytes())
    np.testing.assert_array_equal(
        alone.speech(path, device="cpu").probabilities, found.probabilities
    )
    with model.stream(48000, device="cpu") as stream:
        frames = stream.push(x)
    told = [frame.probability for frame in frames]
    np.testing.assert_allclose(told, found.probabilities[: len(told)], atol=0.05)
    assert len(found.probabilities) - len(told) <= 2


def test_a_running_sound_is_resampled_as_a_whole_one() -> None:
    x = np.random.default_rng(3).standard_normal(9000)
    for fs, rate in ((44100.0, 16000.0), (8000.0, 16000.0), (44099.5, 16000.0)):
        running, own = Running(fs, rate), Resampler(fs, rate)
        cuts = [0, 1, 2, 50, 51, 4000, 9000]
        made = [running.push(x[a:b]) for a, b in itertools.pairwise(cuts)]
        found = np.concatenate(made)
        assert own.length(len(x)) - len(found) <= own.taps * rate / fs
        first, last = own.needs(0, len(found))
        whole = np.pad(x, (-first, max(0, last - len(x))))[: last - first]
        np.testing.assert_allclose(found, own.made(whole, 0, len(found)), atol=2e-6)


def test_what_cannot_be_heard_is_told(model: VoiceActivity) -> None:
    for name, value in (
        ("threshold", 0.0),
        ("neg_threshold", 0.6),
        ("speech_pad_ms", -1.0),
        ("max_speech_duration_s", 0.0),
    ):
        with pytest.raises(UsageError, match=name):
            model.speech(np.zeros(9), 16000, settings=SpeechSettings(**{name: value}))
    with pytest.raises(UsageError, match="the rate is 10 Hz"):
        model.stream(10)
    with model.stream() as stream:
        with pytest.raises(NotFinite):
            stream.push([np.nan])
        with pytest.raises(ShapeError):
            stream.push(np.zeros((1, 1, 1)))
        assert stream.push([]) == []
    silent = model.speech(np.zeros(100), 16000, device="cpu")
    assert (len(silent), len(silent.probabilities)) == (0, 1)
