"""LLVM kernels that convert float16 to float32 and back with the processor's own
instructions.
"""

from __future__ import annotations

from typing import Final

from rlxweb.codegen.llvm_builder import (
    TYPE_NBYTES,
    IntValue,
    IRBuilder,
    Value,
    VectorType,
)
from rlxweb.codegen.native_calls import job_wrapper_llvm_ir

JOB_FIELDS: Final = ("x", "out", "count", "each")
"""Fields of a job, 64 bits each: addresses of the numbers, their count, and the chunk
that a thread claims at a time.
"""
_TYPE_NBYTES: Final = {**TYPE_NBYTES, "half": 2}


def float16_conversion_llvm_ir(nbytes: int) -> str:
    """Return the LLVM IR of @widened(job, taken) and @narrowed(job, taken), for vectors
    of `nbytes` bytes.

    taken   where the threads that call one together count the numbers they took
    """
    vector_type = VectorType("float", nbytes // 4)
    return "\n".join(
        (
            _conversion_function("widened", vector_type, "half", "float", "fpext"),
            _conversion_function("narrowed", vector_type, "float", "half", "fptrunc"),
        )
    )


def _conversion_function(
    name: str,
    vector_type: VectorType,
    source_type: str,
    target_type: str,
    instruction: str,
) -> str:
    signature = f"void @{name}(ptr %job, ptr %taken)"
    ir = IRBuilder(signature, vector_type)
    x, out, count, chunk = ir.load_job_fields(JOB_FIELDS, JOB_FIELDS[:2]).values()

    def convert_chunk(begin: Value) -> None:
        def convert_vector(i: IntValue) -> None:
            index, lanes = ir.add_int(begin, i), ir.vector_type.lanes
            source = ir.element_pointer(x, index, source_type)
            source_vector = f"<{lanes} x {source_type}>"
            target_vector = f"<{lanes} x {target_type}>"
            loaded = ir.emit_value(
                f"load {source_vector}, ptr {source}, align {_TYPE_NBYTES[source_type]}"
            )
            converted = ir.emit_value(
                f"{instruction} {source_vector} {loaded} to {target_vector}"
            )
            target = ir.element_pointer(out, index, target_type)
            ir.emit(
                f"store {target_vector} {converted}, ptr {target}, align "
                f"{_TYPE_NBYTES[target_type]}"
            )

        ir.vector_loop(ir.min_int(chunk, ir.subtract_int(count, begin)), convert_vector)

    ir.claim_loop("%taken", chunk, count, convert_chunk)
    ir.emit("ret void")
    return ir.text + job_wrapper_llvm_ir(signature)
