"""LLVM kernel for float32 matrix products, one panel of columns at a time.

A task is a panel, so many columns of b, and a block of rows of a: some of them meet the
panel's vectors in registers, term by term. What is done with each element of the result
is done while the panel's part of it lies in the nearest caches. What is left of rows or
columns is done with some of what was done before: the same numbers again.

Nothing is laid out anew here: with tiles this large, b is read from the second cache as
fast as it is needed, however far apart its rows lie. Where few rows meet it, it comes
from memory, which likes panels that lie side by side: so it may come as such. Only the
windows of a convolution are no matrix: those of a panel are gathered by tables of
places, some terms at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from rlxweb.codegen import llvm_math_functions
from rlxweb.codegen.llvm_builder import IntValue, IRBuilder, Value, VectorType
from rlxweb.codegen.native_calls import job_wrapper_llvm_ir

SIGNATURE: Final = "void @product(ptr %job, ptr %room, i64 %floats, ptr %taken)"
"""LLVM signature: `job` holds `JOB_FIELDS`, 64 bits each; `room` has `floats` floats
for each thread, at least `scratch_floats`; `taken` is the counter of claimed tasks,
followed by the number of threads.
"""
_TABLE_FIELDS: Final = ("terms_at", "columns_at", "out_at")
_ADDRESS_FIELDS: Final = ("a", "b", "out", "tail", "operands", *_TABLE_FIELDS)
JOB_FIELDS: Final = (
    *_ADDRESS_FIELDS,
    *("count", "tasks", "panels", "blocks", "each"),
    *("rows", "columns", "terms", "a_row", "b_row", "out_row"),
    *("a_batch", "b_batch", "out_batch", "b_panel"),
)
"""Fields of a job: addresses of floats, of the epilogue function (0 for none; it takes
a job, rows and columns) and its operands, and of the i32 tables if b is gathered:
element (t, c) is at b + terms_at[t] + columns_at[c], and column c of the result begins
at out + out_at[c]. Then the number of operands; tasks, panels, blocks of rows and rows
per block; sizes; strides in elements by row and by matrix, and from one packed panel of
b to the next (0 if b is not packed).

