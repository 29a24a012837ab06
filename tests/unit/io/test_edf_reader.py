"""EDF and BDF files written by edfio give the values that edfio itself reads."""

from __future__ import annotations

import datetime
import sys
import warnings
from contextlib import nullcontext
from pathlib import Path

import edfio
import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.core.errors import RecordingError, RecordingWarning, UnknownName, UsageError
from rlxweb.io import edf_reader as edf_module
from rlxweb.io import open_recording
from tests.cli_runners import CommandRunner, check_rejected
from tests.edf_bdf_recordings import (
    check_unreadable,
    read_with_edfio,
    read_with_warning,
    save_recording,
    write_discontinuous,
    write_recording,
)


def patch_bytes(path: Path, *fields: tuple[int, bytes]) -> Path:
    """Overwrite these bytes of the file at these offsets."""
    raw = bytearray(path.read_bytes())
    for offset, field in fields:
        raw[offset : offset + len(field)] = field
    path.write_bytes(bytes(raw))
    return path


@pytest.fixture
def edf_path(tmp_path: Path) -> Path:
    """Path of an EDF file with one channel, Fz, of 4 s at 64 Hz."""
    return write_recording(tmp_path / "a.edf", ("Fz", 64))


def test_edf_values_equal_those_of_edfio(tmp_path: Path) -> None:
    """Physical values are bit for bit what edfio computes, with label and unit."""
    path = write_recording(tmp_path / "a.edf", ("EEG Fp1", 100), ("EEG Cz", 100))
    expected = np.array([*read_with_edfio(path).values()])
    with open_recording(path) as recording:
        (group,) = recording.groups
        assert recording.format == "EDF"
        assert recording.left_out == ()
        assert group.fs == 100.0
        assert group.dtype == np.float64
        assert group.seconds == 4
        assert group.names == ("EEG Fp1", "EEG Cz")
        assert {c.unit for c in group.channels} == {"uV"}
        np.testing.assert_array_equal(group.read(), expected)
        np.testing.assert_array_equal(group.read(33, 271), expected[:, 33:271])


def test_bdf_values_equal_those_of_edfio(tmp_path: Path) -> None:
    """24-bit values, negative ones too, are what edfio computes."""
    path = write_recording(tmp_path / "a.bdf", ("A1", 128), ("A2", 128))
    expected = np.array([*read_with_edfio(path).values()])
    assert expected.min() < 0 < expected.max()
    with open_recording(path) as recording:
        (group,) = recording.groups
        assert recording.format == "BDF"
        np.testing.assert_array_equal(group.read(), expected)
        np.testing.assert_array_equal(group.read(127, 130), expected[:, 127:130])


def test_channels_of_several_rates_are_grouped(tmp_path: Path) -> None:
    """Channels of one file that differ in rate come in groups, each whole."""
    path = write_recording(
        tmp_path / "mixed.edf", ("Fz", 200), ("Resp", 25), ("Cz", 200)
    )
    expected = read_with_edfio(path)
    with open_recording(path) as recording:
        fast, slow = recording.groups
        assert (fast.fs, fast.names, fast.n_samples) == (200.0, ("Fz", "Cz"), 800)
        assert (slow.fs, slow.names, slow.n_samples) == (25.0, ("Resp",), 100)
        for group in (fast, slow):
            for row, name in enumerate(group.names):
                np.testing.assert_array_equal(group.read()[row], expected[name])


def test_a_fractional_rate_is_kept(tmp_path: Path, rng: np.random.Generator) -> None:
    """A record duration other than a second gives the true rate."""
    path = tmp_path / "slow.edf"
    data = rng.normal(size=30)
    edfio.Edf([edfio.EdfSignal(data, 0.5)], data_record_duration=4).write(path)
    with open_recording(path) as recording:
        assert recording.groups[0].fs == 0.5
        assert recording.groups[0].n_samples == 30


