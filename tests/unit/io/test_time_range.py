"""Time ranges of a recording, and excluded channels."""

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
from rlxweb.core.errors import NotFinite, RecordingWarning, UnknownName, UsageError
from rlxweb.io import Recording, check_finite, open_recording
from rlxweb.io.format_reader_interface import FileContents
from rlxweb.io.time_range import parse_moment, slice_group
from tests.cli_runners import CommandRunner, check_rejected
from tests.edf_bdf_recordings import save_recording

NO_CONTENTS = FileContents("NPY", (), ())
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
def test_moments_are_parsed(text: Any, seconds: float) -> None:
    assert parse_moment("start", text, "here", NO_CONTENTS) == seconds


@pytest.mark.parametrize(
    "text", ["", "1:60", "1:2:3:4", "-1", "1:75:00", -1.0, True, float("nan")]
)
def test_an_invalid_moment_is_refused(text: Any) -> None:
    with pytest.raises(UsageError, match="here: start is"):
        parse_moment("start", text, "here", NO_CONTENTS)


@pytest.mark.parametrize("text", ["1e3", "noon", "nan"])
def test_other_text_is_looked_up_as_an_annotation(text: str) -> None:
    with pytest.raises(UnknownName, match="here: no annotation matches"):
        parse_moment("start", text, "here", NO_CONTENTS)


@pytest.fixture(scope="module")
def whole_recording(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recording]:
    """The array as an open recording."""
    path = tmp_path_factory.mktemp("part") / "x.npy"
    np.save(path, X)
    with open_recording(path, fs=FS) as recording:
        yield recording


@given(st.integers(0, 999), st.integers(1, 1000), st.integers(1, 400))
def test_blocks_of_a_time_range_cover_its_samples(
    whole_recording: Recording, first: int, n: int, size: int
) -> None:
    """A time range gives its samples as if the rest were not there."""
    last = min(1000, first + n)
    part = slice_group(
        whole_recording.groups[0], first / FS, last / FS, source_without_warnings()
    )
    assert (part.n_samples, part.first) == (last - first, first)
    np.testing.assert_array_equal(part.read(), X[:, first:last])
    joined_blocks = np.concatenate([block.data for block in part.blocks(size)], axis=1)
    np.testing.assert_array_equal(joined_blocks, X[:, first:last])
    nested_part = slice_group(part, 0.0, 1 / FS, source_without_warnings())
    np.testing.assert_array_equal(nested_part.read(), X[:, first : first + 1])


def source_without_warnings() -> Any:
    """Return a recording source that must not be warned."""

    class SourceWithoutWarnings:
        context = "here"

        def warn(self, text: object) -> None:
            raise AssertionError(text)

    return SourceWithoutWarnings()


def test_a_time_range_spans_groups_of_different_rates(tmp_path: Path) -> None:
    """A time range of a file of two rates covers the same seconds of each group."""
    signals = [
        edfio.EdfSignal(np.arange(500.0) % 97, 50.0, label="slow"),
        edfio.EdfSignal(np.arange(2000.0) % 83, 200.0, label="fast"),
    ]
    path = tmp_path / "two.edf"
    edfio.Edf(signals).write(path)
    with (
        open_recording(path) as whole_recording,
        open_recording(path, start="3", stop=7) as part,
    ):
        for whole_group, part_group in zip(
            whole_recording.groups, part.groups, strict=True
        ):
            want = whole_group.read(
                round(3 * whole_group.fs), round(7 * whole_group.fs)
            )
            np.testing.assert_array_equal(part_group.read(), want)
            assert part_group.seconds == 4.0


def test_a_stop_beyond_the_end_is_a_warning(npy: Path) -> None:
    with (
        pytest.warns(
            RecordingWarning,
            match="the recording ends at 20 s, before the requested stop at 25 s",
        ),
        open_recording(npy, fs=FS, start=10, stop=25) as recording,
    ):
        assert recording.groups[0].n_samples == 500


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"start": 20},
            "no sample is between 20 s and the end; the recording is 20 s long, "
            "sampled at 50 Hz",
        ),
        ({"start": 3, "stop": 3}, "stop is 3 s; must be after start, 3 s"),
        ({"start": "3:00:00"}, "no sample is between 10800 s"),
        ({"stop": 0.001}, "no sample is between 0 s and 0.001 s"),
        ({"exclude": "*"}, "all 3 channels are excluded"),
        ({"exclude": 5}, "exclude is 5; must be a name or a list of names"),
    ],
)
def test_empty_time_ranges_and_channel_selections_are_refused(
    npy: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message.replace("*", r"\*")):
        open_recording(npy, fs=FS, **options)


