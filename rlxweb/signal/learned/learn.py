"""learn_welch: a transform for one's own recordings, trained, pruned and tested."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import IO, TYPE_CHECKING, Any, Final

import numpy as np

from rlxweb.arguments import helpful, number, whole
from rlxweb.errors import UsageError
from rlxweb.forked import cached_property
from rlxweb.given import array_of
from rlxweb.host.spec import WelchSpec
from rlxweb.host.spectrum import frequencies
from rlxweb.signal.band_peaks import Band
from rlxweb.signal.learned.examples import Examples, examples_of
from rlxweb.signal.learned.file import LONGEST, save
from rlxweb.signal.learned.network import Program, stages_of, whole_cost
from rlxweb.signal.learned.prunings import (
    Pruning,
    best_within,
    tried_prunings,
    worst_of,
)
from rlxweb.signal.learned.training import TrainedGates, train_gates
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
_USUAL_K: Final = 16


@dataclass(frozen=True, eq=False)
class Learned:
    """The result of `learn_welch`.

    transform  the cheapest within the error, to be saved or used
    chosen     its pruning
    tried      all prunings that were tested, the exact network first
    trained    the gates as they were trained, and the course of the training
    examples   what was trained and tested on
    """

    transform: LearnedTransform
    chosen: Pruning
    tried: tuple[Pruning, ...]
    trained: TrainedGates
    examples: Examples

    def save(self, file: str | PathLike[str] | IO[bytes]) -> None:
        """Write the transform as a .rlxl file, whole or not at all."""
        save(self.transform, file)

    def within(self, error: float) -> LearnedTransform:
        """The cheapest transform of the same training within another error.

        Errors   UsageError for one that is not above 0 and below 1.
        """
        error = _part_of_power("error", error)
        pruning, transform = best_within(self.tried, error), self.transform
        return _transform(pruning, self.examples, transform.fs, transform.k, error)

    @property
    def is_exact(self) -> bool:
        """True where nothing is left out but what the bins do not need."""
        return self.chosen is self.tried[0]

    @cached_property
    def whole_cost(self) -> float:
        """The arithmetic of the whole transform; see `Program.cost`."""
        return whole_cost(self.transform.n)

    def as_json(self) -> dict[str, Any]:
        """Plain data: the report."""
        model, run = self.transform, self.trained.run
        return {
            "n": model.n,
            "fs": model.fs,
            "bins": [model.band.first, model.band.stop - 1],
            "hz": [float(model.hz[0]), float(model.hz[-1])],
            "k": model.k,
            "max_error": model.asked,
            "error": model.error,
            "worst": model.worst,
            "recall": model.recall,
            "gates": {"active": model.active, "total": model.total},
            "transforms": _short_transforms(model.program),
            "cost": model.share,
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
                    "cost": one.program.share,
                    "transforms": _short_transforms(one.program),
                }
                for one in self.tried
            ],
        }


def _short_transforms(program: Program) -> dict[str, int]:
    return {"of": program.m, "count": len(program.phases)}


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
                too short; NotFinite for a sample that is no number, and where training
                meets none, with the step; AdapterMissing for a device that cannot be
                opened, also without a step; InputError for the file of another training
    """
    rows = _recordings(recordings)
    fs = number("fs", fs, _DOING)
    max_error = _part_of_power("max_error", max_error)
    price = number("price", price, _DOING)
    steps, seed = whole("steps", steps, _DOING), whole("seed", seed, _DOING)
    for name, value in (("steps", steps), ("price", price), ("seed", seed)):
        if value < 0:
            raise UsageError(_DOING, f"{name} is {value}", "it must be 0 or more")
    spec = WelchRequest(
        fs=fs,
        nperseg=whole("nperseg", nperseg, _DOING),
        noverlap=noverlap,
        window=window,
        detrend=detrend,
        preset=preset,
    ).spec(None, np.float64)
    _check_spec(spec)
    hz = frequencies(spec, fs)
    # A local maximum is told by its neighbours: one bin more at either end.
    band = Band.of(hz, fs, fmin, fmax, _DOING).beside(len(hz), "peaks")
    k = min(_USUAL_K, len(band)) if k is None else whole("k", k, _DOING)
    if not 1 <= k <= len(band):
        rule = f"it must be 1 to {len(band)}, the number of bins in the band"
        raise UsageError(_DOING, f"k is {k}", rule)
    examples = examples_of(rows, spec, seed)
    trained = train_gates(
        examples.learned,
        band,
        k,
        steps=steps,
        price=price,
        seed=seed,
        save_to=save_to,
        device=device,
        adapter=adapter,
        told=told,
        progress=progress,
    )
    if trained.run.why == STOPPED:
        raise KeyboardInterrupt  # the file, where there is one, goes on from here
    tried = tried_prunings(trained.gates, examples, band, k)
    chosen = best_within(tried, max_error)
    transform = _transform(chosen, examples, fs, k, max_error)
    return Learned(transform, chosen, tried, trained, examples)


def _transform(
    pruning: Pruning, examples: Examples, fs: float, k: int, asked: float
) -> LearnedTransform:
    spec, program = examples.spec, pruning.program
    return LearnedTransform(
        n=spec.nperseg,
        fs=fs,
        window=spec.window,
        detrend=spec.detrend,
        band=program.band,
        gates=pruning.gates,
        program=program,
        error=pruning.error,
        worst=worst_of(program, examples),
        recall=pruning.recall,
        asked=asked,
        k=k,
    )


def _part_of_power(name: str, value: object) -> float:
    part = number(name, value, _DOING)
    if not 0 < part < 1:
        rule = "it must be above 0 and below 1: a part of the power"
        raise UsageError(_DOING, f"{name} is {part}", rule)
    return part


def _recordings(given: Any) -> list[Any]:
    """Return the recordings as arrays (C, T) of real numbers."""
    several = given if isinstance(given, list | tuple) else [given]
    if several and np.isscalar(several[0]):
        several = [given]
    if not several:
        raise UsageError(_DOING, "there is no recording", "one is the least")
    arrays = [array_of(one, _DOING) for one in several]
    for array in arrays:
        if array.ndim not in (1, 2) or array.dtype.kind not in "iuf":
            problem = f"a recording has shape {array.shape} and dtype {array.dtype}"
            raise UsageError(_DOING, problem, "(C, T) or (T,) real numbers are wanted")
    return [np.atleast_2d(array) for array in arrays]


def _check_spec(spec: WelchSpec) -> None:
    """Errors  UsageError for segments that no network transforms."""
    n = spec.nperseg
    try:
        stages_of(n)
    except ValueError:
        rule = "butterflies meet in pairs: a power of two from 4 on"
        raise UsageError(_DOING, f"nperseg is {n}", rule) from None
    if n > LONGEST:
        rule = f"at most {LONGEST:,} are trained"
        raise UsageError(_DOING, f"nperseg is {n:,}", rule)
    if spec.detrend == "linear":
        rule = "None and 'constant' are taken out before a learned transform"
        raise UsageError(_DOING, "detrend is 'linear'", rule)
