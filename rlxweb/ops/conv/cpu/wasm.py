"""Convolutions in a browser's Python: the weights times windows read in place by
WebAssembly.

The code of `ops/matmul/cpu/wasm_codegen.py` gathers windows of an array as it needs
them, by tables of where each begins and where each term of the sum lies from there:
nothing is laid side by side before. Few channels meet lines of windows by
`wasm_codegen.py`. Where windows are some elements apart, each of so many
phases of a line is laid side by side, in which they are neighbours.
"""

from __future__ import annotations

from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.ir.dtype import DType
from rlxweb.ir.layout import row_major_strides
from rlxweb.ir.op import Attrs, TensorType, Types
from rlxweb.ops.conv.cpu.wasm_codegen import MIN_LINE_WINDOWS
from rlxweb.ops.conv.wgsl.plan import ConvolutionShape, convolution_shape
from rlxweb.ops.conv.windows import SlidingWindows
from rlxweb.ops.kernel_variant import KernelVariant
from rlxweb.ops.matmul.cpu.wasm import MIN_MULTIPLICATIONS, WASM_SCRATCH, wasm_functions
from rlxweb.ops.matmul.cpu.wasm_codegen import (
    GROUP_PANELS,
    PANEL_COLUMNS,
    PANEL_RECORD_LENGTH,
    scratch_floats,
)

Array = NDArray[Any]
_FLOAT_NBYTES: Final = 4
_MIN_WINDOWS: Final = 4
"""Minimum windows on one of several images: fewer leave most of a panel empty."""
_MAX_LINE_CHANNELS: Final = 12
"""Maximum channels for which windows are multiplied in place. On paper: gathering one
costs as much as multiplying it by twelve channels.
"""
_MAX_PHASES: Final = 4
_MAX_CACHED_ELEMENTS: Final = 1 << 16
"""Maximum elements of a padded array that is kept from call to call."""


