"""Code generation for an elementwise region as one native loop, from its ops' WGSL
expressions.

The expressions are those of the shaders, read by `wgsl_parser.py`; an operand
is read along the innermost axis or is one number for all of it. What cannot be said in
vectors of 32 bits is refused, and NumPy computes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from rlxweb.codegen import llvm_compiler
from rlxweb.codegen.elementwise_wgsl import substitute_expression
from rlxweb.codegen.llvm_builder import IntValue, IRBuilder, Value, VectorType
from rlxweb.codegen.native_calls import job_wrapper_llvm_ir
from rlxweb.codegen.wgsl_module import load_shader_text, resolve_includes
from rlxweb.codegen.wgsl_parser import (
    WgslFunction,
    WgslLibrary,
    parse_expression,
    parse_library,
)
from rlxweb.codegen.wgsl_to_instructions import LoweredValue, TypedValue, WgslLowering
from rlxweb.codegen.wgsl_to_llvm import LlvmLowering
from rlxweb.core.errors import Unsupported
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.lowering import Expr
from rlxweb.ir.op import registry

VALUE_KINDS: Final = {
    DType.F32: "F",
    DType.F16: "F",
    DType.I32: "I",
    DType.U32: "U",
    DType.BOOL: "B",
}
# What an expression that is right on any GPU may leave out, and NumPy does not.
_NUMPY_ONLY: Final = {"pow": "the op's expression flushes denormal numbers to 0"}
# What an expression takes pains with on a GPU, and a processor does by itself.
_CPU_EXPRESSIONS: Final = {"round_divide": Expr("round(x / y)")}
_STORAGE_TYPES: Final = {"F": "float", "H": "half", "I": "i32", "U": "i32", "B": "i8"}
_STORAGE_BYTES: Final = {"float": 4, "half": 2, "i32": 4, "i8": 1}
_SIGNATURE: Final = "void @region(ptr noalias %job, i64 %outer, i64 %inner)"


@lru_cache(maxsize=64)
def wgsl_library_for(uses: tuple[str, ...]) -> WgslLibrary:
    """Return the WGSL functions that expressions with these includes may call."""
    functions: dict[str, WgslFunction] = {}
    records: dict[str, tuple[str, ...]] = {}
    for name in resolve_includes(uses):
        part = parse_library(load_shader_text(name))
        functions |= part.functions
        records |= part.structs
    return WgslLibrary(functions, records)


def region_text(
    graph: Graph,
    ids: Sequence[int],
    reads: Sequence[int],
    is_scalar: Sequence[bool],
    nbytes: int,
) -> str:
    """Generate @region(job, outer, inner), which computes `outer` rows of `inner`
    elements (at least a vector), and its @region_job.

    job      addresses of the output and of each read, then their bytes from row to row
    reads    the nodes that are read
    is_scalar  which of them are one number for a whole row
    nbytes   of a vector
    Errors   Unsupported.
    """
    nodes = [graph.node(i) for i in ids]
    uses: dict[str, None] = {}
    for node in nodes:
        uses |= dict.fromkeys(node_expression(node).uses)
    shape = VectorType("float", nbytes // 4)
    ir = IRBuilder(_SIGNATURE, shape)
    lowering = LlvmLowering(ir, wgsl_library_for(tuple(uses)))
    kinds = [storage_kind(graph.node(i)) for i in (ids[-1], *reads)]
    bases = [ir.load_element("%job", k, "ptr") for k in range(len(kinds))]
    row_strides = [
        ir.load_element("%job", len(kinds) + k, "i64") for k in range(len(kinds))
    ]
    vector_count = ir.emit_value(
        f"udiv i64 {ir.add_int('%inner', shape.lanes - 1)}, {shape.lanes}"
    )
    last_start = ir.subtract_int("%inner", shape.lanes)

    def row(i: IntValue) -> None:
        row_pointers = [
            ir.element_pointer(base, ir.multiply_int(i, stride), "i8")
            for base, stride in zip(bases, row_strides, strict=True)
        ]
        operands = list(zip(reads, kinds[1:], row_pointers[1:], is_scalar, strict=True))
        scalars = {
            n: _emit_scalar_load(lowering, kind, pointer)
            for n, kind, pointer, is_row_scalar in operands
            if is_row_scalar
        }

        def vector(j: IntValue) -> None:
            # What is left of a row is done with some of what was done before.
            first = ir.min_int(ir.multiply_int(j, shape.lanes), last_start)
            loaded = {
                n: emit_vector_load(lowering, kind, pointer, first)
                for n, kind, pointer, is_row_scalar in operands
                if not is_row_scalar
            }
            result = emit_nodes(lowering, graph, nodes, {**scalars, **loaded})
            emit_vector_store(lowering, result, kinds[0], row_pointers[0], first)

        ir.loop(vector_count, vector)

    ir.loop("%outer", row)
    ir.emit("ret void")
    return ir.text + job_wrapper_llvm_ir(_SIGNATURE)


def unsupported_reason(nodes: Sequence[Node]) -> str:
    """Return why elementwise nodes cannot be compiled to 32-bit vectors; "" if they
    can.
    """
    try:
        for node in nodes:
            node_expression(node)
            value_kind(node)
    except Unsupported as error:
        return str(error)
    return ""


def node_expression(node: Node) -> Expr:
    """Return the expression of a node's op. Errors  Unsupported."""
    lower = registry.get(node.op).lower
    if not isinstance(lower, Expr) or not registry.is_builtin(node.op):
        raise Unsupported(f"compile {node}", "the op is not a built-in elementwise op")
    if node.op in _NUMPY_ONLY:
        raise Unsupported(f"compile {node}", _NUMPY_ONLY[node.op])
    return _CPU_EXPRESSIONS.get(node.op, lower)


