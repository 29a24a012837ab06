"""`WelchStream`: a running signal gives what the offline call gives of its samples."""

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
from rlxweb.errors import NotFinite, RlxError, UsageError
from rlxweb.gpu.port import Want
from tests.threads import in_a_loop
from tests.unit.signal.near import by_name, close

FS = 100.0
X = np.random.default_rng(12).standard_normal((3, 1500)) + 2.0
X[1] += 3 * np.sin(2 * np.pi * 11.3 * np.arange(1500) / FS)


def cut_at(x: np.ndarray[Any, Any], sizes: list[int]) -> list[np.ndarray[Any, Any]]:
    """Chunks of these sizes, over and over, until there is no more."""
    chunks, at, turn = [], 0, 0
    while at < x.shape[1]:
        size = sizes[turn % len(sizes)]
        chunks.append(x[:, at : at + size])
        at, turn = at + size, turn + 1
        if not any(sizes):
            break
    return chunks


@given(
    st.lists(st.integers(0, 300), min_size=1, max_size=5).filter(any),
    st.integers(1, 120),
    st.data(),
)
@settings(max_examples=60)
def test_any_chunks_make_the_offline_spectrum(
    sizes: list[int], nperseg: int, data: st.DataObject
) -> None:
    """Frames are the offline spectrum of all samples so far; peaks too."""
    noverlap = data.draw(st.integers(0, nperseg - 1))
    named: dict[str, Any] = {"nperseg": nperseg, "noverlap": noverlap}
    k = min(3, nperseg // 2 + 1)
    stream = rlx.WelchStream(FS, k=k, n_channels=3, **named)
    x = X[:, :700]
    made = [frame for chunk in cut_at(x, sizes) for frame in stream.push(chunk)]
    hop = nperseg - noverlap
    assert len(made) == 1 + (700 - nperseg) // hop
    assert [one.n_segments for one in made] == list(range(1, len(made) + 1))
    for at in {0, len(made) // 2, len(made) - 1}:
        until = x[:, : nperseg + at * hop]
        f, power = rlx.welch(until, FS, **named)
        close(made[at].power, power, 1e-10)
        np.testing.assert_allclose(made[at].f, f)
        assert made[at].t == pytest.approx((at * hop + nperseg / 2) / FS)
    want = rlx.welch_peaks(until_last(x, nperseg, hop), FS, **named, **PEAKS, k=k)
    np.testing.assert_array_equal(stream.peaks.count, want.count)
    np.testing.assert_array_equal(made[-1].peaks.bins, want.bins)
    assert stream.seconds == 7.0


PEAKS: dict[str, Any] = {"preset": "scipy", "mode": "peaks"}


def until_last(x: Any, nperseg: int, hop: int) -> Any:
    """The samples that are in a segment."""
    return x[:, : nperseg + (x.shape[1] - nperseg) // hop * hop]


def test_float32_stays_and_a_band_is_looked_at() -> None:
    stream = rlx.WelchStream(FS, 128, k=2, n_channels=3, fmin=5, fmax=20)
    stream.push(X.astype(np.float32))
    assert stream.power.dtype == np.float32
    assert stream.f[0] >= 5
    assert stream.f[-1] <= 20
    _, power = rlx.welch(X.astype(np.float32), FS, nperseg=128, fmin=5, fmax=20)
    close(stream.power, power, 1e-5)
    np.testing.assert_allclose(stream.peaks.hz[1, 0], 11.3, atol=0.1)
    with pytest.raises(UsageError, match="float64 in a stream of float32"):
        stream.push(X)
    narrow = rlx.WelchStream(FS, 128, k=2, n_channels=3, precision="f32")
    narrow.push(X)
    assert narrow.power.dtype == np.float32
    said = "WelchStream(3 channels at 100 Hz, 22 segments of 128 so far)"
    assert repr(narrow) == said


def test_averages() -> None:
    """The last few, a fading and no average are those of spectrograms."""
    named: dict[str, Any] = {"nperseg": 100, "noverlap": 50}
    _, _, power = rlx.spectrogram(X, FS, "hann", **named)
    last = rlx.WelchStream(FS, n_channels=3, average="last", last=4, **named)
    fade = rlx.WelchStream(
        FS, n_channels=3, average="exponential", half_life=2.0, **named
    )
    none = rlx.WelchStream(FS, n_channels=3, average="none", **named)
    frames = [stream.push(X) for stream in (last, fade, none)]
    keep = 0.5 ** (0.5 / 2.0)
    for at in range(power.shape[2]):
        close(frames[0][at].power, power[..., max(0, at - 3) : at + 1].mean(axis=-1))
        weights = keep ** np.arange(at, -1, -1.0)
        faded = (power[..., : at + 1] * weights).sum(axis=-1) / weights.sum()
        close(frames[1][at].power, faded)
        close(frames[2][at].power, power[..., at])


@pytest.mark.parametrize("average", ["all", "last", "none"])
def test_gaps(average: Any) -> None:
    """Gaps are refused whole, or NaN, or left out of their channel."""
    more = {"last": 3} if average == "last" else {}
    named: dict[str, Any] = {"nperseg": 100, "noverlap": 0, "n_channels": 3, **more}
    x = X.copy()
    x[1, 310] = np.nan
    strict = rlx.WelchStream(FS, average=average, **named)
    strict.push(x[:, :250])
    with pytest.raises(NotFinite, match=r"channel 1 is nan at sample 310 \(3.100 s\)"):
        strict.push(x[:, 250:])
    assert strict.seconds == 2.5
    strict.push(X[:, 250:])
    assert np.isfinite(strict.power).all()
    through = rlx.WelchStream(FS, average=average, nan="propagate", **named)
    frames = through.push(x)
    assert np.isnan(frames[3].power[1]).all()
    assert np.isfinite(frames[3].power[[0, 2]]).all()
    assert frames[3].peaks.count[1] == 0
    assert np.isnan(frames[-1].power[1]).all() == (average == "all")
    skipping = rlx.WelchStream(FS, average=average, nan="skip", **named)
    skipped = skipping.push(x)
    assert np.isfinite(skipped[-1].power).all()
    if average == "all":
        rest = np.delete(X[1:2].reshape(-1, 100), 3, axis=0).reshape(1, -1)
        close(skipped[-1].power[1:2], rlx.welch(rest, FS, nperseg=100, noverlap=0)[1])


@pytest.mark.parametrize("average", ["all", "last", "exponential"])
def test_kept_and_restored_to_the_same_bits(average: Any, tmp_path: Path) -> None:
    """A stream is kept and restored at any moment, through a file or not."""
    more = {"last": {"last": 3}, "exponential": {"half_life": 1.5}}.get(average, {})
    named: dict[str, Any] = {"nperseg": 64, "noverlap": 40, "window": ("kaiser", 6.0)}
    named |= {
        "detrend": "linear",
        "fmin": 3.0,
        "fmax": 30.0,
        "k": 4,
        "average": average,
    }
    whole = rlx.WelchStream(FS, n_channels=3, **named, **more)
    part = rlx.WelchStream(FS, n_channels=3, **named, **more)
    want = whole.push(X[:, :411]) + whole.push(X[:, 411:])
    got = part.push(X[:, :411])
    part.save(tmp_path / "stream.npz")
    for again in (
        rlx.WelchStream.load(tmp_path / "stream.npz"),
        rlx.WelchStream.restored(part.state()),
    ):
        rest = again.push(X[:, 411:])
        assert len(got) + len(rest) == len(want)
        for one, other in zip([*got, *rest], want, strict=True):
            np.testing.assert_array_equal(one.power, other.power)
            assert (one.t, one.n_segments) == (other.t, other.n_segments)
        np.testing.assert_array_equal(again.peaks.hz, whole.peaks.hz)
    part.reset()
    assert np.isnan(part.power).all()
    np.testing.assert_array_equal(part.push(X)[-1].n_segments, len(want))


def test_files_that_are_none(tmp_path: Path) -> None:
    """Files missing, cut short, of something else or of a later version are refused."""
    path = tmp_path / "s.npz"
    with pytest.raises(UsageError, match="it cannot be read as a stream's file"):
        rlx.WelchStream.load(path)
    stream = rlx.WelchStream(FS, 64)
    stream.save(path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(UsageError, match="it cannot be read as a stream's file"):
        rlx.WelchStream.load(path)
    np.savez(path, x=X)
    with pytest.raises(UsageError, match="it is no state of a stream"):
        rlx.WelchStream.load(path)
    state = stream.state()
    state["about"] = np.array(str(state["about"]).replace("stream/1", "stream/9"))
    with pytest.raises(UsageError, match=r"schema rlxweb\.stream/1"):
        rlx.WelchStream.restored(state)
    del state["tail"]
    with pytest.raises(UsageError, match="it is no state of a stream"):
        rlx.WelchStream.restored(state)


def test_on_devices(adapter: Want) -> None:
    x = X.astype(np.float32)
    stream = rlx.WelchStream(FS, 64, n_channels=3, k=2, **by_name(adapter))
    for chunk in cut_at(x, [100, 37, 300]):
        stream.push(chunk)
    close(stream.power, rlx.welch(x.astype(float), FS, nperseg=64)[1], 5e-6)
    np.testing.assert_allclose(stream.peaks.hz[1, 0], 11.3, atol=0.3)


def test_frames_while_chunks_come() -> None:
    """The source is asked for the next chunk when the frames of the last are taken."""
    asked = []

    async def source() -> AsyncIterator[Any]:
        for at, chunk in enumerate(cut_at(X, [130])):
            asked.append(at)
            yield chunk

    async def watched() -> list[tuple[int, int]]:
        stream = rlx.WelchStream(FS, 100, n_channels=3)
        return [(f.n_segments, len(asked)) async for f in stream.over(source())]

    seen = in_a_loop(watched())
    assert [n for n, _ in seen] == list(range(1, 30))
    assert seen[0] == (1, 1)
    assert seen[-1][1] == len(asked)

    async def of_a_list() -> int:
        stream = rlx.WelchStream(FS, 100, n_channels=3)
        return len([f async for f in stream.over(cut_at(X, [130]))])

    assert in_a_loop(of_a_list()) == 29


def test_threads_take_turns() -> None:
    stream = rlx.WelchStream(FS, 50, n_channels=3)
    ready = threading.Barrier(4)

    def feed() -> None:
        ready.wait(10)
        for _ in range(20):
            stream.push(X[:, :33])

    threads = [threading.Thread(target=feed) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(30)
    assert stream.seconds == 80 * 33 / FS
    assert stream.n_segments == 1 + (80 * 33 - 50) // 25


def test_one_channel_and_integers(rng: np.random.Generator) -> None:
    flat = rlx.WelchStream(FS, 64)
    flat.push(X[0])
    close(flat.power, rlx.welch(X[:1], FS, nperseg=64)[1])
    counts = rng.integers(-99, 99, (2, 500)).astype(np.int16)
    stream = rlx.WelchStream(FS, 64, n_channels=2)
    stream.push(rlx.Digital(counts, 0.5, 3.0))
    close(stream.power, rlx.welch(0.5 * (counts + 3.0), FS, nperseg=64)[1])


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ({"fs": 0}, "fs is 0; it must be above 0"),
        ({"n_channels": 0}, "0 channels; at least 1"),
        ({"k": 99}, "k is 99; it must be 1 to 33"),
        ({"noverlap": 64}, "WelchStream: noverlap"),
        ({"average": "median"}, "average is 'median'"),
        ({"average": "last"}, "average='last' needs last"),
        ({"average": "last", "last": 0}, "last is 0; it must be at least 1"),
        ({"half_life": 3}, "half_life was given for average='all'"),
        ({"average": "exponential", "half_life": 0}, "half_life is 0 s"),
        ({"nan": "drop"}, "nan is 'drop'"),
        ({"fmin": 60}, "no bin lies from 60 Hz on"),
        ({"mode": "tops"}, "mode is 'tops'"),
    ],
)
def test_streams_that_are_none(named: dict[str, Any], said: str) -> None:
    with pytest.raises(RlxError, match=said):
        rlx.WelchStream(**{"fs": FS, "nperseg": 64, "k": 4, **named})


@pytest.mark.parametrize(
    ("chunk", "said"),
    [
        (X[:2], r"a chunk of shape \[2, 1500\]; 3 channels were announced"),
        (X[0], r"a chunk of shape \[1500\]"),
        (X + 1j, "samples of complex128; real ones are wanted"),
        (np.array([["a"]] * 3), "of text was given"),
    ],
)
def test_chunks_that_are_none(chunk: Any, said: str) -> None:
    stream = rlx.WelchStream(FS, 64, n_channels=3)
    with pytest.raises(RlxError, match=said):
        stream.push(chunk)
    assert stream.seconds == 0
