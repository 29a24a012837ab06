"""The picture: spectra with their peaks marked, or a channels × frequency heatmap."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rlxweb.cli.job import FileResult, GroupResult
from rlxweb.errors import Unsupported, UsageError
from rlxweb.io import atomic_path

# More lines than this cannot be told apart in one panel.
LINES = 12
FORMATS = (".png", ".svg", ".pdf")


def save_plot(path: Path, result: FileResult) -> None:
    """One panel per group of equal rate.

    Errors   Unsupported when matplotlib is missing; UsageError for a suffix it cannot
    write; RecordingError when the file cannot be written.
    """
    if path.suffix.lower() not in FORMATS:
        raise UsageError(
            f"plot to {str(path)!r}",
            f"the suffix is {path.suffix!r}",
            "known: " + ", ".join(FORMATS),
        )
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise Unsupported(
            f"plot to {str(path)!r}",
            "matplotlib is not installed",
            hint="pip install 'rlxweb[plot]'",
        ) from None
    rows = len(result.groups)
    tall = [_height(group) for group in result.groups]
    figure = Figure(figsize=(11, sum(tall)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, 1, squeeze=False, height_ratios=tall)
    for axis, group in zip(axes[:, 0], result.groups, strict=True):
        many = len(group.names) > LINES
        (_heatmap if many else _spectra)(figure, axis, group)
        axis.set_title(
            f"{Path(result.path).name}: {len(group.names)} channels at {group.fs:g} Hz "
            f"· {group.n_segments} segments of {group.spec.nperseg} · {group.engine}",
            fontsize=10,
            loc="left",
        )
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=130, format=path.suffix.lower().lstrip("."))


def _height(group: GroupResult) -> float:
    return min(14.0, 2.5 + 0.11 * len(group.names)) if len(group.names) > LINES else 5.5


def _decibels(power: Any) -> Any:
    """10 log10, with zeros lifted to the smallest power that is not."""
    positive = power[np.isfinite(power) & (power > 0)]
    floor = positive.min() if positive.size else 1.0
    return 10 * np.log10(np.maximum(power, floor))


def _unit(group: GroupResult) -> str:
    units = {u for u in group.units if u}
    return f"dB re {units.pop()}²" if len(units) == 1 else "dB"


def _spectra(figure: Any, axis: Any, group: GroupResult) -> None:
    level = _decibels(group.power)
    order = np.argsort(group.hz)
    for at, name in enumerate(group.names):
        (line,) = axis.plot(group.hz[order], level[at, order], lw=1, label=name)
        n = int(group.peaks.count[at])
        bins = group.peaks.bins[at, :n]
        axis.plot(
            group.peaks.hz[at, :n], level[at, bins], "o", ms=4, color=line.get_color()
        )
    _name_peaks(axis, group, level)
    axis.set(xlabel="frequency (Hz)", ylabel=f"power ({_unit(group)})")
    axis.margins(x=0.01)
    axis.grid(alpha=0.25)
    axis.legend(fontsize=8, ncols=2, loc="upper right")


def _name_peaks(axis: Any, group: GroupResult, level: Any) -> None:
    """The frequency beside each channel's strongest peak, once per frequency."""
    named: list[float] = []
    apart = 0.02 * float(np.ptp(group.hz))
    for at in np.argsort(-group.peaks.power[:, 0]):
        if not group.peaks.count[at]:
            continue
        hz = float(group.peaks.hz[at, 0])
        if any(abs(hz - other) < apart for other in named):
            continue
        named.append(hz)
        axis.annotate(
            f"{hz:.1f} Hz",
            (hz, level[at, group.peaks.bins[at, 0]]),
            textcoords="offset points",
            xytext=(4, 6),
            fontsize=8,
        )


def _heatmap(figure: Any, axis: Any, group: GroupResult) -> None:
    order = np.argsort(group.hz)
    level = _decibels(group.power)[:, order]
    hz = group.hz[order]
    step = group.fs / group.spec.nfft
    low, high = np.percentile(level[np.isfinite(level)], [1, 99.5])
    image = axis.imshow(
        level,
        aspect="auto",
        interpolation="nearest",
        extent=(hz[0] - step / 2, hz[-1] + step / 2, len(group.names) - 0.5, -0.5),
        vmin=low,
        vmax=max(high, low + 1e-9),
        cmap="viridis",
    )
    rows = np.arange(len(group.names))
    found = group.peaks.count > 0
    axis.plot(
        group.peaks.hz[found, 0], rows[found], "w.", ms=3, label="strongest peak"
    )
    every = max(1, len(group.names) // 70)
    axis.set_yticks(rows[::every], group.names[::every], fontsize=6)
    axis.set(xlabel="frequency (Hz)")
    figure.colorbar(image, ax=axis, label=f"power ({_unit(group)})", pad=0.01)
    axis.legend(fontsize=8, loc="upper right")
