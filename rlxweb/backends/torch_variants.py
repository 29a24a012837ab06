"""Faster ways to run an op on PyTorch, each behind a gate.

Rule: deleting any row changes no result, only time. The first row whose gate opens is
taken; the op's own reference is the last resort.
"""

from __future__ import annotations

from typing import Any

from rlxweb.backends.array_convolutions import torch_convolution
from rlxweb.backends.array_variants import along_last, framed
from rlxweb.host.variants import Variant
from rlxweb.ir.op import Attrs


def torch_variants(torch: Any, xp: Any) -> tuple[Variant, ...]:
    """The rows for tensors of the namespace `xp`."""
    functions = torch.nn.functional

    def cut(x: Any, size: int, hop: int, count: int) -> Any:
        return x.unfold(-1, size, hop)[..., :count, :]

    def softmax(attrs: Attrs, x: Any) -> Any:
        return torch.softmax(x, -1)

    def layer_norm(attrs: Attrs, x: Any, gamma: Any, beta: Any) -> Any:
        return functions.layer_norm(x, x.shape[-1:], gamma, beta, attrs["eps"])

    return (
        *framed(xp, cut),
        Variant("softmax, PyTorch's", "softmax", along_last, softmax),
        Variant("layer_norm, PyTorch's", "layer_norm", along_last, layer_norm),
        torch_convolution(torch),
        # Not its attention, which makes 0 of a query that is NaN.
    )
