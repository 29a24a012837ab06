"""Command `rlxweb convert`: written files and their contents."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import edfio
import numpy as np
import pytest

from rlxweb.batch.recording_conversion import ConversionJob
from rlxweb.core.errors import UsageError
from rlxweb.io import Recording, open_recording, prepared
from tests.cli_runners import CommandRunner, check_rejected, run_cli, running_program
from tests.edf_bdf_recordings import write_recording

PARQUET = pytest.param("parquet", marks=pytest.mark.needs("pyarrow"))


@pytest.fixture(autouse=True)
def night(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write two channels of 8 s at 128 Hz with two annotations into the working
    folder.
    """
    monkeypatch.chdir(tmp_path)
    notes = [edfio.EdfAnnotation(1, 2, "Lights off"), edfio.EdfAnnotation(5, None, "x")]
    channels = ("EEG Fz", 128), ("EEG Cz", 128)
    return write_recording(
        tmp_path / "night.edf", *channels, seconds=8, annotations=notes
    )


def read_samples(path: str | Path) -> np.ndarray:
    with open_recording(path) as recording:
        return np.concatenate([np.asarray(g.read()) for g in recording.groups])


@pytest.mark.parametrize("kind", ["bdf", "npz", "wav", PARQUET])
def test_recording_round_trips(call: CommandRunner, kind: str) -> None:
    """A recording round-trips as far as the format allows; the loss is reported in one
    line.
    """
    result = call("convert", "night.edf", "--to", kind)
    assert result.code == 0
    (line,) = result.out.splitlines()
    assert line.startswith(f"night.{kind}: 2 channels at 128 Hz, 8 s")
    np.testing.assert_allclose(
        read_samples(f"night.{kind}"), read_samples("night.edf"), rtol=1e-6
    )
    assert ("2 annotations" in line) == (kind != "wav")
    assert ("not stored: the channel names" in result.err) == (kind == "wav")


def test_parquet_has_what_pandas_reads(call: CommandRunner) -> None:
    import pandas as pd

    assert call("convert", "night.edf", "-o", "n.parquet").code == 0
    frame = pd.read_parquet("n.parquet")
    np.testing.assert_array_equal(frame.to_numpy().T, read_samples("night.edf"))


def test_selection_and_preparation_are_written(call: CommandRunner) -> None:
    """A stretch of one channel is filtered, resampled and written with its
    annotations.
    """
    options = "--lowpass", "20", "--resample", "64", "-c", "EEG Cz"
    args = "convert", "night.edf", "-o", "cut.npz", "--start", "Lights off"
    assert call(*args, "--stop", "6", *options).code == 0
    with open_recording("night.edf", channels="EEG Cz", start=1, stop=6) as recording:
        with open_recording("night.edf", channels="EEG Cz") as full_recording:
            prepared_group = prepared(full_recording.groups[0], lowpass=20, resample=64)
        assert recording.begun is not None
        begun_s = recording.begun + 1
    with np.load("cut.npz") as arrays:
        assert arrays["samples"].shape == (1, 320)
        assert float(arrays["fs"]) == 64
        assert float(arrays["begun"]) == begun_s
        assert [tuple(n) for n in arrays["annotations"]] == [
            (0.0, 2.0, "Lights off"),
            (4.0, 0.0, "x"),
        ]
    assert prepared_group.n_samples == 512


def test_single_rate_format_gets_file_per_rate(
    call: CommandRunner, tmp_path: Path
) -> None:
    """Each rate has its own file with the rate in its name; EDF holds all rates, and a
    pipe takes one.
    """
    write_recording(tmp_path / "psg.edf", ("EEG", 128), ("SpO2", 2), seconds=4)
    assert call("convert", "psg.edf", "--to", "wav", "-q").code == 0
    assert call("convert", "psg.edf", "-o", "own.edf", "-q").code == 0
    assert {"psg-128Hz.wav", "psg-2Hz.wav", "own.edf"} <= {*os.listdir()}
    with open_recording("psg-2Hz.wav") as recording:
        assert recording.groups[0].n_samples == 8
    with open_recording("own.edf") as recording:
        assert [group.fs for group in recording.groups] == [128, 2]
    assert call("convert", "psg.edf", "--to", "wav", "--overwrite").code == 0
    os.link("psg.edf", "x-2Hz.wav")
    result = call("convert", "psg.edf", "-o", "x.wav", "--overwrite")
    check_rejected(result, 2, "'x-2Hz.wav' is an input of this run")