def test_annotation_and_status_channels_are_excluded_with_a_reason(
    tmp_path: Path,
) -> None:
    """Channels that are not signals are excluded, and the recording says which and
    why.
    """
    note = edfio.EdfAnnotation(1, None, "eyes closed")
    labels = [(label, 64) for label in ("Fz", "Status", "STI 014")]
    path = write_recording(tmp_path / "plus.edf", *labels, annotations=[note])
    with open_recording(path) as recording:
        assert recording.format == "EDF+C"
        assert recording.groups[0].names == ("Fz",)
        names = [name for name, _ in recording.left_out]
        assert names == ["Status", "STI 014", "EDF Annotations"]
        assert all(why for _, why in recording.left_out)
    with open_recording(path, channels=["status"]) as recording:
        assert recording.groups[0].names == ("Status",)
    with pytest.raises(UsageError, match="contains annotations"):
        open_recording(path, channels=["EDF Annotations"])


@pytest.mark.parametrize(
    "label", ["BDF Annotations", " EDF Annotations", "edf annotations"]
)
def test_annotations_are_no_signal_however_they_are_labelled(
    edf_path: Path, label: str
) -> None:
    """MNE knows the first two labels: text would be read as samples."""
    patch_bytes(edf_path, (256, label.ljust(16).encode()))
    with open_recording(edf_path) as recording:
        assert recording.groups == ()
        assert [why for _, why in recording.left_out] == ["contains annotations (text)"]


def test_a_leading_annotation_channel_does_not_shift_samples(tmp_path: Path) -> None:
    """BDF annotation bytes between signals do not shift the samples."""
    note = edfio.EdfAnnotation(0.5, 1, "spike")
    both = ("A1", 64), ("A2", 64)
    path = write_recording(tmp_path / "plus.bdf", *both, annotations=[note])
    with open_recording(path, channels=["A2"]) as recording:
        assert recording.format == "BDF+C"
        (got,) = recording.groups[0].read()
        np.testing.assert_array_equal(got, read_with_edfio(path)["A2"])


@pytest.mark.parametrize(
    ("ascii_", "micro"),
    [(b"uV", b"\xb5V"), (b"uV ", "\xb5V".encode())],
    ids=["latin-1", "utf-8"],
)
def test_a_unit_with_a_micro_sign_is_read(
    edf_path: Path, ascii_: bytes, micro: bytes
) -> None:
    """The standard asks for ASCII; many devices write Latin-1, newer ones UTF-8."""
    edf_path.write_bytes(edf_path.read_bytes().replace(ascii_, micro, 1))
    with open_recording(edf_path) as recording:
        assert recording.groups[0].channels[0].unit == "\xb5V"


def test_fields_padded_with_zero_bytes_are_read(edf_path: Path) -> None:
    """Some recorders fill a field with zero bytes where spaces belong."""
    expected = read_with_edfio(edf_path)["Fz"]
    patch_bytes(edf_path, (256, edf_path.read_bytes()[256:512].replace(b" ", b"\0")))
    patch_bytes(edf_path, (0, b"0\0\0\0\0\0\0\0"))
    with open_recording(edf_path) as recording:
        (group,) = recording.groups
        assert (group.names, group.channels[0].unit) == (("Fz",), "uV")
        np.testing.assert_array_equal(group.read()[0], expected)


@pytest.mark.parametrize(
    ("start", "stop"), [(0, 1), (0, 100), (99, 101), (150, 377), (399, 400), (5, 5)]
)
def test_a_sample_range_is_read_from_the_records(
    tmp_path: Path, start: int, stop: int
) -> None:
    """A range of samples may begin and end in any record."""
    path = write_recording(tmp_path / "a.edf", ("Fz", 100), ("Resp", 20))
    with open_recording(path) as recording:
        read = recording.groups[0].read
        np.testing.assert_array_equal(read(start, stop), read()[:, start:stop])


