"""NumPy arrays of bfloat16, stored as the upper 16 bits of a float32.

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
"""Dtype of the bfloat16 arrays that rlxweb returns: their bits."""


def is_bfloat16(dtype: np.dtype[Any]) -> bool:
    """Return whether a dtype is `BFLOAT16` or the bfloat16 of ml_dtypes (JAX, ONNX,
    MLX).
    """
    if dtype.kind != "V":
        return False
    return dtype.newbyteorder("=") == BFLOAT16 or dtype.name == "bfloat16"


def from_float32(x: npt.ArrayLike) -> npt.NDArray[np.void]:
    """Convert floats to `BFLOAT16`, rounding to nearest with ties to even.

    x        any shape; taken as float32
    returns  the same shape; what is past the largest bfloat16 becomes infinite

    >>> from_float32([1.0, 3.14159])["bf16"]
    array([16256, 16457], dtype=uint16)
    """
    single = np.asarray(x, np.float32)
    bits = np.ascontiguousarray(single).reshape(-1).view(np.uint32)
    odd_bit = (bits >> np.uint32(16)) & np.uint32(1)
    rounded = (bits + np.uint32(0x7FFF) + odd_bit) >> np.uint32(16)
    # A NaN stays one, whichever of its bits are lost.
    upper_bits = np.where(np.isnan(single).reshape(-1), (bits >> 16) | 0x40, rounded)
    return upper_bits.astype(np.uint16).view(BFLOAT16).reshape(single.shape)


def to_float32(x: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Convert an array of bfloat16 to float32, which represents all its values exactly.

    x        of dtype `BFLOAT16` or ml_dtypes.bfloat16, any shape and strides

    >>> to_float32(from_float32([1.0, 3.14159]))
    array([1.      , 3.140625], dtype=float32)
    """
    bits = as_bfloat16(x).view(np.uint16).astype(np.uint32) << np.uint32(16)
    return np.asarray(bits, np.uint32).view(np.float32)


def widen_bfloat16(array: Any) -> Any:
    """Return a NumPy array of bfloat16 as float32, any other array unchanged."""
    is_numpy = isinstance(array, np.ndarray)
    return to_float32(array) if is_numpy and is_bfloat16(array.dtype) else array


def as_bfloat16(x: npt.NDArray[Any]) -> npt.NDArray[np.void]:
    """Return an array of bfloat16 with dtype `BFLOAT16`, as a view where possible."""
    if x.dtype.kind == "V" and x.dtype.names is None:
        return x.view(BFLOAT16)
    return x.astype(BFLOAT16, copy=False)


def from_torch_bfloat16(tensor: Any) -> npt.NDArray[Any] | None:
    """Return a PyTorch bfloat16 tensor in host memory as an array, None for anything
    else.
    """
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(tensor, torch.Tensor):
        return None
    if tensor.dtype is not torch.bfloat16 or tensor.device.type != "cpu":
        return None
    bits: npt.NDArray[Any] = tensor.detach().contiguous().view(torch.int16).numpy()
    return bits.view(BFLOAT16)
