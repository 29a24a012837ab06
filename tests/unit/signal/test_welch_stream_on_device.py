"""Welch streams on a device: the average is kept there and agrees with NumPy's."""

from __future__ import annotations

import copy
import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.core.errors import DTypeError
from rlxweb.gpu.port_protocol import AdapterRequest
from rlxweb.signal.device_stream_average import MAX_FLOAT32_SEGMENTS
from rlxweb.signal.stream_average import MAX_DEVICE_SEGMENTS
from tests.run_in_threads import run_in_event_loop
from tests.unit.signal.device_comparison import adapter_arguments, assert_close

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


def push_chunks(
    stream: rlx.WelchStream, x: Any, sizes: tuple[int, ...]
) -> list[rlx.StreamFrame]:
    """Return the frames of all chunks of these sizes, used in rotation; none is read
    yet.
    """
    frames, start, chunk_number = [], 0, 0
    while start < x.shape[1]:
        size = sizes[chunk_number % len(sizes)]
        frames += stream.push(x[:, start : start + size])
        start, chunk_number = start + size, chunk_number + 1
    return frames


# Each sixth has the first shape: what other adapters take is of few shaders.
@pytest.mark.parametrize("shape", SHAPES, ids=lambda one: str(one["nperseg"]))
@pytest.mark.parametrize("average", AVERAGES)
def test_every_frame_agrees_with_numpy(
    adapter: AdapterRequest, average: str, shape: dict[str, Any]
) -> None:
    """Frames agree with NumPy's for any chunk sizes, even when they are read late."""
    options = {"n_channels": 3, "k": 2, **AVERAGES[average], **shape}
    x = X[:, : 265 if shape["nperseg"] == 45 else 1540]
    host_stream = rlx.WelchStream(FS, **options)
    device_stream = rlx.WelchStream(FS, **options, **adapter_arguments(adapter))
    sizes = (7, 130, 64, 0, 31 + 32 * (MAX_DEVICE_SEGMENTS + 1), 20)
    sizes = sizes if shape["nperseg"] != 45 else (7, 20, MAX_DEVICE_SEGMENTS + 60)
    got = push_chunks(device_stream, x, sizes)
    want = push_chunks(host_stream, x.astype(np.float64), sizes)
    assert device_stream.lies_on
    assert not host_stream.lies_on
    assert len(got) == len(want) == device_stream.n_segments
    for frame, expected_frame in zip(reversed(got), reversed(want), strict=True):
        assert frame.power.dtype == np.float32
        assert_close(frame.power, expected_frame.power, 5e-6)
        assert (frame.t, frame.n_segments) == (
            expected_frame.t,
            expected_frame.n_segments,
        )
    assert_close(device_stream.power, host_stream.power, 5e-6)
    np.testing.assert_array_equal(device_stream.peaks.bins, host_stream.peaks.bins)


@pytest.mark.parametrize("average", AVERAGES)
@pytest.mark.parametrize("nan", ["skip", "propagate"])
def test_gaps_on_device(adapter: AdapterRequest, average: str, nan: Any) -> None:
    """Frames are NaN where they are NaN on the host, and nowhere else."""
    options = {"nperseg": 64, "n_channels": 3, "nan": nan, **AVERAGES[average]}
    host_stream = rlx.WelchStream(FS, **options)
    device_stream = rlx.WelchStream(FS, **options, **adapter_arguments(adapter))
    x = GAPPY[:, :950]
    got = push_chunks(device_stream, x, (50, 7))
    want = push_chunks(host_stream, x.astype(np.float64), (50, 7))
    assert device_stream.lies_on
    for frame, expected_frame in zip(got, want, strict=True):
        is_nan = np.isnan(expected_frame.power)
        np.testing.assert_array_equal(np.isnan(frame.power), is_nan)
        assert_close(
            np.nan_to_num(frame.power), np.nan_to_num(expected_frame.power), 5e-6
        )
    assert any(np.isnan(frame.power).any() for frame in want) == (nan == "propagate")


@pytest.mark.full("opengl", "swiftshader")
def test_long_sums_are_as_accurate_as_float64(adapter: AdapterRequest) -> None:
    """A plain sum is moved to the host now and then, so that it is as accurate as
    float64's.

    The first segment is so loud that float32 would lose each of those after it.
    """
    long = np.tile(X[:, :32], 500)
    long[:, :32] *= 6300
    device_stream = rlx.WelchStream(
        FS, 32, n_channels=3, noverlap=0, **adapter_arguments(adapter)
    )
    push_chunks(device_stream, long, (32,))
    assert device_stream.lies_on
    assert device_stream.n_segments == 500 > 7 * MAX_FLOAT32_SEGMENTS
    want = rlx.welch(long.astype(float), FS, nperseg=32, noverlap=0)[1]
    assert_close(device_stream.power, want, 1.2 * MAX_FLOAT32_SEGMENTS / 6300**2)


