"""`--out results.parquet`: every peak in one typed table, read back by pyarrow."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rlxweb.cli import peaks_table
from rlxweb.cli.peaks_table import COLUMNS
from rlxweb.cli.wanted import Wanted
from rlxweb.cli.welch_command import run_job
from rlxweb.jobs.settings import Settings
from rlxweb.jobs.spreading import one_by_one
from tests.command_line import Call, check_refused, forked
from tests.recordings import written

FS = "--fs", 100


@pytest.fixture
def night(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> list[str]:
    """Three recordings in the folder that is worked in."""
    monkeypatch.chdir(tmp_path)
    for name in "abc":
        np.save(f"{name}.npy", rng.standard_normal((3, 900)))
    return ["a.npy", "b.npy", "c.npy"]


def rows_of(path: str | Path) -> list[dict[str, object]]:
    return pq.read_table(path).to_pylist()


@pytest.mark.parametrize("mode", ["bins", "peaks"])
def test_a_row_per_file_channel_and_rank_holds_what_the_record_says(
    night: list[str], call: Call, mode: str
) -> None:
    """Rows hold what the record says to the last bit, beside all other outputs."""
    outputs = "--out", "o.parquet", "--csv", "o.csv", "--npz", "o.npz", "--json", "-"
    args = *night, *FS, "--mode", mode, "--k", 5, "--plot", "o.svg"
    said = call("welch", *args, *outputs)
    assert said.code == 0, said.err
    wanted = [
        {
            **{name: group[name] for name in ("fs", "n_samples", "n_segments")},
            **{name: group[name] for name in ("hz_per_bin", "device", "engine")},
            "dtype": group["dtype"],
            "file": file["path"],
            "channel": channel["name"],
            **{name: channel[name] or None for name in ("unit", "power_unit", "state")},
            "rank": rank,
            "prominence": None,
            **peak,
            "error": None,
        }
        for file in said.record["files"]
        for group in file["groups"]
        for channel in group["channels"]
        for rank, peak in enumerate(channel["peaks"], 1)
    ]
    assert len(wanted) == 3 * 3 * 5
    assert rows_of("o.parquet") == wanted
    assert all((row["prominence"] is None) == (mode == "bins") for row in wanted)
    with open("o.csv", newline="") as file:
        assert [row["power"] for row in csv.DictReader(file)] == [
            str(row["power"]) for row in wanted
        ]
    assert not list(Path().glob(".*"))


def test_types_units_settings_and_versions_stand_in_the_schema(
    tmp_path: Path, call: Call
) -> None:
    """Names are stored once; the unit of a power is that of its row."""
    edf = written(tmp_path / "x.edf", ("EEG", 100), ("ECG", 500), seconds=10)
    out = tmp_path / "o.parquet"
    assert call("welch", edf, "--preset", "scipy", "--out", out, "-q").code == 0
    schema = pq.read_schema(out)
    kinds = {"int32": pa.int32(), "int64": pa.int64(), "float64": pa.float64()}
    kinds["text"] = pa.dictionary(pa.int32(), pa.string())
    for column in COLUMNS:
        field = schema.field(column.name)
        assert field.type == kinds[column.kind]
        assert field.metadata[b"about"].decode() == column.about
        assert (field.metadata.get(b"unit") or b"").decode() == column.unit
    assert schema.names == [column.name for column in COLUMNS]
    about = json.loads(schema.metadata[b"rlxweb"])
    assert about["schema"] == "rlxweb.peaks/1"
    assert about["versions"]["numpy"] == np.__version__
    # Of what makes no result nothing is said: --resume would do all again for it.
    assert about["versions"].keys() == {"python", "numpy", "wgpu"}
    assert about["rlxweb"]
    assert about["settings"]["preset"] == "scipy"
    assert "spectra" not in about["settings"]
    rows = rows_of(out)
    assert {(row["channel"], row["fs"]) for row in rows} == {("EEG", 100), ("ECG", 500)}
    assert {(row["unit"], row["power_unit"]) for row in rows} == {("uV", "µV²/Hz")}


def test_who_has_no_peak_is_there_all_the_same(
    night: list[str], call: Call, rng: np.random.Generator
) -> None:
    """A dead or bad channel, a failed file and an unmatched pattern have rows."""
    x = rng.standard_normal((3, 900))
    x[1], x[2, 7] = 0, np.nan
    np.save("b.npy", x)
    Path("c.npy").write_bytes(b"")
    args = *night, "gone/*.npy", *FS, "--mode", "peaks", "--k", 2
    said = call(
        *("welch", *args, "--nan", "propagate", "--keep-going", "--out", "o.parquet")
    )
    assert said.code == 1
    rows = rows_of("o.parquet")
    told = [(row["file"], row["channel"], row["rank"], row["state"]) for row in rows]
    assert told == [
        ("gone/*.npy", None, None, None),
        *(("a.npy", f"ch{n}", rank, None) for n in (1, 2, 3) for rank in (1, 2)),
        *(("b.npy", "ch1", rank, None) for rank in (1, 2)),
        ("b.npy", "ch2", None, "flat"),
        ("b.npy", "ch3", None, "not finite"),
        ("c.npy", None, None, None),
    ]
    assert "no file matches" in str(rows[0]["error"])
    assert "the file is empty" in str(rows[-1]["error"])
    assert rows[-2]["fs"] == 100
    empty = [row for row in rows if row["rank"] is None]
    assert {row[n] for row in empty for n in ("bin", "hz", "power")} == {None}


def test_the_bytes_are_those_of_the_results(
    night: list[str], call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes follow from results and settings, not from their order or the time."""
    args = "welch", *night, *FS, "-q", "--out"
    for name in ("first", "second"):
        assert call(*args, f"{name}.parquet").code == 0
    found = Path("first.parquet").read_bytes()
    assert Path("second.parquet").read_bytes() == found
    wanted = Wanted(out="third.parquet", quiet=True)
    run_job(
        night,
        Settings(fs=100.0),
        wanted,
        lambda files, settings: reversed(list(one_by_one(files, settings))),
    )
    assert Path("third.parquet").read_bytes() == found
    call(*args, "other.parquet", "--k", 3)
    assert Path("other.parquet").read_bytes() != found
    assert b"parquet-cpp" in found
    assert os.uname().nodename.encode() not in found


