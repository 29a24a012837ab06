"""Commands `rlxweb bands` and `rlxweb spectrogram`: results, printed output, files."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.signal

import rlxweb as rlx
from rlxweb.batch import channel_group_spectrogram as job
from rlxweb.cli import bands_plot
from rlxweb.cli.welch_plot import new_figure
from tests.cli_runners import CommandRunner, check_rejected
from tests.unit.cli.shared_files import RHYTHM as X

FS = 200.0


@pytest.fixture
def npy(place_files: Callable[[str], None], tmp_path: Path) -> Path:
    place_files("rhythm.npy")
    return tmp_path / "rhythm.npy"


def test_files_match_band_power(npy: Path, tmp_path: Path, call: CommandRunner) -> None:
    """CSV, Parquet and JSON have the numbers of `rlxweb.band_power`."""
    import pyarrow.parquet as pq

    files = {n: tmp_path / f"o.{n}" for n in ("csv", "parquet", "json", "png")}
    flags = {"csv": "--csv", "parquet": "--parquet", "json": "--json", "png": "--plot"}
    result = call(
        *("bands", npy, "--fs", FS),
        *(arg for n, path in files.items() for arg in (flags[n], path)),
    )
    assert result.code == 0, result.err
    want = rlx.band_power(X, FS)
    rows = list(csv.DictReader(io.StringIO(files["csv"].read_text())))
    assert len(rows) == 15
    assert [row["band"] for row in rows[:5]] == list(want.names)
    power = np.array([float(row["power"]) for row in rows]).reshape(3, 5)
    np.testing.assert_allclose(power, want.absolute, rtol=1e-9)
    table = pq.read_table(files["parquet"])
    np.testing.assert_allclose(table["power"].to_numpy(), power.reshape(-1))
    assert table["file"].to_pylist()[0] == str(npy)
    assert files["png"].read_bytes().startswith(b"\x89PNG")
    assert "alpha 8–13 Hz" in result.out
    peak = f"@{want.peak_hz[1, 2]:.2f}"
    assert peak in result.out.splitlines()[4]


def test_bad_file_does_not_stop_others(
    npy: Path, tmp_path: Path, call: CommandRunner
) -> None:
    bad = tmp_path / "bad.edf"
    bad.write_bytes(b"0       nothing")
    result = call("bands", bad, npy, "--fs", FS, "--csv", "-", "--keep-going")
    assert result.code == 1
    assert len(list(csv.reader(io.StringIO(result.out)))) == 16
    assert "1 of 2 recordings failed" in result.err


def test_recordings_have_a_table(
    call: CommandRunner,
    tmp_path: Path,
    eeg_recordings: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each recording has its own picture even with a shared stem; the pictures are
    empty here.
    """
    monkeypatch.setattr(
        bands_plot, "_build_figure", lambda *arguments: new_figure(1, 1)
    )
    files = [eeg_recordings / "test.edf", eeg_recordings / "test.bdf"]
    result = call("bands", *files, "--plot", tmp_path / "b.png")
    assert result.code == 0, result.err
    assert sum(line.startswith("A1 ") for line in result.out.splitlines()) == 1
    assert result.out.count("power in µV² and share") == 2
    pictures = sorted(path.name for path in tmp_path.iterdir())
    assert pictures == ["b-test-bdf.png", "b-test-edf.png"]


# --- spectrogram ------------------------------------------------------------------


def run_spectrogram(npy: Path, call: CommandRunner, folder: Path, *more: Any) -> Any:
    """Return the arrays that a run writes."""
    out = folder / "s.npz"
    result = call("spectrogram", npy, "--fs", FS, "--npz", out, *more)
    assert result.code == 0, result.err
    with np.load(out) as arrays:
        return dict(arrays)


