"""Request of a Welch estimate: its arguments, defined once, and their resolution to a
WelchSpec.

Every caller (`welch`, `welch_peaks`, the command line) fills in one record; presets and
scipy's rules for what is left out make a WelchSpec of it, and what cannot be is refused
here. It must not compute a spectrum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final, NamedTuple, get_args

import numpy as np

from rlxweb.core.argument_validation import (
    check_choice,
    coerce_bool,
    coerce_float,
    coerce_integer,
)
from rlxweb.core.array_coercion import as_array
from rlxweb.core.errors import UsageError, shown
from rlxweb.core.lru_cache import LruCache
from rlxweb.core.message_text import Advice, Blank
from rlxweb.ops.welch.parameters import segment_count
from rlxweb.ops.welch.spec import Average, Detrend, WelchSpec, sample_dtype
from rlxweb.signal.windows import WindowLike, get_window

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike, NDArray

DEFAULT_NPERSEG: Final = 256
DETREND_FROM_PRESET: Final = "preset"

_CONTEXT = "welch"
_DETRENDS: dict[object, Detrend | None] = {
    None: None,
    False: None,
    "none": None,
    "constant": "constant",
    "c": "constant",
    "linear": "linear",
    "l": "linear",
}


@contextmanager
def welch_errors_named(context: str) -> Iterator[None]:
    """Let the errors of an estimate name the function that the caller called.

    Where that is not `welch`: `with welch_errors_named("stft"): …`.
    """
    try:
        yield
    except UsageError as error:
        if error.doing == _CONTEXT:
            error.doing = context
        raise


class WelchPreset(NamedTuple):
    """Defaults of a named preset for arguments that the caller leaves out."""

    window: str
    default_overlap: Callable[[int], int]
    detrend: Detrend | None
    scaling: str


SCALINGS: Final = ("density", "spectrum", "none")
"""Scalings of the power that an estimate has; |X|² as it is with "none"."""

# For one sample per segment half of it is no hop at all, so the hop is at least 1.
PRESETS: Final = {
    "rlx": WelchPreset("hann_symmetric", lambda n: n - max(1, n // 2), None, "none"),
    "scipy": WelchPreset("hann", lambda n: n // 2, "constant", "density"),
    "mne": WelchPreset("hamming", lambda n: 0, "constant", "density"),
}


@dataclass(frozen=True, slots=True, repr=False)
class WelchRequest:
    """Arguments of a Welch estimate; None leaves a value to the preset.

    fs         rate in Hz
    nperseg    samples per segment; None: 256, or all of a shorter row
    noverlap   samples that segments share, 0 … nperseg - 1
    nfft       transform length, zero-padded; None: nperseg
    window     a name, a tuple with parameters, or samples
    detrend    'constant', 'linear', 'none', None or False; 'preset' leaves it to the
               preset
    scaling    'density', 'spectrum' or 'none' (|X|² as it is)
    average    'mean' or 'median'
    nsegments  average only the first so many
    preset     "rlx": symmetric Hann, hop nperseg // 2, nothing removed, |X|² unscaled;
               "scipy": scipy.signal.welch's periodic Hann, mean removed, density;
               "mne": psd_array_welch's Hamming, no overlap, mean removed, density
    """

    fs: float = 1.0
    nperseg: int | None = None
    noverlap: int | None = None
    nfft: int | None = None
    window: WindowLike | ArrayLike | None = None
    detrend: str | bool | None = DETREND_FROM_PRESET
    return_onesided: bool = True
    scaling: str | None = None
    average: str = "mean"
    nsegments: int | None = None
    preset: str = "scipy"

    def __repr__(self) -> str:
        arguments = (f"{name}={shown(getattr(self, name))}" for name in _FIELD_NAMES)
        return f"WelchRequest({', '.join(arguments)})"

    def __post_init__(self) -> None:
        if self.window is not None and not isinstance(self.window, str | FrozenWindow):
            object.__setattr__(self, "window", freeze_window(self.window))

    def spec(self, n_samples: int | None, dtype: DTypeLike = np.float64) -> WelchSpec:
        """Return the Welch spec for rows of n_samples; None for a stream of unknown
        length.

        An nperseg that was asked for and does not fit is refused, where scipy warns and
        shrinks it.

        Errors   UsageError for what is outside its domain; DTypeError.
        """
        # 0 would pass for False as a key, and 256 for True's.
        argument_types = tuple(type(getattr(self, name)) for name in _FIELD_NAMES)
        try:
            return _cached_spec(self, argument_types, n_samples, dtype)
        except TypeError:  # an argument that cannot be looked up
            return _resolve_request(self, argument_types, n_samples, dtype)


_FIELD_NAMES = tuple(f.name for f in fields(WelchRequest))


def _resolve_request(
    request: WelchRequest,
    argument_types: tuple[type, ...],
    n_samples: int | None,
    dtype: DTypeLike,
) -> WelchSpec:
    """Validate the arguments, apply the preset and return the Welch spec."""
    preset = PRESETS[check_choice("preset", request.preset, PRESETS, _CONTEXT)]
    scaling = preset.scaling if request.scaling is None else request.scaling
    check_choice("scaling", scaling, SCALINGS, _CONTEXT)
    check_choice("average", request.average, get_args(Average), _CONTEXT)
    average: Average = "median" if request.average == "median" else "mean"
    sample_kind = sample_dtype(dtype)
    fs = _validate_rate(request.fs)
    signal_length = _coerce_optional_integer("the signal's length", n_samples)
    window_spec = preset.window if request.window is None else request.window
    requested_nperseg = _coerce_optional_integer("nperseg", request.nperseg)
    window = _window_samples(window_spec, requested_nperseg, signal_length)
    nperseg = len(window) // 8
    noverlap = _coerce_optional_integer("noverlap", request.noverlap)
    if noverlap is None:
        noverlap = preset.default_overlap(nperseg)
    if not 0 <= noverlap < nperseg:
        rule = f"must be 0 or more and below nperseg, {nperseg}"
        raise UsageError(_CONTEXT, f"noverlap is {noverlap}", rule)
    hop = nperseg - noverlap
    nfft = nperseg if request.nfft is None else _coerce_integer("nfft", request.nfft)
    if nfft < nperseg:
        rule = f"must be at least nperseg, {nperseg}"
        raise UsageError(_CONTEXT, f"nfft is {nfft}", rule)
    nsegments = _coerce_optional_integer("nsegments", request.nsegments)
    return WelchSpec(
        nperseg=nperseg,
        hop=hop,
        nfft=nfft,
        n_segments=_resolve_segment_count(nsegments, signal_length, nperseg, hop),
        window=window,
        detrend=_resolve_detrend(request.detrend, preset.detrend),
        one_sided=coerce_bool("return_onesided", request.return_onesided, _CONTEXT)
        and not sample_kind.startswith("complex"),
        scale=_power_scale(window, scaling, fs),
        average=average,
        dtype=sample_kind,
    )


# Small batches feel the time it takes to settle the arguments.
_spec_cache: LruCache[tuple[Any, ...], WelchSpec] = LruCache(128, 64 << 20)
_window_cache: LruCache[tuple[Any, ...], bytes] = LruCache(128, 64 << 20)


def _cached_spec(*arguments: Any) -> WelchSpec:
    """Return the resolved spec from the LRU cache."""
    return _spec_cache.get_or_create(
        arguments, lambda: _resolve_request(*arguments), lambda spec: 8 * spec.nperseg
    )


def _coerce_integer(name: str, value: object) -> int:
    return coerce_integer(name, value, _CONTEXT, accept_float=True)


def _coerce_optional_integer(name: str, value: object) -> int | None:
    return None if value is None else _coerce_integer(name, value)


class FrozenWindow(bytes):
    """Window samples as float64 bytes, which are hashable."""

    __slots__ = ()


def freeze_window(window: WindowLike | ArrayLike) -> WindowLike | bytes:
    """Return a window in hashable form: names and tuples as they are, samples as
    float64 bytes.
    """
    if isinstance(window, str):
        return window
    if isinstance(window, tuple):
        return tuple(map(_hashable_parameter, window))
    samples = as_array(window, "the window")
    if samples.ndim != 1 or not samples.size or samples.dtype.kind not in "biuf":
        raise UsageError(
            _CONTEXT,
            f"the window has shape {samples.shape} and dtype {samples.dtype}",
            "must be a name, a tuple, or a 1-D array of real numbers that is not empty",
        )
    with np.errstate(invalid="ignore"):
        wide_samples = samples.astype(np.float64)
    return FrozenWindow(_check_samples(wide_samples).tobytes())


def _hashable_parameter(parameter: object) -> object:
    """Return a window's name or parameter in hashable form."""
    if parameter is None or isinstance(
        parameter, str | int | float | complex | np.generic
    ):
        return parameter
    array = as_array(parameter, "a parameter of the window")
    if array.ndim > 1:
        rule = "must be a number or a list of numbers"
        raise UsageError(_CONTEXT, f"a window parameter is {shown(parameter)}", rule)
    return tuple(array.tolist()) if array.ndim else array.item()


