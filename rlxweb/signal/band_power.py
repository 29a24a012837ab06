"""Power in frequency bands: absolute, relative, and the peak frequency of each band.

Owns the names of bands and the integral. Where the spectrum comes from is `welch`'s and
`multitaper`'s business.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from time import perf_counter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlxweb.core.argument_validation import (
    check_choice,
    check_option_names,
    coerce_bool,
    coerce_float,
    suggest_misspelled_options,
)
from rlxweb.core.array_coercion import as_array
from rlxweb.core.errors import (
    RlxWarning,
    UnknownName,
    UsageError,
    did_you_mean,
    shown,
)
from rlxweb.core.message_text import Advice, Blank
from rlxweb.core.warning_stacklevel import caller_stacklevel
from rlxweb.io.csv_json_npz import finite_or_none
from rlxweb.results.labelled_arrays import (
    LabelledArrays,
    ResultAxis,
    ResultVariable,
    batch_axes,
)
from rlxweb.results.labels import NO_LABELS, Labels
from rlxweb.results.power_units import power_unit
from rlxweb.results.ran import UNKNOWN_RUN, Ran
from rlxweb.results.result import Result
from rlxweb.results.result_files import (
    ResultState,
    labels_and_run_from_json,
    labels_and_run_to_json,
)
from rlxweb.results.svg_charts import svg_share_bar
from rlxweb.signal.accept_third_party_objects import accept_objects
from rlxweb.signal.frequency_bins import FrequencyLimit
from rlxweb.signal.multitaper import multitaper
from rlxweb.signal.row_input import require_rate
from rlxweb.signal.spectrum_result import (
    PowerDensity,
    Spectrum,
    coerce_density,
    flat_row_mask,
    warn_flat_rows,
)
from rlxweb.signal.welch import welch
from rlxweb.signal.welch_request import welch_errors_named

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from rlxweb.core.adc_samples import Digital

Array = NDArray[Any]
BandsLike: TypeAlias = str | Mapping[str, tuple[float, float]]

BAND_PRESETS: Final[Mapping[str, Mapping[str, tuple[float, float]]]] = MappingProxyType(
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
"""Band presets in Hz, by the kind of signal. Gamma ends below the mains frequency."""
_ARRAY_FIELDS: Final = (
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
MIN_CYCLES: Final = 2.0
"""Cycles of the lowest frequency in a segment whose length is not given."""
CONTEXT = "band_power"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class BandPower(Result):
    """Powers of K frequency bands.

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
    labels: Labels = NO_LABELS
    ran: Ran = UNKNOWN_RUN

    @property
    def engine(self) -> str:
        """Engine that computed the density; "" where it is not known."""
        return self.ran.engine

    def explain(self) -> str:
        """Explain where the density was computed, and why there."""
        return self.ran.explain()

    def named(self, labels: Labels) -> BandPower:
        """Return the same result with names for the axes of its batch."""
        return replace(self, labels=labels)

    def labelled(self) -> LabelledArrays:
        batch = self.total.shape
        labels = self.labels.fitted(batch)
        unit = power_unit(labels.unit, "spectrum")
        dims = (*labels.dims, "band")
        low, high = self.edges.T
        return LabelledArrays(
            (*batch_axes(labels, batch), ResultAxis("band", self.names)),
            (
                ResultVariable("power", self.absolute, dims, unit, "power of the band"),
                ResultVariable(
                    "relative", self.relative, dims, "", "share of the total power"
                ),
                ResultVariable(
                    "peak", self.peak_hz, dims, "Hz", "peak frequency in the band"
                ),
                ResultVariable("low", low, ("band",), "Hz", "lower edge of the band"),
                ResultVariable("high", high, ("band",), "Hz", "upper edge of the band"),
                ResultVariable(
                    "total",
                    self.total,
                    labels.dims,
                    unit,
                    "power from the lowest to the highest band edge",
                ),
            ),
            {},
        )

    def _to_state(self) -> ResultState:
        arrays = {name: getattr(self, name) for name in _ARRAY_FIELDS}
        return ResultState(
            arrays,
            {"bands": self.names, **labels_and_run_to_json(self.labels, self.ran)},
        )

    @classmethod
    def _from_state(cls, state: ResultState) -> BandPower:
        labels, ran = labels_and_run_from_json(state.json_data)
        bands = tuple(state.json_data["bands"])
        shape = state.arrays["absolute"].shape
        if shape[-1:] != (len(bands),):
            raise ValueError(
                f"the last axis of shape {shape} must have length {len(bands)}, "
                "one value per band"
            )
        return cls(bands, **state.arrays, labels=labels, ran=ran)

    def _svg(self) -> str:
        share = self.relative.reshape(-1, len(self.names))
        known = share[np.isfinite(share).all(axis=1)]
        return svg_share_bar(self.names, known.mean(axis=0)) if len(known) else ""

    def __getitem__(self, name: str) -> Array:
        """Return the `values` of one band; raise UnknownName."""
        band_values: Array = self.values[..., self._band_index(name)]
        return band_values

    def ratio(self, over: str, under: str) -> Array:
        """Return the power of one band over that of another, such as theta over beta.

        NaN where the other is flat: nothing but rounding.
        Errors   UnknownName.
        """
        numerator, denominator = self._band_index(over), self._band_index(under)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios: Array = (
                self.absolute[..., numerator] / self.absolute[..., denominator]
            )
        return np.where(self.flat[..., denominator], np.nan, ratios)

    def as_json(self, names: Sequence[str] | None = None) -> dict[str, Any]:
        """Return plain data, one entry per row; None for what is not finite.

        names   of the rows
        """
        rows = []
        columns = [
            values.reshape(-1, len(self.names))
            for values in (self.absolute, self.relative, self.peak_hz)
        ]
        for index in range(len(columns[0])):
            row: dict[str, Any] = {"name": names[index]} if names else {}
            absolute, relative, peaks = (
                [*map(finite_or_none, values[index])] for values in columns
            )
            for k, band in enumerate(self.names):
                row[band] = {
                    "absolute": absolute[k],
                    "relative": relative[k],
                    "peak_hz": peaks[k],
                }
            rows.append(row)
        edges = dict(zip(self.names, self.edges.tolist(), strict=True))
        return {"bands": edges, "rows": rows}

    def _band_index(self, name: str) -> int:
        """Return the index of a band by name; raise UnknownName."""
        if name in self.names:
            return self.names.index(name)
        raise UnknownName(
            "band",
            f"no band is named {shown(name)}",
            f"known: {', '.join(self.names)}",
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
            lines.append(
                f"  not in the averages: {flat} flat row{'s' * (flat != 1)} "
                "(only rounding errors)"
            )
        non_finite = len(share) - len(known) - flat
        if non_finite:
            lines.append(
                f"  not in the averages: {non_finite} row{'s' * (non_finite != 1)} "
                "with values that are not finite"
            )
        return "\n".join(lines)


@accept_objects("x")
def band_power(
    x: ArrayLike | Digital,
    fs: float | None = None,
    bands: BandsLike = "eeg",
    *,
    relative: bool = False,
    log: bool = False,
    method: Literal["welch", "multitaper"] = "welch",
    nperseg: int | None = None,
    axis: int = -1,
    **options: Any,
) -> BandPower:
    """Compute the power of a signal in frequency bands.

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
    start = perf_counter()
    check_choice("method", method, ("welch", "multitaper"), CONTEXT)
    estimator = multitaper if method == "multitaper" else welch
    own_names = [*signature(band_power).parameters][:-1]
    estimator_names = signature(estimator).parameters.keys() - set(own_names)
    if options.keys() - estimator_names:
        check_option_names(CONTEXT, options, [*own_names, *sorted(estimator_names)])
    rate_hz = require_rate(fs, CONTEXT)
    names, edges = _resolve_bands(bands, FrequencyLimit.from_rate(rate_hz))
    if method == "multitaper":
        spectrum = multitaper(x, rate_hz, axis=axis, **options)
    else:
        # What has a shape keeps its form: integers, or an array on a device.
        x = x if hasattr(x, "shape") else as_array(x, CONTEXT)
        if nperseg is None and isinstance(options.get("window", ""), str | tuple):
            # `welch` shortens them to the signal, and warns of it.
            nperseg = default_nperseg(rate_hz, float(edges.min()))
        with welch_errors_named(CONTEXT):
            spectrum = welch(x, rate_hz, nperseg=nperseg, axis=axis, **options)
    resolved_bands = dict(zip(names, edges.tolist(), strict=True))
    result = band_power_of(spectrum, None, resolved_bands, relative=relative, log=log)
    return replace(result, ran=result.ran._replace(wall_s=perf_counter() - start))


def default_nperseg(fs: float, lowest: float) -> int:
    """Return the samples of a segment that resolves the lowest frequency."""
    seconds = max(4.0, MIN_CYCLES / lowest if lowest > 0 else 0.0)
    return max(1, round(seconds * fs))


@suggest_misspelled_options
def band_power_of(
    f: ArrayLike | Spectrum,
    psd: ArrayLike | None = None,
    bands: BandsLike = "eeg",
    *,
    relative: bool = False,
    log: bool = False,
) -> BandPower:
    """Compute the power in frequency bands of a density that is given.

    Shapes   f (F,) rising, in Hz; psd (…, F) in U²/Hz → results (…, K); or the Spectrum
             that `welch` gave, alone
    Errors   as `band_power`; ShapeError where f and psd do not go together
    """
    result = integrate_bands(coerce_density(f, psd, CONTEXT), bands, relative, log)
    flat = np.asarray(result.flat.all(axis=-1))
    low, high = result.edges.min(), result.edges.max()
    where = f" from {low:g} to {high:g} Hz"
    warn_flat_rows(CONTEXT, flat, "shares, peaks and ratios are", band_text=where)
    return result


def integrate_bands(
    density: PowerDensity,
    bands: BandsLike,
    relative: bool = False,
    log: bool = False,
    flat: NDArray[np.bool_] | None = None,
) -> BandPower:
    """Compute the band powers of a checked density, without a warning of flat rows.

    flat    (…) rows that are known to be flat, where no floor tells
    """
    hz, power = density.f, density.power
    relative = coerce_bool("relative", relative, CONTEXT)
    log = coerce_bool("log", log, CONTEXT)
    names, edges = _resolve_bands(bands, FrequencyLimit.from_bins(hz, density.fs), hz)
    power64 = power.astype(np.float64)
    absolute = np.stack(
        [_integrate(hz, power64, *band_edges) for band_edges in edges], axis=-1
    )
    low, high = float(edges.min()), float(edges.max())
    total = _integrate(hz, power64, low, high)
    is_row_flat = _is_flat_between(density, low, high)
    if flat is not None:
        is_row_flat |= flat
    is_band_flat = np.stack(
        [_is_flat_between(density, *band_edges) for band_edges in edges], axis=-1
    )
    is_band_flat |= is_row_flat[..., None]
    with np.errstate(divide="ignore", invalid="ignore"):
        share = absolute / total[..., None]
        share[is_row_flat] = np.nan
        values = share if relative else absolute
        values = np.log10(np.where(is_band_flat, np.nan, values)) if log else values
    peaks = np.stack(
        [_peak_frequency(density, power64, *band_edges) for band_edges in edges],
        axis=-1,
    )
    peaks[is_band_flat] = np.nan
    metadata = density.labels, density.ran
    return BandPower(
        names,
        edges,
        absolute,
        share,
        total,
        peaks,
        values,
        hz,
        power,
        is_band_flat,
        *metadata,
    )


def _is_flat_between(
    density: PowerDensity, low: float, high: float
) -> NDArray[np.bool_]:
    """Return which rows (…) hold nothing but rounding at the bins that an integral
    reads.
    """
    hz, power = density.f, density.power
    first = max(0, int(np.searchsorted(hz, low, side="right")) - 1)
    last = int(np.searchsorted(hz, high, side="left")) + 1
    rows = power.reshape(-1, len(hz))
    return flat_row_mask(rows, density.floor, slice(first, last)).reshape(
        power.shape[:-1]
    )


def _resolve_bands(
    bands: BandsLike, limit: FrequencyLimit, hz: NDArray[np.float64] | None = None
) -> tuple[tuple[str, ...], NDArray[np.float64]]:
    """Return names and edges (K, 2) of the bands.

    A band of the caller's own must lie within the spectrum; those of a preset that do
    not are left out with a warning, as a part of one is not what its name says.
    Errors  UsageError.
    """
    low = 0.0 if hz is None else float(hz[0]) * (1.0 - 1e-9)
    if isinstance(bands, str):
        preset = BAND_PRESETS[check_choice("bands", bands, BAND_PRESETS, CONTEXT)]
        bands = {
            name: band_edges
            for name, band_edges in preset.items()
            if band_edges[0] >= low and limit.allows(band_edges[1])
        }
        skipped = {
            name: band_edges for name, band_edges in preset.items() if name not in bands
        }
        if skipped and bands:
            warn_skipped_bands(skipped, low, limit)
        bands = bands or preset
    if not isinstance(bands, Mapping) or not bands:
        raise UsageError(
            CONTEXT,
            f"bands is {shown(bands)}",
            "expected the name of a preset, or a dict of edges in Hz by band name, "
            "such as {'alpha': (8, 13)}",
        )
    names = tuple(map(str, bands))
    for name in names:
        if names.count(name) > 1:
            problem = f"{names.count(name)} bands are named {shown(name)}"
            raise UsageError(CONTEXT, problem, "band names must be unique")
    edges = np.array(
        [_check_edges(name, band_edges) for name, band_edges in bands.items()]
    )
    for name, (begin, end) in zip(names, edges, strict=True):
        limit.check_frequency(f"band {name!r} ends at {end:g} Hz", end, CONTEXT)
        if hz is not None and begin < low:
            raise UsageError(
                CONTEXT,
                f"band {name!r} begins at {begin:g} Hz",
                f"the spectrum begins at {hz[0]:g} Hz",
                Advice(
                    "use a higher band, or compute the spectrum with a smaller {}",
                    fmin=Blank("HZ"),
                ),
            )
        _check_width(name, begin, end, hz)
    return names, edges


def warn_skipped_bands(
    skipped: Mapping[str, tuple[float, float]], low: float, limit: FrequencyLimit
) -> None:
    """Warn of bands of a preset that lie only partly or not at all in a spectrum."""
    band_list = ", ".join(
        f"{name} ({a:g}–{b:g} Hz)" for name, (a, b) in skipped.items()
    )
    ends = [b for _, b in skipped.values() if not limit.allows(b)]
    why = limit.description if ends else f"the spectrum begins at {low:g} Hz"
    verb = "is" if len(skipped) == 1 else "are"
    problem = (
        f"{CONTEXT}: {band_list} {verb} not completely inside the spectrum "
        f"and {verb} skipped"
    )
    warnings.warn(RlxWarning(problem, why), stacklevel=caller_stacklevel())


def _check_edges(name: object, edges: Any) -> tuple[float, float]:
    """Return the checked edges (low, high) of a band."""
    problem = f"band {name!r} is {shown(edges)}"
    rule = "expected two edges in Hz with 0 ≤ low < high"
    try:
        first, second = edges
    except (TypeError, ValueError):
        raise UsageError(CONTEXT, problem, rule) from None
    edge_name = f"an edge of band {name!r}"
    low = coerce_float(edge_name, first, CONTEXT)
    high = coerce_float(edge_name, second, CONTEXT)
    if not 0 <= low < high:
        raise UsageError(CONTEXT, problem, rule)
    return low, high


def _check_width(
    name: object, low: float, high: float, hz: NDArray[np.float64] | None
) -> None:
    """Raise UsageError for a band that is narrower than the resolution."""
    if hz is None:
        return
    step = float(np.diff(hz).max())
    if high - low < step * (1 - 1e-9):
        raise UsageError(
            CONTEXT,
            f"band {name!r} is {high - low:g} Hz wide",
            f"must be at least as wide as the spacing of the bins, {step:g} Hz",
            Advice("use a larger {}", nperseg=Blank("N")),
        )


def _integrate(hz: NDArray[np.float64], psd: Array, low: float, high: float) -> Array:
    """Return ∫ psd df from low to high, by trapezoids between bins.

    Raises UsageError where that is beyond float64.
    """
    low, high = max(low, float(hz[0])), min(high, float(hz[-1]))
    inner = hz[(hz > low) & (hz < high)]
    grid_hz = np.concatenate([[low], inner, [high]])
    right = np.clip(np.searchsorted(hz, grid_hz, side="right"), 1, len(hz) - 1)
    share = (grid_hz - hz[right - 1]) / (hz[right] - hz[right - 1])
    values = psd[..., right - 1] * (1.0 - share) + psd[..., right] * share
    with np.errstate(over="ignore"):
        integral: Array = np.trapezoid(values, grid_hz, axis=-1)
    if (np.isinf(integral) & np.isfinite(values).all(axis=-1)).any():
        raise UsageError(
            CONTEXT,
            f"the power from {low:g} to {high:g} Hz exceeds the range of float64",
            f"the largest float64 is {np.finfo(np.float64).max:.2g}",
            "scale the samples",
        )
    return integral


def _peak_frequency(
    density: PowerDensity, psd: Array, low: float, high: float
) -> Array:
    """Return the frequency (…) of the strongest local maximum between the edges,
    refined; NaN for none.
    """
    hz = density.f
    inside = np.flatnonzero((hz >= low) & (hz <= high))
    inside = inside[(inside > 0) & (inside < len(hz) - 1)]
    if not inside.size:
        return np.full(psd.shape[:-1], np.nan)
    centre, before, after = (
        psd[..., inside + offset_bins] for offset_bins in (0, -1, 1)
    )
    is_peak = (centre > before) & (centre >= after)
    if density.floor is not None:
        floor_line = density.floor.shares.line[inside]
        is_peak &= centre > density.floor.energy[..., None] * floor_line
    best = np.where(is_peak, centre, -np.inf).argmax(axis=-1)
    best_index = best[..., None]
    with np.errstate(divide="ignore", invalid="ignore"):
        a, b, c = (
            np.log(np.take_along_axis(neighbour, best_index, -1)[..., 0])
            for neighbour in (before, centre, after)
        )
        curvature = a - 2.0 * b + c
        offset = np.where(
            np.isfinite(curvature) & (curvature < 0), 0.5 * (a - c) / curvature, 0.0
        )
    steps = np.diff(hz)
    peak_hz = hz[inside[best]] + np.clip(offset, -0.5, 0.5) * steps[inside[best] - 1]
    # A parabola may lean over an edge; the peak is in the band all the same.
    clipped_hz: Array = np.where(
        is_peak.any(axis=-1), np.clip(peak_hz, low, high), np.nan
    )
    return clipped_hz
