"""`WelchStream`: a running signal gives the offline estimate of its samples."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rlxweb as rlx
from rlxweb.core.errors import NotFinite, RlxError, UsageError
from rlxweb.gpu.port_protocol import AdapterRequest
from tests.run_in_threads import run_in_event_loop
from tests.unit.signal.device_comparison import adapter_arguments, assert_close

FS = 100.0
X = np.random.default_rng(12).standard_normal((3, 1500)) + 2.0
X[1] += 3 * np.sin(2 * np.pi * 11.3 * np.arange(1500) / FS)


def split_into_chunks(
    x: np.ndarray[Any, Any], sizes: list[int]
) -> list[np.ndarray[Any, Any]]:
    """Return chunks of these sizes, used in rotation, until the signal ends."""
    chunks, start, chunk_number = [], 0, 0
    while start < x.shape[1]:
        size = sizes[chunk_number % len(sizes)]
        chunks.append(x[:, start : start + size])
        start, chunk_number = start + size, chunk_number + 1
        if not any(sizes):
            break
    return chunks


@given(
    st.lists(st.integers(0, 300), min_size=1, max_size=5).filter(any),
    st.integers(1, 120),
    st.data(),
)
@settings(max_examples=60)
def test_any_chunk_sizes_give_the_offline_spectrum(
    sizes: list[int], nperseg: int, data: st.DataObject
) -> None:
    """Frames are the offline spectrum of all samples so far; the peaks agree as
    well.
    """
    noverlap = data.draw(st.integers(0, nperseg - 1))
    options: dict[str, Any] = {"nperseg": nperseg, "noverlap": noverlap}
    k = min(3, nperseg // 2 + 1)
    stream = rlx.WelchStream(FS, k=k, n_channels=3, **options)
    x = X[:, :700]
    frames = [
        frame for chunk in split_into_chunks(x, sizes) for frame in stream.push(chunk)
    ]
    hop = nperseg - noverlap
    assert len(frames) == 1 + (700 - nperseg) // hop
    assert [stream_frame.n_segments for stream_frame in frames] == list(
        range(1, len(frames) + 1)
    )
    for index in {0, len(frames) // 2, len(frames) - 1}:
        samples_so_far = x[:, : nperseg + index * hop]
        f, power = rlx.welch(samples_so_far, FS, **options)
        assert_close(frames[index].power, power, 1e-10)
        np.testing.assert_allclose(frames[index].f, f)
        assert frames[index].t == pytest.approx((index * hop + nperseg / 2) / FS)
    want = rlx.welch_peaks(
        crop_to_segments(x, nperseg, hop), FS, **options, **PEAK_OPTIONS, k=k
    )
    np.testing.assert_array_equal(stream.peaks.count, want.count)
    np.testing.assert_array_equal(frames[-1].peaks.bins, want.bins)
    assert stream.seconds == 7.0


PEAK_OPTIONS: dict[str, Any] = {"preset": "scipy", "mode": "peaks"}


def crop_to_segments(x: Any, nperseg: int, hop: int) -> Any:
    """Return the samples that belong to a segment."""
    return x[:, : nperseg + (x.shape[1] - nperseg) // hop * hop]


def test_float32_is_kept_and_frequencies_are_limited() -> None:
    stream = rlx.WelchStream(FS, 128, k=2, n_channels=3, fmin=5, fmax=20)
    stream.push(X.astype(np.float32))
    assert stream.power.dtype == np.float32
    assert stream.f[0] >= 5
    assert stream.f[-1] <= 20
    _, power = rlx.welch(X.astype(np.float32), FS, nperseg=128, fmin=5, fmax=20)
    assert_close(stream.power, power, 1e-5)
    np.testing.assert_allclose(stream.peaks.hz[1, 0], 11.3, atol=0.1)
    with pytest.raises(UsageError, match="float64, but the stream computes in float32"):
        stream.push(X)
    float32_stream = rlx.WelchStream(FS, 128, k=2, n_channels=3, precision="f32")
    float32_stream.push(X)
    assert float32_stream.power.dtype == np.float32
    expected_repr = (
        "WelchStream(3 channels at 100 Hz, 22 segments of 128 samples so far)"
    )
    assert repr(float32_stream) == expected_repr


def test_averages() -> None:
    """Averages of the last segments, fading averages and single segments follow the
    spectrogram.
    """
    options: dict[str, Any] = {"nperseg": 100, "noverlap": 50}
    _, _, power = rlx.spectrogram(X, FS, "hann", **options)
    last_stream = rlx.WelchStream(FS, n_channels=3, average="last", last=4, **options)
    fading_stream = rlx.WelchStream(
        FS, n_channels=3, average="exponential", half_life=2.0, **options
    )
    single_stream = rlx.WelchStream(FS, n_channels=3, average="none", **options)
    frames = [stream.push(X) for stream in (last_stream, fading_stream, single_stream)]
    decay = 0.5 ** (0.5 / 2.0)
    for index in range(power.shape[2]):
        assert_close(
            frames[0][index].power,
            power[..., max(0, index - 3) : index + 1].mean(axis=-1),
        )
        weights = decay ** np.arange(index, -1, -1.0)
        expected = (power[..., : index + 1] * weights).sum(axis=-1) / weights.sum()
        assert_close(frames[1][index].power, expected)
        assert_close(frames[2][index].power, power[..., index])


@pytest.mark.parametrize("average", ["all", "last", "none"])
def test_gaps(average: Any) -> None:
    """A chunk with a gap is refused as a whole, gives NaN, or is left out of its
    channel.
    """
    extra_options = {"last": 3} if average == "last" else {}
    options: dict[str, Any] = {
        "nperseg": 100,
        "noverlap": 0,
        "n_channels": 3,
        **extra_options,
    }
    x = X.copy()
    x[1, 310] = np.nan
    strict = rlx.WelchStream(FS, average=average, **options)
    strict.push(x[:, :250])
    with pytest.raises(NotFinite, match=r"channel 1 is nan at sample 310 \(3.100 s\)"):
        strict.push(x[:, 250:])
    assert strict.seconds == 2.5
    strict.push(X[:, 250:])
    assert np.isfinite(strict.power).all()
    propagating = rlx.WelchStream(FS, average=average, nan="propagate", **options)
    frames = propagating.push(x)
    assert np.isnan(frames[3].power[1]).all()
    assert np.isfinite(frames[3].power[[0, 2]]).all()
    assert frames[3].peaks.count[1] == 0
    assert np.isnan(frames[-1].power[1]).all() == (average == "all")
    skipping = rlx.WelchStream(FS, average=average, nan="skip", **options)
    skipped = skipping.push(x)
    assert np.isfinite(skipped[-1].power).all()
    if average == "all":
        rest = np.delete(X[1:2].reshape(-1, 100), 3, axis=0).reshape(1, -1)
        assert_close(
            skipped[-1].power[1:2], rlx.welch(rest, FS, nperseg=100, noverlap=0)[1]
        )


@pytest.mark.parametrize("average", ["all", "last", "exponential"])
def test_saved_and_restored_streams_give_the_same_bits(
    average: Any, tmp_path: Path
) -> None:
    """A stream can be saved and restored at any moment, through a file or not."""
    extra_options = {"last": {"last": 3}, "exponential": {"half_life": 1.5}}.get(
        average, {}
    )
    options: dict[str, Any] = {"nperseg": 64, "noverlap": 40, "window": ("kaiser", 6.0)}
    options |= {
        "detrend": "linear",
        "fmin": 3.0,
        "fmax": 30.0,
        "k": 4,
        "average": average,
    }
    uninterrupted = rlx.WelchStream(FS, n_channels=3, **options, **extra_options)
    interrupted = rlx.WelchStream(FS, n_channels=3, **options, **extra_options)
    want = uninterrupted.push(X[:, :411]) + uninterrupted.push(X[:, 411:])
    got = interrupted.push(X[:, :411])
    interrupted.save(tmp_path / "stream.npz")
    for restored in (
        rlx.WelchStream.load(tmp_path / "stream.npz"),
        rlx.WelchStream.restored(interrupted.state()),
    ):
        rest = restored.push(X[:, 411:])
        assert len(got) + len(rest) == len(want)
        for frame, expected_frame in zip([*got, *rest], want, strict=True):
            np.testing.assert_array_equal(frame.power, expected_frame.power)
            assert (frame.t, frame.n_segments) == (
                expected_frame.t,
                expected_frame.n_segments,
            )
        np.testing.assert_array_equal(restored.peaks.hz, uninterrupted.peaks.hz)
    interrupted.reset()
    assert np.isnan(interrupted.power).all()
    np.testing.assert_array_equal(interrupted.push(X)[-1].n_segments, len(want))


def test_invalid_stream_files_are_refused(tmp_path: Path) -> None:
    """Missing, truncated, foreign and newer files are refused."""
    path = tmp_path / "s.npz"
    with pytest.raises(UsageError, match="the file cannot be read as a saved stream"):
        rlx.WelchStream.load(path)
    stream = rlx.WelchStream(FS, 64)
    stream.save(path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(UsageError, match="the file cannot be read as a saved stream"):
        rlx.WelchStream.load(path)
    np.savez(path, x=X)
    with pytest.raises(UsageError, match="the value is not the state of a stream"):
        rlx.WelchStream.load(path)
    state = stream.state()
    state["about"] = np.array(str(state["about"]).replace("stream/1", "stream/9"))
    with pytest.raises(UsageError, match=r"schema rlxweb\.stream/1"):
        rlx.WelchStream.restored(state)
    del state["tail"]
    with pytest.raises(UsageError, match="the value is not the state of a stream"):
        rlx.WelchStream.restored(state)


def test_on_devices(adapter: AdapterRequest) -> None:
    x = X.astype(np.float32)
    stream = rlx.WelchStream(FS, 64, n_channels=3, k=2, **adapter_arguments(adapter))
    for chunk in split_into_chunks(x, [100, 37, 300]):
        stream.push(chunk)
    assert_close(stream.power, rlx.welch(x.astype(float), FS, nperseg=64)[1], 5e-6)
    np.testing.assert_allclose(stream.peaks.hz[1, 0], 11.3, atol=0.3)


def test_chunks_are_requested_one_at_a_time() -> None:
    """The next chunk is requested when the frames of the last one have been taken."""
    requested = []

    async def source() -> AsyncIterator[Any]:
        for index, chunk in enumerate(split_into_chunks(X, [130])):
            requested.append(index)
            yield chunk

    async def count_requests_by_frame() -> list[tuple[int, int]]:
        stream = rlx.WelchStream(FS, 100, n_channels=3)
        return [(f.n_segments, len(requested)) async for f in stream.over(source())]

    counts = run_in_event_loop(count_requests_by_frame())
    assert [n for n, _ in counts] == list(range(1, 30))
    assert counts[0] == (1, 1)
    assert counts[-1][1] == len(requested)

    async def count_frames_of_a_list() -> int:
        stream = rlx.WelchStream(FS, 100, n_channels=3)
        return len([f async for f in stream.over(split_into_chunks(X, [130]))])

    assert run_in_event_loop(count_frames_of_a_list()) == 29


def test_concurrent_pushes_are_serialized() -> None:
    stream = rlx.WelchStream(FS, 50, n_channels=3)
    ready = threading.Barrier(4)

    def feed() -> None:
        ready.wait(10)
        for _ in range(20):
            stream.push(X[:, :33])

    threads = [threading.Thread(target=feed) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert stream.seconds == 80 * 33 / FS
    assert stream.n_segments == 1 + (80 * 33 - 50) // 25


def test_one_channel_and_integers(rng: np.random.Generator) -> None:
    flat = rlx.WelchStream(FS, 64)
    flat.push(X[0])
    assert_close(flat.power, rlx.welch(X[:1], FS, nperseg=64)[1])
    counts = rng.integers(-99, 99, (2, 500)).astype(np.int16)
    stream = rlx.WelchStream(FS, 64, n_channels=2)
    stream.push(rlx.Digital(counts, 0.5, 3.0))
    assert_close(stream.power, rlx.welch(0.5 * (counts + 3.0), FS, nperseg=64)[1])


def test_numpy_numbers_are_settings_as_python_numbers_are() -> None:
    """Also of a stream that is kept: JSON has none of NumPy's."""
    x = X[:1].astype(np.float32)
    options = {"nperseg": 64, "k": 3, "average": "last", "last": 5, "prominence": 0}
    expected = rlx.WelchStream(FS, **options)
    numbers = {"k": np.int64(3), "last": np.array(5), "prominence": np.float32(0)}
    stream = rlx.WelchStream(np.float32(FS), **options | numbers | {"nperseg": 64.0})
    for one in (expected, stream):
        one.push(x[:, :500])
    restored = rlx.WelchStream.restored(stream.state())
    for one in (expected, restored):
        one.push(x[:, 500:])
    np.testing.assert_array_equal(restored.power, expected.power)
    np.testing.assert_array_equal(restored.peaks.hz, expected.peaks.hz)


