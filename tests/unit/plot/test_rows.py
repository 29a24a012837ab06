"""What a picture of spectra is made of, before anything is drawn."""

from __future__ import annotations

import tomllib
from itertools import product

import numpy as np
import pytest

from rlxweb.pages.parts import KEPT_AT
from rlxweb.plot import lettering
from rlxweb.plot.frequencies import ticks_of
from rlxweb.plot.lettering import Lettering
from rlxweb.plot.page import SCRIPTS, STYLES
from rlxweb.plot.rows import COLUMNS, columns, level_range, quantity_levels
from rlxweb.results.units import decimals
from tests.command_line import ROOT


def test_a_bin_at_zero_that_fits_is_shown() -> None:
    level = np.array([[12.0, 0.0, 10.0, -5.0, 3.0]])
    assert level_range(level, 1) == (-5.0, 12.0)
    level[0, 0] = 42.0
    assert level_range(level, 1) == (-5.0, 10.0)


@pytest.mark.parametrize(
    ("n_freqs", "is_log"),
    [(1, False), *product([2, 3, 129, COLUMNS, 30_001], [False, True])],
)
def test_columns_hide_no_narrow_peak(n_freqs: int, is_log: bool) -> None:
    """Each column is the highest of its bins, and every bin is in one; a scale of
    logarithms has no place for the bin at zero.
    """
    level = np.zeros((2, n_freqs))
    at = n_freqs - 1
    level[1, at] = 99
    f = np.arange(n_freqs) * 0.5
    f, level = (f[1:], level[:, 1:]) if is_log else (f, level)
    cells, edges = columns(level, f, 0.5, is_log)
    assert cells.shape == (2, len(edges) - 1)
    assert cells.shape[1] <= COLUMNS
    place = int(np.searchsorted(edges, at * 0.5)) - 1
    assert cells[1, place] == 99
    assert edges[-1] == (n_freqs - 0.5) * 0.5
    assert edges[0] == (0.25 if is_log else -0.25)
    assert (np.diff(edges) > 0).all()


def test_letters_are_looked_for_in_every_font_of_the_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A font that has them is added; what none has is written out."""
    has = {"ours": {"é"}, "other": {"脳", "波"}, "third": {"Ω", "脳"}}
    monkeypatch.setattr(lettering, "_fonts", lambda: [(name, name) for name in has])
    monkeypatch.setattr(lettering, "_letters", lambda path, wanted: has[path] & wanted)
    letters = Lettering.of(["é脳波", "plain"])
    assert letters.families == ("DejaVu Sans", "ours", "other")
    assert letters.missing == set()
    letters = Lettering.of(["Ω 脳\U00020000$"])
    assert letters.families == ("DejaVu Sans", "other", "third")
    assert letters.shown("Ω 脳\U00020000$") == r"Ω 脳\U00020000\$"


def test_small_matters() -> None:
    """Ticks, decibels and the digits a resolution deserves."""
    assert ticks_of(0.5, 100) == [0.5, 1, 2, 5, 10, 20, 50, 100]
    assert ticks_of(8, 13) == [8, 9, 10, 11, 12, 13]
    np.testing.assert_allclose(
        quantity_levels(np.array([100.0, 1.0, 0.0])), [20, 0, -np.inf]
    )
    assert np.isnan(quantity_levels(np.array([np.nan, np.inf, 1.0]))[:2]).all()
    assert [decimals(hz) for hz in (8, 1, 0.5, 0.01, 1e-9)] == [1, 1, 2, 3, 6]


def test_the_wheel_gets_the_parts_of_the_pages() -> None:
    """Files of the site that a picture's page has are named where the wheel is."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    included = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    shared = [name for name in (*STYLES, *SCRIPTS) if name.startswith("demo/")]
    assert shared
    for name in shared:
        assert included[f"site/{name}"] == f"rlxweb/{KEPT_AT}/{name}"
