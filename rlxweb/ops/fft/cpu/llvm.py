"""Complex FFTs as LLVM IR, over vectors of lanes: in registers, then through scratch
memory.

`LaneTransform` makes one transform in every lane at once, of any length whose prime
factors are small: passes of butterflies over scratch, in place, whose results come in
an order of digits turned round. `RowTransform` makes one transform of a row that lies
as it came: its columns side by side first (Cooley and Tukey's four steps), each lane
then goes on by itself, and the results lie in their natural order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.codegen.butterfly import ComplexNames
from rlxweb.codegen.fft_arithmetic import prime_factors, radices
from rlxweb.codegen.llvm_builder import IntValue, IRBuilder, Value, transpose

MAX_RADIX: Final = 16
"""Largest radix: fits 32 registers without much spilling."""
MIN_BLOCKED_LENGTH: Final = 2048
"""Length from which the two-pass transform was measured to be faster: at 4096 by a
third.
"""
MAX_PRIME_FACTOR: Final = 43
"""Largest prime factor for butterflies; beyond it Bluestein's chirp was measured to be
as fast, and sooner compiled.
"""

ResultHandler = Callable[[IntValue, ComplexNames], None]
"""Callback (index, values) that handles the results that begin at an index."""
ElementSource = Callable[[IntValue], ComplexNames]
"""Function that maps an element's number to all lanes of it."""


@dataclass(slots=True)
class ConstantTables:
    """Constant tables that kernels look up, one array of reals and one of indices for a
    whole function.
    """

    reals: list[NDArray[np.float64]] = field(default_factory=list)
    indices: list[int] = field(default_factory=list)

    def add_reals(self, values: NDArray[Any]) -> int:
        """Append values and return their offset in the array of reals."""
        offset = sum(map(len, self.reals))
        self.reals.append(np.asarray(values, np.float64).reshape(-1))
        return offset

    def add_indices(self, values: Sequence[int]) -> int:
        offset = len(self.indices)
        self.indices += values
        return offset

    def arrays(self, element_type: str) -> tuple[NDArray[Any], NDArray[np.int32]]:
        """Return both arrays, the reals in the given precision."""
        dtype = np.float32 if element_type == "float" else np.float64
        reals = np.concatenate([*self.reals, np.zeros(1)]).astype(dtype)
        return reals, np.array([*self.indices, 0], np.int32)


@dataclass(frozen=True, slots=True)
class TransformMemory:
    """Names of the memory that a transform works with.

    scratch   of its own, `reals` elements
    reals, indices  the arrays of its `ConstantTables`
    """

    scratch: Value
    reals: Value
    indices: Value


def has_small_factors(n: int) -> bool:
    """Return whether butterflies alone transform that length."""
    return max(prime_factors(n), default=1) <= MAX_PRIME_FACTOR