@pytest.mark.parametrize("kind", ["npz", "wav", PARQUET])
def test_resampled_channels_are_in_one_file(
    call: CommandRunner, tmp_path: Path, kind: str
) -> None:
    """Channels at one rate are in one file, in the order of the recording."""
    write_recording(tmp_path / "m.edf", ("A", 256), ("R", 100), ("B", 256), seconds=10)
    (tmp_path / "out").mkdir()
    args = "convert", "m.edf", "--to", kind, "-o", "out", "--resample", "128", "-q"
    assert call(*args).code == 0
    assert os.listdir("out") == [f"m.{kind}"]
    with open_recording("m.edf", resample=128) as recording:
        (a, b), (r,) = (np.asarray(group.read()) for group in recording.groups)
    with open_recording(f"out/m.{kind}") as recording:
        (group,) = recording.groups
        assert (group.fs, group.n_samples) == (128, 1280)
        if kind != "wav":
            assert group.names == ("A", "R", "B")
        np.testing.assert_allclose(group.read(), [a, r, b], rtol=1e-6)


def test_groups_of_one_rate_and_other_length_are_numbered() -> None:
    """Groups of one rate but different length get numbers; a pipe is rejected with the
    difference.
    """
    parts = [Recording.from_array(np.ones(n), 64).groups[0] for n in (500, 480)]
    parts.append(Recording.from_array(np.ones(15), 2).groups[0])
    base_recording = Recording.from_array(np.ones(9), 64)
    for groups, names in (
        (parts, ["o/m-64Hz-1.npz", "o/m-64Hz-2.npz", "o/m-2Hz.npz"]),
        (parts[1:], ["o/m-64Hz.npz", "o/m-2Hz.npz"]),
    ):
        recording = replace(base_recording, path="m", groups=tuple(groups))
        output_groups = ConversionJob("npz", {"m": "o/m.npz"}).plan_outputs(recording)
        assert [*output_groups.items()] == [
            (n, [g]) for n, g in zip(names, groups, strict=True)
        ]
    recording = replace(base_recording, path="m", groups=tuple(parts[:2]))
    match = "the groups at 64 Hz cannot be merged: one has 500 samples, the other 480"
    with pytest.raises(UsageError, match=match):
        ConversionJob("npz", {"m": "-"}).plan_outputs(recording)


def test_channels_of_one_rate_need_no_rate_in_the_name(
    call: CommandRunner, tmp_path: Path
) -> None:
    """Recordings whose files would share a name are converted when they do not."""
    write_recording(tmp_path / "a.edf", ("A", 128), ("R", 2))
    write_recording(tmp_path / "A-2HZ.edf", ("A", 128))
    before = {*os.listdir()}
    args = "convert", "a.edf", "A-2HZ.edf", "--to", "npz", "-q", "-c", "A"
    assert call(*args).code == 0
    assert {*os.listdir()} == {*before, "a.npz", "A-2HZ.npz"}


