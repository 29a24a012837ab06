"""LLVM code of a row kernel: reductions along rows and the elementwise nodes around
them, from the ops' WGSL expressions.

An element's values are vectors, a row's are single numbers that are spread over a
vector where one is needed. What reduces is kept in the accumulators of
`llvm_row_reduction.py`: sums in double precision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from rlxweb.codegen import llvm_math_functions
from rlxweb.codegen.elementwise_llvm import emit_vector_load, emit_vector_store
from rlxweb.codegen.llvm_builder import IntValue, IRBuilder, Value, VectorType
from rlxweb.codegen.llvm_row_reduction import (
    MAXIMUM,
    MINIMUM,
    PRODUCT,
    SUM,
    reduce_elements,
    sum_same_sign,
)
from rlxweb.codegen.row_kernel import JOB_WORDS, RowKernel
from rlxweb.codegen.row_kernel_writer import RowKernelWriter, kernel_library
from rlxweb.codegen.wgsl_to_instructions import TypedValue
from rlxweb.codegen.wgsl_to_llvm import LlvmLowering
from rlxweb.core.errors import Unsupported

_SIGNATURE: Final = "void @rows_job(ptr noalias %job)"
_REDUCTIONS: Final = {
    "sum": SUM,
    "mean": SUM,
    "prod": PRODUCT,
    "max": MAXIMUM,
    "min": MINIMUM,
}
_SCALAR_TYPES: Final = {"F": "float", "I": "i32", "U": "i32", "B": "i1"}


def row_kernel_llvm_ir(
    kernel: RowKernel, is_scalar: Sequence[bool], nbytes: int
) -> str:
    """Return the code of @rows_job(job), which computes rows of elements.

    job      64-bit words: rows, elements of a row, address of the counter of rows that
             threads have claimed, rows that one claims at a time, addresses of the
             result and of each read, then their bytes from row to row
    is_scalar  which reads are one number for a whole row
    nbytes   of a vector
    Errors   Unsupported.
    """
    return _LlvmRowKernelWriter(kernel, is_scalar, nbytes).text()


class _LlvmRowKernelWriter(RowKernelWriter[IntValue]):
    """Writer of a row kernel in LLVM's language.

    n        elements of a row
    pointers  those of the row in work
    """

    lowering: LlvmLowering

    def __init__(
        self, kernel: RowKernel, is_scalar: Sequence[bool], nbytes: int
    ) -> None:
        self.ir = IRBuilder(_SIGNATURE, VectorType("float", nbytes // 4))
        lowering = LlvmLowering(self.ir, kernel_library(kernel))
        super().__init__(kernel, is_scalar, lowering)
        self.pointers: list[Value] = []
        self.n: Value = ""

    def text(self) -> str:
        """Return the module's code."""
        ir, count = self.ir, len(self.kinds)
        row_count, self.n, task_rows = (
            ir.load_element("%job", k, "i64") for k in (0, 1, 3)
        )
        claimed = ir.load_element("%job", 2, "ptr")
        bases = [ir.load_element("%job", JOB_WORDS + k, "ptr") for k in range(count)]
        strides = [
            ir.load_element("%job", JOB_WORDS + count + k, "i64") for k in range(count)
        ]

        def row(i: IntValue) -> None:
            self.pointers = [
                ir.element_pointer(base, ir.multiply_int(i, stride), "i8")
                for base, stride in zip(bases, strides, strict=True)
            ]
            self.emit_row()

        ir.parallel_loop(task_rows, row_count, row, claimed)
        ir.emit("ret void")
        return ir.text

    def _load_row_value(self, read: int) -> TypedValue:
        kind, pointer = self.kinds[1 + read], self.pointers[1 + read]
        if kind not in _SCALAR_TYPES:
            raise Unsupported("compile a row kernel", "a row's number is a float16")
        if kind != "B":
            return TypedValue(
                kind, self.ir.load_element(pointer, 0, _SCALAR_TYPES[kind])
            )
        byte = self.ir.load_element(pointer, 0, "i8")
        return TypedValue(kind, self.ir.emit_value(f"icmp ne i8 {byte}, 0"))

    def _load(self, array: int, index: IntValue) -> TypedValue:
        kind, pointer = self.kinds[array], self.pointers[array]
        return emit_vector_load(self.lowering, kind, pointer, index)

    def _store(self, value: TypedValue, index: IntValue) -> None:
        kind, pointer = self.kinds[0], self.pointers[0]
        emit_vector_store(self.lowering, value, kind, pointer, index)

    def _broadcast(self, row_value: TypedValue) -> TypedValue:
        kind = row_value.kind
        return TypedValue(kind, self.ir.broadcast(row_value.value, _SCALAR_TYPES[kind]))

    def _first_lane(self, vector: TypedValue) -> TypedValue:
        lanes, scalar_type = self.ir.vector_type.lanes, _SCALAR_TYPES[vector.kind]
        scalar = self.ir.emit_value(
            f"extractelement <{lanes} x {scalar_type}> {vector.value}, i64 0"
        )
        return TypedValue(vector.kind, scalar)

    def _for_each_vector(self, body: Callable[[IntValue], None]) -> None:
        self.ir.vector_loop(self.n, body)

    @contextmanager
    def _computing_row_values(self) -> Iterator[None]:
        with self.ir.single_lane():
            yield

    def _store_row_value(self, value: TypedValue) -> None:
        with self.ir.single_lane():
            self._store(self._broadcast(value), 0)

    def _exp_nonpositive(self, argument: TypedValue) -> TypedValue:
        power = llvm_math_functions.exp_nonpositive(self.ir, argument.value)
        return TypedValue("F", power)

    def _reduce_terms(
        self, kind: str, is_same_sign: bool, term: Callable[[IntValue], TypedValue]
    ) -> TypedValue:
        op = _REDUCTIONS[kind]

        def term_value(index: IntValue) -> Value:
            return term(index).value

        if op is SUM and is_same_sign:
            result = sum_same_sign(self.ir, self.n, term_value)
        else:
            result = reduce_elements(self.ir, self.n, term_value, op)
        if kind == "mean":
            count = self.ir.emit_value(f"uitofp i64 {self.n} to double")
            result = self.ir.emit_value(f"fdiv double {result}, {count}")
        if op.accumulator_type != "double":
            return TypedValue("F", result)
        ir = self.ir
        rounded = ir.emit_value(f"fptrunc double {result} to float")
        if op is SUM:
            widened = ir.emit_value(f"fpext float {rounded} to double")
            lost = ir.emit_value(f"fsub double {result}, {widened}")
            # Infinity lost nothing, and less itself it is NaN.
            zero = ir.emit_value(f"fsub double {lost}, {lost}")
            is_finite = ir.emit_value(f"fcmp ord double {zero}, 0.0")
            lost = ir.emit_value(f"select i1 {is_finite}, double {lost}, double 0.0")
            error = ir.emit_value(f"fptrunc double {lost} to float")
            self.rounding_errors[rounded] = TypedValue("F", error)
        return TypedValue("F", rounded)
