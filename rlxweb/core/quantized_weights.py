"""Quantised weights of 2, 4 or 8 bits, packed into 32-bit words.

A row of a matrix [N, K] is cut into groups; an element of a group is its code times the
group's scale plus the group's bias, codes from 0 to 2^bits - 1. Without biases they
count from 2^(bits - 1). Codes fill a word from its lowest bits on: the layout of MLX's
`quantize` and, seen as bytes, of com.microsoft's MatMulNBits. Words are int32, which
every engine has; what is uint32 is taken too. NumPy alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlxweb.core.errors import AttributeRefused, DTypeError, ShapeError

Array = NDArray[Any]
BITS = (2, 4, 8)
_FLOATS = (np.float16, np.float32, np.float64)
_CHUNK_WEIGHTS = 1 << 20
"""Number of weights processed at a time, which bounds the temporaries."""


class Quantized(NamedTuple):
    """Quantised matrix [N, K]: words i32 [N, W], scales [N, G], biases or None."""

    words: Array
    scales: Array
    biases: Array | None

    @property
    def nbytes(self) -> int:
        """Bytes of words, scales and biases together."""
        return sum(int(array.nbytes) for array in self if array is not None)


def group_counts(k: int, bits: int, group_size: int) -> tuple[int, int]:
    """Return (groups, words) of a row of k weights; the last group may be incomplete.

    Errors   AttributeRefused for bits and sizes that do not fill whole words.
    """
    if bits not in BITS:
        raise AttributeRefused("", f"bits={bits}", "bits must be 2, 4 or 8")
    if group_size < 1 or group_size * bits % 32:
        raise AttributeRefused(
            "",
            f"group_size={group_size}",
            f"group_size must be a positive multiple of {32 // bits} for {bits}-bit "
            "weights",
        )
    groups = -(-k // group_size)
    return groups, groups * group_size * bits // 32


def pack_codes(codes: Array, bits: int) -> Array:
    """Pack codes u8 [..., K] into words i32 [..., K·bits/32]; K must fill whole
    words.
    """
    packed: Array = np.ascontiguousarray(codes, np.uint8)
    while bits < 8:
        packed = packed[..., ::2] | packed[..., 1::2] << bits
        bits *= 2
    return np.ascontiguousarray(packed).view("<i4").astype(np.int32, copy=False)


def unpack_codes(words: Array, bits: int) -> Array:
    """Return the codes u8 [..., 32/bits·W] of words [..., W]."""
    codes = _word_bytes(words)
    width = 8
    while width > bits:
        width //= 2
        low = codes & np.uint8((1 << width) - 1)
        codes = np.stack([low, codes >> width], axis=-1).reshape(*codes.shape[:-1], -1)
    return codes


def quantize(
    w: ArrayLike, bits: int = 4, group_size: int = 64, *, symmetric: bool = False
) -> Quantized:
    """Quantise a matrix to a few bits per weight, with one scale per group of a row.

    w           [N, K] of floats: the right operand of a product, transposed, as a layer
                of PyTorch's has it
    bits        of a weight: 2, 4 or 8
    group_size  weights of a row that share a scale; K need not be a multiple of it
    symmetric   codes count from 2^(bits - 1), and there are no biases: fewer bytes

    Returns  words i32 [N, ceil(K / group_size) · group_size · bits / 32], scales and
             biases [N, ceil(K / group_size)] in the dtype of w. A scale is about
             (largest - smallest) / (2^bits - 1) of its group, or, with `symmetric`, the
             largest magnitude / 2^(bits - 1). That magnitude and 0 are exact; others
             are off by half a scale, at the other end by a whole one, and by rounding.
    Errors   DTypeError, ShapeError, AttributeRefused; DTypeError for what is not finite
    """
    w = _check_floats(np.asarray(w))
    if w.ndim != 2:
        raise ShapeError("quantize", f"w has shape {list(w.shape)}", "expected [N, K]")
    n, k = w.shape
    groups, words = group_counts(k, bits, group_size)
    packed_words = np.empty((n, words), np.int32)
    scales = np.empty((n, groups), w.dtype)
    biases = None if symmetric else np.empty((n, groups), w.dtype)
    step = max(1, _CHUNK_WEIGHTS // max(1, k))
    for start in range(0, n, step):
        rows = slice(start, start + step)
        groups_of_rows = _split_groups(w[rows], groups, group_size)
        codes, scales[rows], bias = _quantize_groups(
            groups_of_rows, bits, symmetric, w.dtype
        )
        if biases is not None:
            biases[rows] = bias
        packed_words[rows] = pack_codes(codes.reshape(len(codes), -1), bits)
    return Quantized(packed_words, scales, biases)


def dequantize(
    words: ArrayLike,
    scales: ArrayLike,
    biases: ArrayLike | None = None,
    bits: int = 4,
    group_size: int = 64,
    *,
    size: int | None = None,
) -> Array:
    """Return the floats [N, K] of a quantised matrix, in the dtype of the scales.

    size   K where the last group is a part of one; None: all that the words hold
    Errors   DTypeError, ShapeError, AttributeRefused
    """
    words, scales = np.asarray(words), _check_floats(np.asarray(scales))
    if words.dtype not in (np.int32, np.uint32):
        problem = f"the array 'words' has dtype {words.dtype}"
        raise DTypeError("dequantize", problem, "expected int32 or uint32")
    k = words.shape[-1] * 32 // bits if size is None and bits in BITS else size or 0
    groups, count = group_counts(k, bits, group_size)
    if words.ndim != 2 or words.shape[1] != count:
        raise ShapeError(
            "dequantize",
            f"the array 'words' has shape {list(words.shape)}",
            f"expected [rows, {count}] for rows of {k} weights in groups of "
            f"{group_size}",
        )
    bias_array = None if biases is None else np.asarray(biases)
    for name, array in (("scales", scales), ("biases", bias_array)):
        if array is not None and array.shape != (len(words), groups):
            raise ShapeError(
                "dequantize",
                f"the array '{name}' has shape {list(array.shape)}",
                f"expected one value per group, [{len(words)}, {groups}]",
            )
    out = np.empty((len(words), k), scales.dtype)
    step = max(1, _CHUNK_WEIGHTS // max(1, k))
    for start in range(0, len(words), step):
        rows = slice(start, start + step)
        row_biases = None if bias_array is None else bias_array[rows]
        out[rows] = dequantize_rows(words[rows], scales[rows], row_biases, bits)[:, :k]
    return out


def dequantize_rows(
    words: Array, scales: Array, biases: Array | None, bits: int
) -> Array:
    """Return the floats of all codes of some rows, in the dtype of the scales."""
    n, groups = scales.shape
    values = _codes_as_floats(words, bits, scales.dtype)
    grouped = values.reshape(n, groups, -1) if groups else values.reshape(n, 0, 1)
    if biases is None:
        grouped -= scales.dtype.type(1 << (bits - 1))
    grouped *= scales[..., None]
    if biases is not None:
        grouped += biases[..., None]
    return values


def _codes_as_floats(words: Array, bits: int, dtype: np.dtype[Any]) -> Array:
    """Return codes as floats; codes of less than a byte go through a table of all
    bytes.
    """
    word_bytes = _word_bytes(words)
    if bits == 8:
        return word_bytes.astype(dtype)
    table = unpack_codes(np.arange(256, dtype=np.int32)[:, None], bits)
    table = table[:, : 8 // bits].astype(dtype)
    return np.take(table, word_bytes, axis=0).reshape(*word_bytes.shape[:-1], -1)


def _word_bytes(words: Array) -> Array:
    """Return the bytes of words, lowest first."""
    dtype = words.dtype.newbyteorder("<")
    return np.ascontiguousarray(words, dtype).view(np.uint8)


def _check_floats(array: Array) -> Array:
    """Return the array if it is f16, f32 or f64. Raise DTypeError otherwise."""
    if array.dtype not in _FLOATS:
        raise DTypeError("", f"got dtype {array.dtype}", "expected f16, f32 or f64")
    return array


def _split_groups(w: Array, groups: int, size: int) -> Array:
    """Split rows into groups [n, G, size] of float64; an incomplete group repeats its
    last weight.

    Errors   DTypeError for what is not finite.
    """
    if not np.isfinite(w).all():
        raise DTypeError(
            "quantize", "a weight is not finite", "all weights must be finite"
        )
    padding = groups * size - w.shape[1]
    values = w.astype(np.float64)
    if padding:
        values = np.concatenate([values, np.repeat(values[:, -1:], padding, 1)], axis=1)
    return values.reshape(len(w), groups, size)


def _quantize_groups(
    values: Array, bits: int, symmetric: bool, dtype: np.dtype[Any]
) -> tuple[Array, Array, Array]:
    """Return codes, scales and biases of groups; codes follow the scales as rounded to
    `dtype`.
    """
    max_code = (1 << bits) - 1
    if not values.size:
        zeros = np.zeros(values.shape[:2])
        return values.astype(np.uint8), zeros, zeros
    low, high = values.min(-1, keepdims=True), values.max(-1, keepdims=True)
    # The end that is farther from 0 is code 0, and exact.
    bias = np.where(-low >= high, low, high)
    if symmetric:
        scale = bias / -(1 << (bits - 1))
    else:
        scale = np.where(bias > low, low - high, high - low) / max_code
        # So many scales from there to 0, which is exact too.
        steps = np.rint(
            np.divide(-bias, scale, out=np.zeros_like(bias), where=scale != 0)
        )
        scale = np.divide(-bias, steps, out=scale, where=steps != 0)
    scale, bias = (array.astype(dtype).astype(np.float64) for array in (scale, bias))
    bias = -scale * (1 << (bits - 1)) if symmetric else bias
    # A group of one number, or of too little spread for the dtype.
    divisor = np.where(scale == 0, 1.0, scale)
    codes = np.clip(np.rint((values - bias) / divisor), 0, max_code).astype(np.uint8)
    if symmetric:
        codes = np.where(scale == 0, np.uint8(1 << (bits - 1)), codes)
    return codes, scale[..., 0], bias[..., 0]
