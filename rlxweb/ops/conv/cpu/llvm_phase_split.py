"""LLVM kernel that pads arrays and splits them by the phases of a stride.

A channel is so many lines, each some zeros, elements of the array a stride apart, and
zeros again. Which, a table says; it is the same for all channels.
"""

from __future__ import annotations

from typing import Final

from rlxweb.codegen.llvm_builder import IntValue, IRBuilder, Value, VectorType
from rlxweb.codegen.native_calls import job_wrapper_llvm_ir

SIGNATURE: Final = "void @phases(ptr %job, ptr %taken)"
"""LLVM signature: a job of `JOB_FIELDS`, 64 bits each, and the counter of claimed
channels.
"""
_ADDRESS_FIELDS: Final = ("x", "out", "table")
JOB_FIELDS: Final = (
    *_ADDRESS_FIELDS,
    *("channels", "each", "given", "lines", "length", "stride"),
)
"""Fields of a job: addresses of 32-bit numbers and of the table (i32); channels, and
how many a thread claims at a time; elements of a channel of x; lines of a result
channel, elements of a line, and elements of x from one of them to the next.
"""
LINE_ENTRY_LENGTH: Final = 3
"""Table entries per line: its first element in the channel of x, the zeros in front of
it, and the number of elements of x.
"""
VECTOR_STRIDES: Final = (1, 2)
"""Strides that are copied by vectors; for others elements are copied one by one."""


def phase_split_llvm_ir(stride: int, nbytes: int) -> str:
    """Return the LLVM IR for one of `VECTOR_STRIDES`, or 0 for any stride, and vectors
    of `nbytes` bytes.
    """
    return _PhaseSplitKernel(stride, VectorType("float", nbytes // 4)).llvm_ir()


class _PhaseSplitKernel:
    def __init__(self, stride: int, vector_type: VectorType) -> None:
        ir = self.ir = IRBuilder(SIGNATURE, vector_type)
        self.stride = stride
        self.job_fields = ir.load_job_fields(JOB_FIELDS, _ADDRESS_FIELDS)

    def llvm_ir(self) -> str:
        ir, job = self.ir, self.job_fields
        ir.parallel_loop(job["each"], job["channels"], self._emit_channel)
        ir.emit("ret void")
        return ir.text + job_wrapper_llvm_ir(SIGNATURE)

    def _emit_channel(self, channel: IntValue) -> None:
        ir, job = self.ir, self.job_fields
        x = ir.element_pointer(job["x"], ir.multiply_int(channel, job["given"]))
        channel_length = ir.multiply_int(job["lines"], job["length"])
        out = ir.element_pointer(job["out"], ir.multiply_int(channel, channel_length))

        def line(i: IntValue) -> None:
            entry = ir.multiply_int(i, LINE_ENTRY_LENGTH)
            first, leading_zeros, count = (
                ir.load_index(job["table"], ir.add_int(entry, k))
                for k in range(LINE_ENTRY_LENGTH)
            )
            line_pointer = ir.element_pointer(out, ir.multiply_int(i, job["length"]))
            self._emit_zeros(line_pointer, leading_zeros)
            elements_pointer = ir.element_pointer(line_pointer, leading_zeros)
            self._emit_elements(ir.element_pointer(x, first), elements_pointer, count)
            done = ir.add_int(leading_zeros, count)
            self._emit_zeros(
                ir.element_pointer(line_pointer, done),
                ir.subtract_int(job["length"], done),
            )

        ir.loop(job["lines"], line)

    def _emit_zeros(self, pointer: Value, count: IntValue) -> None:
        ir = self.ir

        def store_zeros(i: IntValue) -> None:
            ir.store("zeroinitializer", ir.element_pointer(pointer, i))

        ir.vector_loop(count, store_zeros)

    def _emit_elements(self, x: Value, pointer: Value, count: IntValue) -> None:
        ir, stride = self.ir, self.stride or self.job_fields["stride"]

        def copy_element(i: IntValue) -> None:
            number = ir.load_element(x, ir.multiply_int(i, stride))
            ir.emit(
                f"store float {number}, ptr {ir.element_pointer(pointer, i)}, align 4"
            )

        def copy_vector(i: IntValue) -> None:
            lanes = ir.vector_type.lanes
            source = ir.element_pointer(x, ir.multiply_int(i, stride))
            values = ir.load(source)
            if lanes > 1 and self.stride == 2:
                # The second begins one early: behind the last there may be nothing.
                next_values = ir.load(ir.element_pointer(source, lanes - 1))
                even_lanes = range(0, lanes, 2)
                values = ir.shuffle(
                    values,
                    next_values,
                    [*even_lanes, *(lanes + 1 + k for k in even_lanes)],
                )
            ir.store(values, ir.element_pointer(pointer, i))

        if self.stride in VECTOR_STRIDES:
            ir.vector_loop(count, copy_vector)
        else:
            ir.loop(count, copy_element)
