"""Native program in WebAssembly: many small steps in one call, in the job formats of
the LLVM version.

Functions that an entry names are places in the table that all modules of a page share;
of each word of 64 bits the lower half counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Final

from rlxweb.codegen.llvm_native_program import (
    MOVE_FIELDS,
    PRODUCT_FIELDS,
    ProductTile,
    product_tiles,
)
from rlxweb.codegen.native_calls import WORD_NBYTES
from rlxweb.codegen.wasm_builder import (
    VECTOR_NBYTES,
    WasmFunctionBuilder,
    encode_module,
)

_LANES: Final = VECTOR_NBYTES // 4
_ELEMENT_NBYTES: Final = 4
_STRIDE_FIELDS: Final = ("a_row", "b_step", "out_row", "out_column")
_UNROLLED: Final = 4


def program_module(*, fused: bool) -> bytes:
    """Encode @walk(entries, count), @move(job), and a product of each tile by its name.

    fused   by additions that need not round the product, where a browser knows them
    """
    products = [
        _WasmProgramProduct(tile, fused).build()
        for tile in product_tiles(VECTOR_NBYTES)
    ]
    return encode_module([_walk_function(), _move_function(), *products])


def _walk_function() -> WasmFunctionBuilder:
    f = WasmFunctionBuilder("walk", "entries", "count")
    with f.loop_until("count", "i32.eqz"):
        for offset in (WORD_NBYTES, 0):  # the job, and whose it is
            f.emit("entries")
            f.emit_memory_access("i32.load", offset)
        f.call_indirect()
        f.set_local("entries", "entries", 2 * WORD_NBYTES, "i32.add")
        f.set_local("count", "count", 1, "i32.sub")
    return f


def _load_job_fields(f: WasmFunctionBuilder, names: tuple[str, ...]) -> None:
    """Load the fields of a job into local variables."""
    f.declare_locals("i32", *names)
    for index, name in enumerate(names):
        f.emit("job")
        f.emit_memory_access("i32.load", WORD_NBYTES * index)
        f.set_local(name)


def _move_function() -> WasmFunctionBuilder:
    f = WasmFunctionBuilder("move", "job")
    _load_job_fields(f, MOVE_FIELDS)
    f.declare_locals("i32", "place")
    # Place 0 reads what is there in any case, and takes 0 instead of it.
    f.set_local("from", "from", _ELEMENT_NBYTES, "i32.sub")
    for count in (_UNROLLED, 1):
        with f.loop_until("count", count, "i32.lt_u"):
            for index in range(count):
                f.emit("table")
                f.emit_memory_access("i32.load", _ELEMENT_NBYTES * index)
                f.set_local("place")
                f.emit("to", "from", "place", _ELEMENT_NBYTES, "i32.mul", "i32.add")
                f.emit_memory_access("i32.load")
                f.emit(0, "place", "select")
                f.emit_memory_access("i32.store", _ELEMENT_NBYTES * index)
            for name in ("table", "to"):
                f.set_local(name, name, _ELEMENT_NBYTES * count, "i32.add")
            f.set_local("count", "count", count, "i32.sub")
    return f


class _WasmProgramProduct:
    """Kernel of out[r, c] = the sum over t of a[r, t] · b, for all rows and columns."""

    def __init__(self, tile: ProductTile, fused: bool) -> None:
        self.tile, self.fused = tile, fused
        f = self.f = WasmFunctionBuilder(tile.name, "job")
        _load_job_fields(f, PRODUCT_FIELDS)
        for name in _STRIDE_FIELDS:
            f.set_local(name, name, _ELEMENT_NBYTES, "i32.mul")
        self.a_pointers = [f"a{r}" for r in range(tile.rows)]
        self.b_pointers = [f"b{c}" for c in range(tile.width)]
        self.accumulators = [
            [f"s{r}_{c}" for c in range(tile.width)] for r in range(tile.rows)
        ]
        f.declare_locals("i32", "row", "column", "row_at", "column_at", "left", "there")
        f.declare_locals("i32", *self.a_pointers, *self.b_pointers)
        f.declare_locals("v128", "none", "mine", *(f"v{c}" for c in range(tile.width)))
        f.declare_locals(
            "v128", *(accumulator for row in self.accumulators for accumulator in row)
        )

    def build(self) -> WasmFunctionBuilder:
        f, (kind, height, width) = self.f, self.tile
        is_dots = kind == "dots"
        tile_columns = width * (1 if is_dots else _LANES)
        with (
            self._tile_loop("column", "columns", tile_columns),
            self._tile_loop("row", "rows", height),
        ):
            self._set_row_pointers("a", "row", self.a_pointers)
            for row in self.accumulators:
                for accumulator in row:
                    f.set_local(accumulator, "none")
            (self._emit_dots if is_dots else self._emit_lines)()
        return f

    @contextmanager
    def _tile_loop(self, position_name: str, count: str, step: int) -> Iterator[None]:
        """Emit a loop of `step` at a time from `first` on; the last step ends at
        `count`, overlapping the one before.
        """
        f, position = self.f, f"{position_name}_at"
        last_start = (count, step, "i32.sub")
        f.set_local(position, 0)
        with f.loop_until(position, count, "i32.ge_u"):
            f.set_local(
                position_name,
                position,
                *last_start,
                position,
                *last_start,
                "i32.lt_u",
                "select",
            )
            yield
            f.set_local(position, position, step, "i32.add")

    def _set_row_pointers(self, base: str, first: str, names: list[str]) -> None:
        """Set pointers to each of the rows from `first` on."""
        f, step = self.f, "b_step" if base == "b" else "a_row"
        f.set_local(names[0], base, first, step, "i32.mul", "i32.add")
        for previous, name in pairwise(names):
            f.set_local(name, previous, step, "i32.add")

    def _emit_dots(self) -> None:
        f = self.f
        self._set_row_pointers("b", "column", self.b_pointers)

        def add_terms(index: int) -> None:
            for c, pointer in enumerate(self.b_pointers):
                f.emit(pointer)
                f.emit_memory_access("v128.load", VECTOR_NBYTES * index)
                f.set_local(f"v{c}")
            for pointer, row in zip(self.a_pointers, self.accumulators, strict=True):
                f.emit(pointer)
                f.emit_memory_access("v128.load", VECTOR_NBYTES * index)
                f.set_local("mine")
                for c, total in enumerate(row):
                    f.add_product(total, "mine", f"v{c}", fused=self.fused)

        f.set_local("left", "terms", _LANES, "i32.div_u")
        self._unrolled_loop(
            add_terms, VECTOR_NBYTES, (*self.a_pointers, *self.b_pointers)
        )
        for r, row in enumerate(self.accumulators):
            f.set_local(
                "there", "row", r, "i32.add", "out_row", "i32.mul", "out", "i32.add"
            )
            f.set_local("there", "column", "out_column", "i32.mul", "there", "i32.add")
            for total in row:
                f.emit("there")
                for lane in range(_LANES):
                    f.emit(total)
                    f.emit_lane_access("extract f32", lane)
                    if lane:
                        f.emit("f32.add")
                f.emit_memory_access("f32.store")
                f.set_local("there", "there", "out_column", "i32.add")

    def _emit_lines(self) -> None:
        f, b_pointer = self.f, self.b_pointers[0]
        f.set_local(b_pointer, "column", _ELEMENT_NBYTES, "i32.mul", "b", "i32.add")

        def add_term(index: int) -> None:
            for c in range(self.tile.width):
                f.emit(b_pointer)
                f.emit_memory_access("v128.load", VECTOR_NBYTES * c)
                f.set_local(f"v{c}")
            f.set_local(b_pointer, b_pointer, "b_step", "i32.add")
            for pointer, row in zip(self.a_pointers, self.accumulators, strict=True):
                f.emit(pointer)
                f.emit_memory_access("v128.load32_splat", _ELEMENT_NBYTES * index)
                f.set_local("mine")
                for c, total in enumerate(row):
                    f.add_product(total, "mine", f"v{c}", fused=self.fused)

        f.set_local("left", "terms")
        self._unrolled_loop(add_term, _ELEMENT_NBYTES, self.a_pointers)
        f.set_local("there", "row", "out_row", "i32.mul", "out", "i32.add")
        f.set_local("there", "column", _ELEMENT_NBYTES, "i32.mul", "there", "i32.add")
        for row in self.accumulators:
            for c, total in enumerate(row):
                f.emit("there", total)
                f.emit_memory_access("v128.store", VECTOR_NBYTES * c)
            f.set_local("there", "there", "out_row", "i32.add")

    def _unrolled_loop(
        self, emit_iteration: Callable[[int], None], step: int, pointers: Sequence[str]
    ) -> None:
        """Emit a loop over `left` iterations, some at a time; `step` is the bytes that
        the pointers advance for each.
        """
        f = self.f
        for count in (_UNROLLED, 1):
            with f.loop_until("left", count, "i32.lt_u"):
                for index in range(count):
                    emit_iteration(index)
                for name in pointers:
                    f.set_local(name, name, step * count, "i32.add")
                f.set_local("left", "left", count, "i32.sub")
