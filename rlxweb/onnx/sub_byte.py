"""Integers of 4 and 2 bits (int4, int2), for which rlxweb has no dtype: their values
are stored in 8 bits.

A weight of such a type is unpacked when it is read; on a device it takes a byte for
each number. The type itself goes along beside the tensor, to where it is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rlxweb.ir.dtype import DType
from rlxweb.ir.shape_arithmetic import Shape
from rlxweb.ir.tensor import Tensor
from rlxweb.onnx.model_records import Weight

STORAGE_DTYPES = {
    "int4": DType.I8,
    "uint4": DType.U8,
    "int2": DType.I8,
    "uint2": DType.U8,
}
"""Storage dtype of each sub-byte type, by its name in ml_dtypes."""


@dataclass(frozen=True, slots=True)
class SubByteTensor:
    """Tensor of a 4-bit or 2-bit integer type, stored in 8 bits.

    tensor  its numbers, i8 or u8
    dtype   the type that ONNX says, in ml_dtypes' words
    """

    tensor: Tensor
    dtype: np.dtype[Any]

    @property
    def shape(self) -> Shape:
        return self.tensor.shape


def bit_width(dtype: np.dtype[Any]) -> int:
    """Return the number of bits of a sub-byte type."""
    return int(dtype.name[-1])


def unpack_weight(weight: Weight) -> Weight:
    """Return a sub-byte weight as a weight of 8 bits that is unpacked when it is
    read.
    """
    storage_dtype = STORAGE_DTYPES[weight.dtype.name].numpy
    return weight.derive(
        "in bytes", storage_dtype, lambda array: array.astype(storage_dtype)
    )
