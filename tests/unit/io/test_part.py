"""A stretch of a recording, and channels left out of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import edfio
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rlxweb as rlx
from rlxweb.errors import NotFinite, RecordingWarning, UnknownName, UsageError
from rlxweb.io import Recording, check_finite, open_recording
from rlxweb.io.contents import Contents
from rlxweb.io.part import seconds_of, stretch_of
from tests.command_line import Call, check_refused
from tests.recordings import saved

NOTHING = Contents("NPY", (), ())
FS = 50.0
X = np.random.default_rng(3).standard_normal((3, 1000))


@pytest.fixture
def npy(tmp_path: Path) -> Path:
    np.save(tmp_path / "x.npy", X)
    return tmp_path / "x.npy"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90.0),
        ("1:30", 90.0),
        ("0:01:30.5", 90.5),
        (" 2:00:00 ", 7200.0),
        (".5", 0.5),
        (7, 7.0),
        (np.float32(2.5), 2.5),
    ],
)
def test_moments(text: Any, seconds: float) -> None:
    assert seconds_of("start", text, "here", NOTHING) == seconds


@pytest.mark.parametrize(
    "text", ["", "1:60", "1:2:3:4", "-1", "1:75:00", -1.0, True, float("nan")]
)
def test_what_is_no_moment(text: Any) -> None:
    with pytest.raises(UsageError, match="here: start is"):
        seconds_of("start", text, "here", NOTHING)


@pytest.mark.parametrize("text", ["1e3", "noon", "nan"])
def test_other_words_are_an_annotation(text: str) -> None:
    with pytest.raises(UnknownName, match="here: no annotation is called"):
        seconds_of("start", text, "here", NOTHING)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recording]:
    """The array as an open recording."""
    path = tmp_path_factory.mktemp("part") / "x.npy"
    np.save(path, X)
    with open_recording(path, fs=FS) as recording:
        yield recording


@given(st.integers(0, 999), st.integers(1, 1000), st.integers(1, 400))
def test_blocks_of_a_stretch_are_those_samples(
    whole: Recording, first: int, n: int, size: int
) -> None:
    """A stretch gives its samples as if the rest were not there."""
    last = min(1000, first + n)
    part = stretch_of(whole.groups[0], first / FS, last / FS, source_of_none())
    assert (part.n_samples, part.first) == (last - first, first)
    np.testing.assert_array_equal(part.read(), X[:, first:last])
    walked = np.concatenate([block.data for block in part.blocks(size)], axis=1)
    np.testing.assert_array_equal(walked, X[:, first:last])
    again = stretch_of(part, 0.0, 1 / FS, source_of_none())
    np.testing.assert_array_equal(again.read(), X[:, first : first + 1])


def source_of_none() -> Any:
    """What is told of a stretch that ends too late."""

    class Silent:
        doing = "here"

        def warn(self, text: object) -> None:
            raise AssertionError(text)

    return Silent()


def test_of_every_format(tmp_path: Path) -> None:
    """A stretch of a file of two rates is the same seconds of either."""
    signals = [
        edfio.EdfSignal(np.arange(500.0) % 97, 50.0, label="slow"),
        edfio.EdfSignal(np.arange(2000.0) % 83, 200.0, label="fast"),
    ]
    path = tmp_path / "two.edf"
    edfio.Edf(signals).write(path)
    with open_recording(path) as whole, open_recording(path, start="3", stop=7) as part:
        for one, other in zip(whole.groups, part.groups, strict=True):
            want = one.read(round(3 * one.fs), round(7 * one.fs))
            np.testing.assert_array_equal(other.read(), want)
            assert other.seconds == 4.0


def test_a_stop_beyond_the_end_is_told(npy: Path) -> None:
    with (
        pytest.warns(RecordingWarning, match="it ends at 20 s, before stop, 25 s"),
        open_recording(npy, fs=FS, start=10, stop=25) as recording,
    ):
        assert recording.groups[0].n_samples == 500


@pytest.mark.parametrize(
    ("named", "said"),
    [
        (
            {"start": 20},
            "no sample lies between 20 s and its end; it has 20 s at 50 Hz",
        ),
        ({"start": 3, "stop": 3}, "stop is 3 s; it comes after start, 3 s"),
        ({"start": "3:00:00"}, "no sample lies between 10800 s"),
        ({"stop": 0.001}, "no sample lies between 0 s and 0.001 s"),
        ({"exclude": "*"}, "all 3 channels are excluded"),
        ({"exclude": 5}, "exclude is 5; a name or a list of names"),
    ],
)
def test_stretches_that_are_none(npy: Path, named: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said.replace("*", r"\*")):
        open_recording(npy, fs=FS, **named)


def test_channels_that_are_left_out(npy: Path) -> None:
    with open_recording(npy, fs=FS, exclude=["ch2"]) as recording:
        assert recording.groups[0].names == ("ch1", "ch3")
    with open_recording(npy, fs=FS, channels="ch*", exclude="ch[12]") as recording:
        assert recording.groups[0].names == ("ch3",)
    with pytest.raises(UnknownName, match="chX"):
        open_recording(npy, fs=FS, exclude="chX")


def test_errors_name_the_sample_of_the_file(npy: Path) -> None:
    x = X.copy()
    x[1, 700] = np.nan
    np.save(npy, x)
    with open_recording(npy, fs=FS, start=10) as recording:
        (group,) = recording.groups
        with pytest.raises(NotFinite, match=r"at sample 700 \(14.000 s\)"):
            check_finite(group.read(), group)


def test_from_the_command_line(npy: Path, call: Call) -> None:
    """Commands that read recordings take the same stretch."""
    stretch = (
        "--start",
        "0:05",
        "--stop",
        "15",
        "-x",
        "ch2",
        "--fs",
        FS,
        "--json",
        "-",
    )
    said = call("welch", npy, "--preset", "scipy", "--nperseg", "100", *stretch)
    assert said.group["n_samples"] == 500
    assert [c["name"] for c in said.group["channels"]] == ["ch1", "ch3"]
    part = X[[0, 2], 250:750]
    want = rlx.welch_peaks(part, FS, 100, preset="scipy")
    got = [peak["power"] for peak in said.group["channels"][0]["peaks"]]
    np.testing.assert_allclose(got, want.power[0])
    bands = call("bands", npy, "--bands", "low=2:8", *stretch).record
    own = [row["low"]["absolute"] for row in bands["files"][0]["groups"][0]["rows"]]
    np.testing.assert_allclose(own, rlx.band_power(part, FS, {"low": (2, 8)})["low"])
    spectra = call("spectrogram", npy, *stretch).record
    assert spectra["files"][0]["groups"][0]["n_samples"] == 500
    refused = call("welch", npy, "--start", "x", "--fs", FS)
    check_refused(refused, 2, "no annotation is called 'x'")
    check_refused(call("welch", npy, "-x", "no", "--fs", FS), 2, "no")


EARLY = [
    (-0.05, 0.0, "cue"),
    (0.5, 0.0, "late"),
    (30.0, 0.0, "after"),
    (-7.0, 0.0, "x"),
]


def _with_early_notes(tmp_path: Path, kind: str) -> Path:
    """Write the samples with annotations outside of them."""
    path = tmp_path / f"n.{kind}"
    if kind == "npz":
        dtype = [("onset", "f8"), ("duration", "f8"), ("text", "U8")]
        np.savez(path, samples=X, fs=FS, annotations=np.array(EARLY, dtype))
    elif kind == "parquet":
        saved(path, X, fs=FS, annotations=EARLY)
    else:
        signals = [edfio.EdfSignal(row, FS, label=f"c{n}") for n, row in enumerate(X)]
        notes = [edfio.EdfAnnotation(at, None, text) for at, _, text in EARLY]
        edfio.Edf(signals, annotations=notes).write(path)
    return path


@pytest.mark.parametrize("kind", ["npz", "parquet", "edf"])
def test_a_stretch_begins_at_the_first_sample(tmp_path: Path, kind: str) -> None:
    """What precedes the samples in the file, its header, is never read as samples."""
    path = _with_early_notes(tmp_path, kind)
    with rlx.read(path) as whole:
        want = whole.groups[0].read()
    for start in ("cue", "x"):
        with pytest.raises(UsageError, match=r"before the first sample.*20 s at 50 Hz"):
            rlx.read(path, start=start, stop=0.1)
        with pytest.raises(UsageError, match="before the first sample"):
            rlx.read(path, start=start)
        with pytest.raises(UsageError, match="no sample lies between"):
            rlx.read(path, stop=start)
    with pytest.raises(UsageError, match="no sample lies between"):
        rlx.read(path, start="after")
    with rlx.read(path, start="late", stop=1) as part:
        np.testing.assert_array_equal(part.groups[0].read(), want[:, 25:50])
    with (
        pytest.warns(RecordingWarning, match="before stop, 30 s"),
        rlx.read(path, start="late", stop="after") as part,
    ):
        np.testing.assert_array_equal(part.groups[0].read(), want[:, 25:])


@pytest.mark.parametrize("span", [(-1, 5), (5, 1001), (7, 6), (-9, -3), (2000, 2001)])
def test_a_group_gives_no_samples_beside_its_own(
    whole: Recording, span: tuple[int, int]
) -> None:
    with pytest.raises(UsageError, match=r"0 <= start <= stop <= 1000"):
        whole.groups[0].between(*span)


@pytest.mark.parametrize("far", ["9" * 400, 1e308, -1.0, "9" * 18])
def test_far_moments_are_refused(npy: Path, far: Any) -> None:
    with pytest.raises(UsageError):
        rlx.read(npy, fs=FS, start=far)


# --- times of a stretch ------------------------------------------------------------


@pytest.fixture(scope="module")
def burst(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten minutes of faint noise, and 10 Hz from 400 to 410 s, where a note says so."""
    path = tmp_path_factory.mktemp("burst") / "long.npz"
    t = np.arange(600 * 64) / 64.0
    x = 1e-3 * np.random.default_rng(1).standard_normal(t.size)
    x += (np.abs(t - 405) < 5) * np.sin(2 * np.pi * 10 * t)
    notes = [(400.0, 10.0, "burst"), (350.0, 0.0, "before")]
    saved(path, x[None], fs=64.0, annotations=notes)
    return path


