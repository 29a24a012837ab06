"""Tables of faster kernels that several tests go through."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rlxweb.gpu.port_protocol import AdapterRequest
from rlxweb.ops.elementwise import cpu as elementwise
from rlxweb.ops.fft.cpu import numpy as fft
from rlxweb.ops.gather import cpu as gather
from rlxweb.ops.kernel_variant import COPY, KernelTable, KernelVariant, load_kernels
from rlxweb.ops.layout import cpu as layout
from rlxweb.ops.matmul.cpu import wasm as wasm_matmul
from rlxweb.ops.quantized import cpu as quantized
from rlxweb.ops.recurrent.cpu import numpy as recurrent
from rlxweb.ops.reduce.cpu import numpy as reduce
from rlxweb.ops.sort import cpu as sort
from rlxweb.ops.welch.cpu import numpy as welch
from tests.engines_under_test import EngineUnderTest, adapter_engine

WGSL_TABLE = KernelTable(load_kernels("wgsl"))
COPY_VARIANTS = WGSL_TABLE.for_op(COPY)
WGSL_VARIANTS = tuple(v for v in WGSL_TABLE.variants if v.op != COPY)
NUMPY_VARIANTS: tuple[KernelVariant, ...] = (
    *wasm_matmul.KERNELS,
    *reduce.KERNELS,
    *recurrent.KERNELS,
    *elementwise.KERNELS,
    *layout.KERNELS,
    *gather.KERNELS,
    *sort.KERNELS,
    *welch.KERNELS,
    *fft.KERNELS,
    *quantized.KERNELS,
)
"""Kernels on NumPy arrays that compile nothing, and those of WebAssembly's products."""


def direct_function(variant: KernelVariant) -> Callable[..., Any]:
    """Return the function of a variant that has the same for every node."""
    function: Callable[..., Any] = variant.build(None, None, None)
    return function


def engine_with_variants(
    request: AdapterRequest, variants: Sequence[KernelVariant] = WGSL_TABLE.variants
) -> EngineUnderTest:
    """Return the adapter's engine with some kernel variants alone."""
    engine = adapter_engine(request, variants=variants)
    return EngineUnderTest(engine.name, engine)
