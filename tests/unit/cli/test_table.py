"""The table of peaks: as many columns as fit, nothing wrapped, nothing left untold."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from rlxweb.cli.table import print_peaks
from rlxweb.io import open_recording
from rlxweb.jobs.analysis import analyse
from rlxweb.jobs.results import FileResult
from rlxweb.jobs.settings import Settings


def noise(*shape: int) -> np.ndarray:
    """Return the same numbers whatever ran before."""
    return np.random.default_rng(4).standard_normal(shape)


def printed(result: FileResult, width: int = 0, all_peaks: bool = True) -> list[str]:
    """What a terminal of that width is shown, or a pipe where there is none."""
    text = io.StringIO()
    console = Console(file=text, width=width or 80, force_terminal=width > 0)
    print_peaks(console, [result], all_peaks)
    return text.getvalue().splitlines()


def analysed(folder: Path, x: np.ndarray, names: list[str], **settings: object):
    np.savez(folder / "x.npz", x=x, channels=np.array(names), fs=100.0)
    with open_recording(folder / "x.npz", array="x") as recording:
        return analyse(recording, Settings(device="cpu", **settings))


@pytest.mark.parametrize(("width", "columns"), [(40, 1), (80, 3), (200, 9)])
def test_a_terminal_gets_the_peaks_that_fit_and_is_told(
    tmp_path: Path, width: int, columns: int
) -> None:
    """No line but the title is wider than the terminal."""
    result = analysed(tmp_path, noise(2, 2000), ["Fp1", "Cz"])
    title, *table, told = printed(result, width, all_peaks=False)
    assert title.startswith(f"{tmp_path / 'x.npz'}: 2 channels at 100 Hz, 14 segments")
    assert max(map(len, table)) <= width
    (row,) = [line for line in table if line.startswith("Fp1")]
    assert row.count("Hz") == columns
    assert told == f"the {columns} strongest of 16 bins; --k 16 shows all"


@pytest.mark.parametrize(("width", "blocks"), [(40, 16), (80, 6), (400, 1), (0, 1)])
def test_every_peak_that_was_asked_for_is_shown(
    tmp_path: Path, width: int, blocks: int
) -> None:
    """Peaks take as many blocks as a terminal needs; a pipe gets whole lines."""
    result = analysed(tmp_path, noise(2, 2000), ["Fp1", "Cz"])
    _, *table = printed(result, width)
    rows = [line for line in table if line.startswith("Fp1")]
    assert len(rows) == blocks
    assert max(map(len, table)) <= (width or 1000)
    found = " ".join(rows).replace("Fp1", "").split()[::3]
    assert found == [f"{hz:.2f}" for hz in result.groups[0].peaks.hz[0]]


def test_missing_peaks_are_dashes(tmp_path: Path) -> None:
    x = np.sin(2 * np.pi * 10 * np.arange(2000) / 100)[None]
    result = analysed(tmp_path, x, ["a"], mode="peaks", prominence=1.0)
    (row,) = [line for line in printed(result) if line.startswith("a ")]
    assert row.count("–") == 15


def test_names_are_text_and_cut_where_there_is_no_room(tmp_path: Path) -> None:
    """Names are plain text, and cut on a terminal so that no column is lost."""
    names = ["[red]x[/red]", "n" * 60 + "end"]
    result = analysed(tmp_path, noise(2, 900), names)
    lines = printed(result, 80)
    assert any("[red]x[/red]" in line for line in lines)
    assert any(line.startswith("nnnnnnnnnnnn…nnnnnnnnend ") for line in lines)
    assert any(names[1] in line for line in printed(result))


def test_wide_letters_keep_the_columns_in_line(tmp_path: Path) -> None:
    """A letter of two cells takes the room of two."""
    result = analysed(tmp_path, noise(2, 900), ["脳波", "abcd"])
    _, _, _, wide, plain = printed(result)
    assert len(plain) - len(wide) == 2


def test_hidden_channels_are_counted(tmp_path: Path) -> None:
    """Hidden channels are counted on a terminal; a pipe hides none."""
    names = [f"c{n}" for n in range(40)]
    result = analysed(tmp_path, noise(40, 900), names)
    told = "… and 8 more channels; a pipe (| cat), --csv, --npz and --json have all"
    assert printed(result, 80)[-1] == told
    assert len(printed(result)) == 43


def test_nothing_a_file_says_can_steer_a_terminal(tmp_path: Path) -> None:
    """Names and units of channels are written out; so is the name of the file."""
    names = ["\x1b[31mred", "two\nlines", "\u202eright to left", "\x9b2J", "é"]
    folder = tmp_path / "\x1b]0;title\x07"
    folder.mkdir()
    result = analysed(folder, noise(5, 900), names)
    text = "\n".join(printed(result))
    assert all(c.isprintable() for c in text.replace("\n", ""))
    for shown in (
        r"\x1b[31mred",
        r"two\nlines",
        r"\u202eright",
        r"\x9b2J",
        "é",
        r"\x07",
    ):
        assert shown in text


def test_an_offset_is_pointed_out(tmp_path: Path) -> None:
    """An offset that is the strongest nearly everywhere is told with the way out."""
    x = noise(3, 900) + 100
    told = "--detrend constant removes it"
    assert told in printed(analysed(tmp_path, x, ["a", "b", "c"]))[-1]
    without = analysed(tmp_path, x, ["a", "b", "c"], detrend="constant")
    assert told not in "".join(printed(without))


def test_neighbours_of_a_strong_bin_are_pointed_out(tmp_path: Path) -> None:
    """Neighbouring bins are what a window makes of a rhythm; peaks have none."""
    t = np.arange(900) / 100
    x = 5 * np.sin(2 * np.pi * 10 * t) + noise(3, 900)
    told = "--mode peaks --preset scipy shows spectral peaks"
    assert told in printed(analysed(tmp_path, x, ["a", "b", "c"]))[-1]
    maxima = analysed(tmp_path, x, ["a", "b", "c"], mode="peaks")
    assert told not in "".join(printed(maxima))
    assert told not in "".join(printed(analysed(tmp_path, x, ["a", "b", "c"], k=1)))


def test_a_long_unit_leaves_room_on_a_terminal(tmp_path: Path) -> None:
    """A long unit is cut like a name; a pipe gets the whole of it."""
    x = noise(2, 2000)
    units = np.array(["m" * 90, "V"])
    np.savez(tmp_path / "x.npz", x=x, units=units, fs=100.0)
    with open_recording(tmp_path / "x.npz", array="x") as recording:
        result = analyse(recording, Settings(device="cpu", k=1))
    assert all(len(line) <= 60 for line in printed(result, 60)[1:])
    assert any("m" * 90 in line for line in printed(result))
