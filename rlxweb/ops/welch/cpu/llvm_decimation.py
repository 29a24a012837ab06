"""LLVM kernel for a decimating FIR low-pass filter.

A stretch of the signal is first dealt out to as many arrays as a step has samples, so
that what a tap meets in neighbouring outputs lies side by side. Then every tap is one
product and sum of whole vectors, several of them abreast: none waits for another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rlxweb.codegen.llvm_builder import (
    TYPE_NBYTES,
    FloatType,
    IntValue,
    IRBuilder,
    Value,
    VectorType,
)
from rlxweb.codegen.native_calls import job_wrapper_llvm_ir

FUNCTION_NAME: Final = "decimate"
SIGNATURE: Final = (
    "void @decimate(ptr %x, ptr %y, ptr %taps, i64 %count, i64 %rows, i64 %width, "
    "i64 %pitch, i64 %parts, i64 %share, ptr %taken)"
)
_VECTORS_PER_BLOCK: Final = 4
_BLOCKS_PER_STRETCH: Final = 8
"""Blocks of a stretch: it stays in the first-level cache."""


@dataclass(frozen=True, slots=True)
class DecimationKernel:
    """LLVM function @decimate: y[j] is the sum of taps[t] x[j step + t], for some rows.

    step    samples of x for one of y
    tap_count  how many there are
    vector_nbytes  of a vector

    Its arguments, as SIGNATURE has them: `count` of y, a multiple of `block_outputs`;
    from one row of x to the next `width` elements, of y `pitch`. Threads that call it
    together take `share` stretches of a row at a time, `parts` to a row, and count them
    in `taken`. x is read `overread_samples` samples behind the last that the taps meet,
    at most.
    """

    element_type: FloatType
    step: int
    tap_count: int
    vector_nbytes: int

    @property
    def lanes(self) -> int:
        return self.vector_nbytes // TYPE_NBYTES[self.element_type]

    @property
    def block_outputs(self) -> int:
        """Outputs computed at once."""
        return _VECTORS_PER_BLOCK * self.lanes

    @property
    def padded_phase_taps(self) -> int:
        """Taps of one phase, rounded up to whole vectors."""
        phase_taps = -(-self.tap_count // self.step)
        return -(-phase_taps // self.lanes) * self.lanes

    @property
    def overread_samples(self) -> int:
        """Maximum number of samples read past the last one that the taps need."""
        return self.padded_phase_taps * self.step

    @property
    def _phase_pitch(self) -> int:
        """Elements from one phase array to the next, chosen so that they do not share
        cache lines.
        """
        return (
            _BLOCKS_PER_STRETCH * self.block_outputs
            + self.padded_phase_taps
            + self.lanes
        )

    @property
    def stretch_outputs(self) -> int:
        """Outputs of a stretch."""
        return _BLOCKS_PER_STRETCH * self.block_outputs

    def llvm_ir(self) -> str:
        """Return the LLVM IR of the module."""
        ir = IRBuilder(SIGNATURE, VectorType(self.element_type, self.lanes))
        scratch = self.step * self._phase_pitch
        ir.emit(f"%scratch = alloca [{scratch} x {self.element_type}], align 64")
        blocks = ir.emit_value(f"udiv i64 %count, {self.block_outputs}")
        padded_blocks = ir.emit_value(f"add i64 {blocks}, {_BLOCKS_PER_STRETCH - 1}")
        stretches = ir.emit_value(f"udiv i64 {padded_blocks}, {_BLOCKS_PER_STRETCH}")

        def emit_part(unit: Value) -> None:
            row = ir.emit_value(f"udiv i64 {unit}, %parts")
            part = ir.emit_value(f"urem i64 {unit}, %parts")
            x = ir.element_pointer("%x", ir.multiply_int(row, "%width"))
            y = ir.element_pointer("%y", ir.multiply_int(row, "%pitch"))
            first = ir.multiply_int(part, "%share")
            stretch_count = ir.min_int("%share", ir.subtract_int(stretches, first))

            def stretch(i: IntValue) -> None:
                first_block = ir.multiply_int(ir.add_int(first, i), _BLOCKS_PER_STRETCH)
                self._emit_stretch(ir, (x, y), first_block, blocks)

            ir.loop(stretch_count, stretch)

        ir.claim_loop("%taken", 1, ir.multiply_int("%rows", "%parts"), emit_part)
        ir.emit("ret void")
        return ir.text + job_wrapper_llvm_ir(SIGNATURE)

    def _emit_stretch(
        self, ir: IRBuilder, row: tuple[Value, Value], first: IntValue, blocks: Value
    ) -> None:
        """Filter some blocks, starting at block `first`."""
        block_count = ir.min_int(_BLOCKS_PER_STRETCH, ir.subtract_int(blocks, first))
        start = ir.multiply_int(first, self.block_outputs)
        x = ir.element_pointer(row[0], ir.multiply_int(start, self.step))
        vectors = ir.add_int(
            ir.multiply_int(block_count, _VECTORS_PER_BLOCK),
            self.padded_phase_taps // self.lanes,
        )
        ir.loop(vectors, lambda i: self._emit_phase_split(ir, x, i))
        y = ir.element_pointer(row[1], start)
        ir.loop(
            block_count,
            lambda i: self._emit_block(ir, ir.multiply_int(i, self.block_outputs), y),
        )

    def _emit_phase_split(self, ir: IRBuilder, x: Value, i: IntValue) -> None:
        """Split a group of samples by phase: store one vector in each phase array."""
        wide_type = f"<{self.lanes * self.step} x {self.element_type}>"
        pointer = ir.element_pointer(x, ir.multiply_int(i, self.lanes * self.step))
        samples = ir.emit_value(
            f"load {wide_type}, ptr {pointer}, align {TYPE_NBYTES[self.element_type]}"
        )
        for phase in range(self.step):
            lane_indices = ", ".join(
                f"i32 {phase + e * self.step}" for e in range(self.lanes)
            )
            mask = f"<{self.lanes} x i32> <{lane_indices}>"
            phase_vector = ir.emit_value(
                f"shufflevector {wide_type} {samples}, {wide_type} poison, {mask}"
            )
            offset = ir.add_int(
                ir.multiply_int(i, self.lanes), phase * self._phase_pitch
            )
            ir.store(phase_vector, ir.element_pointer("%scratch", offset))

    def _emit_block(self, ir: IRBuilder, first: IntValue, y: Value) -> None:
        sums: Sequence[Value] = ["zeroinitializer"] * _VECTORS_PER_BLOCK
        for tap in range(self.tap_count):
            factor = ir.broadcast(ir.load_element("%taps", tap))
            delay, phase = divmod(tap, self.step)
            phase_samples = ir.element_pointer(
                "%scratch", ir.add_int(first, phase * self._phase_pitch + delay)
            )
            sums = [
                ir.add_reals(
                    total,
                    ir.multiply(
                        factor,
                        ir.load(ir.element_pointer(phase_samples, n * self.lanes)),
                    ),
                )
                for n, total in enumerate(sums)
            ]
        out = ir.element_pointer(y, first)
        for n, total in enumerate(sums):
            ir.store(total, ir.element_pointer(out, n * self.lanes))
