"""Options `--fmin` and `--fmax`: the same numbers as without them, for a part of the
axis.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
import scipy.signal
from matplotlib import image

from rlxweb.batch.recording_analysis import analyse
from rlxweb.batch.settings import Settings
from rlxweb.cli import welch_plot
from rlxweb.io import open_recording
from rlxweb.plot.font_selection import DEFAULT_FONTS
from tests.cli_runners import CommandRunner

FS = 100.0


@pytest.fixture
def npy(tmp_path: Path, rng: np.random.Generator) -> Path:
    np.save(tmp_path / "x.npy", rng.standard_normal((4, 6000)) + 500)
    return tmp_path / "x.npy"


@pytest.mark.parametrize("mode", ["bins", "peaks"])
@pytest.mark.parametrize(
    ("low", "high"), [(8, 13), (None, 13.1), (30, None), (12.5, 12.5), (0, 50)]
)
def test_peaks_in_range_equal_peaks_of_full_spectrum(
    npy: Path, call: CommandRunner, mode: str, low: float | None, high: float | None
) -> None:
    """Peaks in a range are those of the full spectrum, with bins, hertz and powers,
    also at its ends.
    """
    args = "welch", npy, "--fs", FS, "--mode", mode, "--preset", "scipy", "--json", "-"
    full = call(*args, "--k", 129).group
    limits = [("--fmin", low), ("--fmax", high)]
    flags = [word for flag, hz in limits if hz is not None for word in (flag, hz)]
    ranged = call(*args, "--k", 129, *flags)
    assert ranged.code == 0, ranged.err
    for full_channel, channel in zip(
        full["channels"], ranged.group["channels"], strict=True
    ):
        inside = [
            peak
            for peak in full_channel["peaks"]
            if (low or 0) <= peak["bin"] * FS / 256 <= (high or FS)
        ]
        for peak in (*inside, *channel["peaks"]):
            # How far a peak rises over its valleys depends on which are looked at.
            peak.pop("prominence", None)
        assert channel["peaks"] == inside


def test_all_outputs_hold_only_the_range(
    npy: Path, tmp_path: Path, call: CommandRunner
) -> None:
    """Table, CSV, arrays and picture hold the range only, with SciPy's estimate."""
    files = [tmp_path / f"o.{suffix}" for suffix in ("csv", "npz", "png")]
    result = call(
        *("welch", npy, "--fs", FS, "--preset", "scipy", "--fmin", 10, "--fmax", 20),
        *("--csv", files[0], "--npz", files[1], "--plot", files[2]),
    )
    assert result.code == 0, result.err
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
def test_picture_axis_ends_at_the_range(
    tmp_path: Path, rows: int, band: tuple[float, float], rng: np.random.Generator
) -> None:
    """Lines end at the outer bins of the range, and cells half a bin beyond either
    end.
    """
    np.save(tmp_path / "x.npy", rng.standard_normal((rows, 3000)))
    low, high = band
    settings = Settings(device="cpu", fmin=low, fmax=high, k=2, nperseg=200)
    with open_recording(tmp_path / "x.npy", fs=FS) as recording:
        axis = welch_plot._build_figure(
            analyse(recording, settings), DEFAULT_FONTS
        ).axes[0]
    # A line of one bin has no width: it gets a hertz.
    expected = (low, max(high, low + 1)) if rows == 3 else (low - 0.25, high + 0.25)
    np.testing.assert_allclose(axis.get_xlim(), expected)
