"""What `welch_peaks` returns: the peaks, where they were computed and why there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlxweb.decision.decision import Decision
from rlxweb.decision.explain import explain_json
from rlxweb.device import Device
from rlxweb.devices.place import Place
from rlxweb.host.spec import WelchSpec
from rlxweb.signal.crossover import crossover
from rlxweb.signal.offers import WelchJob

_SHOWN = 4


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class WelchPeaks:
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

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.bins.shape))
        lines = [f"WelchPeaks({shape} {self.mode}, {self.engine})"]
        counts, hz = self.count.reshape(-1), self.hz.reshape(-1, self.k)
        for at in range(min(_SHOWN, len(counts))):
            found = ", ".join(f"{one:.6g}" for one in hz[at, : counts[at]][:_SHOWN])
            more = f" Hz, {counts[at]} of {self.k}" if counts[at] else "none"
            lines.append(f"  {at}: {found}{more}")
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
            "rows": rows,
        }
