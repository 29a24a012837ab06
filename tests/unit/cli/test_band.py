"""`--fmin` and `--fmax`: the same numbers as without, of a part of the axis."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
import scipy.signal
from matplotlib import image

from rlxweb.cli import plot
from rlxweb.io import open_recording
from rlxweb.jobs.analysis import analyse
from rlxweb.jobs.settings import Settings
from rlxweb.plot.lettering import LATIN
from tests.command_line import Call, check_refused

FS = 100.0


@pytest.fixture
def npy(tmp_path: Path, rng: np.random.Generator) -> Path:
    np.save(tmp_path / "x.npy", rng.standard_normal((4, 6000)) + 500)
    return tmp_path / "x.npy"


@pytest.mark.parametrize("mode", ["bins", "peaks"])
@pytest.mark.parametrize(
    ("low", "high"), [(8, 13), (None, 13.1), (30, None), (12.5, 12.5), (0, 50)]
)
def test_the_peaks_are_those_of_the_whole_that_lie_in_it(
    npy: Path, call: Call, mode: str, low: float | None, high: float | None
) -> None:
    """Peaks of a band are the whole's, with bins, hertz and powers, at its ends too."""
    args = "welch", npy, "--fs", FS, "--mode", mode, "--preset", "scipy", "--json", "-"
    whole = call(*args, "--k", 129).group
    asked = [("--fmin", low), ("--fmax", high)]
    flags = [word for flag, hz in asked if hz is not None for word in (flag, hz)]
    found = call(*args, "--k", 129, *flags)
    assert found.code == 0, found.err
    for one, other in zip(whole["channels"], found.group["channels"], strict=True):
        inside = [
            peak
            for peak in one["peaks"]
            if (low or 0) <= peak["bin"] * FS / 256 <= (high or FS)
        ]
        for peak in (*inside, *other["peaks"]):
            # How far a peak rises over its valleys depends on which are looked at.
            peak.pop("prominence", None)
        assert other["peaks"] == inside


def test_table_csv_arrays_and_picture_hold_the_band_alone(
    npy: Path, tmp_path: Path, call: Call
) -> None:
    """The table, CSV, arrays and picture hold the band alone, with SciPy's estimate."""
    files = [tmp_path / f"o.{suffix}" for suffix in ("csv", "npz", "png")]
    said = call(
        *("welch", npy, "--fs", FS, "--preset", "scipy", "--fmin", 10, "--fmax", 20),
        *("--csv", files[0], "--npz", files[1], "--plot", files[2]),
    )
    assert said.code == 0, said.err
    with files[0].open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 4 * 16
    assert all(10 <= float(row["hz"]) <= 20 for row in rows)
    assert all(float(row["hz"]) == int(row["bin"]) * FS / 256 for row in rows)
    with np.load(files[1]) as arrays:
        hz, power = scipy.signal.welch(np.load(npy), FS, nperseg=256)
        inside = (hz >= 10) & (hz <= 20)
        np.testing.assert_allclose(arrays["freqs"], hz[inside])
        np.testing.assert_allclose(arrays["psd"], power[:, inside], rtol=1e-9)
    assert image.imread(files[2]).shape[2] >= 3


@pytest.mark.parametrize("rows", [3, 14])
@pytest.mark.parametrize("band", [(0, 5), (10, 20), (49, 50), (12.5, 12.5)])
def test_a_picture_of_a_band_begins_and_ends_with_it(
    tmp_path: Path, rows: int, band: tuple[float, float], rng: np.random.Generator
) -> None:
    """A band's lines end at its bins, and its cells half a bin beyond either end."""
    np.save(tmp_path / "x.npy", rng.standard_normal((rows, 3000)))
    low, high = band
    settings = Settings(device="cpu", fmin=low, fmax=high, k=2, nperseg=200)
    with open_recording(tmp_path / "x.npy", fs=FS) as recording:
        axis = plot._figure(analyse(recording, settings), LATIN).axes[0]
    # A line of one bin has no width: it gets a hertz.
    wanted = (low, max(high, low + 1)) if rows == 3 else (low - 0.25, high + 0.25)
    np.testing.assert_allclose(axis.get_xlim(), wanted)


def test_a_band_of_fewer_bins_is_shown_whole(npy: Path, call: Call) -> None:
    """A band of fewer bins than the usual 16 peaks is shown whole."""
    args = "welch", npy, "--fs", FS, "--fmin", 10, "--fmax", 11, "--json", "-"
    assert [len(c["peaks"]) for c in call(*args).group["channels"]] == [3] * 4


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--fmin", 30, "--fmax", 20), ("fmin is 30 Hz", "fmax is 20 Hz")),
        (("--fmin", "nan"), ("nan",)),
        (("--fmin", 51), ("no bin lies from 51 Hz on", "end at 50 Hz")),
        (("--fmin", 10.2, "--fmax", 10.5), ("0.390625 Hz apart", "--nperseg N")),
        (("--fmin", "ten"), ("'--fmin'",)),
    ],
)
def test_a_band_that_holds_nothing_is_refused(
    npy: Path, call: Call, flags: tuple[object, ...], words: tuple[str, ...]
) -> None:
    check_refused(call("welch", npy, "--fs", FS, *flags), 2, *words)
