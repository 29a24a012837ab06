"""Integers of 4 and 2 bits, which rlxweb has no type for: their values in 8 bits.

A weight of such a type is unpacked when it is read; on a device it takes a byte for
each number. The type itself goes along beside the tensor, to where it is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rlxweb.ir.dtype import DType
from rlxweb.ir.shape import Shape
from rlxweb.ir.tensor import Tensor
from rlxweb.onnx.records import Weight

IN_BYTES = {"int4": DType.I8, "uint4": DType.U8, "int2": DType.I8, "uint2": DType.U8}
"""What each of them is held in, by ml_dtypes' names."""


@dataclass(frozen=True, slots=True)
class Narrow:
    """A value of a type of 4 or 2 bits.

    tensor  its numbers, i8 or u8
    dtype   the type that ONNX says, in ml_dtypes' words
    """

    tensor: Tensor
    dtype: np.dtype[Any]

    @property
    def shape(self) -> Shape:
        return self.tensor.shape


def bits_of(dtype: np.dtype[Any]) -> int:
    """How many bits a type of IN_BYTES has."""
    return int(dtype.name[-1])


def in_bytes(weight: Weight) -> Weight:
    """A weight of a type of IN_BYTES as one of 8 bits, unpacked when it is read."""
    held = IN_BYTES[weight.dtype.name].numpy
    return weight.made("in bytes", held, lambda array: array.astype(held))
