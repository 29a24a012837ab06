"""Table of faster variants of ops on NumPy arrays, some behind a gate.

Rule: deleting any row changes no result, only time. The first row that takes a node is
taken; the op's own reference is the last resort. The GPU's table is
`rlxweb.ops.kernel_variants`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.codegen.cache_blocked_ops import ROW_AXES, blocked_op, is_large
from rlxweb.core.quantized_weights import dequantize_rows
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import Attrs, TensorType, Types, registry
from rlxweb.ir.shape_arithmetic import Shape, normalize_axis, numel
from rlxweb.ops.elementwise import cpu_erf as numpy_erf
from rlxweb.ops.matmul.cpu import wasm as wasm_matmul
from rlxweb.ops.recurrent import cpu_numpy as numpy_recurrent_networks
from rlxweb.ops.reduce import cpu_fast_sums as numpy_fast_float32_sums
from rlxweb.ops.welch.cpu.segment_spectra import (
    cross_power,
    segment_power,
    segment_spectra,
)
from rlxweb.ops.welch.cpu.spectrum import segment_view, welch_power
from rlxweb.ops.welch.cpu.strongest_bins import strongest_bins
from rlxweb.ops.welch.parameters import (
    doubled_bin_slice,
    rlx_weights,
    segment_count,
    welch_parameters,
)
from rlxweb.ops.welch.spec import WelchSpec

Array = NDArray[Any]
_MAX_PAD_INDICES: Final = 1 << 16
"""Maximum elements of a padded array whose indices are kept with the node."""
_BLOCK_WEIGHTS: Final = 1 << 18
"""Packed weights that are unpacked at a time: a megabyte in float32."""


@dataclass(frozen=True, slots=True)
class ArrayVariant:
    """Alternative to an op's reference.

    gate     (input types, output type, attrs) → may it be taken; None: always
    run      (attrs, *arrays) → array, what the reference gives within the op's
             tolerance
    is_planned  `run` is (input types, output type, attrs) → such a function: types tell
             what is worked out once for a node, not on every run
    """

    name: str
    op: str
    gate: Callable[[Types, TensorType, Attrs], bool] | None
    run: Callable[..., Any]
    is_planned: bool = False

    def can_run(self, inputs: Types, out: TensorType, attrs: Attrs) -> bool:
        """Return whether the variant can run a node."""
        return self.gate is None or self.gate(inputs, out, attrs)

    def function_for_node(
        self, inputs: Types, out: TensorType, attrs: Attrs
    ) -> Callable[..., Any]:
        """Return the function (attrs, *arrays) → array of one node."""
        return self.run(inputs, out, attrs) if self.is_planned else self.run


def _has_many_samples(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    """Return whether there are samples enough to outweigh a dozen more NumPy calls."""
    return inputs[0].numel >= 8192


def _has_long_float_rows(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    """Return whether rows are long enough for a search to beat a sort."""
    x = inputs[0]
    return x.dtype.is_float and x.numel >= 2048 and x.shape[-1] >= 16


def _welch_spec(attrs: Attrs, x: Array, window: Array) -> WelchSpec:
    """Return the estimate that an op's attributes request, except for the doubling."""
    params = welch_parameters(x.shape, window.shape[0], attrs)
    return WelchSpec(
        nperseg=params.n,
        hop=params.hop,
        nfft=params.nfft,
        n_segments=params.segments,
        window=window.astype(np.float64).tobytes(),
        detrend=None if params.detrend == "none" else attrs["detrend"],
        one_sided=True,
        # A spec always doubles: half the scale, and the ends make up for it.
        scale=params.scale if params.doubling else 0.5 * params.scale,
        average="mean",
        dtype=x.dtype.name,
    )


def _rescale_edge_bins(attrs: Attrs, spec: WelchSpec, power: Array) -> Array:
    """Return power (…, F) with edge bins scaled like the rest where nothing is to be
    doubled.
    """
    if not attrs["doubling"]:
        inner = doubled_bin_slice(spec.nfft)
        power[..., : inner.start] *= 2.0
        power[..., inner.stop :] *= 2.0
    return power


def _welch_power(attrs: Attrs, x: Array, window: Array) -> Array:
    """Compute `welch_power` in cache-sized blocks."""
    spec = _welch_spec(attrs, x, window)
    return _rescale_edge_bins(attrs, spec, welch_power(x, spec))


def _segment_power(attrs: Attrs, x: Array, window: Array) -> Array:
    """Compute `segment_power` in cache-sized blocks."""
    spec = _welch_spec(attrs, x, window)
    return _rescale_edge_bins(attrs, spec, segment_power(x, spec))


