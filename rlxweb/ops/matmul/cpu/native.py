"""Matrix products of float32 on the CPU as native code: kernel choice and tiling.

OpenBLAS is as fast alone; its threads turn round and round for a while after each call
and keep the processors from ours and from everybody else.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from time import perf_counter
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlxweb.codegen import llvm_compiler
from rlxweb.codegen.jit_cache import JitCache, compile_cached
from rlxweb.codegen.native_calls import (
    ParallelNativeFunction,
    array_address,
    function_address,
    pack_arguments,
)
from rlxweb.codegen.native_elementwise import (
    RegionCode,
    RegionSpec,
)
from rlxweb.codegen.result_buffer_pool import result_pool
from rlxweb.core.thread_tasks import usable_cpus
from rlxweb.ir.shape_arithmetic import Shape
from rlxweb.ops.matmul.cpu.llvm import (
    CHUNK_TERMS,
    JOB_FIELDS,
    MatmulTile,
    matmul_llvm_ir,
    matmul_tiles,
    product_scratch_floats,
)

Array = NDArray[Any]

MIN_WORK: Final = 1 << 18
"""Multiplications from which BLAS would start its threads, which spin for a while after
each call and occupy the processors.
"""
_FEW_ROWS: Final = 4
_MIN_WORK_FEW_ROWS: Final = 1 << 19
"""Minimum multiplications for fewer rows than `_FEW_ROWS`, where single-threaded BLAS
is faster up to here.
"""
_MIN_THREADED_WORK: Final = 1 << 19
_CACHE_ELEMENTS: Final = 1 << 17
"""Elements of a block of rows that fit the cache together with a panel."""
_TASKS_PER_THREAD: Final = 4
"""Minimum tasks per thread, so that no thread waits long for the last one."""


class MatmulKernelKey(NamedTuple):
    """Key of a compiled matrix product kernel.

    is_gathered  its right matrix is the windows of a convolution
    """

    tile: MatmulTile
    is_gathered: bool = False


def _compile_kernel(key: object) -> ParallelNativeFunction:
    assert isinstance(key, MatmulKernelKey)
    tile, is_gathered = key
    nbytes = llvm_compiler.host_cpu().vector_nbytes
    return exported_kernel(
        compile_cached(matmul_llvm_ir(tile, nbytes, gathered=is_gathered))
    )


def exported_kernel(code: llvm_compiler.LoadedCode) -> ParallelNativeFunction:
    """Return the function that a compiled matrix product module exports."""
    return ParallelNativeFunction.from_code(code, "product")


matmul_kernels: JitCache[ParallelNativeFunction] = JitCache(_compile_kernel)
"""JIT cache of this process's matrix product kernels, by key."""


class MatmulSizes(NamedTuple):
    """Sizes of a batch of products of [rows, terms] by [terms, columns].

    shares_right  all have the same right matrix
    """

    batch: int
    rows: int
    terms: int
    columns: int
    shares_right: bool


class MatmulTiling(NamedTuple):
    """Tiling of a product: register tile, panels, blocks of rows, and rows of a
    block.
    """

    tile: MatmulTile
    panels: int
    blocks: int
    rows_per_block: int


def matmul_sizes(x: Shape, y: Shape) -> MatmulSizes | None:
    """Return the sizes of a product; None if the batch axes do not match or the
    operands are no matrices.
    """
    if len(x) < 2 or len(y) < 2:
        return None
    if len(y) == 2:  # the rows of all are one matrix's
        return MatmulSizes(1, prod(x[:-1]), x[-1], y[1], True)
    if x[:-2] != y[:-2]:
        return None
    return MatmulSizes(prod(x[:-2]), x[-2], x[-1], y[-1], False)


