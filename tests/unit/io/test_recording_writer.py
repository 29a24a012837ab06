"""Written recordings are read back: samples, names, units, rates and annotations."""

from __future__ import annotations

import datetime
import io
import json
import os
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import edfio
import numpy as np
import pytest

from rlxweb.core.errors import (
    DTypeError,
    NotFinite,
    RecordingError,
    RecordingWarning,
    ShapeError,
    UsageError,
)
from rlxweb.io import Annotation, Recording, open_recording, prepared
from rlxweb.io.formats import WRITERS
from tests.edf_bdf_recordings import (
    EDFIO_TYPES,
    read_with_edfio,
    save_recording,
    write_discontinuous,
    write_recording,
)


def require_library(library: str) -> None:
    """Skip the test in a browser tab, which lacks the library; elsewhere the library
    must be installed.
    """
    if library and sys.platform == "emscripten":
        pytest.importorskip(library)
    elif library:
        import_module(library)


X = np.random.default_rng(11).normal(0, 50, (3, 2560)) * [[1.0], [0.3], [1e-3]]
NAMES = ["Fp1", "Fp2", "Cz"]
DAY = datetime.date(2002, 2, 28)
ANNOTATIONS = (
    Annotation(0.5, 0.0, "Beginn, größer"),
    Annotation(1.25, 2.0, "sleep"),
    Annotation(9.0, 0.0, "last"),
)


def save_example(path: Path, x: Any = X, **overrides: Any) -> Any:
    """Save samples at 256 Hz, in microvolts, with annotations, time of day and date."""
    options = {
        "fs": 256,
        "units": "uV",
        "annotations": ANNOTATIONS,
        "begun": 3661.5,
        "date": DAY,
    }
    return save_recording(path, x, **{**options, **overrides})


def read_float64(recording: Recording) -> np.ndarray:
    (group,) = recording.groups
    return np.asarray(group.read(), np.float64)


@pytest.mark.parametrize(("kind", "bits"), [("edf", 16), ("bdf", 24)])
def test_edf_and_bdf_store_samples_to_half_a_step(
    tmp_path: Path, kind: str, bits: int
) -> None:
    """Each channel has its own range; the error is at most half a step and is
    reported.
    """
    path = tmp_path / f"a.{kind}"
    result = save_example(path, channels=NAMES)
    (saved_group,) = result.groups
    with open_recording(path) as recording:
        errors = np.abs(read_float64(recording) - X).max(axis=1)
        (group,) = recording.groups
        assert recording.format == f"{kind.upper()}+C"
        assert group.names == tuple(NAMES)
        assert {channel.unit for channel in group.channels} == {"uV"}
        assert group.fs == 256.0
        assert (recording.begun, recording.date) == (3661.5, DAY)
        assert recording.annotations == ANNOTATIONS
    steps = np.array([channel.step for channel in saved_group.channels])
    spans = np.ptp(X, axis=1)
    assert (steps < 1.1 * spans / (1 << bits)).all()
    assert (errors <= 0.5000001 * steps).all()
    np.testing.assert_allclose(
        [c.error for c in saved_group.channels], errors, rtol=1e-9
    )
    assert result.lost == ()
    assert result.annotations == 3
    assert f"{kind}, 3 channels at 256 Hz, 2560 samples" in repr(result)
    edfio_signals = read_with_edfio(path)
    np.testing.assert_allclose(np.array([*edfio_signals.values()]), X, atol=steps.max())


def test_edfio_reads_annotations_and_header(tmp_path: Path) -> None:
    """The edfio library reads annotations, time of day and limits."""
    save_example(tmp_path / "a.edf", channels=NAMES)
    edf = edfio.read_edf(tmp_path / "a.edf")
    assert [(a.onset, a.duration or 0.0, a.text) for a in edf.annotations] == [
        *ANNOTATIONS
    ]
    assert (edf.starttime.hour, edf.starttime.minute, edf.starttime.second) == (1, 1, 1)
    assert edf.starttime.microsecond == 500_000
    for signal, row in zip(edf.signals, X, strict=True):
        assert signal.physical_min <= row.min() <= row.max() <= signal.physical_max