def test_records_longer_than_a_chunk_are_read_in_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file whose data records are huge gives the same samples."""
    path = write_recording(tmp_path / "a.bdf", ("A1", 128), ("A2", 128))
    with open_recording(path) as recording:
        read = recording.groups[0].read
        expected = read()
        monkeypatch.setattr(edf_module, "_CHUNK_NBYTES", 100)
        np.testing.assert_array_equal(read(100, 400), expected[:, 100:400])


def test_an_edf_plus_d_file_without_times_is_refused(edf_path: Path) -> None:
    """The times would be in the annotation channel."""
    check_unreadable(
        patch_bytes(edf_path, (192, b"EDF+D")), "has no annotation channel"
    )


def test_an_edf_plus_d_record_without_time_is_refused(tmp_path: Path) -> None:
    """An EDF+D record without its time could hide a gap, so it is refused."""
    path = tmp_path / "d.edf"
    write_discontinuous(path, ["0", "1"], ("Fz", 32))
    path.write_bytes(path.read_bytes().replace(b"+1\x14", b"???"))
    check_unreadable(path, "has no start time")


@pytest.mark.parametrize(
    ("count_field", "missing_nbytes", "n_records", "match"),
    [
        (b"-1      ", 0, 4, None),
        (
            b"-1      ",
            5,
            3,
            "not closed properly: found 3 data records; .* record of 123 bytes",
        ),
        (
            b"4       ",
            5,
            3,
            "declares 4 data records, the file has 3.*123 bytes.*last 1 s are miss",
        ),
        (
            b"9       ",
            0,
            4,
            "declares 9 data records, the file has 4; the last 5 s are miss",
        ),
        (b"2       ", 0, 4, "the header declares 2 data records; all 4 in the file"),
        (
            b"3       ",
            5,
            3,
            "longer .* declares 3 data records; all 3 in.*incomplete record of "
            "123 bytes",
        ),
    ],
)
def test_complete_data_records_are_read(
    edf_path: Path,
    count_field: bytes,
    missing_nbytes: int,
    n_records: int,
    match: str | None,
) -> None:
    """Complete records are read whatever number the header gives, as MNE does."""
    expected = read_with_edfio(edf_path)["Fz"][: 64 * n_records]
    path = patch_bytes(edf_path, (236, count_field))
    path.write_bytes(path.read_bytes()[: -missing_nbytes or None])
    if match is None:
        with open_recording(path) as recording:
            got = recording.groups[0].read()
    else:
        import mne  # not there in WebAssembly, where the rest of the file runs

        (got,) = read_with_warning(path, match)
        raw = mne.io.read_raw_edf(path, verbose="error")
        np.testing.assert_allclose(raw.get_data() * 1e6, got, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(got, [expected])


def test_a_channel_without_calibration_is_left_out_not_guessed(tmp_path: Path) -> None:
    """Equal limits give no physical value: the channel is named with what its header
    says, the rest of the file is read.
    """
    path = write_recording(tmp_path / "a.edf", ("Fz", 64), ("Cz", 64), ("Pz", 64))
    raw = path.read_bytes()
    columns = 256 + 3 * (16 + 80 + 8)  # physical minimum and maximum, digital ones
    equal_physical = columns, raw[columns + 24 : columns + 32]
    equal_digital = columns + 56, raw[columns + 80 : columns + 88]
    physical = "has no valid calibration (physical 500 to 500, digital -32768 to 32767)"
    digital = "has no valid calibration (physical -500 to 500, digital 32767 to 32767)"
    with open_recording(patch_bytes(path, equal_physical, equal_digital)) as recording:
        assert recording.groups[0].names == ("Pz",)
        assert recording.left_out == (("Fz", physical), ("Cz", digital))
    with pytest.raises(UsageError, match=r"'Fz' cannot be selected.*physical 500 to"):
        open_recording(path, channels="Fz")


@pytest.mark.parametrize(
    ("low", "high"),
    [(b"-500,25 ", b"500,75  "), (b"500     ", b"-500    "), (b"-5e2", b"+,5E3   ")],
    ids=["commas", "turned", "exponents"],
)
def test_unusual_limits_scale_as_in_mne(
    edf_path: Path, low: bytes, high: bytes
) -> None:
    """Limits may have decimal commas, exponents, or a maximum below the minimum."""
    import mne  # not there in WebAssembly, where the rest of the file runs

    path = patch_bytes(edf_path, (256 + 104, low.ljust(8)), (256 + 112, high))
    with open_recording(path) as recording:
        got = recording.groups[0].read()
    raw = mne.io.read_raw_edf(path, verbose="error")
    np.testing.assert_allclose(got, raw.get_data() * 1e6, rtol=1e-9, atol=1e-9)


def test_a_data_record_of_0_s_is_taken_for_1_s(edf_path: Path) -> None:
    """A record of 0 s counts as 1 s, as in MNE, with a warning; a given rate wins."""
    expected = [read_with_edfio(edf_path)["Fz"]]
    path = patch_bytes(edf_path, (244, b"0       "))
    (got,) = read_with_warning(
        path, r"duration of 0 s.*may be wrong \(64 Hz\).*pass fs=HZ"
    )
    np.testing.assert_array_equal(got, expected)
    with open_recording(path, fs=200) as recording:
        assert recording.warnings == ()
        assert recording.groups[0].fs == 200


def test_one_given_rate_cannot_replace_two_guessed_ones(tmp_path: Path) -> None:
    """A given rate is ambiguous for two groups of a file without a record duration."""
    path = write_recording(tmp_path / "a.edf", ("Fz", 64), ("Resp", 16))
    patch_bytes(path, (244, b"0       "))
    match = (
        r"fs=100 cannot apply to channels of different rates; .* 0 s; .*"
        "select the channels of one"
    )
    check_unreadable(path, match, fs=100)
    read_with_warning(path, "select the channels of one rate .* and pass fs=HZ")
    with open_recording(path, fs=100, channels="Resp") as recording:
        assert (recording.groups[0].fs, recording.warnings) == (100, ())


@pytest.mark.parametrize(
    ("offset", "field", "match"),
    [
        (252, b"abcd", "number of signals"),
        (252, b"-2  ", "number of signals"),
        (184, b"768     ", "header length"),
        (236, b"4x      ", "number of data records"),
        (236, b"-2      ", "number of data records"),
        (244, b"1e-7    ", "data record duration is 1e-07 s; must be at least 1e-06 s"),
        (244, b"nan     ", "duration of a data record"),
        (244, b"-1      ", "duration of a data record"),
        (244, b"1_0     ", "duration of a data record"),
        (256 + 216, b"1e3     ", "samples per record"),
        (256 + 216, b"0       ", "no signal channel.*'Fz' contains no samples"),
        (256 + 216, b"9999999 ", "no samples.*declares 4 data records, the file has 0"),
    ],
)
def test_a_broken_header_field_is_refused(
    edf_path: Path, offset: int, field: bytes, match: str
) -> None:
    """Fields that place samples are checked, and the message names them."""
    check_unreadable(patch_bytes(edf_path, (offset, field)), match)


STAGES = [(0.0, 30.0, "Sleep stage W"), (30.0, 90.0, "Sleep stage 1")]


def write_hypnogram(path: Path) -> Path:
    """Write a file of sleep stages, like those of Sleep-EDF."""
    notes = [edfio.EdfAnnotation(*stage) for stage in STAGES]
    edfio.Edf([], annotations=notes, starttime=datetime.time(22, 1)).write(path)
    return path


def test_a_file_of_annotations_alone_has_no_channel(
    tmp_path: Path, call: CommandRunner
) -> None:
    """A file of annotations alone works with `info` and annotates other recordings."""
    path = write_hypnogram(tmp_path / "stages.edf")
    with open_recording(path) as recording:
        assert (recording.groups, recording.begun) == ((), 22 * 3600 + 60)
        assert [tuple(annotation) for annotation in recording.annotations] == STAGES
        assert "EDF+C, no channel" in repr(recording)
        assert recording.left_out == (
            ("EDF Annotations", "contains annotations (text)"),
        )
        stages = recording.annotations
    entry = call("info", path, "--json", "-").document["files"][0]
    assert (entry["groups"], entry["seconds"]) == ([], 120.0)
    assert [annotation["text"] for annotation in entry["annotations"]] == [
        annotation[2] for annotation in STAGES
    ]
    result = call("info", path)
    assert result.code == 0
    assert "lasts 0:02:00" in result.out
    night = write_recording(tmp_path / "night.edf", ("Fz", 64), seconds=130)
    with open_recording(night) as recording:
        save_recording(tmp_path / "both.edf", recording, annotations=stages)
    with open_recording(tmp_path / "both.edf", start="Sleep stage 1") as recording:
        assert recording.groups[0].n_samples == 100 * 64


def test_analyses_refuse_a_file_of_annotations_alone(
    tmp_path: Path, call: CommandRunner
) -> None:
    path = write_hypnogram(tmp_path / "stages.edf")
    for command in (
        ("welch",),
        ("bands", "--bands", "alpha=8:13"),
        ("spectrogram",),
        ("convert", "-o", tmp_path / "x.npz"),
        ("welch", "--epochs", "Sleep*", "--tmin", "0", "--tmax", "30"),
        ("welch", "--start", "5"),
        ("explain",),
        ("learn", "--out", tmp_path / "x.rlxl", "--band", "1:40"),
        ("welch", "-c", "EEG*"),
    ):
        check_rejected(call(command[0], path, *command[1:]), 2, "stages.edf")
    with open_recording(path) as recording:
        for analyse_recording in (
            lambda: rlx.welch(recording),
            lambda: rlx.io.epochs(recording, "Sleep*", 0, 30),
            lambda: save_recording(tmp_path / "x.npz", recording),
        ):
            with pytest.raises(
                RecordingError, match="contains no signal channel; it has 2"
            ):
                analyse_recording()
    for options in ({"start": 5}, {"channels": "Fz"}, {"exclude": "Fz"}):
        with pytest.raises((RecordingError, UnknownName)):
            open_recording(path, **options)


def test_record_times_are_not_read_without_signals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Millions of empty records cost no time."""
    path = tmp_path / "notes.edf"
    edfio.Edf([], annotations=[edfio.EdfAnnotation(0, None, "x")]).write(path)
    monkeypatch.setattr(edf_module, "find_record_runs", None)
    monkeypatch.setattr(edf_module, "check_continuous", None)
    for version in (b"EDF+D", b"EDF+C"):
        with open_recording(patch_bytes(path, (192, version))) as recording:
            assert recording.groups == ()


