"""WebAssembly code of attention in float32: matrix products, and the softmax between
them.

Head by head the keys are turned into panels; then the scores of a block of queries,
their softmax and the weighted values are made, all of it in the nearest caches.
"""

from __future__ import annotations

from typing import Final

from rlxweb.codegen.native_calls import WORD_NBYTES
from rlxweb.codegen.row_kernel import RowKernel
from rlxweb.codegen.row_reduction_wasm import row_kernel_function
from rlxweb.codegen.wasm_builder import WasmFunctionBuilder, encode_module
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import registry
from rlxweb.ops.matmul.cpu.wasm_codegen import (
    PANEL_COLUMNS,
    matmul_functions,
    scratch_floats,
)

OPERANDS: Final = ("q", "k", "v", "out", "bias")
JOB_FIELDS: Final = (
    *OPERANDS,
    *(f"{one}_{step}" for one in OPERANDS for step in ("batch", "head", "row")),
    *("batches", "heads", "group", "queries", "keys", "size", "value", "room"),
)
"""Words of 32 bits of a job: addresses; bytes from one batch, head and row to the next,
0 where all have the same; numbers of batches and heads, heads that share a key head,
lengths; the scratch memory, which begins with the factor of scores.
"""
QUERIES_PER_BLOCK: Final = 64
"""Queries in a block."""
_ELEMENT_BYTES: Final = 4
_HEADER_FLOATS: Final = 32
"""Floats before the rest of the scratch memory: the factor, then the softmax's job."""
_SOFTMAX_JOB_NBYTES: Final = 16
"""Bytes from the scratch memory's begin to the softmax's job."""


