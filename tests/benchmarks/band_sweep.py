"""The benchmark of bands: what a part of a spectrum costs by every way there is.

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

from rlxweb.devices.place import Place
from rlxweb.errors import RlxError
from rlxweb.host.spec import WelchSpec
from rlxweb.host.spectrum import welch_power
from rlxweb.signal.accuracy import spectrum_error
from rlxweb.signal.band_peaks import Band
from rlxweb.signal.learned.learn import Learned, learn_welch
from rlxweb.signal.request import WelchRequest
from tests.benchmarks.rivals import WHOLE, Rival, rivals_of

FS: Final = 2048.0
LENGTHS: Final = (256, 1024, 4096)
SHARES: Final = (0.10, 0.25, 0.50, 1.0)
ERRORS: Final = (1e-2, 1e-3, 1e-4)
SIGNALS: Final = ("eeg", "white", "steep")
ROWS: Final = 64
_LEARNED_ROWS: Final = 4
_SEGMENTS: Final = 96


@dataclass(frozen=True, slots=True)
class BandCell:
    """Bins from the first above 0 Hz on, a share of all, of transforms of n."""

    n: int
    share: float

    @property
    def band(self) -> Band:
        # The window's whole spectrum has an end of its own.
        last = round(self.share * (self.n // 2))
        return Band(1, self.n // 2 + 1 if self.share == 1 else max(3, last))

    def __str__(self) -> str:
        return f"{self.share:.0%} of {self.n}"


@dataclass(frozen=True, slots=True)
class Timed:
    """A way that was measured.

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
    """A cell: the gates that could go at each error, and every way's time."""

    cell: BandCell
    gates: Mapping[float, tuple[int, float]]
    needed: int
    total: int
    ways: tuple[Timed, ...]

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        names = Timed.__slots__
        return {
            "n": self.cell.n,
            "share": self.cell.share,
            "bins": len(self.cell.band),
            "gates": {"total": self.total, "needed": self.needed},
            "learned": [
                {"asked": asked, "active": active, "error": error}
                for asked, (active, error) in self.gates.items()
            ],
            "ways": [{name: getattr(way, name) for name in names} for way in self.ways],
        }


def signal(kind: str, rows: int, samples: int, seed: int) -> NDArray[np.float64]:
    """Made recordings: "eeg", falling as 1/f² and by an amplifier's low-pass at a fifth
    of the rate, with an alpha rhythm; "white"; "steep", falling as 1/f⁴.
    """
    rng = np.random.default_rng(seed)
    hz = np.fft.rfftfreq(samples, 1 / FS)
    slow = np.maximum(hz, 0.5)
    shape = {
        "eeg": 1 / slow / np.sqrt(1 + (hz / (FS / 5)) ** 8),
        "white": np.ones_like(hz),
        "steep": 1 / slow**2,
    }[kind]
    noise = rng.standard_normal((2, rows, len(hz)))
    made = np.fft.irfft(shape * (noise[0] + 1j * noise[1]), samples)
    made /= made.std()
    if kind == "eeg":
        rhythm = 10 + rng.random((rows, 1))
        made += 0.3 * np.sin(2 * np.pi * rhythm * np.arange(samples) / FS)
    return made


@dataclass(frozen=True, slots=True)
class BandSweep:
    """What is measured.

    places   devices beside the CPU, by what they are called
    rounds   turns, of each of which every way has one
    samples  of a row
    steps    of each training
    """

    places: Mapping[str, Place]
    rounds: int = 7
    samples: int = 1 << 18
    steps: int = 60
    kind: str = "eeg"
    errors: tuple[float, ...] = ERRORS

    def run(self, cells: Sequence[BandCell]) -> Iterator[BandResult]:
        """Cell by cell."""
        for cell in cells:
            yield self._measured(cell)

    def _measured(self, cell: BandCell) -> BandResult:
        learned = self._learned(cell)
        request = WelchRequest(fs=FS, nperseg=cell.n, preset="rlx")
        spec = request.spec(self.samples, np.float32)
        x = signal(self.kind, ROWS, self.samples, 1).astype(np.float32)
        right = welch_power(x.astype(np.float64), request.spec(self.samples))
        models = {e: learned.within(e) for e in self.errors}
        inside = {e: one for e, one in models.items() if one.error <= e}
        ways = rivals_of(spec, cell.band, self.places, self.errors, inside)
        timed = self._timed(list(ways), x, right[:, cell.band.bins], spec)
        gates = {e: (one.active, one.error) for e, one in models.items()}
        first = learned.tried[0]
        return BandResult(cell, gates, first.active, first.gates.size, tuple(timed))

    def _learned(self, cell: BandCell) -> Learned:
        """A transform learned from recordings that no way is timed on."""
        samples = _SEGMENTS * cell.n
        band, bin_hz = cell.band, FS / cell.n
        return learn_welch(
            signal(self.kind, _LEARNED_ROWS, samples, 0),
            FS,
            nperseg=cell.n,
            fmin=(band.first + 0.9) * bin_hz,
            fmax=min(FS / 2, (band.stop - 2 + 0.1) * bin_hz),
            k=min(16, len(band)),
            steps=self.steps,
            device="cpu",
            progress=False,
        )

    def _timed(
        self, ways: list[Rival], x: Any, right: Any, spec: WelchSpec
    ) -> Iterator[Timed]:
        times: dict[int, list[int]] = {at: [] for at in range(len(ways))}
        errors, failed = {}, {}
        for turn in range(self.rounds + 1):
            for at, way in enumerate(ways):
                if at in failed:
                    continue
                some = x[: way.rows]
                begun = perf_counter_ns()
                try:
                    found = way.run(some)
                except RlxError as error:
                    failed[at] = str(error)
                    continue
                if turn:  # the first makes ready
                    times[at].append((perf_counter_ns() - begun) / some.size)
                else:
                    errors[at] = spectrum_error(found, right[: way.rows])
        wholes = {
            way.engine: median(times[at])
            for at, way in enumerate(ways)
            if way.method == WHOLE and at not in failed
        }
        for at, way in enumerate(ways):
            own = Timed(way.method, way.engine, way.error, failed=failed.get(at, ""))
            if at not in failed:
                ns = median(times[at])
                ratio = wholes[way.engine] / ns if way.engine in wholes else 0.0
                own = Timed(
                    way.method, way.engine, way.error, errors[at], float(ns), ratio
                )
            yield own
