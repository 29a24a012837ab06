"""Ops described by one index table per axis: pad, tile, repeat, roll, dilate and remap.

The rules of what becomes of each axis, and the records made of them. No device is known
here.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from rlxweb.ir.dtype import DType
from rlxweb.ir.op import Attr, Attrs, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape_arithmetic import (
    Shape,
    as_shape,
    bad_attribute,
    bad_shape,
    format_shape,
    normalize_axes,
)
from rlxweb.ir.vmap_batching import batch_axes_rule
from rlxweb.ops.layout.index_map_op_factory import (
    AxisMap,
    axis_map_from_runs,
    axis_map_op,
    pad_or_crop_axis,
)
from rlxweb.ops.layout.index_map_vjp import batch_shifted_axes
from rlxweb.ops.layout.pad_tile_roll_vjp import (
    dilate_vjp,
    pad_vjp,
    repeat_vjp,
    roll_vjp,
    tile_vjp,
)
from rlxweb.ops.layout.slice_and_windows import check_equal_lengths
from rlxweb.ops.layout.wgsl.index_map import IndexTable

_MAX_BLOCK_COPIES = 16
"""Largest number of tile copies that are concatenated one by one."""

PAD_MODES = ("constant", "reflect", "edge", "wrap", "symmetric")


def _place_axis_maps(
    shape: Shape, axes: Sequence[int], maps: Sequence[AxisMap | None]
) -> list[AxisMap | None]:
    """Return the maps of all axes: those of some distinct axes, and None for axes that
    stay unchanged.
    """
    axis_maps: list[AxisMap | None] = [None] * len(shape)
    for axis, axis_map in zip(axes, maps, strict=True):
        axis_maps[axis] = axis_map
    return axis_maps


def padding_table(size: int, before: int, after: int, mode: str) -> IndexTable:
    """Return the source positions of an axis padded with its own elements, as in
    numpy.pad.
    """
    positions = np.arange(-before, size + after)
    if mode == "edge":
        positions = np.clip(positions, 0, max(size - 1, 0))
    elif mode == "wrap":
        positions = positions % max(size, 1)
    else:  # there and back again; the turning points once or twice
        edge_repeats = int(mode == "symmetric")
        period = max(2 * size - 2 + 2 * edge_repeats, 1)
        positions = positions % period
        positions = np.where(
            positions < size, positions, period - positions - edge_repeats
        )
    return positions.astype(np.int32)


def _pad_rule(shape: Shape, attrs: Attrs) -> list[AxisMap | None]:
    """Return the axis maps of `pad`."""
    check_equal_lengths(attrs, "axes", "before", "after")
    axes, mode = normalize_axes(attrs["axes"], len(shape)), attrs["mode"]
    maps: list[AxisMap | None] = []
    for axis, before, after in zip(axes, attrs["before"], attrs["after"], strict=True):
        size = shape[axis]
        length = size + before + after
        if length < 0:
            raise bad_shape(
                f"pads of {before} before and {after} after axis {axis} of "
                f"{format_shape(shape)}",
                f"the size of the axis ({size}) plus both pads must be at least 0",
            )
        if mode == "constant":
            maps.append(pad_or_crop_axis(size, before, length))
            continue
        if size == 0 and length:
            raise bad_shape(
                f"cannot pad an axis of 0 elements with mode {mode}",
                "the axis has no element to repeat",
                'use mode="constant"',
            )
        maps.append(AxisMap(length, partial(padding_table, size, before, after, mode)))
    return _place_axis_maps(shape, axes, maps)


def _tile_rule(shape: Shape, attrs: Attrs) -> list[AxisMap | None]:
    """Return the axis maps of `tile`."""
    repeats = as_shape(attrs["repeats"])
    if len(repeats) != len(shape):
        raise bad_attribute(
            f"got {len(repeats)} repeats for {format_shape(shape)}",
            "expected one repeat count per axis",
        )
    return [
        None if r == 1 else _tiled_axis(n, r)
        for n, r in zip(shape, repeats, strict=True)
    ]


def _tiled_axis(size: int, times: int) -> AxisMap:
    """Return the map of an axis that is tiled `times` times."""

    def table() -> IndexTable:
        return np.tile(np.arange(size, dtype=np.int32), times)

    block_copies = times if times <= _MAX_BLOCK_COPIES and size else 0
    return AxisMap(size * times, table, ((0, size),) * block_copies)


def _repeat_rule(shape: Shape, attrs: Attrs) -> list[AxisMap | None]:
    """Return the axis maps of `repeat`."""
    (axis,) = normalize_axes((attrs["axis"],), len(shape))
    size, repeats = shape[axis], attrs["repeats"]
    if len(repeats) not in (1, size):
        raise bad_attribute(
            f"got {len(repeats)} repeats for {size} elements of axis {axis}",
            "expected one count for all elements or one per element",
        )
    if min(repeats, default=0) < 0:
        raise bad_attribute(f"got {min(repeats)} repeats", "repeats must be at least 0")
    length = size * repeats[0] if len(repeats) == 1 else sum(repeats)

    def table() -> IndexTable:
        return np.repeat(np.arange(size, dtype=np.int32), repeats)

    return _place_axis_maps(shape, (axis,), [AxisMap(length, table)])


def _roll_rule(shape: Shape, attrs: Attrs) -> list[AxisMap | None]:
    """Return the axis maps of `roll`."""
    check_equal_lengths(attrs, "shifts", "axes")
    axes, maps = normalize_axes(attrs["axes"], len(shape)), []
    for axis, shift in zip(axes, attrs["shifts"], strict=True):
        size = shape[axis]
        offset = shift % max(size, 1)
        maps.append(axis_map_from_runs((size - offset, offset), (0, size - offset)))
    return _place_axis_maps(shape, axes, maps)


def _dilate_rule(shape: Shape, attrs: Attrs) -> list[AxisMap | None]:
    """Return the axis maps of `dilate`."""
    check_equal_lengths(attrs, "axes", "steps")
    axes, maps = normalize_axes(attrs["axes"], len(shape)), []
    for axis, step in zip(axes, attrs["steps"], strict=True):
        if step < 1:
            raise bad_attribute(
                f"step {step} on axis {axis}", "a step must be at least 1"
            )
        length = max((shape[axis] - 1) * step + 1, 0)
        maps.append(AxisMap(length, partial(_dilation_table, length, step)))
    return _place_axis_maps(shape, axes, maps)


def _dilation_table(length: int, step: int) -> IndexTable:
    """Return the index table of an axis with `step` - 1 fill values between
    neighbours.
    """
    positions = np.arange(length)
    return np.where(positions % step == 0, positions // step, -1).astype(np.int32)


def _remap_rule(shape: Shape, attrs: Attrs) -> list[AxisMap | None]:
    """Return the axis maps of `remap`."""
    axes, sizes = normalize_axes(attrs["axes"], len(shape)), as_shape(attrs["sizes"])
    positions = attrs["places"]
    if len(axes) != len(sizes) or sum(sizes) != len(positions):
        raise bad_attribute(
            f"got {len(axes)} axes, {len(sizes)} sizes with a sum of {sum(sizes)}, "
            f"and {len(positions)} places",
            "the number of sizes must equal the number of axes, and the number of "
            "places must equal the sum of the sizes",
        )
    maps, start = [], 0
    for axis, size in zip(axes, sizes, strict=True):
        axis_positions, start = positions[start : start + size], start + size
        if axis_positions and not (
            -1 <= min(axis_positions) and max(axis_positions) < shape[axis]
        ):
            index = next(
                n for n, p in enumerate(axis_positions) if not -1 <= p < shape[axis]
            )
            raise bad_attribute(
                f"places selects index {axis_positions[index]} for position {index} "
                f"of axis {axis}",
                f"expected -1 (the constant `value`) or 0 <= index < {shape[axis]}",
            )
        maps.append(AxisMap(size, partial(np.array, axis_positions, np.int32)))
    return _place_axis_maps(shape, axes, maps)


# --- the records ------------------------------------------------------------------


def _case(shape: Shape, dtype: DType = DType.F32, /, **attrs: Any) -> Sample:
    return Sample((Drawn(shape, dtype, -9, 9, whole=True),), attrs)


def _pad_case(
    shape: Shape,
    *rows: tuple[int, int, int],
    mode: str = "constant",
    value: float = 0.0,
    dtype: DType = DType.F32,
) -> Sample:
    axes, before, after = zip(*rows, strict=True) if rows else ((), (), ())
    axis_attrs = {"axes": axes, "before": before, "after": after}
    return _case(shape, dtype, **axis_attrs, mode=mode, value=value)


_VALUE_ATTR = Attr("value", "float", 0.0)
_CALIBRATION_SHAPES = ((8, 8), (256, 256))

registry.register_all(
    axis_map_op(
        "pad",
        _pad_rule,
        attrs=(
            *(Attr(name, "ints") for name in ("axes", "before", "after")),
            Attr("mode", "str", "constant", allowed=PAD_MODES),
            _VALUE_ATTR,
        ),
        samples=(
            _pad_case((1,), (0, 1, 2), value=-2.5),
            _pad_case((3, 0), (1, 2, 1), (0, 0, 1), value=7),
            _pad_case((65_537, 2), (1, 1, 0)),
            _pad_case((2, 5, 7), (1, 2, 1), (-1, -1, 3), value=float("inf")),
            _pad_case((2, 5, 7), (1, 6, 9), (2, 2, 0), mode="reflect"),
            _pad_case((5, 1, 3), (1, 2, 2), (0, 0, 3), mode="edge"),
            _pad_case((2, 3, 5), (2, 7, -1), (1, 1, 1), mode="wrap"),
            _pad_case((4, 3), (1, 4, 2), (0, 1, -1), mode="symmetric"),
            _pad_case((3, 4), (0, 1, 0), (1, 1, 1), value=-3, dtype=DType.I32),
            _pad_case((3, 4), (0, 1, 0), (1, 1, 1), value=1, dtype=DType.BOOL),
            _pad_case((3, 4), (0, 1, 0), (1, 1, 1), value=0.5, dtype=DType.F16),
            _pad_case((3, 4), (0, 1, 1), value=9, dtype=DType.I64),
        ),
        calibration_cases=tuple(
            _pad_case(s, (0, 1, 1), (1, 1, 1)) for s in _CALIBRATION_SHAPES
        ),
        vjp=pad_vjp(padding_table),
        batch=batch_shifted_axes,
        doc="The operand with elements added before and after some axes, like "
        'numpy.pad: the constant `value` with mode="constant", otherwise elements '
        "of the operand. Negative pads remove elements.",
    ),
    axis_map_op(
        "tile",
        _tile_rule,
        attrs=(Attr("repeats", "ints"),),
        samples=(
            _case((1,), repeats=(3,)),
            _case((0, 2), repeats=(2, 1)),
            _case((3, 5), repeats=(2, 0)),
            _case((65_537, 2), repeats=(1, 2)),
            _case((2, 3, 5), DType.I32, repeats=(3, 1, 2)),
            _case((2, 3), DType.BOOL, repeats=(1, 2)),
        ),
        calibration_cases=tuple(_case(s, repeats=(2, 1)) for s in _CALIBRATION_SHAPES),
        vjp=tile_vjp,
        batch=lambda ctx: ctx.apply(ctx.x, repeats=(1, *ctx.attrs["repeats"])),
        doc="The operand repeated along each axis, like numpy.tile.",
    ),
    axis_map_op(
        "repeat",
        _repeat_rule,
        attrs=(Attr("repeats", "ints"), Attr("axis", "int", 0)),
        samples=(
            _case((1,), repeats=(3,)),
            _case((0, 2), repeats=(2,)),
            _case((65_537, 2), repeats=(2,), axis=-1),
            _case((2, 3), DType.I32, repeats=(2, 0, 5), axis=1),
            _case((3, 2, 2), DType.F16, repeats=(2,), axis=1),
        ),
        calibration_cases=tuple(
            _case(s, repeats=(2,), axis=1) for s in _CALIBRATION_SHAPES
        ),
        vjp=repeat_vjp,
        batch=batch_axes_rule("axis"),
        doc="Each element of an axis repeated, like numpy.repeat: `repeats` has one "
        "count for all elements or one per element.",
    ),
    axis_map_op(
        "roll",
        _roll_rule,
        attrs=(Attr("shifts", "ints"), Attr("axes", "ints")),
        samples=(
            _case((1,), shifts=(3,), axes=(0,)),
            _case((0, 2), shifts=(2, 1), axes=(0, 1)),
            _case((65_537, 2), shifts=(-1,), axes=(1,)),
            _case((2, 3, 5), DType.I32, shifts=(1, -7), axes=(-1, 1)),
            _case((2, 3), DType.BOOL, shifts=(-1,), axes=(1,)),
        ),
        calibration_cases=tuple(
            _case(s, shifts=(3,), axes=(1,)) for s in _CALIBRATION_SHAPES
        ),
        vjp=roll_vjp,
        batch=batch_shifted_axes,
        doc="The elements shifted along some axes; those that leave at one end return "
        "at the other, like numpy.roll.",
    ),
    axis_map_op(
        "dilate",
        _dilate_rule,
        attrs=(Attr("axes", "ints"), Attr("steps", "ints"), _VALUE_ATTR),
        samples=(
            _case((1,), axes=(0,), steps=(4,)),
            _case((0, 3), axes=(0, 1), steps=(2, 3)),
            _case((65_537, 2), axes=(1,), steps=(2,)),
            _case((2, 3, 5), axes=(1, -1), steps=(2, 3), value=-1.5),
            _case((2, 3), DType.I32, axes=(1,), steps=(3,), value=7),
        ),
        calibration_cases=tuple(
            _case(s, axes=(0, 1), steps=(2, 2)) for s in _CALIBRATION_SHAPES
        ),
        vjp=dilate_vjp,
        batch=batch_shifted_axes,
        doc="Copies of the constant `value` inserted between neighbouring elements "
        "along some axes, for transposed convolutions; `steps` has one step per "
        "axis, and step - 1 copies are inserted.",
    ),
    axis_map_op(
        "remap",
        _remap_rule,
        attrs=(*(Attr(n, "ints") for n in ("axes", "sizes", "places")), _VALUE_ATTR),
        samples=(
            _case((1,), axes=(0,), sizes=(3,), places=(0, -1, 0)),
            _case((0, 3), axes=(1,), sizes=(2,), places=(2, 1)),
            _case((32_769, 2), axes=(1,), sizes=(3,), places=(1, -1, 0), value=2.5),
            _case((3, 2, 5), axes=(-1, 0), sizes=(2, 3), places=(4, -1, 2, 2, 0)),
            _case((3, 2), DType.U32, axes=(0,), sizes=(2,), places=(-1, 1), value=3),
        ),
        calibration_cases=tuple(
            _case(s, axes=(1,), sizes=s[1:], places=tuple(reversed(range(s[1]))))
            for s in _CALIBRATION_SHAPES
        ),
        batch=batch_shifted_axes,
        doc="Elements selected by one table of indices per axis: `places` holds the "
        "tables one after the other, `sizes` holds their lengths; an index of -1 "
        "selects the constant `value`.",
    ),
)
