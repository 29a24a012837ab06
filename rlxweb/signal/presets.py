"""Conversion of a named preset (`rlx`, `scipy`, `mne`) to a Welch spec;
`welch_request.py` defines the presets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rlxweb.signal.welch_request import DEFAULT_NPERSEG, WelchRequest

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from rlxweb.ops.welch.spec import WelchSpec


def spec_from_preset(
    preset: str,
    n_samples: int | None,
    *,
    nperseg: int | None = DEFAULT_NPERSEG,
    dtype: DTypeLike = np.float64,
    **arguments: Any,
) -> WelchSpec:
    """Return the Welch spec of a named preset; explicit arguments override the preset.

    n_samples  length of a row, or None for a stream of unknown length
    arguments  the other fields of a WelchRequest: fs, noverlap, window, detrend …
    Errors     UsageError, DTypeError as `WelchRequest.spec`.
    """
    request = WelchRequest(preset=preset, nperseg=nperseg, **arguments)
    return request.spec(n_samples, dtype)