@pytest.mark.parametrize("kind", [".edf", ".bdf"])
def test_stored_integers_are_written_unchanged(
    tmp_path: Path, kind: str, rng: np.random.Generator
) -> None:
    """Stored integers, and so the values, are preserved whatever the file's limits
    were.
    """
    signal_type, file_type, read = EDFIO_TYPES[kind]
    path, saved_path = tmp_path / f"a{kind}", tmp_path / f"b{kind}"
    ranges = [(-500, 500), (-187.5, 187.5), (-0.25, 3276.75), (800, -800)]
    signals = [
        signal_type(rng.uniform(0, 150, 512), 128, label=f"c{n}", physical_range=span)
        for n, span in enumerate(ranges[:3])
    ]
    file_type(signals).write(path)
    with open_recording(path) as recording:
        result = save_recording(saved_path, recording)
    assert [channel.error for channel in result.groups[0].channels] == [0.0, 0.0, 0.0]
    with open_recording(path) as first, open_recording(saved_path) as second:
        first_stored, second_stored = (
            r.groups[0].read_stored() for r in (first, second)
        )
        np.testing.assert_array_equal(first_stored.counts, second_stored.counts)  # type: ignore[union-attr]
        np.testing.assert_allclose(
            read_float64(first), read_float64(second), rtol=1e-12
        )
    assert len(read(saved_path).signals) == 3


@pytest.mark.parametrize(
    ("fs", "n_samples"),
    [(256, 2560), (100, 2557), (300, 900), (44100, 44100), (0.5, 7), (1000 / 3, 1000)],
)
def test_no_padding_where_a_record_length_fits(
    tmp_path: Path, fs: float, n_samples: int, rng: np.random.Generator
) -> None:
    """A record length is found for any number of samples, even a prime."""
    x = rng.normal(size=(1, n_samples))
    result = save_recording(tmp_path / "a.edf", x, fs=fs, begun=0)
    assert result.lost == ()
    with open_recording(tmp_path / "a.edf") as recording:
        (group,) = recording.groups
        assert group.fs == pytest.approx(fs, rel=1e-9)
        assert group.n_samples == n_samples


@pytest.mark.parametrize(
    ("fs", "n_samples", "max_padding"),
    [(300, 1000, 150), (44100, 44101, 882), (1e3, 10**6, 0)],
)
def test_padding_of_the_last_record_is_reported(
    tmp_path: Path,
    fs: float,
    n_samples: int,
    max_padding: int,
    rng: np.random.Generator,
) -> None:
    """The last record is padded as little as possible, by repeating the last sample."""
    x = rng.normal(size=(1, n_samples))
    result = save_recording(tmp_path / "a.edf", x, fs=fs, begun=0)
    with open_recording(tmp_path / "a.edf") as recording:
        values = read_float64(recording)
    padding = values.shape[1] - n_samples
    assert 0 <= padding <= max_padding
    assert set(values[0, n_samples:]) <= {values[0, n_samples - 1]}
    if padding:
        assert result.lost == (
            f"the last data record is padded: the last of {n_samples} samples at "
            f"{fs:g} Hz is repeated {padding} times",
        )
        header = edfio.read_edf(tmp_path / "a.edf").recording
        assert header.additional == (f"samples={n_samples}",)


