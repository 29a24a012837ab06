"""WebAssembly matrix products that several threads share, each computing parts of the
result.

A part is some rows by some columns, of a right matrix that lies in panels as
`wasm.py` lays them. Who is there takes the next part until there is none, and
does with it what is to be done with the product: a region of
`codegen/elementwise_wasm.py`. Every sum is one thread's, its terms in the order in
which one thread would add them.
"""

from __future__ import annotations

from typing import Final

from rlxweb.codegen.native_calls import WORD_NBYTES
from rlxweb.codegen.wasm_builder import WasmFunctionBuilder, encode_module
from rlxweb.ops.matmul.cpu.wasm_codegen import matmul_functions

JOB_FIELDS: Final = (
    *("next", "parts", "across", "each_rows", "each_columns"),
    *("a", "panels", "made", "rows", "terms", "columns", "a_row", "made_row"),
    *("tail", "count", "operands"),
)
"""Fields of a job, 32 bits each: the address of the part counter; the number of parts,
of parts side by side, and their sizes; the product; the table index of the region (0
for none), its number of operands, and the address of their descriptions.
"""
OPERAND_FIELDS: Final = ("at", "row", "column")
"""Fields of each operand, the result first: where it begins, bytes to the next row and
column.
"""
COUNTER_ADDRESS: Final = 128
JOB_ADDRESS: Final = 49152
THREAD_SCRATCH_NBYTES: Final = 512
"""Addresses of the part counter and of the job, and bytes of a thread's scratch, as
`workers.js` has them.
"""
_ELEMENT_NBYTES: Final = 4
_REGION_JOB_OFFSET: Final = 64
_OPERANDS_OFFSET: Final = _REGION_JOB_OFFSET + 3 * WORD_NBYTES


def thread_scratch_nbytes(operand_count: int) -> int:
    """Return the bytes of a thread's scratch, all zero at the start: a panel's excess
    columns, the job of a region, and its operands' addresses and strides.
    """
    return _OPERANDS_OFFSET + 2 * WORD_NBYTES * operand_count


def threaded_matmul_module(*, fused: bool) -> bytes:
    """Encode `share(job, mine)`, which computes parts of a job until none is left, in a
    memory that several threads share; `mine` is the thread's scratch.

    fused   by additions that need not round the product, where a browser knows them
    """
    parts = matmul_functions(fused=fused)
    names = [function.name for function in parts]
    return encode_module([*parts, _share_function(names.index("of_laid"))], shared=True)


def _share_function(product_index: int) -> WasmFunctionBuilder:
    f = WasmFunctionBuilder("share", "job", "mine")
    f.declare_locals("i32", *JOB_FIELDS, "part", "row", "column", "high", "wide")
    for index, name in enumerate(JOB_FIELDS):
        f.emit("job")
        f.emit_memory_access("i32.load", _ELEMENT_NBYTES * index)
        f.set_local(name)
    _emit_claim(f)
    with f.loop_until("part", "parts", "i32.ge_u"):
        f.set_local("row", "part", "across", "i32.div_u", "each_rows", "i32.mul")
        f.set_local("column", "part", "across", "i32.rem_u", "each_columns", "i32.mul")
        for size, total, start_name in (
            ("high", "rows", "row"),
            ("wide", "columns", "column"),
        ):
            size_name = f"each_{total}"
            f.set_local(size, total, start_name, "i32.sub")
            f.set_local(size, size, size_name, size, size_name, "i32.lt_u", "select")
        f.emit("a", "row", "a_row", "i32.mul", "i32.add")
        f.emit(
            "panels",
            "column",
            "terms",
            "i32.mul",
            _ELEMENT_NBYTES,
            "i32.mul",
            "i32.add",
        )
        f.emit("made", "row", "made_row", "i32.mul", "i32.add")
        f.emit("column", _ELEMENT_NBYTES, "i32.mul", "i32.add")
        f.emit("high", "terms", "wide", "a_row", "made_row", "mine")
        f.call(product_index)
        with f.if_block("tail"):
            _emit_epilogue(f)
        _emit_claim(f)
    return f


def _emit_claim(f: WasmFunctionBuilder) -> None:
    f.emit("next", 1)
    f.atomic_add()
    f.set_local("part")


def _emit_epilogue(f: WasmFunctionBuilder) -> None:
    """Call the region on the rows and columns of a part."""
    f.declare_locals("i32", "left", "operand", "start", "stride")
    for index, words in enumerate(
        (("mine", _OPERANDS_OFFSET, "i32.add"), ("high",), ("wide",))
    ):
        f.emit("mine", *words)
        f.emit_memory_access("i32.store", _REGION_JOB_OFFSET + WORD_NBYTES * index)
    f.set_local("operand", "operands")
    f.set_local("left", "count")
    f.set_local("start", "mine", _OPERANDS_OFFSET, "i32.add")
    f.set_local("stride", "start", "count", WORD_NBYTES, "i32.mul", "i32.add")
    with f.loop_until("left", "i32.eqz"):
        f.emit("start", "operand")
        f.emit_memory_access("i32.load")
        for index, start_name in enumerate(("row", "column"), 1):
            f.emit("operand")
            f.emit_memory_access("i32.load", _ELEMENT_NBYTES * index)
            f.emit(start_name, "i32.mul", "i32.add")
        f.emit_memory_access("i32.store")
        f.emit("stride", "operand")
        f.emit_memory_access("i32.load", _ELEMENT_NBYTES)
        f.emit_memory_access("i32.store")
        for name, step in (("start", WORD_NBYTES), ("stride", WORD_NBYTES)):
            f.set_local(name, name, step, "i32.add")
        f.set_local(
            "operand", "operand", _ELEMENT_NBYTES * len(OPERAND_FIELDS), "i32.add"
        )
        f.set_local("left", "left", 1, "i32.sub")
    f.emit("mine", _REGION_JOB_OFFSET, "i32.add", "tail")
    f.call_indirect()
