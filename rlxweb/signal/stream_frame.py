"""What a stream tells for a segment: the average it made, read when it is looked at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rlxweb.errors import DeviceLost
from rlxweb.gpu.drive import drive
from rlxweb.host.strongest import PeaksOfPower
from rlxweb.signal.rounding import RoundingFloor

if TYPE_CHECKING:
    from rlxweb.runtime.device_array import DeviceArray

Array = NDArray[Any]
Search = Callable[[Array], PeaksOfPower]


class Mean:
    """An average (C, F) of all bins; where it lies on a device, until it is asked for.

    known    NaN for the channels of which nothing is known, 0 for others, (C,)
    Errors   of `array`: DeviceLost where it went with its device unread
    """

    __slots__ = ("_array", "_known", "_lock", "_there")

    def __init__(
        self,
        array: Array | None,
        there: DeviceArray | None = None,
        known: Array | None = None,
    ) -> None:
        self._array, self._there, self._known = array, there, known
        self._lock = Lock()

    def __reduce__(self) -> tuple[type[Mean], tuple[Array]]:
        return Mean, (self.array(),)

    def array(self) -> Array:
        """In the host's memory, read once."""
        with self._lock:
            if self._array is None:
                drive(self.read())
            assert self._array is not None
            return self._array

    async def read(self) -> None:
        """Bring it here, if it is not."""
        if self._array is not None or self._there is None:
            return
        try:
            array = await self._there.read_back()
        except DeviceLost as error:
            raise DeviceLost(
                "reading a frame of a stream",
                f"its average was lost unread with {self._there.engine}",
                "a frame's power lies on the device until it is looked at",
                "look at frames as they come",
            ) from error
        if self._known is not None:
            array[np.isnan(self._known)] = np.nan
        self._array, self._there = array, None


@dataclass(frozen=True, slots=True, eq=False)
class StreamFrame:
    """What one more segment made of the average.

    t           seconds from the first sample to the middle of the segment
    f           (F,) in Hz, of the band that is looked at
    n_segments  segments seen so far
    floor       power that rounding alone may leave in `power`
    """

    t: float
    f: NDArray[np.float64]
    n_segments: int
    floor: RoundingFloor = field(repr=False)
    _mean: Mean = field(repr=False)
    _bins: slice = field(repr=False)
    _search: Search = field(repr=False)
    _found: list[PeaksOfPower] = field(default_factory=list, repr=False)

    async def read(self) -> None:
        """Bring its power from a device, beside the caller's event loop."""
        await self._mean.read()

    @property
    def power(self) -> Array:
        """(C, F) averaged; NaN for a channel of which nothing is known.

        On a device it is read back when it is first asked for.
        """
        return self._mean.array()[:, self._bins]

    @property
    def flat(self) -> NDArray[np.bool_]:
        """(C,) channels that hold nothing but rounding: no peaks, no shares."""
        return self.floor.is_flat(self.power)

    @property
    def peaks(self) -> PeaksOfPower:
        """The k strongest of each channel, searched when they are asked for."""
        if not self._found:
            self._found.append(self._search(self._mean.array()))
        return self._found[0]
