"""Arrays of bfloat16, which NumPy has no numbers of: the upper half of a float32.

In NumPy such an array is of dtype `BFLOAT16`, one field `bf16` of 16 bits, wherever it
comes from rlxweb; the dtype of `ml_dtypes` is taken too, and is the same bytes:
`array.view(ml_dtypes.bfloat16)`. Knows NumPy alone.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt

BFLOAT16 = np.dtype([("bf16", np.uint16)])
"""The dtype of arrays of bfloat16 that rlxweb gives: their bits."""


def is_bfloat16(dtype: np.dtype[Any]) -> bool:
    """Is it `BFLOAT16`, or bfloat16 in the words of ml_dtypes (JAX, ONNX, MLX)?"""
    if dtype.kind != "V":
        return False
    return dtype.newbyteorder("=") == BFLOAT16 or dtype.name == "bfloat16"


def from_float32(x: npt.ArrayLike) -> npt.NDArray[np.void]:
    """Floats as an array of dtype `BFLOAT16`: rounded to nearest, halves to even.

    x        any shape; taken as float32
    returns  the same shape; what is past the largest bfloat16 becomes infinite

    >>> from_float32([1.0, 3.14159])["bf16"]
    array([16256, 16457], dtype=uint16)
    """
    single = np.asarray(x, np.float32)
    bits = np.ascontiguousarray(single).reshape(-1).view(np.uint32)
    half = (bits >> np.uint32(16)) & np.uint32(1)
    up = (bits + np.uint32(0x7FFF) + half) >> np.uint32(16)
    # A NaN stays one, whichever of its bits are lost.
    kept = np.where(np.isnan(single).reshape(-1), (bits >> 16) | 0x40, up)
    return kept.astype(np.uint16).view(BFLOAT16).reshape(single.shape)


def to_float32(x: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """An array of bfloat16 in float32, which holds all of its numbers.

    x        of dtype `BFLOAT16` or ml_dtypes.bfloat16, any shape and strides

    >>> to_float32(from_float32([1.0, 3.14159]))
    array([1.      , 3.140625], dtype=float32)
    """
    bits = native(x).view(np.uint16).astype(np.uint32) << np.uint32(16)
    return np.asarray(bits, np.uint32).view(np.float32)


def held(array: Any) -> Any:
    """An array as references compute with it: bfloat16 of NumPy's in float32."""
    is_numpy = isinstance(array, np.ndarray)
    return to_float32(array) if is_numpy and is_bfloat16(array.dtype) else array


def native(x: npt.NDArray[Any]) -> npt.NDArray[np.void]:
    """An array of bfloat16 as one of dtype `BFLOAT16`; a view where it can be one."""
    if x.dtype.kind == "V" and x.dtype.names is None:
        return x.view(BFLOAT16)
    return x.astype(BFLOAT16, copy=False)


def of_tensor(given: Any) -> npt.NDArray[Any] | None:
    """A bfloat16 tensor of PyTorch's in the host's memory, which NumPy refuses."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(given, torch.Tensor):
        return None
    if given.dtype is not torch.bfloat16 or given.device.type != "cpu":
        return None
    bits: npt.NDArray[Any] = given.detach().contiguous().view(torch.int16).numpy()
    return bits.view(BFLOAT16)
