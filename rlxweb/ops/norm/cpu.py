"""Kernels of softmax and norms on processors: rows by compiled code, else NumPy in
parts.
"""

from __future__ import annotations

from typing import Final

from rlxweb.ops.cache_blocking import attr_axis, blocked_kernels, blocked_op
from rlxweb.ops.composed_row_kernel import composed_row_kernel

_OPS: Final = ("softmax", "log_softmax", "layer_norm", "rms_norm")
KERNELS = (
    *(composed_row_kernel(op, blocked_op(op, attr_axis)) for op in _OPS),
    *blocked_kernels(attr_axis, *_OPS),
)
