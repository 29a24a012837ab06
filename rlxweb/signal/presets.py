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

    Parameters
    ----------
    preset : str
        "rlx", "scipy" or "mne".
    n_samples : int or None
        Length of a row in samples; None for a stream of unknown length.
    nperseg : int or None, default 256
        Length of a segment in samples. None takes the length of the window, or 256,
        or that of a shorter row.
    dtype : DTypeLike, default float64
        Type of the samples.
    **arguments
        Other fields of `WelchRequest`: fs (Hz), noverlap (samples), window, detrend …

    Returns
    -------
    WelchSpec
        Checked parameters of the estimate.

    Raises
    ------
    UsageError, DTypeError
        As `WelchRequest.spec` raises them.
    """
    request = WelchRequest(preset=preset, nperseg=nperseg, **arguments)
    return request.spec(n_samples, dtype)
