"""`rlxweb convert`: which files appear, what they hold, and what is refused."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import edfio
import numpy as np
import pytest

from rlxweb.errors import UsageError
from rlxweb.io import Recording, open_recording, prepared
from rlxweb.jobs.conversion import Conversion
from tests.command_line import Call, check_refused, running, spawn
from tests.recordings import saved, written

PARQUET = pytest.param("parquet", marks=pytest.mark.needs("pyarrow"))


@pytest.fixture(autouse=True)
def night(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two channels of 8 s at 128 Hz with two annotations, in the folder one is in."""
    monkeypatch.chdir(tmp_path)
    notes = [edfio.EdfAnnotation(1, 2, "Lights off"), edfio.EdfAnnotation(5, None, "x")]
    channels = ("EEG Fz", 128), ("EEG Cz", 128)
    return written(tmp_path / "night.edf", *channels, seconds=8, annotations=notes)


def samples(path: str | Path) -> np.ndarray:
    with open_recording(path) as recording:
        return np.concatenate([np.asarray(g.read()) for g in recording.groups])


@pytest.mark.parametrize("kind", ["bdf", "npz", "wav", PARQUET])
def test_a_recording_comes_back(call: Call, kind: str) -> None:
    """A recording comes back to what the format holds; the loss is told in one line."""
    said = call("convert", "night.edf", "--to", kind)
    assert said.code == 0
    (line,) = said.out.splitlines()
    assert line.startswith(f"night.{kind}: 2 channels at 128 Hz, 8 s")
    np.testing.assert_allclose(
        samples(f"night.{kind}"), samples("night.edf"), rtol=1e-6
    )
    assert ("2 annotations" in line) == (kind != "wav")
    assert ("without the channels' names" in said.err) == (kind == "wav")


def test_parquet_has_what_pandas_reads(call: Call) -> None:
    import pandas as pd

    assert call("convert", "night.edf", "-o", "n.parquet").code == 0
    found = pd.read_parquet("n.parquet")
    np.testing.assert_array_equal(found.to_numpy().T, samples("night.edf"))


def test_what_is_taken_and_made_ready_is_what_is_written(call: Call) -> None:
    """A stretch of a channel, filtered, at another rate; its annotations with it."""
    options = "--lowpass", "20", "--resample", "64", "-c", "EEG Cz"
    args = "convert", "night.edf", "-o", "cut.npz", "--start", "Lights off"
    assert call(*args, "--stop", "6", *options).code == 0
    with open_recording("night.edf", channels="EEG Cz", start=1, stop=6) as recording:
        with open_recording("night.edf", channels="EEG Cz") as whole:
            ready = prepared(whole.groups[0], lowpass=20, resample=64)
        assert recording.begun is not None
        begun = recording.begun + 1
    with np.load("cut.npz") as found:
        assert found["samples"].shape == (1, 320)
        assert float(found["fs"]) == 64
        assert float(found["begun"]) == begun
        assert [tuple(n) for n in found["annotations"]] == [
            (0.0, 2.0, "Lights off"),
            (4.0, 0.0, "x"),
        ]
    assert ready.n_samples == 512


def test_a_file_per_rate_where_a_format_holds_one(call: Call, tmp_path: Path) -> None:
    """A file per rate has it in its name; EDF holds all rates, and a pipe takes one."""
    written(tmp_path / "psg.edf", ("EEG", 128), ("SpO2", 2), seconds=4)
    assert call("convert", "psg.edf", "--to", "wav", "-q").code == 0
    assert call("convert", "psg.edf", "-o", "own.edf", "-q").code == 0
    assert {"psg-128Hz.wav", "psg-2Hz.wav", "own.edf"} <= {*os.listdir()}
    with open_recording("psg-2Hz.wav") as recording:
        assert recording.groups[0].n_samples == 8
    with open_recording("own.edf") as recording:
        assert [group.fs for group in recording.groups] == [128, 2]
    said = call("convert", "psg.edf", "--to", "npz", "-o", "-")
    check_refused(said, 2, "the channels have 2 rates: 128, 2 Hz", "one rate (-c)")
    said = call("convert", "psg.edf", "--to", "wav")
    check_refused(said, 2, "'psg-128Hz.wav' is there already", "--overwrite")
    assert call("convert", "psg.edf", "--to", "wav", "--overwrite").code == 0
    said = call("convert", "psg.edf", "-o", "psg.wav")
    check_refused(said, 2, "'psg-128Hz.wav' is there already")
    os.link("psg.edf", "x-2Hz.wav")
    said = call("convert", "psg.edf", "-o", "x.wav", "--overwrite")
    check_refused(said, 2, "'x-2Hz.wav' is a recording of this run")