def test_a_rate_that_is_nearly_exact_saves_padding(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    """Records that are exact to 1e-9 would have padded 5,000 samples to 5,515."""
    x = rng.normal(size=(1, 5000))
    result = save_recording(tmp_path / "a.edf", x, fs=99.97, begun=0)
    assert result.groups[0].n_samples == 5000
    assert result.groups[0].fs == pytest.approx(99.97, rel=1e-7)
    assert result.lost == (
        f"the rate 99.97 Hz is stored as {result.groups[0].fs:.12g} Hz",
    )


@pytest.mark.parametrize("kind", ["edf", "bdf"])
@pytest.mark.parametrize(
    ("fs", "n_samples", "padding"),
    [
        (1e6, 1000, 0),
        (250, 1, 0),
        (1e6, 1, 0),
        (256, 3, 1),
        (250, 9, 0),
        (44_100, 50, 391),
    ],
)
def test_short_recordings_have_short_records(
    tmp_path: Path,
    kind: str,
    fs: float,
    n_samples: int,
    padding: int,
    rng: np.random.Generator,
) -> None:
    """Record lengths of short recordings leave the least padding, mostly none."""
    path = tmp_path / f"a.{kind}"
    x = rng.normal(size=(2, n_samples))
    result = save_recording(path, x, fs=fs, begun=0)
    assert result.groups[0].n_samples == n_samples + padding
    assert len(result.lost) == (padding > 0)
    with open_recording(path) as recording:
        (group,) = recording.groups
        assert (group.fs, group.n_samples) == (pytest.approx(fs), n_samples + padding)
        values = read_float64(recording)[:, :n_samples]
    np.testing.assert_allclose(values, x, atol=1e-4)
    edfio_samples = np.array([*read_with_edfio(path).values()])
    np.testing.assert_allclose(edfio_samples[:, :n_samples], x, atol=1e-4)


def test_long_recordings_do_not_have_short_records(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    """The time stamps of short records would take more space than the saved samples."""
    save_recording(
        tmp_path / "a.edf", rng.normal(size=(1, 1_000_003)), fs=1000, begun=0
    )
    assert (tmp_path / "a.edf").stat().st_size < 2.2 * 1_000_003


def test_a_few_samples_are_padded_to_a_record(tmp_path: Path) -> None:
    result = save_recording(tmp_path / "a.edf", [[1.0, 2.0, 3.0]], fs=256, begun=0)
    assert "the last of 3 samples at 256 Hz is repeated" in result.lost[0]
    with open_recording(tmp_path / "a.edf") as recording:
        values = read_float64(recording)
    assert values[0, :3].tolist() == pytest.approx([1, 2, 3], abs=1e-4)
    assert set(values[0, 2:]) == {values[0, 2]}


def test_an_inexact_rate_is_reported(tmp_path: Path, rng: np.random.Generator) -> None:
    """Short recordings have few record lengths to choose from."""
    x = rng.normal(size=(1, 40))
    result = save_recording(tmp_path / "a.edf", x, fs=511.97331234, begun=0)
    assert any("511.97331234 Hz is stored as 511.97" in loss for loss in result.lost)
    with open_recording(tmp_path / "a.edf") as recording:
        assert recording.groups[0].fs == pytest.approx(511.97331234, rel=1e-6)


def test_channels_of_several_rates_are_saved_to_one_edf_file(tmp_path: Path) -> None:
    """EDF stores channels of several rates; another format is refused with an
    alternative.
    """
    path = write_recording(tmp_path / "a.edf", ("Fz", 128), ("Resp", 16), seconds=5)
    with open_recording(path) as recording:
        result = save_recording(tmp_path / "b.edf", recording)
        assert [(g.fs, g.n_samples) for g in result.groups] == [(128, 640), (16, 80)]
        with open_recording(tmp_path / "b.edf") as saved_recording:
            for first, second in zip(
                recording.groups, saved_recording.groups, strict=True
            ):
                np.testing.assert_allclose(first.read(), second.read(), rtol=1e-12)
        with pytest.raises(UsageError, match=r"2 rates: 128, 16 Hz; a \.npz file"):
            save_recording(tmp_path / "b.npz", recording)
        save_recording(tmp_path / "b.npz", recording, groups=recording.groups[1])
    assert sorted(os.listdir(tmp_path)) == ["a.edf", "b.edf", "b.npz"]


@pytest.mark.parametrize("kind", ["npz", "wav", "parquet"])
def test_compatible_groups_are_merged(tmp_path: Path, kind: str) -> None:
    """Compatible groups are merged; the error names what keeps other groups apart."""
    require_library(WRITERS[kind].library)
    path = write_recording(
        tmp_path / "a.edf", ("A", 256), ("R", 100), ("B", 256), seconds=9
    )
    out = tmp_path / f"b.{kind}"
    with open_recording(path, resample=100) as recording:
        result = save_recording(out, recording)
        (merged_group,) = result.groups
        assert [channel.name for channel in merged_group.channels] == ["A", "R", "B"]
        (a, b), (r,) = (np.asarray(group.read()) for group in recording.groups)
        with open_recording(out) as saved_recording:
            np.testing.assert_allclose(
                saved_recording.groups[0].read(), [a, r, b], rtol=1e-6
            )
        first, second = recording.groups
        for groups, match in (
            ((first.between(0, 99), second), "one has 99 samples, the other 900"),
            (
                (first.between(0, 9), second.between(5, 14)),
                "starts at 0 s, the other at 0.05",
            ),
            ((first, first), "both groups have a channel named 'A'"),
        ):
            with pytest.raises(UsageError, match=match):
                save_recording(out, recording, groups=groups)
    int64_and_float64_groups = [
        Recording.from_array(np.ones((1, 4), t), 9).groups[0] for t in "qd"
    ]
    with pytest.raises(UsageError, match="one has dtype int64, the other float64"):
        save_recording(out, recording, groups=int64_and_float64_groups)


def test_gaps_are_nan_in_float_formats(tmp_path: Path) -> None:
    """Gaps are written as NaN and reported; integer formats have no NaN, so pieces go
    into separate files.
    """
    path = write_discontinuous(tmp_path / "a.edf", ["0", "1", "5", "6"], ("Fz", 64))
    with pytest.warns(RecordingWarning, match="gap"):
        recording = open_recording(path)
    with recording:
        (group,) = recording.groups
        result = save_recording(tmp_path / "a.npz", recording)
        assert result.lost == ("1 gap is written as NaN",)
        for name, more in (("b.edf", {}), ("b.bdf", {}), ("b.wav", {"bits": 16})):
            with pytest.raises(
                UsageError, match=r"has 1 gap; .* select a part without gaps"
            ):
                save_recording(tmp_path / name, recording, **more)
        for i, piece in enumerate(group.pieces):
            save_recording(tmp_path / f"piece{i}.edf", recording, groups=piece)
            with open_recording(tmp_path / f"piece{i}.edf") as saved_recording:
                np.testing.assert_allclose(
                    read_float64(saved_recording), piece.read(), rtol=1e-12
                )
        with np.load(tmp_path / "a.npz") as arrays:
            np.testing.assert_array_equal(arrays["samples"], group.read())
    assert not (tmp_path / "b.edf").exists()


def test_many_annotations_are_stored(tmp_path: Path) -> None:
    """Many or long annotations of one second go into later records."""
    annotations = [Annotation(0.001 * n, 0.0, f"note {n}") for n in range(900)]
    annotations.append(Annotation(9.5, 0.25, "x" * 2000))
    path = tmp_path / "a.edf"
    save_example(path, annotations=annotations)
    with open_recording(path) as recording:
        assert len(recording.annotations) == 901
        for annotation, expected in zip(
            recording.annotations, annotations, strict=True
        ):
            assert annotation.text == expected.text
            assert annotation.onset == pytest.approx(expected.onset, abs=1e-9)
    assert path.stat().st_size < 100_000
    save_example(path, annotations=[(1, None, "a\x14b\0c")])
    with open_recording(path) as recording:
        assert recording.annotations == ((1.0, 0.0, "a b c"),)


def test_names_and_units_are_adapted_to_edf(tmp_path: Path) -> None:
    """Names and units are shortened and transliterated, kept distinct, and changes are
    reported.
    """
    names = ["älter als 漢字 und lang", "a very long name 1", "a very long name 2"]
    result = save_recording(
        tmp_path / "a.edf",
        X,
        fs=256,
        channels=names,
        units=["µV", "Ω", "漢"],
        begun=0,
    )
    with open_recording(tmp_path / "a.edf") as recording:
        (group,) = recording.groups
    assert group.names == ("alter als ?? und", "a very long name", "a very long na~2")
    assert [channel.unit for channel in group.channels] == ["uV", "Ohm", "?"]
    assert "'a very long name 2' becomes 'a very long na~2'" in result.lost[0]
    assert result.lost[1] == "the unit '漢' is stored as '?'"
    result = save_recording(tmp_path / "a.edf", X[0] * 1e-6, fs=256, units="V", begun=0)
    with open_recording(tmp_path / "a.edf") as recording:
        (group,) = recording.groups
        assert group.channels[0].unit == "uV"
        assert group.names == ("ch1",)
        error = np.abs(read_float64(recording)[0] - X[0]).max()
    assert error == pytest.approx(result.groups[0].channels[0].error, rel=1e-6)


def test_a_time_range_keeps_its_annotations_and_time(tmp_path: Path) -> None:
    """An annotation that lasts into the range keeps its duration within it; the others
    are counted.
    """
    path = tmp_path / "a.edf"
    save_example(path)
    with open_recording(path, start=2.0, stop=6.0) as recording:
        result = save_recording(tmp_path / "b.edf", recording)
    assert result.lost == ("2 annotations are outside the written part and omitted",)
    with open_recording(tmp_path / "b.edf") as recording:
        assert (recording.begun, recording.date) == (3663.5, DAY)
        assert recording.annotations == ((0.0, 1.25, "sleep"),)
        error = np.abs(read_float64(recording) - X[:, 512:1536]).max()
    assert error < 0.01


@pytest.mark.parametrize("dtype", ["f8", "f4", "i2", "u1", "i4"])
def test_npz_stores_every_dtype_bit_by_bit(tmp_path: Path, dtype: str) -> None:
    """NumPy alone reads back the samples and the attributes."""
    x = (100 + X).astype(dtype)
    result = save_example(tmp_path / "a.npz", x, channels=NAMES)
    assert result.lost == ()
    with np.load(tmp_path / "a.npz") as arrays:
        np.testing.assert_array_equal(arrays["samples"], x)
        assert arrays["samples"].dtype == x.dtype
        assert (float(arrays["fs"]), float(arrays["begun"])) == (256.0, 3661.5)
        assert str(arrays["date"]) == "2002-02-28"
        assert [*arrays["channels"]] == NAMES
        assert [*arrays["units"]] == ["uV"] * 3
        assert [tuple(row) for row in arrays["annotations"]] == [*ANNOTATIONS]
    with open_recording(tmp_path / "a.npz") as recording:
        np.testing.assert_array_equal(read_float64(recording), x)
        (group,) = recording.groups
        assert group.names == tuple(NAMES)
        assert {channel.unit for channel in group.channels} == {"uV"}
        assert (recording.begun, recording.date) == (3661.5, DAY)
        assert recording.annotations == ANNOTATIONS


@pytest.mark.parametrize("dtype", ["i8", "u8"])
@pytest.mark.parametrize(
    ("kind", "bits"),
    [("npz", None), ("parquet", None), ("wav", 64), ("wav", 32), ("edf", None)],
)
def test_the_reported_error_of_64_bit_integers_is_exact(
    tmp_path: Path, kind: str, bits: int | None, dtype: str
) -> None:
    """float64 has no odd numbers beyond 2**53; NPZ stores and returns all of them."""
    require_library(WRITERS[kind].library)
    rows = [[2**53 + 1, 5], [2**62 + 129, 0], [7, 8]]
    if dtype == "i8":
        rows = [[-a, b] for a, b in rows]
    path = tmp_path / f"a.{kind}"
    result = save_recording(path, np.array(rows, dtype), fs=4, bits=bits, begun=0)
    with open_recording(path) as recording:
        values = recording.groups[0].read()[:, :2]
    errors = [
        max(abs(a - int(b)) for a, b in zip(*pair, strict=True))
        for pair in zip(rows, values, strict=True)
    ]
    if kind == "edf":
        assert [c.error for c in result.groups[0].channels] == pytest.approx(
            errors, rel=1e-9
        )
    else:
        assert [c.error for c in result.groups[0].channels] == errors
    exact = {"npz": [0, 0, 0], "wav": [1, 129, 0], "parquet": [1, 129, 0]}
    if bits != 32 and kind in exact:
        assert errors == exact[kind]


def test_wav_of_floats_and_of_integers(tmp_path: Path) -> None:
    """WAV stores floats and integers as the reader returns them, with the reported
    error.
    """
    path, x = tmp_path / "a.wav", X / 256
    for bits, step in ((64, 0.0), (32, 0.0), (24, 2.0**-23), (16, 2.0**-15)):
        result = save_example(path, x, bits=bits)
        (saved_group,) = result.groups
        with open_recording(path) as recording:
            errors = np.abs(read_float64(recording) - x).max(axis=1)
        np.testing.assert_array_equal([c.error for c in saved_group.channels], errors)
        assert {c.step for c in saved_group.channels} == {step}
        assert errors.max() <= max(step / 2, 1e-7 if bits == 32 else 0)
        assert "the start time, the date, the annotations" in result.lost[0]
    result = save_example(path, X[:1, :-1], bits=24, full_scale=256)
    with open_recording(path) as recording:
        np.testing.assert_allclose(
            read_float64(recording) * 256, X[:1, :-1], atol=1.6e-5
        )
    assert "does not store the full scale, 256" in result.lost[1]
    assert path.stat().st_size % 2 == 0
    loudest = save_example(path, np.array([1.0, -1.0, 0.5]), bits=16).groups[0].channels
    assert loudest[0].error == 2.0**-15


def test_data_that_wav_cannot_store_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    with pytest.raises(
        UsageError, match=r"256\.5 Hz; a WAV file must have an integer rate"
    ):
        save_example(path, fs=256.5)
    with pytest.raises(
        UsageError, match=r"full scale is 1 uV; pass a larger full_scale"
    ):
        save_example(path, bits=16)
    with pytest.raises(
        UsageError, match="only integer formats use a full scale; also pass bits=16"
    ):
        save_example(path, full_scale=200)
    with pytest.raises(
        UsageError, match="bits is 12; wav supports 16, 24, 32 or 64 bits"
    ):
        save_example(path, bits=12)
    with pytest.raises(UsageError, match=r"'ch2' has .* float32 .*; pass bits=64"):
        save_example(path, np.array([[np.inf, 1.0], [0.0, 1e39]]))
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("fs", "rate"),
    [(99.97, 104), (256.5, 256), (0.5, 1), (1000 / 3, 333), (8000.5, 16_001)],
)
def test_the_rate_suggested_for_wav_can_be_written(
    tmp_path: Path, fs: float, rate: int
) -> None:
    """The suggested rate is the nearest integer rate that resampling reaches."""
    recording = Recording.from_array(X / 256, fs)
    with pytest.raises(UsageError, match=f"rate: resample={rate}; or write"):
        save_recording(tmp_path / "a.wav", recording)
    resampled = prepared(recording.groups[0], resample=rate)
    save_recording(tmp_path / "a.wav", recording, groups=resampled)
    with open_recording(tmp_path / "a.wav") as saved_recording:
        assert saved_recording.groups[0].fs == rate


@pytest.mark.parametrize("changes", [{"fs": 99.9712345678}, {"gaps": ((5, 9),)}])
def test_wav_suggests_no_rate_where_there_is_none(tmp_path: Path, changes: Any) -> None:
    """No rate is suggested where the fraction has large numbers or there are gaps."""
    recording = Recording.from_array(X / 256, 99.97)
    group = replace(recording.groups[0], **changes)
    with pytest.raises(
        UsageError, match=r"write \.npz or \.parquet: resampling cannot reach"
    ):
        save_recording(tmp_path / "a.wav", recording, groups=group)


def test_the_manual_has_a_row_for_every_format() -> None:
    """The manual lists all formats with their sample widths and packages."""
    page = Path(__file__).parents[3] / "site/pages/howto/convert.md"
    rows = {
        line.split("`")[1]: line
        for line in page.read_text("utf-8").splitlines()
        if line.startswith("| `")
    }
    assert set(rows) == set(WRITERS)
    for name, writer in WRITERS.items():
        assert writer.library in rows[name]
        assert all(str(bits) in rows[name] for bits in writer.bits)
        assert ("in one file" in rows[name]) == writer.supports_mixed_rates


def test_integer_formats_refuse_nan(tmp_path: Path) -> None:
    """The error names the channel and the sample, and no file is written."""
    x = X.copy()
    x[1, 7] = np.nan
    for name, more in (("a.edf", {}), ("a.edf", {"full_scale": 500}), ("a.bdf", {})):
        with pytest.raises(NotFinite, match=r"'ch2' is nan at sample 7.*write \.npz"):
            save_example(tmp_path / name, x, **more)
    with pytest.raises(NotFinite, match="16-bit WAV stores integers"):
        save_example(tmp_path / "a.wav", x / 1000, bits=16)
    assert os.listdir(tmp_path) == []
    for name in ("a.npz", "a.wav"):
        result = save_example(tmp_path / name, x)
        assert result.groups[0].channels[1].error < 1e-4


def test_a_given_full_scale_saves_a_pass_and_is_a_limit(tmp_path: Path) -> None:
    progress_steps: list[int] = []
    options = {"progress": lambda n, k: progress_steps.append(k)}
    save_example(tmp_path / "a.edf", full_scale=250, **options)
    assert sum(progress_steps) == X.size
    progress_steps.clear()
    save_example(tmp_path / "a.edf", **options)
    assert sum(progress_steps) == 2 * X.size
    with pytest.raises(UsageError, match="full scale is 10 uV; pass a larger"):
        save_example(tmp_path / "a.edf", full_scale=10)


def test_invalid_arguments_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.edf"
    bad: list[tuple[type[Exception], str, Any, dict[str, Any]]] = [
        (UsageError, "fs is None", X, {"fs": None}),
        (UsageError, "fs is -1", X, {"fs": -1}),
        (
            UsageError,
            "the length of channels is 2; the array has 3",
            X,
            {"channels": "ab"},
        ),
        (UsageError, "two channels have the same name", X, {"channels": "aab"}),
        (ShapeError, "expected", X[None], {}),
        (ShapeError, "expected", X[:, :0], {}),
        (DTypeError, "expected real numbers", X + 1j, {}),
        (UsageError, r"an annotation is \('x',\)", X, {"annotations": [("x",)]}),
        (
            UsageError,
            "onset and duration must be finite",
            X,
            {"annotations": [(np.inf, 0, "x")]},
        ),
        (
            UsageError,
            "bits is 24; edf supports 16 bits; write bdf for 24 bits",
            X,
            {"bits": 24},
        ),
        (UsageError, "full_scale is 0", X, {"full_scale": 0}),
        (UsageError, "unpaired surrogates", X, {"channels": ["a", "b", "\ud800"]}),
        (
            UsageError,
            "units is 3; must be a list with one string per channel",
            X,
            {"units": 3},
        ),
        (
            UsageError,
            "channels is 3; must be a list with one string",
            X,
            {"channels": 3},
        ),
        (
            UsageError,
            "units contains None; .* unknown unit",
            X[:2],
            {"units": [None, "V"]},
        ),
        (UsageError, "channels contains None", X[:2], {"channels": ["a", None]}),
        (UsageError, "annotations is 5; must be a list of", X, {"annotations": 5}),
        (
            UsageError,
            "annotations is 'ab'; must be a list of",
            X,
            {"annotations": "ab"},
        ),
        (UsageError, "progress is 3; must be a function", X, {"progress": 3}),
        (UsageError, "no data record duration gives a whole", X, {"fs": 1e-9}),
        (UsageError, "at most 9998", np.zeros((10_000, 2)), {}),
    ]
    for kind, match, x, more in bad:
        with pytest.raises(kind, match=match):
            save_example(path, x, **more)
    with pytest.raises(UsageError, match="got 3; expected a path or an open file"):
        save_example(3)  # type: ignore[arg-type]
    with open(path, "w") as text:
        with pytest.raises(UsageError, match="open it with mode 'wb'"):
            save_example(text)  # type: ignore[arg-type]
    with open(path, "rb") as readable:
        with pytest.raises(
            UsageError, match="open for reading only; the file must be open for writing"
        ):
            save_example(readable)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="is already closed"):
        save_example(readable)  # type: ignore[arg-type]
    path.unlink()
    with pytest.raises(
        UsageError, match=r"ends in '\.ogg'; supported suffixes: \.edf, \.bdf"
    ):
        save_example(tmp_path / "a.ogg")
    with pytest.raises(RecordingError, match="the folder does not exist"):
        save_example(tmp_path / "no" / "a.edf")
    with open_recording(write_recording(tmp_path / "b.edf", ("Fz", 64))) as recording:
        with pytest.raises(TypeError, match="fs"):
            save_recording(path, recording, fs=3)
    assert os.listdir(tmp_path) == ["b.edf"]


