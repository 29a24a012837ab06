"""Weights of few bits, packed into words of 32: how they lie, to and from floats.

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

from rlxweb.errors import AttributeRefused, DTypeError, ShapeError

Array = NDArray[Any]
BITS = (2, 4, 8)
_FLOATS = (np.float16, np.float32, np.float64)
_CHUNK = 1 << 20
"""Weights that are worked on at a time; temporaries stay within so many."""


class Quantized(NamedTuple):
    """A matrix [N, K] in few bits: words i32 [N, W], scales [N, G], biases or None."""

    words: Array
    scales: Array
    biases: Array | None

    @property
    def nbytes(self) -> int:
        """Of all three."""
        return sum(int(one.nbytes) for one in self if one is not None)


def groups_of(k: int, bits: int, group_size: int) -> tuple[int, int]:
    """(groups, words) of a row of k weights; the last group may be a part of one.

    Errors   AttributeRefused for bits and sizes that do not fill whole words.
    """
    if bits not in BITS:
        raise AttributeRefused("", f"bits={bits}", "bits are 2, 4 or 8")
    if group_size < 1 or group_size * bits % 32:
        raise AttributeRefused(
            "",
            f"group_size={group_size}",
            f"a group is a multiple of {32 // bits} weights of {bits} bits",
        )
    groups = -(-k // group_size)
    return groups, groups * group_size * bits // 32


def pack(codes: Array, bits: int) -> Array:
    """Codes u8 [..., K] as words i32 [..., K·bits/32]; K fills whole words."""
    packed: Array = np.ascontiguousarray(codes, np.uint8)
    while bits < 8:
        packed = packed[..., ::2] | packed[..., 1::2] << bits
        bits *= 2
    return np.ascontiguousarray(packed).view("<i4").astype(np.int32, copy=False)


def unpack(words: Array, bits: int) -> Array:
    """The codes u8 [..., 32/bits·W] of words [..., W]."""
    codes = _octets(words)
    width = 8
    while width > bits:
        width //= 2
        low = codes & np.uint8((1 << width) - 1)
        codes = np.stack([low, codes >> width], axis=-1).reshape(*codes.shape[:-1], -1)
    return codes


def quantize(
    w: ArrayLike, bits: int = 4, group_size: int = 64, *, symmetric: bool = False
) -> Quantized:
    """A matrix in few bits, each group of a row with its own scale.

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
    w = _floats(np.asarray(w))
    if w.ndim != 2:
        raise ShapeError("quantize", f"w has shape {list(w.shape)}", "it is [N, K]")
    n, k = w.shape
    groups, words = groups_of(k, bits, group_size)
    made = np.empty((n, words), np.int32)
    scales = np.empty((n, groups), w.dtype)
    biases = None if symmetric else np.empty((n, groups), w.dtype)
    step = max(1, _CHUNK // max(1, k))
    for at in range(0, n, step):
        rows = slice(at, at + step)
        part = _in_groups(w[rows], groups, group_size)
        codes, scales[rows], bias = _coded(part, bits, symmetric, w.dtype)
        if biases is not None:
            biases[rows] = bias
        made[rows] = pack(codes.reshape(len(codes), -1), bits)
    return Quantized(made, scales, biases)


def dequantize(
    words: ArrayLike,
    scales: ArrayLike,
    biases: ArrayLike | None = None,
    bits: int = 4,
    group_size: int = 64,
    *,
    size: int | None = None,
) -> Array:
    """The floats [N, K] of what `quantize` made, in the dtype of the scales.

    size   K where the last group is a part of one; None: all that the words hold
    Errors   DTypeError, ShapeError, AttributeRefused
    """
    words, scales = np.asarray(words), _floats(np.asarray(scales))
    if words.dtype not in (np.int32, np.uint32):
        what = f"words of {words.dtype}"
        raise DTypeError("dequantize", what, "they are int32 or uint32")
    k = words.shape[-1] * 32 // bits if size is None and bits in BITS else size or 0
    groups, count = groups_of(k, bits, group_size)
    if words.ndim != 2 or words.shape[1] != count:
        raise ShapeError(
            "dequantize",
            f"words {list(words.shape)}",
            f"[N, {count}] hold {k} weights in groups of {group_size}",
        )
    given = None if biases is None else np.asarray(biases)
    for name, one in (("scales", scales), ("biases", given)):
        if one is not None and one.shape != (len(words), groups):
            raise ShapeError(
                "dequantize",
                f"{name} {list(one.shape)}",
                f"one for each group, [{len(words)}, {groups}]",
            )
    out = np.empty((len(words), k), scales.dtype)
    step = max(1, _CHUNK // max(1, k))
    for at in range(0, len(words), step):
        rows = slice(at, at + step)
        some = None if given is None else given[rows]
        out[rows] = floats_of(words[rows], scales[rows], some, bits)[:, :k]
    return out


def floats_of(words: Array, scales: Array, biases: Array | None, bits: int) -> Array:
    """The floats of all codes of some rows, in the dtype of the scales."""
    n, groups = scales.shape
    made = _numbers(words, bits, scales.dtype)
    cells = made.reshape(n, groups, -1) if groups else made.reshape(n, 0, 1)
    if biases is None:
        cells -= scales.dtype.type(1 << (bits - 1))
    cells *= scales[..., None]
    if biases is not None:
        cells += biases[..., None]
    return made


def _numbers(words: Array, bits: int, dtype: np.dtype[Any]) -> Array:
    """Codes as floats; those of less than a byte by a table of all bytes."""
    octets = _octets(words)
    if bits == 8:
        return octets.astype(dtype)
    table = unpack(np.arange(256, dtype=np.int32)[:, None], bits)
    table = table[:, : 8 // bits].astype(dtype)
    return np.take(table, octets, axis=0).reshape(*octets.shape[:-1], -1)


def _octets(words: Array) -> Array:
    little = words.dtype.newbyteorder("<")
    return np.ascontiguousarray(words, little).view(np.uint8)


def _floats(array: Array) -> Array:
    if array.dtype not in _FLOATS:
        raise DTypeError("", f"an array of {array.dtype}", "f16, f32 or f64 is wanted")
    return array


def _in_groups(w: Array, groups: int, size: int) -> Array:
    """Rows [n, G, size] as float64; behind a part of a group its last weight again.

    Errors   DTypeError for what is not finite.
    """
    if not np.isfinite(w).all():
        raise DTypeError(
            "quantize", "a weight is not finite", "it has no place among few numbers"
        )
    missing = groups * size - w.shape[1]
    wide = w.astype(np.float64)
    if missing:
        wide = np.concatenate([wide, np.repeat(wide[:, -1:], missing, 1)], axis=1)
    return wide.reshape(len(w), groups, size)


def _coded(
    part: Array, bits: int, symmetric: bool, dtype: np.dtype[Any]
) -> tuple[Array, Array, Array]:
    """Codes, scales and biases of groups; codes go by the scales as they are kept."""
    top = (1 << bits) - 1
    if not part.size:
        nothing = np.zeros(part.shape[:2])
        return part.astype(np.uint8), nothing, nothing
    low, high = part.min(-1, keepdims=True), part.max(-1, keepdims=True)
    # The end that is farther from 0 is code 0, and exact.
    bias = np.where(-low >= high, low, high)
    if symmetric:
        scale = bias / -(1 << (bits - 1))
    else:
        scale = np.where(bias > low, low - high, high - low) / top
        # So many scales from there to 0, which is exact too.
        steps = np.rint(
            np.divide(-bias, scale, out=np.zeros_like(bias), where=scale != 0)
        )
        scale = np.divide(-bias, steps, out=scale, where=steps != 0)
    scale, bias = (one.astype(dtype).astype(np.float64) for one in (scale, bias))
    bias = -scale * (1 << (bits - 1)) if symmetric else bias
    # A group of one number, or of too little spread for the dtype.
    over = np.where(scale == 0, 1.0, scale)
    codes = np.clip(np.rint((part - bias) / over), 0, top).astype(np.uint8)
    if symmetric:
        codes = np.where(scale == 0, np.uint8(1 << (bits - 1)), codes)
    return codes, scale[..., 0], bias[..., 0]
