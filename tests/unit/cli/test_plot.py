"""Pictures: they are drawn whatever the spectra hold, and show what they should."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import matplotlib
import numpy as np
import pytest

from rlxweb.cli import plot
from rlxweb.cli.look import PLAIN, Look
from rlxweb.cli.plot import picture_format, put_plot
from rlxweb.errors import PictureWarning
from rlxweb.io import open_recording
from rlxweb.jobs.analysis import analyse
from rlxweb.jobs.results import FileResult, GroupResult
from rlxweb.jobs.settings import Settings
from rlxweb.plot import lettering
from rlxweb.plot.lettering import LATIN
from rlxweb.plot.rows import LINES, level_range, quantity_levels
from rlxweb.plot.theme import settings

T = np.arange(20_000) / 1000


def result_of(folder: Path, x: np.ndarray, **settings: object) -> FileResult:
    """The analysis of rows x at 1 kHz."""
    names = settings.pop("names", None)
    path = folder / "x.npz"
    arrays = {"x": x} if names is None else {"x": x, "channels": np.array(names)}
    np.savez(path, fs=1000.0, **arrays)
    with open_recording(path, array="x") as recording:
        return analyse(recording, Settings(device="cpu", **settings))


def group_of(folder: Path, x: np.ndarray, **settings: object) -> GroupResult:
    (group,) = result_of(folder, x, **settings).groups
    return group


def draw(path: Path, result: FileResult, look: Look = PLAIN) -> None:
    """Draw the picture as the command does."""
    with path.open("wb") as file:
        put_plot(file, result, picture_format(str(path)), look)


def noise(rows: int, n_samples: int = 4000) -> np.ndarray:
    return np.random.default_rng(8).standard_normal((rows, n_samples))


STRANGE = {
    "one channel": (noise(1), {}),
    "the most lines": (noise(LINES), {}),
    "a heatmap": (noise(LINES + 1), {}),
    "a large heatmap": (noise(400, 600), {}),
    "silence": (np.zeros((2, 1000)), {}),
    "silent heatmap": (np.zeros((30, 1000)), {}),
    "one bin": (noise(2), {"nperseg": 1, "k": 1}),
    "two bins": (noise(12), {"nperseg": 2, "k": 1}),
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
def theme(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Draw with the settings of the command, at a low resolution."""
    monkeypatch.setattr(plot, "DPI", 40)
    with matplotlib.rc_context(settings()):
        yield


LOOKS = [
    Look(),
    Look("log", "overlaid"),
    Look("linear", "offset", dark=True),
    Look("log", "panels"),
    Look("linear", "heatmap"),
]


@pytest.mark.parametrize("case", STRANGE)
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.filterwarnings("ignore::rlxweb.errors.PictureWarning")
def test_a_picture_is_drawn_of_anything(tmp_path: Path, case: str) -> None:
    """No spectrum and no name can keep a picture from being drawn."""
    x, settings = STRANGE[case]
    look = LOOKS[sorted(STRANGE).index(case) % len(LOOKS)]
    draw(tmp_path / "p.png", result_of(tmp_path, x, **settings), look)
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["p.png", "x.npz"]


def test_lines_carry_their_names_peaks_and_units(tmp_path: Path) -> None:
    """A line and its dots per channel, the legend, and frequencies written out."""
    x = np.stack([250 / hz * np.sin(2 * np.pi * hz * T) for hz in (125, 250)])
    x += 1e-3 * noise(2, len(T))
    result = result_of(tmp_path, x, mode="peaks", k=1, preset="scipy", names=["a", "b"])
    figure = plot._figure(result, LATIN)
    (axis,) = figure.axes
    dots = [line for line in axis.lines if line.get_marker() == "o"]
    assert [round(float(line.get_xdata()[0])) for line in dots] == [125, 250]
    assert [text.get_text() for text in axis.texts] == ["125.0 Hz\na", "250.0 Hz\nb"]
    assert [t.get_text() for t in axis.get_legend().get_texts()] == ["a", "b"]
    assert "1/Hz" in axis.get_ylabel()


