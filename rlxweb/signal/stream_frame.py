"""Frames of a stream: the average after each segment, read back on first access."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rlxweb.core.errors import DeviceLost
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.ops.welch.cpu.strongest_bins import PeaksOfPower
from rlxweb.signal.rounding_floor import RoundingFloor

if TYPE_CHECKING:
    from rlxweb.runtime.device_array import DeviceArray

Array = NDArray[Any]
PeakFinder = Callable[[Array], PeaksOfPower]


class LazyMean:
    """Average (C, F) over all bins, read back from its device on first access.

    nan_mask  NaN for the channels of which nothing is known, 0 for others, (C,)
    Errors   of `host_array`: DeviceLost where it went with its device unread
    """

    __slots__ = ("_array", "_device_array", "_lock", "_nan_mask")

    def __init__(
        self,
        array: Array | None,
        device_array: DeviceArray | None = None,
        nan_mask: Array | None = None,
    ) -> None:
        self._array, self._device_array, self._nan_mask = array, device_array, nan_mask
        self._lock = Lock()

    def __reduce__(self) -> tuple[type[LazyMean], tuple[Array]]:
        return LazyMean, (self.host_array(),)

    def host_array(self) -> Array:
        """Return the average in host memory, reading it back once."""
        with self._lock:
            if self._array is None:
                run_blocking(self.read_back())
            assert self._array is not None
            return self._array

    async def read_back(self) -> None:
        """Read the average back from its device, unless it is in host memory."""
        if self._array is not None or self._device_array is None:
            return
        try:
            array = await self._device_array.read_back()
        except DeviceLost as error:
            raise DeviceLost(
                "read a frame of a stream",
                "the power of the frame was lost with "
                f"{self._device_array.engine} before it was read",
                "the power of a frame stays on the device until it is read",
                "read each frame as it arrives",
            ) from error
        if self._nan_mask is not None:
            array[np.isnan(self._nan_mask)] = np.nan
        self._array, self._device_array = array, None


@dataclass(frozen=True, slots=True, eq=False)
class StreamFrame:
    """State of a stream's average after one more segment.

    t           seconds from the first sample to the middle of the segment
    f           (F,) in Hz, of the band that is looked at
    n_segments  segments seen so far
    floor       power that rounding alone may leave in `power`
    """

    t: float
    f: NDArray[np.float64]
    n_segments: int
    floor: RoundingFloor = field(repr=False)
    _mean: LazyMean = field(repr=False)
    _bins: slice = field(repr=False)
    _search_peaks: PeakFinder = field(repr=False)
    _peak_cache: list[PeaksOfPower] = field(default_factory=list, repr=False)

    async def read(self) -> None:
        """Read the power back from a device without blocking the event loop."""
        await self._mean.read_back()

    @property
    def power(self) -> Array:
        """Average power (C, F); NaN for a channel without any valid segment.

        On a device it is read back when it is first asked for.
        """
        return self._mean.host_array()[:, self._bins]

    @property
    def flat(self) -> NDArray[np.bool_]:
        """Channels (C,) that contain only rounding errors: no peaks, no shares."""
        return self.floor.is_flat(self.power)

    @property
    def peaks(self) -> PeaksOfPower:
        """The k strongest peaks of each channel, searched on first access."""
        if not self._peak_cache:
            self._peak_cache.append(self._search_peaks(self._mean.host_array()))
        return self._peak_cache[0]
