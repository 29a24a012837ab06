"""Softmax and norms along the last axis in a browser's Python, by WebAssembly: kernel
variants.

Rows of the table of variants. The module is made once, when the first node wants it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.codegen.wasm_builder import load_module
from rlxweb.core.environment import jit_mode
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import Attrs, TensorType, Types
from rlxweb.ir.shape_arithmetic import normalize_axis
from rlxweb.ops.kernel_variant import KernelVariant, for_every_node
from rlxweb.ops.norm.cpu.wasm_codegen import OP_BODIES, softmax_norm_module

MIN_ELEMENTS: Final = 1 << 9
"""Elements from which one call is faster than several NumPy calls."""
Array = NDArray[Any]


@cache
def _compiled_functions() -> dict[str, Callable[..., None]] | None:
    """Return the compiled functions by op; None in a browser that refuses them."""
    try:
        return dict(
            zip(OP_BODIES, load_module(softmax_norm_module(), *OP_BODIES), strict=True)
        )
    except OSError:  # a browser that refuses it
        return None


def _is_supported(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    """Return True for lines along the last axis, in float32."""
    if jit_mode() == "off" or out.rank == 0:
        return False
    is_float32 = all(operand.dtype is DType.F32 for operand in inputs)
    is_last_axis = normalize_axis(attrs["axis"], out.rank) == out.rank - 1
    fits = (
        is_float32 and is_last_axis and out.shape[-1] >= 4 and out.numel >= MIN_ELEMENTS
    )
    return fits and _compiled_functions() is not None


def _run_op(op: str, attrs: Attrs, x: Array, *affine_arguments: Array) -> Array:
    """Compute one op along the last axis."""
    functions = _compiled_functions()
    assert functions is not None  # the gate asked
    x, out, n = np.ascontiguousarray(x), np.empty(x.shape, np.float32), x.shape[-1]
    affine_operands = [np.ascontiguousarray(operand) for operand in affine_arguments]
    affine_addresses = [operand.ctypes.data for operand in affine_operands] or [0, 0]
    scratch = np.full(8, attrs.get("eps", 0.0), np.float32)
    leading_arguments = x.ctypes.data, out.ctypes.data, x.size // n, n
    functions[op](*leading_arguments, *affine_addresses, scratch.ctypes.data)
    return out


KERNELS = tuple(
    KernelVariant(
        f"{op}, by WebAssembly",
        op,
        for_every_node(partial(_run_op, op)),
        _is_supported,
        "webassembly",
    )
    for op in OP_BODIES
)
