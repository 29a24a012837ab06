"""A stream on a device: its average lies there, and is what NumPy's would be."""

from __future__ import annotations

import copy
import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.errors import DTypeError
from rlxweb.gpu.port import Want
from rlxweb.signal.average_held import MOST_STEPS
from rlxweb.signal.average_there import MOST_ADDED
from tests.threads import in_a_loop
from tests.unit.signal.near import by_name, close

FS = 100.0
RNG = np.random.default_rng(31)
X = (RNG.standard_normal((3, 4000)) + 2.0).astype(np.float32)
X[1] += 3 * np.sin(2 * np.pi * 11.3 * np.arange(4000) / FS, dtype=np.float32)
GAPPY = X.copy()
GAPPY[1, 310] = np.nan
GAPPY[2, 700:760] = np.inf
AVERAGES: dict[str, dict[str, Any]] = {
    "all": {},
    "last 1": {"average": "last", "last": 1},
    "last 5": {"average": "last", "last": 5},
    "exponential": {"average": "exponential", "half_life": 2.0},
    "none": {"average": "none"},
}
SHAPES: list[dict[str, Any]] = [
    {"nperseg": 64},
    {"nperseg": 50, "noverlap": 0, "detrend": "linear"},
    {"nperseg": 45, "noverlap": 44, "detrend": False, "fmin": 5, "fmax": 30},
]


def pushed(
    stream: rlx.WelchStream, x: Any, sizes: tuple[int, ...]
) -> list[rlx.StreamFrame]:
    """Frames of all chunks of these sizes, over and over, none read yet."""
    made, at, turn = [], 0, 0
    while at < x.shape[1]:
        size = sizes[turn % len(sizes)]
        made += stream.push(x[:, at : at + size])
        at, turn = at + size, turn + 1
    return made


# Each sixth has the first shape: what other adapters take is of few shaders.
@pytest.mark.parametrize("shape", SHAPES, ids=lambda one: str(one["nperseg"]))
@pytest.mark.parametrize("average", AVERAGES)
def test_every_frame_is_what_numpy_makes_of_it(
    adapter: Want, average: str, shape: dict[str, Any]
) -> None:
    """Frames are NumPy's, read late, in whatever chunks; large chunks come home."""
    named = {"n_channels": 3, "k": 2, **AVERAGES[average], **shape}
    x = X[:, : 265 if shape["nperseg"] == 45 else 1540]
    host = rlx.WelchStream(FS, **named)
    there = rlx.WelchStream(FS, **named, **by_name(adapter))
    sizes = (7, 130, 64, 0, 31 + 32 * (MOST_STEPS + 1), 20)
    sizes = sizes if shape["nperseg"] != 45 else (7, 20, MOST_STEPS + 60)
    got, want = pushed(there, x, sizes), pushed(host, x.astype(np.float64), sizes)
    assert there.lies_on
    assert not host.lies_on
    assert len(got) == len(want) == there.n_segments
    for one, other in zip(reversed(got), reversed(want), strict=True):
        assert one.power.dtype == np.float32
        close(one.power, other.power, 5e-6)
        assert (one.t, one.n_segments) == (other.t, other.n_segments)
    close(there.power, host.power, 5e-6)
    np.testing.assert_array_equal(there.peaks.bins, host.peaks.bins)


@pytest.mark.parametrize("average", AVERAGES)
@pytest.mark.parametrize("nan", ["skip", "propagate"])
def test_gaps_there(adapter: Want, average: str, nan: Any) -> None:
    """Frames are NaN where they are NaN on the host, and nowhere else."""
    named = {"nperseg": 64, "n_channels": 3, "nan": nan, **AVERAGES[average]}
    host = rlx.WelchStream(FS, **named)
    there = rlx.WelchStream(FS, **named, **by_name(adapter))
    x = GAPPY[:, :950]
    got, want = pushed(there, x, (50, 7)), pushed(host, x.astype(np.float64), (50, 7))
    assert there.lies_on
    for one, other in zip(got, want, strict=True):
        lost = np.isnan(other.power)
        np.testing.assert_array_equal(np.isnan(one.power), lost)
        close(np.nan_to_num(one.power), np.nan_to_num(other.power), 5e-6)
    assert any(np.isnan(one.power).any() for one in want) == (nan == "propagate")


@pytest.mark.full("opengl", "swiftshader")
def test_hours_lose_nothing(adapter: Want) -> None:
    """A plain sum comes home now and then; it is as long a one as float64's.

    The first segment is so loud that float32 would lose each of those after it.
    """
    long = np.tile(X[:, :32], 500)
    long[:, :32] *= 6300
    there = rlx.WelchStream(FS, 32, n_channels=3, noverlap=0, **by_name(adapter))
    pushed(there, long, (32,))
    assert there.lies_on
    assert there.n_segments == 500 > 7 * MOST_ADDED
    want = rlx.welch(long.astype(float), FS, nperseg=32, noverlap=0)[1]
    close(there.power, want, 1.2 * MOST_ADDED / 6300**2)


