"""Convolutions by what array libraries have for them: PyTorch's, XLA's, MLX's.

Rule: deleting any row changes no result, only time. A library that lays windows out in
memory instead, as the references do, moves each element once for every tap.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from rlxweb.host.variants import Variant
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import Attrs, TensorType, Types
from rlxweb.recipes.windows import windows_of


class Around(NamedTuple):
    """Strides and dilations, and what is added at both ends of each axis; below 0: cut
    off.
    """

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]


def around(attrs: Attrs, x: Any, w: Any) -> Around:
    """Of a convolution of these arrays."""
    made = windows_of(tuple(x.shape[2:]), tuple(w.shape[2:]), attrs)
    pads = tuple(
        (before, reach - before - size)
        for before, reach, size in zip(made.before, made.reach, made.size, strict=True)
    )
    return Around(made.strides, made.dilations, pads)


def wide_floats(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    """Float32 or float64, and something to sum."""
    return out.dtype in (DType.F32, DType.F64) and inputs[1].numel > 0


def torch_convolution(torch: Any) -> Variant:
    """By PyTorch's, for tensors of any device."""
    functions = torch.nn.functional
    named = {3: functions.conv1d, 4: functions.conv2d, 5: functions.conv3d}

    def conv(attrs: Attrs, x: Any, w: Any) -> Any:
        how = around(attrs, x, w)
        ends = [end for pair in reversed(how.pads) for end in pair]
        x = functions.pad(x, ends) if any(ends) else x
        own = named[x.ndim]
        return own(x, w, None, how.strides, 0, how.dilations, attrs["groups"])

    return Variant("conv, PyTorch's", "conv", wide_floats, conv)


def xla_convolution(lax: Any) -> Variant:
    """By XLA's, with all the digits that it has."""

    def conv(attrs: Attrs, x: Any, w: Any) -> Any:
        how = around(attrs, x, w)
        return lax.conv_general_dilated(
            x,
            w,
            how.strides,
            how.pads,
            rhs_dilation=how.dilations,
            feature_group_count=attrs["groups"],
            precision=lax.Precision.HIGHEST,
        )

    return Variant("conv, XLA's", "conv", wide_floats, conv)
