"""LLVM row checks of a Welch estimate: whether samples are finite and powers above
rounding, so that no slower check is needed.

Ordinary rows pass at once, while they lie in the cache; whoever calls looks into those
that do not by slower means. The limits are told with each call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rlxweb.codegen.llvm_builder import IntValue, IRBuilder, Value, VectorType
from rlxweb.ops.welch.cpu.llvm_segment_preparation import SampleType, load_samples

LIMIT_FIELDS: Final = ("least", "most", "floor", "base", "used", "all")
"""Limits that each call passes, 8 bytes each: four numbers, then two counts of samples.

least, most  the sum of squares of the `used` first samples of a row
floor, base  the weakest of a row's strongest bins is above floor · that sum + base
all          samples of a row: those behind the used ones are finite
"""
_FIRST_COUNT: Final = LIMIT_FIELDS.index("used")


@dataclass(frozen=True, slots=True)
class RowEnergyFunction:
    """LLVM function @energy: sum of squares of the samples from x on. Not used for
    integer samples.
    """

    sample: SampleType

    def llvm_ir(self, vector_type: VectorType) -> str:
        ir = IRBuilder(
            f"internal {vector_type.element_type} @energy(ptr noalias %x, i64 %n)",
            vector_type,
        )
        if self.sample == "int":
            ir.emit(f"ret {vector_type.element_type} 0.0")
            return ir.text

        def square(i: IntValue) -> Value:
            value = load_samples(ir, i, self.sample)
            return ir.multiply(value, value)

        ir.emit(f"ret {vector_type.element_type} {ir.sum_terms('%n', square)}")
        return ir.text


def row_energy(ir: IRBuilder, x: Value, sample_nbytes: int) -> Value:
    """Return a row's sum of squares; NaN if a sample behind the used ones is not
    finite.
    """
    element_type = ir.vector_type.element_type
    used, all_ = _load_limit(ir, "used"), _load_limit(ir, "all")
    used_energy = ir.emit_value(f"call {element_type} @energy(ptr {x}, i64 {used})")
    unused_samples = ir.element_pointer(x, ir.multiply_int(used, sample_nbytes), "i8")
    unused_energy = ir.emit_value(
        f"call {element_type} @energy(ptr {unused_samples}, i64 "
        f"{ir.subtract_int(all_, used)})"
    )
    # 0 · infinity and 0 · NaN are NaN, any other number is left out.
    nan_or_zero = ir.emit_value(f"fmul {element_type} {unused_energy}, 0.0")
    return ir.emit_value(f"fadd {element_type} {used_energy}, {nan_or_zero}")


def is_energy_in_range(ir: IRBuilder, energy: Value) -> Value:
    """Return whether the energy is between the minimum and the maximum."""
    element_type = ir.vector_type.element_type
    is_high_enough = ir.emit_value(
        f"fcmp oge {element_type} {energy}, {_load_limit(ir, 'least')}"
    )
    is_low_enough = ir.emit_value(
        f"fcmp ole {element_type} {energy}, {_load_limit(ir, 'most')}"
    )
    return ir.emit_value(f"and i1 {is_high_enough}, {is_low_enough}")


def is_above_rounding_floor(ir: IRBuilder, energy: Value, weakest: Value) -> Value:
    """Return whether the weakest power is above the rounding floor."""
    element_type = ir.vector_type.element_type
    scaled_energy = ir.emit_value(
        f"fmul {element_type} {energy}, {_load_limit(ir, 'floor')}"
    )
    rounding_floor = ir.emit_value(
        f"fadd {element_type} {scaled_energy}, {_load_limit(ir, 'base')}"
    )
    return ir.emit_value(f"fcmp ogt {element_type} {weakest}, {rounding_floor}")


def _load_limit(ir: IRBuilder, name: str) -> Value:
    index = LIMIT_FIELDS.index(name)
    return ir.load_element(
        "%limits",
        index,
        "i64" if index >= _FIRST_COUNT else ir.vector_type.element_type,
    )