@pytest.mark.parametrize("kind", [*WRITERS])
def test_an_empty_part_is_refused(tmp_path: Path, kind: str) -> None:
    """Empty parts are refused with the same message in every format, before a file is
    created.
    """
    require_library(WRITERS[kind].library)
    recording = Recording.from_array(X / 1e3, 256)
    (group,) = recording.groups
    rule = "a file needs at least 1 sample per channel; write a longer part"
    for groups in (group.between(5, 5), [group, group.between(0, 0)]):
        with pytest.raises(UsageError, match=f"'an array' has 0 samples; {rule}"):
            recording.save(tmp_path / f"a.{kind}", groups=groups)
    assert os.listdir(tmp_path) == []
    save_recording(tmp_path / f"a.{kind}", recording, groups=group.between(5, 6))
    with open_recording(tmp_path / f"a.{kind}") as saved_recording:
        assert saved_recording.groups[0].read()[0, 0] == pytest.approx(
            X[0, 5] / 1e3, rel=1e-4
        )


def test_part_limits_must_be_integers() -> None:
    (group,) = Recording.from_array(X, 256).groups
    for start, stop in ((0.5, 10), ("a", "b"), (None, 9), (0, 9.0)):
        with pytest.raises(
            UsageError, match="must be an integer number of samples; to convert"
        ):
            group.between(start, stop)  # type: ignore[arg-type]
    assert group.between(np.int64(2), np.uint8(5)).n_samples == 3  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("begun", "hint"), [(-1, 86_399), (86_400, 0), (90_000, 3600), (1e9, 6400)]
)
def test_a_time_of_day_is_within_one_day(
    tmp_path: Path, begun: float, hint: int
) -> None:
    """A time beyond one day is refused; wrapped, it would belong to another date than
    the given one.
    """
    message = f"begun is {begun:.10g} s; .* less than 86400 s; pass {hint}, "
    message += "and the matching day as the argument date"
    with pytest.raises(UsageError, match=message):
        save_example(tmp_path / "a.npz", begun=begun)
    assert os.listdir(tmp_path) == []
    save_example(tmp_path / "a.npz", begun=86_399.75)
    with open_recording(tmp_path / "a.npz") as recording:
        assert (recording.begun, recording.date) == (86_399.75, DAY)


