"""The numbers of a Welch estimate: segments, bins, weights, and whether they fit.

Read by the declarations in `rlxweb.ops` and by the fused kernels in `rlxweb.kernels`,
which may not import each other. Knows no shader and no device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rlxweb.errors import AttributeRefused, ShapeError


@dataclass(frozen=True, slots=True)
class WelchPlan:
    """Rows [rows, width], cut into `segments` of n every hop, zero-padded to nfft."""

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
        return self.nfft // 2 + 1

    def weights(self) -> npt.NDArray[np.float64]:
        """[bins] factors that turn summed |X|² into the estimate."""
        out = np.full(self.bins, self.scale / self.segments)
        if self.doubling:
            # An even length ends in the Nyquist bin, which has no mirror image.
            out[1 : (self.nfft + 1) // 2] *= 2.0
        return out


def frame_count(length: int, size: int, hop: int, count: int) -> int:
    """How many frames of `size` every `hop` are cut from `length`; 0 asks for all.

    Errors   AttributeRefused, ShapeError with both numbers.
    """
    for name, value in (("length", size), ("hop", hop)):
        if value < 1:
            raise AttributeRefused("", f"{name} = {value}", f"{name} is >= 1")
    if count < 0:
        raise AttributeRefused("", f"count = {count}", "count is >= 0 (0: all)")
    if size > length:
        raise ShapeError(
            "",
            f"a frame of {size} does not fit a row of {length}",
            f"{size} > {length}",
            "take shorter frames or longer rows",
        )
    most = 1 + (length - size) // hop
    if count > most:
        raise ShapeError(
            "",
            f"{count} frames of {size} every {hop} do not fit a row of {length}",
            f"they need {size + (count - 1) * hop} values; {most} frames fit",
            "ask for fewer frames, or 0 for all",
        )
    return count or most


def welch_plan(shape: tuple[int, ...], n: int, attrs: Mapping[str, Any]) -> WelchPlan:
    """The plan of an op's attributes; 0 segments is all of them, 0 nfft is n.

    Errors   AttributeRefused, ShapeError.
    """
    rows, width = shape
    segments = frame_count(width, n, attrs["hop"], attrs["segments"])
    nfft = attrs["nfft"] or n
    if nfft < n:
        raise AttributeRefused(
            "", f"nfft = {nfft}", f"nfft is at least the window's length, {n}"
        )
    return WelchPlan(
        rows,
        width,
        n,
        attrs["hop"],
        segments,
        nfft,
        attrs["detrend"],
        attrs["doubling"],
        attrs["scale"],
    )


def check_k(k: int, bins: int) -> None:
    """1 <= k <= bins. Errors  AttributeRefused with both numbers."""
    if k < 1:
        raise AttributeRefused("", f"k = {k}", "k is at least 1")
    if k > bins:
        raise AttributeRefused(
            "",
            f"k = {k} peaks of {bins} bins",
            f"k is at most the number of bins, {bins}",
            "ask for fewer peaks or use longer segments",
        )
