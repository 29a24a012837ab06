"""Training of a transform for a user's recordings: `learn_welch` trains, prunes and
tests it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import IO, TYPE_CHECKING, Any, Final

import numpy as np

from rlxweb.core.argument_validation import (
    coerce_float,
    coerce_integer,
    suggest_misspelled_options,
)
from rlxweb.core.array_coercion import as_array
from rlxweb.core.errors import UsageError
from rlxweb.core.fork_safety import cached_property
from rlxweb.ops.welch.cpu.spectrum import frequencies
from rlxweb.ops.welch.spec import WelchSpec
from rlxweb.signal.frequency_bins import BinRange
from rlxweb.signal.learned.gate_training import TrainedGates, train_gates
from rlxweb.signal.learned.gated_fft import PrunedFftProgram, full_fft_cost, stage_count
from rlxweb.signal.learned.pruning import (
    Pruning,
    cheapest_within_error,
    evaluate_prunings,
    worst_segment_error,
)
from rlxweb.signal.learned.training_examples import TrainingExamples, make_examples
from rlxweb.signal.learned.transform import LearnedTransform
from rlxweb.signal.learned.transform_file import MAX_NPERSEG, save_transform
from rlxweb.signal.welch_request import WelchRequest, welch_errors_named
from rlxweb.trace.training.loop import INTERRUPTED

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from rlxweb.core.device import DeviceLike
    from rlxweb.signal.windows import WindowLike

_CONTEXT: Final = "learn a transform"
DEFAULT_PRICE: Final = 0.1
DEFAULT_STEPS: Final = 200
_DEFAULT_K: Final = 16


@dataclass(frozen=True, eq=False)
class Learned:
    """Result of `learn_welch`.

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
    examples: TrainingExamples

    def save(self, file: str | PathLike[str] | IO[bytes]) -> None:
        """Write the transform atomically as a .rlxl file."""
        save_transform(self.transform, file)

    def within(self, error: float) -> LearnedTransform:
        """Return the cheapest transform of the same training within another error.

        Errors   UsageError for one that is not above 0 and below 1.
        """
        error = _coerce_error("error", error)
        pruning, transform = cheapest_within_error(self.tried, error), self.transform
        return _make_transform(pruning, self.examples, transform.fs, transform.k, error)

    @property
    def is_exact(self) -> bool:
        """True where only parts that the bins do not need are left out."""
        return self.chosen is self.tried[0]

    @cached_property
    def whole_cost(self) -> float:
        """Arithmetic cost of the whole transform; see `Program.cost`."""
        return full_fft_cost(self.transform.n)

    def as_json(self) -> dict[str, Any]:
        """Return the report as plain data."""
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
            "transforms": _short_transform_counts(model.program),
            "cost": model.share,
            "is_exact": self.is_exact,
            "steps": run.steps,
            "losses": [float(loss) for loss in run.losses],
            "device": run.device,
            "engine": run.engine,
            "seconds": run.seconds,
            "segments": len(self.examples.training_segments),
            "rows_tested": len(self.examples.test_rows),
            "tried": [
                {
                    "active": pruning.active,
                    "error": pruning.error,
                    "recall": pruning.recall,
                    "cost": pruning.program.relative_cost,
                    "transforms": _short_transform_counts(pruning.program),
                }
                for pruning in self.tried
            ],
        }


def _short_transform_counts(program: PrunedFftProgram) -> dict[str, int]:
    """Return the length and number of the short transforms of a program."""
    return {"of": program.m, "count": len(program.phases)}


@suggest_misspelled_options
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
    steps: int = DEFAULT_STEPS,
    price: float = DEFAULT_PRICE,
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
    rows = _coerce_recordings(recordings)
    fs = coerce_float("fs", fs, _CONTEXT)
    max_error = _coerce_error("max_error", max_error)
    price = coerce_float("price", price, _CONTEXT)
    steps = coerce_integer("steps", steps, _CONTEXT)
    seed = coerce_integer("seed", seed, _CONTEXT)
    for name, value in (("steps", steps), ("price", price), ("seed", seed)):
        if value < 0:
            raise UsageError(_CONTEXT, f"{name} is {value}", "must be 0 or more")
    with welch_errors_named(_CONTEXT):
        spec = WelchRequest(
            fs=fs,
            nperseg=coerce_integer("nperseg", nperseg, _CONTEXT),
            noverlap=noverlap,
            window=window,
            detrend=detrend,
            preset=preset,
        ).spec(None, np.float64)
    _check_spec(spec)
    hz = frequencies(spec, fs)
    # A local maximum is told by its neighbours: one bin more at either end.
    band = BinRange.from_frequencies(hz, fs, fmin, fmax, _CONTEXT).with_neighbours(
        len(hz), "peaks"
    )
    k = min(_DEFAULT_K, len(band)) if k is None else coerce_integer("k", k, _CONTEXT)
    if not 1 <= k <= len(band):
        rule = f"must be 1 to {len(band)}, the number of bins in the band"
        raise UsageError(_CONTEXT, f"k is {k}", rule)
    examples = make_examples(rows, spec, seed)
    trained = train_gates(
        examples.training_segments,
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
    if trained.run.why == INTERRUPTED:
        raise KeyboardInterrupt  # the file, where there is one, goes on from here
    tried = evaluate_prunings(trained.gates, examples, band, k)
    chosen = cheapest_within_error(tried, max_error)
    transform = _make_transform(chosen, examples, fs, k, max_error)
    return Learned(transform, chosen, tried, trained, examples)


def _make_transform(
    pruning: Pruning, examples: TrainingExamples, fs: float, k: int, max_error: float
) -> LearnedTransform:
    """Return the transform of a pruning, with its errors on the test rows."""
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
        worst=worst_segment_error(program, examples),
        recall=pruning.recall,
        asked=max_error,
        k=k,
    )


def _coerce_error(name: str, value: object) -> float:
    """Return a relative error as a float; raise UsageError unless it is above 0 and
    below 1.
    """
    error = coerce_float(name, value, _CONTEXT)
    if not 0 < error < 1:
        rule = "must be a fraction of the power, above 0 and below 1"
        raise UsageError(_CONTEXT, f"{name} is {error}", rule)
    return error


def _coerce_recordings(recordings: Any) -> list[Any]:
    """Return the recordings as arrays (C, T) of real numbers."""
    items = recordings if isinstance(recordings, list | tuple) else [recordings]
    if items and np.isscalar(items[0]):
        items = [recordings]
    if not items:
        raise UsageError(_CONTEXT, "got no recording", "at least one is required")
    arrays = [as_array(item, _CONTEXT) for item in items]
    for array in arrays:
        if array.ndim not in (1, 2) or array.dtype.kind not in "iuf":
            problem = f"a recording has shape {array.shape} and dtype {array.dtype}"
            rule = "expected real numbers of shape (channels, samples) or (samples,)"
            raise UsageError(_CONTEXT, problem, rule)
    return [np.atleast_2d(array) for array in arrays]


def _check_spec(spec: WelchSpec) -> None:
    """Raise UsageError for segments that no network transforms."""
    n = spec.nperseg
    try:
        stage_count(n)
    except ValueError:
        rule = "must be a power of two and at least 4"
        raise UsageError(_CONTEXT, f"nperseg is {n}", rule) from None
    if n > MAX_NPERSEG:
        rule = f"must be at most {MAX_NPERSEG:,}"
        raise UsageError(_CONTEXT, f"nperseg is {n:,}", rule)
    if spec.detrend == "linear":
        rule = "a learned transform supports detrend None and 'constant'"
        raise UsageError(_CONTEXT, "detrend is 'linear'", rule)