def test_rows_come_in_groups_that_end_with_a_file(
    night: list[str], call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row groups end with a file: little is held, and each file lies in one group."""
    monkeypatch.setattr(peaks_table, "GROUP_ROWS", 20)
    assert call("welch", *night, *FS, "--k", 5, "--out", "o.parquet", "-q").code == 0
    found = pq.ParquetFile("o.parquet").metadata
    groups = [found.row_group(at).num_rows for at in range(found.num_row_groups)]
    assert groups == [30, 15]


def test_nothing_is_held_that_nobody_asked_for(night: list[str]) -> None:
    """Neither spectra nor, without the table, whole results are held unasked."""
    settings, held = Settings(fs=100, device="cpu"), {}
    for name, wanted in {
        "out": Wanted(out="o.parquet", quiet=True),
        "table": Wanted(out="o.parquet"),
        "csv": Wanted(csv="o.csv", quiet=True),
        "npz": Wanted(npz="o.npz", out="o.parquet", quiet=True),
        "explain": Wanted(out="o.parquet", explain=True, quiet=True),
    }.items():
        results = run_job(night, settings, wanted).results
        held[name] = [r.groups[0].power.shape for r in results]
    assert held["out"] == []
    assert held["table"] == held["csv"] == held["explain"] == [(3, 0)] * 3
    assert held["npz"] == [(3, 129)] * 3
    many = [f"{n:02}.npy" for n in range(33)]
    for name in many:
        os.link("a.npy", name)
    assert Wanted(out="o.parquet").shows_table(32)
    assert run_job(many, settings, Wanted(out="o.parquet")).results == []


def test_many_recordings_get_a_line_and_no_table(night: list[str], call: Call) -> None:
    for n in range(33):
        os.link("a.npy", f"{n:02}.npy")
    said = call("welch", ".", *FS, "--out", "o.parquet")
    assert (said.code, said.out) == (0, "")
    assert said.err.splitlines()[-1] == "o.parquet: 36 recordings"
    assert "ch1" in call("welch", "a.npy", *FS, "--out", "o.parquet").out


@pytest.mark.parametrize("name", ["o.csv", "o", "-", "/dev/stdout", "o.parquet.gz"])
def test_another_suffix_is_refused(night: list[str], call: Call, name: str) -> None:
    said = call("welch", *night, *FS, "--out", name)
    words = "does not end in .parquet", "--csv, --json, --npz and --plot"
    check_refused(said, 2, f"--out {name!r}", *words)
    assert sorted(os.listdir()) == night


@pytest.mark.parametrize(
    ("out", "words"),
    [
        ("nowhere/o.parquet", ("there is no such folder",)),
        ("folder.parquet", ("it is a folder",)),
        ("s3://bucket/o.parquet", ("files of this machine", "send it on")),
        ("input.parquet", ("it names the recording 'input.parquet'",)),
    ],
)
def test_what_cannot_be_written_is_refused_first(
    night: list[str], call: Call, out: str, words: tuple[str, ...]
) -> None:
    """A place that cannot be written is refused with no result and no notes left."""
    Path("folder.parquet").mkdir()
    os.rename("a.npy", "input.parquet")
    said = call("welch", "input.parquet", "b.npy", *FS, "--out", out)
    check_refused(said, 2, *words)
    assert not list(Path().glob(".*"))


def test_names_of_every_kind_come_back(
    tmp_path: Path,
    call: Call,
    monkeypatch: pytest.MonkeyPatch,
    rng: np.random.Generator,
) -> None:
    """Names of any letters come back, also of files whose names are no text."""
    monkeypatch.chdir(tmp_path)
    names = "脳波 α", "a\nb", "=1+1"
    x = rng.standard_normal((len(names), 600))
    np.savez("脳.npz", x=x, fs=100.0, channels=np.array(names))
    files = [os.fsencode("脳.npz"), b"\xe8.npz", b"\xe9.npz"]
    for file in files[1:]:
        os.link(files[0], file)
    named = [os.fsdecode(file) for file in files]
    said = call("welch", *named, "--out", "脳.parquet", "--k", 1, "-q")
    assert said.code == 0, said.err
    rows = rows_of("脳.parquet")
    assert [row["file"] for row in rows[::3]] == ["脳.npz", r"\xe8.npz", r"\xe9.npz"]
    assert [row["channel"] for row in rows[:3]] == list(names)


def test_without_pyarrow_the_command_to_get_it_is_named(tmp_path: Path) -> None:
    """A missing pyarrow is told before any work; no other output needs it."""
    np.save(tmp_path / "x.npy", np.ones((1, 900)))
    code = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "from rlxweb.cli.main import main; main(sys.argv[1:])"
    )
    args = "-c", code, "welch", "x.npy", *FS, "-q"
    said = forked(*args, "--out", "o.parquet", cwd=tmp_path)
    check_refused(said, 4, "pyarrow, which is not installed", "'rlxweb[parquet]'")
    assert os.listdir(tmp_path) == ["x.npy"]
    assert forked(*args, "--csv", "o.csv", cwd=tmp_path).code == 0


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device of Linux")
def test_a_full_disk_leaves_the_old_table(night: list[str], call: Call) -> None:
    """What was done is kept, and the next run writes it."""
    args = "welch", *night, *FS, "-q"
    assert call(*args, "--k", 2, "--out", "o.parquet").code == 0
    old = Path("o.parquet").read_bytes()
    os.symlink("/dev/full", "full.parquet")
    for out in (("o.parquet", "--csv", "/dev/full"), ("full.parquet",)):
        said = call(*args, "--out", *out)
        assert said.code == 1
        assert "No space left" in said.err
        assert "3 of 3 recordings are done, and kept: --resume" in said.err
        assert Path("o.parquet").read_bytes() == old
    os.unlink("full.parquet")
    for name in ("o.parquet", "full.parquet"):
        assert Path(f".{name}.unfinished").exists()
        said = call(*args, "--out", name, "--resume")
        assert (said.code, len(rows_of(name))) == (0, 3 * 3 * 16)
        assert "taken up: 3 of 3 recordings done before" in said.err