def test_loss_warnings_point_to_the_caller(tmp_path: Path) -> None:
    """A loss is a warning at the caller's line; turned into an error, it leaves no
    file.
    """
    recording = Recording.from_array(X[0], 256, units="uV")
    with pytest.warns(RecordingWarning, match="EDF stores midnight") as caught:
        recording.save(tmp_path / "a.edf")
    assert {Path(warning.filename) for warning in caught} == {Path(__file__)}
    with pytest.raises(
        RecordingWarning, match=r"writing '.*b\.edf': the start time is unknown"
    ):
        recording.save(tmp_path / "b.edf")
    assert os.listdir(tmp_path) == ["a.edf"]


def test_an_array_becomes_a_recording() -> None:
    """Default channel names of an array are not the file's own, so WAV loses none."""
    recording = Recording.from_array(X, 256)
    (group,) = recording.groups
    np.testing.assert_array_equal(group.read(), X)
    assert group.names == ("ch1", "ch2", "ch3")
    assert (recording.annotations, recording.begun, recording.warnings) == (
        (),
        None,
        (),
    )
    assert save_recording(io.BytesIO(), recording, format="wav").lost == ()
    with recording:
        pass
    np.testing.assert_array_equal(group.read(), X)


def test_a_part_keeps_its_annotations_and_time(tmp_path: Path) -> None:
    """A part keeps its annotations and time; parts of two times are refused."""
    save_example(tmp_path / "a.edf")
    with open_recording(tmp_path / "a.edf") as recording:
        (group,) = recording.groups
        part = group.between(512, 1536)
        result = save_recording(tmp_path / "b.edf", recording, groups=[part])
        with pytest.raises(
            UsageError,
            match="between 0 s and 2 s; the start times in a file may differ",
        ):
            save_recording(tmp_path / "c.edf", recording, groups=[group, part])
        for bad in ((), 3, ["Fp1"], recording):
            with pytest.raises(UsageError, match="groups of the recording"):
                save_recording(tmp_path / "c.edf", recording, groups=bad)
    assert result.lost == ("2 annotations are outside the written part and omitted",)
    with open_recording(tmp_path / "b.edf") as recording:
        assert (recording.begun, recording.date) == (3663.5, DAY)
        assert recording.annotations == ((0.0, 1.25, "sleep"),)
        assert recording.groups[0].n_samples == 1024
    assert not (tmp_path / "c.edf").exists()


