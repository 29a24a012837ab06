"""Writer of row kernels in the code of processors: what LLVM and WebAssembly share.

An element's values are vectors. Which node is evaluated in which walk, what is read,
broadcast, stored and read again, is decided here, from the ops' WGSL expressions; the
writers in `row_reduction_llvm.py` and `row_reduction_wasm.py` say how a vector is
loaded and stored, how a loop goes, and how values become one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar

from rlxweb.codegen.elementwise_llvm import (
    emit_nodes,
    node_expression,
    storage_kind,
    value_kind,
    wgsl_library_for,
)
from rlxweb.codegen.row_kernel import RowKernel, is_view
from rlxweb.codegen.wgsl_parser import WgslLibrary
from rlxweb.codegen.wgsl_to_instructions import TypedValue, WgslLowering
from rlxweb.core.errors import Unsupported
from rlxweb.ir.graph import Node
from rlxweb.ir.row_reduction_pattern import reduction_kind

Index = TypeVar("Index")
"""Where the elements of a vector begin in their row."""


def kernel_library(kernel: RowKernel, *includes: str) -> WgslLibrary:
    """Return the functions of `shaders/include/` that a kernel's expressions name."""
    computed = [n for n in kernel.nodes if not is_view(n) and not reduction_kind(n)]
    uses = dict.fromkeys(use for n in computed for use in node_expression(n).uses)
    return wgsl_library_for((*uses, *includes))


