"""The picture of a picker sweep: what is drawn, where, and that it is never blank."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib import image
from matplotlib.figure import Figure

from rlxweb.cli import bench_plot
from rlxweb.cli.bench_picker import Measured
from rlxweb.cli.bench_plot import put_picker_plot
from rlxweb.cli.plot import picture_format
from rlxweb.device import Device
from tests.unit.cli.picker_bench import measured, row, way

A, B = way("fused", 1, Device.VULKAN, how="fused_op"), way("fast", 2, how="host")


def draw(path: Path, found: list[Measured]) -> None:
    """As the command does."""
    with path.open("wb") as file:
        put_picker_plot(file, found, picture_format(str(path)))


def test_the_picture_shows_two_panels(tmp_path: Path) -> None:
    """Large enough to read, with something coloured in either half."""
    path = tmp_path / "p.png"
    draw(path, [measured(row(A, ms), row(B, 20)) for ms in (10, 30, 60)])
    found = image.imread(path)[..., :3]
    height, width, _ = found.shape
    assert 1200 <= width <= 2400
    assert 500 <= height <= 1200
    for half in (found[:, : width // 2], found[:, width // 2 :]):
        colourful = np.ptp(half, axis=2) > 0.3
        assert 20 < colourful.sum() < half.size / 10
        assert (half == 1).mean() > 0.5


def test_points_are_measured_across_and_predicted_up() -> None:
    """A mark per engine and way of searching, and a line where both agree."""
    figure = Figure()
    axis = figure.subplots()
    found = [
        measured(row(A, 30), row(B, 20), failed=[way("c", 5, Device.OPENGL)]),
        measured(row(A, 60), row(B, 40)),
    ]
    bench_plot._scatter(axis, found)
    drawn = {line.get_label(): line for line in axis.lines}
    assert {label for label in drawn if not label.startswith("_")} == {
        "vulkan engine, peaks on the device",
        "cpu engine, NumPy",
        "as predicted",
    }
    device = drawn["vulkan engine, peaks on the device"]
    assert list(device.get_xdata()) == [30.0, 60.0]
    assert list(device.get_ydata()) == [1.0, 1.0]
    line = drawn["as predicted"]
    assert list(line.get_xdata()) == list(line.get_ydata())
    assert line.get_xdata()[0] < 1.0
    assert line.get_xdata()[-1] > 60.0


def test_regrets_are_drawn_from_best_to_worst() -> None:
    figure = Figure()
    axis = figure.subplots()
    found = [measured(row(A, pick), row(B, 10)) for pick in (20, 10, 15)]
    bench_plot._regrets(axis, [*found, measured(failed=[A])])
    every, devices, *limits = axis.lines
    assert list(every.get_ydata()) == [1.0, 1.5, 2.0]
    assert list(every.get_xdata()) == pytest.approx([1 / 3, 2 / 3, 1])
    assert list(devices.get_ydata()) == [1.0, 1.0, 1.0]
    assert [line.get_ydata()[0] for line in limits] == [1.05, 1.25]


@pytest.mark.parametrize(
    ("suffix", "magic"), [("svg", b"<?xml"), ("PDF", b"%PDF"), ("png", b"\x89PNG")]
)
def test_any_sweep_gives_a_picture(tmp_path: Path, suffix: str, magic: bytes) -> None:
    """Also one of a single cell without a device, or one where nothing ran."""
    for at, found in enumerate((measured(row(B, 20)), measured(failed=[A]))):
        path = tmp_path / f"{at}.{suffix}"
        draw(path, [found])
        assert path.read_bytes().startswith(magic)