def test_times_of_a_spectrogram_are_those_of_the_file(
    burst: Path, tmp_path: Path, call: Call
) -> None:
    """Times count from the file's begin in all outputs, wherever a stretch begins."""
    found = []
    for span in ((), ("--start", "300"), ("--start", "before", "--stop", "9:00")):
        out = tmp_path / f"{len(found)}"
        said = call(
            *("spectrogram", burst, *span, "--json", "-", "--npz", f"{out}.npz"),
            *("--csv", f"{out}.csv", "--plot", f"{out}.html", "--fmin", "2"),
        )
        assert said.record["schema"] == "rlxweb.spectrogram/2"
        (channel,) = said.group["channels"]
        assert 399 < channel["s"] < 411
        row = (tmp_path / f"{len(found)}.csv").read_text().splitlines()
        assert (
            float(dict(zip(*(one.split(",") for one in row), strict=True))["s"])
            == (channel["s"])
        )
        with np.load(f"{out}.npz") as arrays:
            t, power = arrays["t"], arrays["power"][0]
        loud = t[power.max(axis=0) > 1e-3 * power.max()]
        assert 398 < loud.min() < 401
        assert 409 < loud.max() < 412
        first = 0.0 if not span else 300.0 if span[1] == "300" else 350.0
        assert t[0] == pytest.approx(first + 1.0, abs=1.0)
        found.append(channel)
        table = call("spectrogram", burst, *span, "--fmin", "2").out
        assert f"{channel['s']:.2f} s" in table