class RowKernelWriter(ABC, Generic[Index]):
    """Writer of one row kernel.

    is_scalar  which reads are one number for a whole row
    kinds      of the elements of the result and of each read
    row_values  of the row in work, by node
    row_reads  of the row in work, by number of the read
    inverses   of what divides elements of the row in work: a factor and a power of two
    rounding_errors  what sums and means of the row in work lost when they were rounded
    """

    def __init__(
        self, kernel: RowKernel, is_scalar: Sequence[bool], lowering: WgslLowering
    ) -> None:
        self.kernel, self.is_scalar, self.lowering = kernel, is_scalar, lowering
        read_nodes = [kernel.graph.node(i) for i, _ in kernel.reads]
        self.kinds = [storage_kind(node) for node in (kernel.result, *read_nodes)]
        self.stored_value = kernel.stored_value
        self.is_value_stored = False
        self.row_values: dict[int, TypedValue] = {}
        self.row_reads: dict[int, TypedValue] = {}
        self.inverses: dict[str, tuple[TypedValue, TypedValue]] = {}
        self.rounding_errors: dict[str, TypedValue] = {}

    @abstractmethod
    def _exp_nonpositive(self, argument: TypedValue) -> TypedValue:
        """Emit the power of e of numbers up to 0, or NaN."""

    @abstractmethod
    def _load_row_value(self, read: int) -> TypedValue:
        """Emit a load of a read that is one number for the row."""

    @abstractmethod
    def _load(self, array: int, index: Index) -> TypedValue:
        """Emit a load of a vector of an array: 0 is the result, then each read."""

    @abstractmethod
    def _store(self, value: TypedValue, index: Index) -> None:
        """Emit a store of a vector into the result."""

    @abstractmethod
    def _broadcast(self, row_value: TypedValue) -> TypedValue:
        """Return a number of the row as a vector."""

    @abstractmethod
    def _first_lane(self, vector: TypedValue) -> TypedValue:
        """Return a number of the row from a vector with it in each lane."""

    @abstractmethod
    def _for_each_vector(self, body: Callable[[Index], None]) -> None:
        """Emit a loop over the row."""

    @abstractmethod
    def _reduce_terms(
        self, kind: str, is_same_sign: bool, term: Callable[[Index], TypedValue]
    ) -> TypedValue:
        """Emit a loop over the row that reduces terms to one number, whose rounding
        error is kept where it is known.
        """

    @abstractmethod
    def _store_row_value(self, value: TypedValue) -> None:
        """Emit a store of the row's only result."""

    @contextmanager
    def _computing_row_values(self) -> Iterator[None]:
        """Context in which values are computed once for the row."""
        yield

    def emit_row(self) -> None:
        """Emit the walks of a row."""
        self.row_values, self.inverses, self.is_value_stored = {}, {}, False
        self.rounding_errors = {}
        self.row_reads = {
            read: self._load_row_value(read)
            for read, is_scalar in enumerate(self.is_scalar)
            if is_scalar
        }
        self._emit_row_nodes(0)
        for walk in range(1, self.kernel.walk_count + 1):
            for node in self.kernel.fold_nodes(walk):
                self.row_values[node.id] = self._reduce(node)
            self._emit_row_nodes(walk)
        if self.kernel.is_per_element:
            self._for_each_vector(self._store_elements)
        else:
            self._store_row_value(self.row_values[self.kernel.result.id])

    def _emit_row_nodes(self, walk: int) -> None:
        """Emit the values of one number for the row that are known by now."""
        with self._computing_row_values():
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
                self.row_values[node.id] = self._first_lane(result)
            self._emit_inverses()

    def _emit_inverses(self) -> None:
        """Emit the inverses of those known values of the row that divide elements."""
        for node in self.kernel.nodes:
            if node.op != "div" or self.kernel.levels[node.id] != "line":
                continue
            divisor = self._known_row_value(node, node.inputs[1])
            if divisor is None or divisor.kind != "F":
                continue
            if divisor.value not in self.inverses:
                self.inverses[divisor.value] = self._inverse(divisor)

    def _known_row_value(self, reader: Node, node_id: int) -> TypedValue | None:
        """Return a number of the row that a node reads; None if it is none, or not
        known yet.
        """
        if node_id in self.row_values:
            return self.row_values[node_id]
        if node_id in self.kernel.levels or self._is_literal(node_id):
            return None
        return self.row_reads.get(self.kernel.read_index(reader, node_id))

    def _inverse(self, divisor: TypedValue) -> tuple[TypedValue, TypedValue]:
        """Emit the inverse of a number of the row as a factor and a power of two, so
        that it is in the range of float32 wherever the divisor is.
        """
        lowering, vector = self.lowering, self._broadcast(divisor)
        magnitude = lowering.absolute_value(vector)

        def scaled(limit: float, comparison: str, other: TypedValue) -> TypedValue:
            is_beyond = lowering.compare(
                comparison, magnitude, lowering.splat("F", limit)
            )
            return lowering.select(other, lowering.splat("F", 1 / limit), is_beyond)

        scale = scaled(2.0**64, "gt", lowering.splat("F", 1.0))
        scale = scaled(2.0**-64, "lt", scale)
        product = self._operator("*", vector, scale)
        factor = self._operator("/", lowering.splat("F", 1.0), product)
        return self._first_lane(factor), self._first_lane(scale)

    def _operator(self, symbol: str, a: TypedValue, b: TypedValue) -> TypedValue:
        result = self.lowering.lower_operator(symbol, [a, b])
        assert result is not None
        return result

    def _is_literal(self, node_id: int) -> bool:
        is_inside = node_id in self.kernel.levels
        return not is_inside and self.kernel.graph.node(node_id).is_literal

    def _row_operand(self, reader: Node, node_id: int) -> TypedValue:
        """Return a number of the row that a node reads."""
        if node_id in self.row_values:
            return self.row_values[node_id]
        return self.row_reads[self.kernel.read_index(reader, node_id)]

    def _element_value(self, reader: Node, node_id: int, index: Index) -> TypedValue:
        """Emit the value of a node at the elements from `index` on, as a node reads
        it.
        """
        kernel = self.kernel
        values: dict[int, TypedValue] = {}
        if self.is_value_stored and self.stored_value is not None:
            values[self.stored_value.id] = self._load(0, index)
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
                loaded[read] = self._load(1 + read, index)
            return loaded[read]

        for node in nodes:
            operands = {
                i: operand(node, i) for i in node.inputs if not self._is_literal(i)
            }
            values[node.id] = self._emit_node(node, operands)
        return operand(reader, node_id)

    def _emit_node(self, node: Node, operands: dict[int, TypedValue]) -> TypedValue:
        """Emit the value of a node at some elements."""
        # By name, as three ops do better where they meet a value of the row: a division
        # is a product with the inverse, which is known before; what is left of elements
        # near their mean is exact; and there is a shorter power of e for arguments up
        # to 0, which are those of every softmax.
        if node.op in ("div", "sub") and self.kernel.levels[node.id] == "line":
            row_value = self._known_row_value(node, node.inputs[1])
            element = operands.get(node.inputs[0])
            if row_value is not None and element is not None:
                if node.op == "div" and row_value.value in self.inverses:
                    return self._divide_by_row_value(element, row_value)
                if node.op == "sub" and row_value.value in self.rounding_errors:
                    return self._subtract_row_value(element, row_value)
        if node.op == "exp" and self.kernel.is_nonpositive(node.inputs[0]):
            return self._exp_nonpositive(operands[node.inputs[0]])
        return emit_nodes(self.lowering, self.kernel.graph, [node], operands)

    def _divide_by_row_value(
        self, dividend: TypedValue, divisor: TypedValue
    ) -> TypedValue:
        factor, scale = map(self._broadcast, self.inverses[divisor.value])
        product = self._operator("*", dividend, factor)
        return self._operator("*", product, scale)

    def _subtract_row_value(
        self, element: TypedValue, row_value: TypedValue
    ) -> TypedValue:
        error = self._broadcast(self.rounding_errors[row_value.value])
        difference = self._operator("-", element, self._broadcast(row_value))
        return self._operator("-", difference, error)

    def _reduce(self, node: Node) -> TypedValue:
        """Emit a reduction along the row."""
        if value_kind(node) != "F":
            reason = "only floats are reduced in compiled code"
            raise Unsupported(f"compile {node}", reason)
        source = self.kernel.graph.node(node.inputs[0])
        stores = self.stored_value is not None and source.id == self.stored_value.id

        def term(index: Index) -> TypedValue:
            value = self._element_value(node, source.id, index)
            if stores:
                self._store(value, index)
            return value

        is_same_sign = self.kernel.is_nonnegative(source)
        result = self._reduce_terms(reduction_kind(node), is_same_sign, term)
        self.is_value_stored = stores
        return result

    def _store_elements(self, index: Index) -> None:
        result = self.kernel.result
        self._store(self._element_value(result, result.id, index), index)
