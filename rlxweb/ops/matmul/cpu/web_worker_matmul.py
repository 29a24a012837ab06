"""Float32 products with weights in a browser, divided among Python's thread and web
workers.

How such a product is cut into parts, where its operands lie in the memory that all
share, and what is done with it there. Where there are no Workers, `wasm.py`
computes alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlxweb.codegen.native_calls import array_address
from rlxweb.ops.matmul.cpu.wasm_codegen import GROUP_PANELS, PANEL_COLUMNS, TILE_ROWS
from rlxweb.ops.matmul.cpu.wasm_threaded import (
    COUNTER_ADDRESS,
    JOB_ADDRESS,
    JOB_FIELDS,
    THREAD_SCRATCH_NBYTES,
    thread_scratch_nbytes,
)
from rlxweb.ops.matmul.cpu.web_workers import SharedMemoryBlock, WebWorkers, encode_job

MIN_SHARED_MULTIPLICATIONS: Final = 1 << 20
"""Minimum multiplications for which a second thread gains more than it costs: about 20
microseconds, on paper.
"""
_PART_MULTIPLICATIONS: Final = 1 << 19
"""Multiplications of a part: some 20 microseconds, so that no thread waits long for
another.
"""
_MIN_PART_PANELS: Final = 2
"""Minimum panels of a part: a cache line is written by one thread alone."""
_PARTS_PER_THREAD: Final = 4
"""Parts for each thread, if they are not too small."""
_MAX_UNDIVIDED_ROWS: Final = 96
"""Maximum rows that are not divided among parts, the same limit on paper as for cached
panels.
"""
_PART_ROWS: Final = 8 * TILE_ROWS
"""Rows of a part where there are more: enough to make reading panels cheap."""
_ALIGNMENT: Final = 64
_OUTPUT_WORD, _FIRST_OPERAND_WORD, _WORDS_PER_OPERAND = 2, 5, 3
"""In the words of a job: where the result goes to, where the first operand lies, and
words of each.
"""
MAX_OPERANDS: Final = (THREAD_SCRATCH_NBYTES - thread_scratch_nbytes(0)) // (
    thread_scratch_nbytes(1) - thread_scratch_nbytes(0)
)
Array = NDArray[Any]
OperandStrides = Sequence[tuple[int, int, int]]


class WorkerEpilogue(NamedTuple):
    """Epilogue that web workers apply to a product.

    table_index  of the region in the table
    strides  for the result, the product and what else is read, bytes from one row, one
            column and one matrix to the next
    operands  what else is read, element by element
    """

    table_index: int
    strides: OperandStrides
    operands: Sequence[Array]


class MatmulPartition(NamedTuple):
    """Number of parts, how many lie side by side, and their size."""

    part_count: int
    parts_across: int
    part_rows: int
    part_columns: int

    @classmethod
    def split(
        cls, rows: int, terms: int, columns: int, threads: int
    ) -> MatmulPartition:
        """Split a product: few rows stay undivided, else parts are as large as caches
        hold.
        """
        part_rows, panels = _PART_ROWS, GROUP_PANELS
        if rows <= _MAX_UNDIVIDED_ROWS:
            panels_per_part = _PART_MULTIPLICATIONS // (rows * terms * PANEL_COLUMNS)
            panels_per_thread = columns // (PANEL_COLUMNS * _PARTS_PER_THREAD * threads)
            part_rows = rows
            panels = max(
                _MIN_PART_PANELS, min(panels_per_part, panels_per_thread) // 2 * 2
            )
        part_columns = panels * PANEL_COLUMNS
        parts_across = -(-columns // part_columns)
        return cls(
            parts_across * -(-rows // part_rows), parts_across, part_rows, part_columns
        )


def supports_columns(columns: int) -> bool:
    """Return whether an epilogue supports parts of `columns` columns; it needs a whole
    vector.
    """
    remainder = columns % PANEL_COLUMNS
    return remainder == 0 or remainder >= PANEL_COLUMNS // 2


class WebWorkerMatmul:
    """Products of one size, with one epilogue."""

    def __init__(self, rows: int, terms: int, columns: int) -> None:
        self._sizes = rows, terms, columns
        self._epilogue_index: int | None = None
        self._scratch_offsets: list[int] = []
        """Where what is copied begins in the room, then the result, then the end."""
        self._bound_addresses: tuple[int, int] | None = None
        self._job = np.empty(0, np.uint32)

    def run(
        self,
        workers: WebWorkers,
        x: Array,
        packed: SharedMemoryBlock,
        out: Array,
        epilogue: WorkerEpilogue | None,
    ) -> bool:
        """Compute the product, and its epilogue if given, into an array; return whether
        it was done.

        x     [rows, terms], element by element
        packed  the right matrix in panels, in the memory that all share
        """
        operands = (x,) if epilogue is None else (x, *epilogue.operands)
        epilogue_index = 0 if epilogue is None else epilogue.table_index
        if epilogue_index != self._epilogue_index:
            result_nbytes = out.nbytes * (1 if epilogue is None else 2)
            self._scratch_offsets = _aligned_offsets(
                [*(array.nbytes for array in operands), result_nbytes]
            )
            self._epilogue_index, self._bound_addresses = epilogue_index, None
        scratch_address = workers.scratch(self._scratch_offsets[-1])
        if scratch_address is None:
            return False
        if self._bound_addresses != (scratch_address, packed.address):
            partition = MatmulPartition.split(*self._sizes, workers.threads)
            starts = [scratch_address + array for array in self._scratch_offsets[:-1]]
            nbytes = [array.nbytes for array in operands]
            self._job = self._job_words(
                partition, starts, nbytes, packed.address, out.nbytes, epilogue
            )
            self._bound_addresses = scratch_address, packed.address
        job = self._job
        job[_OUTPUT_WORD] = array_address(out)
        for index, array in enumerate(operands):
            job[_FIRST_OPERAND_WORD + _WORDS_PER_OPERAND * index] = array_address(array)
        return workers.run(job)

    def _job_words(
        self,
        partition: MatmulPartition,
        starts: Sequence[int],
        nbytes: Sequence[int],
        panels_address: int,
        result_nbytes: int,
        epilogue: WorkerEpilogue | None,
    ) -> NDArray[np.uint32]:
        """Return the words of the job, except for addresses in Python's memory."""
        rows, terms, columns = self._sizes
        *operand_addresses, product_address = starts
        words = dict.fromkeys(JOB_FIELDS, 0) | {
            "next": COUNTER_ADDRESS,
            "parts": partition.part_count,
            "across": partition.parts_across,
            "each_rows": partition.part_rows,
            "each_columns": partition.part_columns,
            "a": operand_addresses[0],
            "panels": panels_address,
            "made": product_address,
            "rows": rows,
            "terms": terms,
            "columns": columns,
            "a_row": 4 * terms,
            "made_row": 4 * columns,
        }
        operands: list[int] = []
        if epilogue is not None:
            bases = [
                product_address + result_nbytes,
                product_address,
                *operand_addresses[1:],
            ]
            words |= {
                "tail": epilogue.table_index,
                "count": len(bases),
                "operands": JOB_ADDRESS + 4 * len(JOB_FIELDS),
            }
            for base, (row, column, _) in zip(bases, epilogue.strides, strict=True):
                operands += [base, row, column]
        out = (
            product_address if epilogue is None else product_address + result_nbytes,
            0,
            result_nbytes,
        )
        copies = [
            (0, address, size)
            for address, size in zip(operand_addresses, nbytes, strict=True)
        ]
        return encode_job(out, copies, [*words.values(), *operands])


def _aligned_offsets(sizes: Sequence[int]) -> list[int]:
    """Return the aligned offset of each block, one after the other, and the end of the
    last.
    """
    starts = [0]
    for size in sizes:
        starts.append(starts[-1] + -(-size // _ALIGNMENT) * _ALIGNMENT)
    return starts