@pytest.mark.parametrize("average", AVERAGES)
def test_a_saved_stream_is_restored_on_another_device(
    adapter: AdapterRequest, average: str, tmp_path: Path
) -> None:
    """A stream moves from NumPy to a device, back, and to another device."""
    other = "llvmpipe" if "llvmpipe" not in adapter.name.lower() else "SwiftShader"
    options: dict[str, Any] = {"nperseg": 64, "n_channels": 3, "nan": "propagate"}
    options |= AVERAGES[average]
    uninterrupted = rlx.WelchStream(FS, **options)
    stream = rlx.WelchStream(FS, **options)
    places: list[dict[str, Any]] = [
        adapter_arguments(adapter),
        {},
        adapter_arguments(adapter),
        {"device": "gpu", "adapter": other},
    ]
    for index, place in enumerate(places):
        stream.save(tmp_path / "stream.npz")
        before = stream.power
        stream = rlx.WelchStream.load(tmp_path / "stream.npz", **place)
        np.testing.assert_allclose(stream.power, before, rtol=1e-6)
        x = GAPPY[:, 300 * index : 300 * (index + 1)]
        got = push_chunks(stream, x, (90,))
        want = push_chunks(uninterrupted, x.astype(float), (90,))
        for frame, other in zip(got, want, strict=True):
            is_nan = np.isnan(other.power)
            np.testing.assert_array_equal(np.isnan(frame.power), is_nan)
            assert_close(np.nan_to_num(frame.power), np.nan_to_num(other.power), 5e-6)
        assert bool(stream.lies_on) == bool(place)
    assert (stream.seconds, stream.n_segments) == (
        uninterrupted.seconds,
        uninterrupted.n_segments,
    )
    stream.reset()
    assert not stream.lies_on
    assert np.isnan(stream.power).all()


def test_blocks_beyond_float32_are_averaged_on_the_host(
    adapter: AdapterRequest,
) -> None:
    """A block beyond float32 is averaged on the host, later ones on the device."""
    options: dict[str, Any] = {"nperseg": 64, "n_channels": 3, "average": "none"}
    device_stream = rlx.WelchStream(FS, **options, **adapter_arguments(adapter))
    host_stream = rlx.WelchStream(FS, **options)
    faint = X[:, 100:300] * np.float32(1e-16)
    device_stream.push(X[:, :100])
    assert device_stream.lies_on
    device_stream.push(faint[:, :100])
    device_stream.push(faint[:, 100:])
    assert not device_stream.lies_on
    host_stream.push(np.concatenate([X[:, :100], faint], axis=1).astype(float))
    np.testing.assert_allclose(device_stream.power, host_stream.power, rtol=1e-4)
    for x in (X[:, 300:400], X[:, 400:500]):
        device_stream.push(x)
        host_stream.push(x.astype(float))
    assert device_stream.lies_on
    assert_close(device_stream.power, host_stream.power, 5e-6)


def test_copies_start_in_host_memory(adapter: AdapterRequest) -> None:
    """Copies of a stream and of its frames are in host memory; the stream stays on the
    device.
    """
    stream = rlx.WelchStream(FS, 64, n_channels=3, **adapter_arguments(adapter))
    (*_, frame) = stream.push(X[:, :400])
    for copied in (copy.deepcopy(stream), pickle.loads(pickle.dumps(stream))):
        assert (copied.lies_on, copied.n_segments) == ("", stream.n_segments)
        np.testing.assert_allclose(copied.power, stream.power, rtol=1e-6)
        copied.push(X[:, 400:500])
        assert copied.lies_on == stream.lies_on
    copied_frame = pickle.loads(pickle.dumps(frame))
    np.testing.assert_array_equal(copied_frame.power, frame.power)
    np.testing.assert_array_equal(copied_frame.peaks.hz, frame.peaks.hz)


def test_averages_too_large_to_transfer_stay_on_the_host(
    adapter: AdapterRequest,
) -> None:
    """An average over very many segments stays on the host."""
    options: dict[str, Any] = {"nperseg": 64, "average": "last", "last": 600_000}
    stream = rlx.WelchStream(FS, **options, **adapter_arguments(adapter))
    stream.push(X[0, :100])
    assert not stream.lies_on
    assert_close(
        stream.power, rlx.welch(X[:1, :96].astype(float), FS, nperseg=64)[1], 5e-6
    )


def test_only_a_named_device_holds_the_average(adapter: AdapterRequest) -> None:
    """Only a device that is named holds a stream, not NumPy or "auto"; float64 is
    refused.
    """
    for device in ("auto", "cpu", None):
        stream = rlx.WelchStream(FS, 64, n_channels=3, device=device)
        stream.push(X)
        push_chunks(stream, X, (100,))
        assert not stream.lies_on
    with pytest.raises(DTypeError, match="float64"):
        rlx.WelchStream(FS, 64, n_channels=3, **adapter_arguments(adapter)).push(
            X.astype(float)
        )


@pytest.mark.full("opengl", "swiftshader")
def test_frames_in_an_event_loop_and_on_other_threads(adapter: AdapterRequest) -> None:
    """Frames can be read in an event loop and on other threads."""
    options = {"nperseg": 64, "n_channels": 3, **adapter_arguments(adapter)}
    want = push_chunks(rlx.WelchStream(FS, 64, n_channels=3), X, (100,))

    async def collect_frames() -> list[rlx.StreamFrame]:
        stream = rlx.WelchStream(FS, **options)
        chunks = [X[:, start : start + 100] for start in range(0, 4000, 100)]
        return [frame async for frame in stream.over(chunks)]

    for one, expected_frame in zip(
        run_in_event_loop(collect_frames()), want, strict=True
    ):
        assert_close(one.power, expected_frame.power, 5e-6)
    stream = rlx.WelchStream(FS, **options)
    frames: list[rlx.StreamFrame] = []
    read_powers: list[list[Any]] = []

    def read_first_frames() -> None:
        read_powers.append([frame.power for frame in frames[:60]])

    for start in range(0, 4000, 100):
        frames += stream.push(X[:, start : start + 100])
        if start == 2000:
            threads = [threading.Thread(target=read_first_frames) for _ in range(3)]
            for one in threads:
                one.start()
    for one in threads:
        one.join(60)
    assert len(read_powers) == 3
    for powers in read_powers:
        for power, expected_frame in zip(powers, want, strict=False):
            assert_close(power, expected_frame.power, 5e-6)
