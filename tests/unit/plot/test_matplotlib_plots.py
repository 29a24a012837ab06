"""Plots of results by matplotlib show what is in the results, and leave matplotlib as
it was.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any

import matplotlib
import mne
import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.colors import to_rgba

import rlxweb as rlx
from rlxweb.core.errors import ShapeError, Unsupported, UsageError
from rlxweb.results.labels import Labels
from rlxweb.signal.electrode_positions import electrode_positions, project_to_plane

FS = 200.0
X = np.random.default_rng(5).standard_normal((8, 3000))
X += 3 * np.sin(2 * np.pi * 11 * np.arange(3000) / FS)
NAMES = ("Fp1", "Fp2", "C3", "C4", "O1", "O2", "Cz", "脳波_$x$ and much more of a name")
LABELS = Labels(("channel",), (NAMES,), "uV")


@pytest.fixture(autouse=True)
def agg() -> Iterator[None]:
    matplotlib.use("Agg")
    yield
    pyplot.close("all")


def render(ax: Any) -> Any:
    ax.figure.canvas.draw()
    return ax


def test_a_line_for_each_row_with_its_name() -> None:
    result = rlx.welch(X, FS).named(LABELS)
    ax = render(result.plot(fmax=50, offset=10))
    lines = ax.get_lines()
    assert len(lines) == 8
    assert lines[0].get_xdata().max() <= 50
    means = np.array([line.get_ydata().mean() for line in lines])
    np.testing.assert_allclose(-np.diff(means), 10, atol=1.5)
    assert [artist.get_text() for artist in ax.texts][:2] == ["Fp1", "Fp2"]
    assert "µV²/Hz" in ax.get_ylabel()
    assert len({(artist.get_color(), artist.get_linestyle()) for artist in lines}) == 8


def test_an_axis_is_logarithmic_on_request() -> None:
    result = rlx.welch(X, FS)
    assert result.plot().get_xscale() == "linear"
    assert render(result.plot(log=True)).get_xscale() == "log"


def test_many_rows_are_a_heatmap() -> None:
    ax = render(rlx.welch(np.tile(X, (4, 1)), FS).plot())
    assert not ax.get_lines()
    assert ax.collections


def test_panels_are_axes_of_their_own() -> None:
    result = rlx.welch(X, FS).named(LABELS)
    axes = result.plot(lines="panels", log=True)
    assert [ax.get_title(loc="left") for ax in axes[:3]] == ["Fp1", "Fp2", "C3"]
    assert len(axes) == 8
    with pytest.raises(UsageError, match="each panel needs its own axes"):
        result.plot(pyplot.figure().subplots(), lines="panels")
    with pytest.raises(UsageError, match="lines"):
        result.plot(lines="side by side")


def test_peaks_lie_on_their_lines_and_inside_the_axes() -> None:
    result = rlx.welch_peaks(X, FS, mode="peaks", preset="scipy", k=3, spectrum=True)
    ax = render(result.plot(fmax=20))
    lines = [line for line in ax.get_lines() if len(line.get_xdata()) > 3]
    marks = [line for line in ax.get_lines() if line.get_marker() == "o"]
    assert len(lines) == len(marks) == 8
    for line, dots in zip(lines, marks, strict=True):
        assert (dots.get_xdata() <= 20).all()
        curve = dict(zip(line.get_xdata(), line.get_ydata(), strict=True))
        assert [curve[hz] for hz in dots.get_xdata()] == list(dots.get_ydata())
    render(rlx.welch_peaks(X, FS, k=2).plot())


def test_other_results_can_be_plotted() -> None:
    bands = rlx.band_power(X, FS)
    assert len(render(bands.plot()).patches) == 8 * len(bands.names)
    render(rlx.spectrogram(X, FS).plot(row=7, log=True))
    render(rlx.tfr_morlet(X, FS, [8.0, 9.0], output="phase").plot())
    render(rlx.aperiodic(rlx.welch(X, FS), fmax=60).plot(row=3))
    axes = pyplot.figure().subplots()
    assert rlx.coherence(X[:1], X[1:2], FS).plot(axes) is axes


def test_style_ends_with_its_block() -> None:
    before = dict(matplotlib.rcParams)
    with rlx.plot.style(dark=True):
        assert matplotlib.rcParams["figure.facecolor"] == "#12171b"
        inside = rlx.welch(X, FS).plot()
    outside = rlx.welch(X, FS).plot()
    faces = [ax.figure.get_facecolor() for ax in (inside, outside)]
    assert faces == [to_rgba("#12171b"), to_rgba("#ffffff")]
    rlx.welch(X, FS).plot()
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (
            lambda: rlx.spectrogram(X, FS).plot(row=8),
            "row is 8; row must be at least 0 and below 8",
        ),
        (lambda: rlx.aperiodic(rlx.welch(X, FS)).plot(row=-1), "row is -1"),
        (lambda: rlx.welch(X, FS).plot(fmin=500), "the spectrum has no frequency"),
        (lambda: rlx.plot.topomap([1, 2], ["Cz", "Pz"]), "2 of 2 names"),
    ],
)
def test_invalid_plots_are_refused(draw: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        draw()


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    result = rlx.welch(X, FS)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(Unsupported, match=r"rlxweb\[plot\]"):
        result.plot()


def test_a_map_of_the_head() -> None:
    values = np.arange(8.0)
    ax = render(rlx.plot.topomap(values, NAMES, label="dB"))
    texts = {artist.get_text() for artist in ax.texts}
    assert texts == set(NAMES[:7])
    with pytest.raises(ShapeError, match="one value for each name"):
        rlx.plot.topomap(values[:3], NAMES)


def test_electrode_positions_match_easycap() -> None:
    """Angles around the head match EasyCap's montage."""
    montage = mne.channels.make_standard_montage("easycap-M1").get_positions()["ch_pos"]
    names = list(montage)
    ours, indices = electrode_positions(names)
    assert indices == list(range(len(names)))
    theirs = np.array([montage[name] for name in names])
    our_angles, their_angles = (
        np.arctan2(points[:, 1], points[:, 0]) for points in (ours, theirs)
    )
    off_middle = np.hypot(*project_to_plane(ours).T) > 0.1
    angle_differences = np.angle(np.exp(1j * (our_angles - their_angles)))[off_middle]
    assert np.abs(np.rad2deg(angle_differences)).max() < 12
    np.testing.assert_allclose(np.linalg.norm(ours, axis=1), 1.0)


