"""Bare trips to a device that an array library drives, for calibration.

Each ends when a number came back: libraries start work and return before it is done.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlxweb.backends.array_residents import OwnArray
from rlxweb.backends.protocol import Array, Trip, Trips


@dataclass(slots=True)
class ArrayTrips(Trips):
    """See `protocol.Trips`; the attributes are `ArrayBackend`'s."""

    to_device: Callable[[Array], OwnArray]
    to_host: Callable[[Any], Array]
    copied: Callable[[Any], Any]
    around: Callable[[], AbstractContextManager[Any]]

    async def wait(self) -> None:
        await self.dispatches(0)

    async def dispatches(self, count: int) -> None:
        with self.around():
            one: Any = self.to_device(np.zeros(4, np.float32))
            for _ in range(count):
                one = one + one
            self.to_host(one)

    def upload(self, nbytes: int) -> Trip:
        there = np.zeros(nbytes // 4, np.float32)

        async def trip() -> None:
            with self.around():
                value: Any = self.to_device(there)
                self.to_host(value[:1])

        return trip

    def readback(self, nbytes: int) -> Trip:
        with self.around():
            value = self.to_device(np.zeros(nbytes // 4, np.float32))

        async def trip() -> None:
            # JAX keeps what it brought back: of a new array it has nothing yet.
            with self.around():
                self.to_host(self.copied(value))

        return trip

    def close(self) -> None:
        """The library frees what nobody holds."""
