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

from rlxweb.batch.file_job_protocol import analyse_sequentially
from rlxweb.batch.settings import Settings
from rlxweb.cli import peaks_parquet
from rlxweb.cli.peaks_parquet import COLUMNS
from rlxweb.cli.welch_command import run_welch_job
from rlxweb.cli.welch_output_options import WelchOutputOptions
from tests.cli_runners import CommandRunner, check_rejected, run_forked
from tests.edf_bdf_recordings import write_recording

FS = "--fs", 100


@pytest.fixture
def recordings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> list[str]:
    """Three recordings in the working directory."""
    monkeypatch.chdir(tmp_path)
    for name in "abc":
        np.save(f"{name}.npy", rng.standard_normal((3, 900)))
    return ["a.npy", "b.npy", "c.npy"]


def read_rows(path: str | Path) -> list[dict[str, object]]:
    return pq.read_table(path).to_pylist()


@pytest.mark.parametrize("mode", ["bins", "peaks"])
def test_parquet_rows_match_the_json_document(
    recordings: list[str], call: CommandRunner, mode: str
) -> None:
    """Rows per file, channel and rank equal the JSON document to the last bit, next to
    all other outputs.
    """
    outputs = "--out", "o.parquet", "--csv", "o.csv", "--npz", "o.npz", "--json", "-"
    args = *recordings, *FS, "--mode", mode, "--k", 5, "--plot", "o.svg"
    result = call("welch", *args, *outputs)
    assert result.code == 0, result.err
    expected = [
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
        for file in result.document["files"]
        for group in file["groups"]
        for channel in group["channels"]
        for rank, peak in enumerate(channel["peaks"], 1)
    ]
    assert len(expected) == 3 * 3 * 5
    assert read_rows("o.parquet") == expected
    assert all((row["prominence"] is None) == (mode == "bins") for row in expected)
    with open("o.csv", newline="") as file:
        assert [row["power"] for row in csv.DictReader(file)] == [
            str(row["power"]) for row in expected
        ]
    assert not list(Path().glob(".*"))


def test_schema_holds_types_units_settings_and_versions(
    tmp_path: Path, call: CommandRunner
) -> None:
    """Names are stored once; the unit of a power is a column of its own."""
    edf = write_recording(tmp_path / "x.edf", ("EEG", 100), ("ECG", 500), seconds=10)
    out = tmp_path / "o.parquet"
    assert call("welch", edf, "--preset", "scipy", "--out", out, "-q").code == 0
    schema = pq.read_schema(out)
    arrow_types = {"int32": pa.int32(), "int64": pa.int64(), "float64": pa.float64()}
    arrow_types["text"] = pa.dictionary(pa.int32(), pa.string())
    for column in COLUMNS:
        field = schema.field(column.name)
        assert field.type == arrow_types[column.column_type]
        assert field.metadata[b"about"].decode() == column.description
        assert (field.metadata.get(b"unit") or b"").decode() == column.unit
    assert schema.names == [column.name for column in COLUMNS]
    metadata = json.loads(schema.metadata[b"rlxweb"])
    assert metadata["schema"] == "rlxweb.peaks/1"
    assert metadata["versions"]["numpy"] == np.__version__
    # Of what makes no result nothing is said: --resume would do all again for it.
    assert metadata["versions"].keys() == {"python", "numpy", "wgpu"}
    assert metadata["rlxweb"]
    assert metadata["settings"]["preset"] == "scipy"
    assert "spectra" not in metadata["settings"]
    rows = read_rows(out)
    assert {(row["channel"], row["fs"]) for row in rows} == {("EEG", 100), ("ECG", 500)}
    assert {(row["unit"], row["power_unit"]) for row in rows} == {("uV", "µV²/Hz")}