def choose_tiling(sizes: MatmulSizes, lanes: int, threads: int) -> MatmulTiling | None:
    """Choose the tile that wastes least; None if there are too few rows or columns."""
    candidates = [
        candidate
        for candidate in matmul_tiles(4 * lanes)
        if candidate.rows <= sizes.rows and candidate.vectors * lanes <= sizes.columns
    ]
    if not candidates:
        return None
    tile = min(
        candidates, key=lambda candidate: _estimate_cycles(sizes, candidate, lanes)
    )
    panels = -(-sizes.columns // (tile.vectors * lanes))
    min_tasks = _TASKS_PER_THREAD * threads if threads > 1 else 1
    blocks = max(
        -(-sizes.rows * min(sizes.terms, CHUNK_TERMS) // _CACHE_ELEMENTS),
        -(-min_tasks // (panels * sizes.batch)),
    )
    rows_per_block = -(-sizes.rows // blocks)
    rows_per_block = -(-rows_per_block // tile.rows) * tile.rows
    blocks = -(-sizes.rows // rows_per_block)
    if sizes.rows - (blocks - 1) * rows_per_block < tile.rows:
        blocks = max(1, blocks - 1)
    return MatmulTiling(tile, panels, blocks, min(rows_per_block, sizes.rows))


def _estimate_cycles(sizes: MatmulSizes, tile: MatmulTile, lanes: int) -> float:
    """Estimate the cycles of one term over the whole result: multiplications and
    loads.
    """
    rows, vectors = tile
    iterations = -(-sizes.rows // rows) * -(-sizes.columns // (vectors * lanes))
    return iterations * (rows * vectors + 0.1 * (rows + vectors) + 0.5 * vectors)


class MatmulEpilogue(NamedTuple):
    """Elementwise region that is fused to a product as its epilogue.

    reads   the nodes it reads, the product first
    byte_strides  for the result and each of them, bytes from one row, one column and
                  one matrix to the next
    """

    region: RegionSpec
    reads: tuple[int, ...]
    byte_strides: tuple[tuple[int, int, int], ...]


class BoundEpilogue(NamedTuple):
    """Epilogue with its compiled code and the arrays it reads besides the product."""

    epilogue: MatmulEpilogue
    code: RegionCode
    operands: Sequence[Array]


class GatherTables(NamedTuple):
    """Offsets, in elements, of the terms and columns of b and the columns of the
    result, and the strides of a matrix of b and of a row and a matrix of the result.
    """

    term_offsets: NDArray[np.int32]
    column_offsets: NDArray[np.int32]
    out_offsets: NDArray[np.int32]
    b_batch_stride: int
    out_row_stride: int
    out_batch_stride: int


def run_matmul(
    kernel: ParallelNativeFunction,
    sizes: MatmulSizes,
    tiling: MatmulTiling,
    matrices: tuple[Array, Array],
    out: Array,
    epilogue: BoundEpilogue | None = None,
    gather_tables: GatherTables | None = None,
) -> None:
    """Compute a product, with its epilogue if there is one, into an array.

    matrices  [batch, rows, terms] and [batch or 1, terms, columns] of float32; they and
              the result lie element by element, but rows of the right one may lie
              apart, or come as `in_panels`, of rank 3
    epilogue  what is done with the product
    gather_tables  how the right matrix and the result lie where they are no matrices
    """
    (x, y), launch = (
        matrices,
        _matmul_launch(sizes, tiling, gather_tables is not None, usable_cpus()),
    )
    job = launch.job_template.copy()
    job[:3] = array_address(x), array_address(y), array_address(out)
    if epilogue is not None:
        operand_table = _operand_table(epilogue.epilogue.byte_strides).copy()
        operand_table[0, 0] = array_address(out)
        for index, operand in enumerate(epilogue.operands):
            operand_table[2 + index, 0] = array_address(operand)
        job[_EPILOGUE] = function_address(epilogue.code.call)
        job[_OPERANDS], job[_COUNT] = array_address(operand_table), len(operand_table)
    if gather_tables is not None:
        job[_TABLES] = tuple(map(array_address, gather_tables[:3]))
        job[_B_BATCH], job[_OUT_ROW], job[_OUT_BATCH] = gather_tables[3:]
    else:
        job[_B_ROW] = y.strides[-2] // 4
        if sizes.shares_right and y.ndim == 3:
            job[_B_PANEL] = y.strides[0] // 4
    scratch = result_pool.empty((launch.total_scratch_floats,), np.float32)
    claimed = np.zeros(2, np.int64)
    arguments = pack_arguments(
        array_address(job),
        array_address(scratch),
        launch.scratch_floats,
        array_address(claimed),
    )
    kernel(arguments, threaded=launch.is_threaded)


_FIELD_INDEX: Final = {name: at for at, name in enumerate(JOB_FIELDS)}
_EPILOGUE = _FIELD_INDEX["tail"]
_OPERANDS = _FIELD_INDEX["operands"]
_COUNT = _FIELD_INDEX["count"]
_B_ROW = _FIELD_INDEX["b_row"]
_B_BATCH = _FIELD_INDEX["b_batch"]
_B_PANEL = _FIELD_INDEX["b_panel"]
_OUT_ROW, _OUT_BATCH = _FIELD_INDEX["out_row"], _FIELD_INDEX["out_batch"]
_TABLES: Final = slice(_FIELD_INDEX["terms_at"], _FIELD_INDEX["out_at"] + 1)


class _MatmulLaunch(NamedTuple):
    """Launch parameters that all products of the same sizes share.

    job_template  without addresses
    scratch_floats  of a thread's room; `total_scratch_floats` of all
    """

    job_template: NDArray[np.int64]
    scratch_floats: int
    total_scratch_floats: int
    is_threaded: bool


@lru_cache(maxsize=512)
def _matmul_launch(
    sizes: MatmulSizes, tiling: MatmulTiling, is_gathered: bool, threads: int
) -> _MatmulLaunch:
    batch, rows, terms, columns, shares_right = sizes
    lanes = llvm_compiler.host_cpu().vector_nbytes // 4
    task_count = tiling.panels * tiling.blocks * batch
    fields = {
        "tasks": task_count,
        "panels": tiling.panels,
        "blocks": tiling.blocks,
        "each": tiling.rows_per_block,
        "rows": rows,
        "columns": columns,
        "terms": terms,
        "a_row": terms,
        "out_row": columns,
        "a_batch": rows * terms,
        "b_batch": 0 if shares_right else terms * columns,
        "out_batch": rows * columns,
    }
    job = np.array([fields.get(name, 0) for name in JOB_FIELDS], np.int64)
    max_block_rows = max(
        tiling.rows_per_block, rows - (tiling.blocks - 1) * tiling.rows_per_block
    )
    scratch_floats = product_scratch_floats(
        tiling.tile, lanes, max_block_rows, gathered=is_gathered
    )
    is_threaded = (
        batch * rows * terms * columns >= _MIN_THREADED_WORK and task_count > 1
    )
    return _MatmulLaunch(
        job,
        scratch_floats,
        scratch_floats * (threads if is_threaded else 1),
        is_threaded,
    )


@lru_cache(maxsize=512)
def _operand_table(byte_strides: tuple[tuple[int, int, int], ...]) -> NDArray[np.int64]:
    return np.array([(0, *strides) for strides in byte_strides], np.int64)


def has_supported_layout(sizes: MatmulSizes, y: Array) -> bool:
    """Return whether the rows of the right matrix are contiguous and, for a batch, its
    matrices are too.
    """
    if not sizes.shares_right:
        return y.flags.c_contiguous
    row, column = y.strides
    return column == 4 and row >= 4 * sizes.columns and row % 4 == 0


def matmul_into(x: Array, y: Array, out: Array) -> None:
    """Multiply two matrices into a contiguous third, as `numpy.matmul` does."""
    sizes = MatmulSizes(1, x.shape[0], x.shape[1], y.shape[1], True)
    tiling = tiling_for(sizes)
    is_plain = x.dtype == np.float32 and x.flags.c_contiguous and out.flags.c_contiguous
    if tiling is None or not is_plain or not has_supported_layout(sizes, y):
        np.matmul(x, y, out=out)
        return
    kernel = matmul_kernels.get_kernel(MatmulKernelKey(tiling.tile))
    if kernel is not None:
        run_matmul(kernel, sizes, tiling, (x, y), out)
        return
    start = perf_counter()
    np.matmul(x, y, out=out)
    matmul_kernels.record_fallback_time(
        MatmulKernelKey(tiling.tile), perf_counter() - start
    )


def tiling_for(sizes: MatmulSizes) -> MatmulTiling | None:
    """Return the tiling of a product on this machine; None if BLAS should compute
    it.
    """
    if matmul_kernels.disabled_reason:
        return None
    lanes = llvm_compiler.host_cpu().vector_nbytes // 4
    return _cached_tiling(sizes, lanes, usable_cpus())


@lru_cache(maxsize=256)
def _cached_tiling(sizes: MatmulSizes, lanes: int, threads: int) -> MatmulTiling | None:
    min_work = MIN_WORK if sizes.rows >= _FEW_ROWS else _MIN_WORK_FEW_ROWS
    if sizes.batch * sizes.rows * sizes.terms * sizes.columns < min_work:
        return None
    return choose_tiling(sizes, lanes, threads)
