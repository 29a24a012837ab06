"""Decoders for PCM integers of widths that NumPy has no type for, shared by WAV and
BDF.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def decode_int24(raw: npt.NDArray[np.uint8]) -> npt.NDArray[np.int32]:
    """Decode little-endian signed integers from bytes (..., 3 * n) to int32 (...,
    n).
    """
    triples = raw.reshape(*raw.shape[:-1], -1, 3)
    padded = np.zeros((*triples.shape[:-1], 4), np.uint8)
    # In the upper three bytes the sign bit is int32's own; the shift spreads it.
    padded[..., 1:] = triples
    return padded.view("<i4")[..., 0].astype(np.int32, copy=False) >> 8


def decode_wide(raw: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    """Decode little-endian integers of 5 to 8 bytes (..., width) into the upper bytes
    of int64.
    """
    padded = np.zeros((*raw.shape[:-1], 8), np.uint8)
    padded[..., 8 - raw.shape[-1] :] = raw
    return padded.view("<i8")[..., 0].astype(np.int64, copy=False)
