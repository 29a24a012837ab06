"""Matrix products of float32 with an elementwise epilogue, as calls of a program.

A product that only an elementwise region reads is made together with it: the product
itself never leaves the caches. BLAS computes until the code is there, and what the code
is not better at.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from copy import copy
from time import perf_counter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.codegen.elementwise_llvm import VALUE_KINDS, unsupported_reason
from rlxweb.codegen.native_elementwise import (
    RegionCall,
    RegionCode,
    RegionSpec,
    region_kernels,
    region_row_layout,
)
from rlxweb.codegen.packed_weight_cache import (
    ConstantOperandTracker,
    UsesConstantOperands,
)
from rlxweb.codegen.result_buffer_pool import result_pool
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.op import Attrs, TensorType, Types, registry
from rlxweb.ir.shape_arithmetic import Shape
from rlxweb.ops.kernel_variant import KernelVariant
from rlxweb.ops.matmul.cpu.llvm import MAX_OPERANDS
from rlxweb.ops.matmul.cpu.native import (
    BoundEpilogue,
    GatherTables,
    MatmulEpilogue,
    MatmulKernelKey,
    MatmulSizes,
    MatmulTiling,
    has_supported_layout,
    matmul_kernels,
    matmul_sizes,
    run_matmul,
    tiling_for,
)
from rlxweb.ops.matmul.cpu.packed_weights import PANEL_CACHE

Array = NDArray[Any]
NodeWork = tuple[Node, Callable[..., Any], tuple[int, ...]]

_MAX_PACKED_ROWS: Final = 96
"""Rows up to which weights are read about as often as they come from memory, so that
packing them into panels pays off.
"""


def is_matmul_supported(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    """Return whether a product is float32 and large enough for native code."""
    if any(tensor_type.dtype is not DType.F32 for tensor_type in inputs):
        return False
    sizes = matmul_sizes(inputs[0].shape, inputs[1].shape)
    return sizes is not None and tiling_for(sizes) is not None


def can_be_epilogue(
    graph: Graph, product: Node, ids: Sequence[int], reads: Sequence[int]
) -> bool:
    """Return whether a region has the product's shape in float32 and can be
    compiled.
    """
    out = graph.node(ids[-1]).type
    kinds = {graph.node(i).type.dtype for i in reads}
    is_compilable = kinds <= set(VALUE_KINDS) and not unsupported_reason(
        [graph.node(i) for i in ids]
    )
    matches_product = out.shape == product.type.shape and out.dtype is DType.F32
    return is_compilable and matches_product and len(reads) < MAX_OPERANDS


def matmul_epilogue(
    graph: Graph, product: Node, ids: Sequence[int], reads: Sequence[int]
) -> MatmulEpilogue | None:
    """Return the region as the epilogue of a product; None if it does not fit."""
    out = graph.node(ids[-1])
    sizes = matmul_sizes(*(graph.node(i).type.shape for i in product.inputs))
    if sizes is None or not can_be_epilogue(graph, product, ids, reads):
        return None
    ordered = (product.id, *(i for i in reads if i != product.id))
    shapes = [graph.node(i).type.shape for i in ordered]
    layout = region_row_layout(out.type.shape, shapes)
    if layout is None or layout.blocks:
        return None
    columns, row_count = sizes.columns, sizes.batch * sizes.rows
    if (layout.outer, layout.inner) == (row_count, columns):
        row_strides = layout.row_strides
    elif (layout.outer, layout.inner) == (1, row_count * columns):
        row_strides = tuple(
            0 if is_scalar else columns for is_scalar in layout.is_scalar
        )
    else:
        return None
    widths = [graph.node(i).type.dtype.numpy.itemsize for i in ordered]
    byte_strides = [(4 * columns, 4, 4 * columns * sizes.rows)] + [
        (row_stride * width, 0 if is_scalar else width, row_stride * width * sizes.rows)
        for row_stride, is_scalar, width in zip(
            row_strides, layout.is_scalar, widths, strict=True
        )
    ]
    region = RegionSpec.from_nodes(graph, ids, ordered, layout.is_scalar)
    return MatmulEpilogue(region, ordered, tuple(byte_strides))


class EpilogueCall(ABC):
    """Base of products as functions of their operands and of what an epilogue reads
    besides.

    fallback  the same by other means: (operands, what else is read) → the result
    """

    def __init__(self, shape: Shape, fallback: Callable[..., Array]) -> None:
        self.shape, self.fallback = shape, fallback
        self.epilogue: MatmulEpilogue | None = None
        self.epilogue_code: RegionCode | None = (
            None  # of the tail; stays as long as its call
        )

    @abstractmethod
    def __call__(
        self, attrs: Attrs, x: Array, y: Array, *epilogue_operands: Array
    ) -> Array:
        """Compute the product and its epilogue, if there is one."""

    @abstractmethod
    def make_epilogue(
        self, graph: Graph, node: Node, ids: Sequence[int], reads: Sequence[int]
    ) -> MatmulEpilogue | None:
        """Return a region as this product's epilogue; None if it does not fit."""

    def with_epilogue(
        self, epilogue: MatmulEpilogue, shape: Shape, fallback: Callable[..., Array]
    ) -> EpilogueCall:
        """Return a copy of this call with an epilogue."""
        fused = copy(self)
        fused.epilogue, fused.shape, fused.fallback = epilogue, shape, fallback
        fused.epilogue_code = None
        return fused


