"""Prepacked weights: matrices in panels, as native kernels read them."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.codegen import llvm_compiler
from rlxweb.codegen.native_calls import array_address
from rlxweb.codegen.packed_weight_cache import PackCache
from rlxweb.ops.matmul.cpu.native import MatmulTiling

Array = NDArray[Any]


def pack_panels(y: Array, tiling: MatmulTiling, lanes: int) -> Array:
    """Pack a matrix into panels [panels, terms, columns of a panel], each
    contiguous.
    """
    width = tiling.tile.vectors * lanes
    panels = np.empty((tiling.panels, y.shape[0], width), np.float32)
    for index, panel in enumerate(panels):
        begin = min(index * width, y.shape[1] - width)
        panel[...] = y[:, begin : begin + width]
    return panels


class _PanelCache(PackCache[Array]):
    """Cache of matrices packed into panels, and of other prepacked weights."""

    def packed_panels(
        self, root: Array, y: Array, tiling: MatmulTiling
    ) -> Array | None:
        """Return the panels of an array that nobody writes to; pack them on first
        use.
        """
        # Tiles of one width share them: another number of rows takes no more memory.
        key = array_address(y), y.shape, y.strides, tiling.tile.vectors
        lanes = llvm_compiler.host_cpu().vector_nbytes // 4
        return self.get_or_pack(root, key, lambda: pack_panels(y, tiling, lanes))


PANEL_CACHE: Final = _PanelCache()
"""Panel cache of this process."""
