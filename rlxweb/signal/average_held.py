"""A stream's average, wherever it lies: in the host's memory, or on a device.

It lies on a device that was named while segments come one by one. It comes home for
what a device does worse or not at all: many segments at once, samples beyond the range
of float32; and it is copied home for whoever keeps it in a file.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.choose.again import LOST
from rlxweb.choose.chooser import Asked, a_device_is_named
from rlxweb.device import Device
from rlxweb.errors import DeviceLost
from rlxweb.gpu.drive import drive
from rlxweb.host.spec import WelchSpec
from rlxweb.host.spectrum import frames
from rlxweb.signal.average_there import AverageThere
from rlxweb.signal.in_range import Rows, into_range
from rlxweb.signal.precision import taken
from rlxweb.signal.row_calls import computed, picked
from rlxweb.signal.scaled import Caller
from rlxweb.signal.segment_calls import SegmentCall, restored
from rlxweb.signal.stream_frame import Mean
from rlxweb.signal.stream_settings import DOING, StreamSettings

Array = NDArray[Any]
Energy = NDArray[np.float64]

MOST_STEPS: Final = 32
"""Segments of a push that a device takes one by one; more are computed at once."""


class HeldAverage:
    """The average of a stream; one thread at a time.

    asked     where it is computed; None: by NumPy
    segments  that are in it
    """

    def __init__(self, settings: StreamSettings, asked: Asked | None) -> None:
        self._settings, self._asked = settings, asked
        self._may_move = asked is not None and (
            asked.place()[0] is not None or a_device_is_named()
        )
        self._caller = Caller(DOING, (settings.n_channels,))
        self._skips = settings.nan == "skip"
        self._here = settings.new_average()
        self.clear()

    def clear(self) -> None:
        """As if nothing had been added, and no device lost."""
        self._there: AverageThere | None = None
        self._gone, self._at_home, self.segments = "", 0, 0
        self._here.clear()

    @property
    def lies_on(self) -> str:
        """The device in words; "" in the host's memory."""
        return "" if self._there is None else self._there.backend.name

    def mean(self, dtype: str) -> tuple[Mean, Energy]:
        """The average (C, F) of all bins, and the mean square (C,) of its samples."""
        self.check()
        if self._there is not None and self._there.mean is not None:
            return self._there.mean, self._there.energy
        shape = self._settings.n_channels, len(self._settings.hz)
        power, energy = self._here.mean(shape, dtype)
        return Mean(power), energy

    async def take(
        self, rows: Array, first: int, count: int, dtype: str
    ) -> list[tuple[Mean, Energy]]:
        """The average after each of the segments of rows, which begin at `first`.

        Errors   those of the device; `segments` says how many were added before.
        """
        spec = replace(self._settings.spec(dtype), n_segments=count)
        seen = into_range(rows, dtype, self._caller, "propagate")
        cut = frames(rows, spec.nperseg, spec.hop, count)
        with np.errstate(invalid="ignore", over="ignore"):
            energy = np.einsum("csn,csn->cs", cut, cut, dtype=np.float64) / spec.nperseg
        lost = seen.lost_segments(spec)
        there = await self._moved(seen, spec)
        power = await self._powers(seen, spec) if there is None else None
        made = []
        for s in range(count):
            gaps, at = None if lost is None else lost[:, s], s * spec.hop
            if power is not None:
                skipped = gaps if self._skips else None
                self._here.add(power[:, s], energy[:, s], skipped)
            elif there is not None:
                own = seen.x[:, at : at + spec.nperseg]
                with self._losing():
                    await there.add(own, first + at, energy[:, s], gaps, self._skips)
            self.segments += 1
            made.append(self.mean(dtype))
        return made

    async def _powers(self, seen: Rows, spec: WelchSpec) -> Array:
        """(C, S, F) of the segments."""
        call = SegmentCall("power", spec)
        if self._asked is None:
            out = call.on_host(seen.x)
        else:
            how = taken(seen.x.dtype, self._settings.precision, DOING)
            out, _ = await computed(call, [seen.x], how, self._asked, DOING, False)
        return restored(out, call, [seen], self._caller)

    async def _moved(self, seen: Rows, spec: WelchSpec) -> AverageThere | None:
        """The average on the device that takes these segments one by one.

        None: they are computed at once, and it is in the host's memory now.
        """
        is_single = spec.dtype == "float32" and not spec.only_on_host
        many = spec.n_segments is None or spec.n_segments > MOST_STEPS
        if not self._may_move or not is_single or many or seen.up is not None:
            await self.copied()
            self._there = None
            return None
        if self._there is not None and self._there.is_full:
            await self.copied()
            self._there = None
        if self._there is None:
            one = replace(spec, n_segments=1)
            rows = len(seen.x)
            call, shapes = SegmentCall("power", one), ((rows, spec.nperseg),)
            assert self._asked is not None
            way = await picked(call, shapes, self._asked)
            if way.device is Device.CPU:
                return None
            blank = self._settings.new_average()
            self._there = await AverageThere.moved(self._here, blank, one, rows, way)
            self._at_home = self.segments
        return self._there

    async def copied(self) -> None:
        """Bring what a device holds into the host's memory; it stays there too."""
        self.check()
        if self._there is not None:
            with self._losing():
                await self._there.home(self._here)
            self._at_home = self.segments

    def __getstate__(self) -> dict[str, Any]:
        """A copy of it, by pickle or `copy`, begins in the host's memory."""
        drive(self.copied())
        return {**self.__dict__, "_there": None}

    def state(self) -> dict[str, Array]:
        """What the host's average holds, by name: that of the last `copied`."""
        return dict(self._here.state())

    def restore(self, state: dict[str, Array], segments: int) -> None:
        """What `state` gave. Errors  KeyError."""
        self._here.restore(state)
        self.segments = self._at_home = segments

    @contextmanager
    def _losing(self) -> Iterator[None]:
        """A loss of the device in here is the average's."""
        try:
            yield
        except LOST as error:
            self._gone = str(error)
            self.check()

    def check(self) -> None:
        """Errors  DeviceLost where the average was lost with its device."""
        if self._gone:
            raise DeviceLost(
                DOING,
                f"the average was lost with the device it lay on ({self._gone})",
                f"{self.segments} segments were in it, {self.segments - self._at_home} "
                "since it last was in the host's memory",
                "go on from what was saved, WelchStream.load(path), or reset()",
            )
