"""LLVM code that sums |Z|² over the pairs of a row's segments, by the method that suits
the transform length.

Two segments go through one complex transform, one as its real and one as its imaginary
part: |Z(k)|² + |Z(n-k)|² is twice the sum of their powers, so nothing else of a pair
has to be kept. `RowPowerSums` takes one pair after the other, directly or as a
convolution with a chirp (Bluestein); `LanePowerSums` a pair in each lane, where no row
can be cut into lanes of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import gcd
from typing import Final

from rlxweb.codegen.butterfly import ComplexNames
from rlxweb.codegen.fft_arithmetic import chirp, chirp_filter, next_fast_length
from rlxweb.codegen.llvm_builder import (
    IntValue,
    IRBuilder,
    Value,
    VectorType,
    transpose,
)
from rlxweb.ops.fft.cpu.llvm import (
    ConstantTables,
    LaneTransform,
    RowTransform,
    TransformMemory,
    choose_row_transform,
    has_small_factors,
)

JOB_FIELDS: Final = (
    "window",
    "weights",
    "ramp",
    "reals",
    "counts",
    "nperseg",
    "hop",
    "k",
    "together",
    "size",
)
"""Fields of a job, 8 bytes each: five addresses, then integers.

weights   (bins) turn sums of |Z|², both ends of them added, into power
together  rows that are summed at once
size      bytes of a sample
"""
ADDRESS_COUNT: Final = JOB_FIELDS.index("nperseg")
FUNCTION_NAME: Final = "@sums"
ARGUMENTS: Final = (
    "ptr {}%job, ptr {}%x, i64 %stride, i64 %rows, i64 %segments, ptr %offsets, "
    "ptr {}%sums, ptr {}%scratch"
)


def load_job_field(ir: IRBuilder, name: str) -> Value:
    """Load a field of %job."""
    index = JOB_FIELDS.index(name)
    return ir.load_element("%job", index, "ptr" if index < ADDRESS_COUNT else "i64")


class PowerSums(ABC):
    """LLVM function @sums: rows x, `stride` bytes apart → their sums, `pitch` elements
    apart.

    n         length of the transform; segments are padded with zeros up to it
    has_integer_samples  are the samples such, with an offset for each row?
    """

    def __init__(
        self,
        n: int,
        vector_type: VectorType,
        tables: ConstantTables,
        has_integer_samples: bool,
    ) -> None:
        self.n, self.vector_type, self.tables = n, vector_type, tables
        self.has_integer_samples = has_integer_samples

    @property
    @abstractmethod
    def pitch(self) -> int:
        """Elements from one row's sums to the next one's, n + 1 at least."""

    @property
    @abstractmethod
    def scratch_length(self) -> int:
        """Elements of scratch."""

    @abstractmethod
    def rows_per_call(self, segments: int) -> int:
        """Return how many rows are best summed in one call."""

    @abstractmethod
    def _emit_body(self, ir: IRBuilder) -> None:
        """Emit the code from the rows to their sums, which start as 0."""

    def sums_length(self, rows: int) -> int:
        """Return the elements for the sums of `rows` rows, and of the padding of the
        last lanes.
        """
        return (rows + 1) * self.pitch

    def llvm_ir(self) -> str:
        arguments = ARGUMENTS.format(*["noalias "] * 4)
        ir = IRBuilder(f"void {FUNCTION_NAME}({arguments})", self.vector_type)
        count = ir.multiply_int(ir.add_int("%rows", 1), self.pitch)
        ir.vector_loop(count, lambda i: _store_zero(ir, ir.element_pointer("%sums", i)))
        self._emit_body(ir)
        ir.emit("ret void")
        return ir.text

    def _transform_memory(self, ir: IRBuilder, offset: int) -> TransformMemory:
        scratch = ir.element_pointer("%scratch", offset)
        return TransformMemory(
            scratch, load_job_field(ir, "reals"), load_job_field(ir, "counts")
        )

    def _emit_segment(
        self, ir: IRBuilder, row: IntValue, segment: IntValue, out: Value
    ) -> None:
        """Prepare one segment of a row for its transform."""
        sample_nbytes = load_job_field(ir, "size")
        start = ir.multiply_int(
            ir.multiply_int(segment, load_job_field(ir, "hop")), sample_nbytes
        )
        x = ir.element_pointer(
            "%x", ir.add_int(ir.multiply_int(row, "%stride"), start), "i8"
        )
        offset = ir.load_element("%offsets", row) if self.has_integer_samples else "0.0"
        window, ramp, n = (
            load_job_field(ir, name) for name in ("window", "ramp", "nperseg")
        )
        element_type = self.vector_type.element_type
        ir.emit(
            f"call void @segment(ptr {x}, ptr {out}, ptr {window}, ptr {ramp}, "
            f"i64 {n}, {element_type} {offset}, i64 {sample_nbytes})"
        )

    def _emit_pair(
        self, ir: IRBuilder, row: IntValue, pair: IntValue, out: tuple[Value, Value]
    ) -> None:
        """Prepare two segments of a row; zeros stand in for a missing second one."""
        first = ir.multiply_int(pair, 2)
        self._emit_segment(ir, row, first, out[0])
        second = ir.add_int(first, 1)
        has_second = ir.emit_value(f"icmp ult i64 {second}, %segments")
        ir.if_then(has_second, lambda: self._emit_segment(ir, row, second, out[1]))
        missing = ir.emit_value(f"xor i1 {has_second}, true")
        nperseg = load_job_field(ir, "nperseg")
        ir.if_then(missing, lambda: zero_fill(ir, out[1], nperseg))


def emit_pair_count(ir: IRBuilder) -> IntValue:
    """Return the number of pairs that %segments make."""
    return ir.emit_value(f"lshr i64 {ir.add_int('%segments', 1)}, 1")


def zero_fill(ir: IRBuilder, base: Value, count: IntValue) -> None:
    """Store `count` zeros from `base` on."""
    ir.vector_loop(count, lambda i: _store_zero(ir, ir.element_pointer(base, i)))


def _store_zero(ir: IRBuilder, pointer: Value) -> None:
    ir.store(ir.vector_type.splat(0.0), pointer)


class RowPowerSums(PowerSums):
    """Power sums of one pair of segments at a time, its transform spread over the
    lanes.
    """

    def __init__(
        self,
        n: int,
        vector_type: VectorType,
        tables: ConstantTables,
        has_integer_samples: bool,
    ) -> None:
        super().__init__(n, vector_type, tables, has_integer_samples)
        lanes = vector_type.lanes
        self.is_direct = RowTransform.can_transform(n, lanes)
        self.transform_length = n
        if not self.is_direct:
            min_length = -(-(2 * n - 1) // lanes)
            self.transform_length = lanes * next_fast_length(max(lanes, min_length))
        self.transform = choose_row_transform(self.transform_length, lanes, tables)
        if not self.is_direct:
            chirp_factors, filter_ = chirp(n), chirp_filter(n, self.transform_length)
            self._chirp_offsets = [
                tables.add_reals(part)
                for part in (chirp_factors.real, chirp_factors.imag)
            ]
            self._filter_offsets = [
                tables.add_reals(part) for part in (filter_.real, filter_.imag)
            ]

    @property
    def pitch(self) -> int:
        lanes = self.vector_type.lanes
        return -(-(self.transform_length + 1) // lanes) * lanes

    @property
    def scratch_length(self) -> int:
        return 2 * self.transform_length + self.transform.scratch_length

    def rows_per_call(self, segments: int) -> int:
        return 1

    def _emit_body(self, ir: IRBuilder) -> None:
        row = "%scratch", ir.element_pointer("%scratch", self.transform_length)
        memory = self._transform_memory(ir, 2 * self.transform_length)
        zero_fill(ir, "%scratch", 2 * self.transform_length)
        pairs = emit_pair_count(ir)

        def each_row(row_index: IntValue) -> None:
            sums = ir.element_pointer("%sums", ir.multiply_int(row_index, self.pitch))

            def add(index: IntValue, y: ComplexNames) -> None:
                pointer = ir.element_pointer(sums, index)
                ir.store(ir.add_squared_magnitude(y, ir.load(pointer)), pointer)

            def each_pair(pair: IntValue) -> None:
                self._emit_pair(ir, row_index, pair, row)
                if not self.is_direct:
                    self._emit_convolution(ir, row, memory)
                self.transform.emit(ir, row, memory, add)

            ir.loop(pairs, each_pair)

        ir.loop("%rows", each_row)

    def _emit_convolution(
        self, ir: IRBuilder, row: tuple[Value, Value], memory: TransformMemory
    ) -> None:
        """Multiply the pair by the chirp, transform it, multiply by the filter and
        exchange real and imaginary parts.

        A second transform of that is the inverse one, its parts exchanged again; what
        is left of Bluestein's formula is a factor of magnitude 1.
        """

        def multiply_chirp(i: IntValue) -> None:
            pointers = ir.element_pointer(row[0], i), ir.element_pointer(row[1], i)
            chirp_factor = [
                ir.load(ir.element_pointer(memory.reals, ir.add_int(i, offset)))
                for offset in self._chirp_offsets
            ]
            y = ir.multiply_complex(
                (ir.load(pointers[0]), ir.load(pointers[1])),
                (chirp_factor[0], chirp_factor[1]),
            )
            ir.store(y[0], pointers[0])
            ir.store(y[1], pointers[1])

        nperseg = load_job_field(ir, "nperseg")
        ir.vector_loop(nperseg, multiply_chirp)
        for part in row:
            zero_fill(
                ir,
                ir.element_pointer(part, nperseg),
                ir.subtract_int(self.transform_length, nperseg),
            )

        def multiply_filter(index: IntValue, y: ComplexNames) -> None:
            filter_factor = [
                ir.load(ir.element_pointer(memory.reals, ir.add_int(index, offset)))
                for offset in self._filter_offsets
            ]
            product = ir.multiply_complex(y, (filter_factor[0], filter_factor[1]))
            ir.store(product[1], ir.element_pointer(row[0], index))
            ir.store(product[0], ir.element_pointer(row[1], index))

        self.transform.emit(ir, row, memory, multiply_filter)


class LanePowerSums(PowerSums):
    """Power sums with one pair of segments in each lane: pairs of several rows if a row
    has too few.
    """

    def __init__(
        self,
        n: int,
        vector_type: VectorType,
        tables: ConstantTables,
        has_integer_samples: bool,
    ) -> None:
        super().__init__(n, vector_type, tables, has_integer_samples)
        self.transform = LaneTransform(n, vector_type.lanes, tables)
        self.padded_length = -(-n // vector_type.lanes) * vector_type.lanes

    @property
    def pitch(self) -> int:
        lanes = self.vector_type.lanes
        return -(-(self.n + 1) // lanes) * lanes

    @property
    def scratch_length(self) -> int:
        """Elements for the pairs in row order, the transform's own scratch, and the
        squared results.
        """
        lanes = self.vector_type.lanes
        return 3 * lanes * self.padded_length + self.transform.scratch_length

    def rows_per_call(self, segments: int) -> int:
        lanes, pairs = self.vector_type.lanes, (segments + 1) // 2
        return lanes // gcd(lanes, pairs)

    def _emit_body(self, ir: IRBuilder) -> None:
        lanes, pair_length = self.vector_type.lanes, 2 * self.padded_length
        squares = ir.element_pointer("%scratch", lanes * pair_length)
        memory = self._transform_memory(ir, (lanes + (lanes + 1) // 2) * pair_length)
        zero_fill(ir, "%scratch", 3 * lanes * self.padded_length)
        pairs = emit_pair_count(ir)
        pair_count = ir.multiply_int("%rows", pairs)
        groups = ir.emit_value(f"udiv i64 {ir.add_int(pair_count, lanes - 1)}, {lanes}")

        def group(group_index: IntValue) -> None:
            first = ir.multiply_int(group_index, lanes)
            group_size = ir.min_int(lanes, ir.subtract_int(pair_count, first))

            def fill(lane: IntValue) -> None:
                pair_number = ir.add_int(first, lane)
                row = ir.emit_value(f"udiv i64 {pair_number}, {pairs}")
                pair = ir.emit_value(f"urem i64 {pair_number}, {pairs}")
                out = ir.element_pointer("%scratch", ir.multiply_int(lane, pair_length))
                self._emit_pair(
                    ir, row, pair, (out, ir.element_pointer(out, self.padded_length))
                )

            ir.loop(group_size, fill)
            self._transpose_pairs(ir, memory, pair_length)
            self.transform.emit(
                ir,
                memory,
                lambda index, y: ir.store(
                    ir.add_squared_magnitude(y, self.vector_type.splat(0.0)),
                    ir.element_pointer(squares, index),
                ),
            )
            owners = [
                self._owner_sums(ir, ir.add_int(first, i), pair_count, pairs)
                for i in range(lanes)
            ]
            self._accumulate_squares(ir, squares, owners)

        ir.loop(groups, group)

    def _transpose_pairs(
        self, ir: IRBuilder, memory: TransformMemory, pair_length: int
    ) -> None:
        """Transpose the pairs, one into each lane."""
        lanes = self.vector_type.lanes

        def block(block_index: IntValue) -> None:
            # What does not come out even is moved twice.
            first = ir.min_int(
                ir.multiply_int(block_index, lanes), max(0, self.n - lanes)
            )
            for part in (0, 1):
                base = ir.element_pointer(
                    "%scratch", ir.add_int(first, part * self.padded_length)
                )
                rows = [
                    ir.load(ir.element_pointer(base, lane * pair_length))
                    for lane in range(lanes)
                ]
                for i, vector in enumerate(transpose(ir, rows)[: self.n]):
                    pointers = self.transform.element_pointers(
                        ir, memory, ir.add_int(first, i)
                    )
                    ir.store(vector, pointers[part])

        ir.loop(-(-self.n // lanes), block)

    def _owner_sums(
        self,
        ir: IRBuilder,
        pair_number: IntValue,
        pair_count: IntValue,
        pairs: IntValue,
    ) -> Value:
        """Return the sums that a pair's squares belong to; those of padding pairs lie
        behind all rows.
        """
        is_valid = ir.emit_value(f"icmp ult i64 {pair_number}, {pair_count}")
        row = ir.emit_value(f"udiv i64 {pair_number}, {pairs}")
        owner_row = ir.emit_value(f"select i1 {is_valid}, i64 {row}, i64 %rows")
        return ir.element_pointer("%sums", ir.multiply_int(owner_row, self.pitch))

    def _accumulate_squares(
        self, ir: IRBuilder, squares: Value, owners: list[Value]
    ) -> None:
        lanes = self.vector_type.lanes

        def block(block_index: IntValue) -> None:
            first = ir.multiply_int(block_index, lanes)
            base = ir.element_pointer(squares, ir.multiply_int(first, lanes))
            rows = [ir.load(ir.element_pointer(base, i * lanes)) for i in range(lanes)]
            for vector, owner in zip(transpose(ir, rows), owners, strict=True):
                pointer = ir.element_pointer(owner, first)
                ir.store(ir.add_reals(ir.load(pointer), vector), pointer)

        ir.loop(self.padded_length // lanes, block)


def choose_power_sums(
    n: int,
    vector_types: tuple[VectorType, ...],
    tables: ConstantTables,
    has_integer_samples: bool,
) -> PowerSums:
    """Choose the method for a length: the widest vectors, of `widths`, that a row can
    be split into.

    Half of the widest are still faster than pairs side by side; odd lengths go so, and
    lengths with a large prime factor by a chirp.
    """
    for vector_type in vector_types:
        if RowTransform.can_transform(n, vector_type.lanes):
            return RowPowerSums(n, vector_type, tables, has_integer_samples)
    method = LanePowerSums if has_small_factors(n) else RowPowerSums
    return method(n, vector_types[0], tables, has_integer_samples)
