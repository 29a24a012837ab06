"""Integers of widths that NumPy has no type for. Shared by WAV and BDF."""

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


def decode_wide(raw: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    """Little-endian integers of 5 to 8 bytes (..., width) in int64's upper bytes."""
    wide = np.zeros((*raw.shape[:-1], 8), np.uint8)
    wide[..., 8 - raw.shape[-1] :] = raw
    return wide.view("<i8")[..., 0].astype(np.int64, copy=False)
