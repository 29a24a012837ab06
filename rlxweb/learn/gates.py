"""The training of gates: which butterflies the user's spectra need.

Two parts, by rlxweb's own gradients and Adam. In the first a gate is a number from 0 to
1 and the error falls while a price on open gates rises: each settles where what closing
it more would cost is its price. In the second a gate is open or closed as it is above
or below 1/2, and its gradient is that of the number (Bengio, Leonard and Courville's
straight-through estimator), so that what is left makes up for what was closed. Each bin
has a complex gain of its own, trained with them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from os import PathLike
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rlxweb.device import DeviceLike
from rlxweb.errors import InputError, shown
from rlxweb.signal.band_peaks import Band
from rlxweb.signal.learned.butterflies import (
    bit_reversed,
    needed,
    stages_of,
    twiddles,
)
from rlxweb.tracing.derivatives import value_and_grad
from rlxweb.tracing.ops_on_arrays import nn
from rlxweb.training.loop import Trained, train
from rlxweb.training.optimizers import Adam
from rlxweb.training.saved import load

F64 = npt.NDArray[np.float64]

BATCH: Final = 32
_RATE: Final = 0.02
_OF_PEAKS: Final = 3.0
"""How much more a bin counts in segments in which it is one of the strongest."""
_SOFT: Final = 0.7
"""Part of the steps in which gates are numbers."""


@dataclass(frozen=True, slots=True, eq=False)
class TrainedGates:
    """What training makes of them.

    gates   (stages, n / 2) float32, 0 to 1; those that no bin needs are 0
    run     the training as `rlxweb.train` tells of it
    """

    gates: npt.NDArray[np.float32]
    run: Trained


def train_gates(
    segments: F64,
    band: Band,
    k: int,
    *,
    steps: int,
    price: float,
    seed: int,
    where: tuple[DeviceLike | None, str],
    save_to: str | PathLike[str] | None,
    told: Callable[[int, float], object] | None,
    progress: bool | None,
) -> TrainedGates:
    """Train on windowed segments (S, n).

    k       strongest bins of a segment, which count more
    where   it is trained: device and adapter
    price   of all open gates together, against a relative error of the spectrum
    Errors  those of `rlxweb.train`: NotFinite with the step and the op; InputError for
            a file of other segments or settings.
    """
    task = _Task(segments, band, k, steps, price, seed)
    start = (task.params, task.adam.init(task.params), task.digest())
    if save_to is not None and Path(save_to).exists():
        _check_same(load(save_to, start).state[2], start[2], str(save_to))
    run = train(
        task.step,
        task.batch,
        start,
        steps=steps,
        device=where[0],
        adapter=where[1],
        save_to=save_to,
        save_every=25,
        progress=progress,
        told=told,
    )
    made = np.stack([np.asarray(one) for one in run.state[0]["gates"]])
    return TrainedGates(np.where(task.counts, made, 0.0).astype(np.float32), run)


class _Task:
    """What is trained, on what, and how: the batches and the step of `rlxweb.train`."""

    def __init__(
        self, segments: F64, band: Band, k: int, steps: int, price: float, seed: int
    ) -> None:
        n = segments.shape[1]
        stages, bins = stages_of(n), np.arange(band.first, band.stop)
        self.segments, self.bins, self.k, self.seed = segments, bins, k, seed
        self.soft, self.price = max(1.0, _SOFT * steps), price
        self.of = (steps, price, seed, k, band.first, band.stop)
        self.counts = needed(np.ones((stages, n // 2), np.bool_), bins)
        self.spectra = np.fft.rfft(segments)[:, bins]
        power = np.square(np.abs(self.spectra)).mean(axis=0)
        self.scale = 1.0 / np.maximum(power, 1e-300)
        self.order = bit_reversed(n)
        self.adam = Adam(_RATE)
        self.params = {
            "gates": [own.astype(np.float32) for own in self.counts],
            "re": np.ones(len(bins), np.float32),
            "im": np.zeros(len(bins), np.float32),
        }
        total = max(1, int(self.counts.sum()))
        self.shares = [(own / total).astype(np.float32) for own in self.counts]

    def digest(self) -> npt.NDArray[np.uint32]:
        """What all that it depends on comes to: another training has another."""
        made = sha256(self.segments.tobytes())
        made.update(repr(self.of).encode())
        return np.frombuffer(made.digest(), np.uint32).copy()

    def batch(self, step: int) -> Any:
        """Segments, their bins, and what an error of each counts."""
        rng = np.random.default_rng([self.seed, step])
        count = len(self.segments)
        at = rng.choice(count, BATCH, replace=count < BATCH)
        own = self.spectra[at]
        power = np.square(np.abs(own))
        weights = np.broadcast_to(self.scale, own.shape).copy()
        order = np.argsort(-power, axis=1)[:, : self.k]
        strongest = np.take_along_axis(weights, order, 1)
        np.put_along_axis(weights, order, (1 + _OF_PEAKS) * strongest, 1)
        size = np.sqrt(np.mean(weights * power))
        return {
            "x": self.segments[at][:, self.order].astype(np.float32),
            "re": own.real.astype(np.float32),
            "im": own.imag.astype(np.float32),
            "weights": (np.sqrt(weights) / size).astype(np.float32),
            "price": np.float32(self.price * min(1.0, step / self.soft)),
            "hard": np.float32(step >= self.soft),
        }

    def loss(self, own: Any, given: Any) -> Any:
        """The error of the spectrum, and the price of open gates."""
        gates = [_used(gate, given["hard"]) for gate in own["gates"]]
        re, im = _spectrum(gates, given["x"], self.bins)
        got_re = re * own["re"] - im * own["im"]
        got_im = re * own["im"] + im * own["re"]
        off_re = (got_re - given["re"]) * given["weights"]
        off_im = (got_im - given["im"]) * given["weights"]
        error = np.mean(off_re * off_re + off_im * off_im)
        pairs = zip(gates, self.shares, strict=True)
        return error + given["price"] * sum(np.sum(gate * of) for gate, of in pairs)

    def step(self, state: Any, given: Any) -> Any:
        """One of Adam's; gates stay between 0 and 1."""
        own, moments, of = state
        value, grads = value_and_grad(self.loss)(own, given)
        own, moments = self.adam.update(own, grads, moments)
        gates = [np.clip(gate, 0.0, 1.0) for gate in own["gates"]]
        return ({**own, "gates": gates}, moments, of), value


