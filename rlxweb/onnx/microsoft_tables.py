"""GatherBlockQuantized of com.microsoft: rows of a table whose codes share words.

The table stays as small as it is: its bytes are words of 32 bits, of which the rows
that are wanted are picked, and only they are taken apart and become floats.
"""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy as np
import numpy.typing as npt

from rlxweb.ir.dtype import DType
from rlxweb.ir.shape import Shape, normal_axis, show
from rlxweb.ir.tensor import Tensor
from rlxweb.onnx.converters import Call, Value, converts
from rlxweb.onnx.microsoft import DOMAIN
from rlxweb.onnx.narrow import Narrow, bits_of
from rlxweb.onnx.quantized import integers

Array = npt.NDArray[Any]


@converts("GatherBlockQuantized", domain=DOMAIN)
def _rows(
    call: Call,
    table: Value,
    indices: Tensor,
    scales: Tensor,
    zeros: Value = None,
    *,
    bits: int = 4,
    block_size: int = 128,
    gather_axis: int = 0,
    quantize_axis: int = 1,
) -> Tensor:
    g, held = call.g, integers(call, table)
    if held is None or held.dtype not in (DType.I8, DType.U8):
        call.refuse("a table of small floats", "integers of up to 8 bits")
    if isinstance(table, Narrow):
        bits = bits_of(table.dtype)
    if bits not in (2, 4, 8):
        call.contradict(f"bits={bits}", "2, 4 or 8")
    last = held.rank - 1
    at = normal_axis(gather_axis, held.rank), normal_axis(quantize_axis, held.rank)
    if at != (0, last) or not last:
        call.refuse(f"rows of axis {at[0]}, blocks of axis {at[1]}", f"0 and {last}")
    columns, packs = held.shape[-1], not isinstance(table, Narrow)
    if packs:
        columns *= 8 // bits
    blocks = ceil(columns / block_size)
    if scales.shape != (*held.shape[:-1], blocks):
        call.contradict(
            f"scales {show(scales.shape)}", f"{show((*held.shape[:-1], blocks))}"
        )
    codes = _picked(call, held, indices, (bits, columns, packs))
    by = g.gather(scales.cast("f32"), indices)
    first = 0 if not packs and held.dtype is DType.U8 else 1 << (bits - 1)
    zero = _zeros(call, zeros, (*held.shape[:-1], blocks), (bits, packs, first))
    zero = g.expand(zero, by.shape) if not zero.rank else g.gather(zero, indices)
    made = g.dequantize_linear(codes, by, zero, axis=-1, block_size=block_size)
    return made.cast(scales.dtype)


def _packed(array: Array, bits: int, packs: bool) -> Array:
    """Words of unsigned codes, the first in the lowest bits; short ends are 0.

    packs  bytes of several codes each; else one signed or unsigned number each
    """
    if not packs:
        codes = array.astype(np.int32) + _middle(array.dtype, bits)
        whole = -(-codes.shape[-1] * bits // 8) * (8 // bits)
        codes = _filled(codes.astype(np.uint8), whole)
        parts = codes.reshape(*codes.shape[:-1], -1, 8 // bits)
        shifts = np.arange(0, 8, bits, dtype=np.uint8)
        array = np.bitwise_or.reduce(parts << shifts, axis=-1)
    whole = -(-array.shape[-1] // 4) * 4
    return np.ascontiguousarray(_filled(array, whole)).view("<u4").astype(np.uint32)


def _filled(array: Array, length: int) -> Array:
    more = length - array.shape[-1]
    return np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, more)]) if more else array


def _middle(dtype: np.dtype[Any], bits: int) -> int:
    """What is added to numbers of a signed type, so that codes begin at 0."""
    return 1 << (bits - 1) if dtype.kind == "i" else 0


def _picked(
    call: Call, held: Tensor, indices: Tensor, how: tuple[int, int, bool]
) -> Tensor:
    """The codes, i32, of the rows that are wanted."""
    g, (bits, columns, packs) = call.g, how
    shape = (*held.shape[:-1], ceil(columns * bits / 32))
    words = g.derived(
        held,
        ("words", bits),
        DType.U32,
        lambda array: _packed(array, bits, packs),
        shape,
    )
    if words is None:
        call.refuse("a table that is no weight of the model", "it is a constant")
    rows = g.gather(words, indices)
    parts = [
        g.bitwise_and(
            g.shift_right(rows, g.constant(np.uint32(at))),
            g.constant(np.uint32((1 << bits) - 1)),
        )
        for at in range(0, 32, bits)
    ]
    every = g.stack(parts, axis=rows.rank)
    flat = g.reshape(every, (*rows.shape[:-1], rows.shape[-1] * len(parts)))
    return g.narrow(flat, flat.rank - 1, 0, columns).cast("i32")


def _zeros(
    call: Call, zeros: Value, shape: Shape, how: tuple[int, bool, int]
) -> Tensor:
    """Where codes begin to count, i32: one for all, or one for each block."""
    g, (bits, packs, first) = call.g, how
    held = None if zeros is None else integers(call, zeros)
    if held is None:
        return g.constant(np.int32(first))

    def numbers(array: Array) -> Array:
        if not packs:
            return array.astype(np.int32) + _middle(array.dtype, bits)
        shifts = np.arange(0, 8, bits, dtype=np.uint8)
        codes = (array[..., None] >> shifts) & np.uint8((1 << bits) - 1)
        return codes.reshape(*array.shape[:-1], -1)[..., : shape[-1]]

    made = g.derived(held, ("zeros", bits), DType.I32, numbers, shape)
    if made is None:
        call.refuse("zero points that are no weight of the model", "constants")
    return made
