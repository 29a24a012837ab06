"""The table of peaks: as many columns as fit, nothing wrapped, nothing left untold."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from rlxweb.cli.job import FileResult, Settings, analyse
from rlxweb.cli.table import print_peaks
from rlxweb.io import open_recording

RNG = np.random.default_rng(4)


def printed(result: FileResult, width: int) -> list[str]:
    text = io.StringIO()
    print_peaks(Console(file=text, width=width), [result])
    return text.getvalue().splitlines()


def analysed(folder: Path, x: np.ndarray, names: list[str], **settings: object):
    np.savez(folder / "x.npz", x=x, channels=np.array(names), fs=100.0)
    with open_recording(folder / "x.npz", array="x") as recording:
        return analyse(recording, Settings(device="cpu", **settings))


@pytest.mark.parametrize(("width", "columns"), [(40, 1), (80, 3), (200, 5)])
def test_as_many_peaks_as_fit(tmp_path: Path, width: int, columns: int) -> None:
    """No line but the title is wider than the terminal."""
    result = analysed(tmp_path, RNG.standard_normal((2, 2000)), ["Fp1", "Cz"])
    title, *table = printed(result, width)
    assert title.startswith(f"{tmp_path / 'x.npz'}: 2 channels at 100 Hz, 14 segments")
    assert max(map(len, table)) <= width
    (row,) = [line for line in table if line.strip().startswith("Fp1")]
    assert row.count("Hz") == columns


def test_missing_peaks_are_dashes(tmp_path: Path) -> None:
    x = np.sin(2 * np.pi * 10 * np.arange(2000) / 100)[None]
    result = analysed(tmp_path, x, ["a"], mode="peaks", prominence=1.0)
    (row,) = [line for line in printed(result, 200) if line.strip().startswith("a ")]
    assert row.count("–") == 4


def test_names_are_text_and_cut_when_long(tmp_path: Path) -> None:
    """Brackets are no markup; a name of any length costs no column."""
    names = ["[red]x[/red]", "n" * 60]
    lines = printed(analysed(tmp_path, RNG.standard_normal((2, 900)), names), 80)
    assert any("[red]x[/red]" in line for line in lines)
    assert not any("n" * 30 in line for line in lines)


def test_hidden_channels_are_counted(tmp_path: Path) -> None:
    names = [f"c{n}" for n in range(40)]
    lines = printed(analysed(tmp_path, RNG.standard_normal((40, 900)), names), 80)
    assert lines[-1] == "… and 8 more channels; --csv, --npz and --json hold all"


def test_an_offset_is_pointed_out(tmp_path: Path) -> None:
    """Where 0 Hz is the strongest bin nearly everywhere, the way out is told."""
    x = RNG.standard_normal((3, 900)) + 100
    told = "--detrend constant removes it"
    assert told in printed(analysed(tmp_path, x, ["a", "b", "c"]), 80)[-1]
    without = analysed(tmp_path, x, ["a", "b", "c"], detrend="constant")
    assert told not in "".join(printed(without, 80))
