"""LLVM module of a Welch estimate: rows of samples in, powers or strongest bins out.

Sums of |Z|² (`llvm_power_sums.py`) are folded at the end of each row,
where both ends of them are added, and searched while they lie in the cache. Everything
is computed in double precision and rounded once, into the answer. A module exports
@sums, whose arguments are `sums.ARGUMENTS`, and

power(job, x, stride, rows, segments, offsets, gains, out, scratch, limits)
    → how many rows need a second look
peaks(job, x, stride, rows, segments, offsets, gains, places, powers, scratch, limits)
    → how many rows need a second look (`llvm_row_checks.py`), or have
    fewer than k bins that are numbers; what is told of those is not to be used
fold(job, sums, gain, out)

stride   bytes from one row to the next
gains    of integer samples, (rows) squared factors on the power
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from rlxweb.codegen.llvm_builder import (
    TYPE_NBYTES,
    FloatType,
    IntValue,
    IRBuilder,
    Value,
    VectorType,
)
from rlxweb.core.fork_safety import cached_property
from rlxweb.ops.fft.cpu.llvm import ConstantTables
from rlxweb.ops.welch.cpu.llvm_power_sums import (
    PowerSums,
    choose_power_sums,
    load_job_field,
)
from rlxweb.ops.welch.cpu.llvm_row_checks import (
    RowEnergyFunction,
    is_above_rounding_floor,
    is_energy_in_range,
    row_energy,
)
from rlxweb.ops.welch.cpu.llvm_segment_preparation import (
    DetrendMethod,
    SampleType,
    SegmentFunction,
)
from rlxweb.ops.welch.cpu.llvm_top_k_search import TopKSearch

_COMMON_ARGUMENTS: Final = (
    "ptr %job, ptr noalias %x, i64 %stride, i64 %rows, i64 %segments, "
    "ptr noalias %offsets, ptr noalias %gains"
)
_RowEmitter: TypeAlias = Callable[[IRBuilder, IntValue, Value, Value, Value], Value]
"""Function (builder, row, its sums, memory behind them, rows failed so far) → rows
failed.
"""


@dataclass(frozen=True)
class WelchKernel:
    """Compile-time parameters of a Welch kernel; all other parameters are passed in its
    job.

    n          transform length; segments are padded with zeros up to it
    vector_nbytes  of the widest vector
    output_type  the kind of number of the powers
    search_registers  of the search; 0: there is none
    """

    n: int
    vector_nbytes: int
    sample_type: SampleType
    detrend: DetrendMethod
    output_type: FloatType
    search_registers: int = 0

    @cached_property
    def tables(self) -> ConstantTables:
        return ConstantTables()

    @cached_property
    def power_sums(self) -> PowerSums:
        max_lanes = self.vector_nbytes // TYPE_NBYTES["double"]
        widths = tuple(
            VectorType("double", max_lanes >> shift)
            for shift in (0, 1)
            if max_lanes >> shift > 1
        )
        return choose_power_sums(self.n, widths, self.tables, self._has_integer_samples)

    @property
    def _has_integer_samples(self) -> bool:
        return self.sample_type == "int"

    @property
    def bin_count(self) -> int:
        return self.n // 2 + 1

    @property
    def _search(self) -> TopKSearch:
        lanes = self.vector_nbytes // TYPE_NBYTES[self.output_type]
        return TopKSearch(VectorType(self.output_type, lanes), self.search_registers)

    def scratch_nbytes(self, segments: int) -> int:
        """Return the bytes of scratch that a call needs, aligned to 64."""
        rows = self.power_sums.rows_per_call(segments)
        double_count = (
            self.power_sums.scratch_length
            + self.power_sums.sums_length(rows)
            + self.bin_count
        )
        return 8 * double_count + 2 * self.search_registers * self.vector_nbytes + 128

    def llvm_ir(self) -> str:
        """Return the LLVM IR of the module."""
        sums = self.power_sums
        parts = [
            SegmentFunction(self.sample_type, self.detrend).llvm_ir(sums.vector_type),
            sums.llvm_ir(),
            self._fold_llvm_ir(),
            RowEnergyFunction(self.sample_type).llvm_ir(sums.vector_type),
            self._row_loop_llvm_ir(
                "i64 @power", "ptr noalias %out", self._emit_power_row
            ),
        ]
        if self.search_registers:
            parts.append(self._search.llvm_ir())
            extra_arguments = "ptr noalias %places, ptr noalias %powers"
            parts.append(
                self._row_loop_llvm_ir(
                    "i64 @peaks", extra_arguments, self._emit_peak_row
                )
            )
        return "\n".join(parts)

    def _fold_llvm_ir(self) -> str:
        vector_type, output_type = self.power_sums.vector_type, self.output_type
        signature = "void @fold(ptr %job, ptr %sums, double %gain, ptr noalias %out)"
        ir = IRBuilder(signature, vector_type)
        weights, n = load_job_field(ir, "weights"), self.n
        # The last of one end stands opposite the first of the other.
        first_sum = ir.load_element("%sums", 0)
        ir.emit(
            f"store double {first_sum}, ptr {ir.element_pointer('%sums', n)}, align 8"
        )

        def bins(k: IntValue) -> None:
            lanes = ir.vector_type.lanes
            forward = ir.load(ir.element_pointer("%sums", k))
            backward = ir.load(
                ir.element_pointer("%sums", ir.subtract_int(n - lanes + 1, k))
            )
            if lanes > 1:
                backward = ir.shuffle(backward, backward, range(lanes)[::-1])
            power = ir.multiply(
                ir.add_reals(forward, backward), ir.load(ir.element_pointer(weights, k))
            )
            if self._has_integer_samples:
                power = ir.multiply(power, ir.broadcast("%gain"))
            stored_type = f"<{lanes} x {output_type}>"
            if output_type != ir.vector_type.element_type:
                power = ir.emit_value(
                    f"fptrunc {ir.vector_type.llvm_type} {power} to {stored_type}"
                )
            pointer = ir.element_pointer("%out", k, output_type)
            ir.emit(
                f"store {stored_type} {power}, ptr {pointer}, align "
                f"{TYPE_NBYTES[output_type]}"
            )

        ir.vector_loop(self.bin_count, bins)
        ir.emit("ret void")
        return ir.text

    def _row_loop_llvm_ir(
        self, prefix: str, extra_arguments: str, emit_row: _RowEmitter
    ) -> str:
        """Return the IR of a function that sums some rows at a time; `emit_row` handles
        the sums of one row.
        """
        last_arguments = "ptr noalias %scratch, ptr noalias %limits"
        ir = IRBuilder(
            f"{prefix}({_COMMON_ARGUMENTS}, {extra_arguments}, {last_arguments})",
            self.power_sums.vector_type,
        )
        rows_per_call = load_job_field(ir, "together")
        padded_rows = ir.add_int(ir.add_int("%rows", rows_per_call), -1)
        blocks = ir.emit_value(f"udiv i64 {padded_rows}, {rows_per_call}")
        sums = ir.element_pointer("%scratch", self.power_sums.scratch_length)
        spare_memory = ir.element_pointer(
            sums, ir.multiply_int(ir.add_int(rows_per_call, 1), self.power_sums.pitch)
        )

        def block(block_index: IntValue, failed: Value) -> list[Value]:
            first_row = ir.multiply_int(block_index, rows_per_call)
            row_count = ir.min_int(rows_per_call, ir.subtract_int("%rows", first_row))
            x = ir.element_pointer("%x", ir.multiply_int(first_row, "%stride"), "i8")
            offsets = (
                ir.element_pointer("%offsets", first_row)
                if self._has_integer_samples
                else "null"
            )
            ir.emit(
                f"call void @sums(ptr %job, ptr {x}, i64 %stride, i64 {row_count}, "
                f"i64 %segments, ptr {offsets}, ptr {sums}, ptr %scratch)"
            )

            def row(i: IntValue, failed: Value) -> list[Value]:
                row_sums = ir.element_pointer(
                    sums, ir.multiply_int(i, self.power_sums.pitch)
                )
                return [
                    emit_row(
                        ir, ir.add_int(first_row, i), row_sums, spare_memory, failed
                    )
                ]

            return ir.loop(row_count, row, [("i64", failed)])

        (failed,) = ir.loop(blocks, block, [("i64", "0")])
        ir.emit(f"ret i64 {failed}")
        return ir.text

    def _emit_power_row(
        self,
        ir: IRBuilder,
        row: IntValue,
        sums: Value,
        spare_memory: Value,
        failed: Value,
    ) -> Value:
        out = ir.element_pointer(
            "%out", ir.multiply_int(row, self.bin_count), self.output_type
        )
        self._emit_fold_call(ir, row, sums, out)
        return _increment_unless(
            ir, failed, is_energy_in_range(ir, self._row_energy(ir, row))
        )

    def _emit_peak_row(
        self,
        ir: IRBuilder,
        row: IntValue,
        sums: Value,
        spare_memory: Value,
        failed: Value,
    ) -> Value:
        self._emit_fold_call(ir, row, sums, spare_memory)
        search_scratch = ir.element_pointer(spare_memory, self.bin_count)
        k = load_job_field(ir, "k")
        start = ir.multiply_int(row, k)
        places = ir.element_pointer("%places", start, "i64")
        powers = ir.element_pointer("%powers", start, self.output_type)
        is_incomplete = ir.emit_value(
            f"call i64 @search(ptr {spare_memory}, i64 {self.bin_count}, i64 {k}, "
            f"ptr {places}, ptr {powers}, ptr {search_scratch})"
        )
        weakest = ir.load_element(powers, ir.add_int(k, -1), self.output_type)
        if self.output_type != ir.vector_type.element_type:
            weakest = ir.emit_value(
                f"fpext {self.output_type} {weakest} to {ir.vector_type.element_type}"
            )
        energy = self._row_energy(ir, row)
        is_in_range = is_energy_in_range(ir, energy)
        is_above_floor = is_above_rounding_floor(ir, energy, weakest)
        is_complete = ir.emit_value(f"icmp eq i64 {is_incomplete}, 0")
        is_ok = ir.emit_value(
            f"and i1 {ir.emit_value(f'and i1 {is_in_range}, {is_above_floor}')}, "
            f"{is_complete}"
        )
        return _increment_unless(ir, failed, is_ok)

    def _row_energy(self, ir: IRBuilder, row: IntValue) -> Value:
        x = ir.element_pointer("%x", ir.multiply_int(row, "%stride"), "i8")
        return row_energy(ir, x, TYPE_NBYTES.get(self.sample_type, 0))

    def _emit_fold_call(
        self, ir: IRBuilder, row: IntValue, sums: Value, out: Value
    ) -> None:
        gain = ir.load_element("%gains", row) if self._has_integer_samples else "1.0"
        ir.emit(f"call void @fold(ptr %job, ptr {sums}, double {gain}, ptr {out})")


def _increment_unless(ir: IRBuilder, count: Value, condition: Value) -> Value:
    incremented = ir.emit_value(f"add i64 {count}, 1")
    return ir.emit_value(f"select i1 {condition}, i64 {count}, i64 {incremented}")
