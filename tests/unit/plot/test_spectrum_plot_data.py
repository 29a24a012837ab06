"""Preparation of spectra for a plot: level range, columns, fonts and ticks."""

from __future__ import annotations

import tomllib
from itertools import product

import numpy as np
import pytest

from rlxweb.export.site_file_reader import PACKAGED_SITE_DIR
from rlxweb.plot import font_selection
from rlxweb.plot.font_selection import FontSelection
from rlxweb.plot.frequency_axis import log_tick_values
from rlxweb.plot.html_page import SCRIPTS, STYLES
from rlxweb.plot.spectrum_plot_data import (
    MAX_COLUMNS,
    level_range,
    merge_into_columns,
    power_levels,
)
from rlxweb.results.power_units import frequency_decimals
from tests.cli_runners import ROOT


def test_level_range_includes_dc_only_if_it_fits() -> None:
    level = np.array([[12.0, 0.0, 10.0, -5.0, 3.0]])
    assert level_range(level, 1) == (-5.0, 12.0)
    level[0, 0] = 42.0
    assert level_range(level, 1) == (-5.0, 10.0)


@pytest.mark.parametrize(
    ("n_freqs", "is_log"),
    [(1, False), *product([2, 3, 129, MAX_COLUMNS, 30_001], [False, True])],
)
def test_merged_columns_keep_narrow_peaks(n_freqs: int, is_log: bool) -> None:
    """Each column is the maximum of its bins and every bin belongs to one; a
    logarithmic axis drops the bin at zero.
    """
    level = np.zeros((2, n_freqs))
    peak_bin = n_freqs - 1
    level[1, peak_bin] = 99
    f = np.arange(n_freqs) * 0.5
    f, level = (f[1:], level[:, 1:]) if is_log else (f, level)
    cells, edges = merge_into_columns(level, f, 0.5, is_log)
    assert cells.shape == (2, len(edges) - 1)
    assert cells.shape[1] <= MAX_COLUMNS
    column = int(np.searchsorted(edges, peak_bin * 0.5)) - 1
    assert cells[1, column] == 99
    assert edges[-1] == (n_freqs - 0.5) * 0.5
    assert edges[0] == (0.25 if is_log else -0.25)
    assert (np.diff(edges) > 0).all()


def test_letters_are_searched_in_all_installed_fonts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Fonts that have missing letters are added; letters that no font has are
    escaped.
    """
    letters_by_font = {"ours": {"é"}, "other": {"脳", "波"}, "third": {"Ω", "脳"}}
    monkeypatch.setattr(
        font_selection,
        "_installed_fonts",
        lambda: [(name, name) for name in letters_by_font],
    )
    monkeypatch.setattr(
        font_selection,
        "_supported_letters",
        lambda path, wanted: letters_by_font[path] & wanted,
    )
    fonts = FontSelection.for_texts(["é脳波", "plain"])
    assert fonts.families == ("DejaVu Sans", "ours", "other")
    assert fonts.missing_letters == set()
    fonts = FontSelection.for_texts(["Ω 脳\U00020000$"])
    assert fonts.families == ("DejaVu Sans", "other", "third")
    assert fonts.drawable_text("Ω 脳\U00020000$") == r"Ω 脳\U00020000\$"


def test_ticks_decibels_and_decimals() -> None:
    """Ticks, decibels and the number of decimals for a resolution."""
    assert log_tick_values(0.5, 100) == [0.5, 1, 2, 5, 10, 20, 50, 100]
    assert log_tick_values(8, 13) == [8, 9, 10, 11, 12, 13]
    np.testing.assert_allclose(
        power_levels(np.array([100.0, 1.0, 0.0])), [20, 0, -np.inf]
    )
    assert np.isnan(power_levels(np.array([np.nan, np.inf, 1.0]))[:2]).all()
    assert [frequency_decimals(hz) for hz in (8, 1, 0.5, 0.01, 1e-9)] == [1, 1, 2, 3, 6]


def test_wheel_includes_shared_page_files() -> None:
    """The wheel's build settings include the site files that a plot page uses."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    included = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    shared = [name for name in (*STYLES, *SCRIPTS) if name.startswith("demo/")]
    assert shared
    for name in shared:
        assert included[f"site/{name}"] == f"rlxweb/{PACKAGED_SITE_DIR}/{name}"
