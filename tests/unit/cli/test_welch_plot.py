"""Plots of spectra by `rlxweb welch`: drawn for any input, with the right contents."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import matplotlib
import numpy as np
import pytest

from rlxweb.batch.recording_analysis import analyse
from rlxweb.batch.results import FileResult, GroupResult
from rlxweb.batch.settings import Settings
from rlxweb.cli import welch_plot
from rlxweb.cli.plot_options import DEFAULT_PLOT_STYLE, PlotStyle
from rlxweb.cli.welch_plot import picture_format, write_spectra_picture
from rlxweb.core.errors import PictureWarning
from rlxweb.io import open_recording
from rlxweb.plot import font_selection
from rlxweb.plot.font_selection import DEFAULT_FONTS
from rlxweb.plot.spectrum_plot_data import MAX_LINES, level_range, power_levels
from rlxweb.plot.theme import style_settings

T = np.arange(20_000) / 1000


def analyse_rows(folder: Path, x: np.ndarray, **settings: object) -> FileResult:
    """Return the analysis of rows x at 1 kHz."""
    names = settings.pop("names", None)
    path = folder / "x.npz"
    arrays = {"x": x} if names is None else {"x": x, "channels": np.array(names)}
    np.savez(path, fs=1000.0, **arrays)
    with open_recording(path, array="x") as recording:
        return analyse(recording, Settings(device="cpu", **settings))


def analyse_group(folder: Path, x: np.ndarray, **settings: object) -> GroupResult:
    (group,) = analyse_rows(folder, x, **settings).groups
    return group


def draw(path: Path, result: FileResult, style: PlotStyle = DEFAULT_PLOT_STYLE) -> None:
    """Draw the picture with the command's code."""
    with path.open("wb") as file:
        write_spectra_picture(file, result, picture_format(str(path)), style)


def noise(rows: int, n_samples: int = 4000) -> np.ndarray:
    return np.random.default_rng(8).standard_normal((rows, n_samples))


UNUSUAL_INPUTS = {
    "one channel": (noise(1), {}),
    "the most lines": (noise(MAX_LINES), {}),
    "a heatmap": (noise(MAX_LINES + 1), {}),
    "a large heatmap": (noise(400, 600), {}),
    "silence": (np.zeros((2, 1000)), {}),
    "silent heatmap": (np.zeros((30, 1000)), {}),
    "one bin": (noise(2), {"nperseg": 1, "k": 1}),
    "two bins": (noise(12), {"nperseg": 3, "k": 1}),
    "no peaks": (np.zeros((3, 1000)), {"mode": "peaks"}),
    "many bins": (noise(12, 9000), {"nperseg": 8192, "preset": "scipy"}),
    "a log axis": (np.cumsum(noise(2, 9000), axis=1), {"nperseg": 2048}),
    "a log heatmap": (np.cumsum(noise(20, 9000), axis=1), {"nperseg": 2048}),
    "not finite": (np.full((2, 900), np.nan), {"nan": "propagate"}),
    "not finite heatmap": (np.full((12, 900), np.inf), {"nan": "propagate"}),
    "names": (noise(4), {"names": ["$x$", "_hidden", "$", "脳波"]}),
    "many names": (noise(12), {"names": [f"${n}^_" for n in range(12)]}),
}