class LaneTransform:
    """Transform of length m in every lane at once.

    Element i of all lanes lies in scratch at 2 · lanes · i: reals, then the imaginary
    parts.
    """

    def __init__(self, length: int, lanes: int, tables: ConstantTables) -> None:
        self.length, self.lanes = length, lanes
        self.radices = radices(length, MAX_RADIX)
        self._root_offsets, span = [], length
        for radix in self.radices[:-1]:
            self._root_offsets.append(tables.add_reals(_root_factors(span, radix)))
            span //= radix
        self._order_offset = tables.add_indices(
            _digit_reversed_order(length, self.radices)
        )

    @property
    def scratch_length(self) -> int:
        """Elements of scratch."""
        return 2 * self.lanes * self.length

    def element_pointers(
        self, ir: IRBuilder, memory: TransformMemory, index: IntValue
    ) -> tuple[Value, Value]:
        """Return the pointers to the real and the imaginary parts of an element."""
        re = ir.element_pointer(memory.scratch, ir.multiply_int(index, 2 * self.lanes))
        return re, ir.element_pointer(re, self.lanes)

    def emit(
        self,
        ir: IRBuilder,
        memory: TransformMemory,
        handle_result: ResultHandler,
        source: ElementSource | None = None,
    ) -> None:
        """Emit all passes; `handle_result` receives the k-th results of all lanes at
        index k · lanes.

        It is called once for each value of the last butterflies, of which a loop runs
        all.

        source   gives the elements, in place of the scratch
        """

        def load_scratch(index: IntValue) -> ComplexNames:
            return _load_pair(ir, self.element_pointers(ir, memory, index))

        span = self.length
        for pass_index, radix in enumerate(self.radices[:-1]):
            load = source if source and not pass_index else load_scratch
            self._emit_pass(
                ir, memory, span, radix, self._root_offsets[pass_index], load
            )
            span //= radix
        blocks, radix = self.length // span, span
        load_last = source if source and blocks == 1 else load_scratch

        def emit_last(block: IntValue) -> None:
            first = ir.multiply_int(block, radix)
            inputs = [load_last(ir.add_int(first, q)) for q in range(radix)]
            k = ir.load_index(memory.indices, ir.add_int(block, self._order_offset))
            for q, y in enumerate(ir.dft(inputs)):
                index = ir.add_int(
                    ir.multiply_int(k, self.lanes), q * blocks * self.lanes
                )
                handle_result(index, y)

        ir.loop(blocks, emit_last)

    def _emit_pass(
        self,
        ir: IRBuilder,
        memory: TransformMemory,
        span: int,
        radix: int,
        root_offset: int,
        load: ElementSource,
    ) -> None:
        stride = span // radix

        def butterfly(block: IntValue, j: IntValue) -> None:
            first = ir.add_int(ir.multiply_int(block, span), j)
            elements = [ir.add_int(first, q * stride) for q in range(radix)]
            twiddle_index = ir.add_int(ir.multiply_int(j, 2 * (radix - 1)), root_offset)
            for q, y in enumerate(ir.dft([load(element) for element in elements])):
                if q:
                    re = ir.load_element(
                        memory.reals, ir.add_int(twiddle_index, 2 * q - 2)
                    )
                    im = ir.load_element(
                        memory.reals, ir.add_int(twiddle_index, 2 * q - 1)
                    )
                    y = ir.multiply_complex(y, (ir.broadcast(re), ir.broadcast(im)))
                pointers = self.element_pointers(ir, memory, elements[q])
                for value, pointer in zip(y, pointers, strict=True):
                    ir.store(value, pointer)

        ir.loop(
            self.length // span,
            lambda block: ir.loop(stride, lambda j: butterfly(block, j)),
        )


