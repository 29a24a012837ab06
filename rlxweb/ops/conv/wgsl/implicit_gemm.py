"""Kernel plans of convolutions as implicit matrix products by large blocks, for GPUs.

The weights of a group are the left operand. The right one, whose columns are windows,
is nowhere: its elements are fetched from the array, where a table says each tap lies.
All else (slices through workgroup memory, 8 by 8 sums a lane, the sum in parts where
blocks are few) is as in `ops/matmul/wgsl/blocked.py`. The windows of all images are
columns of one product where they fit one binding: a network's last layers have few on
each. Else every image is a product of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlxweb.core.limits import Limits
from rlxweb.ir.lowering import (
    BufferRef,
    IterationAxis,
    KernelDispatch,
    KernelPlan,
    OperandAccess,
    ScratchBuffer,
)
from rlxweb.ir.op import TensorType, Types
from rlxweb.ir.shape_arithmetic import numel
from rlxweb.ops.conv.wgsl.plan import ConvolutionShape, conv_strides, convolution_shape
from rlxweb.ops.conv.windows import PaddedInput, SlidingWindows, plan_padding
from rlxweb.ops.kernel_variant import WgslPlanRule
from rlxweb.ops.matmul.wgsl.blocked import (
    FILLING_WARPS,
    SLICE_DEPTH,
    WARP_SIZE,
    BlockedMatmulKernel,
    is_long_sum,
    loop_iterations,
    split_part_count,
    suits_blocks,
)
from rlxweb.ops.reduce.wgsl.plan import (
    KeptAxes,
    ReducedAxes,
    ReductionPass,
    compute_scalar,
    element_type_include,
    pass_dispatch,
)

_FEW_BLOCKS_FACTOR = 4
"""Blocks count as few when this many times their warps would not fill a large GPU.
Estimated, not measured.
"""


def implicit_gemm_rule(side: int) -> WgslPlanRule:
    """Return the plan rule of a convolution by blocks of `side` channels by `side`
    windows.

    None where blocks would be few or mostly empty for a short sum.
    """

    def build_plan(
        inputs: Types, out: TensorType, attrs: Mapping[str, Any], limits: Limits
    ) -> KernelPlan | None:
        x, w = inputs
        conv = convolution_shape(x.shape, w.shape, attrs)
        (c, m), positions = conv.channels, numel(conv.windows.out_shape)
        k = c * numel(conv.windows.kernel)
        kernel = BlockedMatmulKernel(side, False, "windows_at")
        images = max(1, conv.batch) if _fits_one_binding(conv, x, out, limits) else 1
        n = images * positions
        block_count = conv.batch // images * conv.groups * -(-m // side) * -(-n // side)
        warps = block_count * (kernel.lanes // WARP_SIZE)
        if not warps:
            return None
        sizes = (m, n, k)
        # Lanes of tiles fill a GPU before blocks do that are mostly empty.
        is_few_long = _FEW_BLOCKS_FACTOR * warps < FILLING_WARPS and is_long_sum(
            kernel, sizes, warps
        )
        if not (suits_blocks(kernel, sizes, warps, limits) or is_few_long):
            return None
        padded_input = plan_padding(
            conv.windows, conv.batch * x.shape[1], x.dtype, first_table=1
        )
        part_length = -(-k // (split_part_count(warps, k) * SLICE_DEPTH)) * SLICE_DEPTH
        parts = -(-k // part_length)
        scratch_index = len(padded_input.scratch)
        target = BufferRef("out") if parts == 1 else BufferRef("scratch", scratch_index)
        dispatch = _gemm_dispatch(
            conv, images, kernel, padded_input, (parts, part_length, out), target
        )
        tables = (_tap_offsets(conv, padded_input), *padded_input.tables)
        if parts == 1:
            return KernelPlan(
                (*padded_input.dispatches, dispatch), padded_input.scratch, tables
            )
        total = out.numel
        sum_pass = ReductionPass(
            target,
            BufferRef("out"),
            (KeptAxes(total, 1, 1),),
            (ReducedAxes(parts, total),),
        )
        sum_dispatch = pass_dispatch("sum", sum_pass, element_type_include(out.dtype))
        scratch = (
            *padded_input.scratch,
            ScratchBuffer(parts * total, compute_scalar(out.dtype)),
        )
        return KernelPlan(
            (*padded_input.dispatches, dispatch, sum_dispatch), scratch, tables
        )

    return build_plan


def _fits_one_binding(
    conv: ConvolutionShape, x: TensorType, out: TensorType, limits: Limits
) -> bool:
    """Return whether all padded images, and all results, fit one binding."""
    windows = conv.windows
    extents = windows.spatial_shape if windows.is_inside else windows.extents
    input_nbytes = conv.batch * x.shape[1] * numel(extents) * x.dtype.nbytes
    return max(input_nbytes, out.nbytes) <= limits.max_storage_buffer_binding_size


def _tap_offsets(
    conv: ConvolutionShape, padded_input: PaddedInput
) -> np.ndarray[Any, Any]:
    """Return the offset of each term of the sum from its window's first element."""
    strides = conv_strides(conv, padded_input.extents)[0][6:]
    offsets = np.zeros((), np.int64)
    for size, stride in zip(
        (conv.channels[0], *conv.windows.kernel), strides, strict=True
    ):
        offsets = offsets[..., None] + np.arange(size) * stride
    return offsets.reshape(-1).astype(np.int32)


