"""From the arguments of scipy.signal.welch to a WelchSpec.

Owns scipy's rules for what is left out and the refusals for what cannot be. It must
not compute a spectrum and must not know the presets, which are built on it.
"""

from __future__ import annotations

import operator
from functools import lru_cache
from typing import Final, cast

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from rlxweb.errors import UsageError
from rlxweb.host.spec import Average, Detrend, WelchSpec, sample_dtype
from rlxweb.recipes.welch_plan import segment_count
from rlxweb.signal.windows import WindowLike, get_window

DEFAULT_NPERSEG: Final = 256

_DOING = "welch"
_DETRENDS: dict[object, Detrend | None] = {
    None: None,
    False: None,
    "constant": "constant",
    "c": "constant",
    "linear": "linear",
    "l": "linear",
}


def whole(name: str, value: object, least: int | None = None) -> int:
    """A whole number, also from 256.0 or numpy's own; UsageError otherwise."""
    try:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError as why:
        raise UsageError(
            _DOING, f"{name} is {value!r}", "it must be a whole number"
        ) from why
    if least is not None and number < least:
        raise UsageError(_DOING, f"{name} is {number}", f"it must be at least {least}")
    return number


def _whole_or_none(name: str, value: object) -> int | None:
    return None if value is None else whole(name, value)


def frozen_window(window: WindowLike | ArrayLike) -> WindowLike | bytes:
    """A hashable form: names and tuples as they are, samples as float64 bytes."""
    if isinstance(window, str):
        return window
    if isinstance(window, tuple):
        return tuple(
            tuple(p) if isinstance(p, (list, np.ndarray)) else p for p in window
        )
    samples = np.asarray(window)
    if samples.ndim != 1 or not samples.size or samples.dtype.kind not in "biuf":
        raise UsageError(
            _DOING,
            f"the window has shape {samples.shape} and dtype {samples.dtype}",
            "it must be a name, a tuple, or a 1-D array of at least 1 real number",
        )
    return samples.astype(np.float64).tobytes()


def _removal(detrend: object) -> Detrend | None:
    # The type is part of the question: 0 would pass for False as a key.
    if isinstance(detrend, str | bool | None) and detrend in _DETRENDS:
        return _DETRENDS[detrend]
    raise UsageError(
        _DOING,
        f"detrend={detrend!r} is not known",
        "it must be 'constant', 'linear', None or False",
        "a function of your own can be applied to the data before the call",
    )


def _rate(fs: object) -> float:
    try:
        rate = float(fs)  # type: ignore[arg-type]
    except (TypeError, ValueError) as why:
        raise UsageError(_DOING, f"fs is {fs!r}", "it must be a number") from why
    if not (np.isfinite(rate) and rate > 0):
        raise UsageError(_DOING, f"fs is {rate}", "it must be finite and above 0")
    return rate


