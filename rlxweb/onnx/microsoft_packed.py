"""MatMulNBits of com.microsoft: a product whose weights are packed, and stay so.

B as bytes is the layout of `rlxweb.packed_weights`, so its words are the file's own
bytes, mapped from there. Zero points become biases, -zero · scale; without them codes
count from 2^(bits - 1) in ONNX Runtime as here.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from hashlib import sha256
from math import prod

import numpy as np

from rlxweb.ir.dtype import DType
from rlxweb.ir.tensor import Tensor
from rlxweb.onnx.converters import Call, Value, converts
from rlxweb.onnx.microsoft import DOMAIN
from rlxweb.onnx.quantized import Array
from rlxweb.packed_weights import BITS, unpack


@converts("MatMulNBits", domain=DOMAIN)
def _matmul_nbits(
    call: Call,
    x: Tensor,
    b: Tensor,
    scales: Tensor,
    zeros: Tensor | None = None,
    g_idx: Value = None,
    bias: Tensor | None = None,
    *,
    K: int,
    N: int,
    bits: int = 4,
    block_size: int = 32,
    accuracy_level: int = 0,
    weight_prepacked: int = 0,
) -> Tensor:
    """`accuracy_level` lets an engine round x; nobody has to."""
    if g_idx is not None:
        call.refuse("g_idx is given", "groups are neighbours along K here")
    if weight_prepacked:
        call.refuse("its weights are prepacked", "for one kernel of ONNX Runtime's")
    if bits not in BITS or block_size < 16 or block_size & (block_size - 1):
        call.refuse(
            f"bits={bits}, block_size={block_size}", "2, 4 or 8 bits, powers of 2 >= 16"
        )
    groups = -(-K // block_size)
    octets = groups * block_size * bits // 8
    if b.dtype is not DType.U8 or prod(b.shape) != N * octets:
        call.contradict(f"B is {b.dtype} {list(b.shape)}", f"u8, {octets} bytes a row")
    if prod(scales.shape) != N * groups:
        call.contradict(f"scales {list(scales.shape)}", f"[{N}, {groups}]")
    words = _made(call, b, ("words", N, octets), DType.I32, (N, octets // 4), _as_words)
    if zeros is None:
        sides = [call.g.reshape(scales, (N, groups))]
    else:
        sides = _sides(call, scales, zeros, (N, groups), bits)
    y = call.g.apply(
        "quantized_matmul", x, words, *sides, bits=bits, group_size=block_size
    )
    return y if bias is None else y + bias


def _as_words(octets: Array) -> Array:
    return np.ascontiguousarray(octets).reshape(-1).view("<i4")


def _sides(
    call: Call, scales: Tensor, zeros: Tensor, shape: tuple[int, int], bits: int
) -> list[Tensor]:
    """Scales and biases in f32: a bias of 8 bits has no place in f16."""
    n, groups = shape
    known = call.known(zeros, "the zero points")
    if zeros.dtype is DType.U8:
        line = -(-groups * bits // 8)
        if known.size != n * line:
            call.contradict(f"{known.size} bytes of zero points", f"{n} rows of {line}")
        known = _codes(known.reshape(n, line), bits)[:, :groups]
    elif known.size != n * groups:
        call.contradict(f"{known.size} zero points", f"{n * groups}")
    zero = known.reshape(n, groups).astype(np.float32)

    def wide(array: Array) -> Array:
        return array.reshape(n, groups).astype(np.float32)

    def biases(array: Array) -> Array:
        return -zero * wide(array)

    own = ("biases", shape, sha256(zero.tobytes()).digest())
    return [
        _made(call, scales, ("scales", shape), DType.F32, shape, wide),
        _made(call, scales, own, DType.F32, shape, biases),
    ]


def _codes(octets: Array, bits: int) -> Array:
    """Codes of rows of bytes that fill no whole words."""
    short = -octets.shape[1] % 4
    whole = np.pad(octets, ((0, 0), (0, short)))
    return unpack(np.ascontiguousarray(whole).view("<i4"), bits)


def _made(
    call: Call,
    x: Tensor,
    key: Hashable,
    dtype: DType,
    shape: tuple[int, int],
    function: Callable[[Array], Array],
) -> Tensor:
    """Of a weight, when it is read; of what else is known, at once."""
    made = call.g.derived(x, key, dtype, lambda a: function(a).reshape(shape), shape)
    if made is not None:
        return made
    return call.g.hold(function(call.known(x, "a packed weight")).reshape(shape))