def _check_same(found: Any, own: npt.NDArray[np.uint32], file: str) -> None:
    if not np.array_equal(found, own):
        raise InputError(
            f"go on from {shown(file)}",
            "it is of a training on other recordings, or with other settings",
            "a file goes on with the training that wrote it",
            "name another file, or delete it to begin anew",
        )


def _used(gate: Any, hard: Any) -> Any:
    """A gate as it is used: a number, or open or closed with the number's gradient."""
    settled = np.where(gate >= 0.5, np.float32(1), np.float32(0))
    return gate + hard * nn.stop_gradient(settled - gate)


def _spectrum(gates: list[Any], x: Any, bins: npt.NDArray[np.int64]) -> tuple[Any, Any]:
    """The bins of rows (B, n) in bit-reversed order: `butterflies.run`, traced."""
    n = x.shape[1]
    re, im = x, x * np.float32(0)
    for stage, own in enumerate(gates):
        half = 1 << stage
        w = twiddles(stage).astype(np.complex64)
        shape = (-1, n // (2 * half), 2, half)
        re, im = np.reshape(re, shape), np.reshape(im, shape)
        a_re, a_im, c_re, c_im = re[:, :, 0], im[:, :, 0], re[:, :, 1], im[:, :, 1]
        g = np.reshape(own, (n // (2 * half), half))
        t_re, t_im = c_re * w.real - c_im * w.imag, c_re * w.imag + c_im * w.real
        re = np.stack([a_re + g * t_re, c_re + g * (a_re - t_re - c_re)], axis=2)
        im = np.stack([a_im + g * t_im, c_im + g * (a_im - t_im - c_im)], axis=2)
    re, im = np.reshape(re, (-1, n)), np.reshape(im, (-1, n))
    low, high = int(bins[0]), int(bins[-1]) + 1
    return re[:, low:high], im[:, low:high]
