"""Weights as compiled code reads them, which memory likes better than matrices."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Any, Final
from weakref import finalize

import numpy as np
from numpy.typing import NDArray

from rlxweb.backends.cpu_products import Shares
from rlxweb.host.compiled import address
from rlxweb.machine import library

Array = NDArray[Any]


def in_panels(y: Array, shares: Shares, lanes: int) -> Array:
    """A matrix as panels [panels, terms, columns of one], each in memory of its own."""
    width = shares.tile.vectors * lanes
    made = np.empty((shares.panels, y.shape[0], width), np.float32)
    for at, panel in enumerate(made):
        begin = min(at * width, y.shape[1] - width)
        panel[...] = y[:, begin : begin + width]
    return made


class _Panels:
    """Weights laid out anew, as long as the weights are there: programs share them."""

    def __init__(self) -> None:
        self._made: dict[object, Array] = {}
        self._lock = threading.Lock()

    def of(self, root: Array, y: Array, shares: Shares) -> Array | None:
        """Those of an array that nobody writes into; None where nobody tells when it
        is gone.

        root  whose memory it is: itself, or what it is a view of
        """
        # Tiles of one width share them: another number of rows takes no more memory.
        key = address(y), y.shape, y.strides, shares.tile.vectors
        lanes = library.processor().nbytes // 4
        return self.kept(root, key, lambda: in_panels(y, shares, lanes))

    def kept(
        self, root: Array, key: Hashable, make: Callable[[], Array]
    ) -> Array | None:
        """What is made of an array's numbers, as `of`; `key` says of which and how."""
        key = id(root), key
        found = self._made.get(key)
        if found is None:
            with self._lock:
                found = self._made.get(key)
                if found is None:
                    try:
                        finalize(root, self._made.pop, key, None)
                    except TypeError:  # bytes, say
                        return None
                    found = make()
                    self._made[key] = found
        return found


PANELS: Final = _Panels()
"""The process's."""
