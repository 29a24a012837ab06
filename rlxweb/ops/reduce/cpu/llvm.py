"""LLVM kernels that reduce floats along one axis: sum, product, largest, smallest.

Sums and products are kept in double precision; of the extremes a NaN is one.
"""

from __future__ import annotations

from functools import reduce
from typing import Final

from rlxweb.codegen.llvm_builder import (
    TYPE_NBYTES,
    IntValue,
    IRBuilder,
    Value,
    VectorType,
)
from rlxweb.codegen.llvm_row_reduction import (
    MAXIMUM,
    MINIMUM,
    PRODUCT,
    SUM,
    ReductionOp,
    reduce_elements,
)
from rlxweb.codegen.native_calls import job_wrapper_llvm_ir

REDUCTION_OPS: Final = {"sum": SUM, "prod": PRODUCT, "max": MAXIMUM, "min": MINIMUM}
SIGNATURE: Final = (
    "void @reduce(ptr %x, ptr noalias %out, i64 %outer, i64 %count, i64 %inner, "
    "i64 %each, ptr %taken)"
)
"""LLVM signature: reduces x [outer, count, inner] along its middle axis into out
[outer, inner].

out is of the fold's own kind of number. Lines (inner is 1) are taken `each` at a time
by the threads that call it together, columns `each` side by side: there out begins as
what changes nothing.
"""
_ROWS_PER_GROUP: Final = 8


def axis_reduction_llvm_ir(op: str, along_rows: bool, nbytes: int) -> str:
    """Return the LLVM IR of an op's reduction for vectors of `nbytes` bytes."""
    ir = IRBuilder(SIGNATURE, VectorType("float", nbytes // 4))
    reduction_op = REDUCTION_OPS[op]
    (_emit_row_reduction if along_rows else _emit_column_reduction)(ir, reduction_op)
    ir.emit("ret void")
    return ir.text + job_wrapper_llvm_ir(SIGNATURE)


def _emit_row_reduction(ir: IRBuilder, reduction_op: ReductionOp) -> None:
    def reduce_row(row: IntValue) -> None:
        x = ir.element_pointer("%x", ir.multiply_int(row, "%count"))
        result = reduce_elements(
            ir, "%count", lambda j: ir.load(ir.element_pointer(x, j)), reduction_op
        )
        _store_accumulators(
            ir,
            reduction_op,
            0,
            result,
            ir.element_pointer("%out", row, reduction_op.accumulator_type),
        )

    ir.parallel_loop("%each", "%outer", reduce_row)


def _store_accumulators(
    ir: IRBuilder, reduction_op: ReductionOp, lanes: int, value: Value, pointer: Value
) -> None:
    stored_type = (
        f"<{lanes} x {reduction_op.accumulator_type}>"
        if lanes
        else reduction_op.accumulator_type
    )
    ir.emit(
        f"store {stored_type} {value}, ptr {pointer}, align "
        f"{TYPE_NBYTES[reduction_op.accumulator_type]}"
    )


def _emit_column_reduction(ir: IRBuilder, reduction_op: ReductionOp) -> None:
    """Combine some rows at a time with the columns' accumulators: memory is read in
    order.
    """
    padded_length = ir.subtract_int(ir.add_int("%inner", "%each"), 1)
    shares = ir.emit_value(f"udiv i64 {padded_length}, %each")

    def reduce_share(begin: Value) -> None:
        block = ir.emit_value(f"udiv i64 {begin}, {shares}")
        share = ir.emit_value(f"urem i64 {begin}, {shares}")
        first = ir.multiply_int(share, "%each")
        width = ir.min_int("%each", ir.subtract_int("%inner", first))
        offset = ir.add_int(
            ir.multiply_int(ir.multiply_int(block, "%count"), "%inner"), first
        )
        x = ir.element_pointer("%x", offset)
        out = ir.element_pointer(
            "%out",
            ir.add_int(ir.multiply_int(block, "%inner"), first),
            reduction_op.accumulator_type,
        )
        groups = ir.emit_value(f"udiv i64 %count, {_ROWS_PER_GROUP}")
        done = ir.multiply_int(groups, _ROWS_PER_GROUP)

        def combine_rows(first_row: IntValue, row_count: int) -> None:
            starts = [
                ir.element_pointer(
                    x, ir.multiply_int(ir.add_int(first_row, k), "%inner")
                )
                for k in range(row_count)
            ]
            ir.vector_loop(
                width, lambda j: _combine_rows(ir, reduction_op, starts, out, j)
            )

        ir.loop(
            groups,
            lambda i: combine_rows(
                ir.multiply_int(i, _ROWS_PER_GROUP), _ROWS_PER_GROUP
            ),
        )
        remaining = ir.subtract_int("%count", done)
        ir.loop(remaining, lambda i: combine_rows(ir.add_int(done, i), 1))

    ir.claim_loop("%taken", 1, ir.multiply_int("%outer", shares), reduce_share)


def _combine_rows(
    ir: IRBuilder,
    reduction_op: ReductionOp,
    starts: list[Value],
    out: Value,
    j: IntValue,
) -> None:
    lanes = ir.vector_type.lanes
    vector = ir.vector_type.llvm_type
    accumulator_vector = f"<{lanes} x {reduction_op.accumulator_type}>"
    pointer = ir.element_pointer(out, j, reduction_op.accumulator_type)
    accumulator = ir.emit_value(
        f"load {accumulator_vector}, ptr {pointer}, align "
        f"{TYPE_NBYTES[reduction_op.accumulator_type]}"
    )
    values = [ir.load(ir.element_pointer(start, j)) for start in starts]
    if reduction_op.accumulator_type != ir.vector_type.element_type:
        values = [
            ir.emit_value(f"fpext {vector} {value} to {accumulator_vector}")
            for value in values
        ]
    if reduction_op.comparison and len(values) > 1:
        values = [_combine_extremes(ir, reduction_op, values)]
    for value in values:
        accumulator = reduction_op.combine(ir, accumulator, value, lanes)
    _store_accumulators(ir, reduction_op, lanes, accumulator, pointer)


def _combine_extremes(
    ir: IRBuilder, reduction_op: ReductionOp, vectors: list[Value]
) -> Value:
    """Return the extremes of some vectors, NaN in the lanes where one of them is
    NaN.
    """
    vector = ir.vector_type.llvm_type
    mask = ir.vector_type.llvm_mask_type
    lanes = ir.vector_type.lanes
    best = reduce(lambda a, b: reduction_op.combine_numbers(ir, a, b, lanes), vectors)
    pairs = zip(vectors[::2], vectors[1::2], strict=True)
    nan_masks = [ir.emit_value(f"fcmp uno {vector} {a}, {b}") for a, b in pairs]
    any_nan = reduce(lambda a, b: ir.emit_value(f"or {mask} {a}, {b}"), nan_masks)
    nan = ir.vector_type.splat(float("nan"))
    return ir.emit_value(f"select {mask} {any_nan}, {vector} {nan}, {vector} {best}")
