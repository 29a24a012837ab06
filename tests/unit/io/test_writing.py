"""Recordings that are written come back: samples, names, units, rates, annotations."""

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

from rlxweb.errors import (
    DTypeError,
    NotFinite,
    RecordingError,
    RecordingWarning,
    ShapeError,
    UsageError,
)
from rlxweb.io import Annotation, Recording, open_recording, prepared
from rlxweb.io.formats import WRITERS
from tests.recordings import KINDS, by_edfio, discontinuous, saved, written


def need(library: str) -> None:
    """Skip the test in a tab, which lacks the library; elsewhere it must be there."""
    if library and sys.platform == "emscripten":
        pytest.importorskip(library)
    elif library:
        import_module(library)


X = np.random.default_rng(11).normal(0, 50, (3, 2560)) * [[1.0], [0.3], [1e-3]]
NAMES = ["Fp1", "Fp2", "Cz"]
DAY = datetime.date(2002, 2, 28)
NOTES = (
    Annotation(0.5, 0.0, "Beginn, größer"),
    Annotation(1.25, 2.0, "sleep"),
    Annotation(9.0, 0.0, "last"),
)


def written_to(path: Path, x: Any = X, **more: Any) -> Any:
    """256 Hz, in microvolts."""
    how = {"fs": 256, "units": "uV", "annotations": NOTES, "begun": 3661.5, "date": DAY}
    return saved(path, x, **{**how, **more})


def samples(recording: Recording) -> np.ndarray:
    (group,) = recording.groups
    return np.asarray(group.read(), np.float64)


@pytest.mark.parametrize(("kind", "bits"), [("edf", 16), ("bdf", 24)])
def test_edf_and_bdf_hold_samples_to_half_a_step(
    tmp_path: Path, kind: str, bits: int
) -> None:
    """Channels have a range each; the error is half a step and as it is told."""
    path = tmp_path / f"a.{kind}"
    told = written_to(path, channels=NAMES)
    (own,) = told.groups
    with open_recording(path) as recording:
        off = np.abs(samples(recording) - X).max(axis=1)
        (group,) = recording.groups
        assert recording.format == f"{kind.upper()}+C"
        assert group.names == tuple(NAMES)
        assert {channel.unit for channel in group.channels} == {"uV"}
        assert group.fs == 256.0
        assert (recording.begun, recording.date) == (3661.5, DAY)
        assert recording.annotations == NOTES
    steps = np.array([channel.step for channel in own.channels])
    spans = np.ptp(X, axis=1)
    assert (steps < 1.1 * spans / (1 << bits)).all()
    assert (off <= 0.5000001 * steps).all()
    np.testing.assert_allclose([c.error for c in own.channels], off, rtol=1e-9)
    assert told.lost == ()
    assert told.annotations == 3
    assert f"{kind}, 3 channels at 256 Hz, 2560 samples" in repr(told)
    found = by_edfio(path)
    np.testing.assert_allclose(np.array([*found.values()]), X, atol=steps.max())


def test_edfio_reads_what_is_beside_the_samples(tmp_path: Path) -> None:
    """The edfio library reads annotations, time of day and limits."""
    written_to(tmp_path / "a.edf", channels=NAMES)
    own = edfio.read_edf(tmp_path / "a.edf")
    assert [(a.onset, a.duration or 0.0, a.text) for a in own.annotations] == [*NOTES]
    assert (own.starttime.hour, own.starttime.minute, own.starttime.second) == (1, 1, 1)
    assert own.starttime.microsecond == 500_000
    for signal, row in zip(own.signals, X, strict=True):
        assert signal.physical_min <= row.min() <= row.max() <= signal.physical_max


@pytest.mark.parametrize("kind", [".edf", ".bdf"])
def test_integers_of_a_file_are_written_as_they_are(
    tmp_path: Path, kind: str, rng: np.random.Generator
) -> None:
    """Counts of a file, and so its values, are kept whatever its limits were."""
    signal, whole, read = KINDS[kind]
    path, again = tmp_path / f"a{kind}", tmp_path / f"b{kind}"
    ranges = [(-500, 500), (-187.5, 187.5), (-0.25, 3276.75), (800, -800)]
    signals = [
        signal(rng.uniform(0, 150, 512), 128, label=f"c{n}", physical_range=span)
        for n, span in enumerate(ranges[:3])
    ]
    whole(signals).write(path)
    with open_recording(path) as recording:
        told = saved(again, recording)
    assert [own.error for own in told.groups[0].channels] == [0.0, 0.0, 0.0]
    with open_recording(path) as first, open_recording(again) as second:
        one, other = (r.groups[0].read_stored() for r in (first, second))
        np.testing.assert_array_equal(one.counts, other.counts)  # type: ignore[union-attr]
        np.testing.assert_allclose(samples(first), samples(second), rtol=1e-12)
    assert len(read(again).signals) == 3


