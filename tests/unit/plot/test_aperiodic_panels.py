"""Panels of the 1/f part beside the bars: a dot for each peak, a number for each
row.
"""

from __future__ import annotations

import numpy as np
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from rlxweb.plot.aperiodic_panels import draw_exponents, draw_peaks_above_aperiodic
from rlxweb.results.svg_charts import COLOURS

HZ = np.array([[6.0, 10.0], [50.0, np.nan], [np.nan, np.nan]])
HEIGHT = np.array([[0.5, 2.0], [0.1, np.nan], [np.nan, np.nan]])
EDGES = np.array([[4.0, 8.0], [8.0, 13.0]])


def test_a_dot_for_each_peak_in_the_colour_of_its_band() -> None:
    axis = Figure().subplots()
    draw_peaks_above_aperiodic(axis, HZ, HEIGHT, EDGES, (1.0, 60.0))
    (dots,) = axis.collections
    assert np.asarray(dots.get_offsets()).tolist() == [[6, 0], [10, 0], [50, 1]]
    colours = [to_hex(colour) for colour in dots.get_facecolors()]
    assert colours[:2] == list(COLOURS[:2])
    assert colours[2] not in COLOURS
    sizes = dots.get_sizes()
    assert sizes[1] == 4 * sizes[0] > sizes[2]
    assert axis.get_xlim() == (1.0, 60.0)
    assert axis.get_ylim() == (2.6, -0.6)


def test_a_number_for_each_exponent_that_is_known() -> None:
    axis = Figure().subplots()
    draw_exponents(axis, np.array([1.234, np.nan, -0.5]))
    assert [text.get_text() for text in axis.texts] == ["1.23", "-0.50"]
    low, high = axis.get_xlim()
    assert low < -0.5 < 1.234 < high


def test_rows_without_a_fit_are_empty() -> None:
    no_peaks = np.full((2, 0), np.nan)
    first, second = Figure().subplots(1, 2)
    draw_peaks_above_aperiodic(first, no_peaks, no_peaks, EDGES, (1.0, 40.0))
    draw_exponents(second, np.full(2, np.nan))
    assert not len(first.collections[0].get_offsets())
    assert not second.texts
