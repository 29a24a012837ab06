"""The request of a Welch estimate: its arguments, written once, and what they mean.

Every caller (`welch`, `welch_peaks`, the command line) fills in one record; presets and
scipy's rules for what is left out make a WelchSpec of it, and what cannot be is refused
here. It must not compute a spectrum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from rlxweb.advice import Advice, Blank
from rlxweb.arguments import number, one_of, switch, whole
from rlxweb.errors import UsageError, shown
from rlxweb.given import array_of
from rlxweb.host.spec import Average, Detrend, WelchSpec, sample_dtype
from rlxweb.kept import Kept
from rlxweb.recipes.welch_plan import segment_count
from rlxweb.signal.windows import WindowLike, get_window

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike, NDArray

DEFAULT_NPERSEG: Final = 256
OF_PRESET: Final = "preset"

_DOING = "welch"
_DETRENDS: dict[object, Detrend | None] = {
    None: None,
    False: None,
    "constant": "constant",
    "c": "constant",
    "linear": "linear",
    "l": "linear",
}


class Preset(NamedTuple):
    """What an estimate of a name fills in where the caller left it out."""

    window: str
    overlap: Callable[[int], int]
    detrend: Detrend | None
    scaling: str


# For one sample per segment half of it is no hop at all, so the hop is at least 1.
PRESETS: Final = {
    "rlx": Preset("hann_symmetric", lambda n: n - max(1, n // 2), None, "none"),
    "scipy": Preset("hann", lambda n: n // 2, "constant", "density"),
    "mne": Preset("hamming", lambda n: 0, "constant", "density"),
}


@dataclass(frozen=True, slots=True, repr=False)
class WelchRequest:
    """What the caller asks for; None leaves a value to the preset.

    fs         rate in Hz
    nperseg    samples per segment; None: 256, or all of a shorter row
    noverlap   samples that segments share, 0 … nperseg - 1
    nfft       transform length, zero-padded; None: nperseg
    window     a name, a tuple with parameters, or samples
    detrend    'constant', 'linear', None or False; 'preset' leaves it to the preset
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
    detrend: str | bool | None = OF_PRESET
    return_onesided: bool = True
    scaling: str | None = None
    average: str = "mean"
    nsegments: int | None = None
    preset: str = "scipy"

    def __repr__(self) -> str:
        said = (f"{name}={shown(getattr(self, name))}" for name in _FIELDS)
        return f"WelchRequest({', '.join(said)})"

    def __post_init__(self) -> None:
        if self.window is not None and not isinstance(self.window, str | FrozenWindow):
            object.__setattr__(self, "window", frozen_window(self.window))

    def spec(self, n_samples: int | None, dtype: DTypeLike = np.float64) -> WelchSpec:
        """The estimate for rows of n_samples; None for a stream of unknown length.

        An nperseg that was asked for and does not fit is refused, where scipy warns and
        shrinks it.

        Errors   UsageError for what is outside its domain; DTypeError.
        """
        # 0 would pass for False as a key, and 256 for True's.
        kinds = tuple(type(getattr(self, name)) for name in _FIELDS)
        try:
            return _known(self, kinds, n_samples, dtype)
        except TypeError:  # an argument that cannot be looked up
            return _settled(self, kinds, n_samples, dtype)


_FIELDS = tuple(f.name for f in fields(WelchRequest))


def _settled(
    asked: WelchRequest,
    kinds: tuple[type, ...],
    n_samples: int | None,
    dtype: DTypeLike,
) -> WelchSpec:
    preset = PRESETS[one_of("preset", asked.preset, PRESETS, _DOING)]
    scaling = preset.scaling if asked.scaling is None else asked.scaling
    one_of("scaling", scaling, ("density", "spectrum", "none"), _DOING)
    one_of("average", asked.average, ("mean", "median"), _DOING)
    average: Average = "median" if asked.average == "median" else "mean"
    kind = sample_dtype(dtype)
    fs = _rate(asked.fs)
    length = _whole_or_none("the signal's length", n_samples)
    shape = preset.window if asked.window is None else asked.window
    wanted = _whole_or_none("nperseg", asked.nperseg)
    window = _segment_window(shape, wanted, length)
    nperseg = len(window) // 8
    noverlap = _whole_or_none("noverlap", asked.noverlap)
    if noverlap is None:
        noverlap = preset.overlap(nperseg)
    if not 0 <= noverlap < nperseg:
        rule = f"it must be 0 or more and below nperseg, {nperseg}"
        raise UsageError(_DOING, f"noverlap is {noverlap}", rule)
    hop = nperseg - noverlap
    nfft = nperseg if asked.nfft is None else _whole("nfft", asked.nfft)
    if nfft < nperseg:
        rule = f"it must be at least nperseg, {nperseg}"
        raise UsageError(_DOING, f"nfft is {nfft}", rule)
    nsegments = _whole_or_none("nsegments", asked.nsegments)
    return WelchSpec(
        nperseg=nperseg,
        hop=hop,
        nfft=nfft,
        n_segments=_segments(nsegments, length, nperseg, hop),
        window=window,
        detrend=_removal(asked.detrend, preset.detrend),
        one_sided=switch("return_onesided", asked.return_onesided, _DOING)
        and not kind.startswith("complex"),
        scale=_scale(window, scaling, fs),
        average=average,
        dtype=kind,
    )


