"""Transposed convolution, computed as one convolution that yields every phase of the
result.

Results `strides` apart are sums over the same taps of the kernel. So each such phase
becomes channels of its own of one convolution with stride 1 and a kernel that much
shorter, and the phases are laid between each other: nothing is multiplied by zeros but
at the ends of the kernel, where what is no number reaches up to a stride further. Owns
no shader.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import Compose
from rlxweb.ir.op import Attr, Attrs, Op, TensorType, Types, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape_arithmetic import (
    Shape,
    bad_attribute,
    bad_shape,
    format_shape,
    numel,
)
from rlxweb.ir.tensor import Tensor
from rlxweb.ir.vmap_batching import batch_as_first_axis
from rlxweb.ops.conv.op import GROUPS, batch_as_groups, im2col_matmul
from rlxweb.ops.conv.windows import (
    DILATIONS_ATTR,
    PADS_ATTR,
    STRIDES_ATTR,
    SlidingWindows,
    expand_per_axis,
    split_pads,
)
from rlxweb.ops.elementwise.op import NUMERIC_DTYPES, common_dtype, require_dtypes
from rlxweb.ops.matmul.op import MATMUL_TOLERANCE, widen_float16


class TransposedConvAxis(NamedTuple):
    """One spatial axis of a transposed convolution, split into `stride` phases.

    size, kernel, stride, dilation   of the array, the weights and their steps
    crop_before, out                 results left out in front, and how many are kept
    """

    size: int
    kernel: int
    stride: int
    dilation: int
    crop_before: int
    out: int

    @property
    def kernel_extent(self) -> int:
        """Number of results that one element adds to, gaps included."""
        return (self.kernel - 1) * self.dilation + 1

    @property
    def taps_per_phase(self) -> int:
        """Number of kernel taps of one phase."""
        return -(-self.kernel_extent // self.stride)

    @property
    def first_kept_result(self) -> int:
        """Index of the first result of a phase that is kept."""
        return self.crop_before // self.stride

    @property
    def conv_pads(self) -> tuple[int, int]:
        """Padding around the array that gives each phase at least its kept results."""
        front = max(0, self.taps_per_phase - 1 - self.first_kept_result)
        return front, max(
            0, self.first_kept_result + self.results_per_phase - self.size
        )

    @property
    def conv_start(self) -> int:
        """Index of the first kept result in the output of that convolution."""
        return max(0, self.first_kept_result - self.taps_per_phase + 1)

    @property
    def interleaved_start(self) -> int:
        """Index of the first kept result among the interleaved phases."""
        return self.crop_before - self.first_kept_result * self.stride

    @property
    def results_per_phase(self) -> int:
        """Number of results of a phase that are kept."""
        return -(-(self.crop_before + self.out) // self.stride) - self.first_kept_result

    def tap_table(self) -> list[int]:
        """Return the kernel index of each tap of each phase, last tap first; `kernel`
        marks a zero.
        """
        taps = []
        for phase in range(self.stride):
            for tap in reversed(range(self.taps_per_phase)):
                kernel_index, rest = divmod(phase + self.stride * tap, self.dilation)
                taps.append(
                    self.kernel if rest or kernel_index >= self.kernel else kernel_index
                )
        return taps


def transposed_conv_axes(x: Shape, w: Shape, attrs: Attrs) -> list[TransposedConvAxis]:
    """Return the spatial axes of a transposed convolution. Errors  AttributeRefused,
    ShapeError.
    """
    rank = len(x) - 2
    if not 1 <= rank <= 3 or len(w) != len(x):
        raise bad_shape(
            f"got an array of rank {len(x)} and weights of rank {len(w)}",
            "expected an array [N, C, 1 to 3 spatial axes] and weights [C, output "
            "channels / groups, kernel…] of the same rank",
            "reshape a single image to [1, C, …]",
        )
    if any(n < 1 for n in (*x[2:], *w[2:])):
        raise bad_shape(
            f"got spatial axes {format_shape(x[2:])} and a kernel "
            f"{format_shape(w[2:])}",
            "every size must be at least 1",
        )
    strides = expand_per_axis("strides", attrs["strides"], rank, 1)
    dilations = expand_per_axis("dilations", attrs["dilations"], rank, 1)
    output_padding = expand_per_axis("output_padding", attrs["output_padding"], rank, 0)
    before, after = split_pads(attrs["pads"], rank)
    axes = []
    for axis in range(rank):
        size, kernel, stride = x[2 + axis], w[2 + axis], strides[axis]
        full_length = (size - 1) * stride + (kernel - 1) * dilations[axis] + 1
        out = full_length + output_padding[axis] - before[axis] - after[axis]
        if out < 1:
            raise bad_attribute(
                f"pads={attrs['pads']} reduce spatial axis {axis} of the result to "
                f"{out} elements",
                "at least 1 element must remain; without pads the axis has "
                f"{full_length + output_padding[axis]} elements",
            )
        axes.append(
            TransposedConvAxis(size, kernel, stride, dilations[axis], before[axis], out)
        )
    return axes


def _infer(types: Types, attrs: Attrs) -> TensorType:
    x, w = types
    dtype = common_dtype(types)
    require_dtypes(types, NUMERIC_DTYPES)
    out = tuple(
        conv_axis.out for conv_axis in transposed_conv_axes(x.shape, w.shape, attrs)
    )
    groups = attrs["groups"]
    if w.shape[0] != x.shape[1]:
        raise bad_shape(
            f"the array has {x.shape[1]} channels",
            f"weights {format_shape(w.shape)} require {w.shape[0]} channels",
            "pass weights whose first dimension is the number of channels",
        )
    if groups < 1 or x.shape[1] % groups:
        raise bad_attribute(
            f"groups={groups} with {x.shape[1]} channels",
            "groups must be at least 1 and divide the number of channels",
        )
    return TensorType((x.shape[0], w.shape[1] * groups, *out), dtype)


def _reference(xp: Any, attrs: Attrs, x: Any, w: Any) -> Any:
    axes = transposed_conv_axes(tuple(x.shape), tuple(w.shape), attrs)
    groups, dtype, rank = attrs["groups"], x.dtype, len(axes)
    x, w = widen_float16(xp, x), widen_float16(xp, w)
    n, c, m = x.shape[0], w.shape[0], w.shape[1] * groups
    for axis, conv_axis in enumerate(axes):
        w = _split_kernel_phases(xp, w, 2 + 2 * axis, conv_axis)
    w = xp.reshape(w, (groups, c // groups, *w.shape[1:]))
    phases, taps = range(3, 3 + 2 * rank, 2), range(4, 4 + 2 * rank, 2)
    w = xp.permute_dims(w, (0, 2, *phases, 1, *taps))
    rows = m * math.prod(conv_axis.stride for conv_axis in axes)
    w = xp.reshape(
        w, (rows, c // groups, *(conv_axis.taps_per_phase for conv_axis in axes))
    )
    windows = SlidingWindows(
        spatial_shape=tuple(x.shape[2:]),
        kernel=tuple(conv_axis.taps_per_phase for conv_axis in axes),
        strides=(1,) * rank,
        dilations=(1,) * rank,
        pads_before=tuple(conv_axis.conv_pads[0] for conv_axis in axes),
        out_shape=tuple(
            conv_axis.conv_start + conv_axis.results_per_phase for conv_axis in axes
        ),
    )
    result = im2col_matmul(xp, groups, windows, x, w)
    kept_slices = (
        slice(conv_axis.conv_start, conv_axis.conv_start + conv_axis.results_per_phase)
        for conv_axis in axes
    )
    result = result[(slice(None), slice(None), *kept_slices)]
    strides = tuple(conv_axis.stride for conv_axis in axes)
    result = xp.reshape(
        result, (n, m, *strides, *(conv_axis.results_per_phase for conv_axis in axes))
    )
    pairs = (axis for i in range(rank) for axis in (2 + rank + i, 2 + i))
    result = xp.permute_dims(result, (0, 1, *pairs))
    result = xp.reshape(
        result,
        (n, m, *(conv_axis.results_per_phase * conv_axis.stride for conv_axis in axes)),
    )
    crop_slices = (
        slice(conv_axis.interleaved_start, conv_axis.interleaved_start + conv_axis.out)
        for conv_axis in axes
    )
    return xp.asarray(result[(slice(None), slice(None), *crop_slices)], dtype=dtype)


def _split_kernel_phases(
    xp: Any, w: Any, axis: int, conv_axis: TransposedConvAxis
) -> Any:
    """Split a kernel axis in two: phases, and the taps of each, last tap first."""
    shape = (*w.shape[:axis], 1, *w.shape[axis + 1 :])
    w = xp.concat([w, xp.zeros(shape, dtype=w.dtype)], axis=axis)
    table = xp.asarray(np.array(conv_axis.tap_table(), np.int32))
    phased_shape = (
        *w.shape[:axis],
        conv_axis.stride,
        conv_axis.taps_per_phase,
        *w.shape[axis + 1 :],
    )
    return xp.reshape(xp.take(w, table, axis=axis), phased_shape)


def _build(g: Graph, attrs: Attrs, x: Tensor, w: Tensor) -> Tensor:
    axes = transposed_conv_axes(x.shape, w.shape, attrs)
    groups = attrs["groups"]
    phase_weights = _phase_weights(g, w, axes, groups)
    before, after = zip(*(conv_axis.conv_pads for conv_axis in axes), strict=True)
    result = g.apply("conv", x, phase_weights, pads=(*before, *after), groups=groups)
    for axis, conv_axis in enumerate(axes, 2):
        result = _narrow_if_needed(
            g, result, axis, conv_axis.conv_start, conv_axis.results_per_phase
        )
    return _interleave_phases(g, result, axes, w.shape[1] * groups)


def _phase_weights(
    g: Graph, w: Tensor, axes: list[TransposedConvAxis], groups: int
) -> Tensor:
    """Rearrange weights [C, M / g, kernel…] into [g · M / g · phases, C / g, taps…]."""
    channels = w.shape[0]
    for conv_axis in axes:
        # The axis in hand is always the third: those that are done stand last.
        table = conv_axis.tap_table()
        if conv_axis.kernel in table:
            shape = (*w.shape[:2], 1, *w.shape[3:])
            zero_slice = g.expand(g.constant(np.zeros((), w.dtype.numpy)), shape)
            w = g.concat([w, zero_slice], axis=2)
        if table != list(range(conv_axis.kernel)):
            w = g.gather(w, g.constant(np.array(table, np.int32)), axis=2)
        rest = w.shape[3:]
        w = g.reshape(
            w, (*w.shape[:2], conv_axis.stride, conv_axis.taps_per_phase, *rest)
        )
        trailing = range(4, 4 + len(rest))
        w = g.transpose(w, (0, 1, 2, *trailing, 3))
        w = g.reshape(
            w,
            (channels, w.shape[1] * conv_axis.stride, *rest, conv_axis.taps_per_phase),
        )
    m, taps = w.shape[1], w.shape[2:]
    w = g.reshape(w, (groups, channels // groups, m, *taps))
    w = g.transpose(w, (0, 2, 1, *range(3, w.rank)))
    return g.reshape(w, (groups * m, channels // groups, *taps))


def _narrow_if_needed(
    g: Graph, x: Tensor, axis: int, start: int, length: int
) -> Tensor:
    """Narrow an axis unless all of it is kept."""
    if start == 0 and length == x.shape[axis]:
        return x
    return g.narrow(x, axis, start, length)


def _interleave_phases(
    g: Graph, x: Tensor, axes: list[TransposedConvAxis], m: int
) -> Tensor:
    """Interleave phases: [N, M · phases, positions…] becomes [N, M, results…]."""
    strides = [conv_axis.stride for conv_axis in axes]
    if math.prod(strides) > 1:
        n, rank = x.shape[0], len(axes)
        x = g.reshape(x, (n, m, *strides, *x.shape[2:]))
        pairs = (axis for i in range(rank) for axis in (2 + rank + i, 2 + i))
        x = g.transpose(x, (0, 1, *pairs))
        x = g.reshape(
            x,
            (
                n,
                m,
                *(conv_axis.results_per_phase * conv_axis.stride for conv_axis in axes),
            ),
        )
    for axis, conv_axis in enumerate(axes, 2):
        x = _narrow_if_needed(g, x, axis, conv_axis.interleaved_start, conv_axis.out)
    return x


def _flops(inputs: Types, out: TensorType, attrs: Attrs) -> float:
    return 2.0 * inputs[0].numel * numel(inputs[1].shape[1:])


def _case(x: Shape, w: Shape, dtype: DType = DType.F32, **attrs: Any) -> Sample:
    whole = dtype in (DType.F16, DType.I32)
    return Sample(tuple(Drawn(s, dtype, -2, 2, whole=whole) for s in (x, w)), attrs)


_SAMPLES = (
    _case((2, 3, 7), (3, 2, 4), strides=3, pads=1),
    _case((1, 4, 5, 6), (4, 2, 3, 2), strides=(2, 1), groups=2, output_padding=(1, 0)),
    _case((1, 2, 4, 5), (2, 3, 3, 3), dilations=2, strides=(3, 2), pads=(2, 0, 1, 3)),
    _case((1, 4, 3, 2, 4), (4, 2, 2, 3, 2), strides=2, pads=1, groups=2),
    _case((1, 2, 6), (2, 3, 2), strides=4, output_padding=3),
    _case((0, 2, 6), (2, 3, 2), strides=2),
    _case((2, 0, 3), (0, 3, 2), strides=2),
    _case((1, 1, 1), (1, 1, 1)),
    _case((32_769, 1, 1), (1, 1, 2), strides=2),
    _case((1, 2, 5), (2, 3, 3), DType.F16, strides=2),
    _case((1, 2, 5), (2, 3, 3), DType.I32, strides=2),
    _case((1, 2, 5), (2, 3, 3), DType.F64, pads=1),
)

registry.register_all(
    Op(
        name="conv_transpose",
        batch=lambda ctx: (
            batch_as_groups(ctx) if ctx.is_batched[1] else batch_as_first_axis(ctx)
        ),
        arity=2,
        infer=_infer,
        reference=_reference,
        lower=Compose(_build),
        attrs=(
            STRIDES_ATTR,
            DILATIONS_ATTR,
            PADS_ATTR,
            Attr("output_padding", "ints", ()),
            GROUPS,
        ),
        traits=frozenset({"blas"}),
        flops=_flops,
        tolerance=MATMUL_TOLERANCE,
        samples=_SAMPLES,
        doc="Transposed convolution of an array [N, C, …] with weights [C, M / "
        "groups, …]. For a spatial axis of n elements and a kernel of k, the result "
        "has (n - 1) · stride + dilation · (k - 1) + 1 + output_padding elements on "
        "that axis, minus the `pads` at its two ends.",
    )
)