@pytest.mark.parametrize("average", AVERAGES)
def test_kept_and_restored_on_another_device(
    adapter: Want, average: str, tmp_path: Path
) -> None:
    """A stream moves from NumPy to a device, back, and to another device."""
    other = "llvmpipe" if "llvmpipe" not in adapter.name.lower() else "SwiftShader"
    named: dict[str, Any] = {"nperseg": 64, "n_channels": 3, "nan": "propagate"}
    named |= AVERAGES[average]
    whole = rlx.WelchStream(FS, **named)
    stream = rlx.WelchStream(FS, **named)
    places: list[dict[str, Any]] = [
        by_name(adapter),
        {},
        by_name(adapter),
        {"device": "gpu", "adapter": other},
    ]
    for at, place in enumerate(places):
        stream.save(tmp_path / "stream.npz")
        before = stream.power
        stream = rlx.WelchStream.load(tmp_path / "stream.npz", **place)
        np.testing.assert_allclose(stream.power, before, rtol=1e-6)
        x = GAPPY[:, 300 * at : 300 * (at + 1)]
        got, want = pushed(stream, x, (90,)), pushed(whole, x.astype(float), (90,))
        for one, other in zip(got, want, strict=True):
            lost = np.isnan(other.power)
            np.testing.assert_array_equal(np.isnan(one.power), lost)
            close(np.nan_to_num(one.power), np.nan_to_num(other.power), 5e-6)
        assert bool(stream.lies_on) == bool(place)
    assert (stream.seconds, stream.n_segments) == (whole.seconds, whole.n_segments)
    stream.reset()
    assert not stream.lies_on
    assert np.isnan(stream.power).all()


def test_what_float32_does_not_hold_comes_home(adapter: Want) -> None:
    """A block beyond float32 is averaged on the host, later ones on the device."""
    named: dict[str, Any] = {"nperseg": 64, "n_channels": 3, "average": "none"}
    there = rlx.WelchStream(FS, **named, **by_name(adapter))
    want = rlx.WelchStream(FS, **named)
    faint = X[:, 100:300] * np.float32(1e-16)
    there.push(X[:, :100])
    assert there.lies_on
    there.push(faint[:, :100])
    there.push(faint[:, 100:])
    assert not there.lies_on
    want.push(np.concatenate([X[:, :100], faint], axis=1).astype(float))
    np.testing.assert_allclose(there.power, want.power, rtol=1e-4)
    for x in (X[:, 300:400], X[:, 400:500]):
        there.push(x)
        want.push(x.astype(float))
    assert there.lies_on
    close(there.power, want.power, 5e-6)


def test_copies_begin_in_the_hosts_memory(adapter: Want) -> None:
    """Copies of stream and frames are in the host's memory; the stream stays."""
    stream = rlx.WelchStream(FS, 64, n_channels=3, **by_name(adapter))
    (*_, frame) = stream.push(X[:, :400])
    for copied in (copy.deepcopy(stream), pickle.loads(pickle.dumps(stream))):
        assert (copied.lies_on, copied.n_segments) == ("", stream.n_segments)
        np.testing.assert_allclose(copied.power, stream.power, rtol=1e-6)
        copied.push(X[:, 400:500])
        assert copied.lies_on == stream.lies_on
    again = pickle.loads(pickle.dumps(frame))
    np.testing.assert_array_equal(again.power, frame.power)
    np.testing.assert_array_equal(again.peaks.hz, frame.peaks.hz)


def test_what_is_too_much_to_move_stays_home(adapter: Want) -> None:
    named: dict[str, Any] = {"nperseg": 64, "average": "last", "last": 600_000}
    stream = rlx.WelchStream(FS, **named, **by_name(adapter))
    stream.push(X[0, :100])
    assert not stream.lies_on
    close(stream.power, rlx.welch(X[:1, :96].astype(float), FS, nperseg=64)[1], 5e-6)


def test_only_a_named_device_holds_it(adapter: Want) -> None:
    """Only a named device holds a stream, not NumPy or "auto"; float64 is refused."""
    for device in ("auto", "cpu", None):
        stream = rlx.WelchStream(FS, 64, n_channels=3, device=device)
        stream.push(X)
        pushed(stream, X, (100,))
        assert not stream.lies_on
    with pytest.raises(DTypeError, match="float64"):
        rlx.WelchStream(FS, 64, n_channels=3, **by_name(adapter)).push(X.astype(float))


@pytest.mark.full("opengl", "swiftshader")
def test_frames_beside_a_loop_and_on_other_threads(adapter: Want) -> None:
    named = {"nperseg": 64, "n_channels": 3, **by_name(adapter)}
    want = pushed(rlx.WelchStream(FS, 64, n_channels=3), X, (100,))

    async def watched() -> list[rlx.StreamFrame]:
        stream = rlx.WelchStream(FS, **named)
        parts = [X[:, at : at + 100] for at in range(0, 4000, 100)]
        return [frame async for frame in stream.over(parts)]

    for one, other in zip(in_a_loop(watched()), want, strict=True):
        close(one.power, other.power, 5e-6)
    stream = rlx.WelchStream(FS, **named)
    made: list[rlx.StreamFrame] = []
    found: list[list[Any]] = []

    def look() -> None:
        found.append([frame.power for frame in made[:60]])

    for at in range(0, 4000, 100):
        made += stream.push(X[:, at : at + 100])
        if at == 2000:
            threads = [threading.Thread(target=look) for _ in range(3)]
            for one in threads:
                one.start()
    for one in threads:
        one.join(60)
    assert len(found) == 3
    for powers in found:
        for power, other in zip(powers, want, strict=False):
            close(power, other.power, 5e-6)