def _segment_spectra(attrs: Attrs, x: Array, window: Array) -> Array:
    """Compute `segment_spectra` in cache-sized blocks, real parts before imaginary
    parts.
    """
    spec = _welch_spec(attrs, x, window)
    doubled = attrs["doubling"]
    if not doubled:
        spec = replace(spec, scale=2.0 * spec.scale)
    z = segment_spectra(x, spec, attrs["shift"], doubled=doubled)
    return np.concatenate([z.real, z.imag], axis=-1)


def _cross_power(attrs: Attrs, x: Array, y: Array, window: Array) -> Array:
    """Compute `cross_power` in cache-sized blocks."""
    spec = _welch_spec(attrs, x, window)
    return _rescale_edge_bins(attrs, spec, cross_power(x, y, spec))


def _power_peaks(attrs: Attrs, power: Array) -> Array:
    """Return the k strongest bins and their power as interleaved pairs."""
    k = attrs["k"]
    pairs = np.empty((power.shape[0], k, 2), power.dtype)
    pairs[..., 0], pairs[..., 1] = strongest_bins(power, k)
    return pairs.reshape(-1, 2 * k)


def _welch_row_peaks(attrs: Attrs, x: Array, window: Array) -> Array:
    """Return the strongest bins of the Welch power of each row."""
    return _power_peaks(attrs, _welch_power(attrs, x, window))


def _welch_peaks(attrs: Attrs, spectrum: Array) -> Array:
    """Return the strongest bins of power averaged from packed spectra."""
    n, segments = spectrum.shape[1] // 2, attrs["n_segments"]
    bins = n // 2 + 1
    re, im = spectrum[:, :bins], spectrum[:, n : n + bins]
    power = (re * re + im * im).reshape(-1, segments, bins).sum(axis=1)
    power *= rlx_weights(bins, segments).astype(power.dtype)
    return _power_peaks(attrs, power)


def _topk(attrs: Attrs, x: Array) -> Array:
    """Return the indices of the k largest values."""
    n, k = x.shape[-1], attrs["k"]
    bins, _ = strongest_bins(x.reshape(-1, n), k)
    return bins.reshape(*x.shape[:-1], k).astype(np.int32)


def _frame(attrs: Attrs, x: Array) -> Array:
    """Return overlapping frames as a view."""
    size, hop = attrs["length"], attrs["hop"]
    count = attrs["count"] or segment_count(x.shape[-1], size, hop)
    return segment_view(x, size, hop, count)


def _plan_reshape(inputs: Types, out: TensorType, attrs: Attrs) -> Callable[..., Array]:
    """Return a reshape to the node's own shape, which the reference would work out
    again.
    """
    return lambda attrs, x: x.reshape(out.shape)