An operand of the rest: its address, and bytes from one row, one column and one matrix
to the next. The first is its result, which lies where the product does where b is
gathered. The product itself is the second, and lies in the thread's own room.
"""
PREFETCH_ROWS: Final = 24
"""Rows of b that are prefetched ahead of use: rows lie in pages of their own, which no
hardware prefetcher foresees.
"""
CHUNK_TERMS: Final = 512
"""Terms of a chunk: as many rows of a panel stay in the second-level cache until all
rows of a block have used them.
"""
OPERAND_WORDS: Final = 4
"""Words of an operand."""
MAX_OPERANDS: Final = 16


class MatmulTile(NamedTuple):
    """Register tile: rows, and vectors of columns."""

    rows: int
    vectors: int


def matmul_tiles(nbytes: int) -> tuple[MatmulTile, ...]:
    """Return the tiles that leave registers for their operands, for vectors of `nbytes`
    bytes; the last ones are for few rows or columns.
    """
    small_tiles = (
        MatmulTile(4, 2),
        MatmulTile(8, 1),
        MatmulTile(4, 1),
        MatmulTile(2, 4),
        MatmulTile(1, 8),
        MatmulTile(1, 4),
    )
    if nbytes == 64:  # which come with twice as many registers
        return MatmulTile(8, 3), MatmulTile(6, 4), MatmulTile(4, 4), *small_tiles
    return MatmulTile(6, 2), MatmulTile(4, 3), *small_tiles


def product_scratch_floats(
    tile: MatmulTile, lanes: int, block_rows: int, *, gathered: bool = False
) -> int:
    """Return the floats of a thread's scratch: a panel's part of the result and of b,
    and the epilogue's operands.
    """
    rows = block_rows + (CHUNK_TERMS if gathered else 0)
    return tile.vectors * lanes * rows + 4 * MAX_OPERANDS


def matmul_llvm_ir(tile: MatmulTile, nbytes: int, *, gathered: bool = False) -> str:
    """Return the LLVM IR for a tile and vectors of `nbytes` bytes: rows, columns and
    the rows of a block must be no fewer than the tile's.

    gathered  b by tables of places
    """
    return _MatmulKernel(tile, VectorType("float", nbytes // 4), gathered).llvm_ir()


class _MatmulKernel:
    def __init__(
        self, tile: MatmulTile, vector_type: VectorType, gathered: bool
    ) -> None:
        ir = self.ir = IRBuilder(SIGNATURE, vector_type)
        self.tile, self.panel_width = tile, tile.vectors * vector_type.lanes
        self.is_gathered = gathered
        self.job_fields = ir.load_job_fields(JOB_FIELDS, _ADDRESS_FIELDS)
        self.result_buffer = self.operand_buffer = self.panel_buffer = ""

    def llvm_ir(self) -> str:
        ir, job = self.ir, self.job_fields
        thread_index = ir.emit_value(
            f"atomicrmw add ptr {ir.element_pointer('%taken', 1, 'i64')}, i64 1 "
            f"monotonic"
        )
        self.operand_buffer = ir.element_pointer(
            "%room", ir.multiply_int(thread_index, "%floats")
        )
        self.panel_buffer = ir.element_pointer(self.operand_buffer, 4 * MAX_OPERANDS)
        panel_floats = CHUNK_TERMS * self.panel_width if self.is_gathered else 0
        self.result_buffer = ir.element_pointer(self.panel_buffer, panel_floats)
        ir.claim_loop("%taken", 1, job["tasks"], self._emit_task)
        ir.emit("ret void")
        return ir.text + job_wrapper_llvm_ir(SIGNATURE)

    def _emit_task(self, task: Value) -> None:
        ir, job = self.ir, self.job_fields
        panel = ir.emit_value(f"urem i64 {task}, {job['panels']}")
        panel_quotient = ir.emit_value(f"udiv i64 {task}, {job['panels']}")
        block = ir.emit_value(f"urem i64 {panel_quotient}, {job['blocks']}")
        batch = ir.emit_value(f"udiv i64 {panel_quotient}, {job['blocks']}")
        last_column = ir.subtract_int(job["columns"], self.panel_width)
        column = ir.min_int(ir.multiply_int(panel, self.panel_width), last_column)
        row = ir.multiply_int(block, job["each"])
        # The last block has what is left.
        is_last = ir.emit_value(f"icmp eq i64 {ir.add_int(block, 1)}, {job['blocks']}")
        remaining_rows = ir.subtract_int(job["rows"], row)
        count = ir.emit_value(
            f"select i1 {is_last}, i64 {remaining_rows}, i64 {job['each']}"
        )

        a = ir.element_pointer(job["a"], ir.multiply_int(batch, job["a_batch"]))
        a = ir.element_pointer(a, ir.multiply_int(row, job["a_row"]))
        b = ir.element_pointer(job["b"], ir.multiply_int(batch, job["b_batch"]))
        out = ir.element_pointer(job["out"], ir.multiply_int(batch, job["out_batch"]))
        out = ir.element_pointer(out, ir.multiply_int(row, job["out_row"]))
        no_tail = ir.emit_value(f"icmp eq ptr {job['tail']}, null")
        if self.is_gathered:
            self._emit_chunks(
                a, (b, column), (self.result_buffer, str(self.panel_width)), count
            )
            has_tail = ir.emit_value(f"xor i1 {no_tail}, true")
            ir.if_then(has_tail, lambda: self._emit_epilogue(batch, row, column, count))
            self._scatter_result(out, column, count)
            return

        out = ir.element_pointer(out, column)
        is_packed = ir.emit_value(f"icmp ne i64 {job['b_panel']}, 0")
        packed_offset = ir.multiply_int(panel, job["b_panel"])
        begin = ir.emit_value(
            f"select i1 {is_packed}, i64 {packed_offset}, i64 {column}"
        )
        is_single_chunk = ir.emit_value(f"icmp ule i64 {job['terms']}, {CHUNK_TERMS}")
        is_direct = ir.emit_value(f"and i1 {no_tail}, {is_single_chunk}")
        target = ir.emit_value(
            f"select i1 {is_direct}, ptr {out}, ptr {self.result_buffer}"
        )
        target_row = ir.emit_value(
            f"select i1 {is_direct}, i64 {job['out_row']}, i64 {self.panel_width}"
        )
        self._emit_chunks(a, (b, begin), (target, target_row), count)
        has_tail = ir.emit_value(f"xor i1 {no_tail}, true")
        ir.if_then(has_tail, lambda: self._emit_epilogue(batch, row, column, count))
        needs_copy = ir.emit_value(f"icmp ult i1 {is_direct}, {no_tail}")
        ir.if_then(needs_copy, lambda: self._copy_result(out, count))

    def _emit_chunks(
        self,
        a: Value,
        b: tuple[Value, IntValue],
        target: tuple[Value, Value],
        count: Value,
    ) -> None:
        """Emit all sums, one chunk of terms at a time."""
        ir, job = self.ir, self.job_fields

        def emit_chunk(i: IntValue) -> None:
            term = ir.multiply_int(i, CHUNK_TERMS)
            terms = ir.min_int(ir.subtract_int(job["terms"], term), CHUNK_TERMS)
            if self.is_gathered:
                self._gather_panel(b, term, terms)
                panel = self.panel_buffer, str(self.panel_width)
            else:
                pointer = ir.element_pointer(
                    ir.element_pointer(b[0], b[1]), ir.multiply_int(term, job["b_row"])
                )
                panel = pointer, job["b_row"]
            self._emit_rows(
                ir.element_pointer(a, term), panel, target, count, (i, terms)
            )

        ir.loop(
            ir.emit_value(
                f"udiv i64 {ir.add_int(job['terms'], CHUNK_TERMS - 1)}, {CHUNK_TERMS}"
            ),
            emit_chunk,
        )

    def _gather_panel(
        self, b: tuple[Value, IntValue], term: IntValue, terms: IntValue
    ) -> None:
        """Gather a chunk of a panel into the thread's scratch, vector by vector."""
        ir, lanes = self.ir, self.ir.vector_type.lanes
        index_vector = f"<{lanes} x i32>"
        term_table = ir.element_pointer(self.job_fields["terms_at"], term, "i32")
        for v in range(self.tile.vectors):
            column_table = ir.element_pointer(
                self.job_fields["columns_at"], ir.add_int(b[1], v * lanes), "i32"
            )
            places = ir.emit_value(f"load {index_vector}, ptr {column_table}, align 4")
            begin = ir.element_pointer(b[0], ir.load_index(column_table, 0))
            panel_pointer = ir.element_pointer(self.panel_buffer, v * lanes)

            def copy_contiguous(
                k: IntValue, begin: Value = begin, panel_pointer: Value = panel_pointer
            ) -> None:
                pointer = ir.element_pointer(begin, ir.load_index(term_table, k))
                ir.store(
                    ir.load(pointer),
                    ir.element_pointer(
                        panel_pointer, ir.multiply_int(k, self.panel_width)
                    ),
                )

            def gather_scattered(
                k: IntValue,
                places: Value = places,
                panel_pointer: Value = panel_pointer,
            ) -> None:
                pointer = ir.element_pointer(b[0], ir.load_index(term_table, k))
                ir.store(
                    ir.gather(pointer, places),
                    ir.element_pointer(
                        panel_pointer, ir.multiply_int(k, self.panel_width)
                    ),
                )

            self._contiguous_or_scattered_loop(
                column_table, terms, copy_contiguous, gather_scattered
            )

    def _contiguous_or_scattered_loop(
        self,
        table: Value,
        iterations: IntValue,
        contiguous_body: Callable[[IntValue], None],
        scattered_body: Callable[[IntValue], None],
    ) -> None:
        """Emit a loop over `contiguous_body` if a vector of table entries is
        contiguous, else over `scattered_body`.
        """
        ir, lanes = self.ir, self.ir.vector_type.lanes
        span = ir.subtract_int(ir.load_index(table, lanes - 1), ir.load_index(table, 0))
        is_contiguous = ir.emit_value(f"icmp eq i64 {span}, {lanes - 1}")
        ir.if_then(is_contiguous, lambda: ir.loop(iterations, contiguous_body))
        ir.if_then(
            ir.emit_value(f"xor i1 {is_contiguous}, true"),
            lambda: ir.loop(iterations, scattered_body),
        )

    def _scatter_result(self, out: Value, column: IntValue, count: Value) -> None:
        """Scatter the result from the thread's scratch to where its columns begin."""
        ir, lanes = self.ir, self.ir.vector_type.lanes
        for v in range(self.tile.vectors):
            column_table = ir.element_pointer(
                self.job_fields["out_at"], ir.add_int(column, v * lanes), "i32"
            )
            buffer_pointer = ir.element_pointer(self.result_buffer, v * lanes)
            begin = ir.element_pointer(out, ir.load_index(column_table, 0))

            def copy_contiguous(
                i: IntValue,
                buffer_pointer: Value = buffer_pointer,
                begin: Value = begin,
            ) -> None:
                values = ir.load(
                    ir.element_pointer(
                        buffer_pointer, ir.multiply_int(i, self.panel_width)
                    )
                )
                ir.store(
                    values,
                    ir.element_pointer(
                        begin, ir.multiply_int(i, self.job_fields["out_row"])
                    ),
                )

            def store_scattered(
                i: IntValue,
                buffer_pointer: Value = buffer_pointer,
                column_table: Value = column_table,
            ) -> None:
                line_pointer = ir.element_pointer(
                    buffer_pointer, ir.multiply_int(i, self.panel_width)
                )
                row = ir.element_pointer(
                    out, ir.multiply_int(i, self.job_fields["out_row"])
                )

                def store_element(c: IntValue) -> None:
                    pointer = ir.element_pointer(row, ir.load_index(column_table, c))
                    ir.emit(
                        f"store float {ir.load_element(line_pointer, c)}, ptr "
                        f"{pointer}, align 4"
                    )

                ir.loop(lanes, store_element)

            self._contiguous_or_scattered_loop(
                column_table, count, copy_contiguous, store_scattered
            )

    def _copy_result(self, out: Value, count: Value) -> None:
        """Copy the result from the thread's scratch to the output."""
        ir, lanes = self.ir, self.ir.vector_type.lanes

        def row(i: IntValue) -> None:
            source = ir.element_pointer(
                self.result_buffer, ir.multiply_int(i, self.panel_width)
            )
            target = ir.element_pointer(
                out, ir.multiply_int(i, self.job_fields["out_row"])
            )
            for v in range(self.tile.vectors):
                ir.store(
                    ir.load(ir.element_pointer(source, v * lanes)),
                    ir.element_pointer(target, v * lanes),
                )

        ir.loop(count, row)

    def _emit_rows(
        self,
        a: Value,
        b: tuple[Value, Value],
        target: tuple[Value, Value],
        count: Value,
        chunk: tuple[IntValue, IntValue],
    ) -> None:
        """Emit all rows of a block, with the terms of one chunk."""
        ir, tile_rows = self.ir, self.tile.rows
        iterations = ir.emit_value(
            f"udiv i64 {ir.add_int(count, tile_rows - 1)}, {tile_rows}"
        )
        last_row = ir.subtract_int(count, tile_rows)

        def emit_tile(i: IntValue) -> None:
            first = ir.min_int(ir.multiply_int(i, tile_rows), last_row)
            self._emit_tile(
                ir.element_pointer(a, ir.multiply_int(first, self.job_fields["a_row"])),
                b,
                (
                    ir.element_pointer(target[0], ir.multiply_int(first, target[1])),
                    target[1],
                ),
                chunk,
                ir.subtract_int(ir.multiply_int(i, tile_rows), first),
            )

        ir.loop(iterations, emit_tile)

    def _emit_tile(
        self,
        a: Value,
        b: tuple[Value, Value],
        target: tuple[Value, Value],
        chunk: tuple[IntValue, IntValue],
        done: IntValue,
    ) -> None:
        """Emit the tile's rows from `a` on; the first `done` of them were stored
        before.
        """
        ir, (rows, vectors) = self.ir, self.tile
        lanes = ir.vector_type.lanes
        a_rows = [
            ir.element_pointer(a, ir.multiply_int(r, self.job_fields["a_row"]))
            for r in range(rows)
        ]
        target_rows = [
            ir.element_pointer(target[0], ir.multiply_int(r, target[1]))
            for r in range(rows)
        ]
        target_pointers = [
            ir.element_pointer(target_row, v * lanes)
            for target_row in target_rows
            for v in range(vectors)
        ]
        vector = ir.vector_type.llvm_type

        def add_term(k: IntValue, *accumulators: Value) -> list[Value]:
            b_row = ir.element_pointer(b[0], ir.multiply_int(k, b[1]))
            if not self.is_gathered:
                ahead = ir.element_pointer(b_row, ir.multiply_int(PREFETCH_ROWS, b[1]))
                for v in range(vectors):
                    ir.prefetch(ir.element_pointer(ahead, v * lanes))
            loaded = [
                ir.load(ir.element_pointer(b_row, v * lanes)) for v in range(vectors)
            ]
            updated = []
            for r, a_row in enumerate(a_rows):
                number = ir.broadcast(ir.load_element(a_row, k))
                updated += [
                    llvm_math_functions.multiply_add(
                        ir, number, vector, accumulators[r * vectors + v]
                    )
                    for v, vector in enumerate(loaded)
                ]
            return updated

        zero = (vector, "zeroinitializer")
        sums = ir.loop(chunk[1], add_term, [zero] * len(target_pointers))
        # A sum of parts is nearer to what is right than one long sum.
        totals = ir.if_else(
            ir.emit_value(f"icmp eq i64 {chunk[0]}, 0"),
            lambda: [(vector, partial_sum) for partial_sum in sums],
            lambda: [
                (vector, ir.add_reals(ir.load(pointer), partial_sum))
                for pointer, partial_sum in zip(target_pointers, sums, strict=True)
            ],
        )
        for r in range(rows):
            row_slice = slice(r * vectors, (r + 1) * vectors)

            def store_row(row_slice: slice = row_slice) -> None:
                for total, pointer in zip(
                    totals[row_slice], target_pointers[row_slice], strict=True
                ):
                    ir.store(total, pointer)

            ir.if_then(ir.emit_value(f"icmp ule i64 {done}, {r}"), store_row)

    def _emit_epilogue(
        self, batch: Value, row: IntValue, column: IntValue, count: Value
    ) -> None:
        """Call the epilogue on the panel's part of the result."""
        ir, job = self.ir, self.job_fields

        def emit_operand(i: IntValue) -> None:
            entry = ir.element_pointer(
                job["operands"], ir.multiply_int(i, OPERAND_WORDS), "i64"
            )
            begin = ir.load_element(entry, 0, "i64")
            steps = [ir.load_element(entry, index, "i64") for index in (1, 2, 3)]
            for position, step in zip((row, column, batch), steps, strict=True):
                begin = ir.emit_value(
                    f"add i64 {begin}, {ir.multiply_int(position, step)}"
                )
            self._store_operand(i, begin, steps[0])

        ir.loop(job["count"], emit_operand)
        result_address = ir.emit_value(f"ptrtoint ptr {self.result_buffer} to i64")
        for index in (0, 1) if self.is_gathered else (1,):
            self._store_operand(index, result_address, str(4 * self.panel_width))
        arguments = f"ptr {self.operand_buffer}, i64 {count}, i64 {self.panel_width}"
        ir.emit(f"call void {job['tail']}({arguments})")

    def _store_operand(self, i: IntValue, begin: Value, step: Value) -> None:
        ir = self.ir
        pointer = ir.element_pointer(self.operand_buffer, i, "i64")
        ir.emit(f"store i64 {begin}, ptr {pointer}, align 4")
        pointer = ir.element_pointer(
            self.operand_buffer, ir.add_int(i, self.job_fields["count"]), "i64"
        )
        ir.emit(f"store i64 {step}, ptr {pointer}, align 4")