class WasmConvolution:
    """Convolution of float32 of one node: its tables, and its products.

    Tables are of one image where that has panels enough, else of all.
    """

    def __init__(self, inputs: Types, out: TensorType, attrs: Attrs) -> None:
        wasm = wasm_functions()
        assert wasm is not None  # the gate asked
        conv = convolution_shape(inputs[0].shape, inputs[1].shape, attrs)
        self._shape = out.shape
        self._functions, self._group_count = wasm, conv.groups
        w, (c, m) = conv.windows, conv.channels
        has_long_lines, stride = w.out_shape[2] >= MIN_LINE_WINDOWS, w.strides[2]
        phase_count = stride if has_long_lines and stride <= _MAX_PHASES else 1
        phase_length = -(-w.extents[2] // phase_count)
        self._split_input = _PhaseSplitInput(conv, phase_count, phase_length)
        self._input_strides = _byte_strides(
            (conv.batch, conv.groups, c, *w.extents[:2], phase_length * phase_count)
        )
        self._result_shape = conv.batch, conv.groups, m, *w.out_shape
        self._result_strides = _byte_strides(self._result_shape)
        self._tap_offsets = self._compute_tap_offsets(conv, phase_count, phase_length)
        self._multiplies_lines = (
            has_long_lines and stride == phase_count and m <= _MAX_LINE_CHANNELS
        )
        term_count = len(self._tap_offsets)
        line_offsets = [
            _axis_offsets(
                w.out_shape[axis], w.strides[axis], self._input_strides[3 + axis]
            )
            for axis in (0, 1)
        ]
        images_per_table = 1
        if self._multiplies_lines:
            self._window_table = _outer_offsets(*line_offsets)
        else:
            has_few_windows = prod(w.out_shape) < PANEL_COLUMNS * GROUP_PANELS
            images_per_table = max(1, conv.batch) if has_few_windows else 1
            window_offsets = _outer_offsets(
                *line_offsets,
                _axis_offsets(w.out_shape[2], stride // phase_count, _FLOAT_NBYTES),
            )
            self._window_table = _panel_records(
                window_offsets,
                images_per_table,
                self._input_strides[0],
                self._result_strides[0],
            )
        self._image_starts = range(0, conv.batch, images_per_table)
        weight_row_nbytes = term_count * _FLOAT_NBYTES
        result_row_nbytes = self._result_strides[2]
        self._group_weights_nbytes, self._sizes = (
            m * weight_row_nbytes,
            (m, term_count, len(self._window_table)),
        )
        # A small network would feel what is asked for in every call.
        self._table_addresses = (
            self._tap_offsets.ctypes.data,
            self._window_table.ctypes.data,
        )
        self._trailing_strides = (
            (w.out_shape[2], weight_row_nbytes, result_row_nbytes)
            if self._multiplies_lines
            else (weight_row_nbytes, result_row_nbytes)
        )
        self._scratch_floats = scratch_floats(term_count)
        self._weights: Array | None = None
        self._weights_address = 0

    def _compute_tap_offsets(
        self, conv: ConvolutionShape, phase_count: int, phase_length: int
    ) -> NDArray[np.int32]:
        """Return the offset of each term from its window's first element, in bytes."""
        w = conv.windows
        outer_offsets = [
            _axis_offsets(
                w.kernel[axis], w.dilations[axis], self._input_strides[3 + axis]
            )
            for axis in (0, 1)
        ]
        positions = _axis_offsets(w.kernel[2], w.dilations[2], 1)
        line_offsets = (
            positions % phase_count * phase_length + positions // phase_count
        ) * _FLOAT_NBYTES
        return _outer_offsets(
            _axis_offsets(conv.channels[0], 1, self._input_strides[2]),
            *outer_offsets,
            line_offsets,
        )

    def __call__(self, attrs: Attrs, x: Array, w: Array) -> Array:
        """Return [N, M, …] for input [N, C, …] and the weights, float32."""
        if w is not self._weights:
            weights = np.ascontiguousarray(w)
            # What was laid out anew goes with the call.
            self._weights = w if weights is w else None
            self._weights_address = weights.ctypes.data
        out, x = np.empty(self._result_shape, np.float32), self._split_input(x)
        multiply, trailing = self._functions.multiply_lines, self._trailing_strides
        if not self._multiplies_lines:
            multiply = self._functions.multiply_windows
            trailing = (*trailing, WASM_SCRATCH.address(self._scratch_floats))
        input_address, output_address = x.ctypes.data, out.ctypes.data
        for n in self._image_starts:
            for g in range(self._group_count):
                source = (
                    input_address
                    + n * self._input_strides[0]
                    + g * self._input_strides[1]
                )
                target = (
                    output_address
                    + n * self._result_strides[0]
                    + g * self._result_strides[1]
                )
                weights_address = self._weights_address + g * self._group_weights_nbytes
                multiply(
                    weights_address,
                    source,
                    *self._table_addresses,
                    target,
                    *self._sizes,
                    *trailing,
                )
        return out.reshape(self._shape)


class _PhaseSplitInput:
    """Zero-padded copy of an input [N, C, three axes], its lines split into phases of
    every n-th element.
    """

    def __init__(
        self, conv: ConvolutionShape, phase_count: int, phase_length: int
    ) -> None:
        w = conv.windows
        self._input_shape = conv.batch, conv.groups, conv.channels[0], *w.spatial_shape
        self._is_unchanged = (
            w.is_inside and w.extents == w.spatial_shape and phase_count == 1
        )
        self._split_shape = (
            *self._input_shape[:3],
            *w.extents[:2],
            phase_count,
            phase_length,
        )
        self._cached: Array | None = None
        # (where, from where) of each phase.
        self._copies: list[tuple[Any, Any]] = []
        first_axis, second_axis = (_axis_slices(w, position) for position in (0, 1))
        for phase in range(phase_count):
            begin = (phase - w.pads_before[2]) % phase_count
            end = min(w.spatial_shape[2], w.extents[2] - w.pads_before[2])
            position = (w.pads_before[2] + begin) // phase_count
            count = max(0, -(-(end - begin) // phase_count))
            target = (
                ...,
                first_axis[0],
                second_axis[0],
                phase,
                slice(position, position + count),
            )
            source = (
                ...,
                first_axis[1],
                second_axis[1],
                slice(begin, max(begin, end), phase_count),
            )
            self._copies.append((target, source))

    def __call__(self, x: Array) -> Array:
        """Return the input itself where nothing is padded, else its padded, phase-split
        copy.
        """
        if self._is_unchanged:
            return np.ascontiguousarray(x)
        padded = self._cached
        if padded is None:
            padded = np.zeros(self._split_shape, np.float32)
            # What is around the array stays: no threads there, and no call inside one.
            if padded.size <= _MAX_CACHED_ELEMENTS:
                self._cached = padded
        x = x.reshape(self._input_shape)
        for target, source in self._copies:
            padded[target] = x[source]
        return padded


def _axis_slices(w: SlidingWindows, axis: int) -> tuple[slice, slice]:
    """Return where an axis' elements go, and which of them do."""
    count = max(0, min(w.spatial_shape[axis], w.extents[axis] - w.pads_before[axis]))
    return slice(w.pads_before[axis], w.pads_before[axis] + count), slice(0, count)


def _byte_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the row-major strides of a shape of floats, in bytes."""
    return tuple(stride * _FLOAT_NBYTES for stride in row_major_strides(shape))


def _axis_offsets(size: int, stride: int, stride_nbytes: int) -> NDArray[np.int64]:
    """Return the byte offsets of `size` positions along an axis."""
    return np.arange(size, dtype=np.int64) * stride * stride_nbytes


def _outer_offsets(*axes: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the offset of each element of a box, in order, as the sum of its axes'
    offsets.
    """
    offsets = np.zeros((), np.int64)
    for axis in axes:
        offsets = offsets[..., None] + axis
    return offsets.reshape(-1).astype(np.int32)


def _panel_records(
    window_offsets: NDArray[np.int32],
    image_count: int,
    image_input_nbytes: int,
    image_output_nbytes: int,
) -> NDArray[np.int32]:
    """Return the records of the panels of `image_count` images; no panel spans two."""
    starts = np.arange(0, len(window_offsets), PANEL_COLUMNS)
    indices = np.minimum(
        starts[:, None] + np.arange(PANEL_COLUMNS), len(window_offsets) - 1
    )
    count = np.minimum(PANEL_COLUMNS, len(window_offsets) - starts)
    records = np.empty((image_count, len(starts), PANEL_RECORD_LENGTH), np.int32)
    image_indices = np.arange(image_count)[:, None]
    records[..., :PANEL_COLUMNS] = (
        window_offsets[indices] + image_indices[..., None] * image_input_nbytes
    )
    records[..., PANEL_COLUMNS] = (
        starts * _FLOAT_NBYTES + image_indices * image_output_nbytes
    )
    records[..., PANEL_COLUMNS + 1] = count
    return records.reshape(-1, PANEL_RECORD_LENGTH)


def _is_supported(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    """Return whether the operands are float32, large enough and read by windows, and
    WebAssembly is available.
    """
    if inputs[0].dtype is not DType.F32:
        return False
    conv = convolution_shape(inputs[0].shape, inputs[1].shape, attrs)
    if conv.is_pointwise or conv.is_depthwise:
        return False
    has_many_windows = prod(conv.windows.out_shape) >= _MIN_WINDOWS or conv.batch == 1
    multiplications_per_group = out.numel // conv.groups * prod(inputs[1].shape[1:])
    is_large = multiplications_per_group >= MIN_MULTIPLICATIONS
    return is_large and has_many_windows and wasm_functions() is not None


KERNELS = (
    KernelVariant(
        "conv, by WebAssembly", "conv", WasmConvolution, _is_supported, "webassembly"
    ),
)