class CompiledMatmulCall(EpilogueCall):
    """Base of products computed by native code once it is compiled.

    gather_tables  where the right matrix and the result lie if they are no matrices
    """

    def __init__(
        self,
        sizes: MatmulSizes,
        tiling: MatmulTiling,
        shape: Shape,
        fallback: Callable[..., Array],
        gather_tables: GatherTables | None = None,
    ) -> None:
        super().__init__(shape, fallback)
        self.sizes, self.tiling, self.gather_tables = sizes, tiling, gather_tables
        self.kernel_key = MatmulKernelKey(tiling.tile, gather_tables is not None)

    def __call__(
        self, attrs: Attrs, x: Array, y: Array, *epilogue_operands: Array
    ) -> Array:
        kernel = matmul_kernels.get_kernel(self.kernel_key)
        code = self.epilogue_code
        if code is None and self.epilogue is not None:
            code = self.epilogue_code = region_kernels.get_kernel(self.epilogue.region)
        is_ready = kernel is not None and (self.epilogue is None or code is not None)
        operands = self.prepare_operands(x, y) if is_ready else None
        if kernel is not None and operands is not None:
            epilogue = None
            if self.epilogue is not None and code is not None:
                dense_operands = [
                    np.ascontiguousarray(operand) for operand in epilogue_operands
                ]
                epilogue = BoundEpilogue(self.epilogue, code, dense_operands)
            out = result_pool.empty(self.shape, np.float32)
            arguments = (
                self.sizes,
                self.tiling,
                operands,
                out,
                epilogue,
                self.gather_tables,
            )
            run_matmul(kernel, *arguments)
            return out
        start = perf_counter()
        result = self.fallback(attrs, x, y, *epilogue_operands)
        seconds = perf_counter() - start
        matmul_kernels.record_fallback_time(self.kernel_key, seconds)
        if self.epilogue is not None:
            region_kernels.record_fallback_time(self.epilogue.region, seconds)
        return result

    @abstractmethod
    def prepare_operands(self, x: Array, y: Array) -> tuple[Array, Array] | None:
        """Return the operands in the layout that the code reads; None if they are laid
        out otherwise.
        """


class MatmulCall(CompiledMatmulCall, UsesConstantOperands):
    """Product of matrices by native code, which may take an epilogue.

    is_weight  the right one is the same from run to run, until a param is set
    """

    is_weight = False

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._constant_check = ConstantOperandTracker()

    def set_constant_operands(self, indices: Collection[int]) -> None:
        self.is_weight = 1 in indices

    def prepare_operands(self, x: Array, y: Array) -> tuple[Array, Array] | None:
        has_layout = has_supported_layout(self.sizes, y)
        has_few_rows = self.sizes.rows <= _MAX_PACKED_ROWS
        if (
            self.is_weight
            and self.sizes.shares_right
            and (has_few_rows or not has_layout)
        ):
            root = self._constant_check.constant_root(y)
            panels = (
                None
                if root is None
                else PANEL_CACHE.packed_panels(root, y, self.tiling)
            )
            if panels is not None:
                return np.ascontiguousarray(x), panels
        return (np.ascontiguousarray(x), y) if has_layout else None

    def make_epilogue(
        self, graph: Graph, node: Node, ids: Sequence[int], reads: Sequence[int]
    ) -> MatmulEpilogue | None:
        return matmul_epilogue(graph, node, ids, reads)


def has_epilogue(function: object) -> bool:
    """Return whether a function is a product with an epilogue."""
    return isinstance(function, EpilogueCall) and function.epilogue is not None


def _plan_matmul(inputs: Types, out: TensorType, attrs: Attrs) -> Callable[..., Array]:
    reference = registry.get("matmul").reference

    def fallback(attrs: Attrs, x: Array, y: Array) -> Array:
        result: Array = reference(np, attrs, x, y)
        return result

    sizes = matmul_sizes(inputs[0].shape, inputs[1].shape)
    tiling = None if sizes is None else tiling_for(sizes)
    assert sizes is not None  # `is_matmul_supported` asked
    assert tiling is not None
    return MatmulCall(sizes, tiling, out.shape, fallback)


def fuse_epilogue(
    graph: Graph, product: NodeWork, region: NodeWork, region_call: RegionCall
) -> NodeWork | None:
    """Fuse a product and the region that alone reads it into one call; None if they do
    not fit.
    """
    node, function, inputs = product
    assert isinstance(function, EpilogueCall)
    reads = region[2]
    epilogue = function.make_epilogue(graph, node, region_call.region.ids, reads)
    if epilogue is None:
        return None

    def fallback(attrs: Attrs, x: Array, y: Array, *epilogue_operands: Array) -> Array:
        result = function.fallback(node.attrs, x, y)
        values = dict(zip(epilogue.reads, (result, *epilogue_operands), strict=True))
        return region_call(attrs, *(values[i] for i in reads))

    call = function.with_epilogue(epilogue, region[0].type.shape, fallback)
    return region[0], call, (*inputs, *epilogue.reads[1:])


KERNELS = (
    KernelVariant("matmul, compiled", "matmul", _plan_matmul, is_matmul_supported),
)
