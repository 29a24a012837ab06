"""A watched signal is told as it is: equal to the whole, with its gaps and silences."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from rich.cells import cell_len

import rlxweb as rlx
from rlxweb.cli.live_view import line, view
from rlxweb.live.source import Chunk, Listener, Stream, arrived
from rlxweb.live.watch import Update, watch

FS = 128.0
T = np.arange(2560) / FS
X = np.random.default_rng(2).standard_normal((3, T.size))
X += 3 * np.sin(2 * np.pi * 10 * T)
NAMES = ("Cz", "脳波", "a very long name of a channel \x1b[31m")


class Told:
    """Chunks of a list, then the end."""

    can_wait = True

    def __init__(self, chunks: Sequence[Chunk | None]) -> None:
        self.stream = Stream("made", FS, NAMES, "uV")
        self.chunks = list(chunks)

    def read(self, timeout_s: float) -> Chunk | None:
        if not self.chunks:
            raise EOFError
        return self.chunks.pop(0)

    def close(self) -> None:
        self.chunks = []


def chunks(x: np.ndarray, step: int) -> list[Chunk]:
    return [Chunk(x[:, a : a + step], arrived()) for a in range(0, x.shape[1], step)]


def stream(**more: Any) -> rlx.WelchStream:
    return rlx.WelchStream(FS, 256, 3, 3, nan="skip", fmin=0.5, **more)


def watched(given: Sequence[Chunk | None], **how: Any) -> list[Update]:
    with Listener(Told(given)) as listener:
        return list(watch(listener, how.pop("stream", None) or stream(), **how))


@pytest.mark.parametrize("step", [1, 50, 2560])
def test_the_end_is_what_the_whole_gives(step: int) -> None:
    last = watched(chunks(X, step), every_s=0.01, bands="eeg")[-1]
    assert last.frame is not None
    wanted = rlx.welch(X, FS, nperseg=256, fmin=0.5)
    np.testing.assert_allclose(last.frame.power, wanted.power, rtol=1e-12)
    assert last.seconds == 20.0
    assert last.bands is not None
    np.testing.assert_allclose(
        last.bands.relative, rlx.band_power_of(wanted, bands="eeg").relative, rtol=1e-9
    )


def test_lost_samples_keep_their_time_and_touch_no_average() -> None:
    """Segments that a gap touches are left out; those behind lie where they lay."""
    gone = slice(1000, 1300)
    parts = [Chunk(X[:, :1000], 0.0), Chunk(X[:, 1300:], 0.0, lost=300)]
    last = watched(parts)[-1]
    assert (last.lost, last.seconds) == (300, 20.0)
    own, whole = stream(), X.copy()
    whole[:, gone] = np.nan
    own.push(whole)
    assert last.frame is not None
    np.testing.assert_allclose(last.frame.power, own.power, rtol=1e-12)
    assert np.isfinite(last.frame.power).all()


def test_it_ends_where_it_is_told_to() -> None:
    assert watched(chunks(X, 100), until_s=5.0)[-1].seconds == 5.0


def test_a_silence_is_told() -> None:
    clock = iter(np.arange(0.0, 1e6, 0.7))
    told = watched(
        [Chunk(X[:, :300], 0.0), *[None] * 8],
        every_s=0.01,
        clock=lambda: float(next(clock)),
    )
    assert any(one.is_stalled for one in told)
    assert "no samples for" in line(told[-1])


def test_updates_are_json() -> None:
    for update in watched(chunks(X, 100), every_s=0.02, bands="eeg"):
        told = json.loads(json.dumps(update.as_json(spectra=True), allow_nan=False))
    assert [one["name"] for one in told["channels"]] == list(NAMES)
    first = told["channels"][0]
    assert first["peaks"][0]["hz"] == pytest.approx(10.0, abs=0.05)
    assert sum(first["bands"].values()) == pytest.approx(1.0)
    assert len(first["power"]) == len(told["f"])
    assert "power" not in update.as_json()["channels"][0]


@pytest.mark.parametrize("width", [1, 10, 40, 80, 200])
@pytest.mark.parametrize("height", [3, 10, 24, 50])
def test_it_fits_every_terminal(width: int, height: int) -> None:
    updates = watched(chunks(X, 100), bands="eeg", every_s=0.02)
    for update in (updates[0], updates[-1]):
        drawn = view(update, width, height).plain.split("\n")
        assert len(drawn) <= height
        assert max(cell_len(one) for one in drawn) <= width
        assert "\x1b" not in "".join(drawn)


def test_a_line_says_what_is_known() -> None:
    first, last = (
        watched(chunks(X[:, :n], 100), every_s=0.02)[-1] for n in (100, 2560)
    )
    assert line(first) == "0.8 s, no whole segment yet"
    assert line(last).startswith("20.0 s, peaks in Hz: Cz 10.0")
    assert "\x1b" not in line(last)
