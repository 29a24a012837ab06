"""Pictures of results show what is in them, and leave matplotlib as it was."""

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
from rlxweb.errors import ShapeError, Unsupported, UsageError
from rlxweb.results.labels import Labels
from rlxweb.signal.electrodes import flat, positions

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


def drawn(ax: Any) -> Any:
    ax.figure.canvas.draw()
    return ax


def test_a_line_for_each_row_with_its_name() -> None:
    found = rlx.welch(X, FS).named(LABELS)
    ax = drawn(found.plot(fmax=50, offset=10))
    lines = ax.get_lines()
    assert len(lines) == 8
    assert lines[0].get_xdata().max() <= 50
    apart = np.array([line.get_ydata().mean() for line in lines])
    np.testing.assert_allclose(-np.diff(apart), 10, atol=1.5)
    assert [one.get_text() for one in ax.texts][:2] == ["Fp1", "Fp2"]
    assert "µV²/Hz" in ax.get_ylabel()
    assert len({(one.get_color(), one.get_linestyle()) for one in lines}) == 8


def test_an_axis_is_logarithmic_when_it_is_asked_for() -> None:
    found = rlx.welch(X, FS)
    assert found.plot().get_xscale() == "linear"
    assert drawn(found.plot(log=True)).get_xscale() == "log"


def test_many_rows_are_a_heatmap() -> None:
    ax = drawn(rlx.welch(np.tile(X, (4, 1)), FS).plot())
    assert not ax.get_lines()
    assert ax.collections


def test_panels_are_axes_of_their_own() -> None:
    found = rlx.welch(X, FS).named(LABELS)
    axes = found.plot(lines="panels", log=True)
    assert [ax.get_title(loc="left") for ax in axes[:3]] == ["Fp1", "Fp2", "C3"]
    assert len(axes) == 8
    with pytest.raises(UsageError, match="each panel has its own"):
        found.plot(pyplot.figure().subplots(), lines="panels")
    with pytest.raises(UsageError, match="lines"):
        found.plot(lines="side by side")


def test_peaks_lie_on_their_lines_and_inside_the_axes() -> None:
    found = rlx.welch_peaks(X, FS, mode="peaks", preset="scipy", k=3, spectrum=True)
    ax = drawn(found.plot(fmax=20))
    lines = [line for line in ax.get_lines() if len(line.get_xdata()) > 3]
    marks = [line for line in ax.get_lines() if line.get_marker() == "o"]
    assert len(lines) == len(marks) == 8
    for line, dots in zip(lines, marks, strict=True):
        assert (dots.get_xdata() <= 20).all()
        on = dict(zip(line.get_xdata(), line.get_ydata(), strict=True))
        assert [on[hz] for hz in dots.get_xdata()] == list(dots.get_ydata())
    drawn(rlx.welch_peaks(X, FS, k=2).plot())


