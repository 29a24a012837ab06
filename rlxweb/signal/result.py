"""What `welch_peaks` returns: the peaks, where they were computed and why there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlxweb.decision.decision import Decision
from rlxweb.decision.explain import explain_json
from rlxweb.device import Device, parse_device
from rlxweb.devices.place import Place
from rlxweb.host.spec import WelchSpec
from rlxweb.printable import abridged, printable
from rlxweb.results.labels import UNNAMED, Labels
from rlxweb.results.ran import Ran, Stage
from rlxweb.results.result import Result
from rlxweb.results.stored import State, of_plain, plain_of
from rlxweb.results.svg import Line, chart
from rlxweb.results.tables import Axis, Labelled, Variable, batch_axes
from rlxweb.results.units import decibels, power_unit
from rlxweb.signal.crossover import crossover
from rlxweb.signal.offers import WelchJob
from rlxweb.signal.spectrum import Spectrum, floor_of_state

_SHOWN, _DRAWN = 4, 8
_NAME = 24


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class WelchPeaks(Result):
    """The strongest peaks of every row, strongest first.

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
    labels: Labels = UNNAMED

    def __repr__(self) -> str:
        shape = "×".join(map(str, self.bins.shape))
        lines = [f"WelchPeaks({shape} {self.mode}, {self.engine})"]
        counts, hz = self.count.reshape(-1), self.hz.reshape(-1, self.k)
        batch = self.count.shape
        names = self.labels.fitted(batch).rows(batch) if self.labels.names else ()
        for at in range(min(_SHOWN, len(counts))):
            name = abridged(printable(names[at]), _NAME) if names else at
            found = ", ".join(f"{one:.6g}" for one in hz[at, : counts[at]][:_SHOWN])
            more = f" Hz, {counts[at]} of {self.k}" if counts[at] else "none"
            lines.append(f"  {name}: {found}{more}")
        if len(counts) > _SHOWN:
            lines.append(f"  … {len(counts) - _SHOWN} more rows")
        return "\n".join(lines)

    @property
    def k(self) -> int:
        return int(self.bins.shape[-1])

    def __len__(self) -> int:
        return self.bins.shape[0] if self.bins.ndim > 1 else 1

    def explain(self) -> str:
        """Device, reason, estimate and crossover in words."""
        spec = self.spec
        segments = f"{spec.n_segments} segments" if spec.n_segments else "all segments"
        said = (
            f"ran on {self.engine}: {self.decision.why}; {segments} of {spec.nperseg} "
            f"samples every {spec.hop}, resolution {self.fs / spec.nfft:g} Hz"
        )
        crossover = self._crossover()
        return f"{said}; {crossover}" if crossover else said

    def explain_json(self) -> dict[str, Any]:
        """The decision as plain data: every candidate with its terms; the crossover."""
        return {**explain_json(self.decision), "crossover": self._crossover() or None}

    def _crossover(self) -> str:
        """From which batch on another engine would win; "" with no other to ask."""
        numbers = self.decision.numbers
        places = dict.fromkeys(
            Place(c.device, c.adapter)
            for c in self.decision.candidates
            if c.terms is not None
        )
        if len(places) < 2 or "n_samples" not in numbers:
            return ""
        job = WelchJob(self.spec, 1, numbers["n_samples"], numbers["k"])
        return crossover(job, list(places))

    def as_json(self, names: Sequence[str] | None = None) -> dict[str, Any]:
        """Plain lists and numbers, one entry per row; None for what is not finite."""
        of_rows = {
            name: values.reshape(-1, self.k)
            for name in ("bins", "hz", "power", "prominence")
            if (values := getattr(self, name)) is not None
        }
        rows = []
        for at, n in enumerate(self.count.reshape(-1)):
            row: dict[str, Any] = {"name": names[at]} if names else {}
            for name, values in of_rows.items():
                found = values[at, :n].tolist()
                row[name] = [value if isfinite(value) else None for value in found]
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
        """Seconds that the call took."""
        return (self.times[-1] - self.times[0]) * 1e-9 if self.times else 0.0

    @property
    def stages(self) -> dict[str, float]:
        """Seconds of each: "choose" (arguments, ways), "compute" (the answer)."""
        steps = zip(self.times, self.times[1:], strict=False)
        return dict(
            zip(("choose", "compute"), ((b - a) * 1e-9 for a, b in steps), strict=False)
        )

    @property
    def ran(self) -> Ran:
        """Engine, decision, wall time and its stages, as every result has them."""
        stages = tuple(Stage(*one) for one in self.stages.items())
        return Ran(self.engine, self.decision, self.wall_s, stages)

    def named(self, labels: Labels) -> WelchPeaks:
        """The same with names for the axes of its batch."""
        spectrum = None if self.spectrum is None else self.spectrum.named(labels)
        return replace(self, labels=labels, spectrum=spectrum)

    def labelled(self) -> Labelled:
        batch = self.count.shape
        labels = self.labels.fitted(batch)
        ranks = Axis("rank", np.arange(1, self.k + 1), "", "1 is the strongest")
        dims = (*labels.dims, "rank")
        unit = power_unit(labels.unit, quantity_of(self.spec, self.fs))
        variables = [
            Variable("frequency", self.hz, dims, "Hz", "of the peak"),
            Variable("power", self.power, dims, unit, "of the peak"),
            Variable("bin", self.bins, dims, "", "of the spectrum"),
        ]
        if self.prominence is not None:
            own = Variable("prominence", self.prominence, dims, unit, "over valleys")
            variables.append(own)
        variables.append(Variable("count", self.count, labels.dims, "", "peaks of it"))
        about = {"fs": self.fs, "mode": self.mode, "engine": self.engine}
        axes = (*batch_axes(labels, batch), ranks)
        return Labelled(axes, tuple(variables), about, self.bins >= 0)

    def _state(self) -> State:
        names = ("bins", "hz", "power", "count", "prominence")
        arrays = {n: own for n in names if (own := getattr(self, n)) is not None}
        plain = {name: getattr(self, name) for name in ("fs", "mode", "times")}
        spec = asdict(self.spec)
        arrays["window"] = self.spec.window_array
        del spec["window"]
        own = plain_of(self.labels, self.ran)
        plain |= {"device": self.device.label, "spec": spec, **own, "axis": -1}
        if self.spectrum is not None:
            own_arrays = dict(self.spectrum._state().arrays)
            arrays["spectrum_f"] = own_arrays.pop("f")
            arrays["spectrum"] = own_arrays.pop("power")
            arrays |= own_arrays
            plain["quantity"] = self.spectrum.quantity
        return State(arrays, plain)

    @classmethod
    def _of_state(cls, state: State) -> WelchPeaks:
        arrays: dict[str, Any] = dict(state.arrays)
        plain = state.plain
        labels, ran = of_plain(plain)
        if ran.decision is None:
            raise ValueError("there is no decision")
        spec = WelchSpec(**plain["spec"], window=arrays.pop("window").tobytes())
        spectrum = None
        if "spectrum" in arrays:
            f, power = arrays.pop("spectrum_f"), arrays.pop("spectrum")
            kept = {"quantity": plain["quantity"], "fs": plain["fs"]}
            floor = floor_of_state(arrays)
            spectrum = Spectrum.of(
                f, power, **kept, labels=labels, ran=ran, floor=floor
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

    def _picture(self) -> str:
        """The peaks as stems, or on the spectrum where it was kept."""
        batch = self.count.shape
        names = self.labels.fitted(batch).rows(batch)
        hz, level = (
            self.hz.reshape(-1, self.k),
            decibels(self.power).reshape(-1, self.k),
        )
        unit = power_unit(self.labels.unit, quantity_of(self.spec, self.fs))
        label = f"dB re 1 {unit}" if unit else "dB"
        lines = []
        for at, name in enumerate(names[:_DRAWN]):
            marks = hz[at], level[at]
            if self.spectrum is not None:
                _, rows = self.spectrum.by_rows()
                lines.append(Line(name, self.spectrum.f, decibels(rows[at]), marks))
                continue
            lines.append(Line(name, *_stems(hz[at], level[at]), marks))
        return chart(lines, label)


def _stems(hz: NDArray[Any], level: NDArray[Any]) -> tuple[Any, Any]:
    """A line from below the lowest up to each, with gaps between."""
    known = level[np.isfinite(level)]
    low = float(known.min()) - 3.0 if known.size else np.nan
    up = np.stack([np.full(len(level), low), level, np.full(len(level), np.nan)], 1)
    return np.nan_to_num(np.repeat(hz, 3)), up.reshape(-1)


def quantity_of(spec: WelchSpec, fs: float) -> str:
    """What the power of an estimate is, in the words of `Spectrum`.

    Told by its scale: 1 / (fs · Σ w²) is a density, 1 / (Σ w)² a spectrum.
    """
    window = spec.window_array
    for quantity, own in (
        ("squares", 1.0),
        ("density", fs * float(np.sum(window**2))),
        ("spectrum", float(np.sum(window)) ** 2),
    ):
        if own and abs(spec.scale * own - 1.0) < 1e-9:
            return quantity
    return "squares"