# Small batches feel the time it takes to settle the arguments.
_specs: Kept[tuple[Any, ...], WelchSpec] = Kept(128, 64 << 20)
_windows: Kept[tuple[Any, ...], bytes] = Kept(128, 64 << 20)


def _known(*given: Any) -> WelchSpec:
    return _specs.made(given, lambda: _settled(*given), lambda spec: 8 * spec.nperseg)


def _whole(name: str, value: object) -> int:
    return whole(name, value, _DOING, of_float=True)


def _whole_or_none(name: str, value: object) -> int | None:
    return None if value is None else _whole(name, value)


class FrozenWindow(bytes):
    """A window's samples, float64, in a form that hashes."""

    __slots__ = ()


def frozen_window(window: WindowLike | ArrayLike) -> WindowLike | bytes:
    """A hashable form: names and tuples as they are, samples as float64 bytes."""
    if isinstance(window, str):
        return window
    if isinstance(window, tuple):
        return tuple(map(_parameter, window))
    samples = array_of(window, "the window")
    if samples.ndim != 1 or not samples.size or samples.dtype.kind not in "biuf":
        raise UsageError(
            _DOING,
            f"the window has shape {samples.shape} and dtype {samples.dtype}",
            "it must be a name, a tuple, or a 1-D array of at least 1 real number",
        )
    with np.errstate(invalid="ignore"):
        wide = samples.astype(np.float64)
    return FrozenWindow(_finite(wide).tobytes())


def _parameter(given: object) -> object:
    """A window's name or parameter, in a form that hashes."""
    if given is None or isinstance(given, str | int | float | complex | np.generic):
        return given
    array = array_of(given, "a parameter of the window")
    if array.ndim > 1:
        rule = "a parameter is a number or a list of numbers"
        raise UsageError(_DOING, f"the window has {shown(given)} in it", rule)
    return tuple(array.tolist()) if array.ndim else array.item()


def _finite(samples: NDArray[np.float64]) -> NDArray[np.float64]:
    bad = ~np.isfinite(samples)
    if bad.any():
        at = int(bad.argmax())
        raise UsageError(
            _DOING,
            f"the window is {samples[at]} at sample {at}",
            f"{int(bad.sum())} of {len(samples)} samples are not finite",
            "give another window",
        )
    return samples


def _removal(detrend: object, of_preset: Detrend | None) -> Detrend | None:
    if isinstance(detrend, str) and detrend == OF_PRESET:
        return of_preset
    # The type is part of the question: 0 would pass for False as a key.
    if isinstance(detrend, str | bool | None) and detrend in _DETRENDS:
        return _DETRENDS[detrend]
    raise UsageError(
        _DOING,
        f"detrend={shown(detrend)} is not known",
        "it must be 'constant', 'linear', None or False",
        "rlxweb.welch takes a function" if callable(detrend) else "",
    )


def _rate(fs: object) -> float:
    rate = number("fs", fs, _DOING)
    if rate <= 0:
        raise UsageError(_DOING, f"fs is {rate:g}", "it must be above 0")
    return rate


def _segment_window(*given: Any) -> bytes:
    """The window's samples; their number settles nperseg, scipy's way."""
    return _windows.made(given, lambda: _new_window(*given), len)


def _new_window(
    window: WindowLike | bytes, nperseg: int | None, n_samples: int | None
) -> bytes:
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
            Advice("give a longer signal or a smaller {}", nperseg=Blank("N")),
        )
    if isinstance(window, bytes):
        return window
    return _finite(get_window(window, length)).tobytes()


def _scale(window: bytes, scaling: str, fs: float) -> float:
    samples = np.frombuffer(window, np.float64)
    if scaling == "none":
        return 1.0
    density = scaling == "density"
    with np.errstate(over="ignore"):
        gain = fs * (samples @ samples) if density else samples.sum() ** 2
        factor = 1.0 / gain if gain else np.inf
    if not (0 < gain < np.inf and 0 < factor < np.inf):
        raise UsageError(
            _DOING,
            f"the window's {'energy' if density else 'squared sum'} is {gain:g}",
            f"scaling={scaling!r} divides by it",
            "give another window or another scaling",
        )
    return float(factor)


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
            Advice("ask for fewer segments or leave out {}", nsegments=wanted),
        )
    return wanted or available