@pytest.fixture(autouse=True)
def command_theme(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Use the command's drawing settings, at a low resolution."""
    monkeypatch.setattr(welch_plot, "DPI", 40)
    with matplotlib.rc_context(style_settings()):
        yield


STYLES = [
    PlotStyle(),
    PlotStyle("log", "overlaid"),
    PlotStyle("linear", "offset", dark=True),
    PlotStyle("log", "panels"),
    PlotStyle("linear", "heatmap"),
]


@pytest.mark.parametrize("case", UNUSUAL_INPUTS)
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.filterwarnings("ignore::rlxweb.core.errors.PictureWarning")
def test_any_spectra_can_be_drawn(tmp_path: Path, case: str) -> None:
    """Any spectrum and any name can be drawn."""
    x, settings = UNUSUAL_INPUTS[case]
    style = STYLES[sorted(UNUSUAL_INPUTS).index(case) % len(STYLES)]
    draw(tmp_path / "p.png", analyse_rows(tmp_path, x, **settings), style)
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["p.png", "x.npz"]


def test_lines_have_names_peaks_and_units(tmp_path: Path) -> None:
    """A line and its dots per channel, the legend, and frequencies written out."""
    x = np.stack([250 / hz * np.sin(2 * np.pi * hz * T) for hz in (125, 250)])
    x += 1e-3 * noise(2, len(T))
    result = analyse_rows(
        tmp_path, x, mode="peaks", k=1, preset="scipy", names=["a", "b"]
    )
    figure = welch_plot._build_figure(result, DEFAULT_FONTS)
    (axis,) = figure.axes
    dots = [line for line in axis.lines if line.get_marker() == "o"]
    assert [round(float(line.get_xdata()[0])) for line in dots] == [125, 250]
    assert [text.get_text() for text in axis.texts] == ["125.0 Hz\na", "250.0 Hz\nb"]
    assert [t.get_text() for t in axis.get_legend().get_texts()] == ["a", "b"]
    assert "1/Hz" in axis.get_ylabel()


@pytest.mark.parametrize("axis", ["linear", "log"])
def test_peak_markers_lie_on_their_lines(tmp_path: Path, axis: str) -> None:
    """A marker lies between two bins, at the frequency of the table, and on the
    line.
    """
    tones = [np.sin(2 * np.pi * hz * T) for hz in (101, 204)]
    x = np.stack(tones) + 1e-3 * noise(2, len(T))
    result = analyse_rows(
        tmp_path, x, mode="peaks", k=1, preset="scipy", names=["a", "b"]
    )
    figure = welch_plot._build_figure(result, DEFAULT_FONTS, PlotStyle(axis))
    (axes,) = figure.axes
    assert axis in axes.get_xlabel()
    assert axes.get_xscale() == axis
    lines = [line for line in axes.lines if len(line.get_xdata())]
    for row, (line, dots) in enumerate(zip(lines[::2], lines[1::2], strict=True)):
        (hz,), (level,) = dots.get_data()
        assert hz == result.groups[0].peaks.hz[row, 0]
        off_bins = abs(hz / result.groups[0].resolution % 1 - 0.5)
        assert off_bins < 0.49  # it is no bin's
        at_peak = line.get_xdata() == hz
        assert line.get_ydata()[at_peak] == level
        assert level == line.get_ydata().max()


def test_axis_is_linear_by_default(tmp_path: Path) -> None:
    """The frequency axis is linear whatever the spectra are like."""
    tone = np.sin(2 * np.pi * 2 * T)[None] + 1e-3 * noise(1, len(T))
    result = analyse_rows(tmp_path, tone, nperseg=4000)
    (axis,) = welch_plot._build_figure(result, DEFAULT_FONTS).axes
    assert axis.get_xscale() == "linear"
    assert axis.get_xlabel() == "frequency (Hz, linear)"


def test_offset_lines_do_not_overlap(tmp_path: Path) -> None:
    """Each offset line is above the next at every frequency, and named at its end."""
    x = noise(8) * 10.0 ** np.arange(-3, 5)[:, None]
    x[3] += 300 * np.sin(2 * np.pi * 250 * T[:4000])
    result = analyse_rows(
        tmp_path, x, preset="scipy", names=[f"c{n}" for n in range(8)]
    )
    (axis,) = welch_plot._build_figure(
        result, DEFAULT_FONTS, PlotStyle(lines="offset")
    ).axes
    lines = [line for line in axis.lines if line.get_marker() in (None, "None", "")]
    levels = [line.get_ydata()[2:] for line in lines]
    assert len(levels) == 8
    for above, below in pairwise(levels):
        assert (above > below).all()
    low, high = axis.get_ylim()
    assert low <= min(map(np.min, levels)) <= max(map(np.max, levels)) <= high
    texts = [text.get_text() for text in axis.texts]
    assert [text for text in texts if text.startswith("c")] == [*result.groups[0].names]


def test_panels_share_a_scale_and_show_the_other_lines(tmp_path: Path) -> None:
    x = noise(6) * np.arange(1, 7)[:, None]
    result = analyse_rows(
        tmp_path, x, preset="scipy", names=[f"c{n}" for n in range(6)]
    )
    axes = welch_plot._build_figure(result, DEFAULT_FONTS).axes
    assert [axis.get_title(loc="left") for axis in axes] == [*result.groups[0].names]
    assert len({axis.get_ylim() for axis in axes}) == 1
    assert all(sum(len(line.get_xdata()) > 16 for line in a.lines) == 6 for a in axes)


def test_too_many_lines_become_a_heatmap_with_a_warning(tmp_path: Path) -> None:
    result = analyse_rows(tmp_path, noise(MAX_LINES + 1))
    with pytest.warns(PictureWarning, match="11 channels are drawn as a heatmap"):
        draw(tmp_path / "p.png", result, PlotStyle(lines="offset"))


def test_each_rate_has_a_panel(tmp_path: Path) -> None:
    line_result = analyse_rows(tmp_path, noise(2))
    heatmap_result = analyse_rows(tmp_path, noise(20))
    combined_result = FileResult(
        "x", "EDF", (), (), (*line_result.groups, *heatmap_result.groups)
    )
    # two panels and the colour bar of the second
    assert len(welch_plot._build_figure(combined_result, DEFAULT_FONTS).axes) == 3


def test_number_of_panels_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only some of many rates are drawn, and a warning gives the number left out."""
    assert welch_plot.MAX_PANELS <= 16
    monkeypatch.setattr(welch_plot, "MAX_PANELS", 2)
    group = analyse_group(tmp_path, noise(2))
    result = replace(analyse_rows(tmp_path, noise(2)), groups=(group,) * 300)
    with pytest.warns(
        PictureWarning,
        match=r"channels of 298 of 300 sampling rates are not shown.* -c",
    ):
        draw(tmp_path / "x.png", result)
    assert (tmp_path / "x.png").stat().st_size > 10_000


@pytest.mark.parametrize("hz", [1, 3, 250, 497, 499])
def test_peak_labels_stay_inside_the_axes(tmp_path: Path, hz: float) -> None:
    """Outside the axes the legend would cover them."""
    x = noise(1) + 100 * np.sin(2 * np.pi * hz * T[:4000])
    figure = welch_plot._build_figure(
        analyse_rows(tmp_path, x, nperseg=1000), DEFAULT_FONTS
    )
    figure.canvas.draw()
    (axis,) = figure.axes
    box = axis.get_window_extent()
    texts = [text.get_window_extent() for text in axis.texts]
    assert texts
    assert min(text.x0 for text in texts) >= box.x0 - 1
    assert max(text.x1 for text in texts) <= box.x1 + 1


def test_offset_bins_do_not_set_the_colour_scale(tmp_path: Path) -> None:
    """Bins that a constant offset fills under preset rlx are left out of the colour
    scale.
    """
    x = noise(20) + 300
    rows = welch_plot.spectrum_rows(
        analyse_group(tmp_path, x), DEFAULT_FONTS.drawable_text
    )
    assert rows.n_offset_bins == 2
    low, high = level_range(rows.level, rows.n_offset_bins)
    assert high - low < 40
    assert rows.level[:, 0].min() > high + 20


def test_common_peak_is_labelled_once(tmp_path: Path) -> None:
    """Ten channels with the same rhythm give one label, at the strongest of them."""
    x = np.sin(2 * np.pi * 125 * T) * np.arange(1, 11)[:, None]
    x += 1e-3 * noise(10, len(T))
    result = analyse_rows(tmp_path, x, mode="peaks", k=3)
    (axis,) = welch_plot._build_figure(
        result, DEFAULT_FONTS, PlotStyle(lines="overlaid")
    ).axes
    (text,) = axis.texts
    assert text.get_text() == "125.0 Hz\nch10 +9"
    strongest_power = result.groups[0].peaks.power[9, :1]
    assert text.xy[1] == pytest.approx(float(power_levels(strongest_power)[0]))


def test_labels_do_not_overlap(tmp_path: Path) -> None:
    """Labels do not overlap; a marker without space has no label."""
    hz = [60, 75, 90, 105, 120, 260]
    x = noise(3, len(T)) * 0.1
    x += sum(np.sin(2 * np.pi * tone * T) * tone / 60 for tone in hz)
    for style in (
        PlotStyle(lines="overlaid"),
        PlotStyle(lines="offset"),
        PlotStyle(lines="panels"),
    ):
        result = analyse_rows(tmp_path, x, mode="peaks", k=8, preset="scipy")
        figure = welch_plot._build_figure(result, DEFAULT_FONTS, style)
        figure.canvas.draw()
        for axis in figure.axes:
            peak_labels = [
                t for t in axis.texts if t.get_text().startswith(("6", "9", "2"))
            ]
            boxes = [text.get_window_extent() for text in axis.texts]
            assert peak_labels
            for index, box in enumerate(boxes):
                assert not any(box.overlaps(other) for other in boxes[:index])


def test_peak_markers_stay_inside_the_axes(tmp_path: Path) -> None:
    """A peak above the axis is an arrow at its edge, labelled with its level."""
    x = noise(2)
    x[1] += 5000
    result = analyse_rows(tmp_path, x, k=4)
    (axis,) = welch_plot._build_figure(result, DEFAULT_FONTS).axes
    low, high = axis.get_ylim()
    marks = [line for line in axis.lines if line.get_marker() in ("o", "^", "v")]
    marked_levels = np.concatenate([line.get_ydata() for line in marks])
    assert len(marked_levels) == 8
    assert ((marked_levels >= low) & (marked_levels <= high)).all()
    (arrows,) = [line for line in marks if line.get_marker() == "^"]
    assert arrows.get_xdata()[0] == 0
    (peak,) = power_levels(result.groups[0].peaks.power[1, :1])
    assert f"0.0 Hz: {peak:.0f} dB" in [text.get_text() for text in axis.texts]


@pytest.mark.parametrize("rows", [3, 14])
def test_flat_and_non_finite_channels_are_labelled_and_not_drawn(
    tmp_path: Path, rows: int
) -> None:
    """A flat or non-finite channel has no line, no colour and no peak; its label says
    why.
    """
    x = noise(rows)
    x[1], x[2] = 0, np.nan
    names = [f"c{n}" for n in range(rows)]
    result = analyse_rows(tmp_path, x, names=names, nan="propagate")
    axis = welch_plot._build_figure(result, DEFAULT_FONTS).axes[0]
    if rows == 3:
        labels = [text.get_text() for text in axis.get_legend().get_texts()]
        lines = [line for line in axis.lines if len(line.get_xdata())]
        assert {line.get_color() for line in lines} == {lines[0].get_color()}
    else:
        labels = [text.get_text() for text in axis.get_yticklabels()]
        cells = axis.collections[0].get_array()
        assert np.ma.getmaskarray(cells)[1:3].all()
        assert not np.ma.getmaskarray(cells)[[0, *range(3, rows)]].any()
        (marks,) = axis.lines
        assert list(marks.get_ydata()) == [0, *range(3, rows)]
    assert labels[:3] == ["c0", "c1 (flat)", "c2 (not finite)"]


@pytest.mark.parametrize("rows", [2, 14])
def test_picture_of_flat_channels_says_so(tmp_path: Path, rows: int) -> None:
    """Recordings whose channels are all flat get a message and no scale."""
    figure = welch_plot._build_figure(
        analyse_rows(tmp_path, np.zeros((rows, 4000))), DEFAULT_FONTS
    )
    axis, *bar = figure.axes
    assert "no channel has a finite level" in [text.get_text() for text in axis.texts]
    assert not len((bar or [axis])[0].get_yticks())


def test_rounding_residue_does_not_set_the_scale(
    tmp_path: Path,
) -> None:
    """A row of 300.1 leaves, after its mean is removed, rounding residue 300 dB below
    the others.
    """
    x = noise(3)
    x[1] = 300.1
    result = analyse_rows(tmp_path, x, preset="scipy")
    low, high = welch_plot._build_figure(result, DEFAULT_FONTS).axes[0].get_ylim()
    assert high - low < 40


def test_zero_power_bins_are_minus_infinity(tmp_path: Path) -> None:
    """A bin without power is at minus infinity and does not change the scale."""
    result = analyse_rows(tmp_path, noise(2))
    limits_before = welch_plot._build_figure(result, DEFAULT_FONTS).axes[0].get_ylim()
    result.groups[0].power[:, 30:33] = 0
    (axis,) = welch_plot._build_figure(result, DEFAULT_FONTS).axes
    assert np.isneginf(axis.lines[0].get_ydata()[30:33]).all()
    assert axis.get_ylim() == pytest.approx(limits_before, abs=1)


def test_long_name_is_shortened(tmp_path: Path) -> None:
    """Both ends of the name are shown, and the axes keep nearly their full width."""
    widths = []
    for name in ("a", "prefix " * 40 + "end"):
        result = analyse_rows(tmp_path, noise(2), names=[name, "b"])
        figure = welch_plot._build_figure(result, DEFAULT_FONTS)
        figure.draw_without_rendering()
        widths.append(figure.axes[0].get_position().width)
        label = figure.axes[0].get_legend().get_texts()[0].get_text()
    assert len(label) == 24
    assert (label[:6], label[-3:]) == ("prefix", "end")
    assert widths[1] > 0.85 * widths[0]


def test_missing_letter_uses_a_fallback_font(tmp_path: Path) -> None:
    """A letter that DejaVu Sans lacks is drawn with another of matplotlib's fonts."""
    (_, default_font_path), *others = font_selection._installed_fonts()
    letters_to_find = {chr(n) for n in range(0x2000, 0x3000)}
    lacking = letters_to_find - font_selection._supported_letters(
        default_font_path, letters_to_find
    )
    letter, family = next(
        (min(supported), name)
        for name, path in others
        if (supported := font_selection._supported_letters(path, lacking))
    )
    result = analyse_rows(tmp_path, noise(2), names=[f"x{letter}", "b"])
    fonts = welch_plot.select_fonts(result)
    assert family in fonts.families
    assert not fonts.missing_letters
    assert fonts.drawable_text(f"x{letter}") == f"x{letter}"
    draw(tmp_path / "p.png", result)  # a letter that is drawn as a box would warn


def test_letters_without_a_font_are_warned_about(tmp_path: Path) -> None:
    """Letters that no font has give a warning and are escaped, not drawn as identical
    boxes.
    """
    result = analyse_rows(tmp_path, noise(2), names=["\U000e0101x", "\U0001fbff\ufdd0"])
    fonts = welch_plot.select_fonts(result)
    with pytest.warns(PictureWarning, match="no installed font contains"):
        draw(tmp_path / "p.png", result)
    assert fonts.drawable_text("\U000e0101x").endswith("x")
    assert fonts.drawable_text("\U000e0101x") != "\U000e0101x"