@pytest.mark.parametrize("axis", ["linear", "log"])
def test_a_mark_lies_on_its_curve(tmp_path: Path, axis: str) -> None:
    """A mark lies between two bins, where the table has it, and on the line."""
    tones = [np.sin(2 * np.pi * hz * T) for hz in (101, 204)]
    x = np.stack(tones) + 1e-3 * noise(2, len(T))
    result = result_of(tmp_path, x, mode="peaks", k=1, preset="scipy", names=["a", "b"])
    figure = plot._figure(result, LATIN, Look(axis))
    (own,) = figure.axes
    assert axis in own.get_xlabel()
    assert own.get_xscale() == axis
    found = [line for line in own.lines if len(line.get_xdata())]
    for at, (line, dots) in enumerate(zip(found[::2], found[1::2], strict=True)):
        (hz,), (level,) = dots.get_data()
        assert hz == result.groups[0].peaks.hz[at, 0]
        off_bins = abs(hz / result.groups[0].resolution % 1 - 0.5)
        assert off_bins < 0.49  # it is no bin's
        on = line.get_xdata() == hz
        assert line.get_ydata()[on] == level
        assert level == line.get_ydata().max()


def test_no_axis_is_logarithmic_unless_it_is_asked_for(tmp_path: Path) -> None:
    """The axis is linear whatever the spectra are like."""
    tone = np.sin(2 * np.pi * 2 * T)[None] + 1e-3 * noise(1, len(T))
    result = result_of(tmp_path, tone, nperseg=4000)
    (axis,) = plot._figure(result, LATIN).axes
    assert axis.get_xscale() == "linear"
    assert axis.get_xlabel() == "frequency (Hz, linear)"


def test_lines_that_are_offset_do_not_cover_each_other(tmp_path: Path) -> None:
    """Offset lines are each above the next at every frequency, and named at the end."""
    x = noise(8) * 10.0 ** np.arange(-3, 5)[:, None]
    x[3] += 300 * np.sin(2 * np.pi * 250 * T[:4000])
    result = result_of(tmp_path, x, preset="scipy", names=[f"c{n}" for n in range(8)])
    (axis,) = plot._figure(result, LATIN, Look(lines="offset")).axes
    lines = [line for line in axis.lines if line.get_marker() in (None, "None", "")]
    levels = [line.get_ydata()[2:] for line in lines]
    assert len(levels) == 8
    for above, below in pairwise(levels):
        assert (above > below).all()
    low, high = axis.get_ylim()
    assert low <= min(map(np.min, levels)) <= max(map(np.max, levels)) <= high
    texts = [text.get_text() for text in axis.texts]
    assert [text for text in texts if text.startswith("c")] == [*result.groups[0].names]


def test_panels_have_a_scale_in_common_and_the_others_behind(tmp_path: Path) -> None:
    x = noise(6) * np.arange(1, 7)[:, None]
    result = result_of(tmp_path, x, preset="scipy", names=[f"c{n}" for n in range(6)])
    axes = plot._figure(result, LATIN).axes
    assert [axis.get_title(loc="left") for axis in axes] == [*result.groups[0].names]
    assert len({axis.get_ylim() for axis in axes}) == 1
    assert all(sum(len(line.get_xdata()) > 16 for line in a.lines) == 6 for a in axes)


def test_too_many_lines_are_a_heatmap_and_that_is_told(tmp_path: Path) -> None:
    result = result_of(tmp_path, noise(LINES + 1))
    with pytest.warns(PictureWarning, match="11 channels are drawn as a heatmap"):
        draw(tmp_path / "p.png", result, Look(lines="offset"))


def test_each_rate_has_a_panel(tmp_path: Path) -> None:
    one = result_of(tmp_path, noise(2))
    many = result_of(tmp_path, noise(20))
    both = FileResult("x", "EDF", (), (), (*one.groups, *many.groups))
    # two panels and the colour bar of the second
    assert len(plot._figure(both, LATIN).axes) == 3


