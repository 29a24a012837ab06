"""Training of the gates: finds the butterflies that the spectra of the recordings need.

Two phases, by rlxweb's own gradients and Adam. In the first a gate is a number from 0
to 1, and the error falls while open gates have a price: each gate settles where closing
it further would cost its price. In the second a gate is open or closed as its number is
above or below 1/2, with the number's gradient (Bengio, Leonard and Courville's
straight-through estimator), so that what is left makes up for what was closed. Each bin
has a complex gain, which is trained with the gates.
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

from rlxweb.core.errors import InputError, shown
from rlxweb.signal.frequency_bins import BinRange
from rlxweb.signal.learned.gated_fft import (
    all_open_gates,
    apply_butterflies,
    bit_reversal_order,
    needed_butterflies,
)
from rlxweb.trace.derivatives import value_and_grad
from rlxweb.trace.nn_namespace import nn
from rlxweb.trace.training.loop import Trained, train
from rlxweb.trace.training.optimizers import Adam
from rlxweb.trace.training.saved_training import load_training

_BATCH_SIZE: Final = 32
_LEARNING_RATE: Final = 0.02
_PEAK_WEIGHT: Final = 3.0
"""Extra weight of a bin in segments in which it is one of the strongest."""
_SOFT_PHASE_SHARE: Final = 0.7
"""Share of the steps in which gates are continuous numbers."""


@dataclass(frozen=True, slots=True, eq=False)
class TrainedGates:
    """The result of the training.

    gates   (stages, n / 2) float32, 0 to 1; 0 where no bin needs the butterfly
    run     the course of the training
    """

    gates: npt.NDArray[np.float32]
    run: Trained


def train_gates(
    segments: npt.NDArray[np.float64],
    band: BinRange,
    k: int,
    *,
    steps: int,
    price: float,
    seed: int,
    save_to: str | PathLike[str] | None,
    **options: Any,
) -> TrainedGates:
    """Train the gates on windowed segments (S, n).

    k        strongest bins of a segment, which count more
    price    of all open gates together, against a relative error of the spectrum
    options  of `rlxweb.train`
    Errors   those of `rlxweb.train`: NotFinite with the step and the op; InputError for
             the file of other segments or settings.
    """
    needed_gates = needed_butterflies(all_open_gates(segments.shape[1]), band)
    shares = [
        (row / max(1, needed_gates.sum())).astype(np.float32) for row in needed_gates
    ]
    batches = _batch_function(segments, band, k, steps, price, seed)
    adam = Adam(_LEARNING_RATE)

    def loss(params: Any, batch: Any) -> Any:
        """Return the error of the spectrum plus the price of open gates."""
        gates = [
            _straight_through_gate(gate, batch["hard"]) for gate in params["gates"]
        ]
        re, im = apply_butterflies(gates, batch["x"], batch["x"] * np.float32(0))
        re, im = re[:, band.bins], im[:, band.bins]
        got_re = re * params["re"] - im * params["im"]
        got_im = re * params["im"] + im * params["re"]
        off_re = (got_re - batch["re"]) * batch["weights"]
        off_im = (got_im - batch["im"]) * batch["weights"]
        error = np.mean(off_re * off_re + off_im * off_im)
        pairs = zip(gates, shares, strict=True)
        return error + batch["price"] * sum(
            np.sum(gate * share) for gate, share in pairs
        )

    def step(state: Any, batch: Any) -> Any:
        """Take one step of Adam and clip the gates to 0 … 1."""
        params, moments, identity = state
        value, grads = value_and_grad(loss)(params, batch)
        params, moments = adam.update(params, grads, moments)
        gates = [np.clip(gate, 0.0, 1.0) for gate in params["gates"]]
        return ({**params, "gates": gates}, moments, identity), value

    params = {
        "gates": [row.astype(np.float32) for row in needed_gates],
        "re": np.ones(len(band), np.float32),
        "im": np.zeros(len(band), np.float32),
    }
    settings = (steps, price, seed, k, band.first, band.stop)
    digest = sha256(segments.tobytes())
    digest.update(repr(settings).encode())
    identity = np.frombuffer(digest.digest(), np.uint32).copy()
    state = params, adam.init(params), identity
    if save_to is not None and Path(save_to).exists():
        if not np.array_equal(load_training(save_to, state).state[2], identity):
            raise InputError(
                f"resume the training from {shown(str(save_to))}",
                "the file was written by a training with other recordings or settings",
                "a file can resume only the training that wrote it",
                "pass another file, or delete this one to start over",
            )
    run = train(
        step, batches, state, steps=steps, save_to=save_to, save_every=25, **options
    )
    gates = np.stack([np.asarray(gate) for gate in run.state[0]["gates"]])
    return TrainedGates(np.where(needed_gates, gates, 0.0).astype(np.float32), run)


def _batch_function(
    segments: Any, band: BinRange, k: int, steps: int, price: float, seed: int
) -> Callable[[int], dict[str, Any]]:
    """Return the function that makes the training batch of a step.

    A batch has segments, their bins, and the weight of the error of each.
    """
    spectra = np.fft.rfft(segments)[:, band.bins]
    power = np.square(np.abs(spectra))
    scale = 1.0 / np.maximum(power.mean(axis=0), 1e-300)
    order, count = bit_reversal_order(segments.shape[1]), len(segments)
    soft_steps = max(1.0, _SOFT_PHASE_SHARE * steps)

    def batch(step: int) -> dict[str, Any]:
        rng = np.random.default_rng([seed, step])
        picks = rng.choice(count, _BATCH_SIZE, replace=count < _BATCH_SIZE)
        weights = np.broadcast_to(scale, (_BATCH_SIZE, len(band))).copy()
        strongest = np.argsort(-power[picks], axis=1)[:, :k]
        peak_weights = (1 + _PEAK_WEIGHT) * np.take_along_axis(weights, strongest, 1)
        np.put_along_axis(weights, strongest, peak_weights, 1)
        norm = np.sqrt(np.mean(weights * power[picks]))
        return {
            "x": segments[picks][:, order].astype(np.float32),
            "re": spectra[picks].real.astype(np.float32),
            "im": spectra[picks].imag.astype(np.float32),
            "weights": (np.sqrt(weights) / norm).astype(np.float32),
            "price": np.float32(price * min(1.0, step / soft_steps)),
            "hard": np.float32(step >= soft_steps),
        }

    return batch


def _straight_through_gate(gate: Any, hard: Any) -> Any:
    """Return a gate as the network uses it: its number, or 0 or 1 with a
    straight-through gradient.
    """
    rounded = np.where(gate >= 0.5, np.float32(1), np.float32(0))
    return gate + hard * nn.stop_gradient(rounded - gate)