@pytest.mark.parametrize("kind", ["wav", "flac"])
def test_samples_at_full_scale_are_counted(tmp_path: Path, kind: str) -> None:
    """The largest integer is one step below full scale; the smallest equals it."""
    if kind == "flac":
        require_library("soundfile")
    result = save_recording(
        tmp_path / f"a.{kind}", [[1.0, -1.0, 0.5, 1.0]], fs=9, bits=16
    )
    assert result.lost == (
        "2 of 4 samples are clipped to the largest integer, which is one step below "
        "full scale",
    )
    assert result.groups[0].channels[0].error == 2.0**-15


@pytest.mark.parametrize(
    ("annotation", "is_exact"),
    [
        ((1.0, 0.0, "größer"), True),
        ((1.0, 0.0, "a\x14b"), False),
        ((1.0, 0.0, ""), False),
        ((1.0, 0.0, " a"), False),
        ((1.0, -1.0, "a"), False),
    ],
)
def test_a_changed_annotation_is_reported(
    tmp_path: Path, annotation: Any, is_exact: bool
) -> None:
    result = save_example(tmp_path / "a.edf", annotations=[annotation, (2.0, 1.0, "b")])
    with open_recording(tmp_path / "a.edf") as recording:
        assert (recording.annotations[:-1] == (annotation,)) == is_exact
    assert ("1 of 2 annotations are changed" in str(result.lost)) != is_exact