@pytest.mark.parametrize(
    ("fs", "n_samples"),
    [(256, 2560), (100, 2557), (300, 900), (44100, 44100), (0.5, 7), (1000 / 3, 1000)],
)
def test_no_sample_is_added_where_some_record_fits(
    tmp_path: Path, fs: float, n_samples: int, rng: np.random.Generator
) -> None:
    """A record length is found for any number of samples, a prime too."""
    x = rng.normal(size=(1, n_samples))
    told = saved(tmp_path / "a.edf", x, fs=fs, begun=0)
    assert told.lost == ()
    with open_recording(tmp_path / "a.edf") as recording:
        (group,) = recording.groups
        assert group.fs == pytest.approx(fs, rel=1e-9)
        assert group.n_samples == n_samples


@pytest.mark.parametrize(
    ("fs", "n_samples", "most"),
    [(300, 1000, 150), (44100, 44101, 882), (1e3, 10**6, 0)],
)
def test_a_last_record_that_is_not_full_is_told(
    tmp_path: Path, fs: float, n_samples: int, most: int, rng: np.random.Generator
) -> None:
    """The last record is filled up as little as possible, with the last sample."""
    x = rng.normal(size=(1, n_samples))
    told = saved(tmp_path / "a.edf", x, fs=fs, begun=0)
    with open_recording(tmp_path / "a.edf") as recording:
        found = samples(recording)
    more = found.shape[1] - n_samples
    assert 0 <= more <= most
    assert set(found[0, n_samples:]) <= {found[0, n_samples - 1]}
    if more:
        assert told.lost == (
            f"the last data record is filled up: {more} samples at {fs:g} Hz repeat "
            f"the last of {n_samples}",
        )
        header = edfio.read_edf(tmp_path / "a.edf").recording
        assert header.additional == (f"samples={n_samples}",)


