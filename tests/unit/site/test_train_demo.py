"""The network of the page that trains: its voices, its steps, its file, bad ends."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.errors import GraphFileError, InputError
from tests.threads import in_a_loop
from tests.training_demo import training_demo

ASKED = {
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
    """The demo's modules, with the made voices."""
    with training_demo() as found:
        found.train.make({}, [])
        yield found


@pytest.fixture
def train(demo: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What the page calls, without a network yet; files go to a folder of the test."""
    monkeypatch.setattr(demo.train, "FILES", tmp_path)
    demo.train.reset({}, [])
    return demo.train


def called(answer: Any) -> Any:
    """The answer of a call, awaited where it must be.

    On a thread of its own: this one may have the loop of a browser that is driven.
    """
    return in_a_loop(answer) if asyncio.iscoroutine(answer) else answer


def steps(train: Any, count: int, **asked: Any) -> tuple[dict[str, Any], list[float]]:
    """Train `count` steps; the last answer, and all losses."""
    losses: list[float] = []
    told: dict[str, Any] = {}
    while len(losses) < count:
        most = min(25, count - len(losses))
        given = {"rate": ASKED["rate"], "ms": 1000, "most": most, **asked}
        told, (some,) = called(train.advance(given, []))
        losses += some.tolist()
        if "bad" in told:
            break
    return told, losses


def prepared(train: Any, **asked: Any) -> dict[str, Any]:
    told: dict[str, Any] = called(train.prepare(ASKED | asked, []))
    return told


def test_it_learns_vowels_of_speakers_it_never_heard(train: Any) -> None:
    """The network hears strange speakers' vowels: over 90 % right in 150 steps."""
    told = prepared(train)
    assert told["device"] == "cpu"
    assert told["weights"] == 8 * 7 + 8 + 8 * 20 * 5 + 5
    told, losses = steps(train, 150)
    assert told["steps"] == 150
    assert np.mean(losses[-25:]) < 0.3 < losses[0]
    found = called(train.judge({}, []))
    assert found["right"] > 0.9
    counts = np.array(found["confusion"])
    assert counts.sum() == found["of"] == 300
    assert counts.trace() / 300 == found["right"]


def test_stretches_of_any_length_make_the_same_steps(train: Any) -> None:
    """Stretches make the same steps, stopped or not, under the same settings."""
    prepared(train)
    _, whole = steps(train, 40)
    train.reset({}, [])
    prepared(train)
    begun: list[float] = []
    while len(begun) < 40:
        given = {"rate": 0.005, "ms": 1, "most": min(3, 40 - len(begun))}
        begun += called(train.advance(given, []))[1][0].tolist()
        if len(begun) == 21:
            prepared(train)  # as when the device was changed, there and back
    assert begun == whole


def test_the_file_is_the_way_from_sound_to_probabilities(train: Any, demo: Any) -> None:
    """The saved network judges sounds as the trained one does, any number of them."""
    prepared(train)
    steps(train, 60)
    told, (raw,) = called(train.save_network({}, []))
    model = rlx.load(raw.tobytes())
    said = demo.vowels.utterances(np.random.default_rng(5), 3, 2)
    sounds = demo.vowels.sounds(np.random.default_rng(6), said)
    found = model.run({"sound": sounds})["probabilities"]
    params = train.training.safe[0][0]
    wanted = rlx.function(demo.network.heard, device="cpu")(params, sounds)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    assert model.run({"sound": sounds[:1]})["probabilities"].shape == (1, 5)
    told = train.open_network({"name": "vowels.rlxg"}, [raw.tobytes()])
    assert told["steps"] == 60
    ask = {"seed": 3, "seconds": 0.5, "device": "cpu"}
    by_file = called(train.example(ask, []))[0]
    train.loaded = None
    by_state = called(train.example(ask, []))[0]
    assert by_file.keys() == by_state.keys()
    np.testing.assert_allclose(
        by_file["probabilities"], by_state["probabilities"], rtol=1e-5, atol=1e-6
    )


def test_other_files_are_refused(train: Any) -> None:
    """Files that are no graph, another kind of graph or another network are refused."""
    with pytest.raises(GraphFileError):
        train.open_network({"name": "a"}, [b"no graph"])
    other = io.BytesIO()
    graph = rlx.Graph("other")
    graph.set_outputs([graph.input("x", (2,)) * 2.0])
    graph.save(other, {})
    with pytest.raises(InputError, match="a file of this page takes sound"):
        train.open_network({"name": "a"}, [other.getvalue()])
    prepared(train)
    _, (raw,) = called(train.save_state({}, []))
    with pytest.raises(InputError, match="this training has"):
        train.open_state(ASKED | {"hidden": 16}, [raw.tobytes()])


def test_a_saved_state_goes_on_as_if_it_had_never_ended(train: Any) -> None:
    """A saved state goes on to the same bits."""
    prepared(train)
    steps(train, 30)
    _, (raw,) = called(train.save_state({}, []))
    _, wanted = steps(train, 10)
    train.reset({}, [])
    told, (losses,) = train.open_state(ASKED, [raw.tobytes()])
    assert told["steps"] == 30 == len(losses)
    prepared(train)
    assert steps(train, 10)[1] == wanted


def test_before_the_first_step_the_network_follows_the_settings(train: Any) -> None:
    """Settings before the first step count: what was compiled and unused is remade."""
    few = prepared(train)
    many = prepared(train, kind="sgd", hidden=16)
    assert many["weights"] > few["weights"]
    assert train.training.kind == "sgd"
    steps(train, 1)
    assert prepared(train)["weights"] == many["weights"]


def test_a_loss_that_is_no_number_ends_it(train: Any) -> None:
    """A loss that is no number ends training, with the step and the first bad op."""
    prepared(train, kind="sgd", rate=1000.0)
    told, losses = steps(train, 25, rate=1000.0)
    assert told["step"] == len(losses) + 1
    assert f"step {told['step']}: the loss is " in told["bad"]
    assert " made " in told["bad"]
    assert "lower the learning rate" in told["bad"]
    assert told["steps"] == len(losses)
    assert np.isfinite(losses).all()
    params = train.training.safe[0][0]
    assert all(np.isfinite(one).all() for one in params.values())
    train.reset({}, [])
    prepared(train)
    assert np.isfinite(steps(train, 5)[1]).all()


def test_recordings_are_trained_on(train: Any, demo: Any) -> None:
    """Recordings give frames of both parts; too few vowels or sound are told."""
    assert "Record at least two" in prepared(train, data="own")["missing"]
    rng = np.random.default_rng(3)
    fs = 44100
    for vowel in (0, 2):
        said = demo.vowels.utterances(rng, 1, 1)
        one = said.only(np.flatnonzero(said.vowel == vowel))
        sound = demo.vowels.sounds(rng, one, 2 * demo.vowels.FS)[0]
        at = np.arange(2 * fs) * (demo.vowels.FS / fs)
        heard = np.interp(at, np.arange(len(sound)), 0.1 * sound).astype(np.float32)
        told = train.record({"vowel": vowel, "fs": fs}, [heard.tobytes()])
        assert told["frames"] == told["own"][vowel] > 60
    silence = np.zeros(fs, np.float32).tobytes()
    assert train.record({"vowel": 1, "fs": fs}, [silence])["frames"] == 0
    assert "missing" not in prepared(train, data="own")
    steps(train, 40)
    found = called(train.judge({}, []))
    assert found["right"] > 0.9
    assert found["of"] < 60
    prepared(train, data="both")
    assert called(train.judge({}, []))["of"] == 300 + found["of"]
    assert train.forget({}, [])["own"] == [0] * 5


@pytest.mark.parametrize("fs", [8000, 11025, 16000, 44100, 48000])
def test_sound_of_any_rate_becomes_that_of_the_network(demo: Any, fs: int) -> None:
    """What both rates can hold stays, and what 8 kHz cannot is gone."""
    t = np.arange(int(0.2 * fs)) / fs
    found = demo.vowels.resampled(np.sin(2 * np.pi * 1000 * t), fs)
    wanted = np.sin(2 * np.pi * 1000 * np.arange(len(found)) / demo.vowels.FS)
    middle = slice(200, -200)
    np.testing.assert_allclose(found[middle], wanted[middle], atol=5e-3)
    if fs > 11025:
        gone = demo.vowels.resampled(np.sin(2 * np.pi * 5000 * t), fs)
        assert np.abs(gone[middle]).max() < 5e-3


def test_a_made_vowel_is_loudest_at_its_formants(demo: Any) -> None:
    """The first formant of a deep voice stands out of its spectrum."""
    vowels = demo.vowels
    said = vowels.utterances(np.random.default_rng(0), 40, 1)
    deep = said.only((said.pitch < 110) & (said.vowel == vowels.NAMES.index("ah")))
    sounds = vowels.sounds(np.random.default_rng(1), deep, 4096)
    power = np.abs(np.fft.rfft(sounds * np.hanning(4096))) ** 2
    hz = np.fft.rfftfreq(4096, 1 / vowels.FS)
    for row, first, pitch in zip(power, deep.formants[:, 0], deep.pitch, strict=True):
        near = hz[(hz > 400) & (hz < 1000)]
        loudest = near[row[(hz > 400) & (hz < 1000)].argmax()]
        assert abs(loudest - first) < pitch
