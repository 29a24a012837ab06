"""Removing a mean or a straight line from many segments at once, in place.

Owns the closed forms: the ramp is centred, so mean and slope are two independent
projections and no least-squares solver runs. It must not know windows or spectra.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def centred_ramp(n: int) -> NDArray[np.float64]:
    """A ramp of n steps with mean 0 and unit energy (all zero for n = 1)."""
    ramp = np.arange(n, dtype=np.float64) - (n - 1) / 2.0
    energy = float(ramp @ ramp)
    return ramp / np.sqrt(energy) if energy else ramp


def remove_constant(segments: NDArray[Any]) -> None:
    """Subtract from each segment of (..., nperseg) its own mean."""
    means = np.add.reduce(segments, axis=-1, keepdims=True)
    means /= segments.shape[-1]
    np.subtract(segments, means, out=segments)


def remove_linear(
    segments: NDArray[Any], ramp: NDArray[np.float64], scratch: NDArray[Any]
) -> None:
    """Subtract from each segment its least-squares line.

    `ramp` is `centred_ramp(nperseg)`; `scratch` has the shape and dtype of `segments`.
    """
    remove_constant(segments)
    np.multiply(segments, ramp, out=scratch)
    slopes = np.add.reduce(scratch, axis=-1, keepdims=True)
    np.multiply(ramp, slopes, out=scratch)
    np.subtract(segments, scratch, out=segments)