def test_a_file_of_many_rates_does_not_take_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only some of many rates are drawn, and the number left out is told."""
    assert plot.PANELS <= 16
    monkeypatch.setattr(plot, "PANELS", 2)
    group = group_of(tmp_path, noise(2))
    result = replace(result_of(tmp_path, noise(2)), groups=(group,) * 300)
    with pytest.warns(PictureWarning, match=r"298 of 300 rates are left out.*\(-c\)"):
        draw(tmp_path / "x.png", result)
    assert (tmp_path / "x.png").stat().st_size > 10_000


@pytest.mark.parametrize("hz", [1, 3, 250, 497, 499])
def test_what_is_written_at_a_peak_stays_inside_of_the_axes(
    tmp_path: Path, hz: float
) -> None:
    """Beside them the legend would lie upon it."""
    x = noise(1) + 100 * np.sin(2 * np.pi * hz * T[:4000])
    figure = plot._figure(result_of(tmp_path, x, nperseg=1000), LATIN)
    figure.canvas.draw()
    (axis,) = figure.axes
    box = axis.get_window_extent()
    texts = [text.get_window_extent() for text in axis.texts]
    assert texts
    assert min(text.x0 for text in texts) >= box.x0 - 1
    assert max(text.x1 for text in texts) <= box.x1 + 1


def test_an_offset_does_not_eat_the_scale(tmp_path: Path) -> None:
    """Bins that an offset fills under preset rlx are left out of the colour scale."""
    x = noise(20) + 300
    rows = plot.rows_of(group_of(tmp_path, x), LATIN.shown)
    assert rows.skip == 2
    low, high = level_range(rows.level, rows.skip)
    assert high - low < 40
    assert rows.level[:, 0].min() > high + 20


def test_each_frequency_is_written_once(tmp_path: Path) -> None:
    """Ten channels with one rhythm give one label, at the strongest of them."""
    x = np.sin(2 * np.pi * 125 * T) * np.arange(1, 11)[:, None]
    x += 1e-3 * noise(10, len(T))
    result = result_of(tmp_path, x, mode="peaks", k=3)
    (axis,) = plot._figure(result, LATIN, Look(lines="overlaid")).axes
    (text,) = axis.texts
    assert text.get_text() == "125.0 Hz\nch10 +9"
    best = result.groups[0].peaks.power[9, :1]
    assert text.xy[1] == pytest.approx(float(quantity_levels(best)[0]))


def test_words_lie_neither_on_lines_nor_on_each_other(tmp_path: Path) -> None:
    """Words overlap nothing; where there is no room, a mark has none."""
    hz = [60, 75, 90, 105, 120, 260]
    x = noise(3, len(T)) * 0.1
    x += sum(np.sin(2 * np.pi * one * T) * one / 60 for one in hz)
    for look in (Look(lines="overlaid"), Look(lines="offset"), Look(lines="panels")):
        result = result_of(tmp_path, x, mode="peaks", k=8, preset="scipy")
        figure = plot._figure(result, LATIN, look)
        figure.canvas.draw()
        for axis in figure.axes:
            words = [t for t in axis.texts if t.get_text().startswith(("6", "9", "2"))]
            boxes = [text.get_window_extent() for text in axis.texts]
            assert words
            for at, box in enumerate(boxes):
                assert not any(box.overlaps(other) for other in boxes[:at])


def test_no_peak_that_is_marked_lies_outside_of_the_picture(tmp_path: Path) -> None:
    """What rises over the axis stands at its edge as an arrow, with its level."""
    x = noise(2)
    x[1] += 5000
    result = result_of(tmp_path, x, k=4)
    (axis,) = plot._figure(result, LATIN).axes
    low, high = axis.get_ylim()
    marks = [line for line in axis.lines if line.get_marker() in ("o", "^", "v")]
    shown = np.concatenate([line.get_ydata() for line in marks])
    assert len(shown) == 8
    assert ((shown >= low) & (shown <= high)).all()
    (arrows,) = [line for line in marks if line.get_marker() == "^"]
    assert arrows.get_xdata()[0] == 0
    (peak,) = quantity_levels(result.groups[0].peaks.power[1, :1])
    assert f"0.0 Hz: {peak:.0f} dB" in [text.get_text() for text in axis.texts]


@pytest.mark.parametrize("rows", [3, 14])
def test_a_dead_channel_is_said_to_be_one_and_has_no_level(
    tmp_path: Path, rows: int
) -> None:
    """No line, no colour and no peak; its name says why. So for one that is NaN."""
    x = noise(rows)
    x[1], x[2] = 0, np.nan
    names = [f"c{n}" for n in range(rows)]
    result = result_of(tmp_path, x, names=names, nan="propagate")
    axis = plot._figure(result, LATIN).axes[0]
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
def test_a_picture_of_nothing_says_so(tmp_path: Path, rows: int) -> None:
    """No scale is made up for recordings whose channels are all dead."""
    figure = plot._figure(result_of(tmp_path, np.zeros((rows, 4000))), LATIN)
    axis, *bar = figure.axes
    assert "no channel has a level" in [text.get_text() for text in axis.texts]
    assert not len((bar or [axis])[0].get_yticks())


def test_what_rounding_left_of_a_constant_does_not_set_the_scale(
    tmp_path: Path,
) -> None:
    """A row of 300.1, its mean removed, is dust 300 dB below the others."""
    x = noise(3)
    x[1] = 300.1
    result = result_of(tmp_path, x, preset="scipy")
    low, high = plot._figure(result, LATIN).axes[0].get_ylim()
    assert high - low < 40


def test_a_bin_without_power_does_not_pretend_to_have_some(tmp_path: Path) -> None:
    """A bin without power is at minus infinity, which the scale does not follow."""
    result = result_of(tmp_path, noise(2))
    before = plot._figure(result, LATIN).axes[0].get_ylim()
    result.groups[0].power[:, 30:33] = 0
    (axis,) = plot._figure(result, LATIN).axes
    assert np.isneginf(axis.lines[0].get_ydata()[30:33]).all()
    assert axis.get_ylim() == pytest.approx(before, abs=1)


def test_a_long_name_leaves_the_picture_its_room(tmp_path: Path) -> None:
    """The ends of the name are shown, and the axes are as wide as without it."""
    widths = []
    for name in ("a", "prefix " * 40 + "end"):
        result = result_of(tmp_path, noise(2), names=[name, "b"])
        figure = plot._figure(result, LATIN)
        figure.draw_without_rendering()
        widths.append(figure.axes[0].get_position().width)
        label = figure.axes[0].get_legend().get_texts()[0].get_text()
    assert len(label) == 24
    assert (label[:6], label[-3:]) == ("prefix", "end")
    assert widths[1] > 0.85 * widths[0]


def test_a_real_font_lends_a_letter(tmp_path: Path) -> None:
    """A letter that DejaVu Sans lacks is drawn by another font of matplotlib's."""
    (_, ours), *others = lettering._fonts()
    every = {chr(n) for n in range(0x2000, 0x3000)}
    lacking = every - lettering._letters(ours, every)
    letter, family = next(
        (min(found), name)
        for name, path in others
        if (found := lettering._letters(path, lacking))
    )
    result = result_of(tmp_path, noise(2), names=[f"x{letter}", "b"])
    letters = plot.lettering_of(result)
    assert family in letters.families
    assert not letters.missing
    assert letters.shown(f"x{letter}") == f"x{letter}"
    draw(tmp_path / "p.png", result)  # a letter that is drawn as a box would warn


def test_letters_that_no_font_has_are_told(tmp_path: Path) -> None:
    """Letters that no font has are warned of, not drawn as boxes that look alike."""
    result = result_of(tmp_path, noise(2), names=["\U000e0101x", "\U0001fbff\ufdd0"])
    letters = plot.lettering_of(result)
    with pytest.warns(PictureWarning, match="no font here has"):
        draw(tmp_path / "p.png", result)
    assert letters.shown("\U000e0101x").endswith("x")
    assert letters.shown("\U000e0101x") != "\U000e0101x"