@pytest.mark.parametrize("kind", [*WRITERS])
def test_an_error_names_the_file_and_leaves_none(tmp_path: Path, kind: str) -> None:
    """The error names the file, even one that is open already, and no file is left."""
    require_library(WRITERS[kind].library)
    path = tmp_path / f"a.{kind}"
    recording = Recording.from_array(X / 1e3, 256)
    with path.open("wb") as file:
        with pytest.raises(UsageError) as caught:
            recording.save(file, format=kind, bits=7)
    error = caught.value
    assert error.doing == f"writing {str(path)!r}"
    assert error.problem == "bits is 7"
    assert error.rule.startswith(kind)
    assert error.hint
    path.unlink()
    broken = Recording.from_array(np.zeros((1, 200_000)), 256)
    (group,) = broken.groups
    truncated_group = replace(group, reader=TruncatedReader())
    with pytest.raises(RecordingError, match="reading 'short'"):
        save_recording(path, broken, groups=truncated_group)
    assert os.listdir(tmp_path) == []


class TruncatedReader:
    """A reader of a file that ends after 10,000 samples."""

    def read(self, channels: tuple[int, ...], start: int, stop: int) -> Any:
        if stop > 10_000:
            raise RecordingError("reading 'short'", "the file ends early")
        return np.zeros((1, stop - start))