def _gemm_dispatch(
    conv: ConvolutionShape,
    images: int,
    kernel: BlockedMatmulKernel,
    padded_input: PaddedInput,
    sum_split: tuple[int, int, TensorType],
    target: BufferRef,
) -> KernelDispatch:
    """Return the dispatch of the product. `images`: number in one product; `sum_split`:
    parts of the sum, terms of one part, type of the result.
    """
    parts, part_length, out = sum_split
    (c, m), w = conv.channels, conv.windows
    positions, k = numel(w.out_shape), c * numel(w.kernel)
    x, _, z = conv_strides(conv, padded_input.extents)
    other_images = images - 1
    read_span = other_images * x[0] + c * numel(padded_input.extents)
    zeros = (0, 0, 0)
    strides = (
        (0, 0, 0, m * k, k, 0, 1),
        (0, 0, x[0], x[1], *zeros),
        (out.numel, 0, z[0], z[1], z[2], 0, 0),
        (0,) * 7,
    )
    uniforms = {
        f"{letter}_b{i}": operand_strides[1 + i]
        for letter, operand_strides in zip("xyz", strides, strict=False)
        for i in range(3)
    }
    uniforms |= {
        "length": part_length,
        "z_part": out.numel,
        **_stride_uniforms(w, k, x, z),
    }
    return KernelDispatch(
        "conv_blocks",
        axes=(
            IterationAxis("part", parts, "whole"),
            IterationAxis("b0", 1),
            IterationAxis("b1", conv.batch // images),
            IterationAxis("b2", conv.groups),
            IterationAxis("m", m),
            IterationAxis("n", images * positions, "whole"),
            IterationAxis("k", k, "whole"),
        ),
        accesses=(
            OperandAccess(BufferRef("in", 1), strides[0]),
            OperandAccess(padded_input.ref, strides[1], span=read_span),
            OperandAccess(
                target, strides[2], "write", span=other_images * z[0] + positions
            ),
            OperandAccess(BufferRef("table"), strides[3], span=k),
        ),
        grid=(
            ("part", 1),
            *((name, 1) for name in ("b0", "b1", "b2")),
            ("m", kernel.side),
            ("n", kernel.side),
        ),
        item_unit="workgroup",
        workgroup_size=kernel.lanes,
        uniforms=uniforms,
        # matmul_f32, matmul_i32 or matmul_u32
        uses=(f"matmul_{compute_scalar(out.dtype)}", "block", "conv_blocks"),
        source=kernel.source(),
        shared_bytes=kernel.shared_bytes,
        iterations=loop_iterations(part_length) / max(1, k),
        epilogue_site="stores" if parts == 1 else "",
    )


def _stride_uniforms(
    w: SlidingWindows, k: int, x: tuple[int, ...], z: tuple[int, ...]
) -> dict[str, int]:
    """Return the uniforms with the strides between rows of the weights and the result,
    between images, and between windows.
    """
    positions = numel(w.out_shape)
    row_uniforms = {"x_row": k, "x_k": 1, "z_row": positions, "places": positions}
    image_uniforms = {
        "y_image": x[0],
        "z_image": z[0],
        "o1": w.out_shape[1],
        "o2": w.out_shape[2],
    }
    return (
        row_uniforms
        | image_uniforms
        | {f"s{i}": stride for i, stride in enumerate(x[3:6])}
    )