@pytest.mark.parametrize(
    ("starts", "message"),
    [
        (
            ["0", "1", "7.5", "8.5", "9.5", "20"],
            r"2 gaps \(15 s in total\), the first at 2 s",
        ),
        (
            ["5", "6", "7", "8", "9", "9.5"],
            r"times have 1 overlap \(0.5 s in total\), the first at 5 s",
        ),
        (["0", "1", "2", "3", "4", "6"], r"1 gap \(1 s in total\), the first at 5 s"),
        (["0", "1", "2.5", "2.8", "4", "9"], r"and 1 overlap \(0.7 s in total\)"),
        (["0", "1", "2", "3", "4", "5.01"], None),
        (["7", "8", "9", "10", "11", "12"], None),
        (["0", "1.001", "2.003", "3.004", "4.006", "5.007"], None),
        (
            ["0", "1.005", "2.010", "3.015", "4.020", "5.025"],
            "differ by up to 0.025 s from the times computed from the",
        ),
    ],
)
def test_gaps_of_a_file_declared_continuous_are_warned_of(
    tmp_path: Path, starts: list[str], message: str | None
) -> None:
    """Samples are read end to end, as MNE reads them; half a sample is no gap."""
    path = write_discontinuous(tmp_path / "c.edf", starts, ("Fz", 40))
    patch_bytes(path, (192, b"EDF+C"))
    import mne  # not there in WebAssembly, where the rest of the file runs

    expected = mne.io.read_raw_edf(path, verbose="error").get_data()[0] * 1e6
    if message is None:
        with open_recording(path) as recording:
            assert recording.warnings == ()
            actual = recording.groups[0].read()
    else:
        (actual,) = read_with_warning(path, message)
    np.testing.assert_allclose(actual[0], expected, atol=1e-9)


