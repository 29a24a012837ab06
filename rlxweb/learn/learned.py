"""learn_welch: a transform for one's own recordings, trained, pruned and tested."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import IO, TYPE_CHECKING, Any, Final

import numpy as np

from rlxweb.arguments import helpful, number, whole
from rlxweb.errors import UsageError
from rlxweb.forked import cached_property
from rlxweb.given import array_of
from rlxweb.host.spec import WelchSpec
from rlxweb.host.spectrum import frequencies
from rlxweb.learn.examples import Examples, examples_of
from rlxweb.learn.gates import TrainedGates, train_gates
from rlxweb.learn.pruning import Tried, best_within, tried_prunings, worst_of
from rlxweb.signal.band_peaks import Band
from rlxweb.signal.learned.butterflies import stages_of
from rlxweb.signal.learned.compact import exact
from rlxweb.signal.learned.file import LONGEST, save
from rlxweb.signal.learned.transform import LearnedTransform
from rlxweb.signal.request import WelchRequest
from rlxweb.training.loop import STOPPED

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from rlxweb.device import DeviceLike
    from rlxweb.signal.windows import WindowLike

_DOING: Final = "learn a transform"
PRICE: Final = 0.1
STEPS: Final = 200
USUAL_K: Final = 16


@dataclass(frozen=True, eq=False)
class Learned:
    """What training came to.

    transform  the cheapest that keeps within the error, to be saved or used
    chosen     its pruning; all that were tried are in `tried`, the exact one first
    trained    the gates as they were trained, and how that went
    examples   what was learned from, and tested on
    """

    transform: LearnedTransform
    chosen: Tried
    tried: tuple[Tried, ...]
    trained: TrainedGates
    examples: Examples

    def save(self, file: str | PathLike[str] | IO[bytes]) -> None:
        """Write the transform as a .rlxl file, whole or not at all."""
        save(self.transform, file)

    def within(self, error: float) -> LearnedTransform:
        """Of the same training, the cheapest that keeps within another error."""
        one = best_within(list(self.tried), error)
        found = {
            name: getattr(one, name) for name in ("gates", "program", "error", "recall")
        }
        worst = worst_of(one.program, self.examples, self.transform.band)
        return replace(self.transform, **found, worst=worst, asked=error)

    @property
    def is_exact(self) -> bool:
        """Was nothing left out but what the bins do not need?"""
        return self.chosen is self.tried[0]

    @cached_property
    def whole_cost(self) -> float:
        """The whole transform's, in steps; see `Compact.cost`."""
        n = self.transform.n
        return exact(n, np.arange(n // 2 + 1)).cost

    def as_json(self) -> dict[str, Any]:
        """Plain data: the report."""
        own, run = self.transform, self.trained.run
        return {
            "n": own.n,
            "fs": own.fs,
            "bins": [own.band.first, own.band.stop - 1],
            "hz": [float(own.hz[0]), float(own.hz[-1])],
            "k": own.k,
            "max_error": own.asked,
            "error": own.error,
            "worst": own.worst,
            "recall": own.recall,
            "gates": {"active": own.active, "total": own.total},
            "transforms": {"of": own.program.m, "count": len(own.program.phases)},
            "cost": own.program.cost / self.whole_cost,
            "is_exact": self.is_exact,
            "steps": run.steps,
            "losses": [float(loss) for loss in run.losses],
            "device": run.device,
            "engine": run.engine,
            "seconds": run.seconds,
            "segments": len(self.examples.learned),
            "rows_tested": len(self.examples.rows),
            "tried": [
                {
                    "active": one.active,
                    "error": one.error,
                    "recall": one.recall,
                    "cost": one.program.cost / self.whole_cost,
                    "transforms": {
                        "of": one.program.m,
                        "count": len(one.program.phases),
                    },
                }
                for one in self.tried
            ],
        }


@helpful
def learn_welch(
    recordings: ArrayLike | Sequence[ArrayLike],
    fs: float,
    *,
    nperseg: int = 256,
    fmin: float = 0.5,
    fmax: float | None = None,
    k: int | None = None,
    max_error: float = 1e-3,
    preset: str = "rlx",
    window: WindowLike | ArrayLike | None = None,
    detrend: str | bool | None = "preset",
    noverlap: int | None = None,
    steps: int = STEPS,
    price: float = PRICE,
    seed: int = 0,
    device: DeviceLike | None = None,
    adapter: str = "",
    save_to: str | PathLike[str] | None = None,
    told: Callable[[int, float], object] | None = None,
    progress: bool | None = None,
) -> Learned:
    """Train a transform that computes a band of these recordings' spectra, for
    `welch_peaks(…, strategy="learned", model=…)`.

    It begins as the exact FFT of n = nperseg samples, the window folded in, with a gate
    on each butterfly. The gates are trained on the first part of every recording, then
    closed one block after another; each pruning is fitted and tested on the last part,
    and the cheapest within `max_error` is taken. Where none is, that is the exact
    transform of the band alone.

    recordings  (C, T) or (T,), or several of these, all at the rate fs in Hz
    fmin, fmax  the band in Hz; for peaks one bin beyond either end is kept as well
    k           peaks that are looked for, and count more in training: 16, or all bins
                where there are fewer
    max_error   of the power of a bin, relative, root mean square over bins and rows
    preset, window, detrend, noverlap   as of `welch_peaks`
    steps       of training; price: of all open gates together, against the error of
                the spectrum (1: all of it)
    device, adapter   where it is trained
    save_to     a file from which a training that was interrupted, by Ctrl-C too, goes
                on; without compiled code (RLX_FAST=off) to the same bits
    told        called with the number of steps made and the loss of the last
    progress    a bar on standard error; None: where that is a terminal
    Errors      UsageError for what is outside its domain and for recordings that are
                too short; NotFinite where training meets no number, with the step;
                InputError for the file of another training
    """
    rows = _recordings(recordings)
    rate, error, cost = (
        number(name, value, _DOING)
        for name, value in (("fs", fs), ("max_error", max_error), ("price", price))
    )
    made, first = (
        whole(name, value, _DOING) for name, value in (("steps", steps), ("seed", seed))
    )
    _check_training(made, cost, first)
    asked = WelchRequest(
        fs=rate,
        nperseg=whole("nperseg", nperseg, _DOING),
        noverlap=noverlap,
        window=window,
        detrend=detrend,
        preset=preset,
    )
    spec = asked.spec(None, np.float64)
    band = _band(spec, rate, fmin, fmax)
    count = min(USUAL_K, len(band)) if k is None else whole("k", k, _DOING)
    _check(spec, band, count, error)
    examples = examples_of(rows, spec, first)
    trained = train_gates(
        examples.learned,
        band,
        count,
        steps=made,
        price=cost,
        seed=first,
        where=(device, adapter),
        save_to=save_to,
        told=told,
        progress=progress,
    )
    if trained.run.why == STOPPED:
        raise KeyboardInterrupt  # the file, where there is one, goes on from here
    return _pruned(trained, examples, band, rate, count, error)


def _pruned(
    trained: TrainedGates,
    examples: Examples,
    band: Band,
    fs: float,
    k: int,
    most: float,
) -> Learned:
    """The cheapest of all prunings that keeps within the error."""
    spec = examples.spec
    tried = tried_prunings(trained.gates, examples, band, k)
    chosen = best_within(tried, most)
    transform = LearnedTransform(
        n=spec.nperseg,
        fs=fs,
        window=spec.window,
        detrend=spec.detrend,
        band=band,
        gates=chosen.gates,
        program=chosen.program,
        error=chosen.error,
        worst=worst_of(chosen.program, examples, band),
        recall=chosen.recall,
        asked=most,
        k=k,
    )
    return Learned(transform, chosen, tuple(tried), trained, examples)


def _recordings(given: Any) -> list[Any]:
    """Each (C, T), of floats."""
    several = given if isinstance(given, list | tuple) else [given]
    if several and np.isscalar(several[0]):
        several = [given]
    made = []
    for one in several:
        array = array_of(one, _DOING)
        if array.ndim not in (1, 2) or array.dtype.kind not in "iuf":
            found = f"a recording has shape {array.shape} and dtype {array.dtype}"
            raise UsageError(_DOING, found, "(C, T) or (T,) real numbers are wanted")
        made.append(np.atleast_2d(array))
    if not made:
        raise UsageError(_DOING, "there is no recording", "one is the least")
    return made


def _check_training(steps: int, price: float, seed: int) -> None:
    for name, value in (("steps", steps), ("price", price), ("seed", seed)):
        if value < 0:
            raise UsageError(_DOING, f"{name} is {value}", "it must be 0 or more")


def _check(spec: WelchSpec, band: Band, k: int, error: float) -> None:
    if not 0 < error < 1:
        rule = "it must be above 0 and below 1: a part of the power"
        raise UsageError(_DOING, f"max_error is {error}", rule)
    if not 1 <= k <= len(band):
        rule = f"it must be 1 to {len(band)}, the number of bins in the band"
        raise UsageError(_DOING, f"k is {k}", rule)
    try:
        stages_of(spec.nperseg)
    except ValueError:
        problem = f"nperseg is {spec.nperseg}"
        rule = "butterflies meet in pairs: a power of two from 4 on"
        raise UsageError(_DOING, problem, rule) from None
    if spec.nperseg > LONGEST:
        rule = f"at most {LONGEST:,} are trained"
        raise UsageError(_DOING, f"nperseg is {spec.nperseg:,}", rule)
    if spec.detrend == "linear":
        rule = "None and 'constant' are taken out before a learned transform"
        raise UsageError(_DOING, "detrend is 'linear'", rule)


def _band(spec: WelchSpec, fs: float, fmin: float, fmax: float | None) -> Band:
    """Of the frequencies, and a bin beyond either end: peaks are told by these."""
    hz = frequencies(spec, fs)
    return Band.of(hz, fs, fmin, fmax, _DOING).beside(len(hz), "peaks")
