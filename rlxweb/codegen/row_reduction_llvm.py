"""LLVM code of a row kernel: reductions along rows and the elementwise nodes around
them, from the ops' WGSL expressions.

An element's values are vectors, a row's are single numbers that are spread over a
vector where one is needed. What reduces is kept in the accumulators of
`llvm_row_reduction.py`: sums in double precision.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rlxweb.codegen import llvm_math_functions
from rlxweb.codegen.elementwise_llvm import (
    emit_nodes,
    emit_vector_load,
    emit_vector_store,
    node_expression,
    storage_kind,
    value_kind,
    wgsl_library_for,
)
from rlxweb.codegen.llvm_builder import IntValue, IRBuilder, Value, VectorType
from rlxweb.codegen.llvm_row_reduction import (
    MAXIMUM,
    MINIMUM,
    PRODUCT,
    SUM,
    reduce_elements,
    sum_same_sign,
)
from rlxweb.codegen.row_kernel import RowKernel, is_view
from rlxweb.codegen.wgsl_to_instructions import TypedValue
from rlxweb.codegen.wgsl_to_llvm import LlvmLowering
from rlxweb.core.errors import Unsupported
from rlxweb.ir.graph import Node
from rlxweb.ir.row_reduction_pattern import reduction_kind

_SIGNATURE: Final = "void @rows(ptr noalias %job, i64 %outer, i64 %n)"
_REDUCTIONS: Final = {
    "sum": SUM,
    "mean": SUM,
    "prod": PRODUCT,
    "max": MAXIMUM,
    "min": MINIMUM,
}
_SCALAR_TYPES: Final = {"F": "float", "I": "i32", "U": "i32", "B": "i1"}


def row_kernel_llvm_ir(
    kernel: RowKernel, is_scalar: Sequence[bool], nbytes: int
) -> str:
    """Return the code of @rows(job, outer, n), which computes `outer` rows of n
    elements.

    job      addresses of the result and of each read, then their bytes from row to row
    is_scalar  which reads are one number for a whole row
    nbytes   of a vector
    Errors   Unsupported.
    """
    return _RowKernelWriter(kernel, is_scalar, nbytes).text()


class _RowKernelWriter:
    """Writer of one row kernel.

    row_values  of the row in work, by node
    row_reads  of the row in work, by number of the read
    """

    def __init__(
        self, kernel: RowKernel, is_scalar: Sequence[bool], nbytes: int
    ) -> None:
        self.kernel, self.is_scalar = kernel, is_scalar
        computed = [n for n in kernel.nodes if not is_view(n) and not reduction_kind(n)]
        uses = dict.fromkeys(use for n in computed for use in node_expression(n).uses)
        self.ir = IRBuilder(_SIGNATURE, VectorType("float", nbytes // 4))
        self.lowering = LlvmLowering(self.ir, wgsl_library_for(tuple(uses)))
        read_nodes = [kernel.graph.node(i) for i, _ in kernel.reads]
        self.kinds = [storage_kind(node) for node in (kernel.result, *read_nodes)]
        self.stored_value = kernel.stored_value
        self.is_value_stored = False
        self.pointers: list[Value] = []
        self.row_values: dict[int, TypedValue] = {}
        self.row_reads: dict[int, TypedValue] = {}

    def text(self) -> str:
        """Return the module's code."""
        ir, count = self.ir, len(self.kinds)
        bases = [ir.load_element("%job", k, "ptr") for k in range(count)]
        strides = [ir.load_element("%job", count + k, "i64") for k in range(count)]

        def row(i: IntValue) -> None:
            self.pointers = [
                ir.element_pointer(base, ir.multiply_int(i, stride), "i8")
                for base, stride in zip(bases, strides, strict=True)
            ]
            self._emit_row()

        ir.loop("%outer", row)
        ir.emit("ret void")
        return ir.text

    def _emit_row(self) -> None:
        self.row_values, self.is_value_stored = {}, False
        self.row_reads = {
            k: self._load_row_value(self.kinds[1 + k], self.pointers[1 + k])
            for k, is_scalar in enumerate(self.is_scalar)
            if is_scalar
        }
        self._emit_row_nodes(0)
        for walk in range(1, self.kernel.walk_count + 1):
            for node in self.kernel.fold_nodes(walk):
                self.row_values[node.id] = self._reduce(node)
            self._emit_row_nodes(walk)
        if self.kernel.is_per_element:
            self.ir.vector_loop("%n", self._store_elements)
        else:
            with self.ir.single_lane():
                value = self._broadcast(self.row_values[self.kernel.result.id])
                self._store(value, 0)

    def _load_row_value(self, kind: str, pointer: Value) -> TypedValue:
        """Emit a load of a read that is one number for the row."""
        if kind not in _SCALAR_TYPES:
            raise Unsupported("compile a row kernel", "a row's number is a float16")
        if kind != "B":
            return TypedValue(
                kind, self.ir.load_element(pointer, 0, _SCALAR_TYPES[kind])
            )
        byte = self.ir.load_element(pointer, 0, "i8")
        return TypedValue(kind, self.ir.emit_value(f"icmp ne i8 {byte}, 0"))

    def _emit_row_nodes(self, walk: int) -> None:
        """Emit the values of one number for the row that are known by now."""
        with self.ir.single_lane():
            vector = self.ir.vector_type
            for node in self.kernel.row_nodes(walk):
                if is_view(node):
                    self.row_values[node.id] = self._row_operand(node, node.inputs[0])
                    continue
                operands = {
                    i: self._broadcast(self._row_operand(node, i))
                    for i in node.inputs
                    if not self._is_literal(i)
                }
                result = emit_nodes(self.lowering, self.kernel.graph, [node], operands)
                scalar = self.ir.emit_value(
                    f"extractelement <{vector.lanes} x {_SCALAR_TYPES[result.kind]}> "
                    f"{result.value}, i64 0"
                )
                self.row_values[node.id] = TypedValue(result.kind, scalar)

    def _is_literal(self, node_id: int) -> bool:
        is_inside = node_id in self.kernel.levels
        return not is_inside and self.kernel.graph.node(node_id).is_literal

    def _row_operand(self, reader: Node, node_id: int) -> TypedValue:
        """Return a number of the row that a node reads."""
        if node_id in self.row_values:
            return self.row_values[node_id]
        return self.row_reads[self.kernel.read_index(reader, node_id)]

    def _broadcast(self, scalar: TypedValue) -> TypedValue:
        """Return a number in all lanes."""
        kind = scalar.kind
        return TypedValue(kind, self.ir.broadcast(scalar.value, _SCALAR_TYPES[kind]))

    def _element_value(self, reader: Node, node_id: int, index: IntValue) -> TypedValue:
        """Emit the value of a node at the elements from `index` on, as a node reads
        it.
        """
        kernel = self.kernel
        values: dict[int, TypedValue] = {}
        if self.is_value_stored and self.stored_value is not None:
            stored = emit_vector_load(self.lowering, "F", self.pointers[0], index)
            values[self.stored_value.id] = stored
        nodes, _ = kernel.element_nodes([node_id], {*self.row_values, *values})
        loaded: dict[int, TypedValue] = {}

        def operand(reader: Node, i: int) -> TypedValue:
            if i in values:
                return values[i]
            if i in self.row_values:
                return self._broadcast(self.row_values[i])
            read = kernel.read_index(reader, i)
            if read in self.row_reads:
                return self._broadcast(self.row_reads[read])
            if read not in loaded:
                kind, pointer = self.kinds[1 + read], self.pointers[1 + read]
                loaded[read] = emit_vector_load(self.lowering, kind, pointer, index)
            return loaded[read]

        for node in nodes:
            operands = {
                i: operand(node, i) for i in node.inputs if not self._is_literal(i)
            }
            values[node.id] = self._emit_node(node, operands)
        return operand(reader, node_id)

    def _emit_node(self, node: Node, operands: dict[int, TypedValue]) -> TypedValue:
        """Emit the value of a node at some elements."""
        # By name, as there is a shorter power of e alone for arguments up to 0, which
        # are those of every softmax and log-sum-exp.
        if node.op == "exp" and self.kernel.is_nonpositive(node.inputs[0]):
            argument = operands[node.inputs[0]].value
            power = llvm_math_functions.exp_nonpositive(self.ir, argument)
            return TypedValue("F", power)
        return emit_nodes(self.lowering, self.kernel.graph, [node], operands)

    def _reduce(self, node: Node) -> TypedValue:
        """Emit a reduction along the row."""
        if value_kind(node) != "F":
            reason = "only floats are reduced in compiled code"
            raise Unsupported(f"compile {node}", reason)
        op = _REDUCTIONS[reduction_kind(node)]
        source = self.kernel.graph.node(node.inputs[0])
        stores = self.stored_value is not None and source.id == self.stored_value.id

        def term(index: IntValue) -> Value:
            value = self._element_value(node, source.id, index)
            if stores:
                self._store(value, index)
            return value.value

        if op is SUM and self.kernel.is_nonnegative(source):
            result = sum_same_sign(self.ir, "%n", term)
        else:
            result = reduce_elements(self.ir, "%n", term, op)
        self.is_value_stored = stores
        if reduction_kind(node) == "mean":
            count = self.ir.emit_value("uitofp i64 %n to double")
            result = self.ir.emit_value(f"fdiv double {result}, {count}")
        if op.accumulator_type == "double":
            result = self.ir.emit_value(f"fptrunc double {result} to float")
        return TypedValue("F", result)

    def _store_elements(self, index: IntValue) -> None:
        result = self.kernel.result
        self._store(self._element_value(result, result.id, index), index)

    def _store(self, value: TypedValue, index: IntValue) -> None:
        kind, pointer = self.kinds[0], self.pointers[0]
        emit_vector_store(self.lowering, value, kind, pointer, index)