def test_a_continuous_file_needs_no_record_times(tmp_path: Path) -> None:
    path = write_discontinuous(tmp_path / "c.edf", ["0", "1", "2", "3"], ("Fz", 40))
    raw = (
        path.read_bytes()
        .replace(b"+3\x14\x14", b"\0\0\0\0")
        .replace(b"EDF+D", b"EDF+C")
    )
    path.write_bytes(raw)
    with open_recording(path) as recording:
        assert recording.groups[0].n_samples == 160


@pytest.mark.parametrize(
    ("text", "raw"),
    [
        ("Augen öffnen", "Augen öffnen".encode("latin-1")),
        ("50 µV – “ok” €", "50 µV – “ok” €".encode("cp1252")),
        ("Augen öffnen", "Augen öffnen".encode()),
        ("眼を開く", "眼を開く".encode()),
    ],
)
def test_annotations_of_other_encodings(tmp_path: Path, text: str, raw: bytes) -> None:
    """Text that is not valid UTF-8 is read as Latin-1, with a warning."""
    path = write_discontinuous(
        tmp_path / "l.edf", ["0", "1"], ("Fz", 40), notes=[("0.5", "X" * len(raw))]
    )
    path.write_bytes(path.read_bytes().replace(b"X" * len(raw), raw))
    is_plain = raw == text.encode()
    with open_recording(patch_bytes(path, (192, b"EDF+C"))) as recording:
        with nullcontext() if is_plain else pytest.warns(RecordingWarning, match="UTF"):
            assert [annotation.text for annotation in recording.annotations] == [text]
        assert [annotation.text for annotation in recording.annotations] == [text]
        assert len(recording.warnings) == (not is_plain)
        assert is_plain or "1 annotation is not valid UTF-8" in recording.warnings[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RecordingWarning)
        with open_recording(path, start=text) as recording:
            assert recording.groups[0].n_samples == 60