@pytest.mark.parametrize("kind", ["npz", "wav", PARQUET])
def test_channels_that_are_brought_to_one_rate_are_in_one_file(
    call: Call, tmp_path: Path, kind: str
) -> None:
    """Channels at one rate are in one file, in the order of the recording."""
    written(tmp_path / "m.edf", ("A", 256), ("R", 100), ("B", 256), seconds=10)
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


def test_parts_of_one_rate_that_are_not_as_long_have_numbers() -> None:
    """Parts of one rate get numbers; a pipe is refused with what sets them apart."""
    parts = [Recording.from_array(np.ones(n), 64).groups[0] for n in (500, 480)]
    parts.append(Recording.from_array(np.ones(15), 2).groups[0])
    whole = Recording.from_array(np.ones(9), 64)
    for groups, names in (
        (parts, ["o/m-64Hz-1.npz", "o/m-64Hz-2.npz", "o/m-2Hz.npz"]),
        (parts[1:], ["o/m-64Hz.npz", "o/m-2Hz.npz"]),
    ):
        recording = replace(whole, path="m", groups=tuple(groups))
        places = Conversion("npz", {"m": "o/m.npz"}).places(recording)
        assert [*places.items()] == [
            (n, [g]) for n, g in zip(names, groups, strict=True)
        ]
    recording = replace(whole, path="m", groups=tuple(parts[:2]))
    match = "of the groups at 64 Hz, one has 500 samples and one 480"
    with pytest.raises(UsageError, match=match):
        Conversion("npz", {"m": "-"}).places(recording)


def test_no_two_recordings_go_into_one_file(call: Call, tmp_path: Path) -> None:
    """A file wanted by two recordings, or by one and the record, is refused."""
    written(tmp_path / "a.edf", ("A", 128), ("R", 2))
    written(tmp_path / "A-2HZ.edf", ("A", 128))
    before = {*os.listdir()}
    for more in ([], ["--overwrite"], ["--jobs", "2"], ["--keep-going"]):
        for files in (("a.edf", "A-2HZ.edf"), ("A-2HZ.edf", "a.edf")):
            said = call("convert", *files, "--to", "npz", *more)
            check_refused(said, 2, "'a-2Hz.npz'", "'A-2HZ.edf' goes into it too")
    said = call("convert", "a.edf", "--to", "npz", "--json", "a-2Hz.npz")
    check_refused(said, 2, "'a-2Hz.npz', and the run record does too")
    assert {*os.listdir()} == before
    args = "convert", "a.edf", "A-2HZ.edf", "--to", "npz", "-q", "-c", "A"
    assert call(*args).code == 0
    assert {*os.listdir()} == {*before, "a.npz", "A-2HZ.npz"}


def test_many_go_into_a_folder(call: Call, tmp_path: Path) -> None:
    """Two of one name keep their suffix in it; a bad one costs itself alone."""
    (tmp_path / "out").mkdir()
    assert call("convert", "night.edf", "-o", "night.bdf", "-q").code == 0
    (tmp_path / "bad.edf").write_bytes(b"0       nothing")
    args = "convert", "night.edf", "night.bdf", "bad.edf", "--to", "npz", "-o", "out/"
    said = call(*args)
    check_refused(said, 2, "bad.edf", "--keep-going does the other recordings")
    said = call(*args, "--keep-going", "--overwrite", "--json", "r.json")
    assert said.code == 1
    assert {*os.listdir("out")} == {"night-edf.npz", "night-bdf.npz"}
    record = json.loads(Path("r.json").read_text())
    assert record["schema"] == "rlxweb.convert/1"
    assert [one["path"] for one in record["files"]] == ["night.edf", "night.bdf"]
    assert [one["path"] for one in record["failed"]] == ["bad.edf"]
    (file,) = record["files"][0]["written"]
    assert file["annotations"] == 2
    assert file["groups"][0]["channels"][0]["error"] == 0.0
    stages = record["files"][0]["stages"]
    assert {*stages} == {"open", "read", "write"}
    assert 0 < sum(stages.values()) <= record["files"][0]["wall_s"] <= record["wall_s"]