def _choice(name: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        listed = " or ".join(map(repr, known))
        raise UsageError(_DOING, f"{name} is {value!r}", f"it must be {listed}")


@lru_cache(maxsize=128)
def _segment_window(
    window: WindowLike | bytes, nperseg: int | None, n_samples: int | None
) -> bytes:
    """The window's samples; their number settles nperseg, scipy's way."""
    if n_samples is not None and n_samples < 1:
        raise UsageError(
            _DOING, f"the signal has {n_samples} samples", "it must have at least 1"
        )
    if isinstance(window, bytes):
        length = len(window) // 8
        if nperseg not in (None, length):
            raise UsageError(
                _DOING,
                f"nperseg is {nperseg}",
                f"the window has {length} samples",
                "leave nperseg out to take the window's length",
            )
    else:
        length = DEFAULT_NPERSEG if nperseg is None else nperseg
        if nperseg is None and n_samples is not None:
            length = min(length, n_samples)
    if length < 1:
        raise UsageError(_DOING, f"nperseg is {length}", "it must be at least 1")
    if n_samples is not None and length > n_samples:
        raise UsageError(
            _DOING,
            f"nperseg is {length}",
            f"the signal has {n_samples} samples",
            "give a longer signal or a smaller nperseg",
        )
    return window if isinstance(window, bytes) else get_window(window, length).tobytes()


def _scale(window: bytes, scaling: str, fs: float) -> float:
    samples = np.frombuffer(window, np.float64)
    if scaling == "none":
        return 1.0
    density = scaling == "density"
    gain = fs * float(samples @ samples) if density else float(samples.sum()) ** 2
    if not (np.isfinite(gain) and gain > 0):
        raise UsageError(
            _DOING,
            f"the window's {'energy' if density else 'sum'} is {gain}",
            f"scaling={scaling!r} divides by it",
            "give another window or another scaling",
        )
    return 1.0 / gain


def _overlap(noverlap: int | None, nperseg: int) -> int:
    overlap = nperseg // 2 if noverlap is None else noverlap
    if overlap >= nperseg:
        raise UsageError(
            _DOING, f"noverlap is {overlap}", f"it must be below nperseg, {nperseg}"
        )
    return overlap


def _padded(nfft: int | None, nperseg: int) -> int:
    length = nperseg if nfft is None else nfft
    if length < nperseg:
        raise UsageError(
            _DOING, f"nfft is {length}", f"it must be at least nperseg, {nperseg}"
        )
    return length


def _segments(wanted: int | None, n_samples: int | None, nperseg: int, hop: int) -> int:
    if wanted is not None and wanted < 1:
        raise UsageError(_DOING, f"nsegments is {wanted}", "it must be at least 1")
    if n_samples is None:
        return wanted or 0
    available = segment_count(n_samples, nperseg, hop)
    if wanted is not None and wanted > available:
        raise UsageError(
            _DOING,
            f"nsegments is {wanted}",
            f"{n_samples} samples give {available} of {nperseg}, {hop} apart",
            "ask for fewer segments or leave nsegments out",
        )
    return wanted or available


@lru_cache(maxsize=128)
def _resolve(
    n_samples: int | None,
    fs: float,
    window: WindowLike | bytes,
    nperseg: int | None,
    noverlap: int | None,
    nfft: int | None,
    detrend: Detrend | None,
    return_onesided: bool,
    scaling: str,
    average: Average,
    nsegments: int | None,
    dtype: str,
) -> WelchSpec:
    samples = _segment_window(window, nperseg, n_samples)
    length = len(samples) // 8
    hop = length - _overlap(noverlap, length)
    return WelchSpec(
        nperseg=length,
        hop=hop,
        nfft=_padded(nfft, length),
        n_segments=_segments(nsegments, n_samples, length, hop),
        window=samples,
        detrend=detrend,
        one_sided=return_onesided and not dtype.startswith("complex"),
        scale=_scale(samples, scaling, fs),
        average=average,
        dtype=dtype,
    )


def resolve(
    n_samples: int | None,
    *,
    fs: float = 1.0,
    window: WindowLike | ArrayLike = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: str | bool | None = "constant",
    return_onesided: bool = True,
    scaling: str = "density",
    average: str = "mean",
    nsegments: int | None = None,
    dtype: DTypeLike = np.float64,
) -> WelchSpec:
    """Decide everything by scipy.signal.welch's rules.

    n_samples is the length T of a row, or None for a stream of unknown length. The
    default nperseg shrinks to a shorter row, as in scipy; an nperseg the caller asked
    for does not: that is a UsageError, where scipy warns and shrinks. A negative
    noverlap leaves gaps. scaling is 'density', 'spectrum' or 'none' (|X|² as it is).
    """
    _choice("scaling", scaling, ("density", "spectrum", "none"))
    _choice("average", average, ("mean", "median"))
    return _resolve(
        _whole_or_none("the signal's length", n_samples),
        _rate(fs),
        frozen_window(window),
        _whole_or_none("nperseg", nperseg),
        _whole_or_none("noverlap", noverlap),
        _whole_or_none("nfft", nfft),
        _removal(detrend),
        bool(return_onesided),
        scaling,
        cast(Average, average),
        _whole_or_none("nsegments", nsegments),
        sample_dtype(dtype),
    )
