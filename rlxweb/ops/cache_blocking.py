"""NumPy ops in blocks of rows that stay in cache, divided among a few threads.

A softmax in parts that stay in cache walks memory once instead of five times. Each part
goes through the op's own reference, so the numbers are those of the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlxweb.codegen.array_tiles import (
    TILE_ELEMENTS,
    Tile,
    parallel_for,
    split_into_tiles,
)
from rlxweb.codegen.result_buffer_pool import result_pool
from rlxweb.ir.dtype import as_dtype
from rlxweb.ir.op import Attrs, TensorType, Types, registry
from rlxweb.ir.shape_arithmetic import Shape, normalize_axis
from rlxweb.ops.kernel_variant import KernelVariant, for_every_node

MIN_BLOCKED_ELEMENTS: Final = 2 * TILE_ELEMENTS
"""Minimum elements for which blocking outweighs its Python overhead."""
_MIN_RUN_ELEMENTS: Final = 64
"""Minimum neighbouring elements of a tile: a few cache lines."""
_WHOLE_AXIS: Final = slice(None)

RowAxesRule = Callable[[Attrs, int], Collection[int]]
"""Rule (attributes, rank of the first operand) → the axes along which an op's rows lie.
"""


def attr_axis(attrs: Attrs, rank: int) -> Collection[int]:
    """Return the axis that the op's attribute names."""
    return (normalize_axis(attrs["axis"], rank),)


def last_axis(attrs: Attrs, rank: int) -> Collection[int]:
    """Return the last axis."""
    return (rank - 1,)


class OperandTiles(NamedTuple):
    """Tiles of the first operand, and the tiles of the result computed from them."""

    input_tiles: list[Tile]
    output_tiles: list[Tile]


def split_operands(
    row_axes_rule: RowAxesRule, attrs: Attrs, input_shape: Shape, output_shape: Shape
) -> OperandTiles:
    """Split an op's call into tiles; one tile where all of it is one row."""
    row_axes = sorted(row_axes_rule(attrs, len(input_shape)))
    free_axes = [axis for axis in range(len(input_shape)) if axis not in row_axes]
    max_elements = max(
        1, TILE_ELEMENTS // max(1, prod(input_shape[axis] for axis in row_axes))
    )
    if free_axes and free_axes[-1] == len(input_shape) - 1:
        max_elements = max(max_elements, min(_MIN_RUN_ELEMENTS, input_shape[-1]))
    # In the result the axes of lines stay, or are others: frames come first.
    other_axes = len(output_shape) - len(free_axes)
    tiles = OperandTiles([], [])
    for tile in split_into_tiles(
        tuple(input_shape[axis] for axis in free_axes), max_elements
    ):
        tile_slices = dict(zip(free_axes, tile, strict=True))
        input_tile = tuple(
            tile_slices.get(axis, _WHOLE_AXIS) for axis in range(len(input_shape))
        )
        tiles.input_tiles.append(input_tile)
        keeps_axes = other_axes == len(row_axes)
        outer_slices = [_WHOLE_AXIS] * (other_axes // 2)
        tiles.output_tiles.append(
            input_tile if keeps_axes else (*outer_slices, *tile, *outer_slices)
        )
    return tiles


def is_large(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    """Return whether there are elements enough for blocking to pay."""
    return inputs[0].numel >= MIN_BLOCKED_ELEMENTS and out.numel > 0


def blocked_op(op: str, row_axes: RowAxesRule) -> Callable[..., NDArray[Any]]:
    """Return the blocked op as (attrs, *arrays) → array.

    Operands other than the first belong to all rows alike.
    """

    def run(attrs: Attrs, x: NDArray[Any], *rest: NDArray[Any]) -> NDArray[Any]:
        op_record = registry.get(op)
        types = [TensorType(array.shape, as_dtype(array.dtype)) for array in (x, *rest)]
        output_type = op_record.output_type(types, attrs)
        tiles = split_operands(row_axes, attrs, x.shape, output_type.shape)
        if len(tiles.input_tiles) == 1:
            result: NDArray[Any] = op_record.reference(np, attrs, x, *rest)
            return result
        out = result_pool.empty(output_type.shape, output_type.dtype.numpy)

        def run_tile(index: int) -> None:
            out[tiles.output_tiles[index]] = op_record.reference(
                np, attrs, x[tiles.input_tiles[index]], *rest
            )

        parallel_for(len(tiles.input_tiles), run_tile, threaded=True)
        return out

    return run


def blocked_kernels(row_axes: RowAxesRule, *ops: str) -> tuple[KernelVariant, ...]:
    """Return the kernels that compute large operands of these ops block by block."""
    return tuple(
        KernelVariant(
            f"{op}, in parts", op, for_every_node(blocked_op(op, row_axes)), is_large
        )
        for op in ops
    )