def _is_float(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    """Return whether the result is float32 or float64."""
    return out.dtype in (DType.F32, DType.F64)


def _sigmoid(attrs: Attrs, x: Array) -> Array:
    """Return 1 / (1 + exp(-x)), computed in one array; an overflowing exponential gives
    0.
    """
    result: Array = np.asarray(np.negative(x))
    np.exp(result, out=result)
    result += 1
    np.reciprocal(result, out=result)
    return result


def _plan_relu(inputs: Types, out: TensorType, attrs: Attrs) -> Callable[..., Array]:
    """Return a relu with the zero of the node's dtype."""
    zero = out.dtype.numpy.type(0)
    return lambda attrs, x: np.maximum(x, zero)


def _has_single_index(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    """Return whether there is a single index.

    A network that keeps its state as parts of one array takes them out one by one, and
    the checks that many indices need take longer than that.
    """
    return inputs[1].numel == 1


def _plan_gather(inputs: Types, out: TensorType, attrs: Attrs) -> Callable[..., Array]:
    """Return the function that gathers one row; the reference for many rows."""
    if inputs[1].numel != 1:
        return partial(registry.get("gather").reference, np)
    axis = normalize_axis(attrs["axis"], inputs[0].rank)
    return partial(_gather_row, axis, out.shape)


def _gather_row(
    axis: int, shape: Shape, attrs: Attrs, table: Array, indices: Array
) -> Array:
    """Return a view of one row. Errors  IndexRefused for an index outside."""
    index, rows = int(indices.reshape(-1)[0]), table.shape[axis]
    if not -rows <= index < rows:
        result: Array = registry.get("gather").reference(np, attrs, table, indices)
        return result
    return table[(slice(None),) * axis + (index,)].reshape(shape)


def _is_small_copy_pad(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    """Return whether few elements are padded with values of the array, not with a
    constant.
    """
    return attrs["mode"] != "constant" and 0 < out.numel <= _MAX_PAD_INDICES


def _plan_pad(inputs: Types, out: TensorType, attrs: Attrs) -> Callable[..., Array]:
    """Return the function that pads by precomputed indices, else the reference."""
    reference, shape = registry.get("pad").reference, inputs[0].shape
    if not _is_small_copy_pad(inputs, out, attrs):
        return partial(reference, np)
    # The reference says where they come from: it is asked to move their numbers.
    positions = np.arange(numel(shape), dtype=np.intp).reshape(shape)
    return partial(_take_indices, reference(np, attrs, positions))


def _take_indices(indices: Array, attrs: Attrs, x: Array) -> Array:
    """Return the elements at precomputed indices."""
    result: Array = np.take(x.reshape(-1), indices)
    return result


def _quantized_matmul(
    attrs: Attrs, x: Array, words: Array, scales: Array, *biases: Array
) -> Array:
    """Multiply x [..., K] by the transpose of packed weights.

    A part of the weights is unpacked where the cache holds it, and BLAS has it from
    there; no more than a part of them is ever floats.
    """
    work_dtype = np.float32 if x.dtype == np.float16 else x.dtype
    n, k = words.shape[0], x.shape[-1]
    out = np.zeros((*x.shape[:-1], n), work_dtype)
    if not out.size or not k:
        return out.astype(x.dtype, copy=False)
    rows, flat_out = x.reshape(-1, k).astype(work_dtype, copy=False), out.reshape(-1, n)
    block_rows = max(1, _BLOCK_WEIGHTS // k)
    for start in range(0, n, block_rows):
        block = slice(start, start + block_rows)
        scale, *bias = (
            array[block].astype(work_dtype, copy=False) for array in (scales, *biases)
        )
        w = dequantize_rows(
            words[block], scale, bias[0] if bias else None, attrs["bits"]
        )
        np.matmul(rows, w[:, :k].T, out=flat_out[:, block])
    return out.astype(x.dtype, copy=False)


NUMPY_VARIANTS: tuple[ArrayVariant, ...] = (
    *(
        ArrayVariant(
            f"{op}, by WebAssembly", op, wasm_matmul.is_supported, made, is_planned=True
        )
        for op, made in wasm_matmul.WASM_MATMUL_OPS.items()
    ),
    ArrayVariant("reshape, its shape known", "reshape", None, _plan_reshape, True),
    ArrayVariant("sigmoid, in one array", "sigmoid", _is_float, _sigmoid),
    ArrayVariant("relu, a number", "relu", _is_float, _plan_relu, is_planned=True),
    ArrayVariant(
        "welch_power, blocks in cache", "welch_power", _has_many_samples, _welch_power
    ),
    ArrayVariant(
        "welch_row_peaks, blocks in cache",
        "welch_row_peaks",
        _has_many_samples,
        _welch_row_peaks,
    ),
    ArrayVariant(
        "segment_power, blocks in cache",
        "segment_power",
        _has_many_samples,
        _segment_power,
    ),
    ArrayVariant(
        "segment_spectra, blocks in cache",
        "segment_spectra",
        _has_many_samples,
        _segment_spectra,
    ),
    ArrayVariant(
        "cross_power, blocks in cache", "cross_power", _has_many_samples, _cross_power
    ),
    ArrayVariant(
        "power_peaks, partition", "power_peaks", _has_long_float_rows, _power_peaks
    ),
    ArrayVariant(
        "welch_peaks, partition", "welch_peaks", _has_long_float_rows, _welch_peaks
    ),
    ArrayVariant("topk, partition", "topk", _has_long_float_rows, _topk),
    ArrayVariant("frame, a view", "frame", None, _frame),
    ArrayVariant("erf, one quotient", "erf", numpy_erf.is_supported, numpy_erf.erf),
    ArrayVariant(
        "gather, one row", "gather", _has_single_index, _plan_gather, is_planned=True
    ),
    ArrayVariant(
        "pad, places known", "pad", _is_small_copy_pad, _plan_pad, is_planned=True
    ),
    ArrayVariant(
        "sum, short runs",
        "sum",
        numpy_fast_float32_sums.is_supported,
        numpy_fast_float32_sums.sum_in_runs("sum"),
    ),
    ArrayVariant(
        "mean, short runs",
        "mean",
        numpy_fast_float32_sums.is_supported,
        numpy_fast_float32_sums.sum_in_runs("mean"),
    ),
    *(
        ArrayVariant(
            f"{op}, in arrays made once",
            op,
            numpy_recurrent_networks.is_supported,
            made,
            is_planned=True,
        )
        for op, made in numpy_recurrent_networks.RECURRENT_PLANS
    ),
    ArrayVariant(
        "quantized_matmul, unpacked in cache",
        "quantized_matmul",
        None,
        _quantized_matmul,
    ),
    *(ArrayVariant(f"{op}, in parts", op, is_large, blocked_op(op)) for op in ROW_AXES),
)
