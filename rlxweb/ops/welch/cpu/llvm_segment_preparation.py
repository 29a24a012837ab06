"""LLVM functions that prepare a segment of samples for its transform: detrend and
window.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

from rlxweb.codegen.llvm_builder import (
    TYPE_NBYTES,
    IntValue,
    IRBuilder,
    Value,
    VectorType,
)

SampleType = Literal["float", "double", "int"]
"""Sample type of rows; "int" is integers of 2 or 4 bytes, distinguished by the job."""
DetrendMethod = Literal["none", "constant", "linear"]

INTEGER_TYPES: Final = {2: "i16", 4: "i32"}
_ARGUMENTS: Final = (
    "ptr noalias %x, ptr noalias %out, ptr noalias %window, ptr noalias %ramp, "
    "i64 %n, {real} %offset"
)


@dataclass(frozen=True, slots=True)
class SegmentFunction:
    """LLVM function @segment: n samples x → (x + offset, without its trend) · window,
    into out.

    detrend  removed is the mean, or the least-squares line: `ramp` is `centred_ramp(n)`
    """

    sample_type: SampleType
    detrend: DetrendMethod

    def llvm_ir(self, vector_type: VectorType) -> str:
        """Return the LLVM IR of @segment(…, i64 %size), for samples of `size` bytes."""
        types_by_nbytes = (
            {TYPE_NBYTES[self.sample_type]: self.sample_type}
            if self.sample_type != "int"
            else INTEGER_TYPES
        )
        arguments = _ARGUMENTS.format(real=vector_type.element_type)
        ir = IRBuilder(f"internal void @segment({arguments}, i64 %size)", vector_type)
        for nbytes, sample_type in types_by_nbytes.items():
            call = f"call void @segment_{sample_type}({arguments})".replace(
                " noalias", ""
            )
            is_type = ir.emit_value(f"icmp eq i64 %size, {nbytes}")
            ir.if_then(is_type, partial(ir.emit, call))
        ir.emit("ret void")
        return "\n".join(
            [
                *(
                    self._typed_function_llvm_ir(sample_type, vector_type)
                    for sample_type in types_by_nbytes.values()
                ),
                ir.text,
            ]
        )

    def _typed_function_llvm_ir(self, sample_type: str, vector_type: VectorType) -> str:
        arguments = _ARGUMENTS.format(real=vector_type.element_type)
        ir = IRBuilder(
            f"internal void @segment_{sample_type}({arguments})", vector_type
        )
        if self.detrend == "none":
            ir.vector_loop(
                "%n", lambda i: _store_windowed(ir, i, load_samples(ir, i, sample_type))
            )
            ir.emit("ret void")
            return ir.text
        n = ir.emit_value(f"uitofp i64 %n to {vector_type.element_type}")
        sum_ = ir.sum_terms("%n", lambda i: load_samples(ir, i, sample_type))
        mean = ir.emit_value(f"fdiv {vector_type.element_type} {sum_}, {n}")

        def centred(i: IntValue) -> Value:
            return ir.subtract_reals(
                load_samples(ir, i, sample_type), ir.broadcast(mean)
            )

        if self.detrend == "constant":
            ir.vector_loop("%n", lambda i: _store_windowed(ir, i, centred(i)))
        else:
            slope = ir.sum_terms(
                "%n", lambda i: ir.multiply(centred(i), _load_ramp(ir, i))
            )

            def detrended(i: IntValue) -> Value:
                return ir.subtract_reals(
                    centred(i), ir.multiply(_load_ramp(ir, i), ir.broadcast(slope))
                )

            ir.vector_loop("%n", lambda i: _store_windowed(ir, i, detrended(i)))
        ir.emit("ret void")
        return ir.text


def load_samples(ir: IRBuilder, i: IntValue, sample_type: str) -> Value:
    """Load the samples of %x from i on, converted to the computing precision."""
    lanes, vector = ir.vector_type.lanes, ir.vector_type.llvm_type
    pointer = ir.element_pointer("%x", i, sample_type)
    sample_vector = f"<{lanes} x {sample_type}>"
    samples = ir.emit_value(
        f"load {sample_vector}, ptr {pointer}, align {TYPE_NBYTES[sample_type]}"
    )
    if sample_type == ir.vector_type.element_type:
        return samples
    if sample_type == "float":
        return ir.emit_value(f"fpext {sample_vector} {samples} to {vector}")
    number = ir.emit_value(f"sitofp {sample_vector} {samples} to {vector}")
    return ir.add_reals(number, ir.broadcast("%offset"))


def _load_ramp(ir: IRBuilder, i: IntValue) -> Value:
    return ir.load(ir.element_pointer("%ramp", i))


def _store_windowed(ir: IRBuilder, i: IntValue, value: Value) -> None:
    window = ir.load(ir.element_pointer("%window", i))
    ir.store(ir.multiply(value, window), ir.element_pointer("%out", i))