class RowTransform:
    """Transform of a row of n = lanes · m elements, if `can_transform` allows it.

    The row lies as two arrays, of its reals and of its imaginary parts.
    """

    def __init__(self, n: int, lanes: int, tables: ConstantTables) -> None:
        self.n, self.lanes = n, lanes
        self.lane_transform = LaneTransform(n // lanes, lanes, tables)
        products = np.outer(np.arange(1, lanes), np.arange(self.lane_transform.length))
        angle = products * (-2.0 * math.pi / n)
        # For each column's result the reals of all places, then the imaginary parts.
        cos_sin = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        self._twiddle_offset = tables.add_reals(cos_sin)

    @staticmethod
    def can_transform(n: int, lanes: int) -> bool:
        return n % lanes == 0 and n >= lanes * lanes and has_small_factors(n)

    @property
    def scratch_length(self) -> int:
        return self.lane_transform.scratch_length

    def emit(
        self,
        ir: IRBuilder,
        row: tuple[Value, Value],
        memory: TransformMemory,
        handle_result: ResultHandler,
    ) -> None:
        """Emit the transform; `handle_result` receives the results from an index on, in
        natural order.
        """
        m, lanes = self.lane_transform.length, self.lanes

        def columns(block: IntValue) -> None:
            # Where they do not come out even, the last ones are done twice.
            first = ir.min_int(ir.multiply_int(block, lanes), m - lanes)
            inputs = [
                (
                    ir.load(ir.element_pointer(row[0], offset)),
                    ir.load(ir.element_pointer(row[1], offset)),
                )
                for offset in (ir.add_int(first, q * m) for q in range(lanes))
            ]
            results = ir.dft(inputs)
            twiddles = ir.element_pointer(
                memory.reals, ir.add_int(first, self._twiddle_offset)
            )
            for q in range(1, lanes):
                offset = 2 * (q - 1) * m
                twiddle = (
                    ir.load(ir.element_pointer(twiddles, offset)),
                    ir.load(ir.element_pointer(twiddles, offset + m)),
                )
                results[q] = ir.multiply_complex(results[q], twiddle)
            parts = [transpose(ir, [y[part] for y in results]) for part in (0, 1)]
            for i in range(lanes):
                pointers = self.lane_transform.element_pointers(
                    ir, memory, ir.add_int(first, i)
                )
                ir.store(parts[0][i], pointers[0])
                ir.store(parts[1][i], pointers[1])

        ir.loop(-(-m // lanes), columns)
        self.lane_transform.emit(ir, memory, handle_result)


class BlockTransform(RowTransform):
    """Transform of a long row, n = rows · columns, in two passes through memory.

    A block of columns, as wide as a vector, is transformed in the nearest cache, turned
    (by two factors, as a table of all turns would be as large as the row) and twisted;
    then each block of rows.
    """

    def __init__(self, n: int, lanes: int, tables: ConstantTables) -> None:
        self.n, self.lanes = n, lanes
        rows, columns = self.split_length(n, lanes)
        self.column_transform = LaneTransform(rows, lanes, tables)
        self.lane_transform = LaneTransform(columns, lanes, tables)
        k = np.arange(rows)
        near_angles = np.outer(k, np.arange(lanes)) * (-2.0 * math.pi / n)
        far_angles = np.outer(k, np.arange(columns // lanes)) * (
            -2.0 * math.pi * lanes / n
        )
        self._near_twiddle_offset = tables.add_reals(
            np.stack([np.cos(near_angles), np.sin(near_angles)], axis=1)
        )
        self._far_twiddle_offset = tables.add_reals(
            np.stack([np.cos(far_angles), np.sin(far_angles)], axis=-1)
        )

    @staticmethod
    def split_length(n: int, lanes: int) -> tuple[int, int]:
        """Return rows and columns, multiples of the lanes, as near to each other as
        possible.
        """
        candidates = [
            (rows, n // rows)
            for rows in range(lanes, math.isqrt(n) + 1, lanes)
            if n % rows == 0 and n // rows % lanes == 0
        ]
        return candidates[-1] if candidates else (0, 0)

    @classmethod
    def can_transform(cls, n: int, lanes: int) -> bool:
        return (
            n >= MIN_BLOCKED_LENGTH
            and bool(cls.split_length(n, lanes)[0])
            and has_small_factors(n)
        )

    @property
    def scratch_length(self) -> int:
        """Elements for all rows, and for one block of columns twice."""
        return 2 * self.n + 2 * self.column_transform.scratch_length

    def emit(
        self,
        ir: IRBuilder,
        row: tuple[Value, Value],
        memory: TransformMemory,
        handle_result: ResultHandler,
    ) -> None:
        """Emit the transform; `handle_result` receives the results from an index on,
        out of order.
        """
        rows = self.column_transform.length
        columns = self.lane_transform.length
        lanes = self.lanes
        block_length = self.lane_transform.scratch_length  # of a block of rows
        block = replace(memory, scratch=ir.element_pointer(memory.scratch, 2 * self.n))
        column_results = ir.element_pointer(
            block.scratch, self.column_transform.scratch_length
        )

        def transform_columns(column_block: IntValue) -> None:
            column = ir.multiply_int(column_block, lanes)

            def source(i: IntValue) -> ComplexNames:
                index = ir.add_int(ir.multiply_int(i, columns), column)
                return ir.load(ir.element_pointer(row[0], index)), ir.load(
                    ir.element_pointer(row[1], index)
                )

            def store_result(index: IntValue, y: ComplexNames) -> None:
                pointer = ir.element_pointer(column_results, ir.multiply_int(index, 2))
                ir.store(y[0], pointer)
                ir.store(y[1], ir.element_pointer(pointer, lanes))

            self.column_transform.emit(ir, block, store_result, source)
            ir.loop(
                rows // lanes,
                lambda row_block: transpose_rows(row_block, column_block, column),
            )

        def transpose_rows(
            row_block: IntValue, column_block: IntValue, column: IntValue
        ) -> None:
            results = []
            for i in range(lanes):
                k = ir.add_int(ir.multiply_int(row_block, lanes), i)
                pointer = ir.element_pointer(
                    column_results, ir.multiply_int(k, 2 * lanes)
                )
                y = ir.load(pointer), ir.load(ir.element_pointer(pointer, lanes))
                near_twiddle = ir.element_pointer(
                    memory.reals,
                    ir.add_int(
                        ir.multiply_int(k, 2 * lanes), self._near_twiddle_offset
                    ),
                )
                y = ir.multiply_complex(
                    y,
                    (
                        ir.load(near_twiddle),
                        ir.load(ir.element_pointer(near_twiddle, lanes)),
                    ),
                )
                twiddle_index = ir.add_int(
                    ir.multiply_int(k, columns // lanes), column_block
                )
                far_twiddle = ir.element_pointer(
                    memory.reals,
                    ir.add_int(
                        ir.multiply_int(twiddle_index, 2), self._far_twiddle_offset
                    ),
                )
                twiddle = (
                    ir.broadcast(ir.load_element(far_twiddle, 0)),
                    ir.broadcast(ir.load_element(far_twiddle, 1)),
                )
                results.append(ir.multiply_complex(y, twiddle))
            parts = [transpose(ir, [y[part] for y in results]) for part in (0, 1)]
            block_scratch = ir.element_pointer(
                memory.scratch, ir.multiply_int(row_block, block_length)
            )
            for i in range(lanes):
                pointer = ir.element_pointer(
                    block_scratch, ir.multiply_int(ir.add_int(column, i), 2 * lanes)
                )
                ir.store(parts[0][i], pointer)
                ir.store(parts[1][i], ir.element_pointer(pointer, lanes))

        def transform_rows(row_block: IntValue) -> None:
            block_memory = replace(
                memory,
                scratch=ir.element_pointer(
                    memory.scratch, ir.multiply_int(row_block, block_length)
                ),
            )
            first = ir.multiply_int(row_block, lanes)

            def emit_result(index: IntValue, y: ComplexNames) -> None:
                handle_result(
                    ir.add_int(first, ir.multiply_int(index, rows // lanes)), y
                )

            self.lane_transform.emit(ir, block_memory, emit_result)

        ir.loop(columns // lanes, transform_columns)
        ir.loop(rows // lanes, transform_rows)


def choose_row_transform(n: int, lanes: int, tables: ConstantTables) -> RowTransform:
    """Choose the transform for a row that can be split into lanes."""
    transform_class = (
        BlockTransform if BlockTransform.can_transform(n, lanes) else RowTransform
    )
    return transform_class(n, lanes, tables)


def _load_pair(ir: IRBuilder, pointers: tuple[Value, Value]) -> ComplexNames:
    return ir.load(pointers[0]), ir.load(pointers[1])


def _root_factors(span: int, radix: int) -> NDArray[np.float64]:
    """Return exp(-2πi jq/span) for each position j and each q but 0, as cos, sin."""
    angle = np.outer(np.arange(span // radix), np.arange(1, radix)) / span
    angle *= -2.0 * math.pi
    return np.stack([np.cos(angle), np.sin(angle)], axis=-1)


def _digit_reversed_order(length: int, factors: Sequence[int]) -> list[int]:
    """Return the number of the first result of each block of the last pass."""
    order = np.zeros(1, np.int64)
    weight = 1
    for radix in factors[:-1]:
        order = (order[:, None] + weight * np.arange(radix)).reshape(-1)
        weight *= radix
    return [int(k) for k in order]
