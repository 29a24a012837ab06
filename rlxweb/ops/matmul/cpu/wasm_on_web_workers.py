"""Matrix products with constant weights in a browser's Python, shared among Web
Workers, with fused elementwise epilogues.

An elementwise region that alone reads such a product is done part by part where the
product is made: a bias, an activation, what is added to it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlxweb.codegen.jit_cache import JitCache, WasmJitCache
from rlxweb.codegen.native_elementwise import RegionSpec
from rlxweb.codegen.packed_weight_cache import UsesConstantOperands
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.op import Attrs, TensorType, Types
from rlxweb.ops.kernel_variant import KernelVariant
from rlxweb.ops.matmul.cpu.epilogue import EpilogueCall, matmul_epilogue
from rlxweb.ops.matmul.cpu.native import MatmulEpilogue
from rlxweb.ops.matmul.cpu.wasm import WasmMatmul, can_share, is_supported
from rlxweb.ops.matmul.cpu.web_worker_matmul import (
    MAX_OPERANDS,
    WorkerEpilogue,
    supports_columns,
)
from rlxweb.ops.matmul.cpu.web_workers import SharedMemoryBlock, available_web_workers

Array = NDArray[Any]


class SharedRegion(NamedTuple):
    """Compiled region: its place in the function tables of all threads, and its module
    in their memory.
    """

    table_index: int
    module: SharedMemoryBlock


def _compile_shared_region(region: object) -> SharedRegion:
    """Compile a region for all Web Workers. Errors  Unsupported; MemoryError if the
    tables are full.
    """
    from rlxweb.codegen.elementwise_wasm import region_module

    assert isinstance(region, RegionSpec)
    region_arguments = region.graph, region.ids, region.reads, region.is_scalar
    web_workers = available_web_workers()
    compiled = web_workers and web_workers.load_region(
        region_module(*region_arguments, shared=True)
    )
    if not compiled:
        raise MemoryError(
            "the Web Workers of this page have too little memory for another compiled "
            "region"
        )
    return SharedRegion(*compiled)


shared_region_cache: JitCache[SharedRegion] = WasmJitCache(_compile_shared_region)
"""Regions that the Web Workers have compiled."""


class SharedMatmul(EpilogueCall, UsesConstantOperands):
    """Matrix product by a weight, shared among Web Workers, with an optional epilogue.

    product  the same without a tail
    """

    def __init__(
        self,
        product: WasmMatmul,
        shape: tuple[int, ...],
        fallback: Callable[..., Array],
    ) -> None:
        super().__init__(shape, fallback)
        self.product = product

    def set_constant_operands(self, indices: Collection[int]) -> None:
        self.product.set_constant_operands(indices)

    def __call__(
        self, attrs: Attrs, x: Array, y: Array, *epilogue_arguments: Array
    ) -> Array:
        if self.epilogue is None:
            return self.fallback(attrs, x, y)
        code = shared_region_cache.get_kernel(self.epilogue.region)
        if code is not None:
            epilogue_operands = [
                np.ascontiguousarray(operand) for operand in epilogue_arguments
            ]
            epilogue = WorkerEpilogue(
                code.table_index, self.epilogue.byte_strides, epilogue_operands
            )
            result = self.product.run_shared(x, y, epilogue)
            if result is not None:
                return result
        start = perf_counter()
        result = self.fallback(attrs, x, y, *epilogue_arguments)
        if self.product.is_shared:
            shared_region_cache.record_fallback_time(
                self.epilogue.region, perf_counter() - start
            )
        return result

    def make_epilogue(
        self, graph: Graph, node: Node, ids: Sequence[int], reads: Sequence[int]
    ) -> MatmulEpilogue | None:
        epilogue = matmul_epilogue(graph, node, ids, reads)
        if epilogue is None or len(epilogue.byte_strides) > MAX_OPERANDS:
            return None
        return epilogue if supports_columns(self.shape[-1]) else None


def _is_supported(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    """Return True if there are Web Workers, or will be, and the product is large enough
    for them.
    """
    if not is_supported(inputs, out, attrs):
        return False
    return can_share(inputs, out) and available_web_workers() is not None


def _plan_matmul(inputs: Types, out: TensorType, attrs: Attrs) -> SharedMatmul:
    """Return the call of a node's matrix product."""
    product = WasmMatmul(inputs, out, attrs)
    return SharedMatmul(product, out.shape, product)


KERNELS = (
    KernelVariant(
        "matmul, by Workers too", "matmul", _plan_matmul, _is_supported, "webassembly"
    ),
)
"""Variant of matrix products with Web Workers, tried before that of one thread."""
