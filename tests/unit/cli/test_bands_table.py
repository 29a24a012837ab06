"""Table of `rlxweb bands` with many bands, at 80 columns and in a pipe."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.cells import cell_len
from rich.console import Console

from rlxweb.batch.recording_analysis import analyse_file
from rlxweb.batch.recording_band_power import BandRequest, FileBands, compute_bands
from rlxweb.batch.settings import Settings
from rlxweb.cli.bands_table import print_bands

FS = 256.0


def third_octaves(count: int) -> dict[str, tuple[float, float]]:
    middles = 2.0 * 2.0 ** (np.arange(count) / 5)
    return {f"{m:.1f}": (m / 2**0.1, m * 2**0.1) for m in middles}


def table_lines(
    tmp_path: Path, bands: Any, channels: int, terminal: bool, **options: Any
) -> list[str]:
    x = np.random.default_rng(1).standard_normal((channels, int(20 * FS)))
    np.savez(tmp_path / "x.npz", samples=x, fs=FS)
    settings = Settings(preset="scipy", segment_s=8.0, device="cpu", k=1)
    result = analyse_file(str(tmp_path / "x.npz"), settings)
    request = BandRequest(bands, **options)
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=80, color_system=None)
    print_bands(console, [FileBands(result, compute_bands(result, request))])
    return out.getvalue().splitlines()[1:]


@pytest.mark.parametrize("channels", [1, 4, 40])
@pytest.mark.parametrize("count", [5, 9, 26])
def test_eighty_columns_hold_every_band_of_every_channel(
    tmp_path: Path, channels: int, count: int
) -> None:
    bands = third_octaves(count)
    lines = table_lines(tmp_path, bands, channels, terminal=True)
    assert max(map(cell_len, lines)) <= 80
    text = "\n".join(lines)
    shown_count = min(channels, 32)
    first_words = [line.split()[0] for line in lines]
    for name, (low, high) in bands.items():
        assert f"{name} {low:g}–{high:g} Hz" in text
    if count > 8:  # bands are lines: a block has each once
        assert first_words.count("band") == first_words.count(next(iter(bands)))
        assert text.count("%") == count * shown_count
    else:
        assert first_words.count("channel") == first_words.count("ch1")


def test_a_pipe_has_many_bands_as_lines(tmp_path: Path) -> None:
    lines = table_lines(tmp_path, third_octaves(26), 2, terminal=False)
    assert len(lines) == 28
    assert lines[0].split() == ["band", "ch1", "ch2"]
    wide = table_lines(tmp_path, third_octaves(26), 30, terminal=False)
    assert [line.split()[0] for line in wide[2:]] == [f"ch{n}" for n in range(1, 31)]


def test_wide_column_does_not_widen_others(tmp_path: Path) -> None:
    """Peaks above 1/f take half a line; the bands still share lines."""
    lines = table_lines(tmp_path, "eeg", 2, terminal=True, fit="fixed")
    assert max(map(cell_len, lines)) <= 80
    blocks = [line for line in lines if line.startswith("channel")]
    assert len(blocks) == 3
    assert "theta" in blocks[0]
    assert "1/f R²" in blocks[1]
