"""NumPy kernels of Welch estimates, segment spectra and peaks, in blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlxweb.ir.op import Attrs, TensorType, Types
from rlxweb.ops.kernel_variant import KernelVariant, for_every_node
from rlxweb.ops.welch.cpu.segment_spectra import (
    cross_power,
    segment_power,
    segment_spectra,
)
from rlxweb.ops.welch.cpu.spectrum import segment_view, welch_power
from rlxweb.ops.welch.cpu.strongest_bins import has_long_float_rows, strongest_bins
from rlxweb.ops.welch.parameters import (
    doubled_bin_slice,
    rlx_weights,
    segment_count,
    welch_parameters,
)
from rlxweb.ops.welch.spec import WelchSpec

Array = NDArray[Any]


def _has_many_samples(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    """Return whether there are samples enough to outweigh a dozen more NumPy calls."""
    return inputs[0].numel >= 8192


def _welch_spec(attrs: Attrs, x: Array, window: Array) -> WelchSpec:
    """Return the estimate that an op's attributes request, except for the doubling."""
    params = welch_parameters(x.shape, window.shape[0], attrs)
    return WelchSpec(
        nperseg=params.n,
        hop=params.hop,
        nfft=params.nfft,
        n_segments=params.segments,
        window=window.astype(np.float64).tobytes(),
        detrend=None if params.detrend == "none" else attrs["detrend"],
        one_sided=True,
        # A spec always doubles: half the scale, and the ends make up for it.
        scale=params.scale if params.doubling else 0.5 * params.scale,
        average="mean",
        dtype=x.dtype.name,
    )


def _rescale_edge_bins(attrs: Attrs, spec: WelchSpec, power: Array) -> Array:
    """Return power (…, F) with edge bins scaled like the rest where nothing is to be
    doubled.
    """
    if not attrs["doubling"]:
        inner = doubled_bin_slice(spec.nfft)
        power[..., : inner.start] *= 2.0
        power[..., inner.stop :] *= 2.0
    return power


def _welch_power(attrs: Attrs, x: Array, window: Array) -> Array:
    """Compute `welch_power` in cache-sized blocks."""
    spec = _welch_spec(attrs, x, window)
    return _rescale_edge_bins(attrs, spec, welch_power(x, spec))


def _segment_power(attrs: Attrs, x: Array, window: Array) -> Array:
    """Compute `segment_power` in cache-sized blocks."""
    spec = _welch_spec(attrs, x, window)
    return _rescale_edge_bins(attrs, spec, segment_power(x, spec))


def _segment_spectra(attrs: Attrs, x: Array, window: Array) -> Array:
    """Compute `segment_spectra` in cache-sized blocks, real parts before imaginary
    parts.
    """
    spec = _welch_spec(attrs, x, window)
    doubled = attrs["doubling"]
    if not doubled:
        spec = replace(spec, scale=2.0 * spec.scale)
    z = segment_spectra(x, spec, attrs["shift"], doubled=doubled)
    return np.concatenate([z.real, z.imag], axis=-1)


def _cross_power(attrs: Attrs, x: Array, y: Array, window: Array) -> Array:
    """Compute `cross_power` in cache-sized blocks."""
    spec = _welch_spec(attrs, x, window)
    return _rescale_edge_bins(attrs, spec, cross_power(x, y, spec))


def _power_peaks(attrs: Attrs, power: Array) -> Array:
    """Return the k strongest bins and their power as interleaved pairs."""
    k = attrs["k"]
    pairs = np.empty((power.shape[0], k, 2), power.dtype)
    pairs[..., 0], pairs[..., 1] = strongest_bins(power, k)
    return pairs.reshape(-1, 2 * k)


def _welch_row_peaks(attrs: Attrs, x: Array, window: Array) -> Array:
    """Return the strongest bins of the Welch power of each row."""
    return _power_peaks(attrs, _welch_power(attrs, x, window))


def _welch_peaks(attrs: Attrs, spectrum: Array) -> Array:
    """Return the strongest bins of power averaged from packed spectra."""
    n, segments = spectrum.shape[1] // 2, attrs["n_segments"]
    bins = n // 2 + 1
    re, im = spectrum[:, :bins], spectrum[:, n : n + bins]
    power = (re * re + im * im).reshape(-1, segments, bins).sum(axis=1)
    power *= rlx_weights(bins, segments).astype(power.dtype)
    return _power_peaks(attrs, power)


def _frame(attrs: Attrs, x: Array) -> Array:
    """Return overlapping frames as a view."""
    size, hop = attrs["length"], attrs["hop"]
    count = attrs["count"] or segment_count(x.shape[-1], size, hop)
    return segment_view(x, size, hop, count)


_BLOCKED_OPS: dict[str, Callable[..., Array]] = {
    "welch_power": _welch_power,
    "welch_row_peaks": _welch_row_peaks,
    "segment_power": _segment_power,
    "segment_spectra": _segment_spectra,
    "cross_power": _cross_power,
}
_PARTITIONED_OPS: dict[str, Callable[..., Array]] = {
    "power_peaks": _power_peaks,
    "welch_peaks": _welch_peaks,
}
KERNELS = (
    *(
        KernelVariant(
            f"{op}, blocks in cache", op, for_every_node(run), _has_many_samples
        )
        for op, run in _BLOCKED_OPS.items()
    ),
    *(
        KernelVariant(f"{op}, partition", op, for_every_node(run), has_long_float_rows)
        for op, run in _PARTITIONED_OPS.items()
    ),
    KernelVariant("frame, a view", "frame", for_every_node(_frame)),
)