@pytest.mark.parametrize("path", [3, None, b"stream.npz"])
def test_what_is_no_path_is_refused(path: Any) -> None:
    with pytest.raises(UsageError, match=r"WelchStream\.load: got .*expected a path"):
        rlx.WelchStream.load(path)
    with pytest.raises(UsageError, match=r"WelchStream\.save: got .*expected a path"):
        rlx.WelchStream(FS).save(path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fs": 0}, "fs is 0; must be above 0"),
        ({"n_channels": 0}, "n_channels is 0; must be at least 1"),
        ({"k": 99}, "k is 99; must be 1 to 33"),
        ({"noverlap": 64}, "WelchStream: noverlap"),
        ({"average": "median"}, "average is 'median'"),
        ({"average": "last"}, "average='last' requires the argument 'last'"),
        ({"average": "last", "last": 0}, "last is 0; must be at least 1"),
        ({"half_life": 3}, "'half_life' does not apply to average='all'"),
        ({"average": "exponential", "half_life": 0}, "half_life is 0 s"),
        ({"nan": "drop"}, "nan is 'drop'"),
        ({"fmin": 60}, "there is no bin at or above 60 Hz"),
        ({"mode": "tops"}, "mode is 'tops'"),
        ({"precision": "f16"}, "precision is 'f16'; it must be 'auto' or 'f32'"),
        ({"nperseg": 64.5}, "WelchStream: nperseg is 64.5; it must be a whole number"),
    ],
)
def test_invalid_streams_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(RlxError, match=message):
        rlx.WelchStream(**{"fs": FS, "nperseg": 64, "k": 4, **options})


@pytest.mark.parametrize(
    ("chunk", "message"),
    [
        (X[:2], r"a chunk of shape \[2, 1500\]; the stream has 3 channels"),
        (X[0], r"a chunk of shape \[1500\]"),
        (X + 1j, "the samples are complex128; must be real"),
        (np.array([["a"]] * 3), r"got a numpy\.ndarray of text"),
    ],
)
def test_invalid_chunks_are_refused(chunk: Any, message: str) -> None:
    stream = rlx.WelchStream(FS, 64, n_channels=3)
    with pytest.raises(RlxError, match=message):
        stream.push(chunk)
    assert stream.seconds == 0
