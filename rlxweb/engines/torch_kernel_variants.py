"""Kernel variants of ops on PyTorch, each with a condition.

Rule: deleting any row changes no result, only time. The first row whose gate opens is
taken; the op's own reference is the last resort.
"""

from __future__ import annotations

from typing import Any

from rlxweb.engines.array_kernel_variants import (
    frame_view_variants,
    is_float_along_last_axis,
)
from rlxweb.ir.op import Attrs
from rlxweb.ops.conv.array_library import torch_convolution
from rlxweb.ops.kernel_variant import KernelVariant, for_every_node


def torch_variants(torch: Any, xp: Any) -> tuple[KernelVariant, ...]:
    """Return the variants for tensors of the namespace `xp`."""
    functions = torch.nn.functional

    def frame_signal(x: Any, size: int, hop: int, count: int) -> Any:
        return x.unfold(-1, size, hop)[..., :count, :]

    def softmax(attrs: Attrs, x: Any) -> Any:
        return torch.softmax(x, -1)

    def layer_norm(attrs: Attrs, x: Any, gamma: Any, beta: Any) -> Any:
        return functions.layer_norm(x, x.shape[-1:], gamma, beta, attrs["eps"])

    return (
        *frame_view_variants(xp, frame_signal),
        KernelVariant(
            "softmax, PyTorch's",
            "softmax",
            for_every_node(softmax),
            is_float_along_last_axis,
        ),
        KernelVariant(
            "layer_norm, PyTorch's",
            "layer_norm",
            for_every_node(layer_norm),
            is_float_along_last_axis,
        ),
        torch_convolution(torch),
        # Not its attention, which makes 0 of a query that is NaN.
    )
