"""What the functions of segments ask for, as SciPy's rules fill in what is left out."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from rlxweb.arguments import whole
from rlxweb.callers import outside
from rlxweb.errors import UsageError
from rlxweb.host.spec import WelchSpec
from rlxweb.signal.request import DEFAULT_NPERSEG, WelchRequest

Overlap = Callable[[int], int]


def half(nperseg: int) -> int:
    """SciPy's overlap, but for spectrograms."""
    return nperseg // 2


def fitted_nperseg(
    window: object, nperseg: Any, n_samples: int | None, doing: str
) -> Any:
    """Nperseg for a row of n_samples: 256 where it is left out, at most the row.

    A window's own samples settle it, so it is left as it is then; so it is for a row of
    a length that does not matter, None.

    Errors   UsageError. Warns  UserWarning where it had to be shortened, as SciPy.
    """
    if n_samples is None or not isinstance(window, str | tuple):
        return nperseg
    asked = DEFAULT_NPERSEG
    if nperseg is not None:
        asked = whole("nperseg", nperseg, doing, of_float=True)
    if asked > n_samples:
        warnings.warn(
            f"nperseg={asked} is greater than signal length {n_samples}, "
            f"using nperseg={n_samples}",
            UserWarning,
            stacklevel=outside(),
        )
    return min(asked, n_samples)


def segment_spec(
    doing: str, n_samples: int | None, dtype: str, overlap: Overlap, **asked: Any
) -> WelchSpec:
    """The estimate of one segment after the other, for rows of n_samples.

    overlap  nperseg → noverlap, where it is left out
    asked    the fields of `WelchRequest`
    Errors   UsageError.
    """
    asked["nperseg"] = fitted_nperseg(
        asked["window"], asked["nperseg"], n_samples, doing
    )
    try:
        spec = WelchRequest(**asked).spec(n_samples, dtype)
        if asked["noverlap"] is None:
            asked["noverlap"] = overlap(spec.nperseg)
            spec = WelchRequest(**asked).spec(n_samples, dtype)
    except UsageError as error:
        error.doing = doing if error.doing == "welch" else error.doing
        raise
    return spec