def test_segments_match_scipy(
    npy: Path, tmp_path: Path, call: CommandRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Segments are SciPy's, read in blocks of a segment and a hop at least."""
    monkeypatch.setattr(job, "BLOCK_NBYTES", 10_000)
    got = run_spectrogram(npy, call, tmp_path, "--overlap", "0.25", "--fmax", "30")
    f, t, want = scipy.signal.spectrogram(X, FS, "hann", 400, 100)
    inside = f <= 30
    np.testing.assert_allclose(got["power"], want[:, inside], rtol=1e-9)
    np.testing.assert_allclose(got["t"], t)
    np.testing.assert_allclose(got["f"], f[inside])
    assert got["channels"].tolist() == ["ch1", "ch2", "ch3"]


def test_many_segments_share_columns(
    npy: Path, tmp_path: Path, call: CommandRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Columns are the means of their segments, the last of fewer."""
    monkeypatch.setattr(job, "BLOCK_NBYTES", 30_000)
    got = run_spectrogram(npy, call, tmp_path, "--overlap", "0.5", "--columns", "7")
    _, t, want = scipy.signal.spectrogram(X, FS, "hann", 400, 200)
    parts = [slice(at, at + 6) for at in range(0, 39, 6)]
    want = np.stack([want[..., part].mean(axis=-1) for part in parts], axis=-1)
    np.testing.assert_allclose(got["power"], want, rtol=1e-9)
    np.testing.assert_allclose(got["t"], [t[part].mean() for part in parts])


def test_too_large_spectrogram_is_rejected(
    npy: Path, call: CommandRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "MAX_VALUES", 1000)
    result = call("spectrogram", npy, "--fs", FS)
    check_rejected(
        result,
        2,
        "3 channels × 201 frequencies × 201 columns are 121203 values; at most 1000 ",
    )


def test_nan_is_propagated_on_request(
    npy: Path, tmp_path: Path, call: CommandRunner
) -> None:
    x = X.copy()
    x[2, 100] = np.nan
    np.save(npy, x)
    got = run_spectrogram(npy, call, tmp_path, "--nan", "propagate")
    missing = np.isnan(got["power"]).all(axis=1)
    assert missing[2].any()
    assert not missing[2].all()
    assert not missing[:2].any()


# --- beside the bands -------------------------------------------------------------


@pytest.fixture
def rhythms(tmp_path: Path) -> Path:
    """Noise that falls with 1/f², a 10 Hz rhythm in one channel, and a dead channel."""
    x = np.cumsum(np.random.default_rng(2).standard_normal((3, 12_000)), axis=1)
    x[1] += 40 * np.sin(2 * np.pi * 10 * np.arange(12_000) / FS)
    x[2] = 0.0
    np.save(tmp_path / "r.npy", x)
    return tmp_path / "r.npy"


@pytest.mark.parametrize("mode", ["aperiodic", "knee"])
def test_aperiodic_part_matches_python(
    rhythms: Path, tmp_path: Path, call: CommandRunner, mode: str
) -> None:
    """The aperiodic part equals Python's in all outputs; a dead channel affects only
    itself.
    """
    import pyarrow.parquet as pq

    files = {n: tmp_path / f"o.{n}" for n in ("csv", "parquet", "json", "png")}
    flags = {"csv": "--csv", "parquet": "--parquet", "json": "--json", "png": "--plot"}
    result = call(
        *("bands", rhythms, "--fs", FS, f"--{mode}", "--fit", "2:40"),
        *(arg for n, path in files.items() for arg in (flags[n], path)),
    )
    assert result.code == 0, result.err
    f, psd = rlx.welch(np.load(rhythms)[:2], FS, nperseg=800)
    kind = {"aperiodic": "fixed", "knee": "knee"}[mode]
    want = rlx.aperiodic(f, psd, fmin=2, fmax=40, mode=kind)  # type: ignore[arg-type]
    table = pq.read_table(files["parquet"]).to_pydict()
    for name in ("exponent", "offset", "knee", "r_squared"):
        got = np.array(table[name], np.float64).reshape(3, 5)
        np.testing.assert_allclose(got[:2], getattr(want, name)[:, None] + np.zeros(5))
        assert np.isnan(got[2]).all()
    rows = list(csv.DictReader(io.StringIO(files["csv"].read_text())))
    alpha = next(r for r in rows if (r["channel"], r["band"]) == ("ch2", "alpha"))
    best = int(np.nanargmax(want.peak_height[1]))
    assert float(alpha["above_hz"]) == pytest.approx(want.peak_hz[1, best])
    assert float(alpha["above_hz"]) == pytest.approx(10, abs=0.1)
    assert rows[-1]["exponent"] == rows[-1]["above_hz"] == ""
    document = json.loads(files["json"].read_text())
    (group,) = document["files"][0]["groups"]
    assert group["fit_hz"] == [2.0, 40.0]
    assert len(group["rows"][1]["aperiodic"]["peaks"]) == want.count[1]
    assert document["settings"]["fit"] == kind
    assert "1/f exponent" in result.out
    assert "peaks above 1/f, 2–40 Hz (log10)" in result.out


def test_relative_power_is_shown_as_a_share(npy: Path, call: CommandRunner) -> None:
    share = rlx.band_power(X, FS).relative[1, 2]
    assert f"{share:.1%} @" in call("bands", npy, "--fs", FS, "--relative").out