def wasm_scratch_floats(queries: int, keys: int, size: int) -> int:
    """Floats of the scratch memory: the factor, packed keys, scores twice, the
    products' own scratch.
    """
    padded = -(-keys // PANEL_COLUMNS) * PANEL_COLUMNS
    scores = min(queries, QUERIES_PER_BLOCK) * keys
    return (
        _HEADER_FLOATS
        + PANEL_COLUMNS
        + padded * size
        + 2 * scores
        + scratch_floats(keys)
    )


def attention_module(*, fused: bool) -> bytes:
    """Return the module with `attention(job)`.

    fused   by additions that need not round the product, where a browser knows them
    """
    product_functions = matmul_functions(fused=fused)
    function_indices = {
        function.name: index for index, function in enumerate(product_functions)
    }
    function_indices |= {
        "turned": len(product_functions),
        "softmax": len(product_functions) + 1,
    }
    return encode_module(
        [
            *product_functions,
            _transpose_function(),
            _softmax_function(),
            _attention_function(function_indices),
        ]
    )


def _transpose_function() -> WasmFunctionBuilder:
    """Function that packs rows side by side, term by term; missing rows repeat the last
    one.
    """
    f = WasmFunctionBuilder("turned", "x", "row", "terms", "width", "to")
    row_pointers = [f"p{i}" for i in range(PANEL_COLUMNS)]
    f.declare_locals("i32", *row_pointers, "last")
    f.declare_locals("v128", "v")
    f.set_local("last", "width", 1, "i32.sub")
    for i, pointer in enumerate(row_pointers):
        f.set_local(pointer, i, "last", i, "last", "i32.lt_u", "select")
        f.set_local(pointer, pointer, "row", "i32.mul", "x", "i32.add")
    with f.loop_until("terms", "i32.eqz"):
        for group in (0, 4):
            for i in range(4):
                f.emit(row_pointers[group + i], "v")
                f.load_lane(i)
                f.set_local("v")
            f.emit("to", "v")
            f.emit_memory_access("v128.store", _ELEMENT_BYTES * group)
        for pointer in row_pointers:
            f.set_local(pointer, pointer, _ELEMENT_BYTES, "i32.add")
        f.set_local("to", "to", _ELEMENT_BYTES * PANEL_COLUMNS, "i32.add")
        f.set_local("terms", "terms", 1, "i32.sub")
    return f


def _softmax_function() -> WasmFunctionBuilder:
    """Function that computes the softmax of scores times a factor plus a bias, row by
    row.
    """
    graph = Graph("attention weights")
    scores, bias = (graph.input(name, (64, 64)) for name in ("scores", "bias"))
    biased = scores * graph.input("factor", (64, 1)) + bias
    softmax = registry.get("softmax").decomposition
    assert softmax is not None
    graph.set_outputs([softmax.build(graph, {"axis": 1}, biased)])
    ids = [node.id for node in graph.nodes() if node.op != "input"]
    kernel = RowKernel.from_nodes(graph, ids)
    reads = [graph.node(i).attrs["name"] for i, _ in kernel.reads]
    assert reads == _SOFTMAX_READS
    return row_kernel_function(kernel, [name == "factor" for name in reads])


_SOFTMAX_READS: Final = ["scores", "factor", "bias"]


def _emit_softmax(f: WasmFunctionBuilder, function_index: int) -> None:
    """Emit the call that makes weights of the raw scores of some queries."""
    words: list[str | int] = ["many", "keys", 0, 0]
    words += ["scores", "raw", "room", "bias_at"]  # the result, then the reads
    words += ["row_of_keys", "row_of_keys", 0, "bias_row"]
    for k, word in enumerate(words):
        f.emit("room", word)
        f.emit_memory_access("i32.store", _SOFTMAX_JOB_NBYTES + WORD_NBYTES * k)
    f.emit("room", _SOFTMAX_JOB_NBYTES, "i32.add")
    f.call(function_index)


def _attention_function(function_indices: dict[str, int]) -> WasmFunctionBuilder:
    """Function that computes attention for all batches and heads of a job."""
    f = WasmFunctionBuilder("attention", "job")
    f.declare_locals("i32", *JOB_FIELDS)
    for index, name in enumerate(JOB_FIELDS):
        f.emit("job")
        f.emit_memory_access("i32.load", _ELEMENT_BYTES * index)
        f.set_local(name)
    f.declare_locals("i32", "spare", "panels", "raw", "scores", "rest")
    f.set_local("spare", "room", _ELEMENT_BYTES * _HEADER_FLOATS, "i32.add")
    f.set_local("panels", "spare", _ELEMENT_BYTES * PANEL_COLUMNS, "i32.add")
    f.set_local(
        "rest", "keys", PANEL_COLUMNS - 1, "i32.add", PANEL_COLUMNS, "i32.div_u"
    )
    f.set_local(
        "rest", "rest", "size", "i32.mul", _ELEMENT_BYTES * PANEL_COLUMNS, "i32.mul"
    )
    f.set_local("raw", "panels", "rest", "i32.add")
    f.declare_locals("i32", "each", "row_of_keys", "room_of_scores")
    f.set_local(
        "each",
        "queries",
        QUERIES_PER_BLOCK,
        "queries",
        QUERIES_PER_BLOCK,
        "i32.lt_u",
        "select",
    )
    f.set_local("row_of_keys", "keys", _ELEMENT_BYTES, "i32.mul")
    f.set_local("room_of_scores", "each", "row_of_keys", "i32.mul")
    f.set_local("scores", "raw", "room_of_scores", "i32.add")
    f.set_local("rest", "scores", "room_of_scores", "i32.add")
    f.declare_locals("i32", "head", *(f"{operand}_at" for operand in OPERANDS))
    with f.loop_until("batches", "i32.eqz"):
        f.set_local("head", 0)
        with f.loop_until("head", "heads", "i32.ge_u"):
            for operand in OPERANDS:
                head_index = ["head"]
                if operand in ("k", "v"):
                    head_index += ["group", "i32.div_u"]
                offset = (*head_index, f"{operand}_head", "i32.mul")
                f.set_local(f"{operand}_at", operand, *offset, "i32.add")
            _emit_head(f, function_indices)
            f.set_local("head", "head", 1, "i32.add")
        for operand in OPERANDS:
            f.set_local(operand, operand, f"{operand}_batch", "i32.add")
        f.set_local("batches", "batches", 1, "i32.sub")
    return f


def _emit_head(f: WasmFunctionBuilder, function_indices: dict[str, int]) -> None:
    """Emit the code of one head: packed keys, then block by block of queries scores,
    softmax and weighted values.
    """
    f.declare_locals("i32", "key", "width", "left", "many")
    f.set_local("key", 0)
    with f.loop_until("key", "keys", "i32.ge_u"):
        f.set_local("width", "keys", "key", "i32.sub")
        f.set_local(
            "width",
            "width",
            PANEL_COLUMNS,
            "width",
            PANEL_COLUMNS,
            "i32.lt_u",
            "select",
        )
        f.emit("k_at", "key", "k_row", "i32.mul", "i32.add", "k_row", "size", "width")
        f.emit("key", "size", "i32.mul", _ELEMENT_BYTES, "i32.mul", "panels", "i32.add")
        f.call(function_indices["turned"])
        f.set_local("key", "key", PANEL_COLUMNS, "i32.add")
    f.set_local("left", "queries")
    with f.loop_until("left", "i32.eqz"):
        f.set_local("many", "left", "each", "left", "each", "i32.lt_u", "select")
        f.emit("q_at", "panels", "raw", "many", "size", "keys")
        f.emit("q_row", "row_of_keys", "spare")
        f.call(function_indices["of_laid"])
        _emit_softmax(f, function_indices["softmax"])
        f.emit("scores", "v_at", "out_at", "many", "keys", "value")
        f.emit("row_of_keys", "v_row", "out_row", "rest", 1, 0, 0, 0)
        f.call(function_indices["product"])
        for operand in ("q", "out", "bias"):
            offset = ("many", f"{operand}_row", "i32.mul")
            f.set_local(f"{operand}_at", f"{operand}_at", *offset, "i32.add")
        f.set_local("left", "left", "many", "i32.sub")
