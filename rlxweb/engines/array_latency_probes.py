"""Latency probes of a device that an array library drives, for calibration.

Each ends when a number came back: libraries start work and return before it is done.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlxweb.engines.array_device_arrays import LibraryArray
from rlxweb.engines.capabilities import LatencyProbe, LatencyProbes
from rlxweb.engines.protocol import Array


@dataclass(slots=True)
class ArrayLatencyProbes(LatencyProbes):
    """Latency probes over a library's arrays; the attributes are `ArrayEngine`'s."""

    to_device: Callable[[Array], LibraryArray]
    to_host: Callable[[Any], Array]
    copy_array: Callable[[Any], Any]
    library_context: Callable[[], AbstractContextManager[Any]]

    async def submit_and_wait(self) -> None:
        await self.dispatch_and_wait(0)

    async def dispatch_and_wait(self, count: int) -> None:
        with self.library_context():
            value: Any = self.to_device(np.zeros(4, np.float32))
            for _ in range(count):
                value = value + value
            self.to_host(value)

    def upload_probe(self, nbytes: int) -> LatencyProbe:
        host_array = np.zeros(nbytes // 4, np.float32)

        async def trip() -> None:
            with self.library_context():
                value: Any = self.to_device(host_array)
                self.to_host(value[:1])

        return trip

    def readback_probe(self, nbytes: int) -> LatencyProbe:
        with self.library_context():
            value = self.to_device(np.zeros(nbytes // 4, np.float32))

        async def trip() -> None:
            # JAX keeps what it brought back: of a new array it has nothing yet.
            with self.library_context():
                self.to_host(self.copy_array(value))

        return trip

    def close(self) -> None:
        """Do nothing: the library frees unreferenced arrays."""
