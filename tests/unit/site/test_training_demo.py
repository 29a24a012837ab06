"""The network of the training demo: its synthetic voices, steps, files and errors."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.core.errors import GraphFileError, InputError
from tests.run_in_threads import run_in_event_loop
from tests.training_demo_loader import training_demo

TRAINING_SETTINGS = {
    "kind": "adam",
    "hidden": 8,
    "batch": 32,
    "data": "made",
    "device": "cpu",
    "rate": 0.005,
    "seed": 0,
}


@pytest.fixture(scope="module")
def demo() -> Iterator[Any]:
    """Return the demo's modules, with the synthetic voices."""
    with training_demo() as modules:
        modules.train.make({}, [])
        yield modules


@pytest.fixture
def train(demo: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the module that the page calls, without a network yet, with files in a
    temporary folder.
    """
    monkeypatch.setattr(demo.train, "FILES", tmp_path)
    demo.train.reset({}, [])
    return demo.train


def await_answer(answer: Any) -> Any:
    """Return the answer of a call, awaited where necessary.

    On a thread of its own: this one may have the loop of a browser that is driven.
    """
    return run_in_event_loop(answer) if asyncio.iscoroutine(answer) else answer


def train_steps(
    train: Any, count: int, **settings: Any
) -> tuple[dict[str, Any], list[float]]:
    """Train `count` steps; return the last answer and all losses."""
    losses: list[float] = []
    status: dict[str, Any] = {}
    while len(losses) < count:
        max_steps = min(25, count - len(losses))
        request = {
            "rate": TRAINING_SETTINGS["rate"],
            "ms": 1000,
            "most": max_steps,
            **settings,
        }
        status, (new_losses,) = await_answer(train.advance(request, []))
        losses += new_losses.tolist()
        if "bad" in status:
            break
    return status, losses


def prepare_training(train: Any, **settings: Any) -> dict[str, Any]:
    status: dict[str, Any] = await_answer(
        train.prepare(TRAINING_SETTINGS | settings, [])
    )
    return status


def test_it_learns_vowels_of_new_speakers(train: Any) -> None:
    """The network recognises over 90 % of new speakers' vowels after 150 steps."""
    status = prepare_training(train)
    assert status["device"] == "cpu"
    assert status["weights"] == 8 * 7 + 8 + 8 * 20 * 5 + 5
    status, losses = train_steps(train, 150)
    assert status["steps"] == 150
    assert np.mean(losses[-25:]) < 0.3 < losses[0]
    score = await_answer(train.judge({}, []))
    assert score["right"] > 0.9
    counts = np.array(score["confusion"])
    assert counts.sum() == score["of"] == 300
    assert counts.trace() / 300 == score["right"]


def test_runs_of_any_length_make_the_same_steps(train: Any) -> None:
    """Training gives the same losses in short runs or long ones, interrupted or not."""
    prepare_training(train)
    _, expected_losses = train_steps(train, 40)
    train.reset({}, [])
    prepare_training(train)
    losses: list[float] = []
    while len(losses) < 40:
        request = {"rate": 0.005, "ms": 1, "most": min(3, 40 - len(losses))}
        losses += await_answer(train.advance(request, []))[1][0].tolist()
        if len(losses) == 21:
            prepare_training(train)  # as when the device was changed, there and back
    assert losses == expected_losses


def test_the_saved_network_maps_sound_to_probabilities(train: Any, demo: Any) -> None:
    """The saved network gives the probabilities of the trained one for any number of
    sounds.
    """
    prepare_training(train)
    train_steps(train, 60)
    status, (raw,) = await_answer(train.save_network({}, []))
    model = rlx.load(raw.tobytes())
    utterances = demo.vowels.utterances(np.random.default_rng(5), 3, 2)
    sounds = demo.vowels.sounds(np.random.default_rng(6), utterances)
    probabilities = model.run({"sound": sounds})["probabilities"]
    params = train.training.safe[0][0]
    expected = rlx.function(demo.network.sound_probabilities, device="cpu")(
        params, sounds
    )
    np.testing.assert_allclose(probabilities, expected, rtol=1e-5, atol=1e-6)
    assert model.run({"sound": sounds[:1]})["probabilities"].shape == (1, 5)
    status = train.open_network({"name": "vowels.rlxg"}, [raw.tobytes()])
    assert status["steps"] == 60
    request = {"seed": 3, "seconds": 0.5, "device": "cpu"}
    by_file = await_answer(train.example(request, []))[0]
    train.loaded = None
    by_state = await_answer(train.example(request, []))[0]
    assert by_file.keys() == by_state.keys()
    np.testing.assert_allclose(
        by_file["probabilities"], by_state["probabilities"], rtol=1e-5, atol=1e-6
    )


def test_invalid_files_are_refused(train: Any) -> None:
    """Files that are no graph, another kind of graph or another network are refused."""
    with pytest.raises(GraphFileError):
        train.open_network({"name": "a"}, [b"no graph"])
    other_file = io.BytesIO()
    graph = rlx.Graph("other")
    graph.set_outputs([graph.input("x", (2,)) * 2.0])
    graph.save(other_file, {})
    with pytest.raises(InputError, match="expected the input sound"):
        train.open_network({"name": "a"}, [other_file.getvalue()])
    prepare_training(train)
    _, (raw,) = await_answer(train.save_state({}, []))
    with pytest.raises(InputError, match="in the file; expected"):
        train.open_state(TRAINING_SETTINGS | {"hidden": 16}, [raw.tobytes()])


def test_a_restored_state_continues_with_the_same_bits(train: Any) -> None:
    """Training continues from a saved state with the same bits."""
    prepare_training(train)
    train_steps(train, 30)
    _, (raw,) = await_answer(train.save_state({}, []))
    _, expected_losses = train_steps(train, 10)
    train.reset({}, [])
    status, (losses,) = train.open_state(TRAINING_SETTINGS, [raw.tobytes()])
    assert status["steps"] == 30 == len(losses)
    prepare_training(train)
    assert train_steps(train, 10)[1] == expected_losses


def test_before_the_first_step_the_network_follows_the_settings(train: Any) -> None:
    """Settings changed before the first step rebuild the network."""
    small = prepare_training(train)
    large = prepare_training(train, kind="sgd", hidden=16)
    assert large["weights"] > small["weights"]
    assert train.training.kind == "sgd"
    train_steps(train, 1)
    assert prepare_training(train)["weights"] == large["weights"]


def test_a_non_finite_loss_ends_training(train: Any) -> None:
    """A non-finite loss ends training, with the step and the first bad op."""
    prepare_training(train, kind="sgd", rate=1000.0)
    status, losses = train_steps(train, 25, rate=1000.0)
    assert status["step"] == len(losses) + 1
    assert f"step {status['step']}: the loss is " in status["bad"]
    assert " produced " in status["bad"]
    assert "lower the learning rate" in status["bad"]
    assert status["steps"] == len(losses)
    assert np.isfinite(losses).all()
    params = train.training.safe[0][0]
    assert all(np.isfinite(values).all() for values in params.values())
    train.reset({}, [])
    prepare_training(train)
    assert np.isfinite(train_steps(train, 5)[1]).all()


def test_training_uses_recordings(train: Any, demo: Any) -> None:
    """Recordings give training and test frames; too few vowels or silence are
    reported.
    """
    assert "Record at least two" in prepare_training(train, data="own")["missing"]
    rng = np.random.default_rng(3)
    fs = 44100
    for vowel in (0, 2):
        utterances = demo.vowels.utterances(rng, 1, 1)
        single_vowel = utterances.only(np.flatnonzero(utterances.vowel == vowel))
        sound = demo.vowels.sounds(rng, single_vowel, 2 * demo.vowels.FS)[0]
        positions = np.arange(2 * fs) * (demo.vowels.FS / fs)
        recorded = np.interp(positions, np.arange(len(sound)), 0.1 * sound).astype(
            np.float32
        )
        status = train.record({"vowel": vowel, "fs": fs}, [recorded.tobytes()])
        assert status["frames"] == status["own"][vowel] > 60
    silence = np.zeros(fs, np.float32).tobytes()
    assert train.record({"vowel": 1, "fs": fs}, [silence])["frames"] == 0
    assert "missing" not in prepare_training(train, data="own")
    train_steps(train, 40)
    score = await_answer(train.judge({}, []))
    assert score["right"] > 0.9
    assert score["of"] < 60
    prepare_training(train, data="both")
    assert await_answer(train.judge({}, []))["of"] == 300 + score["of"]
    assert train.forget({}, [])["own"] == [0] * 5


@pytest.mark.parametrize("fs", [8000, 11025, 16000, 44100, 48000])
def test_sound_of_any_rate_is_resampled(demo: Any, fs: int) -> None:
    """Frequencies that both rates can represent stay, and those that 8 kHz cannot are
    removed.
    """
    t = np.arange(int(0.2 * fs)) / fs
    resampled = demo.vowels.resampled(np.sin(2 * np.pi * 1000 * t), fs)
    expected = np.sin(2 * np.pi * 1000 * np.arange(len(resampled)) / demo.vowels.FS)
    middle = slice(200, -200)
    np.testing.assert_allclose(resampled[middle], expected[middle], atol=5e-3)
    if fs > 11025:
        removed = demo.vowels.resampled(np.sin(2 * np.pi * 5000 * t), fs)
        assert np.abs(removed[middle]).max() < 5e-3


def test_a_synthetic_vowel_is_loudest_at_its_formants(demo: Any) -> None:
    """The first formant of a deep voice is the maximum of its spectrum there."""
    vowels = demo.vowels
    utterances = vowels.utterances(np.random.default_rng(0), 40, 1)
    deep = utterances.only(
        (utterances.pitch < 110) & (utterances.vowel == vowels.NAMES.index("ah"))
    )
    sounds = vowels.sounds(np.random.default_rng(1), deep, 4096)
    power = np.abs(np.fft.rfft(sounds * np.hanning(4096))) ** 2
    hz = np.fft.rfftfreq(4096, 1 / vowels.FS)
    for row, first, pitch in zip(power, deep.formants[:, 0], deep.pitch, strict=True):
        nearby_hz = hz[(hz > 400) & (hz < 1000)]
        loudest = nearby_hz[row[(hz > 400) & (hz < 1000)].argmax()]
        assert abs(loudest - first) < pitch
