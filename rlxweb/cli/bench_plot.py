"""The picture of a picker sweep: predicted against measured, and the regret of cells.

matplotlib is loaded here, only when a picture is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, Any

from rlxweb.cli.bench_picker import Measured, Row, not_nan
from rlxweb.cli.plot import new_figure, put_figure
from rlxweb.printable import printable


def put_picker_plot(file: IO[bytes], found: Sequence[Measured], how: str) -> None:
    """Two panels, in the format `how`."""

    def draw() -> Any:
        figure = new_figure(13, 5.6)
        left, right = figure.subplots(1, 2)
        _scatter(left, found)
        _regrets(right, found)
        return figure

    put_figure(file, draw, how)


def _name(row: Row) -> str:
    how = {
        "fused_op": "peaks on the device",
        "band_fft_host": "its band to the host",
        "block_fft_host": "peaks on the host",
    }
    return f"{row.candidate.engine}, {how.get(row.candidate.how, 'NumPy')}"


def _scatter(axis: Any, found: Sequence[Measured]) -> None:
    points: dict[str, list[tuple[float, float]]] = {}
    for one in found:
        for row in one.ran:
            spot = (row.measured_ns / 1e6, row.candidate.predicted_ns / 1e6)
            points.setdefault(_name(row), []).append(spot)
    marks = "osD^v<>P*X"
    for at, (name, spots) in enumerate(sorted(points.items())):
        xs, ys = zip(*spots, strict=True)
        axis.plot(
            xs, ys, marks[at % len(marks)], ms=4, alpha=0.7, label=printable(name)
        )
    every = [value for spots in points.values() for spot in spots for value in spot]
    if every:
        ends = [min(every) * 0.8, max(every) * 1.25]
        axis.plot(ends, ends, color="0.4", lw=1, label="as predicted")
        for factor in (1.5, 1 / 1.5):
            axis.plot(ends, [e * factor for e in ends], color="0.7", lw=0.8, ls=":")
    axis.set(
        xscale="log", yscale="log", xlabel="measured (ms)", ylabel="predicted (ms)"
    )
    axis.set_title("predicted against measured; dotted: off by 1.5", loc="left")
    axis.grid(visible=True)
    if points:
        axis.legend(fontsize=7)


def _regrets(axis: Any, found: Sequence[Measured]) -> None:
    overall = not_nan(m.overall_regret for m in found)
    devices = not_nan(m.device_regret for m in found)
    for values, label, mark in (
        (overall, "every way", "o"),
        (devices, "devices alone, CPU left out", "^"),
    ):
        if values:
            share = [(at + 1) / len(values) for at in range(len(values))]
            axis.plot(share, values, mark, ms=4, label=label)
    for limit in (1.05, 1.25):
        axis.axhline(limit, color="0.5", lw=0.8, ls="--")
        axis.annotate(f"{limit}", (1.0, limit), fontsize=8, ha="right", va="bottom")
    axis.set(xlabel="share of cells", ylabel="time of the pick / time of the best")
    axis.set_title(f"regret of {len(found)} cells, best to worst", loc="left")
    axis.grid(visible=True)
    if overall:
        axis.legend(fontsize=8, loc="upper left")
