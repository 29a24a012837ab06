"""Float16 products and networks on the CPU, computed by the float32 variants and
rounded once.

Their meaning is to be computed in float32 and rounded once, at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from time import perf_counter
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlxweb.codegen import llvm_compiler
from rlxweb.codegen.jit_cache import JitCache, compile_cached
from rlxweb.codegen.llvm_float16_conversion import float16_conversion_llvm_ir
from rlxweb.codegen.native_calls import (
    ParallelNativeFunction,
    array_address,
    pack_arguments,
)
from rlxweb.codegen.packed_weight_cache import (
    ConstantOperandTracker,
    PackCache,
    UsesConstantOperands,
)
from rlxweb.codegen.result_buffer_pool import result_pool
from rlxweb.core.thread_tasks import usable_cpus
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import Attrs, TensorType, Types
from rlxweb.ops.kernel_variant import KernelVariant

Array = NDArray[Any]
_MIN_THREADED_ELEMENTS: Final = 1 << 17
"""Elements from which threads share the conversion, a task at a time."""
_MIN_TASK_ELEMENTS: Final = 1 << 14
_TASKS_PER_THREAD: Final = 4
"""Tasks per thread, so that no thread waits long for the last one."""
_FLOAT16_OPS: Final = ("matmul", "conv", "conv_transpose", "lstm", "gru", "rnn")


def float16_variants(variants: Sequence[KernelVariant]) -> tuple[KernelVariant, ...]:
    """Return a float16 variant for each op that has float32 variants among these."""
    return tuple(
        KernelVariant(
            f"{op}, of halves in float32",
            op,
            partial(_plan, candidates),
            partial(_is_supported, candidates),
            dtypes=frozenset({DType.F16}),
        )
        for op in _FLOAT16_OPS
        if (candidates := [variant for variant in variants if variant.op == op])
    )


def _widened_type(tensor_type: TensorType) -> TensorType:
    return (
        TensorType(tensor_type.shape, DType.F32)
        if tensor_type.dtype is DType.F16
        else tensor_type
    )


def _matching_variant(
    variants: Sequence[KernelVariant], inputs: Types, out: TensorType, attrs: Attrs
) -> KernelVariant | None:
    widened_inputs = tuple(map(_widened_type, inputs))
    return next(
        (
            variant
            for variant in variants
            if variant.can_run(widened_inputs, _widened_type(out), attrs)
        ),
        None,
    )


def _is_supported(
    variants: Sequence[KernelVariant], inputs: Types, out: TensorType, attrs: Attrs
) -> bool:
    return _matching_variant(variants, inputs, out, attrs) is not None


def _plan(
    variants: Sequence[KernelVariant], inputs: Types, out: TensorType, attrs: Attrs
) -> Callable[..., Array]:
    variant = _matching_variant(variants, inputs, out, attrs)
    assert variant is not None  # the gate asked
    function = variant.build(
        tuple(map(_widened_type, inputs)), _widened_type(out), attrs
    )

    return Float16ViaFloat32(function)


class Float16ViaFloat32(UsesConstantOperands):
    """Float16 function that computes with a float32 function.

    function  (attributes, arrays) → the result
    """

    def __init__(self, function: Callable[..., Array]) -> None:
        self.function = function
        self._constant_operands: dict[int, ConstantOperandTracker] = {}

    def set_constant_operands(self, indices: Collection[int]) -> None:
        """Cache the float32 copies of these operands."""
        self._constant_operands = {index: ConstantOperandTracker() for index in indices}
        function: object = self.function
        if isinstance(function, UsesConstantOperands):
            function.set_constant_operands(indices)

    def __call__(self, attrs: Attrs, *arrays: Array) -> Array:
        """Compute in float32 and round once."""
        widened = [
            self._widen(index, array) if array.dtype == np.float16 else array
            for index, array in enumerate(arrays)
        ]
        result: Array = self.function(attrs, *widened)
        return convert_floats(result, np.float16)

    def _widen(self, index: int, array: Array) -> Array:
        constant, cached = self._constant_operands.get(index), None
        root = None if constant is None else constant.constant_root(array)
        if root is not None:
            key = array.ctypes.data, array.shape, array.strides
            cached = WIDENED_WEIGHTS.get_or_pack(
                root, key, lambda: convert_floats(array, np.float32)
            )
        return convert_floats(array, np.float32) if cached is None else cached


WIDENED_WEIGHTS: Final[PackCache[Array]] = PackCache()
"""Cache of this process's float16 weights converted to float32."""


class Float16Conversions(NamedTuple):
    """Functions that a compiled float16 conversion module exports; the field names are
    its symbols.
    """

    widened: ParallelNativeFunction
    narrowed: ParallelNativeFunction


def _compile_kernel(key: object) -> Float16Conversions:
    code = compile_cached(
        float16_conversion_llvm_ir(llvm_compiler.host_cpu().vector_nbytes)
    )
    return Float16Conversions(
        *(
            ParallelNativeFunction.from_code(code, name)
            for name in Float16Conversions._fields
        )
    )


float16_kernels: JitCache[Float16Conversions] = JitCache(_compile_kernel)
"""JIT cache of the float16 conversions, under one key."""
_KERNEL_KEY: Final = "halves"


def convert_floats(array: Array, dtype: type[np.floating[Any]]) -> Array:
    """Convert an array of any shape between float16 and float32, with NumPy's
    values.
    """
    if not llvm_compiler.has_float16():
        return array.astype(dtype)
    code = float16_kernels.get_kernel(_KERNEL_KEY)
    if code is None:
        start = perf_counter()
        result = array.astype(dtype)
        float16_kernels.record_fallback_time(_KERNEL_KEY, perf_counter() - start)
        return result
    array, out = np.ascontiguousarray(array), result_pool.empty(array.shape, dtype)
    is_threaded = array.size >= _MIN_THREADED_ELEMENTS
    task_elements = (
        max(_MIN_TASK_ELEMENTS, array.size // (_TASKS_PER_THREAD * usable_cpus()))
        if is_threaded
        else array.size
    )
    job = pack_arguments(
        array_address(array), array_address(out), array.size, task_elements
    )
    claimed = np.zeros(1, np.int64)
    function = code.widened if dtype is np.float32 else code.narrowed
    function(
        pack_arguments(array_address(job), array_address(claimed)), threaded=is_threaded
    )
    return out
