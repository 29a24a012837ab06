"""Convolutions in native programs: weights times windows, image by image."""

from __future__ import annotations

from math import prod

import numpy as np

from rlxweb.codegen.data_movement_index_tables import view_from_table
from rlxweb.codegen.native_program_builder import (
    MAX_BATCH,
    MAX_ELEMENTS,
    MAX_MULTIPLICATIONS,
    NativeProgramBuilder,
)
from rlxweb.ir.graph import Node
from rlxweb.ir.op import Attrs, TensorType, Types
from rlxweb.ops.conv.cpu.numpy import im2col
from rlxweb.ops.conv.wgsl.plan import convolution_shape
from rlxweb.ops.kernel_variant import KernelVariant


def _is_small(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    """Return whether few images and groups have few windows and multiplications."""
    conv = convolution_shape(inputs[0].shape, inputs[1].shape, attrs)
    terms = conv.channels[0] * prod(conv.windows.kernel)
    windows = prod(conv.windows.out_shape)
    return (
        conv.batch * conv.groups <= MAX_BATCH
        and 0 < terms
        and terms * windows <= MAX_ELEMENTS
        and out.numel * terms <= MAX_MULTIPLICATIONS
    )


def add_conv(builder: NativeProgramBuilder, node: Node) -> None:
    """Add a convolution: weights times im2col windows, for every image and
    group.
    """
    x, w = (builder.views[i] for i in node.inputs)
    geometry = convolution_shape(x.shape, w.shape, node.attrs)
    c, m = geometry.channels
    images = x.table.reshape(
        geometry.batch, geometry.groups, c, *geometry.windows.spatial_shape
    )
    weights = w.table.reshape(geometry.groups, m, -1)
    target = builder.allocate(node.type.numel)
    elements_per_product = target.size // (geometry.batch * geometry.groups)
    result_tables = []
    for index in range(geometry.batch * geometry.groups):
        n, g = divmod(index, geometry.groups)
        windows = im2col(geometry.windows, images[n, g], 0)
        result_tables.append(
            builder.add_product(
                view_from_table(w.block, weights[g]),
                view_from_table(x.block, windows),
                target,
                index * elements_per_product,
            )
        )
    table = np.stack(result_tables).reshape(node.type.shape)
    builder.views[node.id] = view_from_table(target, table)


KERNELS = (KernelVariant("conv, in a native program", "conv", add_conv, _is_small),)