def test_the_others_draw_what_they_hold() -> None:
    bands = rlx.band_power(X, FS)
    assert len(drawn(bands.plot()).patches) == 8 * len(bands.names)
    drawn(rlx.spectrogram(X, FS).plot(row=7, log=True))
    drawn(rlx.tfr_morlet(X, FS, [8.0, 9.0], output="phase").plot())
    drawn(rlx.aperiodic(rlx.welch(X, FS), fmax=60).plot(row=3))
    own = pyplot.figure().subplots()
    assert rlx.coherence(X[:1], X[1:2], FS).plot(own) is own


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
    ("call", "said"),
    [
        (lambda: rlx.spectrogram(X, FS).plot(row=8), "row is 8; there are 8"),
        (lambda: rlx.aperiodic(rlx.welch(X, FS)).plot(row=-1), "row is -1"),
        (lambda: rlx.welch(X, FS).plot(fmin=500), "no frequency lies"),
        (lambda: rlx.plot.topomap([1, 2], ["Cz", "Pz"]), "2 of 2 names"),
    ],
)
def test_what_cannot_be_drawn_is_said(call: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        call()


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = rlx.welch(X, FS)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(Unsupported, match=r"rlxweb\[plot\]"):
        found.plot()


def test_a_map_of_the_head() -> None:
    values = np.arange(8.0)
    ax = drawn(rlx.plot.topomap(values, NAMES, label="dB"))
    texts = {one.get_text() for one in ax.texts}
    assert texts == set(NAMES[:7])
    with pytest.raises(ShapeError, match="one value for each name"):
        rlx.plot.topomap(values[:3], NAMES)


def test_electrodes_sit_where_others_put_them() -> None:
    """Angles around the head are EasyCap's; the ring is a tenth of the way up here."""
    places = mne.channels.make_standard_montage("easycap-M1").get_positions()["ch_pos"]
    names = list(places)
    own, which = positions(names)
    assert which == list(range(len(names)))
    theirs = np.array([places[name] for name in names])
    around, other = (np.arctan2(one[:, 1], one[:, 0]) for one in (own, theirs))
    off_middle = np.hypot(*flat(own).T) > 0.1
    turned = np.angle(np.exp(1j * (around - other)))[off_middle]
    assert np.abs(np.rad2deg(turned)).max() < 12
    np.testing.assert_allclose(np.linalg.norm(own, axis=1), 1.0)


@pytest.mark.parametrize(
    ("given", "plain"),
    [("EEG Fp1-REF", "Fp1"), ("Fc5.", "FC5"), ("T3", "T7"), ("EEG CZ-LE", "Cz"),
     ("POL O2", "O2"), ("eeg_pz", "Pz"), ("A1", "A1")],
)  # fmt: skip
def test_names_as_files_spell_them(given: str, plain: str) -> None:
    np.testing.assert_array_equal(positions([given])[0], positions([plain])[0])
    assert len(positions([given])[0]) == 1
    assert not positions(["ECG", "EMG1", "Status", "C", "F99", "Fluid"])[1]


def test_a_cap_that_counts_its_electrodes_is_no_10_20_system() -> None:
    """BioSemi's C3 is another place; two channels of the eyes change nothing."""
    biosemi = [f"{letter}{n}" for letter in "ABCD" for n in range(1, 33)]
    assert not positions(biosemi)[1]
    sleep = ["EEG F3", "EEG C3", "EEG O1", "E1", "E2", "A1"]
    assert positions(sleep)[1] == [0, 1, 2, 5]


def test_overlays_take_the_next_colours_of_their_axes() -> None:
    """Overlays take new colours and keep in sight what was drawn before."""
    figure, ax = pyplot.subplots()
    ax.plot([0, 50], [-60, 40], label="mine")
    rlx.welch(X[0], FS, nperseg=256).plot(ax)
    rlx.welch(100 * X[1], FS, nperseg=512).plot(ax, fmax=20)
    rlx.multitaper(X[:2], FS).plot(ax)
    drawn(ax)
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


def test_a_row_keeps_its_colour_beside_one_without_a_level() -> None:
    """The third row has the third colour in panels and overlays, whatever is before."""
    x = X[:3].copy()
    x[1, 5] = np.nan
    found = rlx.welch(x, FS, nan="propagate").named(
        Labels(("channel",), (("a", "b", "c"),))
    )
    over = [line.get_color() for line in found.plot().get_lines()]
    panels = found.plot(lines="panels")
    alone = [ax.get_lines()[-1].get_color() for ax in panels]
    assert (over[0], over[2]) == (alone[0], alone[2])
    shifted = found.plot(offset=10)
    assert [line.get_color() for line in shifted.get_lines()] == over
    assert [one.get_color() for one in shifted.texts[:3]] == over


@pytest.mark.parametrize("count", [1, 8, 9, 30, 60])
def test_a_legend_of_many_bands_leaves_room_for_the_bars(count: int) -> None:
    edges = np.geomspace(1.0, 99.0, count + 1)
    bands = {f"b{n}": (edges[n], edges[n + 1]) for n in range(count)}
    found = rlx.band_power(X[:2], FS, bands, nperseg=3000, nfft=1 << 16)
    ax = drawn(found.plot())
    own, legend = ax.get_window_extent(), ax.get_legend().get_window_extent()
    figure = ax.figure.bbox
    assert own.width > 0.3 * figure.width
    assert own.height > 0.5 * min(figure.height, 160)
    assert legend.x0 >= own.x1 - 1
    assert figure.x0 <= legend.x0 < legend.x1 <= figure.x1
    assert figure.y0 <= legend.y0 < legend.y1 <= figure.y1
    bars = [one[0].get_facecolor() for one in ax.containers]
    assert len(set(bars)) == count
    picture = found._repr_html_()
    assert len(set(re.findall(r'fill="(#\w+)"', picture))) == count
