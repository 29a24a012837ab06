"""Epilogues: elementwise work fused into the kernel that stores the values, such as a
dense layer in one dispatch.

The nodes after a product or a reduction become an Epilogue, and a plan whose dispatches
say that they take one gets it put in. Nothing is written to memory in between, and the
answer is the same to the bit: the region would have loaded what the kernel stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rlxweb.codegen.elementwise_wgsl import region_body
from rlxweb.ir.dtype import PACKED_DTYPES, DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.layout import Layout
from rlxweb.ir.lowering import (
    BufferRef,
    Epilogue,
    EpilogueOperand,
    KernelDispatch,
    KernelPlan,
    OperandAccess,
)
from rlxweb.ir.shape_arithmetic import numel

# A longer text costs the driver's compiler more than a dispatch costs the run.
MAX_EPILOGUE_NODES = 24
# The includes of calls that end with their sums, and those that do more.
_TILE_INCLUDES = {
    "finish_none": "finish_tile",
    "conv_finish_none": "conv_finish_tile",
}


def build_epilogue(
    graph: Graph, ids: Sequence[int], reads: Sequence[tuple[int, Layout]]
) -> Epilogue | None:
    """Return the nodes after `ids[0]`, the kernel's, as its epilogue; None if that is
    not possible.

    reads   the other nodes they read, with the layouts they are read through
    """
    kernel, last = graph.node(ids[0]), graph.node(ids[-1])
    shape, dtype = kernel.type.shape, kernel.type.dtype
    fits = len(ids) - 1 <= MAX_EPILOGUE_NODES and 0 not in shape and bool(shape)
    if not fits or last.type != kernel.type or dtype in PACKED_DTYPES:
        return None
    operands = [
        _epilogue_operand(graph.node(i).type.dtype, layout) for i, layout in reads
    ]
    supported = [operand for operand in operands if operand is not None]
    if len(supported) < len(operands):
        return None
    loads = {ids[0]: "r0"} | {i: f"r{k + 1}" for k, (i, _) in enumerate(reads)}
    body = region_body(graph, ids[1:], loads)
    lines, includes = tuple(body.lines), body.includes
    if dtype is DType.F16:  # as it would have been stored
        lines, includes = ("  let r0 = half(v);", *lines), tuple({*includes, "half"})
    else:
        lines = ("  let r0 = v;", *lines)
    uniforms = tuple(body.uniforms.items())
    return Epilogue(lines, body.result, includes, uniforms, tuple(supported), shape[-1])


def _epilogue_operand(dtype: DType, layout: Layout) -> EpilogueOperand | None:
    """Return how an operand maps to the output, whose shape its layout has; None if
    unsupported.
    """
    nontrivial_axes = [
        (n, s) for n, s in zip(layout.shape, layout.strides, strict=True) if n > 1
    ]
    if not any(s for _, s in nontrivial_axes):
        return EpilogueOperand("one", dtype, 1)
    row_length = layout.shape[-1]
    if layout.without_offset.is_dense:
        return EpilogueOperand("same", dtype, numel(layout.shape))
    *outer, (size, stride) = nontrivial_axes
    if size == row_length and stride == 1 and not any(s for _, s in outer):
        return EpilogueOperand("row", dtype, row_length)
    rows = Layout(layout.shape[:-1], layout.strides[:-1])
    if layout.strides[-1] == 0 and rows.is_dense:
        return EpilogueOperand("column", dtype, numel(rows.shape))
    return _channel_operand(dtype, layout)


def _channel_operand(dtype: DType, layout: Layout) -> EpilogueOperand | None:
    """Return an operand that varies along one axis of the output only, or None."""
    merged = layout.coalesce(Layout.dense(layout.shape))[0]
    moving_axes = [axis for axis, stride in enumerate(merged.strides) if stride]
    if len(moving_axes) != 1 or merged.strides[moving_axes[0]] != 1:
        return None
    inner = numel(merged.shape[moving_axes[0] + 1 :])
    return EpilogueOperand("channel", dtype, merged.shape[moving_axes[0]], inner)


def apply_epilogue(
    plan: KernelPlan, epilogue: Epilogue, input_count: int, max_bindings: int
) -> KernelPlan | None:
    """Return the plan with the epilogue in every dispatch that writes the output.

    input_count  operands of the op: the sides are numbered after them
    max_bindings  storage buffers a shader may bind

    None where a call does not take one.
    """
    dispatches = []
    for dispatch in plan.dispatches:
        output_accesses = [
            k for k, a in enumerate(dispatch.accesses) if a.ref.kind == "out"
        ]
        if not output_accesses:
            dispatches.append(dispatch)
            continue
        result = (
            _dispatch_with_epilogue(dispatch, output_accesses[0], epilogue, input_count)
            if len(output_accesses) == 1
            else None
        )
        if result is None or len(result.accesses) > max_bindings:
            return None
        dispatches.append(result)
    return replace(plan, dispatches=tuple(dispatches))


def _dispatch_with_epilogue(
    dispatch: KernelDispatch, output_access: int, epilogue: Epilogue, input_count: int
) -> KernelDispatch | None:
    """Return a dispatch with the epilogue in it, or None if it does not take one."""
    out = dispatch.accesses[output_access]
    is_vec4 = any(access.is_vec4 for access in dispatch.accesses)
    lengths = [
        epilogue.row_length,
        *(s.inner_stride for s in epilogue.operands if s.kind == "channel"),
    ]
    if (
        not dispatch.epilogue_site
        or is_vec4 != out.is_vec4
        or (is_vec4 and any(length % 4 for length in lengths))
    ):
        return None
    zero_strides = (0,) * len(dispatch.axes)
    accesses = list(dispatch.accesses)
    if dispatch.epilogue_site == "tile":  # what was stored is read again
        accesses[output_access] = replace(out, mode="update")
    for n, operand in enumerate(epilogue.operands):
        ref = BufferRef("in", input_count + n)
        if operand.kind == "same":
            accesses.append(replace(out, ref=ref, mode="read"))
        else:
            reads_vec4 = is_vec4 and operand.kind == "row"
            accesses.append(
                OperandAccess(ref, zero_strides, span=operand.numel, is_vec4=reads_vec4)
            )
    stride_uniforms = {
        f"finish_{axis.name}": stride
        for axis, stride in zip(dispatch.axes, out.strides, strict=True)
    }
    uniforms = {**dispatch.uniforms, **dict(epilogue.uniforms), **stride_uniforms}
    uniforms |= {"finish_line": epilogue.row_length, "finish_from": out.offset}
    for n, operand in enumerate(epilogue.operands):
        if operand.kind == "channel":
            inner = operand.inner_stride // 4 if is_vec4 else operand.inner_stride
            uniforms |= {f"finish_inner{n}": inner, f"finish_count{n}": operand.numel}
    # Whoever carries on from what a piece of the sum has left must find it as it was.
    includes = [_TILE_INCLUDES.get(include, include) for include in dispatch.uses]
    return replace(
        dispatch,
        axes=tuple(axis.as_whole_axis() for axis in dispatch.axes),
        accesses=tuple(accesses),
        uniforms=uniforms,
        uses=tuple(dict.fromkeys((*includes, *epilogue.uses))),
        epilogue=epilogue,
    )
