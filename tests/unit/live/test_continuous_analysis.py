"""Watched signals: updates equal the estimate of the whole and report gaps and
silences.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from rich.cells import cell_len

import rlxweb as rlx
from rlxweb.cli.live_terminal_view import format_line, render_view
from rlxweb.live.continuous_analysis import LiveUpdate, watch_signal
from rlxweb.live.source import SampleChunk, SourceListener, StreamInfo, arrival_clock

FS = 128.0
T = np.arange(2560) / FS
X = np.random.default_rng(2).standard_normal((3, T.size))
X += 3 * np.sin(2 * np.pi * 10 * T)
NAMES = ("Cz", "脳波", "a very long name of a channel \x1b[31m")


class ListSource:
    """Source of a list of chunks that then ends."""

    can_wait = True

    def __init__(self, chunks: Sequence[SampleChunk | None]) -> None:
        self.stream_info = StreamInfo("made", FS, NAMES, "uV")
        self.chunks = list(chunks)

    def read(self, timeout_s: float) -> SampleChunk | None:
        if not self.chunks:
            raise EOFError
        return self.chunks.pop(0)

    def close(self) -> None:
        self.chunks = []


def split_chunks(x: np.ndarray, step: int) -> list[SampleChunk]:
    return [
        SampleChunk(x[:, a : a + step], arrival_clock())
        for a in range(0, x.shape[1], step)
    ]


def make_stream(**more: Any) -> rlx.WelchStream:
    return rlx.WelchStream(FS, 256, 3, 3, nan="skip", fmin=0.5, **more)


def watch_chunks(
    chunks: Sequence[SampleChunk | None], **options: Any
) -> list[LiveUpdate]:
    with SourceListener(ListSource(chunks)) as listener:
        return list(
            watch_signal(
                listener, options.pop("stream", None) or make_stream(), **options
            )
        )


@pytest.mark.parametrize("step", [1, 50, 2560])
def test_the_last_update_equals_the_whole_estimate(step: int) -> None:
    last = watch_chunks(split_chunks(X, step), every_s=0.01, bands="eeg")[-1]
    assert last.frame is not None
    want = rlx.welch(X, FS, nperseg=256, fmin=0.5)
    np.testing.assert_allclose(last.frame.power, want.power, rtol=1e-12)
    assert last.duration_s == 20.0
    assert last.bands is not None
    np.testing.assert_allclose(
        last.bands.relative, rlx.band_power_of(want, bands="eeg").relative, rtol=1e-9
    )


def test_lost_samples_keep_their_time_and_touch_no_average() -> None:
    """Segments that touch a gap are skipped; later ones keep their time."""
    gap = slice(1000, 1300)
    parts = [
        SampleChunk(X[:, :1000], 0.0),
        SampleChunk(X[:, 1300:], 0.0, n_lost_before=300),
    ]
    last = watch_chunks(parts)[-1]
    assert (last.n_lost, last.duration_s) == (300, 20.0)
    expected, gapped = make_stream(), X.copy()
    gapped[:, gap] = np.nan
    expected.push(gapped)
    assert last.frame is not None
    np.testing.assert_allclose(last.frame.power, expected.power, rtol=1e-12)
    assert np.isfinite(last.frame.power).all()


def test_watching_ends_at_until_s() -> None:
    assert watch_chunks(split_chunks(X, 100), until_s=5.0)[-1].duration_s == 5.0


def test_a_silence_is_reported() -> None:
    clock = iter(np.arange(0.0, 1e6, 0.7))
    updates = watch_chunks(
        [SampleChunk(X[:, :300], 0.0), *[None] * 8],
        every_s=0.01,
        clock=lambda: float(next(clock)),
    )
    assert any(update.is_stalled for update in updates)
    assert "no samples for" in format_line(updates[-1])


def test_updates_are_json() -> None:
    for update in watch_chunks(split_chunks(X, 100), every_s=0.02, bands="eeg"):
        document = json.loads(json.dumps(update.as_json(spectra=True), allow_nan=False))
    assert [channel["name"] for channel in document["channels"]] == list(NAMES)
    first = document["channels"][0]
    assert first["peaks"][0]["hz"] == pytest.approx(10.0, abs=0.05)
    assert sum(first["bands"].values()) == pytest.approx(1.0)
    assert len(first["power"]) == len(document["f"])
    assert "power" not in update.as_json()["channels"][0]


@pytest.mark.parametrize("width", [1, 10, 40, 80, 200])
@pytest.mark.parametrize("height", [3, 10, 24, 50])
def test_the_view_fits_every_terminal(width: int, height: int) -> None:
    updates = watch_chunks(split_chunks(X, 100), bands="eeg", every_s=0.02)
    for update in (updates[0], updates[-1]):
        text_lines = render_view(update, width, height).plain.split("\n")
        assert len(text_lines) <= height
        assert max(cell_len(text_line) for text_line in text_lines) <= width
        assert "\x1b" not in "".join(text_lines)


def test_the_line_shows_known_values() -> None:
    first, last = (
        watch_chunks(split_chunks(X[:, :n], 100), every_s=0.02)[-1] for n in (100, 2560)
    )
    assert format_line(first) == "0.8 s, no complete segment yet"
    assert format_line(last).startswith("20.0 s, peaks in Hz: Cz 10.0")
    assert "\x1b" not in format_line(last)