def test_no_recording_is_written_over(call: Call, tmp_path: Path) -> None:
    """A recording is written over by no name, nor is a file that was not named."""
    before = (tmp_path / "night.edf").read_bytes()
    os.link("night.edf", "link.edf")
    for args in (["--to", "edf"], ["-o", "night.edf"], ["-o", "link.edf"]):
        for more in ([], ["--overwrite"]):
            check_refused(call("convert", "night.edf", *args, *more), 2, "recording")
    (tmp_path / "night.wav").write_bytes(b"mine")
    said = call("convert", "night.edf", "--to", "wav")
    check_refused(said, 2, "'night.wav' is there already; --overwrite replaces it")
    assert (tmp_path / "night.wav").read_bytes() == b"mine"
    assert call("convert", "night.edf", "-o", "night.wav", "-q").code == 0
    assert (tmp_path / "night.edf").read_bytes() == before
    assert {*os.listdir()} == {"night.edf", "link.edf", "night.wav"}


def test_what_is_asked_for_is_looked_at_before_the_work(call: Call) -> None:
    for args, words in (
        ([], "no format is asked for; written are edf, bdf, wav, npz, parquet, flac"),
        (["-o", "x.ogg"], "ends in '.ogg'"),
        (["-o", "x.edf", "--to", "wav"], "is a name for edf; leave one of them out"),
        (["-o", "no/x.edf"], "there is no such folder; create it first"),
        (["--to", "npz", "--bits", "16"], "npz holds samples as they are read"),
        (["--to", "wav", "--full-scale", "9"], "floats need none; give --bits 16 too"),
        (["-o", "s3://a/b.edf"], "results are written as files of this machine"),
        (["-o", "x.npz", "--json", "x.npz"], "it names the file of --"),
    ):
        check_refused(call("convert", "night.edf", *args), 2, words)
    said = call("convert", "night.edf", "night.edf", "night.edf", "-o", "x.npz", "-q")
    assert said.code == 0  # a file that is named twice is one
    saved("b.npz", np.ones((1, 99)), fs=9)
    said = call("convert", "night.edf", "b.npz", "-o", "x.npz")
    check_refused(said, 2, "it names one file, and 2 recordings are meant")
    assert {*os.listdir()} == {"night.edf", "b.npz", "x.npz"}


def test_integers_that_are_too_small_are_refused_with_the_way_out(call: Call) -> None:
    """A refusal leaves nothing behind; a wider --full-scale holds the values."""
    said = call("convert", "night.edf", "-o", "x.wav", "--bits", "16")
    check_refused(said, 2, "full scale is 1 uV", "give a wider --full-scale VALUE")
    assert said.err.startswith("rlxweb: writing 'x.wav': channel 'EEG Fz' is ")
    assert os.listdir() == ["night.edf"]
    said = call(
        *("convert", "night.edf", "-o", "x.wav", "--bits", "16", "--full-scale", "512")
    )
    assert said.code == 0
    np.testing.assert_allclose(samples("x.wav") * 512, samples("night.edf"), atol=0.008)


def test_a_loss_is_one_line_for_all_files_alike(call: Call) -> None:
    """A loss is one line for all files, in processes too; errors name the output."""
    x = np.random.default_rng(0).normal(size=(1, 5000))
    for name in ("a", "b"):
        np.savez(f"{name}.npz", samples=x, fs=99.97, begun=0.0)
    for more in ((), ("--jobs", "2")):
        said = call("convert", "a.npz", "b.npz", "--to", "edf", "--overwrite", *more)
        assert said.code == 0
        assert said.err.splitlines() == [
            "'a.edf', 'b.edf': 99.97 Hz is 99.9700089973 Hz in the file"
        ]
    x[0, 7] = np.nan
    np.savez("c.npz", samples=x, fs=100.0)
    said = call("convert", "c.npz", "--to", "bdf", "-o", "-")
    check_refused(said, 2, "rlxweb: writing '-': reading 'c.npz': channel 'ch1' is nan")
    args = "convert", "a.npz", "c.npz", "--to", "bdf", "--keep-going"
    said = call(*args)
    assert said.code == 1
    assert "rlxweb: writing 'c.bdf': reading 'c.npz'" in said.err
    assert not {"c.bdf", "-"} & {*os.listdir()}


def test_standard_output_takes_the_file() -> None:
    """Standard output takes the file and nothing else."""
    whole = spawn("convert", "night.edf", "-o", "x.wav", "-q")
    assert whole.code == 0
    args = "convert", "night.edf", "--to", "wav", "-o", "-"
    with running("-m", "rlxweb", *args) as process:
        assert process.stdout.buffer.read() == Path("x.wav").read_bytes()
        assert process.wait(60) == 0
        assert "2 channels at 128 Hz" in process.stderr.read()
