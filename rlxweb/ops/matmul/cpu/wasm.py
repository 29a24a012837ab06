"""Float32 matrix products in a browser's Python, by our own WebAssembly.

NumPy has no BLAS there and takes 30 times as long as a processor needs. What cannot be
computed so, or where a browser refuses the module, is left to NumPy. Products with
weights are shared with Workers, where there are any (`web_worker_matmul.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import cache, partial
from typing import Any, Final, NamedTuple
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from rlxweb.codegen.packed_weight_cache import (
    ConstantOperandTracker,
    PackCache,
    UsesConstantOperands,
)
from rlxweb.codegen.result_buffer_pool import result_pool
from rlxweb.codegen.wasm_builder import IN_BROWSER, load_fused_module
from rlxweb.core.environment import jit_mode
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import Attrs, TensorType, Types, registry
from rlxweb.ops.kernel_variant import KernelVariant
from rlxweb.ops.matmul.cpu.wasm_codegen import (
    ARGUMENTS,
    PANEL_COLUMNS,
    matmul_module,
    packed_floats,
    scratch_floats,
)
from rlxweb.ops.matmul.cpu.web_worker_matmul import (
    MIN_SHARED_MULTIPLICATIONS,
    WebWorkerMatmul,
    WorkerEpilogue,
)
from rlxweb.ops.matmul.cpu.web_workers import (
    SharedMemoryBlock,
    WebWorkers,
    available_web_workers,
)

MIN_MULTIPLICATIONS: Final = 1 << 14
"""Minimum multiplications for which leaving NumPy pays."""
MAX_PACKED_ROWS: Final = 96
"""Maximum rows for which packing the right matrix in panels takes a noticeable share of
the time, so that packed weights are cached.
"""
Array = NDArray[Any]
_F32 = np.dtype(np.float32)


class WasmMatmulFunctions(NamedTuple):
    """Functions of the WebAssembly module; `wasm_codegen.py` and
    `ops/conv/cpu/wasm_codegen.py` document their arguments.
    """

    multiply: Callable[..., None]
    pack: Callable[..., None]
    multiply_packed: Callable[..., None]
    multiply_windows: Callable[..., None]
    multiply_lines: Callable[..., None]


def wasm_functions() -> WasmMatmulFunctions | None:
    """Return the module's functions; None where WebAssembly is missing, refused or
    disabled.
    """
    return _load_wasm_functions() if IN_BROWSER and jit_mode() != "off" else None


@cache
def _load_wasm_functions() -> WasmMatmulFunctions | None:
    """Compile the module and return its functions; None in a browser without SIMD."""
    try:
        return WasmMatmulFunctions(*load_fused_module(matmul_module, *ARGUMENTS))
    except OSError:  # a browser without SIMD
        return None


class _WasmScratch:
    """Scratch memory that calls overwrite, as large as any of them needs."""

    def __init__(self) -> None:
        self._buffer = np.empty(0, np.float32)

    def address(self, floats: int) -> int:
        """Return the address of at least `floats` floats."""
        return self.buffer(floats).ctypes.data

    def buffer(self, floats: int) -> Array:
        """Return the buffer itself, with room for at least `floats` floats."""
        if self._buffer.size < floats:
            self._buffer = np.empty(floats, np.float32)
        return self._buffer


WASM_SCRATCH: Final = _WasmScratch()
"""Scratch of this process: Python has one thread in a browser, and no call leaves
anything in it.
"""


def matmul(x: Array, y: Array) -> Array:
    """Return the matrix product like `numpy.matmul`, of at least two axes each."""
    out = np.empty(
        (*np.broadcast_shapes(x.shape[:-2], y.shape[:-2]), x.shape[-2], y.shape[-1]),
        np.result_type(x, y),
    )
    return np.matmul(x, y, out=out) if not try_matmul_into(x, y, out) else out


def try_matmul_into(x: Array, y: Array, out: Array) -> bool:
    """Compute the product into an array if WebAssembly supports it; return whether it
    did.
    """
    if not x.dtype == y.dtype == out.dtype == _F32:
        return False
    if out.size * x.shape[-1] < MIN_MULTIPLICATIONS or out.strides[-1] != 4:
        return False
    wasm = wasm_functions()
    if wasm is None:
        return False
    terms, columns = x.shape[-1], y.shape[-1]
    if y.ndim == 2 and out.ndim > 2 and out.flags.c_contiguous and x.ndim == out.ndim:
        x, out = x.reshape(-1, terms), out.reshape(-1, columns)
    x, y = _as_row_major(x), _as_row_major(y)
    sizes = x.shape[-2], terms, columns
    scratch_address = WASM_SCRATCH.address(scratch_floats(terms))
    strides = x.strides[-2], y.strides[-2], out.strides[-2], scratch_address
    a, b, c = x.ctypes.data, y.ctypes.data, out.ctypes.data
    count, batch_strides, offsets = _batch_strides(x, y, out)
    for i, j, k in offsets:
        wasm.multiply(a + i, b + j, c + k, *sizes, *strides, count, *batch_strides)
    return True


def _batch_strides(
    x: Array, y: Array, out: Array
) -> tuple[int, tuple[int, ...], Iterable[tuple[int, ...]]]:
    """Return the matrices that follow each other on the last batch axis, their strides,
    and the offsets of each such run, in bytes.
    """
    batch = out.shape[:-2]
    if not batch:
        return 1, (0, 0, 0), ((0, 0, 0),)
    if x.shape[:-2] != batch:
        x = np.broadcast_to(x, (*batch, *x.shape[-2:]))
    if y.shape[:-2] != batch:
        y = np.broadcast_to(y, (*batch, *y.shape[-2:]))
    arrays = x, y, out
    batch_strides = tuple(array.strides[-3] for array in arrays)
    offsets: list[tuple[int, ...]] = [(0, 0, 0)]
    for axis, size in enumerate(batch[:-1]):
        strides = [array.strides[axis] for array in arrays]
        offsets = [
            tuple(
                start + i * stride
                for start, stride in zip(starts, strides, strict=True)
            )
            for starts in offsets
            for i in range(size)
        ]
    return batch[-1], batch_strides, offsets


def _as_row_major(x: Array) -> Array:
    """Return the array with contiguous elements in each row and non-negative row
    strides.
    """
    is_row_major = x.strides[-1] == 4 and x.strides[-2] >= 0 and x.strides[-2] % 4 == 0
    return x if is_row_major else np.ascontiguousarray(x)


def is_supported(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    """Return whether all inputs are float32 and the product is large enough."""
    x, y = inputs[:2]
    if min(x.rank, y.rank) < 2 or wasm_functions() is None:
        return False
    is_float32 = all(operand.dtype is DType.F32 for operand in inputs)
    return is_float32 and out.numel * x.shape[-1] >= MIN_MULTIPLICATIONS


def can_share(inputs: Types, out: TensorType) -> bool:
    """Return whether a product with a cached right matrix is worth a second thread."""
    x, y = inputs[:2]
    multiplications = out.numel * x.shape[-1]
    return (
        y.rank == 2
        and multiplications >= MIN_SHARED_MULTIPLICATIONS
        and 4 * y.numel <= MAX_SHARED_NBYTES
    )


class WasmPackedMatrix:
    """Matrix packed in panels, for products with it as the right operand."""

    def __init__(self, wasm: WasmMatmulFunctions, y: Array) -> None:
        self._multiply_packed, self._shape = wasm.multiply_packed, y.shape
        terms, columns = y.shape
        self._panels, rows = (
            np.empty(packed_floats(terms, columns), np.float32),
            _as_row_major(y),
        )
        address = self._panels.ctypes.data
        wasm.pack(rows.ctypes.data, terms, columns, rows.strides[0], address)
        spare_address = address + 4 * (self._panels.size - PANEL_COLUMNS)
        self._panels_address, self._trailing_arguments = (
            address,
            (4 * terms, 4 * columns, spare_address),
        )

    @property
    def panels(self) -> Array:
        """The packed panels, without the spare memory."""
        return self._panels[:-PANEL_COLUMNS]

    def multiply(self, x: Array, out: Array, rows: int) -> None:
        """Multiply `rows` rows by the matrix into `out`, all contiguous."""
        addresses = x.ctypes.data, self._panels_address, out.ctypes.data
        self._multiply_packed(*addresses, rows, *self._shape, *self._trailing_arguments)


def matrix_multiplier(y: Array) -> Callable[[Array, Array], object]:
    """Return the function (x, out) that multiplies x by a matrix used many times, into
    a contiguous array.
    """
    wasm = (
        wasm_functions() if y.dtype == _F32 and y.size >= MIN_MULTIPLICATIONS else None
    )
    if wasm is None:
        return lambda x, out: np.matmul(x, y, out=out)
    packed = WasmPackedMatrix(wasm, y)
    return lambda x, out: packed.multiply(np.ascontiguousarray(x), out, len(x))


PACKED_MATRICES: Final[PackCache[WasmPackedMatrix]] = PackCache()
"""Packed matrices of this process."""


class SharedPanels(NamedTuple):
    """Packed matrix in the memory shared with web workers; None where that memory is
    full.
    """

    block: SharedMemoryBlock | None


SHARED_PANELS: Final[PackCache[SharedPanels]] = PackCache()
"""Shared packed matrices of this process."""
MAX_SHARED_NBYTES: Final = 1 << 28
"""Maximum bytes of a matrix in shared memory."""


class WasmMatmul(UsesConstantOperands):
    """Matrix product (`matmul`) of one node.

    is_weight  the right matrix is the same from run to run, until a param is set
    """

    is_weight = False
    _packed: WasmPackedMatrix | None = None
    _worker_matmul: WebWorkerMatmul | None = None

    def __init__(self, inputs: Types, out: TensorType, attrs: Attrs) -> None:
        wasm = wasm_functions()
        assert wasm is not None  # the gate asked
        self._functions, self._shape = wasm, out.shape
        self._weight_tracker, self._shared_weight_tracker = (
            ConstantOperandTracker(),
            ConstantOperandTracker(),
        )
        self._last_weight: Callable[[], Any] = lambda: None
        self._shared_block: SharedMemoryBlock | None = None
        self._row_count = out.numel // max(1, out.shape[-1])
        self._can_pack = inputs[1].rank == 2 and self._row_count <= MAX_PACKED_ROWS
        self._workers = available_web_workers() if can_share(inputs, out) else None
        if self._workers is not None:
            self._worker_matmul = WebWorkerMatmul(self._row_count, *inputs[1].shape)

    def set_constant_operands(self, indices: Collection[int]) -> None:
        self.is_weight = 1 in indices

    def __call__(self, attrs: Attrs, x: Array, y: Array) -> Array:
        """Return the product."""
        result = self.run_shared(x, y)
        if result is not None:
            return result
        packed = self._packed_weight(y) if self._can_pack and self.is_weight else None
        if packed is None:
            return matmul(x, y)
        out = np.empty(self._shape, np.float32)
        packed.multiply(np.ascontiguousarray(x), out, self._row_count)
        return out

    @property
    def is_shared(self) -> bool:
        """True if the matrix is a weight and web workers have started."""
        workers = self._workers
        return self.is_weight and workers is not None and workers.is_ready

    def run_shared(
        self, x: Array, y: Array, epilogue: WorkerEpilogue | None = None
    ) -> Array | None:
        """Compute the product, and an epilogue if given, on web workers and this
        thread; None where there are no workers yet or the matrix is not shared.
        """
        worker_matmul, workers = self._worker_matmul, self._workers
        if worker_matmul is None or workers is None or not self.is_shared:
            return None
        if self._last_weight() is not y:
            root = self._shared_weight_tracker.constant_root(y)
            shared_panels = (
                None if root is None else self._get_shared_panels(workers, root, y)
            )
            if shared_panels is None or shared_panels.block is None:
                return None
            self._last_weight, self._shared_block = ref(y), shared_panels.block
        assert self._shared_block is not None  # of what was seen
        out = result_pool.empty(self._shape, np.float32)
        arguments = np.ascontiguousarray(x), self._shared_block, out, epilogue
        return out if worker_matmul.run(workers, *arguments) else None

    def _get_shared_panels(
        self, workers: WebWorkers, root: Any, y: Array
    ) -> SharedPanels | None:
        """Return the panels in the workers' memory, which replace this thread's own."""
        key = y.ctypes.data, y.shape, y.strides

        def share_panels() -> SharedPanels:
            packed = PACKED_MATRICES.pop(root, key) or WasmPackedMatrix(
                self._functions, y
            )
            self._packed = None
            return SharedPanels(workers.copy_in(packed.panels))

        return SHARED_PANELS.get_or_pack(root, key, share_panels)

    def _packed_weight(self, y: Array) -> WasmPackedMatrix | None:
        """Return the packed weight if it is the one of the run before."""
        root = self._weight_tracker.constant_root(y)
        if root is None:
            self._packed = None
        elif self._packed is None:
            key = y.ctypes.data, y.shape, y.strides
            self._packed = PACKED_MATRICES.get_or_pack(
                root, key, partial(WasmPackedMatrix, self._functions, y)
            )
        return self._packed


class WasmFusedMatmul(WasmMatmul):
    """Product with bias and activation (`fused_matmul_bias_act`) of one node."""

    def __call__(self, attrs: Attrs, x: Array, y: Array, bias: Any = None) -> Array:
        """Return the activation of the product plus the bias."""
        result = super().__call__(attrs, x, y)
        result += bias
        activation = attrs["activation"]
        if activation is None:
            return result
        activated: Array = registry.get(activation).reference(np, {}, result)
        return activated


_WASM_OPS: Final[dict[str, type[WasmMatmul]]] = (
    {"matmul": WasmMatmul, "fused_matmul_bias_act": WasmFusedMatmul}
    if IN_BROWSER
    else {}
)
KERNELS = tuple(
    KernelVariant(f"{op}, by WebAssembly", op, make_call, is_supported, "webassembly")
    for op, make_call in _WASM_OPS.items()
)