def test_times_of_results_of_a_stretch(burst: Path, tmp_path: Path) -> None:
    """Times of a stretch count from the file's begin in Python, and when saved."""
    with rlx.read(burst) as recording:
        whole = rlx.stft(recording, nperseg=128).t
    with rlx.read(burst, start=300, stop=500) as part:
        (note,) = [one for one in part.annotations if one.text == "burst"]
        found = rlx.spectrogram(part, nperseg=128, noverlap=64)
        at = found.t[np.argmax(found.values[0].max(axis=0) > 0.01)]
        assert abs(at - note.onset) <= 1.0
        assert found.t[0] == 301.0
        assert set(rlx.stft(part, nperseg=128).t) <= set(whole)
        assert found.labelled().axes[-1].about == "time from the first sample"
        morlet = rlx.tfr_morlet(part, freqs=[10.0])
        assert abs(morlet.t[np.argmax(np.abs(morlet.values[0, 0]) > 0.1)] - 400) < 0.5
        found.save(tmp_path / "a.npz")
        (group,) = part.groups
        np.testing.assert_array_equal(
            rlx.spectrogram(group.between(640, 6400), nperseg=128).t[0], 311.0
        )
    assert type(found).load(tmp_path / "a.npz").t.tolist() == found.t.tolist()


@pytest.mark.needs("pyarrow")
def test_annotations_go_with_a_stretch_that_is_converted(
    burst: Path, tmp_path: Path, call: Call
) -> None:
    """What is written is a recording of its own: it begins at 0."""
    for name in ("a.npz", "a.edf", "a.parquet"):
        assert call("convert", burst, "-o", tmp_path / name, "--start", "380").code == 0
        with rlx.read(tmp_path / name) as back:
            assert [tuple(one) for one in back.annotations] == [(20.0, 10.0, "burst")]
            level = np.abs(back.groups[0].read()[0])
            assert np.argmax(level > 0.5) / 64 == pytest.approx(20.0, abs=0.1)
