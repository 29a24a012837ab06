"""Gather and scatter by one index per element or by index tuples, as in ONNX and
PyTorch.

A negative index counts from the end of its axis; one outside is refused on every
device. What is put in at one place several times is put in in order: the last one wins,
and a sum is that of NumPy. The kernels of a GPU are planned in
`wgsl/scatter.py`. No device is known here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from rlxweb.ir import value_range_rules
from rlxweb.ir.dtype import DType
from rlxweb.ir.layout import row_major_strides
from rlxweb.ir.lowering import Kernel, KernelPlan
from rlxweb.ir.op import (
    Attr,
    Attrs,
    Op,
    TensorType,
    Types,
    ValueGuard,
    no_flops,
    registry,
)
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape_arithmetic import (
    Shape,
    bad_attribute,
    bad_shape,
    format_shape,
    normalize_axis,
    numel,
)
from rlxweb.ir.tensor import Tensor
from rlxweb.ir.vmap_batching import BatchContext, batch_axes_rule
from rlxweb.ops.elementwise.op import NUMERIC_DTYPES, common_dtype, require_dtypes
from rlxweb.ops.gather.index_validation import (
    as_int64,
    as_take_indices,
    first_invalid_index,
    invalid_index_error,
    require_index_dtype,
)
from rlxweb.ops.gather.reference_scatter import scatter_combine, scatter_last
from rlxweb.ops.gather.vjp import indexed_gather_vjp, indexed_scatter_vjp
from rlxweb.ops.gather.wgsl.scatter import COMBINE_EXPRESSIONS, GatherScatterSpec
from rlxweb.ops.reduce.op import SUM_TOLERANCE

REDUCTIONS = tuple(COMBINE_EXPRESSIONS)
IndexingRule = Callable[[Shape, Shape, DType, Attrs], GatherScatterSpec]
"""Rule that describes how indices name rows: (operand shape, index shape, index dtype,
attributes) → the indexing.
"""


def _elementwise_indexing(
    shape: Shape, index_shape: Shape, index_dtype: DType, attrs: Attrs
) -> GatherScatterSpec:
    """Describe indexing with one index per element, where all axes but one agree.
    Errors  ShapeError.
    """
    if not shape or len(index_shape) != len(shape):
        raise bad_shape(
            f"got indices of rank {len(index_shape)} for an operand of rank "
            f"{len(shape)}",
            "the indices and the operand must have the same rank, at least 1",
            "use `take` to select whole rows by indices of any rank",
        )
    axis = normalize_axis(attrs["axis"], len(shape))
    for a, (index_size, operand_size) in enumerate(
        zip(index_shape, shape, strict=True)
    ):
        if a != axis and index_size != operand_size:
            raise bad_shape(
                f"got indices {format_shape(index_shape)} along axis {axis} of "
                f"{format_shape(shape)}",
                f"axis {a} has size {index_size} in the indices and {operand_size} in "
                "the operand",
                "pass indices whose size equals the operand's on every axis except "
                f"axis {axis}; the methods graph.gather_elements and "
                "graph.scatter_elements also accept smaller sizes on those axes",
            )
    outer, inner = numel(shape[:axis]), numel(shape[axis + 1 :])
    indexing = GatherScatterSpec(
        outer, (shape[axis],), inner, index_shape[axis], True, index_dtype
    )
    return _check_rows_exist(indexing, index_shape, shape)


def _tuple_indexing(
    shape: Shape, index_shape: Shape, index_dtype: DType, attrs: Attrs
) -> GatherScatterSpec:
    """Describe indexing by tuples along the last axis of the indices. Errors
    ShapeError, AttributeRefused.
    """
    batch_dims = attrs["batch_dims"]
    if (
        not index_shape
        or not 0 <= batch_dims < len(index_shape)
        or batch_dims > len(shape)
    ):
        raise bad_attribute(
            f"batch_dims={batch_dims} with indices {format_shape(index_shape)} and an "
            f"operand {format_shape(shape)}",
            "expected 0 <= batch_dims < rank of the indices, and batch_dims <= rank "
            "of the operand",
        )
    if index_shape[:batch_dims] != shape[:batch_dims]:
        raise bad_shape(
            f"got indices {format_shape(index_shape)} for an operand "
            f"{format_shape(shape)}",
            "the indices and the operand must have equal sizes on the first "
            f"batch_dims={batch_dims} axes",
        )
    tuple_length = index_shape[-1]
    if not 1 <= tuple_length <= len(shape) - batch_dims:
        raise bad_shape(
            f"the last axis of the indices {format_shape(index_shape)} holds indices "
            f"for {tuple_length} axes",
            f"expected at least 1 axis and at most {len(shape) - batch_dims}, the "
            f"number of axes of the operand {format_shape(shape)} after the batch "
            "axes",
        )
    dims = shape[batch_dims : batch_dims + tuple_length]
    row_shape = shape[batch_dims + tuple_length :]
    indexing = GatherScatterSpec(
        numel(shape[:batch_dims]),
        dims,
        numel(row_shape),
        numel(index_shape[batch_dims:-1]),
        False,
        index_dtype,
    )
    return _check_rows_exist(indexing, index_shape, shape)


def _check_rows_exist(
    indexing: GatherScatterSpec, index_shape: Shape, shape: Shape
) -> GatherScatterSpec:
    """Return the indexing unless there are indices but no rows to index. Errors
    ShapeError.
    """
    if not indexing.rows and numel(index_shape):
        raise bad_shape(
            f"the indexed axes have the sizes {format_shape(indexing.indexed_dims)}",
            f"got {numel(index_shape)} indices, but an empty axis has no valid index",
        )
    return indexing


def _reshape_indices(
    xp: Any, indexing: GatherScatterSpec, indices: Any
) -> tuple[Any, Any]:
    """Return the indices as (outer, count, K, inner or 1) and the sizes of the K
    indexed axes.
    """
    last = indexing.inner if indexing.is_elementwise else 1
    shape = (indexing.outer, indexing.count, len(indexing.indexed_dims), last)
    sizes = xp.reshape(
        xp.asarray(np.asarray(indexing.indexed_dims, np.int64)), (1, 1, -1, 1)
    )
    return xp.reshape(as_int64(xp, indices), shape), sizes


def _row_numbers(xp: Any, indexing: GatherScatterSpec, indices: Any) -> Any:
    """Return the flat row numbers that the indices name: (outer, count, inner or 1)."""
    split_indices, sizes = _reshape_indices(xp, indexing, indices)
    normalized_indices = xp.where(
        split_indices < 0, split_indices + sizes, split_indices
    )
    rows = xp.reshape(xp.arange(indexing.outer), (indexing.outer, 1, 1)) * indexing.rows
    for k, stride in enumerate(row_major_strides(indexing.indexed_dims)):
        rows = rows + normalized_indices[:, :, k, :] * stride
    return rows


def _flat_positions(xp: Any, indexing: GatherScatterSpec, indices: Any) -> Any:
    """Return the flat operand positions of all elements that the indices name."""
    inner = xp.reshape(xp.arange(indexing.inner), (1, 1, indexing.inner))
    positions = _row_numbers(xp, indexing, indices) * indexing.inner + inner
    count = indexing.outer * indexing.count * indexing.inner
    position_count = indexing.outer * indexing.rows * indexing.inner
    return as_take_indices(xp, xp.reshape(positions, (count,)), position_count)


def _first_invalid_index(
    indexing_rule: IndexingRule, xp: Any, attrs: Attrs, x: Any, indices: Any, *rest: Any
) -> Any:
    """Return the position and value of the first index out of range, or -1."""
    indexing = indexing_rule(tuple(x.shape), tuple(indices.shape), DType.I64, attrs)
    split_indices, sizes = _reshape_indices(xp, indexing, indices)
    return first_invalid_index(
        xp, (split_indices < -sizes) | (split_indices >= sizes), indices
    )


def _raise_if_invalid(
    name: str,
    indexing_rule: IndexingRule,
    shapes: Sequence[Shape],
    attrs: Attrs,
    first_invalid: Sequence[int],
) -> None:
    """Raise IndexRefused if an index is out of range."""
    if first_invalid[0] < 0:
        return
    shape, index_shape = shapes[:2]
    indexing = indexing_rule(shape, index_shape, DType.I64, attrs)
    k = (
        first_invalid[0] % len(indexing.indexed_dims)
        if not indexing.is_elementwise
        else 0
    )
    first_axis = (
        attrs["axis"] % len(shape) if indexing.is_elementwise else attrs["batch_dims"]
    )
    size = indexing.indexed_dims[k]
    axis_label = f"axis {first_axis + k} of {format_shape(shape)}"
    raise invalid_index_error(
        name, index_shape, (first_invalid[0], first_invalid[1]), -size, size, axis_label
    )


def _guarded_index_op(
    name: str,
    indexing_rule: IndexingRule,
    compute: Callable[..., Any],
    **op_fields: Any,
) -> Op:
    """Return the record of an op whose indices are validated before it runs."""

    def reference(xp: Any, attrs: Attrs, *arrays: Any) -> Any:
        first_invalid = _first_invalid_index(indexing_rule, xp, attrs, *arrays)
        shapes = tuple(tuple(array.shape) for array in arrays)
        _raise_if_invalid(
            name,
            indexing_rule,
            shapes,
            attrs,
            (int(first_invalid[0]), int(first_invalid[1])),
        )
        return compute(indexing_rule, xp, attrs, *arrays)

    guard = ValueGuard(
        partial(_first_invalid_index, indexing_rule),
        partial(_raise_if_invalid, name, indexing_rule),
        partial(compute, indexing_rule),
    )
    return Op(name=name, reference=reference, guard=guard, flops=no_flops, **op_fields)


def _gather_unchecked(
    indexing_rule: IndexingRule, xp: Any, attrs: Attrs, x: Any, indices: Any
) -> Any:
    """Gather elements or rows without an index check."""
    shape, index_shape = tuple(x.shape), tuple(indices.shape)
    indexing = indexing_rule(shape, index_shape, DType.I64, attrs)
    if indexing.is_elementwise:
        flat = xp.reshape(x, (numel(shape),))
        gathered_values = xp.take(flat, _flat_positions(xp, indexing, indices), axis=0)
    else:
        row_count = indexing.outer * indexing.rows
        rows = xp.reshape(
            _row_numbers(xp, indexing, indices), (indexing.outer * indexing.count,)
        )
        table = xp.reshape(x, (row_count, indexing.inner))
        gathered_values = xp.take(table, as_take_indices(xp, rows, row_count), axis=0)
    return xp.reshape(
        gathered_values, _gather_shape(shape, index_shape, indexing, attrs)
    )


def _gather_shape(
    shape: Shape, index_shape: Shape, indexing: GatherScatterSpec, attrs: Attrs
) -> Shape:
    """Return the shape of the gathered result."""
    if indexing.is_elementwise:
        return index_shape
    return (*index_shape[:-1], *shape[attrs["batch_dims"] + index_shape[-1] :])


def _infer_gather(
    indexing_rule: IndexingRule, types: Types, attrs: Attrs
) -> TensorType:
    x, indices = types
    require_index_dtype(indices)
    indexing = indexing_rule(x.shape, indices.shape, indices.dtype, attrs)
    return TensorType(_gather_shape(x.shape, indices.shape, indexing, attrs), x.dtype)


def _plan_gather(
    indexing_rule: IndexingRule, types: Types, out: TensorType, attrs: Attrs
) -> KernelPlan:
    x, indices = types
    return indexing_rule(x.shape, indices.shape, indices.dtype, attrs).plan_gather()


def _infer_scatter(
    indexing_rule: IndexingRule, types: Types, attrs: Attrs
) -> TensorType:
    x, indices, values = types
    require_index_dtype(indices)
    dtype = common_dtype((x, values))
    if attrs["reduction"] != "none":
        require_dtypes((x,), NUMERIC_DTYPES)
    indexing = indexing_rule(x.shape, indices.shape, indices.dtype, attrs)
    expected_shape = _gather_shape(x.shape, indices.shape, indexing, attrs)
    if values.shape != expected_shape:
        raise bad_shape(
            f"got values {format_shape(values.shape)} for indices "
            f"{format_shape(indices.shape)}",
            f"expected values {format_shape(expected_shape)}",
            "expand the values",
        )
    return TensorType(x.shape, dtype)


def _plan_scatter(
    indexing_rule: IndexingRule, types: Types, out: TensorType, attrs: Attrs
) -> KernelPlan:
    x, indices, _ = types
    indexing = indexing_rule(x.shape, indices.shape, indices.dtype, attrs)
    return indexing.plan_scatter(attrs["reduction"], x.dtype)


def _scatter_unchecked(
    indexing_rule: IndexingRule,
    xp: Any,
    attrs: Attrs,
    x: Any,
    indices: Any,
    values: Any,
) -> Any:
    """Scatter values into a copy of the operand without an index check."""
    shape = tuple(x.shape)
    count = numel(values.shape)
    if not count:
        return x
    indexing = indexing_rule(shape, tuple(indices.shape), DType.I64, attrs)
    positions = _flat_positions(xp, indexing, indices)
    flat, updates = xp.reshape(x, (numel(shape),)), xp.reshape(values, (count,))
    if attrs["reduction"] == "none":
        result = scatter_last(xp, flat, positions, updates)
    else:
        result = scatter_combine(xp, flat, positions, updates, attrs["reduction"])
    return xp.reshape(result, shape)


# --- the records ------------------------------------------------------------------


def _case(
    shape: Shape,
    index_spec: tuple[Shape, int],
    dtype: DType,
    index_dtype: DType,
    scatter_spec: tuple[str, Shape, float],
    **attrs: Any,
) -> Sample:
    """Return a sample with indices of axes of one size, negative ones included, and the
    values to scatter.

    index_spec  the shape of the indices and the size
    scatter_spec  how, "" for nothing; the shape of the values and the largest of them
    """
    (index_shape, size), (reduction, values, max_value) = index_spec, scatter_spec
    drawn = [
        Drawn(shape, dtype, -9, 9, whole=True),
        Drawn(index_shape, index_dtype, -size, size - 1, whole=True),
    ]
    if reduction:
        drawn.append(Drawn(values, dtype, -max_value, max_value, whole=True))
        attrs["reduction"] = reduction
    return Sample(tuple(drawn), attrs)


def _element_case(
    shape: Shape,
    count: int,
    axis: int = 0,
    dtype: DType = DType.F32,
    index_dtype: DType = DType.I32,
    reduction: str = "",
) -> Sample:
    """Return a sample with `count` indices for each line along an axis."""
    positive_axis = axis % len(shape)
    index_shape = (*shape[:positive_axis], count, *shape[positive_axis + 1 :])
    # A place is often named several times; a product of many would not stay small.
    max_value = 2 if reduction == "mul" else 9
    return _case(
        shape,
        (index_shape, shape[positive_axis]),
        dtype,
        index_dtype,
        (reduction, index_shape, max_value),
        axis=axis,
    )


def _tuple_case(
    shape: Shape,
    index_shape: Shape,
    batch_dims: int = 0,
    dtype: DType = DType.F32,
    index_dtype: DType = DType.I32,
    reduction: str = "",
) -> Sample:
    """Return a sample whose indices are tuples along the last axis."""
    indexed_sizes = shape[batch_dims : batch_dims + index_shape[-1]]
    row_shape = shape[batch_dims + index_shape[-1] :]
    values = (*index_shape[:-1], *row_shape)
    scatter_spec = (reduction, values, 2)
    return _case(
        shape,
        (index_shape, min(indexed_sizes)),
        dtype,
        index_dtype,
        scatter_spec,
        batch_dims=batch_dims,
    )


_AXIS_ATTR, _BATCH_DIMS_ATTR = Attr("axis", "int", 0), Attr("batch_dims", "int", 0)
_REDUCTION_ATTR = Attr("reduction", "str", "none", allowed=REDUCTIONS)
_INDEX_DOC = "A negative index counts from the end; an index out of range is an error."
_SCATTER_DOC = (
    "A copy of the operand with values written at the indices. With "
    "reduction='none', the last of several values with the same index is kept; with "
    "add, mul, max and min, every value is combined with the element at its index, "
    "in order. "
)


def _batch_tuple_op(ctx: BatchContext) -> Tensor:
    """Apply an op that is indexed by tuples to a batch of examples."""
    operands = (ctx.batched_operand(i) for i in range(len(ctx.inputs)))
    return ctx.apply(*operands, batch_dims=ctx.attrs["batch_dims"] + 1)


_gather_op = partial(
    _guarded_index_op,
    compute=_gather_unchecked,
    arity=2,
    range_rule=value_range_rules.operand_hull(0),
)
_scatter_op = partial(
    _guarded_index_op,
    compute=_scatter_unchecked,
    arity=3,
    tolerance=SUM_TOLERANCE,
    range_rule=value_range_rules.SCATTER_RANGE,
)

registry.register_all(
    _gather_op(
        "gather_elements",
        _elementwise_indexing,
        infer=partial(_infer_gather, _elementwise_indexing),
        lower=Kernel(partial(_plan_gather, _elementwise_indexing)),
        attrs=(_AXIS_ATTR,),
        vjp=indexed_gather_vjp("scatter_elements"),
        batch=batch_axes_rule("axis"),
        samples=(
            _element_case((1,), 1),
            _element_case((3, 5), 7, 1),
            _element_case((3, 5, 2), 4, -2, DType.I32),
            _element_case((4, 3), 0),
            _element_case((0, 3), 2, 1),
            _element_case((2, 65_537), 1),
            _element_case((7, 3), 4, index_dtype=DType.U32),
            _element_case((7, 3), 4, index_dtype=DType.I64),
            _element_case((7, 3), 4, index_dtype=DType.U64),
            _element_case((4, 6), 5, 1, DType.BOOL),
            _element_case((4, 6), 5, 1, DType.F16),
        ),
        calibration_cases=(
            _element_case((16, 4), 16),
            _element_case((1024, 128), 1024),
        ),
        doc="Elements selected by one index each along one axis, like "
        "numpy.take_along_axis and PyTorch's gather; on all other axes, the operand "
        f"and the indices must have equal sizes. {_INDEX_DOC}",
    ),
    _gather_op(
        "gather_nd",
        _tuple_indexing,
        infer=partial(_infer_gather, _tuple_indexing),
        lower=Kernel(partial(_plan_gather, _tuple_indexing)),
        attrs=(_BATCH_DIMS_ATTR,),
        vjp=indexed_gather_vjp("scatter_nd"),
        batch=_batch_tuple_op,
        samples=(
            _tuple_case((1,), (1,)),
            _tuple_case((4, 5, 3), (7, 2)),
            _tuple_case((2, 4, 5), (2, 3, 1), 1, DType.I32),
            _tuple_case((3, 4, 5), (2, 3, 3), index_dtype=DType.I64),
            _tuple_case((3, 0), (2, 1)),
            _tuple_case((3, 65_537), (1, 1)),
            _tuple_case((3, 5), (4, 2), dtype=DType.BOOL, index_dtype=DType.U32),
        ),
        calibration_cases=(
            _tuple_case((8, 8), (16, 2)),
            _tuple_case((64, 64, 32), (4096, 2)),
        ),
        onnx=("GatherND",),
        doc="Rows of the operand, each selected by a tuple of indices. The last axis "
        "of the indices holds tuples of K indices; each tuple indexes the K axes of "
        "the operand that follow the batch axes, the first `batch_dims` axes of both "
        f"operands. {_INDEX_DOC}",
    ),
    _scatter_op(
        "scatter_elements",
        _elementwise_indexing,
        infer=partial(_infer_scatter, _elementwise_indexing),
        lower=Kernel(partial(_plan_scatter, _elementwise_indexing)),
        attrs=(_AXIS_ATTR, _REDUCTION_ATTR),
        vjp=indexed_scatter_vjp("gather_elements", "scatter_elements"),
        batch=batch_axes_rule("axis"),
        samples=(
            _element_case((1,), 1, reduction="none"),
            _element_case((3, 5), 9, 1, reduction="none"),
            _element_case((3, 5), 9, 1, reduction="add"),
            _element_case((3, 5, 2), 4, -2, DType.I32, reduction="mul"),
            _element_case((3, 5), 4, 1, DType.F16, reduction="max"),
            _element_case((5, 3), 4, 0, DType.I32, DType.I64, reduction="min"),
            _element_case((4, 3), 0, reduction="add"),
            _element_case((0, 3), 2, 1, reduction="none"),
            _element_case((2, 65_537), 1, reduction="add"),
            _element_case((7, 3), 4, 0, DType.BOOL, DType.U32, reduction="none"),
            _element_case((1500,), 2100, reduction="add"),
        ),
        calibration_cases=tuple(
            _element_case(s, s[0], reduction="add") for s in ((16, 4), (256, 512))
        ),
        doc=f"{_SCATTER_DOC}Each value has one index along one axis, like PyTorch's "
        "scatter; on all other axes, the operand and the indices must have equal "
        f"sizes. {_INDEX_DOC}",
    ),
    _scatter_op(
        "scatter_nd",
        _tuple_indexing,
        infer=partial(_infer_scatter, _tuple_indexing),
        lower=Kernel(partial(_plan_scatter, _tuple_indexing)),
        attrs=(_BATCH_DIMS_ATTR, _REDUCTION_ATTR),
        vjp=indexed_scatter_vjp("gather_nd", "scatter_nd"),
        batch=_batch_tuple_op,
        samples=(
            _tuple_case((1,), (1,), reduction="none"),
            _tuple_case((4, 5, 3), (7, 2), reduction="add"),
            _tuple_case((2, 4, 5), (2, 6, 1), 1, DType.I32, reduction="none"),
            _tuple_case((3, 3, 5), (2, 3, 2), reduction="mul", index_dtype=DType.I64),
            _tuple_case((3, 5), (4, 1), reduction="max"),
            _tuple_case(
                (3, 5), (4, 1), reduction="min", dtype=DType.U32, index_dtype=DType.U32
            ),
            _tuple_case((3, 0), (2, 1), reduction="none"),
            _tuple_case((3, 65_537), (1, 1), reduction="none"),
        ),
        calibration_cases=(
            _tuple_case((8, 8), (16, 1), reduction="add"),
            _tuple_case((512, 256), (512, 1), reduction="add"),
        ),
        doc=f"{_SCATTER_DOC}The last axis of the indices holds tuples of K indices; "
        "each tuple indexes the K axes of the operand that follow its first "
        f"`batch_dims` axes, the batch axes. {_INDEX_DOC}",
    ),
)