def value_kind(node: Node) -> str:
    """Return the kind of a node's values. Errors  Unsupported."""
    kind = VALUE_KINDS.get(node.type.dtype)
    if kind is None or (
        node.type.dtype is DType.F16 and not llvm_compiler.has_float16()
    ):
        raise Unsupported(f"compile {node}", f"only NumPy supports {node.type.dtype}")
    return kind


def storage_kind(node: Node) -> str:
    """Return the kind of a node's values in memory; H is a float16 for F. Errors
    Unsupported.
    """
    return "H" if node.type.dtype is DType.F16 else value_kind(node)


def emit_nodes(
    lowering: WgslLowering,
    graph: Graph,
    nodes: Sequence[Node],
    values: dict[int, TypedValue],
) -> TypedValue:
    """Emit the value of every node once and return the last one's."""
    for node in nodes:
        kind, types = value_kind(node), tuple(graph.node(i).type for i in node.inputs)
        names: dict[str, LoweredValue] = {}
        for i in node.inputs:
            names[f"v{i}"] = (
                values[i] if i in values else _emit_literal(lowering, graph.node(i))
            )
        operands = [f"v{i}" for i in node.inputs]
        dtypes = [tensor_type.dtype for tensor_type in types]
        text = substitute_expression(
            node_expression(node), operands, dtypes, node, (types, node.type)
        )
        lowered = lowering.lower(parse_expression(text), names)
        converted = lowering.convert(kind, lowered)
        values[node.id] = (
            lowering.round_to_float16(converted)
            if node.type.dtype is DType.F16
            else converted
        )
    return values[nodes[-1].id]


def _emit_literal(lowering: WgslLowering, node: Node) -> TypedValue:
    if not node.is_literal:
        raise Unsupported(f"compile {node}", "the operand is not a scalar constant")
    value = node.attrs["value"].array.reshape(-1)[0].item()
    return lowering.splat(value_kind(node), value)


def emit_vector_load(
    lowering: LlvmLowering, kind: str, base: Value, index: IntValue
) -> TypedValue:
    """Emit a load of the elements from `index` on."""
    storage_type = _STORAGE_TYPES[kind]
    vector = f"<{lowering.ir.vector_type.lanes} x {storage_type}>"
    pointer = lowering.ir.element_pointer(base, index, storage_type)
    loaded = lowering.ir.emit_value(
        f"load {vector}, ptr {pointer}, align {_STORAGE_BYTES[storage_type]}"
    )
    return _from_storage(lowering, kind, loaded, vector)


def _emit_scalar_load(lowering: LlvmLowering, kind: str, pointer: Value) -> TypedValue:
    storage_type = _STORAGE_TYPES[kind]
    vector = f"<{lowering.ir.vector_type.lanes} x {storage_type}>"
    loaded = lowering.ir.broadcast(
        lowering.ir.load_element(pointer, 0, storage_type), storage_type
    )
    return _from_storage(lowering, kind, loaded, vector)


def _from_storage(
    lowering: LlvmLowering, kind: str, loaded: Value, vector: str
) -> TypedValue:
    if kind == "H":
        return TypedValue(
            "F",
            lowering.ir.emit_value(
                f"fpext {vector} {loaded} to {lowering.ir.vector_type.llvm_type}"
            ),
        )
    return TypedValue(
        kind, _emit_mask(lowering, loaded, vector) if kind == "B" else loaded
    )


def _emit_mask(lowering: LlvmLowering, value: Value, vector: str) -> Value:
    return lowering.ir.emit_value(f"icmp ne {vector} {value}, zeroinitializer")


def emit_vector_store(
    lowering: LlvmLowering, result: TypedValue, kind: str, base: Value, index: IntValue
) -> None:
    """Emit a store of values to the elements from `index` on."""
    storage_type, value = _STORAGE_TYPES[kind], result.value
    vector = f"<{lowering.ir.vector_type.lanes} x {storage_type}>"
    if result.kind == "B":
        value = lowering.ir.emit_value(
            f"zext {lowering.llvm_type('B')} {value} to {vector}"
        )
    if kind == "H":
        value = lowering.ir.emit_value(
            f"fptrunc {lowering.ir.vector_type.llvm_type} {value} to {vector}"
        )
    pointer = lowering.ir.element_pointer(base, index, storage_type)
    lowering.ir.emit(
        f"store {vector} {value}, ptr {pointer}, align {_STORAGE_BYTES[storage_type]}"
    )
