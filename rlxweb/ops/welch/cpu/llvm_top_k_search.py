"""LLVM top-k search: finds the strongest bins of a row in one pass, with sorted
registers and a threshold.

A few registers hold the strongest bins so far in falling order, equal ones in the order
they came. Whole vectors of the row are compared with the least of them; only a lane
above it is put in its place, by one comparison and one shift of all registers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from rlxweb.codegen.llvm_builder import (
    TYPE_NBYTES,
    IntValue,
    IRBuilder,
    Value,
    VectorType,
)

MAX_REGISTERS: Final = 4
"""Maximum number of registers; searches for more bins use another method."""
_MINUS_INFINITY: Final = -math.inf


def register_count(k: int, lanes: int) -> int:
    """Return how many registers hold k bins: a power of two; 0 if k is too large."""
    count = 1
    while count * lanes < k:
        count *= 2
    return count if count <= MAX_REGISTERS else 0


@dataclass(frozen=True, slots=True)
class TopKSearch:
    """LLVM function @search: the k strongest of `bins` powers at p → bins (i64) and
    powers.

    It gives 1 where fewer than k of them are numbers above -infinity, else 0. `spare`
    is memory for 2 · registers vectors.
    """

    vector_type: VectorType
    registers: int

    @property
    def index_type(self) -> str:
        """LLVM integer type as wide as a power."""
        return "i32" if self.vector_type.element_type == "float" else "i64"

    @property
    def _index_vector_type(self) -> str:
        return f"<{self.vector_type.lanes} x {self.index_type}>"

    @property
    def signature(self) -> str:
        return (
            "internal i64 @search(ptr noalias %p, i64 %bins, i64 %k, "
            "ptr noalias %places, ptr noalias %powers, ptr noalias %spare)"
        )

    def llvm_ir(self) -> str:
        ir = IRBuilder(self.signature, self.vector_type)
        vector, lanes = self.vector_type.llvm_type, self.vector_type.lanes
        counts = self._index_vector_type
        minimum = self.vector_type.splat(_MINUS_INFINITY)
        no_bins = f"<{', '.join([f'{self.index_type} -1'] * lanes)}>"
        state = [(vector, minimum)] * self.registers + [
            (counts, no_bins)
        ] * self.registers
        state.append(("i64", "0"))
        vector_count = ir.emit_value(f"udiv i64 %bins, {lanes}")

        def update_full(i: IntValue, *registers: Value) -> list[Value]:
            return self._update_registers(
                ir,
                ir.load(ir.element_pointer("%p", ir.multiply_int(i, lanes))),
                registers,
            )

        registers = ir.loop(vector_count, update_full, state)
        remaining = ir.emit_value(f"urem i64 %bins, {lanes}")
        has_remainder = ir.emit_value(f"icmp ne i64 {remaining}, 0")
        remainder_count = ir.emit_value(f"zext i1 {has_remainder} to i64")

        def update_last(_: IntValue, *registers: Value) -> list[Value]:
            pointer = ir.element_pointer("%p", ir.multiply_int(vector_count, lanes))
            return self._update_registers(
                ir, self._load_partial(ir, pointer, remaining, minimum), registers
            )

        typed_registers = [
            (value_type, value)
            for (value_type, _), value in zip(state, registers, strict=True)
        ]
        registers = ir.loop(remainder_count, update_last, typed_registers)
        self._emit_results(ir, registers)
        return ir.text

    def _load_partial(
        self, ir: IRBuilder, pointer: Value, count: Value, minimum: Value
    ) -> Value:
        """Load the first `count` elements at a pointer, filled up with `minimum`."""
        lanes, vector = self.vector_type.lanes, self.vector_type.llvm_type
        short_count = self._to_index(ir, count)
        numbers = f"<{', '.join(f'{self.index_type} {i}' for i in range(lanes))}>"
        counts = ir.broadcast(short_count, self.index_type)
        is_inside = ir.emit_value(
            f"icmp ult {self._index_vector_type} {numbers}, {counts}"
        )
        size = TYPE_NBYTES[self.vector_type.element_type]
        name = f"@llvm.masked.load.v{lanes}f{8 * size}.p0"
        return ir.emit_value(
            f"call {vector} {name}(ptr {pointer}, i32 {size}, "
            f"{self.vector_type.llvm_mask_type} {is_inside}, {vector} {minimum})"
        )

    def _update_registers(
        self, ir: IRBuilder, values: Value, state: tuple[Value, ...]
    ) -> list[Value]:
        """Return the state after a vector of powers; its last part is the number of the
        next bin.
        """
        lanes = self.vector_type.lanes
        vector = self.vector_type.llvm_type
        mask = self.vector_type.llvm_mask_type
        value_types = [vector] * self.registers + [
            self._index_vector_type
        ] * self.registers
        *registers, bin_ = state
        threshold = self._broadcast_last_lane(ir, registers[self.registers - 1])
        above = ir.emit_value(f"fcmp ogt {vector} {values}, {threshold}")
        bits = ir.emit_value(f"bitcast {mask} {above} to i{lanes}")

        def insert_lane(
            _: IntValue, remaining: Value, *registers: Value
        ) -> list[Value]:
            lane = ir.emit_value(
                f"call i{lanes} @llvm.cttz.i{lanes}(i{lanes} {remaining}, i1 true)"
            )
            lane_index = ir.emit_value(f"zext i{lanes} {lane} to i64")
            bin_number = str(ir.add_int(bin_, lane_index))
            fewer = ir.emit_value(f"sub i{lanes} {remaining}, 1")
            other_bits = ir.emit_value(f"and i{lanes} {remaining}, {fewer}")
            # From memory: to take a lane whose number is not known goes there, too.
            return [
                other_bits,
                *self._insert_bin(
                    ir, ir.load_element("%p", bin_number), bin_number, registers
                ),
            ]

        bit_count = ir.emit_value(
            f"call i{lanes} @llvm.ctpop.i{lanes}(i{lanes} {bits})"
        )
        iterations = ir.emit_value(f"zext i{lanes} {bit_count} to i64")
        initial = [(f"i{lanes}", bits), *zip(value_types, registers, strict=True)]
        _, *registers = ir.loop(iterations, insert_lane, initial)
        return [*registers, str(ir.add_int(bin_, lanes))]

    def _to_index(self, ir: IRBuilder, count: Value) -> Value:
        """Convert a 64-bit count to the index type."""
        return (
            count
            if self.index_type == "i64"
            else ir.emit_value(f"trunc i64 {count} to i32")
        )

    def _broadcast_last_lane(self, ir: IRBuilder, values: Value) -> Value:
        """Broadcast the last lane to every lane."""
        lanes = self.vector_type.lanes
        return ir.shuffle(values, values, [lanes - 1] * lanes)

    def _insert_bin(
        self, ir: IRBuilder, power: Value, bin_: Value, registers: tuple[Value, ...]
    ) -> list[Value]:
        """Insert a bin into the sorted registers; the weakest one is dropped."""
        lanes = self.vector_type.lanes
        vector = self.vector_type.llvm_type
        mask = self.vector_type.llvm_mask_type
        counts, new_power = self._index_vector_type, ir.broadcast(power)
        new_index = ir.broadcast(self._to_index(ir, bin_), self.index_type)
        powers, bins = registers[: self.registers], registers[self.registers :]
        new_powers: list[Value] = []
        new_bins: list[Value] = []
        powers_before, bins_before = self.vector_type.splat(math.inf), new_index
        for values, numbers in zip(powers, bins, strict=True):
            # Where this register's own lane stays, and where the one before it does:
            # compared after the shift, as shifting masks takes longer.
            shifted_powers = _shift_lanes(ir, vector, lanes, powers_before, values)
            shifted_bins = _shift_lanes(ir, counts, lanes, bins_before, numbers)
            stays = ir.emit_value(f"fcmp oge {vector} {values}, {new_power}")
            belongs_here = ir.emit_value(
                f"fcmp oge {vector} {shifted_powers}, {new_power}"
            )
            for results, vector_type, current, inserted, shifted in (
                (new_powers, vector, values, new_power, shifted_powers),
                (new_bins, counts, numbers, new_index, shifted_bins),
            ):
                moved_or_new = ir.emit_value(
                    f"select {mask} {belongs_here}, {vector_type} {inserted}, "
                    f"{vector_type} {shifted}"
                )
                results.append(
                    ir.emit_value(
                        f"select {mask} {stays}, {vector_type} {current}, "
                        f"{vector_type} {moved_or_new}"
                    )
                )
            powers_before, bins_before = values, numbers
        return [*new_powers, *new_bins]

    def _emit_results(self, ir: IRBuilder, registers: list[Value]) -> None:
        lanes = self.vector_type.lanes
        element_type = self.vector_type.element_type
        size = TYPE_NBYTES[self.vector_type.element_type]
        counts = self._index_vector_type
        bins_scratch = ir.element_pointer("%spare", self.registers * lanes)
        for index in range(self.registers):
            ir.store(registers[index], ir.element_pointer("%spare", index * lanes))
            pointer = ir.element_pointer(bins_scratch, index * lanes)
            value = registers[self.registers + index]
            ir.emit(f"store {counts} {value}, ptr {pointer}, align {size}")

        def copy(i: IntValue) -> None:
            power = ir.load_element("%spare", i)
            ir.emit(
                f"store {element_type} {power}, ptr "
                f"{ir.element_pointer('%powers', i)}, align {size}"
            )
            bin_ = ir.load_element(bins_scratch, i, self.index_type)
            if self.index_type != "i64":
                bin_ = ir.emit_value(f"sext {self.index_type} {bin_} to i64")
            ir.emit(
                f"store i64 {bin_}, ptr {ir.element_pointer('%places', i, 'i64')}, "
                f"align 8"
            )

        ir.loop("%k", copy)
        last_bin = ir.load_element(
            bins_scratch, ir.emit_value("sub i64 %k, 1"), self.index_type
        )
        missing = ir.emit_value(f"icmp slt {self.index_type} {last_bin}, 0")
        ir.emit(f"ret i64 {ir.emit_value(f'zext i1 {missing} to i64')}")


def _shift_lanes(
    ir: IRBuilder, vector_type: str, lanes: int, previous: Value, values: Value
) -> Value:
    """Shift lanes up by one; the last lane of the vector before becomes the first."""
    lane_indices = ", ".join(
        f"i32 {i}" for i in (lanes - 1, *range(lanes, 2 * lanes - 1))
    )
    return ir.emit_value(
        f"shufflevector {vector_type} {previous}, {vector_type} {values}, <{lanes} x "
        f"i32> <{lane_indices}>"
    )
