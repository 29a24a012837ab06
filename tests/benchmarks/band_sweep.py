"""Benchmark of bands: time of a part of a spectrum by every available method.

For each length and share of the bins a transform is trained on one half of made
recordings; all ways then compute the other half, one after another in turns, against
the exact answer in float64. Ways that lose are told like those that win.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter_ns
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.core.errors import RlxError
from rlxweb.ops.welch.cpu.spectrum import welch_power
from rlxweb.ops.welch.spec import WelchSpec
from rlxweb.select.device_and_adapter import DevicePlace
from rlxweb.signal.frequency_bins import BinRange
from rlxweb.signal.learned.learn import Learned, learn_welch
from rlxweb.signal.spectrum_accuracy import spectrum_error
from rlxweb.signal.welch_request import WelchRequest
from tests.benchmarks.band_candidates import (
    FULL_TRANSFORM,
    BandCandidate,
    band_candidates,
)

FS: Final = 2048.0
LENGTHS: Final = (256, 1024, 4096)
SHARES: Final = (0.10, 0.25, 0.50, 1.0)
MAX_ERRORS: Final = (1e-2, 1e-3, 1e-4)
SIGNALS: Final = ("eeg", "white", "steep")
N_ROWS: Final = 64
_N_TRAINING_ROWS: Final = 4
_N_TRAINING_SEGMENTS: Final = 96


@dataclass(frozen=True, slots=True)
class BandCell:
    """A share of all bins, from the first above 0 Hz on, of transforms of length n."""

    n: int
    share: float

    @property
    def band(self) -> BinRange:
        # The window's whole spectrum has an end of its own.
        last = round(self.share * (self.n // 2))
        return BinRange(1, self.n // 2 + 1 if self.share == 1 else max(3, last))

    def __str__(self) -> str:
        return f"{self.share:.0%} of {self.n}"


@dataclass(frozen=True, slots=True)
class BandTiming:
    """Measured time and error of one method.

    ns      per sample of the rows, median
    error   that it was seen to have; asked: that it was made for, 0 for exact ways
    ratio   of the whole transform's time on the same engine to its own
    failed  why there is no time
    """

    method: str
    engine: str
    asked: float
    error: float = 0.0
    ns: float = 0.0
    ratio: float = 0.0
    failed: str = ""


@dataclass(frozen=True, slots=True)
class BandResult:
    """Result of a cell: removable gates at each error, and every method's time."""

    cell: BandCell
    gates: Mapping[float, tuple[int, float]]
    needed_gates: int
    gate_count: int
    timings: tuple[BandTiming, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the result as plain data."""
        field_names = BandTiming.__slots__
        return {
            "n": self.cell.n,
            "share": self.cell.share,
            "bins": len(self.cell.band),
            "gates": {"total": self.gate_count, "needed": self.needed_gates},
            "learned": [
                {"asked": max_error, "active": active, "error": error}
                for max_error, (active, error) in self.gates.items()
            ],
            "ways": [
                {name: getattr(timing, name) for name in field_names}
                for timing in self.timings
            ],
        }


def synthetic_recordings(
    kind: str, rows: int, samples: int, seed: int
) -> NDArray[np.float64]:
    """Return synthetic recordings: "eeg", falling as 1/f² and by an amplifier's
    low-pass at a fifth of the rate, with an alpha rhythm; "white"; "steep", falling as
    1/f⁴.
    """
    rng = np.random.default_rng(seed)
    hz = np.fft.rfftfreq(samples, 1 / FS)
    clipped_hz = np.maximum(hz, 0.5)
    shape = {
        "eeg": 1 / clipped_hz / np.sqrt(1 + (hz / (FS / 5)) ** 8),
        "white": np.ones_like(hz),
        "steep": 1 / clipped_hz**2,
    }[kind]
    noise = rng.standard_normal((2, rows, len(hz)))
    recordings = np.fft.irfft(shape * (noise[0] + 1j * noise[1]), samples)
    recordings /= recordings.std()
    if kind == "eeg":
        rhythm = 10 + rng.random((rows, 1))
        recordings += 0.3 * np.sin(2 * np.pi * rhythm * np.arange(samples) / FS)
    return recordings


@dataclass(frozen=True, slots=True)
class BandSweep:
    """Settings of a sweep over bands.

    places   devices beside the CPU, by what they are called
    rounds   turns, of each of which every way has one
    samples  of a row
    steps    of each training
    """

    places: Mapping[str, DevicePlace]
    rounds: int = 7
    samples: int = 1 << 18
    steps: int = 60
    kind: str = "eeg"
    errors: tuple[float, ...] = MAX_ERRORS

    def run(self, cells: Sequence[BandCell]) -> Iterator[BandResult]:
        """Measure cell by cell."""
        for cell in cells:
            yield self._measure_cell(cell)

    def _measure_cell(self, cell: BandCell) -> BandResult:
        learned = self._learn_transform(cell)
        request = WelchRequest(fs=FS, nperseg=cell.n, preset="rlx")
        spec = request.spec(self.samples, np.float32)
        x = synthetic_recordings(self.kind, N_ROWS, self.samples, 1).astype(np.float32)
        expected = welch_power(x.astype(np.float64), request.spec(self.samples))
        models = {max_error: learned.within(max_error) for max_error in self.errors}
        within_error = {
            max_error: transform
            for max_error, transform in models.items()
            if transform.error <= max_error
        }
        candidates = band_candidates(
            spec, cell.band, self.places, self.errors, within_error
        )
        timings = self._time_candidates(
            list(candidates), x, expected[:, cell.band.bins], spec
        )
        gates = {
            max_error: (transform.active, transform.error)
            for max_error, transform in models.items()
        }
        first_tried = learned.tried[0]
        return BandResult(
            cell, gates, first_tried.active, first_tried.gates.size, tuple(timings)
        )

    def _learn_transform(self, cell: BandCell) -> Learned:
        """Return a transform learned from recordings that no method is timed on."""
        samples = _N_TRAINING_SEGMENTS * cell.n
        band, bin_hz = cell.band, FS / cell.n
        return learn_welch(
            synthetic_recordings(self.kind, _N_TRAINING_ROWS, samples, 0),
            FS,
            nperseg=cell.n,
            fmin=(band.first + 0.9) * bin_hz,
            fmax=min(FS / 2, (band.stop - 2 + 0.1) * bin_hz),
            k=min(16, len(band)),
            steps=self.steps,
            device="cpu",
            progress=False,
        )

    def _time_candidates(
        self, candidates: list[BandCandidate], x: Any, expected: Any, spec: WelchSpec
    ) -> Iterator[BandTiming]:
        times: dict[int, list[int]] = {index: [] for index in range(len(candidates))}
        errors, failures = {}, {}
        for round_index in range(self.rounds + 1):
            for index, candidate in enumerate(candidates):
                if index in failures:
                    continue
                rows = x[: candidate.max_rows]
                start_ns = perf_counter_ns()
                try:
                    power = candidate.run(rows)
                except RlxError as error:
                    failures[index] = str(error)
                    continue
                if round_index:  # the first makes ready
                    times[index].append((perf_counter_ns() - start_ns) / rows.size)
                else:
                    errors[index] = spectrum_error(
                        power, expected[: candidate.max_rows]
                    )
        whole_ns = {
            candidate.engine: median(times[index])
            for index, candidate in enumerate(candidates)
            if candidate.method == FULL_TRANSFORM and index not in failures
        }
        for index, candidate in enumerate(candidates):
            timing = BandTiming(
                candidate.method,
                candidate.engine,
                candidate.error_bound,
                failed=failures.get(index, ""),
            )
            if index not in failures:
                ns = median(times[index])
                ratio = (
                    whole_ns[candidate.engine] / ns
                    if candidate.engine in whole_ns
                    else 0.0
                )
                timing = BandTiming(
                    candidate.method,
                    candidate.engine,
                    candidate.error_bound,
                    errors[index],
                    float(ns),
                    ratio,
                )
            yield timing
