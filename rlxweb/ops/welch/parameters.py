"""Parameters of a Welch estimate: segments, bins and weights, and their validation.

The one counting rule, the one rule of doubling and the one ramp of the declarations in
`rlxweb.ops`, the fused kernels and the NumPy code in `cpu/`, which may not
import each other. Knows no shader and no device.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rlxweb.ir.shape_arithmetic import bad_attribute, bad_shape


def segment_count(n_samples: int, nperseg: int, hop: int) -> int:
    """Return how many whole segments a row of n_samples gives; 0 if it is too short."""
    return 0 if n_samples < nperseg else 1 + (n_samples - nperseg) // hop


def samples_needed(n_segments: int, nperseg: int, hop: int) -> int:
    """Return the length of the shortest row that gives n_segments."""
    return nperseg + (n_segments - 1) * hop


def doubled_bin_slice(nfft: int) -> slice:
    """Return the bins of a half spectrum that stand for themselves and their mirror
    image.

    Not DC, and not the Nyquist bin in which an even length ends.
    """
    return slice(1, (nfft + 1) // 2)


def centred_ramp(n: int) -> npt.NDArray[np.float64]:
    """Return a ramp of n steps with mean 0 and unit energy (all zero for n = 1).

    So mean and slope of a segment are two independent projections.
    """
    ramp = np.arange(n, dtype=np.float64) - (n - 1) / 2.0
    energy = float(ramp @ ramp)
    return ramp / np.sqrt(energy) if energy else ramp


def rlx_weights(bins: int, segments: int) -> npt.NDArray[np.float64]:
    """Return the weights of RLX's mean over segments, which doubles bins 1 … bins - 2
    for even and odd n.
    """
    weights = np.full(bins, 1.0 / segments)
    weights[1 : bins - 1] *= 2.0
    return weights


@dataclass(frozen=True, slots=True)
class WelchParameters:
    """Sizes and scaling of a Welch estimate of rows [rows, width], cut into `segments`
    of n every hop, zero-padded to nfft.
    """

    rows: int
    width: int
    n: int
    hop: int
    segments: int
    nfft: int
    detrend: str = "none"
    doubling: bool = True
    scale: float = 1.0

    @property
    def bins(self) -> int:
        """Number of bins of the half spectrum."""
        return self.nfft // 2 + 1

    def weights(self) -> npt.NDArray[np.float64]:
        """Return the [bins] factors that turn summed |X|² into the estimate."""
        weights = np.full(self.bins, self.scale / self.segments)
        if self.doubling:
            weights[doubled_bin_slice(self.nfft)] *= 2.0
        return weights


def frame_count(length: int, size: int, hop: int, count: int) -> int:
    """Return how many frames of `size` every `hop` are cut from `length`; a count of 0
    requests all.

    Errors   ShapeError with both numbers.
    """
    if size < 1:
        raise bad_shape("a frame has no values", "it must have at least 1")
    if size > length:
        raise bad_shape(
            f"a frame of {size} values does not fit in a row of {length}",
            f"{size} > {length}",
            "use shorter frames or longer rows",
        )
    max_count = segment_count(length, size, hop)
    if count > max_count:
        raise bad_shape(
            f"{count} frames of {size} values, one every {hop}, do not fit in a row of "
            f"{length}",
            f"they need {samples_needed(count, size, hop)} values; at most "
            f"{max_count} frames fit",
            "request fewer frames, or 0 for all",
        )
    return count or max_count


def welch_parameters(
    shape: tuple[int, ...], n: int, attrs: Mapping[str, Any]
) -> WelchParameters:
    """Return the parameters described by an op's attributes; 0 segments means all of
    them, 0 nfft means n.

    Errors   AttributeRefused, ShapeError.
    """
    rows, width = shape
    segments = frame_count(width, n, attrs["hop"], attrs["segments"])
    nfft = attrs["nfft"] or n
    if nfft < n:
        raise bad_attribute(
            f"nfft = {nfft}", f"nfft must be at least the length of the window, {n}"
        )
    options = {name: attrs[name] for name in ("hop", "detrend", "doubling", "scale")}
    return WelchParameters(rows, width, n, segments=segments, nfft=nfft, **options)


def check_k(k: int, bins: int) -> None:
    """Raise an error unless k <= bins. Errors  AttributeRefused with both numbers."""
    if k > bins:
        raise bad_attribute(
            f"k = {k} peaks are requested from {bins} bins",
            f"k must be at most the number of bins, {bins}",
            "request fewer peaks, or use longer segments",
        )


def segment_flops(n: int, nfft: int) -> float:
    """Return the operations of one segment's power: window, real transform, squares,
    sum.
    """
    return 2.5 * nfft * math.log2(max(2, nfft)) + n + 4.0 * (nfft // 2 + 1)
