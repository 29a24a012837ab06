"""Power in bands of frequency: absolute, relative, and where each band peaks.

Owns the names of bands and the integral. Where the spectrum comes from is `welch`'s and
`multitaper`'s business.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from time import perf_counter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlxweb.advice import Advice, Blank
from rlxweb.arguments import check_options, helpful, number, one_of, switch
from rlxweb.callers import outside
from rlxweb.errors import (
    RlxWarning,
    UnknownName,
    UsageError,
    did_you_mean,
    shown,
)
from rlxweb.given import array_of
from rlxweb.io.writers import finite
from rlxweb.results.labels import UNNAMED, Labels
from rlxweb.results.ran import UNTOLD, Ran
from rlxweb.results.result import Result
from rlxweb.results.stored import State, of_plain, plain_of
from rlxweb.results.svg import bars
from rlxweb.results.tables import Axis, Labelled, Variable, batch_axes
from rlxweb.results.units import power_unit
from rlxweb.signal.band import Reach
from rlxweb.signal.labelled import takes_objects
from rlxweb.signal.multitaper import multitaper
from rlxweb.signal.rows_given import said_rate
from rlxweb.signal.spectrum import (
    Density,
    Spectrum,
    density_of,
    flat_rows,
    warn_flat,
)
from rlxweb.signal.welch import welch

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from rlxweb.digital import Digital

Array = NDArray[Any]
Bands: TypeAlias = str | Mapping[str, tuple[float, float]]

BANDS: Final[Mapping[str, Mapping[str, tuple[float, float]]]] = MappingProxyType(
    {
        "eeg": MappingProxyType(
            {
                "delta": (0.5, 4.0),
                "theta": (4.0, 8.0),
                "alpha": (8.0, 13.0),
                "beta": (13.0, 30.0),
                "gamma": (30.0, 45.0),
            }
        ),
        "hrv": MappingProxyType(
            {"vlf": (0.0033, 0.04), "lf": (0.04, 0.15), "hf": (0.15, 0.4)}
        ),
    }
)
"""Bands by the name of what is looked at, in Hz. Gamma ends below the mains."""
_ARRAYS: Final = (
    *(
        "edges",
        "absolute",
        "relative",
        "total",
        "peak_hz",
        "values",
        "f",
        "psd",
        "flat",
    ),
)
CYCLES: Final = 2.0
"""Of the lowest frequency that a segment holds, where its length is left out."""
DOING = "band_power"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class BandPower(Result):
    """Powers of K bands.

    names     of the bands
    edges     (K, 2) in Hz
    absolute  (…, K) in the samples' unit squared: the integral of the density
    relative  (…, K) the share of `total`
    total     (…) from the lowest edge to the highest
    peak_hz   (…, K) where the density of a band is largest, if that is a local maximum;
              NaN where it only rises or falls
    values    (…, K) what was asked for: absolute or relative, or its log10
    f, psd    (F,), (…, F) the density that was integrated
    flat      (…, K) bands that hold nothing but rounding. They have no peak, no log10
              and no ratio to them; a row that is flat in all of its bands, such as a
              dead channel, has no shares: these are NaN
    labels    names of the axes before, and the unit of the samples
    ran       engine, decision and wall time; of a density that was given, its own
    """

    names: tuple[str, ...]
    edges: NDArray[np.float64]
    absolute: Array
    relative: Array
    total: Array
    peak_hz: NDArray[np.float64]
    values: Array
    f: NDArray[np.float64]
    psd: Array
    flat: NDArray[np.bool_]
    labels: Labels = UNNAMED
    ran: Ran = UNTOLD

    @property
    def engine(self) -> str:
        """That computed the density; "" where it is not known."""
        return self.ran.engine

    def explain(self) -> str:
        """Where the density was computed, and why there."""
        return self.ran.explain()

    def named(self, labels: Labels) -> BandPower:
        """The same with names for the axes of its batch."""
        return replace(self, labels=labels)

    def labelled(self) -> Labelled:
        batch = self.total.shape
        labels = self.labels.fitted(batch)
        unit = power_unit(labels.unit, "spectrum")
        dims = (*labels.dims, "band")
        low, high = self.edges.T
        return Labelled(
            (*batch_axes(labels, batch), Axis("band", self.names)),
            (
                Variable("power", self.absolute, dims, unit, "of the band"),
                Variable("relative", self.relative, dims, "", "share of the total"),
                Variable("peak", self.peak_hz, dims, "Hz", "where the band peaks"),
                Variable("low", low, ("band",), "Hz", "the band begins"),
                Variable("high", high, ("band",), "Hz", "the band ends"),
                Variable("total", self.total, labels.dims, unit, "of all bands"),
            ),
            {},
        )

    def _state(self) -> State:
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        return State(arrays, {"bands": self.names, **plain_of(self.labels, self.ran)})

    @classmethod
    def _of_state(cls, state: State) -> BandPower:
        labels, ran = of_plain(state.plain)
        bands = tuple(state.plain["bands"])
        shape = state.arrays["absolute"].shape
        if shape[-1:] != (len(bands),):
            raise ValueError(f"{len(bands)} bands, and values of the shape {shape}")
        return cls(bands, **state.arrays, labels=labels, ran=ran)

    def _picture(self) -> str:
        share = self.relative.reshape(-1, len(self.names))
        known = share[np.isfinite(share).all(axis=1)]
        return bars(self.names, known.mean(axis=0)) if len(known) else ""

    def __getitem__(self, name: str) -> Array:
        """`values` of one band. Errors  UnknownName."""
        own: Array = self.values[..., self._at(name)]
        return own

    def ratio(self, over: str, under: str) -> Array:
        """Power of one band over that of another, such as theta over beta.

        NaN where the other is flat: nothing but rounding.
        Errors   UnknownName.
        """
        above, below = self._at(over), self._at(under)
        with np.errstate(divide="ignore", invalid="ignore"):
            found: Array = self.absolute[..., above] / self.absolute[..., below]
        return np.where(self.flat[..., below], np.nan, found)

    def as_json(self, names: Sequence[str] | None = None) -> dict[str, Any]:
        """Plain data, one entry per row; None for what is not finite.

        names   of the rows
        """
        rows = []
        flat = [
            one.reshape(-1, len(self.names))
            for one in (self.absolute, self.relative, self.peak_hz)
        ]
        for at in range(len(flat[0])):
            row: dict[str, Any] = {"name": names[at]} if names else {}
            absolute, relative, peaks = ([*map(finite, one[at])] for one in flat)
            for k, band in enumerate(self.names):
                row[band] = {
                    "absolute": absolute[k],
                    "relative": relative[k],
                    "peak_hz": peaks[k],
                }
            rows.append(row)
        edges = dict(zip(self.names, self.edges.tolist(), strict=True))
        return {"bands": edges, "rows": rows}

    def _at(self, name: str) -> int:
        if name in self.names:
            return self.names.index(name)
        raise UnknownName(
            "band",
            f"no band is called {shown(name)}",
            f"there are {', '.join(self.names)}",
            did_you_mean(str(name), self.names),
        )

    def __repr__(self) -> str:
        shape = "×".join(map(str, self.absolute.shape[:-1])) or "1"
        lines = [f"BandPower({shape} rows)"]
        share = self.relative.reshape(-1, len(self.names))
        known = share[np.isfinite(share).all(axis=1)]
        for k, (name, (low, high)) in enumerate(
            zip(self.names, self.edges, strict=True)
        ):
            mean = f"{known[:, k].mean():6.1%} on average" if len(known) else "–"
            lines.append(f"  {name:<8} {low:g}–{high:g} Hz  {mean}")
        flat = int(self.flat.all(axis=-1).sum())
        if flat:
            lines.append(f"  {flat} flat, nothing but rounding: not in the averages")
        other = len(share) - len(known) - flat
        if other:
            lines.append(f"  {other} not finite: not in the averages")
        return "\n".join(lines)


@takes_objects("x")
def band_power(
    x: ArrayLike | Digital,
    fs: float | None = None,
    bands: Bands = "eeg",
    *,
    relative: bool = False,
    log: bool = False,
    method: Literal["welch", "multitaper"] = "welch",
    nperseg: int | None = None,
    axis: int = -1,
    **options: Any,
) -> BandPower:
    """Power in bands of frequency.

    Shapes   x (…, T, …) with time on `axis` → results (…, K), one for each band
    Units    x in U, fs and bands in Hz → powers in U²
    bands    "eeg" (delta, theta, alpha, beta, gamma), "hrv" (vlf, lf, hf), or your own
             by name: {"mu": (8, 12)}. Those of a preset that lie beyond fs / 2, wholly
             or in part, are left out with a UserWarning; your own are refused
    relative `values` are shares of the power between the lowest and the highest edge
    log      `values` are their log10
    method   "welch", or "multitaper" over the whole signal
    nperseg  samples of a segment; None: two cycles of the lowest edge, at least 4 s; of
             a shorter signal all of it, with a UserWarning
    flat     a band with nothing but rounding, relative to the mean square of its row,
             has no peak, no log10 and no ratio to it; a row of which that is true
             between the lowest and the highest edge, such as a dead channel, has NaN
             for its shares, with a UserWarning
    options  of `welch` or `multitaper`: window, detrend, device, nan …
    Errors   UsageError for a band that ends beyond fs / 2, or is narrower than the
             resolution; those of `welch`
    Source   the trapezoidal rule over the density, with edges between bins
             interpolated: so bands side by side add up
    """
    begun = perf_counter()
    one_of("method", method, ("welch", "multitaper"), DOING)
    of_method = multitaper if method == "multitaper" else welch
    mine = [*signature(band_power).parameters][:-1]
    taken = signature(of_method).parameters.keys() - set(mine)
    if options.keys() - taken:
        check_options(DOING, options, [*mine, *sorted(taken)])
    rate_hz = said_rate(fs, DOING)
    named, edges = _edges(bands, Reach.of_rate(rate_hz))
    if method == "multitaper":
        found = multitaper(x, rate_hz, axis=axis, **options)
    else:
        # What has a shape keeps its form: integers, or an array on a device.
        x = x if hasattr(x, "shape") else array_of(x, DOING)
        if nperseg is None and isinstance(options.get("window", ""), str | tuple):
            # `welch` shortens them to the signal, and warns of it.
            nperseg = usual_nperseg(rate_hz, float(edges.min()))
        found = welch(x, rate_hz, nperseg=nperseg, axis=axis, **options)
    kept = dict(zip(named, edges.tolist(), strict=True))
    own = band_power_of(found, None, kept, relative=relative, log=log)
    return replace(own, ran=own.ran._replace(wall_s=perf_counter() - begun))


def usual_nperseg(fs: float, lowest: float) -> int:
    """Samples of a segment that tells the lowest frequency from its neighbours."""
    seconds = max(4.0, CYCLES / lowest if lowest > 0 else 0.0)
    return max(1, round(seconds * fs))


@helpful
def band_power_of(
    f: ArrayLike | Spectrum,
    psd: ArrayLike | None = None,
    bands: Bands = "eeg",
    *,
    relative: bool = False,
    log: bool = False,
) -> BandPower:
    """`band_power` of a density that is there already.

    Shapes   f (F,) rising, in Hz; psd (…, F) in U²/Hz → results (…, K); or the Spectrum
             that `welch` gave, alone
    Errors   as `band_power`; ShapeError where f and psd do not go together
    """
    found = bands_in(density_of(f, psd, DOING), bands, relative, log)
    flat = np.asarray(found.flat.all(axis=-1))
    low, high = found.edges.min(), found.edges.max()
    where = f" from {low:g} to {high:g} Hz"
    warn_flat(DOING, flat, "shares, peaks and ratios are", where=where)
    return found


def bands_in(
    given: Density,
    bands: Bands,
    relative: bool = False,
    log: bool = False,
    flat: NDArray[np.bool_] | None = None,
) -> BandPower:
    """`band_power_of` of checked arrays, without a warning of flat rows.

    flat    (…) rows that are known to be flat, where no floor tells
    """
    hz, power = given.f, given.power
    relative, log = switch("relative", relative, DOING), switch("log", log, DOING)
    named, edges = _edges(bands, Reach.of_bins(hz, given.fs), hz)
    wide = power.astype(np.float64)
    absolute = np.stack([_integral(hz, wide, *one) for one in edges], axis=-1)
    low, high = float(edges.min()), float(edges.max())
    total = _integral(hz, wide, low, high)
    whole = _flat_between(given, low, high)
    if flat is not None:
        whole |= flat
    each = np.stack([_flat_between(given, *one) for one in edges], axis=-1)
    each |= whole[..., None]
    with np.errstate(divide="ignore", invalid="ignore"):
        share = absolute / total[..., None]
        share[whole] = np.nan
        values = share if relative else absolute
        values = np.log10(np.where(each, np.nan, values)) if log else values
    peaks = np.stack([_peak(given, wide, *one) for one in edges], axis=-1)
    peaks[each] = np.nan
    about = given.labels, given.ran
    return BandPower(
        named, edges, absolute, share, total, peaks, values, hz, power, each, *about
    )


def _flat_between(given: Density, low: float, high: float) -> NDArray[np.bool_]:
    """Rows (…) with nothing but rounding at the bins that an integral reads."""
    hz, power = given.f, given.power
    first = max(0, int(np.searchsorted(hz, low, side="right")) - 1)
    last = int(np.searchsorted(hz, high, side="left")) + 1
    rows = power.reshape(-1, len(hz))
    return flat_rows(rows, given.floor, slice(first, last)).reshape(power.shape[:-1])


def _edges(
    bands: Bands, reach: Reach, hz: NDArray[np.float64] | None = None
) -> tuple[tuple[str, ...], NDArray[np.float64]]:
    """Names and edges (K, 2) of the bands.

    A band of the caller's own must lie within the spectrum; those of a preset that do
    not are left out with a warning, as a part of one is not what its name says.
    Errors  UsageError.
    """
    low = 0.0 if hz is None else float(hz[0]) * (1.0 - 1e-9)
    if isinstance(bands, str):
        preset = BANDS[one_of("bands", bands, BANDS, DOING)]
        bands = {
            name: own
            for name, own in preset.items()
            if own[0] >= low and reach.holds(own[1])
        }
        left = {name: own for name, own in preset.items() if name not in bands}
        if left and bands:
            warn_left_out(left, low, reach)
        bands = bands or preset
    if not isinstance(bands, Mapping) or not bands:
        raise UsageError(
            DOING,
            f"bands are {shown(bands)}",
            "the name of a preset, or edges by name: {'alpha': (8, 13)}",
        )
    names = tuple(map(str, bands))
    for name in names:
        if names.count(name) > 1:
            said = f"{names.count(name)} bands are called {shown(name)}"
            raise UsageError(DOING, said, "every band has a name of its own")
    edges = np.array([_pair(name, own) for name, own in bands.items()])
    for name, (begin, end) in zip(names, edges, strict=True):
        reach.check(f"band {name!r} ends at {end:g} Hz", end, DOING)
        if hz is not None and begin < low:
            raise UsageError(
                DOING,
                f"band {name!r} begins at {begin:g} Hz",
                f"the spectrum begins at {hz[0]:g} Hz",
                Advice("give a band above it, or a smaller {}", fmin=Blank("HZ")),
            )
        _wide_enough(name, begin, end, hz)
    return names, edges


def warn_left_out(
    left: Mapping[str, tuple[float, float]], low: float, reach: Reach
) -> None:
    """Warn of bands of a preset that a spectrum does not hold whole."""
    some = ", ".join(f"{name} ({a:g}–{b:g} Hz)" for name, (a, b) in left.items())
    ends = [b for _, b in left.values() if not reach.holds(b)]
    why = reach.words if ends else f"the spectrum begins at {low:g} Hz"
    be = "is" if len(left) == 1 else "are"
    said = f"{DOING}: {some} {be} not wholly in the spectrum and left out"
    warnings.warn(RlxWarning(said, why), stacklevel=outside())


def _pair(name: object, own: object) -> tuple[float, float]:
    try:
        low, high = own  # type: ignore[misc]
    except (TypeError, ValueError):
        low = high = math.nan
    low, high = (number(f"an edge of band {name!r}", e, DOING) for e in (low, high))
    if not 0 <= low < high:
        raise UsageError(
            DOING, f"band {name!r} is {shown(own)}", "two edges in Hz, 0 ≤ low < high"
        )
    return low, high


def _wide_enough(
    name: object, low: float, high: float, hz: NDArray[np.float64] | None
) -> None:
    if hz is None:
        return
    step = float(np.diff(hz).max())
    if high - low < step * (1 - 1e-9):
        raise UsageError(
            DOING,
            f"band {name!r} is {high - low:g} Hz wide",
            f"the bins are {step:g} Hz apart",
            Advice("give a larger {}", nperseg=Blank("N")),
        )


def _integral(hz: NDArray[np.float64], psd: Array, low: float, high: float) -> Array:
    """Return ∫ psd df from low to high, by trapezoids between bins.

    Raises UsageError where that is beyond float64.
    """
    low, high = max(low, float(hz[0])), min(high, float(hz[-1]))
    inner = hz[(hz > low) & (hz < high)]
    at = np.concatenate([[low], inner, [high]])
    right = np.clip(np.searchsorted(hz, at, side="right"), 1, len(hz) - 1)
    share = (at - hz[right - 1]) / (hz[right] - hz[right - 1])
    values = psd[..., right - 1] * (1.0 - share) + psd[..., right] * share
    with np.errstate(over="ignore"):
        found: Array = np.trapezoid(values, at, axis=-1)
    if (np.isinf(found) & np.isfinite(values).all(axis=-1)).any():
        raise UsageError(
            DOING,
            f"the power from {low:g} to {high:g} Hz is beyond float64",
            f"float64 ends at {np.finfo(np.float64).max:.2g}",
            "scale the samples",
        )
    return found


def _peak(given: Density, psd: Array, low: float, high: float) -> Array:
    """(…) the strongest local maximum between the edges, refined; NaN for none."""
    hz = given.f
    inside = np.flatnonzero((hz >= low) & (hz <= high))
    inside = inside[(inside > 0) & (inside < len(hz) - 1)]
    if not inside.size:
        return np.full(psd.shape[:-1], np.nan)
    here, before, after = (psd[..., inside + d] for d in (0, -1, 1))
    is_peak = (here > before) & (here >= after)
    if given.floor is not None:
        line = given.floor.shares.line[inside]
        is_peak &= here > given.floor.energy[..., None] * line
    best = np.where(is_peak, here, -np.inf).argmax(axis=-1)
    pick = best[..., None]
    with np.errstate(divide="ignore", invalid="ignore"):
        a, b, c = (
            np.log(np.take_along_axis(one, pick, -1)[..., 0])
            for one in (before, here, after)
        )
        bend = a - 2.0 * b + c
        offset = np.where(np.isfinite(bend) & (bend < 0), 0.5 * (a - c) / bend, 0.0)
    steps = np.diff(hz)
    at = hz[inside[best]] + np.clip(offset, -0.5, 0.5) * steps[inside[best] - 1]
    # A parabola may lean over an edge; the peak is in the band all the same.
    found: Array = np.where(is_peak.any(axis=-1), np.clip(at, low, high), np.nan)
    return found