def test_channels_without_peaks_have_rows(
    recordings: list[str], call: CommandRunner, rng: np.random.Generator
) -> None:
    """A dead or bad channel, a failed file and an unmatched pattern have rows."""
    x = rng.standard_normal((3, 900))
    x[1], x[2, 7] = 0, np.nan
    np.save("b.npy", x)
    Path("c.npy").write_bytes(b"")
    args = *recordings, "gone/*.npy", *FS, "--mode", "peaks", "--k", 2
    result = call(
        *("welch", *args, "--nan", "propagate", "--keep-going", "--out", "o.parquet")
    )
    assert result.code == 1
    rows = read_rows("o.parquet")
    summary = [(row["file"], row["channel"], row["rank"], row["state"]) for row in rows]
    assert summary == [
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
    rows_without_peaks = [row for row in rows if row["rank"] is None]
    assert {row[n] for row in rows_without_peaks for n in ("bin", "hz", "power")} == {
        None
    }


def test_every_output_says_why_a_channel_has_no_peaks(
    recordings: list[str], call: CommandRunner
) -> None:
    """A channel whose maxima are all too low is told from a flat one, everywhere."""
    t = np.arange(900) / 100
    tone = 1e3 * np.sin(2 * np.pi * 10 * t)
    np.save("a.npy", np.stack([tone, tone / 1e3, 0 * t]))
    limits = "--mode", "peaks", "--preset", "scipy", "--k", 1, "--prominence", 1e3
    outputs = "--out", "o.parquet", "--csv", "o.csv", "--json", "o.json"
    result = call("welch", "a.npy", *FS, *limits, *outputs)
    assert result.code == 0, result.err
    states = ["", "no peaks", "flat"]
    (file,) = json.loads(Path("o.json").read_text())["files"]
    channels = file["groups"][0]["channels"]
    assert [channel["state"] for channel in channels] == states
    with open("o.csv", newline="") as csv_file:
        rows = list(csv.DictReader(csv_file))
    assert [row["state"] for row in rows] == states
    assert [row["rank"] for row in rows] == ["1", "", ""]
    assert {row[name] for row in rows[1:] for name in ("bin", "hz", "power")} == {""}
    parquet_rows = read_rows("o.parquet")
    assert [row["state"] for row in parquet_rows] == [None, *states[1:]]
    assert [row["rank"] for row in parquet_rows] == [1, None, None]
    notes = result.out.splitlines()[-2:]
    assert notes == ["no peaks: ch2", "flat (only rounding errors): ch3"]


def test_file_bytes_depend_on_results_only(
    recordings: list[str], call: CommandRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes depend on results and settings, not on order or time."""
    args = "welch", *recordings, *FS, "-q", "--out"
    for name in ("first", "second"):
        assert call(*args, f"{name}.parquet").code == 0
    first_bytes = Path("first.parquet").read_bytes()
    assert Path("second.parquet").read_bytes() == first_bytes
    output_options = WelchOutputOptions(out="third.parquet", quiet=True)
    run_welch_job(
        recordings,
        Settings(fs=100.0),
        output_options,
        lambda files, settings: reversed(list(analyse_sequentially(files, settings))),
    )
    assert Path("third.parquet").read_bytes() == first_bytes
    call(*args, "other.parquet", "--k", 3)
    assert Path("other.parquet").read_bytes() != first_bytes
    assert b"parquet-cpp" in first_bytes
    assert os.uname().nodename.encode() not in first_bytes


def test_row_groups_end_with_a_file(
    recordings: list[str], call: CommandRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row groups end with a file, so few rows are buffered and each file is in one
    group.
    """
    monkeypatch.setattr(peaks_parquet, "MIN_GROUP_ROWS", 20)
    assert (
        call("welch", *recordings, *FS, "--k", 5, "--out", "o.parquet", "-q").code == 0
    )
    metadata = pq.ParquetFile("o.parquet").metadata
    group_rows = [
        metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)
    ]
    assert group_rows == [30, 15]


def test_unrequested_results_are_not_retained(recordings: list[str]) -> None:
    """Spectra and, without the table, whole results are retained only on request."""
    settings, shapes = Settings(fs=100, device="cpu"), {}
    for name, output_options in {
        "out": WelchOutputOptions(out="o.parquet", quiet=True),
        "table": WelchOutputOptions(out="o.parquet"),
        "csv": WelchOutputOptions(csv="o.csv", quiet=True),
        "npz": WelchOutputOptions(npz="o.npz", out="o.parquet", quiet=True),
        "explain": WelchOutputOptions(out="o.parquet", explain=True, quiet=True),
    }.items():
        results = run_welch_job(recordings, settings, output_options).results
        shapes[name] = [r.groups[0].power.shape for r in results]
    assert shapes["out"] == []
    assert shapes["table"] == shapes["csv"] == shapes["explain"] == [(3, 0)] * 3
    assert shapes["npz"] == [(3, 129)] * 3
    names = [f"{n:02}.npy" for n in range(33)]
    for name in names:
        os.link("a.npy", name)
    assert WelchOutputOptions(out="o.parquet").shows_table(32)
    assert (
        run_welch_job(names, settings, WelchOutputOptions(out="o.parquet")).results
        == []
    )


def test_many_recordings_get_a_summary_line_instead_of_a_table(
    recordings: list[str], call: CommandRunner
) -> None:
    for n in range(33):
        os.link("a.npy", f"{n:02}.npy")
    result = call("welch", ".", *FS, "--out", "o.parquet")
    assert (result.code, result.out) == (0, "")
    assert result.err.splitlines()[-1] == "o.parquet: 36 recordings"
    assert "ch1" in call("welch", "a.npy", *FS, "--out", "o.parquet").out


def test_unusual_names_round_trip(
    tmp_path: Path,
    call: CommandRunner,
    monkeypatch: pytest.MonkeyPatch,
    rng: np.random.Generator,
) -> None:
    """Names of any letters are read back, also of files whose names are not valid
    text.
    """
    monkeypatch.chdir(tmp_path)
    names = "脳波 α", "a\nb", "=1+1"
    x = rng.standard_normal((len(names), 600))
    np.savez("脳.npz", x=x, fs=100.0, channels=np.array(names))
    files = [os.fsencode("脳.npz"), b"\xe8.npz", b"\xe9.npz"]
    for file in files[1:]:
        os.link(files[0], file)
    paths = [os.fsdecode(file) for file in files]
    result = call("welch", *paths, "--out", "脳.parquet", "--k", 1, "-q")
    assert result.code == 0, result.err
    rows = read_rows("脳.parquet")
    assert [row["file"] for row in rows[::3]] == ["脳.npz", r"\xe8.npz", r"\xe9.npz"]
    assert [row["channel"] for row in rows[:3]] == list(names)


def test_missing_pyarrow_names_the_install_command(tmp_path: Path) -> None:
    """A missing pyarrow is reported before any work; no other output needs it."""
    np.save(tmp_path / "x.npy", np.ones((1, 900)))
    code = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "from rlxweb.cli.main import main; main(sys.argv[1:])"
    )
    args = "-c", code, "welch", "x.npy", *FS, "-q"
    result = run_forked(*args, "--out", "o.parquet", cwd=tmp_path)
    check_rejected(result, 4, "pyarrow is not installed", "'rlxweb[parquet]'")
    assert os.listdir(tmp_path) == ["x.npy"]
    assert run_forked(*args, "--csv", "o.csv", cwd=tmp_path).code == 0


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device of Linux")
def test_a_full_disk_leaves_the_old_table(
    recordings: list[str], call: CommandRunner
) -> None:
    """Completed work is kept, and the next run writes it."""
    args = "welch", *recordings, *FS, "-q"
    assert call(*args, "--k", 2, "--out", "o.parquet").code == 0
    old_bytes = Path("o.parquet").read_bytes()
    os.symlink("/dev/full", "full.parquet")
    for out in (("o.parquet", "--csv", "/dev/full"), ("full.parquet",)):
        result = call(*args, "--out", *out)
        assert result.code == 1
        assert "No space left" in result.err
        assert "3 of 3 recordings are done and saved; --resume" in result.err
        assert Path("o.parquet").read_bytes() == old_bytes
    os.unlink("full.parquet")
    for name in ("o.parquet", "full.parquet"):
        assert Path(f".{name}.unfinished").exists()
        result = call(*args, "--out", name, "--resume")
        assert (result.code, len(read_rows(name))) == (0, 3 * 3 * 16)
        assert "resuming: 3 of 3 recordings already done" in result.err
