"""The training of gates: which butterflies the spectra of the recordings need.

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

from rlxweb.errors import InputError, shown
from rlxweb.signal.band_peaks import Band
from rlxweb.signal.learned.network import (
    bit_reversed,
    butterflies,
    needed,
    open_gates,
)
from rlxweb.tracing.derivatives import value_and_grad
from rlxweb.tracing.ops_on_arrays import nn
from rlxweb.training.loop import Trained, train
from rlxweb.training.optimizers import Adam
from rlxweb.training.saved import load

_BATCH: Final = 32
_RATE: Final = 0.02
_PEAK_WEIGHT: Final = 3.0
"""How much more a bin counts in segments in which it is one of the strongest."""
_FIRST_PHASE: Final = 0.7
"""The share of the steps in which gates are numbers."""


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
    band: Band,
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
    matters = needed(open_gates(segments.shape[1]), band)
    shares = [(row / max(1, matters.sum())).astype(np.float32) for row in matters]
    batches = _batches(segments, band, k, steps, price, seed)
    adam = Adam(_RATE)

    def loss(params: Any, batch: Any) -> Any:
        """The error of the spectrum, and the price of open gates."""
        gates = [_forward(gate, batch["hard"]) for gate in params["gates"]]
        re, im = butterflies(gates, batch["x"], batch["x"] * np.float32(0))
        re, im = re[:, band.bins], im[:, band.bins]
        got_re = re * params["re"] - im * params["im"]
        got_im = re * params["im"] + im * params["re"]
        off_re = (got_re - batch["re"]) * batch["weights"]
        off_im = (got_im - batch["im"]) * batch["weights"]
        error = np.mean(off_re * off_re + off_im * off_im)
        pairs = zip(gates, shares, strict=True)
        return error + batch["price"] * sum(np.sum(gate * of) for gate, of in pairs)

    def step(state: Any, batch: Any) -> Any:
        """One step of Adam; gates stay between 0 and 1."""
        params, moments, identity = state
        value, grads = value_and_grad(loss)(params, batch)
        params, moments = adam.update(params, grads, moments)
        gates = [np.clip(gate, 0.0, 1.0) for gate in params["gates"]]
        return ({**params, "gates": gates}, moments, identity), value

    params = {
        "gates": [row.astype(np.float32) for row in matters],
        "re": np.ones(len(band), np.float32),
        "im": np.zeros(len(band), np.float32),
    }
    settings = (steps, price, seed, k, band.first, band.stop)
    digest = sha256(segments.tobytes())
    digest.update(repr(settings).encode())
    identity = np.frombuffer(digest.digest(), np.uint32).copy()
    state = params, adam.init(params), identity
    if save_to is not None and Path(save_to).exists():
        if not np.array_equal(load(save_to, state).state[2], identity):
            raise InputError(
                f"go on from {shown(str(save_to))}",
                "it is of a training on other recordings, or with other settings",
                "a file goes on with the training that wrote it",
                "name another file, or delete it to begin anew",
            )
    run = train(
        step, batches, state, steps=steps, save_to=save_to, save_every=25, **options
    )
    gates = np.stack([np.asarray(gate) for gate in run.state[0]["gates"]])
    return TrainedGates(np.where(matters, gates, 0.0).astype(np.float32), run)


def _batches(
    segments: Any, band: Band, k: int, steps: int, price: float, seed: int
) -> Callable[[int], dict[str, Any]]:
    """Return the function that makes the batch of a step.

    A batch has segments, their bins, and the weight of the error of each.
    """
    spectra = np.fft.rfft(segments)[:, band.bins]
    power = np.square(np.abs(spectra))
    scale = 1.0 / np.maximum(power.mean(axis=0), 1e-300)
    order, count = bit_reversed(segments.shape[1]), len(segments)
    soft_steps = max(1.0, _FIRST_PHASE * steps)

    def batch(step: int) -> dict[str, Any]:
        rng = np.random.default_rng([seed, step])
        at = rng.choice(count, _BATCH, replace=count < _BATCH)
        weights = np.broadcast_to(scale, (_BATCH, len(band))).copy()
        strongest = np.argsort(-power[at], axis=1)[:, :k]
        more = (1 + _PEAK_WEIGHT) * np.take_along_axis(weights, strongest, 1)
        np.put_along_axis(weights, strongest, more, 1)
        size = np.sqrt(np.mean(weights * power[at]))
        return {
            "x": segments[at][:, order].astype(np.float32),
            "re": spectra[at].real.astype(np.float32),
            "im": spectra[at].imag.astype(np.float32),
            "weights": (np.sqrt(weights) / size).astype(np.float32),
            "price": np.float32(price * min(1.0, step / soft_steps)),
            "hard": np.float32(step >= soft_steps),
        }

    return batch


def _forward(gate: Any, hard: Any) -> Any:
    """Return a gate as the network has it: a number, or 0 or 1 with its gradient."""
    rounded = np.where(gate >= 0.5, np.float32(1), np.float32(0))
    return gate + hard * nn.stop_gradient(rounded - gate)