def test_a_truncated_header_is_refused(edf_path: Path) -> None:
    """A truncated header is refused with both sizes, before any missing field is
    read.
    """
    raw = edf_path.read_bytes()
    for length, needs in ((100, 256), (300, 512)):
        edf_path.write_bytes(raw[:length])
        message = f"header is truncated; expected {needs} .*got {length}"
        check_unreadable(edf_path, message)


def test_a_file_without_records_is_refused(edf_path: Path) -> None:
    """A header alone holds nothing to analyse."""
    edf_path.write_bytes(edf_path.read_bytes()[:512])
    check_unreadable(
        patch_bytes(edf_path, (236, b"0       ")), "the file contains no samples"
    )


def test_edfio_is_not_needed_to_read(
    edf_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading EDF needs no edfio, which a browser does not have."""
    expected = read_with_edfio(edf_path)["Fz"]
    monkeypatch.setitem(sys.modules, "edfio", None)
    with open_recording(edf_path) as recording:
        np.testing.assert_array_equal(recording.groups[0].read()[0], expected)


def test_a_rate_that_contradicts_the_header_is_refused(edf_path: Path) -> None:
    """The file's own rate is never overruled; the same rate is accepted."""
    with open_recording(edf_path, fs=64) as recording:
        assert recording.groups[0].fs == 64.0
    check_unreadable(edf_path, r"got fs=128.*64 Hz", fs=128)
