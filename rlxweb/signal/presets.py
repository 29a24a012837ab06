"""The named estimates `rlx`, `scipy` and `mne` as one call; what they mean is in the
request (`request.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rlxweb.signal.request import DEFAULT_NPERSEG, WelchRequest

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from rlxweb.host.spec import WelchSpec


def from_preset(
    preset: str,
    n_samples: int | None,
    *,
    nperseg: int | None = DEFAULT_NPERSEG,
    dtype: DTypeLike = np.float64,
    **arguments: Any,
) -> WelchSpec:
    """The estimate of a named preset; what the caller gives goes before it.

    n_samples  length of a row, or None for a stream of unknown length
    arguments  the other fields of a WelchRequest: fs, noverlap, window, detrend …
    Errors     UsageError, DTypeError as `WelchRequest.spec`.
    """
    asked = WelchRequest(preset=preset, nperseg=nperseg, **arguments)
    return asked.spec(n_samples, dtype)
