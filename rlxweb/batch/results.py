"""Results of the recordings of a run: spectra and peaks, or failures.

Plain frozen data that pickles, so that it can come from another process.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from rlxweb.batch.epoch_options import AveragedEpochs
from rlxweb.core.device import Device
from rlxweb.cost.decision import Decision
from rlxweb.ops.welch.cpu.strongest_bins import PeaksOfPower
from rlxweb.ops.welch.spec import WelchSpec
from rlxweb.results.ran import Stage
from rlxweb.signal.welch_peaks_result import power_quantity

NO_PEAKS: Final = "no peaks"
"""Why a channel that has a level has no peaks: nothing in it is one, or passed the
limits.
"""


@dataclass(frozen=True, slots=True)
class GroupResult:
    """Spectra and peaks of the channels of one rate.

    power (C, F), hz (F,): of the band that was asked for, or with F = 0 where
            `Settings.spectra` is off
    peaks   as (C, k) arrays
    epochs  those that are averaged; None of a recording that was not cut
    states  why a channel has no level: "flat" where nothing but rounding is left of it,
            "not finite"; "" where it has one
    """

    names: tuple[str, ...]
    units: tuple[str, ...]
    fs: float
    n_samples: int
    n_segments: int
    preset: str
    mode: str
    spec: WelchSpec
    hz: NDArray[np.float64]
    power: NDArray[Any]
    peaks: PeaksOfPower
    states: tuple[str, ...]
    device: str
    engine: str
    decision: Decision
    epochs: AveragedEpochs | None = None

    @property
    def dtype(self) -> str:
        """Data type of the arithmetic; a device's is always float32."""
        on_host = self.device == Device.CPU.label
        return self.spec.power_dtype.name if on_host else "float32"

    @property
    def resolution(self) -> float:
        """Distance of the bins in Hz."""
        return self.fs / self.spec.nfft

    @property
    def first_bin(self) -> int:
        """Number of the first bin of the band."""
        return round(float(self.hz[0]) / self.resolution)

    @property
    def peak_states(self) -> tuple[str, ...]:
        """Why a channel has no peaks: its state, or NO_PEAKS; "" where it has some."""
        return tuple(
            state or ("" if count else NO_PEAKS)
            for state, count in zip(self.states, self.peaks.count, strict=True)
        )

    def power_unit(self, unit: str) -> str:
        """Return the unit of the power of a channel in `unit`; "" where the file names
        none.
        """
        squared = f"{unit.replace('uV', 'µV')}²" if unit else ""
        if power_quantity(self.spec, self.fs) != "density":
            return squared
        return f"{squared}/Hz" if squared else "1/Hz"


@dataclass(frozen=True, slots=True)
class FileResult:
    """Results of one recording.

    warnings  what is wrong with its file
    stages    where the time went
    wall_s    from the opening of the file to its last peak
    stamp     tells this state of the file from another; "" where nothing does
    """

    path: str
    format: str
    left_out: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...]
    groups: tuple[GroupResult, ...]
    stamp: str = ""
    stages: tuple[Stage, ...] = field(default=(), compare=False)
    wall_s: float = field(default=0.0, compare=False)


class FileOutcome(Protocol):
    """Outcome of a file, whatever was done with it."""

    @property
    def path(self) -> str: ...

    @property
    def left_out(self) -> tuple[tuple[str, str], ...]: ...


@dataclass(frozen=True, slots=True)
class Failure:
    """Recording that could not be analysed, and why."""

    path: str
    error: str