def _check_samples(samples: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the window's samples; raise UsageError if one is not finite, or all are 0,
    which would leave nothing of any signal.
    """
    bad = ~np.isfinite(samples)
    if bad.any():
        index = int(bad.argmax())
        raise UsageError(
            _CONTEXT,
            f"the window is {samples[index]} at sample {index}",
            f"{int(bad.sum())} of {len(samples)} samples are not finite",
            "use another window",
        )
    if not samples.any():
        raise UsageError(
            _CONTEXT,
            f"the window is 0 at all {len(samples)} of its samples",
            "nothing would be left of the signal",
            "use another window or longer segments",
        )
    return samples


def _resolve_detrend(detrend: object, preset_detrend: Detrend | None) -> Detrend | None:
    """Resolve the detrend argument; raise UsageError for an unknown one."""
    if isinstance(detrend, str) and detrend == DETREND_FROM_PRESET:
        return preset_detrend
    # The type is part of the question: 0 would pass for False as a key.
    if isinstance(detrend, str | bool | None) and detrend in _DETRENDS:
        return _DETRENDS[detrend]
    raise UsageError(
        _CONTEXT,
        f"detrend={shown(detrend)} is not supported",
        "must be 'constant', 'linear', 'none', None or False",
        "use rlxweb.welch, which accepts a function" if callable(detrend) else "",
    )


def _validate_rate(fs: object) -> float:
    rate = coerce_float("fs", fs, _CONTEXT)
    if rate <= 0:
        raise UsageError(_CONTEXT, f"fs is {rate:g}", "must be above 0")
    return rate


def _window_samples(window: Any, nperseg: int | None, n_samples: int | None) -> bytes:
    """Return the window's samples as bytes, after a check against nperseg and the
    signal's length; their number determines nperseg, as in SciPy.
    """
    if n_samples is not None and n_samples < 1:
        raise UsageError(
            _CONTEXT, f"the signal has {n_samples} samples", "at least 1 is required"
        )
    if isinstance(window, bytes):
        length = len(window) // 8
        if nperseg not in (None, length):
            raise UsageError(
                _CONTEXT,
                f"nperseg is {nperseg}",
                f"must be the length of the window, {length} samples",
                "leave nperseg out to use the length of the window",
            )
    else:
        length = DEFAULT_NPERSEG if nperseg is None else nperseg
        if nperseg is None and n_samples is not None:
            length = min(length, n_samples)
    if length < 1:
        raise UsageError(_CONTEXT, f"nperseg is {length}", "must be at least 1")
    if n_samples is not None and length > n_samples:
        raise UsageError(
            _CONTEXT,
            f"nperseg is {length}",
            f"must be at most the length of the signal, {n_samples} samples",
            Advice("use a longer signal or a smaller {}", nperseg=Blank("N")),
        )
    if isinstance(window, bytes):
        return window
    return _window_cache.get_or_create(
        (window, length),
        lambda: _check_samples(get_window(window, length)).tobytes(),
        len,
    )


def _power_scale(window: bytes, scaling: str, fs: float) -> float:
    """Return the factor of the power for a scaling; raise UsageError if the window has
    no finite energy.
    """
    samples = np.frombuffer(window, np.float64)
    if scaling == "none":
        return 1.0
    is_density = scaling == "density"
    with np.errstate(over="ignore"):
        gain = fs * (samples @ samples) if is_density else samples.sum() ** 2
        factor = 1.0 / gain if gain else np.inf
    if not (0 < gain < np.inf and 0 < factor < np.inf):
        raise UsageError(
            _CONTEXT,
            f"the window's {'energy' if is_density else 'squared sum'} is {gain:g}",
            f"scaling={scaling!r} divides by this value",
            "use another window or another scaling",
        )
    return float(factor)


def _resolve_segment_count(
    requested: int | None, n_samples: int | None, nperseg: int, hop: int
) -> int:
    """Return the number of segments that are averaged; 0 for all of a stream."""
    if requested is not None and requested < 1:
        raise UsageError(_CONTEXT, f"nsegments is {requested}", "must be at least 1")
    if n_samples is None:
        return requested or 0
    available = segment_count(n_samples, nperseg, hop)
    if requested is not None and requested > available:
        raise UsageError(
            _CONTEXT,
            f"nsegments is {requested}",
            f"{n_samples} samples contain {available} segments of {nperseg} samples "
            f"with a hop of {hop}",
            Advice("request fewer segments or leave out {}", nsegments=requested),
        )
    return requested or available
