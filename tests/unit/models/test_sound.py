"""Sound at the rate of a model: what is heard stays, what is too high goes."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlxweb.errors import UsageError
from rlxweb.io import open_recording, write_recording
from rlxweb.models.resampling import Resampler
from rlxweb.models.sound import Sound, sound_of

PAIRS = [
    (44100.0, 22050.0),
    (48000.0, 22050.0),
    (16000.0, 22050.0),
    (44099.5, 22050.0),
    (96000.0, 16000.0),
    (8000.0, 16000.0),
    (12345.678, 16000.0),
]


@pytest.mark.parametrize(("fs", "rate"), PAIRS)
def test_tones_are_the_same_tones_at_another_rate(fs: float, rate: float) -> None:
    """To −86 dB up to 0.42 of the slower rate; whatever the stretches are."""

    def tones(time: Any) -> Any:
        every = (0.0, 333.0, 0.42 * min(fs, rate))
        return sum(np.cos(2 * np.pi * hz * time) for hz in every)

    x = tones(np.arange(int(fs * 0.4)) / fs)
    sound = Sound(x[None], fs, rate)
    assert sound.n_samples == pytest.approx(len(x) * rate / fs, abs=1)
    found = sound.read(0, sound.n_samples)
    inside = slice(1200, -1200)
    want = tones(np.arange(len(found)) / rate)
    np.testing.assert_allclose(found[inside], want[inside], atol=5e-5)
    cuts = [-3, 0, 1, 1000, 1777, len(found) + 5]
    parts = [sound.read(a, b) for a, b in itertools.pairwise(cuts)]
    whole = np.concatenate([np.zeros(3), found, np.zeros(5)])
    np.testing.assert_allclose(np.concatenate(parts), whole, atol=1e-5)


def test_what_is_above_the_new_rate_does_not_fold_back() -> None:
    fs, rate = 44100.0, 16000.0
    time = np.arange(20000) / fs
    for hz in (8100.0, 12000.0, 21000.0):
        sound = Sound(np.cos(2 * np.pi * hz * time)[None], fs, rate)
        assert abs(sound.read(500, sound.n_samples - 500)).max() < 3e-5


def test_a_resampler_says_which_samples_it_takes() -> None:
    for fs, rate in PAIRS:
        own = Resampler(fs, rate)
        first, last = own.needs(700, 1900)
        assert own.made(np.zeros(last - first), 700, 1900).shape == (1200,)
        assert own.made(np.zeros(0), 5, 5).shape == (0,)


def test_a_sound_comes_from_a_file_a_recording_or_an_array(tmp_path: Path) -> None:
    """Channels are averaged; the full scale of integers is 1."""
    x = np.array([[0.5, -0.5, 0.25, 0.0], [0.25, 0.5, 0.25, -1.0]])
    mixed = x.mean(axis=0)
    path = str(tmp_path / "two.wav")
    write_recording(path, x, fs=8000)
    whole = (x * 32768).astype(np.int16)
    offset = (whole.astype(np.int32) + 32768).astype(np.uint16)
    with open_recording(path) as recording:
        for given, fs in (
            *((path, None), (recording, None), (recording.groups[0], None)),
            *((x, 8000), (whole, 8000), (offset, 8000), (mixed, 8000)),
        ):
            with sound_of(given, fs, 8000.0, "test") as sound:
                found = sound.read(-1, 6)
            np.testing.assert_allclose(found[1:5], mixed, atol=1e-4)
            assert not found[[0, 5, 6]].any()
    with (
        pytest.raises(UsageError, match="1000 to 1e\\+06"),
        sound_of(x, 1e7, 8000.0, "test"),
    ):
        pass
