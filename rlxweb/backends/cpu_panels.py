"""Weights as compiled code reads them, which memory likes better than matrices."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.backends.cpu_products import Shares
from rlxweb.host.compiled import address
from rlxweb.host.laid_out import LaidOut
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


class _Panels(LaidOut[Array]):
    """Matrices in panels, and what else compiled code has laid out anew."""

    def in_panels(self, root: Array, y: Array, shares: Shares) -> Array | None:
        """Those of an array that nobody writes into."""
        # Tiles of one width share them: another number of rows takes no more memory.
        key = address(y), y.shape, y.strides, shares.tile.vectors
        lanes = library.processor().nbytes // 4
        return self.of(root, key, lambda: in_panels(y, shares, lanes))


PANELS: Final = _Panels()
"""The process's."""