def test_a_rate_that_is_nearly_exact_saves_padding(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    """Records that are exact to 1e-9 would have padded 5,000 samples to 5,515."""
    x = rng.normal(size=(1, 5000))
    told = saved(tmp_path / "a.edf", x, fs=99.97, begun=0)
    assert told.groups[0].n_samples == 5000
    assert told.groups[0].fs == pytest.approx(99.97, rel=1e-7)
    assert told.lost == (f"99.97 Hz is {told.groups[0].fs:.12g} Hz in the file",)


@pytest.mark.parametrize("kind", ["edf", "bdf"])
@pytest.mark.parametrize(
    ("fs", "n_samples", "more"),
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
    more: int,
    rng: np.random.Generator,
) -> None:
    """Records of short recordings leave the fewest samples over, mostly none."""
    path = tmp_path / f"a.{kind}"
    x = rng.normal(size=(2, n_samples))
    told = saved(path, x, fs=fs, begun=0)
    assert told.groups[0].n_samples == n_samples + more
    assert len(told.lost) == (more > 0)
    with open_recording(path) as recording:
        (group,) = recording.groups
        assert (group.fs, group.n_samples) == (pytest.approx(fs), n_samples + more)
        found = samples(recording)[:, :n_samples]
    np.testing.assert_allclose(found, x, atol=1e-4)
    theirs = np.array([*by_edfio(path).values()])
    np.testing.assert_allclose(theirs[:, :n_samples], x, atol=1e-4)


def test_long_recordings_do_not_have_short_records(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    """The time of each would take more than the samples that are saved."""
    saved(tmp_path / "a.edf", rng.normal(size=(1, 1_000_003)), fs=1000, begun=0)
    assert (tmp_path / "a.edf").stat().st_size < 2.2 * 1_000_003


def test_a_few_samples_fill_a_part_of_a_record(tmp_path: Path) -> None:
    told = saved(tmp_path / "a.edf", [[1.0, 2.0, 3.0]], fs=256, begun=0)
    assert "samples at 256 Hz repeat the last of 3" in told.lost[0]
    with open_recording(tmp_path / "a.edf") as recording:
        found = samples(recording)
    assert found[0, :3].tolist() == pytest.approx([1, 2, 3], abs=1e-4)
    assert set(found[0, 2:]) == {found[0, 2]}


def test_a_rate_that_no_record_holds_is_told(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    """Short ones have few lengths to choose from."""
    x = rng.normal(size=(1, 40))
    told = saved(tmp_path / "a.edf", x, fs=511.97331234, begun=0)
    assert any("511.97331234 Hz is 511.97" in one for one in told.lost)
    with open_recording(tmp_path / "a.edf") as recording:
        assert recording.groups[0].fs == pytest.approx(511.97331234, rel=1e-6)


def test_channels_of_several_rates_lie_in_one_edf_file(tmp_path: Path) -> None:
    """EDF holds channels of several rates; another format refuses with the way out."""
    path = written(tmp_path / "a.edf", ("Fz", 128), ("Resp", 16), seconds=5)
    with open_recording(path) as recording:
        told = saved(tmp_path / "b.edf", recording)
        assert [(g.fs, g.n_samples) for g in told.groups] == [(128, 640), (16, 80)]
        with open_recording(tmp_path / "b.edf") as again:
            for one, other in zip(recording.groups, again.groups, strict=True):
                np.testing.assert_allclose(one.read(), other.read(), rtol=1e-12)
        with pytest.raises(UsageError, match=r"2 rates: 128, 16 Hz; a \.npz file"):
            saved(tmp_path / "b.npz", recording)
        saved(tmp_path / "b.npz", recording, groups=recording.groups[1])
    assert sorted(os.listdir(tmp_path)) == ["a.edf", "b.edf", "b.npz"]


@pytest.mark.parametrize("kind", ["npz", "wav", "parquet"])
def test_groups_that_differ_in_nothing_are_one(tmp_path: Path, kind: str) -> None:
    """What keeps others apart is said."""
    need(WRITERS[kind].library)
    path = written(tmp_path / "a.edf", ("A", 256), ("R", 100), ("B", 256), seconds=9)
    out = tmp_path / f"b.{kind}"
    with open_recording(path, resample=100) as recording:
        told = saved(out, recording)
        (own,) = told.groups
        assert [channel.name for channel in own.channels] == ["A", "R", "B"]
        (a, b), (r,) = (np.asarray(group.read()) for group in recording.groups)
        with open_recording(out) as again:
            np.testing.assert_allclose(again.groups[0].read(), [a, r, b], rtol=1e-6)
        one, other = recording.groups
        for groups, match in (
            ((one.between(0, 99), other), "one has 99 samples and one 900"),
            (
                (one.between(0, 9), other.between(5, 14)),
                "begins at 0 s and one at 0.05",
            ),
            ((one, one), "both have a channel 'A'"),
        ):
            with pytest.raises(UsageError, match=match):
                saved(out, recording, groups=groups)
    wide = [Recording.from_array(np.ones((1, 4), t), 9).groups[0] for t in "qd"]
    with pytest.raises(UsageError, match="one holds int64 and one float64"):
        saved(out, recording, groups=wide)


def test_gaps_are_nan_where_there_is_nan(tmp_path: Path) -> None:
    """Gaps are written as NaN and told; integers have none, so pieces go into files."""
    path = discontinuous(tmp_path / "a.edf", ["0", "1", "5", "6"], ("Fz", 64))
    with pytest.warns(RecordingWarning, match="gap"):
        recording = open_recording(path)
    with recording:
        (group,) = recording.groups
        told = saved(tmp_path / "a.npz", recording)
        assert told.lost == ("1 gap is NaN",)
        for name, more in (("b.edf", {}), ("b.bdf", {}), ("b.wav", {"bits": 16})):
            with pytest.raises(
                UsageError, match=r"has 1 gap; .* take what lies between"
            ):
                saved(tmp_path / name, recording, **more)
        for at, piece in enumerate(group.pieces):
            saved(tmp_path / f"piece{at}.edf", recording, groups=piece)
            with open_recording(tmp_path / f"piece{at}.edf") as again:
                np.testing.assert_allclose(samples(again), piece.read(), rtol=1e-12)
        with np.load(tmp_path / "a.npz") as found:
            np.testing.assert_array_equal(found["samples"], group.read())
    assert not (tmp_path / "b.edf").exists()


def test_many_annotations_find_room(tmp_path: Path) -> None:
    """Many or long annotations of one second go into later records."""
    notes = [Annotation(0.001 * n, 0.0, f"note {n}") for n in range(900)]
    notes.append(Annotation(9.5, 0.25, "x" * 2000))
    path = tmp_path / "a.edf"
    written_to(path, annotations=notes)
    with open_recording(path) as recording:
        assert len(recording.annotations) == 901
        for one, other in zip(recording.annotations, notes, strict=True):
            assert one.text == other.text
            assert one.onset == pytest.approx(other.onset, abs=1e-9)
    assert path.stat().st_size < 100_000
    written_to(path, annotations=[(1, None, "a\x14b\0c")])
    with open_recording(path) as recording:
        assert recording.annotations == ((1.0, 0.0, "a b c"),)


def test_names_and_units_that_edf_has_no_letters_for(tmp_path: Path) -> None:
    """Cut and written out so that none is another's; what was changed is told."""
    names = ["älter als 漢字 und lang", "a very long name 1", "a very long name 2"]
    told = saved(
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
    assert "'a very long name 2' is 'a very long na~2'" in told.lost[0]
    assert told.lost[1] == "the unit '漢' is '?'"
    told = saved(tmp_path / "a.edf", X[0] * 1e-6, fs=256, units="V", begun=0)
    with open_recording(tmp_path / "a.edf") as recording:
        (group,) = recording.groups
        assert group.channels[0].unit == "uV"
        assert group.names == ("ch1",)
        off = np.abs(samples(recording)[0] - X[0]).max()
    assert off == pytest.approx(told.groups[0].channels[0].error, rel=1e-6)


def test_a_stretch_takes_its_annotations_and_its_time_with_it(tmp_path: Path) -> None:
    """What lasts into it is as long as it lasts in it; the others are counted."""
    path = tmp_path / "a.edf"
    written_to(path)
    with open_recording(path, start=2.0, stop=6.0) as recording:
        told = saved(tmp_path / "b.edf", recording)
    assert told.lost == ("2 annotations lie outside of it",)
    with open_recording(tmp_path / "b.edf") as recording:
        assert (recording.begun, recording.date) == (3663.5, DAY)
        assert recording.annotations == ((0.0, 1.25, "sleep"),)
        off = np.abs(samples(recording) - X[:, 512:1536]).max()
    assert off < 0.01


@pytest.mark.parametrize("dtype", ["f8", "f4", "i2", "u1", "i4"])
def test_npz_holds_every_type_bit_by_bit(tmp_path: Path, dtype: str) -> None:
    """Read back by NumPy alone, with what stands beside."""
    x = (100 + X).astype(dtype)
    told = written_to(tmp_path / "a.npz", x, channels=NAMES)
    assert told.lost == ()
    with np.load(tmp_path / "a.npz") as found:
        np.testing.assert_array_equal(found["samples"], x)
        assert found["samples"].dtype == x.dtype
        assert (float(found["fs"]), float(found["begun"])) == (256.0, 3661.5)
        assert str(found["date"]) == "2002-02-28"
        assert [*found["channels"]] == NAMES
        assert [*found["units"]] == ["uV"] * 3
        assert [tuple(row) for row in found["annotations"]] == [*NOTES]
    with open_recording(tmp_path / "a.npz") as recording:
        np.testing.assert_array_equal(samples(recording), x)
        (group,) = recording.groups
        assert group.names == tuple(NAMES)
        assert {channel.unit for channel in group.channels} == {"uV"}
        assert (recording.begun, recording.date) == (3661.5, DAY)
        assert recording.annotations == NOTES


@pytest.mark.parametrize("dtype", ["i8", "u8"])
@pytest.mark.parametrize(
    ("kind", "bits"),
    [("npz", None), ("parquet", None), ("wav", 64), ("wav", 32), ("edf", None)],
)
def test_the_error_of_integers_of_64_bits_is_true(
    tmp_path: Path, kind: str, bits: int | None, dtype: str
) -> None:
    """float64 has no odd numbers beyond 2**53; NPZ holds, and gives, all of them."""
    need(WRITERS[kind].library)
    rows = [[2**53 + 1, 5], [2**62 + 129, 0], [7, 8]]
    if dtype == "i8":
        rows = [[-a, b] for a, b in rows]
    path = tmp_path / f"a.{kind}"
    told = saved(path, np.array(rows, dtype), fs=4, bits=bits, begun=0)
    with open_recording(path) as recording:
        found = recording.groups[0].read()[:, :2]
    off = [
        max(abs(a - int(b)) for a, b in zip(*own, strict=True))
        for own in zip(rows, found, strict=True)
    ]
    if kind == "edf":
        assert [c.error for c in told.groups[0].channels] == pytest.approx(
            off, rel=1e-9
        )
    else:
        assert [c.error for c in told.groups[0].channels] == off
    exact = {"npz": [0, 0, 0], "wav": [1, 129, 0], "parquet": [1, 129, 0]}
    if bits != 32 and kind in exact:
        assert off == exact[kind]


def test_wav_of_floats_and_of_integers(tmp_path: Path) -> None:
    """WAV holds floats and integers as our reader reads them; the error is as told."""
    path, x = tmp_path / "a.wav", X / 256
    for bits, step in ((64, 0.0), (32, 0.0), (24, 2.0**-23), (16, 2.0**-15)):
        told = written_to(path, x, bits=bits)
        (own,) = told.groups
        with open_recording(path) as recording:
            off = np.abs(samples(recording) - x).max(axis=1)
        np.testing.assert_array_equal([c.error for c in own.channels], off)
        assert {c.step for c in own.channels} == {step}
        assert off.max() <= max(step / 2, 1e-7 if bits == 32 else 0)
        assert "the time of day, the date, the annotations" in told.lost[0]
    told = written_to(path, X[:1, :-1], bits=24, full_scale=256)
    with open_recording(path) as recording:
        np.testing.assert_allclose(samples(recording) * 256, X[:1, :-1], atol=1.6e-5)
    assert "full scale of the file is 256" in told.lost[1]
    assert path.stat().st_size % 2 == 0
    loudest = written_to(path, np.array([1.0, -1.0, 0.5]), bits=16).groups[0].channels
    assert loudest[0].error == 2.0**-15


def test_what_a_wav_file_cannot_hold_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    with pytest.raises(UsageError, match=r"256\.5 Hz; a WAV file has a whole rate"):
        written_to(path, fs=256.5)
    with pytest.raises(
        UsageError, match=r"full scale is 1 uV; give a wider full_scale"
    ):
        written_to(path, bits=16)
    with pytest.raises(UsageError, match="floats need none; give bits=16 too"):
        written_to(path, full_scale=200)
    with pytest.raises(UsageError, match="bits is 12; wav has 16 or 24 or 32 or 64"):
        written_to(path, bits=12)
    with pytest.raises(UsageError, match=r"'ch2' has .* float32 .*; give bits=64"):
        written_to(path, np.array([[np.inf, 1.0], [0.0, 1e39]]))
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("fs", "rate"),
    [(99.97, 104), (256.5, 256), (0.5, 1), (1000 / 3, 333), (8000.5, 16_001)],
)
def test_the_rate_that_wav_names_can_be_written(
    tmp_path: Path, fs: float, rate: int
) -> None:
    """The rate that is named is the nearest whole one that resampling leads to."""
    recording = Recording.from_array(X / 256, fs)
    with pytest.raises(UsageError, match=f"one: resample={rate}; or write"):
        saved(tmp_path / "a.wav", recording)
    other = prepared(recording.groups[0], resample=rate)
    saved(tmp_path / "a.wav", recording, groups=other)
    with open_recording(tmp_path / "a.wav") as again:
        assert again.groups[0].fs == rate


@pytest.mark.parametrize("more", [{"fs": 99.9712345678}, {"gaps": ((5, 9),)}])
def test_wav_names_no_rate_where_there_is_none(tmp_path: Path, more: Any) -> None:
    """No rate is named where the fraction has large numbers or there are gaps."""
    recording = Recording.from_array(X / 256, 99.97)
    group = replace(recording.groups[0], **more)
    with pytest.raises(UsageError, match=r"write \.npz or \.parquet: no such rate"):
        saved(tmp_path / "a.wav", recording, groups=group)


def test_the_manual_has_a_row_for_every_format() -> None:
    """The manual has formats with their sample widths and packages."""
    page = Path(__file__).parents[3] / "site/pages/howto/convert.md"
    rows = {
        line.split("`")[1]: line
        for line in page.read_text("utf-8").splitlines()
        if line.startswith("| `")
    }
    assert set(rows) == set(WRITERS)
    for name, own in WRITERS.items():
        assert own.library in rows[name]
        assert all(str(bits) in rows[name] for bits in own.bits)
        assert ("in one file" in rows[name]) == own.several_rates


def test_no_integer_stands_for_nan(tmp_path: Path) -> None:
    """The channel and the sample are named, and nothing is written."""
    x = X.copy()
    x[1, 7] = np.nan
    for name, more in (("a.edf", {}), ("a.edf", {"full_scale": 500}), ("a.bdf", {})):
        with pytest.raises(NotFinite, match=r"'ch2' is nan at sample 7.*write \.npz"):
            written_to(tmp_path / name, x, **more)
    with pytest.raises(NotFinite, match="WAV of 16 bits holds integers"):
        written_to(tmp_path / "a.wav", x / 1000, bits=16)
    assert os.listdir(tmp_path) == []
    for name in ("a.npz", "a.wav"):
        told = written_to(tmp_path / name, x)
        assert told.groups[0].channels[1].error < 1e-4


def test_full_scale_of_edf_is_one_pass_and_a_limit(tmp_path: Path) -> None:
    done: list[int] = []
    step = {"progress": lambda n, k: done.append(k)}
    written_to(tmp_path / "a.edf", full_scale=250, **step)
    assert sum(done) == X.size
    done.clear()
    written_to(tmp_path / "a.edf", **step)
    assert sum(done) == 2 * X.size
    with pytest.raises(UsageError, match="full scale is 10 uV; give a wider"):
        written_to(tmp_path / "a.edf", full_scale=10)


def test_bad_arguments_say_what_is_wanted(tmp_path: Path) -> None:
    path = tmp_path / "a.edf"
    bad: list[tuple[type[Exception], str, Any, dict[str, Any]]] = [
        (UsageError, "fs is None", X, {"fs": None}),
        (UsageError, "fs is -1", X, {"fs": -1}),
        (UsageError, "2 channels are given; the array has 3", X, {"channels": "ab"}),
        (UsageError, "two channels have one name", X, {"channels": "aab"}),
        (ShapeError, "wanted", X[None], {}),
        (ShapeError, "wanted", X[:, :0], {}),
        (DTypeError, "wanted real numbers", X + 1j, {}),
        (UsageError, r"an annotation is \('x',\)", X, {"annotations": [("x",)]}),
        (UsageError, "times are finite", X, {"annotations": [(np.inf, 0, "x")]}),
        (UsageError, "bits is 24; edf has 16; bdf has 24", X, {"bits": 24}),
        (UsageError, "full_scale is 0", X, {"full_scale": 0}),
        (UsageError, "whole letters", X, {"channels": ["a", "b", "\ud800"]}),
        (UsageError, "units is 3; a text for each channel", X, {"units": 3}),
        (UsageError, "channels is 3; a text for each", X, {"channels": 3}),
        (
            UsageError,
            "one of units is None; .* where none",
            X[:2],
            {"units": [None, "V"]},
        ),
        (UsageError, "one of channels is None", X[:2], {"channels": ["a", None]}),
        (UsageError, "annotations is 5; a list of", X, {"annotations": 5}),
        (UsageError, "annotations is 'ab'; a list of", X, {"annotations": "ab"}),
        (UsageError, "progress is 3; a function", X, {"progress": 3}),
        (UsageError, "no length of a data record holds", X, {"fs": 1e-9}),
        (UsageError, "at most 9998", np.zeros((10_000, 2)), {}),
    ]
    for kind, match, x, more in bad:
        with pytest.raises(kind, match=match):
            written_to(path, x, **more)
    with pytest.raises(UsageError, match="3 was given; a path or an open file"):
        written_to(3)  # type: ignore[arg-type]
    with open(path, "w") as text:
        with pytest.raises(UsageError, match="open it with mode 'wb'"):
            written_to(text)  # type: ignore[arg-type]
    with open(path, "rb") as readable:
        with pytest.raises(
            UsageError, match="can only be read; bytes are written into"
        ):
            written_to(readable)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="is closed already"):
        written_to(readable)  # type: ignore[arg-type]
    path.unlink()
    with pytest.raises(UsageError, match=r"ends in '\.ogg'; written are \.edf, \.bdf"):
        written_to(tmp_path / "a.ogg")
    with pytest.raises(RecordingError, match="no such folder"):
        written_to(tmp_path / "no" / "a.edf")
    with open_recording(written(tmp_path / "b.edf", ("Fz", 64))) as recording:
        with pytest.raises(TypeError, match="fs"):
            saved(path, recording, fs=3)
    assert os.listdir(tmp_path) == ["b.edf"]


@pytest.mark.parametrize("kind", [*WRITERS])
def test_a_part_without_a_sample_is_refused(tmp_path: Path, kind: str) -> None:
    """A part without samples is refused in the same words before there is a file."""
    need(WRITERS[kind].library)
    recording = Recording.from_array(X / 1e3, 256)
    (group,) = recording.groups
    rule = "a file has 1 of each channel at least; take a longer part"
    for groups in (group.between(5, 5), [group, group.between(0, 0)]):
        with pytest.raises(UsageError, match=f"'an array' has 0 samples; {rule}"):
            recording.save(tmp_path / f"a.{kind}", groups=groups)
    assert os.listdir(tmp_path) == []
    saved(tmp_path / f"a.{kind}", recording, groups=group.between(5, 6))
    with open_recording(tmp_path / f"a.{kind}") as again:
        assert again.groups[0].read()[0, 0] == pytest.approx(X[0, 5] / 1e3, rel=1e-4)


def test_parts_are_of_whole_samples() -> None:
    (group,) = Recording.from_array(X, 256).groups
    for start, stop in ((0.5, 10), ("a", "b"), (None, 9), (0, 9.0)):
        with pytest.raises(UsageError, match="a whole number of samples; for a moment"):
            group.between(start, stop)  # type: ignore[arg-type]
    assert group.between(np.int64(2), np.uint8(5)).n_samples == 3  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("begun", "hint"), [(-1, 86_399), (86_400, 0), (90_000, 3600), (1e9, 6400)]
)
def test_a_time_of_day_is_of_one_day(tmp_path: Path, begun: float, hint: int) -> None:
    """Wrapped it would be of another day than the one that is given."""
    wanted = f"begun is {begun:.10g} s; .* less than 86400 s; give {hint}, and the day"
    with pytest.raises(UsageError, match=wanted):
        written_to(tmp_path / "a.npz", begun=begun)
    assert os.listdir(tmp_path) == []
    written_to(tmp_path / "a.npz", begun=86_399.75)
    with open_recording(tmp_path / "a.npz") as recording:
        assert (recording.begun, recording.date) == (86_399.75, DAY)


def test_losses_are_warned_of_at_the_line_of_the_caller(tmp_path: Path) -> None:
    """A loss is warned of at the caller's line; as an error it leaves no file."""
    recording = Recording.from_array(X[0], 256, units="uV")
    with pytest.warns(RecordingWarning, match="EDF says midnight") as caught:
        recording.save(tmp_path / "a.edf")
    assert {Path(one.filename) for one in caught} == {Path(__file__)}
    with pytest.raises(RecordingWarning, match=r"writing '.*b\.edf': no time of day"):
        recording.save(tmp_path / "b.edf")
    assert os.listdir(tmp_path) == ["a.edf"]


def test_an_array_becomes_a_recording() -> None:
    """An array's names are not a file's own, so WAV loses none."""
    recording = Recording.from_array(X, 256)
    (group,) = recording.groups
    np.testing.assert_array_equal(group.read(), X)
    assert group.names == ("ch1", "ch2", "ch3")
    assert (recording.annotations, recording.begun, recording.warnings) == (
        (),
        None,
        (),
    )
    assert saved(io.BytesIO(), recording, format="wav").lost == ()
    with recording:
        pass
    np.testing.assert_array_equal(group.read(), X)


def test_a_part_takes_its_annotations_and_its_time_with_it(tmp_path: Path) -> None:
    """A part takes its annotations and time with it; parts of two times are refused."""
    written_to(tmp_path / "a.edf")
    with open_recording(tmp_path / "a.edf") as recording:
        (group,) = recording.groups
        part = group.between(512, 1536)
        told = saved(tmp_path / "b.edf", recording, groups=[part])
        with pytest.raises(UsageError, match="between 0 s and 2 s; a file has one"):
            saved(tmp_path / "c.edf", recording, groups=[group, part])
        for bad in ((), 3, ["Fp1"], recording):
            with pytest.raises(UsageError, match="groups of the recording"):
                saved(tmp_path / "c.edf", recording, groups=bad)
    assert told.lost == ("2 annotations lie outside of it",)
    with open_recording(tmp_path / "b.edf") as recording:
        assert (recording.begun, recording.date) == (3663.5, DAY)
        assert recording.annotations == ((0.0, 1.25, "sleep"),)
        assert recording.groups[0].n_samples == 1024
    assert not (tmp_path / "c.edf").exists()


@pytest.mark.parametrize("kind", ["wav", "flac"])
def test_samples_at_full_scale_are_counted(tmp_path: Path, kind: str) -> None:
    """The largest integer is one step below it; the least is it."""
    if kind == "flac":
        need("soundfile")
    told = saved(tmp_path / f"a.{kind}", [[1.0, -1.0, 0.5, 1.0]], fs=9, bits=16)
    assert told.lost == (
        "samples at full scale are one step less, as the largest integer is: 2 of 4",
    )
    assert told.groups[0].channels[0].error == 2.0**-15


@pytest.mark.parametrize(
    ("note", "is_exact"),
    [
        ((1.0, 0.0, "größer"), True),
        ((1.0, 0.0, "a\x14b"), False),
        ((1.0, 0.0, ""), False),
        ((1.0, 0.0, " a"), False),
        ((1.0, -1.0, "a"), False),
    ],
)
def test_a_changed_annotation_is_told(
    tmp_path: Path, note: Any, is_exact: bool
) -> None:
    told = written_to(tmp_path / "a.edf", annotations=[note, (2.0, 1.0, "b")])
    with open_recording(tmp_path / "a.edf") as recording:
        assert (recording.annotations[:-1] == (note,)) == is_exact
    assert ("1 of 2 annotations read back otherwise" in str(told.lost)) != is_exact


@pytest.mark.parametrize("kind", [*WRITERS])
def test_an_error_names_the_file_and_leaves_none(tmp_path: Path, kind: str) -> None:
    """An error names the file, also one that is open already, and leaves none."""
    need(WRITERS[kind].library)
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
    short = replace(group, reader=Short())
    with pytest.raises(RecordingError, match="reading 'short'"):
        saved(path, broken, groups=short)
    assert os.listdir(tmp_path) == []


class Short:
    """A reader of a file that ends after 10,000 samples."""

    def read(self, channels: tuple[int, ...], start: int, stop: int) -> Any:
        if stop > 10_000:
            raise RecordingError("reading 'short'", "the file ends early")
        return np.zeros((1, stop - start))


def test_an_open_file_is_written_into(tmp_path: Path) -> None:
    file = io.BytesIO()
    told = written_to(file, format="edf")  # type: ignore[arg-type]
    (tmp_path / "a.edf").write_bytes(file.getvalue())
    assert told.path == ""
    with open_recording(tmp_path / "a.edf") as recording:
        assert recording.annotations == NOTES
    with pytest.raises(UsageError, match="the name has no suffix"):
        written_to(file)  # type: ignore[arg-type]
    assert json.loads(json.dumps(told.as_json()))["groups"][0]["fs"] == 256.0


def test_blocks_give_the_bytes_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks of any size give the same bytes."""
    from rlxweb.io import edf_writer, outgoing

    kinds = ("edf", "bdf", "npz", "wav")
    for kind in kinds:
        written_to(tmp_path / f"whole.{kind}", X / 100)
    for module in (edf_writer, outgoing):
        monkeypatch.setattr(module, "BLOCK_BYTES", 8 * 3 * 100)
    for kind in kinds:
        written_to(tmp_path / f"parts.{kind}", X / 100)
        one, other = (tmp_path / f"{n}.{kind}" for n in ("whole", "parts"))
        if kind == "npz":  # the archive has the time of its members
            with np.load(one) as a, np.load(other) as b:
                np.testing.assert_array_equal(a["samples"], b["samples"])
        else:
            assert one.read_bytes() == other.read_bytes()