def test_an_open_file_is_written_to(tmp_path: Path) -> None:
    file = io.BytesIO()
    result = save_example(file, format="edf")  # type: ignore[arg-type]
    (tmp_path / "a.edf").write_bytes(file.getvalue())
    assert result.path == ""
    with open_recording(tmp_path / "a.edf") as recording:
        assert recording.annotations == ANNOTATIONS
    with pytest.raises(UsageError, match="the name has no suffix"):
        save_example(file)  # type: ignore[arg-type]
    assert json.loads(json.dumps(result.as_json()))["groups"][0]["fs"] == 256.0


def test_the_block_size_does_not_change_the_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks of any size give the same bytes."""
    from rlxweb.io import edf_writer, write_job

    kinds = ("edf", "bdf", "npz", "wav")
    for kind in kinds:
        save_example(tmp_path / f"whole.{kind}", X / 100)
    for module in (edf_writer, write_job):
        monkeypatch.setattr(module, "BLOCK_NBYTES", 8 * 3 * 100)
    for kind in kinds:
        save_example(tmp_path / f"parts.{kind}", X / 100)
        first, second = (tmp_path / f"{n}.{kind}" for n in ("whole", "parts"))
        if kind == "npz":  # the archive has the time of its members
            with np.load(first) as a, np.load(second) as b:
                np.testing.assert_array_equal(a["samples"], b["samples"])
        else:
            assert first.read_bytes() == second.read_bytes()
