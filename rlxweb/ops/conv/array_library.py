"""Convolution variants that call the array library's own: PyTorch's and XLA's.

Rule: deleting any row changes no result, only time. A library that lays windows out in
memory instead, as the references do, moves each element once for every tap.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from rlxweb.ir.dtype import DType
from rlxweb.ir.op import Attrs, TensorType, Types
from rlxweb.ops.conv.windows import sliding_windows
from rlxweb.ops.kernel_variant import KernelVariant, for_every_node


class ConvGeometry(NamedTuple):
    """Strides, dilations and padding at both ends of each axis; negative padding
    crops.
    """

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]


def conv_geometry(attrs: Attrs, x: Any, w: Any) -> ConvGeometry:
    """Return the geometry of a convolution of these arrays."""
    windows = sliding_windows(tuple(x.shape[2:]), tuple(w.shape[2:]), attrs)
    pads = tuple(
        (pad_before, padded_size - pad_before - size)
        for pad_before, padded_size, size in zip(
            windows.pads_before, windows.extents, windows.spatial_shape, strict=True
        )
    )
    return ConvGeometry(windows.strides, windows.dilations, pads)


def is_nonempty_float(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    """Return whether the output is float32 or float64 and the weights are not empty."""
    return out.dtype in (DType.F32, DType.F64) and inputs[1].numel > 0


def torch_convolution(torch: Any) -> KernelVariant:
    """Return the variant that calls PyTorch's convolution, for tensors of any
    device.
    """
    functions = torch.nn.functional
    by_rank = {3: functions.conv1d, 4: functions.conv2d, 5: functions.conv3d}

    def conv(attrs: Attrs, x: Any, w: Any) -> Any:
        geometry = conv_geometry(attrs, x, w)
        padding = [amount for pair in reversed(geometry.pads) for amount in pair]
        x = functions.pad(x, padding) if any(padding) else x
        library_conv = by_rank[x.ndim]
        return library_conv(
            x, w, None, geometry.strides, 0, geometry.dilations, attrs["groups"]
        )

    return KernelVariant(
        "conv, PyTorch's", "conv", for_every_node(conv), is_nonempty_float
    )


def xla_convolution(lax: Any) -> KernelVariant:
    """Return the variant that calls XLA's convolution at its highest precision."""

    def conv(attrs: Attrs, x: Any, w: Any) -> Any:
        geometry = conv_geometry(attrs, x, w)
        return lax.conv_general_dilated(
            x,
            w,
            geometry.strides,
            geometry.pads,
            rhs_dilation=geometry.dilations,
            feature_group_count=attrs["groups"],
            precision=lax.Precision.HIGHEST,
        )

    return KernelVariant("conv, XLA's", "conv", for_every_node(conv), is_nonempty_float)
