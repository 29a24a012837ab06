"""Result class of `welch_peaks`: the peaks, and where and why they were computed
there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlxweb.core.device import Device, parse_device
from rlxweb.core.message_text import abbreviate, printable
from rlxweb.cost.decision import Decision, explain_json
from rlxweb.ops.welch.spec import WelchSpec
from rlxweb.results.labelled_arrays import (
    LabelledArrays,
    ResultAxis,
    ResultVariable,
    batch_axes,
)
from rlxweb.results.labels import NO_LABELS, Labels
from rlxweb.results.power_units import power_to_decibels, power_unit
from rlxweb.results.ran import Ran, Stage
from rlxweb.results.result import Result
from rlxweb.results.result_files import (
    ResultState,
    labels_and_run_from_json,
    labels_and_run_to_json,
)
from rlxweb.results.svg_charts import ChartLine, svg_line_chart
from rlxweb.select.device_and_adapter import DevicePlace
from rlxweb.signal.batch_size_crossover import crossover_text
from rlxweb.signal.spectrum_result import Spectrum, pop_stored_floor
from rlxweb.signal.welch_candidates import WelchJob

_MAX_SHOWN, _MAX_DRAWN_ROWS = 4, 8
_MAX_NAME_LENGTH = 24


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class WelchPeaks(Result):
    """The strongest peaks of every row, in descending order of power.

    A row has `count` of them; the places behind hold bin -1, NaN Hz, NaN power. What
    rounding alone may leave in a spectrum is no peak, on any device: a constant signal
    whose mean is removed has none, nor has a row that is NaN throughout.

    bins        (*batch, k) int64; -1 where there is none
    hz          (*batch, k) float64; refined in mode "peaks"; NaN where there is none
    power       (*batch, k) of the estimate's dtype; NaN where there is none
    count       (*batch,) peaks per row, at most k
    prominence  (*batch, k) in mode "peaks", else None
    device      the kind of engine that computed; `engine` names it
    decision    why it ran there
    spec        the estimate: segment length, hop, window, scaling …
    times       ns when the call began, had chosen its way, was done: see `wall_s`
    spectrum    the whole of it, with spectrum=True, else None
    labels      names of the batch's axes, and the unit of the samples
    """

    bins: NDArray[np.int64]
    hz: NDArray[np.float64]
    power: NDArray[Any]
    count: NDArray[np.int64]
    prominence: NDArray[Any] | None
    fs: float
    mode: str
    device: Device
    engine: str
    decision: Decision
    spec: WelchSpec
    times: tuple[int, ...] = ()
    spectrum: Spectrum | None = None
    labels: Labels = NO_LABELS

    def __repr__(self) -> str:
        shape = "×".join(map(str, self.bins.shape))
        lines = [f"WelchPeaks({shape} {self.mode}, {self.engine})"]
        counts, hz = self.count.reshape(-1), self.hz.reshape(-1, self.k)
        batch = self.count.shape
        names = self.labels.fitted(batch).rows(batch) if self.labels.names else ()
        for row in range(min(_MAX_SHOWN, len(counts))):
            name = abbreviate(printable(names[row]), _MAX_NAME_LENGTH) if names else row
            frequencies = ", ".join(
                f"{frequency:.6g}" for frequency in hz[row, : counts[row]][:_MAX_SHOWN]
            )
            suffix = f" Hz, {counts[row]} of {self.k}" if counts[row] else "none"
            lines.append(f"  {name}: {frequencies}{suffix}")
        if len(counts) > _MAX_SHOWN:
            lines.append(f"  … {len(counts) - _MAX_SHOWN} more rows")
        return "\n".join(lines)

    @property
    def k(self) -> int:
        """Number of peak places per row."""
        return int(self.bins.shape[-1])

    def __len__(self) -> int:
        """Number of entries along the first axis of the batch; 1 for a single row."""
        return self.bins.shape[0] if self.bins.ndim > 1 else 1

    def explain(self) -> str:
        """Return device, reason, estimate and crossover as text."""
        spec = self.spec
        segments = f"{spec.n_segments} segments" if spec.n_segments else "all segments"
        summary = (
            f"ran on {self.engine}: {self.decision.why}; {segments} of {spec.nperseg} "
            f"samples with a hop of {spec.hop}, resolution {self.fs / spec.nfft:g} Hz"
        )
        crossover = self._crossover_text()
        return f"{summary}; {crossover}" if crossover else summary

    def explain_json(self) -> dict[str, Any]:
        """Return the decision as plain data: every candidate with its terms, and the
        crossover.
        """
        return {
            **explain_json(self.decision),
            "crossover": self._crossover_text() or None,
        }

    def _crossover_text(self) -> str:
        """Describe the batch size from which another engine would win; "" if there is
        only one.
        """
        numbers = self.decision.numbers
        places = dict.fromkeys(
            DevicePlace(c.device, c.adapter)
            for c in self.decision.candidates
            if c.terms is not None
        )
        if len(places) < 2 or "n_samples" not in numbers:
            return ""
        job = WelchJob(self.spec, 1, numbers["n_samples"], numbers["k"])
        return crossover_text(job, list(places))

    def as_json(self, names: Sequence[str] | None = None) -> dict[str, Any]:
        """Return plain lists and numbers, one entry per row; None for values that are
        not finite.
        """
        values_by_name = {
            name: values.reshape(-1, self.k)
            for name in ("bins", "hz", "power", "prominence")
            if (values := getattr(self, name)) is not None
        }
        rows = []
        for row_index, n in enumerate(self.count.reshape(-1)):
            row: dict[str, Any] = {"name": names[row_index]} if names else {}
            for name, values in values_by_name.items():
                row_values = values[row_index, :n].tolist()
                row[name] = [value if isfinite(value) else None for value in row_values]
            rows.append(row)
        return {
            "fs": self.fs,
            "mode": self.mode,
            "device": self.device.label,
            "engine": self.engine,
            "decision": self.decision.as_json(),
            "wall_s": self.wall_s,
            "stages": self.stages,
            "rows": rows,
        }

    @property
    def wall_s(self) -> float:
        """Duration of the call in seconds."""
        return (self.times[-1] - self.times[0]) * 1e-9 if self.times else 0.0

    @property
    def stages(self) -> dict[str, float]:
        """Seconds of each stage: "choose" (arguments, candidates) and "compute" (the
        answer).
        """
        steps = zip(self.times, self.times[1:], strict=False)
        return dict(
            zip(("choose", "compute"), ((b - a) * 1e-9 for a, b in steps), strict=False)
        )

    @property
    def ran(self) -> Ran:
        """Engine, decision, wall time and its stages, in the form that every result
        has.
        """
        stages = tuple(Stage(*stage) for stage in self.stages.items())
        return Ran(self.engine, self.decision, self.wall_s, stages)

    def named(self, labels: Labels) -> WelchPeaks:
        """Return the same result with names for the axes of its batch."""
        spectrum = None if self.spectrum is None else self.spectrum.named(labels)
        return replace(self, labels=labels, spectrum=spectrum)

    def labelled(self) -> LabelledArrays:
        """Return the peaks as labelled variables over the axes of the batch and the
        rank.
        """
        batch = self.count.shape
        labels = self.labels.fitted(batch)
        ranks = ResultAxis("rank", np.arange(1, self.k + 1), "", "1 is the strongest")
        dims = (*labels.dims, "rank")
        unit = power_unit(labels.unit, power_quantity(self.spec, self.fs))
        variables = [
            ResultVariable("frequency", self.hz, dims, "Hz", "frequency of the peak"),
            ResultVariable("power", self.power, dims, unit, "power of the peak"),
            ResultVariable(
                "bin", self.bins, dims, "", "index of the bin in the spectrum"
            ),
        ]
        if self.prominence is not None:
            prominence = ResultVariable(
                "prominence",
                self.prominence,
                dims,
                unit,
                "height above the adjacent valleys",
            )
            variables.append(prominence)
        variables.append(
            ResultVariable("count", self.count, labels.dims, "", "number of peaks")
        )
        attributes = {"fs": self.fs, "mode": self.mode, "engine": self.engine}
        axes = (*batch_axes(labels, batch), ranks)
        return LabelledArrays(axes, tuple(variables), attributes, self.bins >= 0)

    def _to_state(self) -> ResultState:
        names = ("bins", "hz", "power", "count", "prominence")
        arrays = {n: own for n in names if (own := getattr(self, n)) is not None}
        plain = {name: getattr(self, name) for name in ("fs", "mode", "times")}
        spec = asdict(self.spec)
        arrays["window"] = self.spec.window_array
        del spec["window"]
        own = labels_and_run_to_json(self.labels, self.ran)
        plain |= {"device": self.device.label, "spec": spec, **own, "axis": -1}
        if self.spectrum is not None:
            own_arrays = dict(self.spectrum._to_state().arrays)
            arrays["spectrum_f"] = own_arrays.pop("f")
            arrays["spectrum"] = own_arrays.pop("power")
            arrays |= own_arrays
            plain["quantity"] = self.spectrum.quantity
        return ResultState(arrays, plain)

    @classmethod
    def _from_state(cls, state: ResultState) -> WelchPeaks:
        arrays: dict[str, Any] = dict(state.arrays)
        plain = state.json_data
        labels, ran = labels_and_run_from_json(plain)
        if ran.decision is None:
            raise ValueError("the record of the chosen strategy and device is missing")
        spec = WelchSpec(**plain["spec"], window=arrays.pop("window").tobytes())
        spectrum = None
        if "spectrum" in arrays:
            f, power = arrays.pop("spectrum_f"), arrays.pop("spectrum")
            options = {"quantity": plain["quantity"], "fs": plain["fs"]}
            floor = pop_stored_floor(arrays)
            spectrum = Spectrum.of(
                f, power, **options, labels=labels, ran=ran, floor=floor
            )
        return cls(
            **{"prominence": None, **arrays},
            fs=plain["fs"],
            mode=plain["mode"],
            device=parse_device(plain["device"]),
            engine=ran.engine,
            decision=ran.decision,
            spec=spec,
            times=tuple(plain["times"]),
            spectrum=spectrum,
            labels=labels,
        )

    def _svg(self) -> str:
        """Draw the peaks as stems, or on the spectrum if it was kept."""
        batch = self.count.shape
        names = self.labels.fitted(batch).rows(batch)
        hz = self.hz.reshape(-1, self.k)
        level = power_to_decibels(self.power).reshape(-1, self.k)
        unit = power_unit(self.labels.unit, power_quantity(self.spec, self.fs))
        label = f"dB re 1 {unit}" if unit else "dB"
        lines = []
        for row, name in enumerate(names[:_MAX_DRAWN_ROWS]):
            marks = hz[row], level[row]
            if self.spectrum is not None:
                _, rows = self.spectrum.by_rows()
                lines.append(
                    ChartLine(
                        name, self.spectrum.f, power_to_decibels(rows[row]), marks
                    )
                )
                continue
            lines.append(ChartLine(name, *_stem_line(hz[row], level[row]), marks))
        return svg_line_chart(lines, label)


def _stem_line(hz: NDArray[Any], level: NDArray[Any]) -> tuple[Any, Any]:
    """Return a line with gaps that draws a stem from below the lowest level up to each
    peak.
    """
    finite_levels = level[np.isfinite(level)]
    low = float(finite_levels.min()) - 3.0 if finite_levels.size else np.nan
    stems = np.stack([np.full(len(level), low), level, np.full(len(level), np.nan)], 1)
    return np.nan_to_num(np.repeat(hz, 3)), stems.reshape(-1)


def power_quantity(spec: WelchSpec, fs: float) -> str:
    """Return the quantity of an estimate's power, in the terms of `Spectrum`.

    Told by its scale: 1 / (fs · Σ w²) is a density, 1 / (Σ w)² a spectrum.
    """
    window = spec.window_array
    for quantity, divisor in (
        ("squares", 1.0),
        ("density", fs * float(np.sum(window**2))),
        ("spectrum", float(np.sum(window)) ** 2),
    ):
        if divisor and abs(spec.scale * divisor - 1.0) < 1e-9:
            return quantity
    return "squares"
