"""How a row of samples is cut into overlapping segments.

Owns the one counting rule, 1 + (T - nperseg) // hop, and the view that shows every
segment without copying. It must not know windows, spectra or devices.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def segment_count(n_samples: int, nperseg: int, hop: int) -> int:
    """How many whole segments a row of n_samples gives; 0 if it is too short."""
    return 0 if n_samples < nperseg else 1 + (n_samples - nperseg) // hop


def samples_needed(n_segments: int, nperseg: int, hop: int) -> int:
    """The shortest row that gives n_segments."""
    return nperseg + (n_segments - 1) * hop


def frames(x: NDArray[Any], nperseg: int, hop: int, n_segments: int) -> NDArray[Any]:
    """A view of x (B, T) as segments (B, S, nperseg); no sample is copied."""
    shape = (x.shape[0], n_segments, nperseg)
    along_rows, along_time = x.strides
    strides = (along_rows, hop * along_time, along_time)
    if x.flags.c_contiguous:
        # The constructor costs a tenth of as_strided, which small batches feel, and
        # it checks the bounds.
        view: NDArray[Any] = np.ndarray(shape, x.dtype, x, 0, strides)
        return view
    return np.lib.stride_tricks.as_strided(x, shape, strides, writeable=False)
