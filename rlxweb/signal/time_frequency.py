"""What spectrograms and wavelets return: values over frequency and time."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class TimeFrequency(NamedTuple):
    """Values over frequency and time; unpacks as f, t, values.

    f       (F,) in Hz
    t       (S,) in s
    values  (…, F, S)
    """

    f: NDArray[np.float64]
    t: NDArray[np.float64]
    values: NDArray[Any]

    def __repr__(self) -> str:
        shape = "×".join(map(str, self.values.shape))
        span = f"{self.f[0]:g} … {self.f[-1]:g} Hz" if len(self.f) else "no frequency"
        until = f"{self.t[0]:g} … {self.t[-1]:g} s" if len(self.t) else "no time"
        return f"TimeFrequency({shape} {self.values.dtype}, {span}, {until})"
