"""WebAssembly code of an elementwise region, generated from what its ops declare.

As `elementwise_llvm.py` says it for processors, with the same arguments: in a
browser's Python regions are called the same way.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlxweb.codegen.elementwise_llvm import (
    emit_nodes,
    node_expression,
    storage_kind,
    wgsl_library_for,
)
from rlxweb.codegen.native_calls import WORD_NBYTES
from rlxweb.codegen.wasm_builder import (
    VECTOR_NBYTES,
    WasmFunctionBuilder,
    encode_module,
)
from rlxweb.codegen.wgsl_to_instructions import TypedValue
from rlxweb.codegen.wgsl_to_wasm import REQUIRED_INCLUDES, WasmLowering
from rlxweb.core.errors import Unsupported
from rlxweb.ir.graph import Graph

LANES = VECTOR_NBYTES // 4
KIND_BYTES = {"F": 4, "I": 4, "U": 4, "B": 1}


def region_module(
    graph: Graph,
    ids: Sequence[int],
    reads: Sequence[int],
    is_broadcast: Sequence[bool],
    *,
    shared: bool = False,
) -> bytes:
    """Return a module with @region(job, outer, inner), for `outer` rows of `inner`
    elements, four at least, and @region_job(job), the same with the 64-bit words job,
    outer and inner in one job.

    job      64-bit addresses of the output and of each read, then their bytes from row
             to row
    reads    the nodes that are read
    is_broadcast  which of them are one number for a whole row
    shared   for a memory that several threads have
    Errors   Unsupported.
    """
    nodes = [graph.node(i) for i in ids]
    uses = dict.fromkeys(
        function for node in nodes for function in node_expression(node).uses
    )
    f = WasmFunctionBuilder("region", "job", "outer", "inner")
    lowering = WasmLowering(f, wgsl_library_for((*uses, *REQUIRED_INCLUDES)))
    kinds = [storage_kind(graph.node(i)) for i in (ids[-1], *reads)]
    if "H" in kinds:
        raise Unsupported("compile a region", "WebAssembly does not support f16")
    rows = [f"row{k}" for k in range(len(kinds))]
    steps = [f"step{k}" for k in range(len(kinds))]
    f.declare_locals("i32", *rows, *steps, "at", "first", "last")
    for k, name in enumerate((*rows, *steps)):
        f.emit("job")
        f.emit_memory_access("i32.load", WORD_NBYTES * k)
        f.set_local(name)
    f.set_local("last", "inner", LANES, "i32.sub")
    with f.loop_until("outer", "i32.eqz"):
        broadcast_values = {
            i: emit_broadcast_load(lowering, kind, row)
            for i, kind, row, is_scalar in zip(
                reads, kinds[1:], rows[1:], is_broadcast, strict=True
            )
            if is_scalar
        }
        f.set_local("at", 0)
        with f.loop_until("at", "inner", "i32.ge_u"):
            # What is left of a row is done with some of what was done before.
            f.set_local("first", "at", "last", "at", "last", "i32.lt_u", "select")
            loaded_values = {
                i: emit_vector_load(lowering, kind, row)
                for i, kind, row, is_scalar in zip(
                    reads, kinds[1:], rows[1:], is_broadcast, strict=True
                )
                if not is_scalar
            }
            emit_vector_store(
                lowering,
                emit_nodes(
                    lowering, graph, nodes, {**broadcast_values, **loaded_values}
                ),
                rows[0],
            )
            f.set_local("at", "at", LANES, "i32.add")
        for row, step in zip(rows, steps, strict=True):
            f.set_local(row, row, step, "i32.add")
        f.set_local("outer", "outer", 1, "i32.sub")
    return encode_module([f, _job_function()], shared=shared)


def _job_function() -> WasmFunctionBuilder:
    """Return a function that calls the module's first function with the arguments of a
    job.
    """
    f = WasmFunctionBuilder("region_job", "job")
    for index in range(3):
        f.emit("job")
        f.emit_memory_access("i32.load", WORD_NBYTES * index)
    f.call(0)
    return f


def _emit_address(lowering: WasmLowering, kind: str, row: str) -> None:
    """Emit the address of a vector of a row."""
    lowering.f.emit(row, "first", KIND_BYTES[kind], "i32.mul", "i32.add")


def emit_vector_load(lowering: WasmLowering, kind: str, row: str) -> TypedValue:
    """Emit a load of a vector of a row."""
    _emit_address(lowering, kind, row)
    name = lowering.new_local()
    if kind != "B":
        lowering.f.emit_memory_access("v128.load")
        lowering.f.set_local(name)
        return TypedValue(kind, name)
    lowering.f.emit_memory_access("v128.load32_zero")
    widening = "i16x8.extend_low_i8x16_u", "i32x4.extend_low_i16x8_u"
    lowering.f.set_local(name, *widening, lowering.splat("I", 0).value, "i32x4.ne")
    return TypedValue(kind, name)


def emit_broadcast_load(lowering: WasmLowering, kind: str, row: str) -> TypedValue:
    """Emit a load of a row's only number into all lanes."""
    name = lowering.new_local()
    lowering.f.emit(row)
    if kind != "B":
        lowering.f.emit_memory_access("v128.load32_splat")
        lowering.f.set_local(name)
        return TypedValue(kind, name)
    lowering.f.emit_memory_access("i32.load8_u")
    lowering.f.set_local(name, "i32x4.splat", lowering.splat("I", 0).value, "i32x4.ne")
    return TypedValue(kind, name)


def emit_vector_store(lowering: WasmLowering, result: TypedValue, row: str) -> None:
    """Emit a store of a vector into a row."""
    value = result.value
    if result.kind == "B":  # a byte each, side by side
        ones = lowering.emit_value(value, lowering.splat("I", 1).value, "v128.and")
        halves = lowering.emit_value(ones, ones, "i16x8.narrow_i32x4_u")
        value = lowering.emit_value(halves, halves, "i8x16.narrow_i16x8_u")
    _emit_address(lowering, result.kind, row)
    lowering.f.emit(value)
    if result.kind == "B":
        lowering.f.store_lane()
    else:
        lowering.f.emit_memory_access("v128.store")