@pytest.mark.parametrize(
    ("name", "standard_name"),
    [("EEG Fp1-REF", "Fp1"), ("Fc5.", "FC5"), ("T3", "T7"), ("EEG CZ-LE", "Cz"),
     ("POL O2", "O2"), ("eeg_pz", "Pz"), ("A1", "A1")],
)  # fmt: skip
def test_electrode_names_of_files_are_recognised(name: str, standard_name: str) -> None:
    np.testing.assert_array_equal(
        electrode_positions([name])[0], electrode_positions([standard_name])[0]
    )
    assert len(electrode_positions([name])[0]) == 1
    assert not electrode_positions(["ECG", "EMG1", "Status", "C", "F99", "Fluid"])[1]


def test_a_numbered_cap_is_not_the_10_20_system() -> None:
    """BioSemi's C3 is another position; two eye channels change nothing."""
    biosemi = [f"{letter}{n}" for letter in "ABCD" for n in range(1, 33)]
    assert not electrode_positions(biosemi)[1]
    sleep = ["EEG F3", "EEG C3", "EEG O1", "E1", "E2", "A1"]
    assert electrode_positions(sleep)[1] == [0, 1, 2, 5]


def test_overlays_take_the_next_colours_of_their_axes() -> None:
    """Overlays take new colours and keep in sight what was drawn before."""
    figure, ax = pyplot.subplots()
    ax.plot([0, 50], [-60, 40], label="mine")
    rlx.welch(X[0], FS, nperseg=256).plot(ax)
    rlx.welch(100 * X[1], FS, nperseg=512).plot(ax, fmax=20)
    rlx.multitaper(X[:2], FS).plot(ax)
    render(ax)
    lines = ax.get_lines()
    assert len(lines) == 5
    assert len({line.get_color() for line in lines}) == 5
    left, right = ax.get_xlim()
    assert left <= 0
    assert right == FS / 2
    low, high = ax.get_ylim()
    for line in lines:
        assert low <= np.median(line.get_ydata()) <= high
    assert high >= 40
    assert low <= -60
    pyplot.close(figure)


def test_a_row_keeps_its_colour_after_a_row_without_values() -> None:
    """The third row has the third colour in panels and overlays, whatever precedes
    it.
    """
    x = X[:3].copy()
    x[1, 5] = np.nan
    result = rlx.welch(x, FS, nan="propagate").named(
        Labels(("channel",), (("a", "b", "c"),))
    )
    overlay_colours = [line.get_color() for line in result.plot().get_lines()]
    panels = result.plot(lines="panels")
    panel_colours = [ax.get_lines()[-1].get_color() for ax in panels]
    assert (overlay_colours[0], overlay_colours[2]) == (
        panel_colours[0],
        panel_colours[2],
    )
    shifted = result.plot(offset=10)
    assert [line.get_color() for line in shifted.get_lines()] == overlay_colours
    assert [artist.get_color() for artist in shifted.texts[:3]] == overlay_colours


@pytest.mark.parametrize("count", [1, 8, 9, 30, 60])
def test_a_legend_of_many_bands_leaves_space_for_the_bars(count: int) -> None:
    edges = np.geomspace(1.0, 99.0, count + 1)
    bands = {f"b{n}": (edges[n], edges[n + 1]) for n in range(count)}
    result = rlx.band_power(X[:2], FS, bands, nperseg=3000, nfft=1 << 16)
    ax = render(result.plot())
    axes_box, legend = ax.get_window_extent(), ax.get_legend().get_window_extent()
    figure = ax.figure.bbox
    assert axes_box.width > 0.3 * figure.width
    assert axes_box.height > 0.5 * min(figure.height, 160)
    assert legend.x0 >= axes_box.x1 - 1
    assert figure.x0 <= legend.x0 < legend.x1 <= figure.x1
    assert figure.y0 <= legend.y0 < legend.y1 <= figure.y1
    bars = [artist[0].get_facecolor() for artist in ax.containers]
    assert len(set(bars)) == count
    html = result._repr_html_()
    assert len(set(re.findall(r'fill="(#\w+)"', html))) == count