def test_channels_are_excluded_by_name(npy: Path) -> None:
    with open_recording(npy, fs=FS, exclude=["ch2"]) as recording:
        assert recording.groups[0].names == ("ch1", "ch3")
    with open_recording(npy, fs=FS, channels="ch*", exclude="ch[12]") as recording:
        assert recording.groups[0].names == ("ch3",)
    with pytest.raises(UnknownName, match="chX"):
        open_recording(npy, fs=FS, exclude="chX")


def test_errors_give_the_sample_index_in_the_file(npy: Path) -> None:
    x = X.copy()
    x[1, 700] = np.nan
    np.save(npy, x)
    with open_recording(npy, fs=FS, start=10) as recording:
        (group,) = recording.groups
        with pytest.raises(NotFinite, match=r"at sample 700 \(14.000 s\)"):
            check_finite(group.read(), group)


def test_commands_read_a_time_range(npy: Path, call: CommandRunner) -> None:
    """All commands that read recordings accept the same time range."""
    flags = (
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
    result = call("welch", npy, "--preset", "scipy", "--nperseg", "100", *flags)
    assert result.group["n_samples"] == 500
    assert [c["name"] for c in result.group["channels"]] == ["ch1", "ch3"]
    part = X[[0, 2], 250:750]
    want = rlx.welch_peaks(part, FS, 100, preset="scipy")
    got = [peak["power"] for peak in result.group["channels"][0]["peaks"]]
    np.testing.assert_allclose(got, want.power[0])
    bands = call("bands", npy, "--bands", "low=2:8", *flags).document
    levels = [row["low"]["absolute"] for row in bands["files"][0]["groups"][0]["rows"]]
    np.testing.assert_allclose(levels, rlx.band_power(part, FS, {"low": (2, 8)})["low"])
    spectra = call("spectrogram", npy, *flags).document
    assert spectra["files"][0]["groups"][0]["n_samples"] == 500
    rejected = call("welch", npy, "--start", "x", "--fs", FS)
    check_rejected(rejected, 2, "no annotation matches 'x'")
    check_rejected(call("welch", npy, "-x", "no", "--fs", FS), 2, "no")


OUTSIDE_ANNOTATIONS = [
    (-0.05, 0.0, "cue"),
    (0.5, 0.0, "late"),
    (30.0, 0.0, "after"),
    (-7.0, 0.0, "x"),
]


def _write_with_outside_annotations(tmp_path: Path, kind: str) -> Path:
    """Write the samples with annotations before and after them."""
    path = tmp_path / f"n.{kind}"
    if kind == "npz":
        dtype = [("onset", "f8"), ("duration", "f8"), ("text", "U8")]
        np.savez(
            path, samples=X, fs=FS, annotations=np.array(OUTSIDE_ANNOTATIONS, dtype)
        )
    elif kind == "parquet":
        save_recording(path, X, fs=FS, annotations=OUTSIDE_ANNOTATIONS)
    else:
        signals = [edfio.EdfSignal(row, FS, label=f"c{n}") for n, row in enumerate(X)]
        annotations = [
            edfio.EdfAnnotation(onset, None, text)
            for onset, _, text in OUTSIDE_ANNOTATIONS
        ]
        edfio.Edf(signals, annotations=annotations).write(path)
    return path


@pytest.mark.parametrize("kind", ["npz", "parquet", "edf"])
def test_a_time_range_never_begins_before_the_first_sample(
    tmp_path: Path, kind: str
) -> None:
    """Bytes before the samples, such as the header, are never read as samples."""
    path = _write_with_outside_annotations(tmp_path, kind)
    with rlx.read(path) as whole_recording:
        want = whole_recording.groups[0].read()
    for start in ("cue", "x"):
        with pytest.raises(
            UsageError, match=r"before the first sample.*20 s long, sampled at 50 Hz"
        ):
            rlx.read(path, start=start, stop=0.1)
        with pytest.raises(UsageError, match="before the first sample"):
            rlx.read(path, start=start)
        with pytest.raises(UsageError, match="no sample is between"):
            rlx.read(path, stop=start)
    with pytest.raises(UsageError, match="no sample is between"):
        rlx.read(path, start="after")
    with rlx.read(path, start="late", stop=1) as part:
        np.testing.assert_array_equal(part.groups[0].read(), want[:, 25:50])
    with (
        pytest.warns(RecordingWarning, match="before the requested stop at 30 s"),
        rlx.read(path, start="late", stop="after") as part,
    ):
        np.testing.assert_array_equal(part.groups[0].read(), want[:, 25:])


@pytest.mark.parametrize("span", [(-1, 5), (5, 1001), (7, 6), (-9, -3), (2000, 2001)])
def test_a_group_range_outside_the_group_is_refused(
    whole_recording: Recording, span: tuple[int, int]
) -> None:
    with pytest.raises(UsageError, match=r"0 <= start <= stop <= 1000"):
        whole_recording.groups[0].between(*span)


@pytest.mark.parametrize("moment", ["9" * 400, 1e308, -1.0, "9" * 18])
def test_moments_out_of_range_are_refused(npy: Path, moment: Any) -> None:
    with pytest.raises(UsageError):
        rlx.read(npy, fs=FS, start=moment)


# --- times of a stretch ------------------------------------------------------------


@pytest.fixture(scope="module")
def burst(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with ten minutes of faint noise and a 10 Hz tone from 400 to 410 s, marked
    by an annotation.
    """
    path = tmp_path_factory.mktemp("burst") / "long.npz"
    t = np.arange(600 * 64) / 64.0
    x = 1e-3 * np.random.default_rng(1).standard_normal(t.size)
    x += (np.abs(t - 405) < 5) * np.sin(2 * np.pi * 10 * t)
    annotations = [(400.0, 10.0, "burst"), (350.0, 0.0, "before")]
    save_recording(path, x[None], fs=64.0, annotations=annotations)
    return path


def test_spectrogram_times_count_from_the_file_start(
    burst: Path, tmp_path: Path, call: CommandRunner
) -> None:
    """Times count from the start of the file in all outputs, wherever a time range
    begins.
    """
    channels = []
    for span in ((), ("--start", "300"), ("--start", "before", "--stop", "9:00")):
        out = tmp_path / f"{len(channels)}"
        result = call(
            *("spectrogram", burst, *span, "--json", "-", "--npz", f"{out}.npz"),
            *("--csv", f"{out}.csv", "--plot", f"{out}.html", "--fmin", "2"),
        )
        assert result.document["schema"] == "rlxweb.spectrogram/2"
        (channel,) = result.group["channels"]
        assert 399 < channel["s"] < 411
        lines = (tmp_path / f"{len(channels)}.csv").read_text().splitlines()
        assert (
            float(dict(zip(*(line.split(",") for line in lines), strict=True))["s"])
            == (channel["s"])
        )
        with np.load(f"{out}.npz") as arrays:
            t, power = arrays["t"], arrays["power"][0]
        loud_times = t[power.max(axis=0) > 1e-3 * power.max()]
        assert 398 < loud_times.min() < 401
        assert 409 < loud_times.max() < 412
        first = 0.0 if not span else 300.0 if span[1] == "300" else 350.0
        assert t[0] == pytest.approx(first + 1.0, abs=1.0)
        channels.append(channel)
        table = call("spectrogram", burst, *span, "--fmin", "2").out
        assert f"{channel['s']:.2f} s" in table


def test_result_times_count_from_the_file_start(burst: Path, tmp_path: Path) -> None:
    """Times of a time range's results count from the start of the file in Python and
    when saved.
    """
    with rlx.read(burst) as recording:
        all_times = rlx.stft(recording, nperseg=128).t
    with rlx.read(burst, start=300, stop=500) as part:
        (burst_annotation,) = [
            annotation for annotation in part.annotations if annotation.text == "burst"
        ]
        spectrogram = rlx.spectrogram(part, nperseg=128, noverlap=64)
        peak_time = spectrogram.t[np.argmax(spectrogram.values[0].max(axis=0) > 0.01)]
        assert abs(peak_time - burst_annotation.onset) <= 1.0
        assert spectrogram.t[0] == 301.0
        assert set(rlx.stft(part, nperseg=128).t) <= set(all_times)
        assert (
            spectrogram.labelled().axes[-1].description == "time from the first sample"
        )
        morlet = rlx.tfr_morlet(part, freqs=[10.0])
        assert abs(morlet.t[np.argmax(np.abs(morlet.values[0, 0]) > 0.1)] - 400) < 0.5
        spectrogram.save(tmp_path / "a.npz")
        (group,) = part.groups
        np.testing.assert_array_equal(
            rlx.spectrogram(group.between(640, 6400), nperseg=128).t[0], 311.0
        )
    assert (
        type(spectrogram).load(tmp_path / "a.npz").t.tolist() == spectrogram.t.tolist()
    )


@pytest.mark.needs("pyarrow")
def test_a_converted_time_range_keeps_its_annotations(
    burst: Path, tmp_path: Path, call: CommandRunner
) -> None:
    """A converted time range is a recording of its own that begins at 0."""
    for name in ("a.npz", "a.edf", "a.parquet"):
        assert call("convert", burst, "-o", tmp_path / name, "--start", "380").code == 0
        with rlx.read(tmp_path / name) as converted:
            assert [tuple(annotation) for annotation in converted.annotations] == [
                (20.0, 10.0, "burst")
            ]
            level = np.abs(converted.groups[0].read()[0])
            assert np.argmax(level > 0.5) / 64 == pytest.approx(20.0, abs=0.1)
