"""Pictures: they are drawn whatever the spectra hold, and show what they should."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rlxweb.cli import plot
from rlxweb.cli.plot import LINES, check_plot, picture_format, put_plot
from rlxweb.cli.scales import (
    COLUMNS,
    columns,
    decibels,
    level_range,
    offset_bins,
    peaks_to_name,
    wants_log,
)
from rlxweb.cli.table import decimals
from rlxweb.errors import PictureWarning, UsageError
from rlxweb.io import open_recording
from rlxweb.jobs.analysis import analyse
from rlxweb.jobs.results import FileResult, GroupResult
from rlxweb.jobs.settings import Settings
from rlxweb.plot import lettering
from rlxweb.plot.frequencies import ticks_of
from rlxweb.plot.lettering import LATIN, Lettering
from tests.command_line import spawn

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


def draw(path: Path, result: FileResult) -> None:
    """As the command does."""
    with path.open("wb") as file:
        put_plot(file, result, picture_format(str(path)))


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


@pytest.mark.parametrize("case", STRANGE)
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.filterwarnings("ignore::rlxweb.errors.PictureWarning")
def test_a_picture_is_drawn_of_anything(tmp_path: Path, case: str) -> None:
    """No spectrum and no name can keep a picture from being drawn."""
    x, settings = STRANGE[case]
    draw(tmp_path / "p.png", result_of(tmp_path, x, **settings))
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["p.png", "x.npz"]


@pytest.mark.parametrize(
    ("suffix", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("PDF", b"%PDF")]
)
def test_the_suffix_is_the_format(tmp_path: Path, suffix: str, magic: bytes) -> None:
    path = tmp_path / f"p.{suffix}"
    draw(path, result_of(tmp_path, noise(2)))
    assert path.read_bytes().startswith(magic)


def test_an_unknown_suffix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"'\.jpeg'.*\.png, \.svg, \.pdf"):
        check_plot(str(tmp_path / "p.jpeg"))


def test_lines_carry_their_names_peaks_and_units(tmp_path: Path) -> None:
    """A line and its dots per channel, the legend, and frequencies written out."""
    x = np.stack([250 / hz * np.sin(2 * np.pi * hz * T) for hz in (125, 250)])
    x += 1e-3 * noise(2, len(T))
    result = result_of(tmp_path, x, mode="peaks", k=1, preset="scipy", names=["a", "b"])
    figure = plot._figure(result, LATIN)
    (axis,) = figure.axes
    dots = [line for line in axis.lines if line.get_marker() == "o"]
    assert [round(float(line.get_xdata()[0])) for line in dots] == [125, 250]
    assert [text.get_text() for text in axis.texts] == ["125.0 Hz", "250.0 Hz"]
    assert [t.get_text() for t in axis.get_legend().get_texts()] == ["a", "b"]
    assert "1/Hz" in axis.get_ylabel()


def test_each_rate_has_a_panel(tmp_path: Path) -> None:
    one = result_of(tmp_path, noise(2))
    many = result_of(tmp_path, noise(20))
    both = FileResult("x", "EDF", (), (), (*one.groups, *many.groups))
    # two panels and the colour bar of the second
    assert len(plot._figure(both, LATIN).axes) == 3


def test_a_file_of_many_rates_does_not_take_minutes(tmp_path: Path) -> None:
    """Some are drawn, and how many are not is told."""
    group = group_of(tmp_path, noise(2))
    result = replace(result_of(tmp_path, noise(2)), groups=(group,) * 300)
    with pytest.warns(PictureWarning, match=r"284 of 300 rates are left out.*\(-c\)"):
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
    """Under preset rlx the bins an offset fills are left out of the colours."""
    x = noise(20) + 300
    group = group_of(tmp_path, x)
    assert offset_bins(group) == 2
    low, high = level_range(decibels(group.power), 2)
    assert high - low < 40
    assert decibels(group.power)[:, 0].min() > high + 20


def test_a_bin_at_zero_that_fits_is_shown(tmp_path: Path) -> None:
    level = np.array([[12.0, 0.0, 10.0, -5.0, 3.0]])
    assert level_range(level, 1) == (-5.0, 12.0)
    level[0, 0] = 42.0
    assert level_range(level, 1) == (-5.0, 10.0)


@pytest.mark.parametrize("is_log", [False, True])
@pytest.mark.parametrize("n_freqs", [1, 2, 3, 129, COLUMNS, 30_001])
def test_columns_hide_no_narrow_peak(n_freqs: int, is_log: bool) -> None:
    """Each column is the highest of its bins, and every bin is in one."""
    if is_log and n_freqs < 2:
        return
    level = np.zeros((2, n_freqs))
    at = n_freqs - 1
    level[1, at] = 99
    cells, edges = columns(level, 0.5, is_log)
    assert cells.shape == (2, len(edges) - 1)
    assert cells.shape[1] <= COLUMNS
    place = int(np.searchsorted(edges, at * 0.5)) - 1
    assert cells[1, place] == 99
    assert edges[-1] == (n_freqs - 0.5) * 0.5
    assert edges[0] == (0.25 if is_log else -0.25)
    assert (np.diff(edges) > 0).all()


def test_low_rhythms_at_a_high_rate_get_a_logarithmic_axis(tmp_path: Path) -> None:
    tone = np.sin(2 * np.pi * 10 * T)[None] + 1e-3 * noise(1, len(T))
    assert wants_log(group_of(tmp_path, tone, nperseg=2000))
    assert not wants_log(group_of(tmp_path, tone, nperseg=256))
    high = np.sin(2 * np.pi * 200 * T)[None] + 1e-3 * noise(1, len(T))
    assert not wants_log(group_of(tmp_path, high, nperseg=2000))


def test_each_frequency_is_written_once(tmp_path: Path) -> None:
    """Ten channels with one rhythm give one label, the strongest."""
    x = np.sin(2 * np.pi * 125 * T) * np.arange(1, 11)[:, None]
    group = group_of(tmp_path, x + 1e-3 * noise(10, len(T)), mode="peaks", k=3)
    (named,) = peaks_to_name(group, False, (-100.0, 100.0))
    assert named.hz == pytest.approx(125, abs=0.1)
    assert named.level == pytest.approx(float(decibels(group.peaks.power[9, :1])[0]))


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
    (peak,) = decibels(result.groups[0].peaks.power[1, :1])
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
    """It is infinitely far below: the line ends there, the scale does not follow."""
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


def test_a_real_font_lends_a_letter(tmp_path: Path) -> None:
    """One that DejaVu Sans lacks and another font of matplotlib's has."""
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
    """Not drawn as boxes that all look alike."""
    result = result_of(tmp_path, noise(2), names=["\U000e0101x", "\U0001fbff\ufdd0"])
    letters = plot.lettering_of(result)
    with pytest.warns(PictureWarning, match="no font here has"):
        draw(tmp_path / "p.png", result)
    assert letters.shown("\U000e0101x").endswith("x")
    assert letters.shown("\U000e0101x") != "\U000e0101x"


def test_small_matters() -> None:
    """Ticks, decibels and the digits a resolution deserves."""
    assert ticks_of(0.5, 100) == [0.5, 1, 2, 5, 10, 20, 50, 100]
    np.testing.assert_allclose(decibels(np.array([100.0, 1.0, 0.0])), [20, 0, -np.inf])
    assert np.isnan(decibels(np.array([np.nan, np.inf, 1.0]))[:2]).all()
    assert [decimals(hz) for hz in (8, 1, 0.5, 0.01, 1e-9)] == [1, 1, 2, 3, 6]


def test_a_library_without_its_folder_is_not_our_users_business(
    tmp_path: Path,
) -> None:
    """Matplotlib logs where it keeps its fonts; our lines on stderr are our own."""
    np.save(tmp_path / "x.npy", noise(2))
    (tmp_path / "file").touch()
    args = "welch", tmp_path / "x.npy", "--fs", 9, "-q", "--plot", tmp_path / "x.png"
    said = spawn(*args, MPLCONFIGDIR=str(tmp_path / "file" / "no folder"))
    assert (said.code, said.err) == (0, f"picture: {tmp_path / 'x.png'}\n")
