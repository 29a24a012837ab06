"""Convolutions of float32 on the CPU as matrix products over gathered windows (im2col).

The windows of a panel are laid side by side in a thread's own room, so no array of all
of them is made; positions of all images are the columns of one product. A bias for each
channel and an activation are done with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.codegen.native_elementwise import RegionSpec
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.layout import row_major_strides
from rlxweb.ir.shape_arithmetic import Shape
from rlxweb.ops.conv.cpu.numpy import pad_for_windows
from rlxweb.ops.conv.wgsl.plan import ConvolutionShape
from rlxweb.ops.matmul.cpu.epilogue import (
    CompiledMatmulCall,
    can_be_epilogue,
)
from rlxweb.ops.matmul.cpu.native import (
    GatherTables,
    MatmulEpilogue,
    MatmulSizes,
    MatmulTiling,
    tiling_for,
)

Array = NDArray[Any]

MAX_OFFSETS: Final = (1 << 31) - 1
"""Largest number of elements that a table of offsets can address."""


def im2col_sizes(conv: ConvolutionShape) -> MatmulSizes:
    """Return the sizes of a product for each group: channels, terms of a window,
    positions of all images.
    """
    (c, m), w = conv.channels, conv.windows
    return MatmulSizes(
        conv.groups, m, c * prod(w.kernel), conv.batch * prod(w.out_shape), False
    )


def im2col_tiling(conv: ConvolutionShape) -> MatmulTiling | None:
    """Return the tiling of a convolution; None if im2col by native code does not suit
    it.
    """
    elements = conv.batch * conv.groups * conv.channels[0] * prod(conv.windows.extents)
    results = conv.batch * conv.groups * conv.channels[1] * prod(conv.windows.out_shape)
    return (
        tiling_for(im2col_sizes(conv))
        if max(elements, results) <= MAX_OFFSETS
        else None
    )


@lru_cache(maxsize=64)
def _gather_tables(conv: ConvolutionShape) -> GatherTables:
    (c, m), w = conv.channels, conv.windows
    strides = row_major_strides((conv.batch, conv.groups, c, *w.extents))
    positions = prod(w.out_shape)

    def offsets(*axes: tuple[int, int]) -> NDArray[np.int32]:
        """Return the offsets of all indices along axes of (count, stride in
        elements).
        """
        places = np.zeros(1, np.int64)
        for count, stride in axes:
            places = (places[:, None] + np.arange(count) * stride).reshape(-1)
        return places.astype(np.int32)

    tap_axes = [
        (k, d * stride)
        for k, d, stride in zip(w.kernel, w.dilations, strides[3:], strict=True)
    ]
    output_axes = [
        (o, s * stride)
        for o, s, stride in zip(w.out_shape, w.strides, strides[3:], strict=True)
    ]
    return GatherTables(
        offsets((c, strides[2]), *tap_axes),
        offsets((conv.batch, strides[0]), *output_axes),
        offsets((conv.batch, conv.groups * m * positions), (positions, 1)),
        strides[1],
        positions,
        m * positions,
    )


class Im2colConvCall(CompiledMatmulCall):
    """Convolution of an array [N, C, …] and weights as a product over gathered
    windows.
    """

    def __init__(
        self,
        conv: ConvolutionShape,
        tiling: MatmulTiling,
        shape: Shape,
        fallback: Callable[..., Array],
    ) -> None:
        super().__init__(
            im2col_sizes(conv), tiling, shape, fallback, _gather_tables(conv)
        )
        self.conv = conv

    def prepare_operands(self, x: Array, y: Array) -> tuple[Array, Array]:
        """Return the weights and the padded input."""
        x = x.reshape(*x.shape[:2], *self.conv.windows.spatial_shape)
        return np.ascontiguousarray(y), pad_for_windows(x, self.conv.windows)

    def make_epilogue(
        self, graph: Graph, node: Node, ids: Sequence[int], reads: Sequence[int]
    ) -> MatmulEpilogue | None:
        """Return an epilogue whose operands are scalars or one number per channel; None
        otherwise.
        """
        if not can_be_epilogue(graph, node, ids, reads):
            return None
        ordered = (node.id, *(i for i in reads if i != node.id))
        m, width = self.sizes.rows, 4
        byte_strides = [(0, 0, 0), (0, 0, 0)]
        for i in ordered[1:]:
            tensor_type = graph.node(i).type
            rank = node.type.rank
            shape = (1,) * (rank - tensor_type.rank) + tuple(tensor_type.shape)
            if prod(shape) not in (1, shape[1]):
                return None
            width = tensor_type.dtype.numpy.itemsize if prod(shape) > 1 else 0
            byte_strides.append((width, 0, width * m))
        is_scalar = (False, *(True for _ in ordered[1:]))
        region = RegionSpec.from_nodes(graph, ids, ordered, is_scalar)
        return MatmulEpilogue(region, ordered, tuple(byte_strides))
