"""Integers of 24 bits, which NumPy has no type for. Shared by WAV and BDF."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def decode_int24(raw: npt.NDArray[np.uint8]) -> npt.NDArray[np.int32]:
    """Little-endian signed integers from bytes (..., 3 * n) as int32 (..., n)."""
    triples = raw.reshape(*raw.shape[:-1], -1, 3)
    wide = np.zeros((*triples.shape[:-1], 4), np.uint8)
    # In the upper three bytes the sign bit is int32's own; the shift spreads it.
    wide[..., 1:] = triples
    return wide.view("<i4")[..., 0].astype(np.int32, copy=False) >> 8
