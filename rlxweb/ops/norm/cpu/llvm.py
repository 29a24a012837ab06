"""LLVM kernels that normalize rows of floats: softmax, layer norm, rms norm.

A line is read two or three times while it lies in the nearest cache. Sums are kept in
double precision; a NaN in a line makes all of it NaN, as in NumPy.

By hand, as `row_reduction_llvm.py` takes longer to be as exact far from zero: layer
norm of 1024 x 1024 0.29 ms for 0.19 ms, rms norm 0.16 for 0.15, softmax 0.32 for 0.33
(two cores of an AMD EPYC).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from rlxweb.codegen import llvm_math_functions
from rlxweb.codegen.llvm_builder import IntValue, IRBuilder, Value, VectorType
from rlxweb.codegen.llvm_row_reduction import (
    MAXIMUM,
    SUM,
    reduce_elements,
    sum_same_sign,
)
from rlxweb.codegen.native_calls import job_wrapper_llvm_ir

SIGNATURE: Final = (
    "void @lines(ptr %x, ptr %out, i64 %rows, i64 %n, "
    "ptr noalias %gamma, ptr noalias %beta, double %eps, ptr %taken, i64 %each)"
)
"""LLVM signature: `rows` rows of n floats, the output in place or elsewhere; softmax
reads no further arguments.

Threads that call it together take `each` rows at a time, and count them in `taken`.
"""


def row_normalization_llvm_ir(op: str, nbytes: int) -> str:
    """Return the LLVM IR of an op's kernel for vectors of `nbytes` bytes."""
    ir = IRBuilder(SIGNATURE, VectorType("float", nbytes // 4))
    emit_row: Callable[[IRBuilder, Value, Value], None] = _ROW_EMITTERS[op]

    def row(i: IntValue) -> None:
        offset = ir.multiply_int(i, "%n")
        emit_row(
            ir, ir.element_pointer("%x", offset), ir.element_pointer("%out", offset)
        )

    ir.parallel_loop("%each", "%rows", row)
    ir.emit("ret void")
    return ir.text + job_wrapper_llvm_ir(SIGNATURE)


def _softmax(ir: IRBuilder, x: Value, out: Value) -> None:
    # What a NaN does shows where it is subtracted.
    maximum = reduce_elements(
        ir, "%n", lambda i: ir.load(ir.element_pointer(x, i)), MAXIMUM, ignore_nan=True
    )

    def exponential(i: IntValue) -> Value:
        e = llvm_math_functions.exp_nonpositive(
            ir,
            ir.subtract_reals(ir.load(ir.element_pointer(x, i)), ir.broadcast(maximum)),
        )
        ir.store(e, ir.element_pointer(out, i))
        return e

    sum_ = sum_same_sign(ir, "%n", exponential)
    inverse = ir.emit_value(f"fdiv double 1.0, {sum_}")
    factor = ir.emit_value(f"fptrunc double {inverse} to float")

    def scale(i: IntValue) -> None:
        pointer = ir.element_pointer(out, i)
        ir.store(ir.multiply(ir.load(pointer), ir.broadcast(factor)), pointer)

    ir.vector_loop("%n", scale)


def _layer_norm(ir: IRBuilder, x: Value, out: Value) -> None:
    sum_ = reduce_elements(ir, "%n", lambda i: ir.load(ir.element_pointer(x, i)), SUM)
    mean = ir.emit_value(f"fdiv double {sum_}, {_emit_row_length(ir)}")
    rounded_mean = ir.emit_value(f"fptrunc double {mean} to float")

    def centred(i: IntValue) -> Value:
        return ir.subtract_reals(
            ir.load(ir.element_pointer(x, i)), ir.broadcast(rounded_mean)
        )

    # What the mean lost when it was rounded is in every element alike.
    def square(i: IntValue) -> Value:
        deviation = centred(i)
        return ir.multiply(deviation, deviation)

    rounding_error = ir.emit_value(
        f"fsub double {mean}, {ir.emit_value(f'fpext float {rounded_mean} to double')}"
    )
    sum_of_squares = sum_same_sign(ir, "%n", square)
    squares = ir.emit_value(f"fdiv double {sum_of_squares}, {_emit_row_length(ir)}")
    correction = ir.emit_value(f"fmul double {rounding_error}, {rounding_error}")
    variance = ir.emit_value(f"fsub double {squares}, {correction}")
    residual = ir.emit_value(f"fptrunc double {rounding_error} to float")
    _emit_normalized(
        ir,
        out,
        variance,
        lambda i: ir.subtract_reals(centred(i), ir.broadcast(residual)),
    )


def _rms_norm(ir: IRBuilder, x: Value, out: Value) -> None:
    def square(i: IntValue) -> Value:
        value = ir.load(ir.element_pointer(x, i))
        return ir.multiply(value, value)

    sum_of_squares = sum_same_sign(ir, "%n", square)
    squares = ir.emit_value(f"fdiv double {sum_of_squares}, {_emit_row_length(ir)}")
    _emit_normalized(ir, out, squares, lambda i: ir.load(ir.element_pointer(x, i)))


_ROW_EMITTERS: Final = {
    "softmax": _softmax,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
}


def _emit_normalized(
    ir: IRBuilder, out: Value, mean_square: Value, value: Callable[[IntValue], Value]
) -> None:
    """Store value / sqrt(square + eps) · gamma + beta in `out`."""
    stabilized = ir.emit_value(f"fadd double {mean_square}, %eps")
    root = ir.emit_value(f"call double @llvm.sqrt.f64(double {stabilized})")
    inverse = ir.emit_value(f"fdiv double 1.0, {root}")
    factor = ir.emit_value(f"fptrunc double {inverse} to float")

    def emit_vector(i: IntValue) -> None:
        normalized = ir.multiply(value(i), ir.broadcast(factor))
        gamma = ir.load(ir.element_pointer("%gamma", i))
        beta = ir.load(ir.element_pointer("%beta", i))
        ir.store(
            ir.add_reals(ir.multiply(normalized, gamma), beta),
            ir.element_pointer(out, i),
        )

    ir.vector_loop("%n", emit_vector)


def _emit_row_length(ir: IRBuilder) -> Value:
    return ir.emit_value("uitofp i64 %n to double")
