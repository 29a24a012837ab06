"""The text table of peaks: as many columns as fit, no wrapped line, hidden columns
reported.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from rlxweb.batch.recording_analysis import analyse
from rlxweb.batch.results import FileResult
from rlxweb.batch.settings import Settings
from rlxweb.cli.peaks_text_table import print_peaks
from rlxweb.io import open_recording


def noise(*shape: int) -> np.ndarray:
    """Return noise that does not depend on what ran before."""
    return np.random.default_rng(4).standard_normal(shape)


def print_lines(
    result: FileResult, width: int = 0, all_peaks: bool = True
) -> list[str]:
    """Return the lines on a terminal of this width, or in a pipe where it is 0."""
    text = io.StringIO()
    console = Console(file=text, width=width or 80, force_terminal=width > 0)
    print_peaks(console, [result], all_peaks)
    return text.getvalue().splitlines()


def analyse_rows(folder: Path, x: np.ndarray, names: list[str], **settings: object):
    np.savez(folder / "x.npz", x=x, channels=np.array(names), fs=100.0)
    with open_recording(folder / "x.npz", array="x") as recording:
        return analyse(recording, Settings(device="cpu", **settings))


@pytest.mark.parametrize(("width", "columns"), [(40, 1), (80, 3), (200, 9)])
def test_terminal_shows_the_peaks_that_fit_with_a_note(
    tmp_path: Path, width: int, columns: int
) -> None:
    """Only the title may be wider than the terminal."""
    result = analyse_rows(tmp_path, noise(2, 2000), ["Fp1", "Cz"])
    title, *table, note = print_lines(result, width, all_peaks=False)
    assert title.startswith(f"{tmp_path / 'x.npz'}: 2 channels at 100 Hz, 14 segments")
    assert max(map(len, table)) <= width
    (row,) = [line for line in table if line.startswith("Fp1")]
    assert row.count("Hz") == columns
    assert note == f"the {columns} strongest of 16 bins are shown; --k 16 shows all"


@pytest.mark.parametrize(("width", "blocks"), [(40, 16), (80, 6), (400, 1), (0, 1)])
def test_every_requested_peak_is_shown(tmp_path: Path, width: int, blocks: int) -> None:
    """Peaks take as many blocks as a terminal needs; a pipe gets whole lines."""
    result = analyse_rows(tmp_path, noise(2, 2000), ["Fp1", "Cz"])
    _, *table = print_lines(result, width)
    rows = [line for line in table if line.startswith("Fp1")]
    assert len(rows) == blocks
    assert max(map(len, table)) <= (width or 1000)
    frequencies = " ".join(rows).replace("Fp1", "").split()[::3]
    assert frequencies == [f"{hz:.2f}" for hz in result.groups[0].peaks.hz[0]]


def test_missing_peaks_are_dashes(tmp_path: Path) -> None:
    x = np.sin(2 * np.pi * 10 * np.arange(2000) / 100)[None]
    result = analyse_rows(tmp_path, x, ["a"], mode="peaks", prominence=1.0)
    (row,) = [line for line in print_lines(result) if line.startswith("a ")]
    assert row.count("–") == 15


def test_names_are_plain_text_and_shortened_on_a_terminal(tmp_path: Path) -> None:
    """Names are plain text, and shortened on a terminal so that no column is lost."""
    names = ["[red]x[/red]", "n" * 60 + "end"]
    result = analyse_rows(tmp_path, noise(2, 900), names)
    lines = print_lines(result, 80)
    assert any("[red]x[/red]" in line for line in lines)
    assert any(line.startswith("nnnnnnnnnnnn…nnnnnnnnend ") for line in lines)
    assert any(names[1] in line for line in print_lines(result))


def test_wide_letters_keep_columns_aligned(tmp_path: Path) -> None:
    """A letter of two cells takes the width of two."""
    result = analyse_rows(tmp_path, noise(2, 900), ["脳波", "abcd"])
    _, _, _, wide_row, narrow_row = print_lines(result)
    assert len(narrow_row) - len(wide_row) == 2


def test_hidden_channels_are_counted(tmp_path: Path) -> None:
    """Hidden channels are counted on a terminal; in a pipe all are shown."""
    names = [f"c{n}" for n in range(40)]
    result = analyse_rows(tmp_path, noise(40, 900), names)
    note = (
        "… and 8 more channels; use --csv, --npz, --json or a pipe (| cat) to see all"
    )
    assert print_lines(result, 80)[-1] == note
    assert len(print_lines(result)) == 43


def test_control_characters_from_a_file_are_escaped(tmp_path: Path) -> None:
    """Control characters in names, units and file names are escaped."""
    names = ["\x1b[31mred", "two\nlines", "\u202eright to left", "\x9b2J", "é"]
    folder = tmp_path / "\x1b]0;title\x07"
    folder.mkdir()
    result = analyse_rows(folder, noise(5, 900), names)
    text = "\n".join(print_lines(result))
    assert all(c.isprintable() for c in text.replace("\n", ""))
    for escaped in (
        r"\x1b[31mred",
        r"two\nlines",
        r"\u202eright",
        r"\x9b2J",
        "é",
        r"\x07",
    ):
        assert escaped in text


def test_offset_gives_a_hint(tmp_path: Path) -> None:
    """An offset that is the strongest bin nearly everywhere gives a hint how to remove
    it.
    """
    x = noise(3, 900) + 100
    note = "--detrend constant removes it"
    assert note in print_lines(analyse_rows(tmp_path, x, ["a", "b", "c"]))[-1]
    detrended_result = analyse_rows(tmp_path, x, ["a", "b", "c"], detrend="constant")
    assert note not in "".join(print_lines(detrended_result))


def test_neighbouring_bins_give_a_hint(tmp_path: Path) -> None:
    """A window spreads a rhythm over neighbouring bins; spectral peaks have none."""
    t = np.arange(900) / 100
    x = 5 * np.sin(2 * np.pi * 10 * t) + noise(3, 900)
    note = "--mode peaks --preset scipy shows spectral peaks"
    assert note in print_lines(analyse_rows(tmp_path, x, ["a", "b", "c"]))[-1]
    peaks_result = analyse_rows(tmp_path, x, ["a", "b", "c"], mode="peaks")
    assert note not in "".join(print_lines(peaks_result))
    assert note not in "".join(
        print_lines(analyse_rows(tmp_path, x, ["a", "b", "c"], k=1))
    )


def test_long_unit_is_shortened_on_a_terminal(tmp_path: Path) -> None:
    """A long unit is shortened like a name; a pipe gets the whole unit."""
    x = noise(2, 2000)
    units = np.array(["m" * 90, "V"])
    np.savez(tmp_path / "x.npz", x=x, units=units, fs=100.0)
    with open_recording(tmp_path / "x.npz", array="x") as recording:
        result = analyse(recording, Settings(device="cpu", k=1))
    assert all(len(line) <= 60 for line in print_lines(result, 60)[1:])
    assert any("m" * 90 in line for line in print_lines(result))
