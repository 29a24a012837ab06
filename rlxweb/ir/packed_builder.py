"""Builder methods for weights that stay packed, a few bits each.

How they lie is in `rlxweb.packed_weights`. Nothing is computed here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlxweb.errors import DTypeError, ShapeError
from rlxweb.ir.dtype import DType
from rlxweb.ir.op_builder import OpBuilder
from rlxweb.ir.shape import show
from rlxweb.ir.tensor import Tensor
from rlxweb.packed_weights import groups_of


class PackedBuilder(OpBuilder):
    """Builder methods over `apply`; mixed into Graph."""

    def quantized_matmul(
        self,
        x: Tensor,
        w: Tensor,
        scales: Tensor,
        biases: Tensor | None = None,
        transpose: bool = True,
        group_size: int = 64,
        bits: int = 4,
    ) -> Tensor:
        """The product x · wᵀ with a matrix whose weights stay packed, a few bits each.

        w          words i32 or u32 [N, W], as `rlxweb.quantize` and MLX make them: a
                   row's K weights, `bits` each, from the lowest bits on
        scales     of groups of `group_size` weights of a row, [N, G]
        biases     of the same; a weight is code · scale + bias. None: (code -
                   2^(bits - 1)) · scale
        transpose  False: x · w, for which the weights are unpacked whole at each run
        bits       2, 4 or 8
        Shapes     x [..., K] → [..., N], or [..., N] → [..., K] without `transpose`;
                   G = ceil(K / group_size), W = G · group_size · bits / 32
        Errors     ShapeError, DTypeError, AttributeRefused
        """
        sides = [scales] if biases is None else [scales, biases]
        how: dict[str, Any] = {"bits": bits, "group_size": group_size}
        if transpose:
            return self.apply("quantized_matmul", x, w, *sides, **how)
        g: Any = self
        made: Tensor = g.matmul(x, g.dequantize(w, *sides, **how))
        return made

    def dequantize(
        self,
        w: Tensor,
        scales: Tensor,
        biases: Tensor | None = None,
        group_size: int = 64,
        bits: int = 4,
    ) -> Tensor:
        """The floats [..., K] of packed weights, in the dtype of the scales.

        w, scales, biases   as those of `quantized_matmul`, or some rows of them; K is
                            all that w holds
        Errors              ShapeError, DTypeError, AttributeRefused
        """
        doing = f"dequantize of {show(w.shape)} {w.dtype}"
        sides = [scales] if biases is None else [scales, biases]
        k = scales.shape[-1] * group_size if scales.rank else 0
        groups_of(k, bits, group_size)
        want = (*w.shape[:-1], k // group_size)
        fits = w.rank > 0 and w.shape[-1] * 32 == k * bits
        if not fits or any(one.shape != want for one in sides):
            shapes = ", ".join(show(one.shape) for one in sides)
            raise ShapeError(
                doing,
                f"scales and biases {shapes}",
                "words [..., W], the others [..., G]",
            )
        if w.dtype not in (DType.I32, DType.U32):
            raise DTypeError(doing, "words are i32 or u32", hint="see rlxweb.quantize")
        return unpacked(self, w, *sides, bits=bits, group_size=group_size)


def unpacked(
    g: Any, words: Tensor, scales: Tensor, *biases: Tensor, bits: int, group_size: int
) -> Tensor:
    """All weights [..., K] by arithmetic of a graph, in the type of the scales."""
    *rows, groups = scales.shape
    shifts = g.constant(np.arange(0, 32, bits), words.dtype)
    each = g.shift_right(g.reshape(words, (*words.shape, 1)), shifts)
    codes = g.bitwise_and(each, (1 << bits) - 1)
    cells = g.cast(g.reshape(codes, (*rows, groups, group_size)), scales.dtype)
    scale, *bias = (g.reshape(one, (*one.shape, 1)) for one in (scales, *biases))
    if bias:
        cells = cells * scale + bias[0]
    else:
        cells = (cells - float(1 << (bits - 1))) * scale
    whole: Tensor = g.reshape(cells, (*rows, groups * group_size))
    return whole