def test_several_recordings_go_into_folder(call: CommandRunner, tmp_path: Path) -> None:
    """Recordings of the same stem keep their suffix in the name; a bad one does not
    stop the others.
    """
    (tmp_path / "out").mkdir()
    assert call("convert", "night.edf", "-o", "night.bdf", "-q").code == 0
    (tmp_path / "bad.edf").write_bytes(b"0       nothing")
    args = "convert", "night.edf", "night.bdf", "bad.edf", "--to", "npz", "-o", "out/"
    result = call(*args)
    check_rejected(result, 2, "bad.edf", "--keep-going to process the other recordings")
    result = call(*args, "--keep-going", "--overwrite", "--json", "r.json")
    assert result.code == 1
    assert {*os.listdir("out")} == {"night-edf.npz", "night-bdf.npz"}
    document = json.loads(Path("r.json").read_text())
    assert document["schema"] == "rlxweb.convert/1"
    assert [entry["path"] for entry in document["files"]] == ["night.edf", "night.bdf"]
    assert [entry["path"] for entry in document["failed"]] == ["bad.edf"]
    (file,) = document["files"][0]["written"]
    assert file["annotations"] == 2
    assert file["groups"][0]["channels"][0]["error"] == 0.0
    stages = document["files"][0]["stages"]
    assert {*stages} == {"open", "read", "write"}
    assert (
        0 < sum(stages.values()) <= document["files"][0]["wall_s"] <= document["wall_s"]
    )


def test_recording_is_never_overwritten(call: CommandRunner, tmp_path: Path) -> None:
    """A recording is not overwritten under another name; a file that is named is."""
    before = (tmp_path / "night.edf").read_bytes()
    os.link("night.edf", "link.edf")
    for options in ([], ["--overwrite"]):
        result = call("convert", "night.edf", "-o", "link.edf", *options)
        check_rejected(result, 2, "recording")
    (tmp_path / "night.wav").write_bytes(b"mine")
    assert call("convert", "night.edf", "-o", "night.wav", "-q").code == 0
    assert (tmp_path / "night.edf").read_bytes() == before
    assert {*os.listdir()} == {"night.edf", "link.edf", "night.wav"}


def test_a_file_that_is_named_twice_is_one(call: CommandRunner) -> None:
    result = call("convert", "night.edf", "night.edf", "night.edf", "-o", "x.npz", "-q")
    assert result.code == 0
    assert {*os.listdir()} == {"night.edf", "x.npz"}


def test_a_wider_full_scale_holds_the_values(call: CommandRunner) -> None:
    result = call(
        *("convert", "night.edf", "-o", "x.wav", "--bits", "16", "--full-scale", "512")
    )
    assert result.code == 0
    np.testing.assert_allclose(
        read_samples("x.wav") * 512, read_samples("night.edf"), atol=0.008
    )


def test_same_loss_is_reported_once_for_all_files(call: CommandRunner) -> None:
    """The same loss in several files is one line, also with processes; errors name the
    output.
    """
    x = np.random.default_rng(0).normal(size=(1, 5000))
    for name in ("a", "b"):
        np.savez(f"{name}.npz", samples=x, fs=99.97, begun=0.0)
    for options in ((), ("--jobs", "2")):
        result = call(
            "convert", "a.npz", "b.npz", "--to", "edf", "--overwrite", *options
        )
        assert result.code == 0
        assert result.err.splitlines() == [
            "'a.edf', 'b.edf': the rate 99.97 Hz is stored as 99.9700089973 Hz"
        ]
    x[0, 7] = np.nan
    np.savez("c.npz", samples=x, fs=100.0)
    args = "convert", "a.npz", "c.npz", "--to", "bdf", "--keep-going"
    result = call(*args)
    assert result.code == 1
    assert "rlxweb: writing 'c.bdf': reading 'c.npz'" in result.err
    assert not {"c.bdf", "-"} & {*os.listdir()}


def test_standard_output_takes_the_file() -> None:
    """Standard output receives the file and nothing else."""
    file_run = run_cli("convert", "night.edf", "-o", "x.wav", "-q")
    assert file_run.code == 0
    args = "convert", "night.edf", "--to", "wav", "-o", "-"
    with running_program("-m", "rlxweb", *args) as process:
        assert process.stdout.buffer.read() == Path("x.wav").read_bytes()
        assert process.wait(60) == 0
        assert "2 channels at 128 Hz" in process.stderr.read()
