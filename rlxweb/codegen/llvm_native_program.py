"""Native program in LLVM IR: many small steps run one after the other in a single call
from Python.

Each entry is a function of one address and the address of its job. Here are the walker
and the pieces that a small network needs beside its elementwise regions: moves by a
table, products of rows with rows and of rows with columns. What is left of a length is
done with some of what was done before: the same numbers again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from rlxweb.codegen import llvm_math_functions
from rlxweb.codegen.llvm_builder import IntValue, IRBuilder, Value, VectorType

MOVE_FIELDS: Final = ("from", "to", "table", "count")
"""Fields of a move: addresses of 32-bit numbers, and a table of i32 indices: 0 stores
0, p stores the number at p - 1.
"""
PRODUCT_FIELDS: Final = (
    *("a", "b", "out"),
    *("rows", "columns", "terms"),
    *("a_row", "b_step", "out_row", "out_column"),
)
"""Fields of a product: addresses of floats; rows of a, columns of the result, terms of
each sum; strides in elements: of a by row; of b by row, which is a column of the result
for "dots" and a term for "lines"; of the result by row and by column.
"""


class ProductTile(NamedTuple):
    """Register tile of a product.

    kind     "dots": rows meet rows, vectors go along the terms; "lines": vectors go
             along the columns
    rows     of a
    width    rows of b, or vectors of its columns
    """

    kind: str
    rows: int
    width: int

    @property
    def name(self) -> str:
        return f"{self.kind}_{self.rows}x{self.width}"


def product_tiles(nbytes: int) -> tuple[ProductTile, ...]:
    """Return the tiles for vectors of `nbytes` bytes, the largest first."""
    has_wide_vectors = nbytes == 64  # which come with twice as many registers
    return (
        *(
            ProductTile("dots", 4, n)
            for n in ((4, 2, 1) if has_wide_vectors else (2, 1))
        ),
        *(ProductTile("dots", 1, 1),),
        *(
            ProductTile("lines", 4, n)
            for n in ((4, 2, 1) if has_wide_vectors else (2, 1))
        ),
        *(ProductTile("lines", 1, n) for n in (8, 4, 2, 1)),
    )


def program_llvm_ir(nbytes: int) -> str:
    """Return the LLVM IR of @walk(entries, count), @move(job), and a product of each
    tile by its name.
    """
    vector_type = VectorType("float", nbytes // 4)
    parts = [_walk_function(vector_type), _move_function(vector_type)]
    parts += [_product_function(tile, vector_type) for tile in product_tiles(nbytes)]
    return "\n".join(parts)


def _walk_function(vector_type: VectorType) -> str:
    ir = IRBuilder("void @walk(ptr %entries, i64 %count)", vector_type)

    def call_entry(i: IntValue) -> None:
        entry = ir.multiply_int(i, 2)
        function = ir.load_element("%entries", entry, "ptr")
        job = ir.load_element("%entries", ir.add_int(entry, 1), "ptr")
        ir.emit(f"call void {function}(ptr {job})")

    ir.loop("%count", call_entry)
    ir.emit("ret void")
    return ir.text


def _move_function(vector_type: VectorType) -> str:
    ir = IRBuilder("void @move(ptr %job)", vector_type)
    job = ir.load_job_fields(MOVE_FIELDS, MOVE_FIELDS[:3])

    def move_element(i: IntValue) -> None:
        table_entry = ir.load_index(job["table"], i)
        # Place 0 reads what is there in any case, and takes 0 instead of it.
        source_index = ir.emit_value(
            f"call i64 @llvm.usub.sat.i64(i64 {table_entry}, i64 1)"
        )
        source_value = ir.load_element(job["from"], source_index, "i32")
        is_nonzero = ir.emit_value(f"icmp ne i64 {table_entry}, 0")
        value = ir.emit_value(f"select i1 {is_nonzero}, i32 {source_value}, i32 0")
        ir.emit(
            f"store i32 {value}, ptr {ir.element_pointer(job['to'], i, 'i32')}, align 4"
        )

    ir.loop(job["count"], move_element)
    ir.emit("ret void")
    return ir.text


def _product_function(tile: ProductTile, vector_type: VectorType) -> str:
    return _ProgramProduct(tile, vector_type).llvm_ir()


class _ProgramProduct:
    """Kernel of out[r, c] = the sum over t of a[r, t] · b, for all rows and columns."""

    def __init__(self, tile: ProductTile, vector_type: VectorType) -> None:
        ir = self.ir = IRBuilder(f"void @{tile.name}(ptr %job)", vector_type)
        self.tile, self.job_fields = (
            tile,
            ir.load_job_fields(PRODUCT_FIELDS, PRODUCT_FIELDS[:3]),
        )

    def llvm_ir(self) -> str:
        ir, job, tile = self.ir, self.job_fields, self.tile
        is_dots = tile.kind == "dots"
        tile_columns = tile.width * (1 if is_dots else ir.vector_type.lanes)
        body = self._emit_dots if is_dots else self._emit_lines

        def columns(first_column: IntValue) -> None:
            def rows(first_row: IntValue) -> None:
                body(first_row, first_column)

            self._tile_loop(job["rows"], tile.rows, rows)

        self._tile_loop(job["columns"], tile_columns, columns)
        ir.emit("ret void")
        return ir.text

    def _tile_loop(
        self, count: Value, step: int, body: Callable[[IntValue], object]
    ) -> None:
        """Emit `body(first)` for `step` at a time; the last step ends at `count`,
        overlapping the one before.
        """
        ir = self.ir
        iterations = ir.emit_value(f"udiv i64 {ir.add_int(count, step - 1)}, {step}")
        last_start = ir.subtract_int(count, step)

        def emit_step(i: IntValue) -> None:
            body(ir.min_int(ir.multiply_int(i, step), last_start))

        ir.loop(iterations, emit_step)

    def _row_pointers(
        self, base: str, step: str, first: IntValue, count: int
    ) -> list[Value]:
        ir, job = self.ir, self.job_fields
        return [
            ir.element_pointer(
                job[base], ir.multiply_int(ir.add_int(first, r), job[step])
            )
            for r in range(count)
        ]

    def _emit_dots(self, row: IntValue, column: IntValue) -> None:
        ir, job, (_, height, width) = self.ir, self.job_fields, self.tile
        a_rows = self._row_pointers("a", "a_row", row, height)
        b_rows = self._row_pointers("b", "b_step", column, width)
        lanes = ir.vector_type.lanes

        def add_terms(i: IntValue, *accumulators: Value) -> list[Value]:
            offset = ir.multiply_int(i, lanes)
            b_vectors = [
                ir.load(ir.element_pointer(b_vector, offset)) for b_vector in b_rows
            ]
            updated = []
            for r, a_row in enumerate(a_rows):
                a_vector = ir.load(ir.element_pointer(a_row, offset))
                updated += [
                    llvm_math_functions.multiply_add(
                        ir, a_vector, b_vector, accumulators[r * width + c]
                    )
                    for c, b_vector in enumerate(b_vectors)
                ]
            return updated

        iterations = ir.emit_value(f"udiv i64 {job['terms']}, {lanes}")
        zero = (ir.vector_type.llvm_type, "zeroinitializer")
        sums = ir.loop(iterations, add_terms, [zero] * (height * width))
        for r, out in enumerate(self._row_pointers("out", "out_row", row, height)):
            for c in range(width):
                number = ir.sum_lanes("float", sums[r * width + c])
                pointer = ir.element_pointer(
                    out, ir.multiply_int(ir.add_int(column, c), job["out_column"])
                )
                ir.emit(f"store float {number}, ptr {pointer}, align 4")

    def _emit_lines(self, row: IntValue, column: IntValue) -> None:
        ir, job, (_, height, width) = self.ir, self.job_fields, self.tile
        a_rows = self._row_pointers("a", "a_row", row, height)
        lanes = ir.vector_type.lanes
        b_columns = ir.element_pointer(job["b"], column)

        def add_term(i: IntValue, *accumulators: Value) -> list[Value]:
            b_row = ir.element_pointer(b_columns, ir.multiply_int(i, job["b_step"]))
            b_vectors = [
                ir.load(ir.element_pointer(b_row, v * lanes)) for v in range(width)
            ]
            updated = []
            for r, a_row in enumerate(a_rows):
                number = ir.broadcast(ir.load_element(a_row, i))
                updated += [
                    llvm_math_functions.multiply_add(
                        ir, number, b_vector, accumulators[r * width + v]
                    )
                    for v, b_vector in enumerate(b_vectors)
                ]
            return updated

        zero = (ir.vector_type.llvm_type, "zeroinitializer")
        sums = ir.loop(job["terms"], add_term, [zero] * (height * width))
        for r, out in enumerate(self._row_pointers("out", "out_row", row, height)):
            for v in range(width):
                pointer = ir.element_pointer(out, ir.add_int(column, v * lanes))
                ir.store(sums[r * width + v], pointer)
