"""Softmax and norms along the last axis in a browser's Python, by WebAssembly.

Rows of the table of variants. The module is made once, when the first node wants it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.backends.wasm_lines_text import OPS, lines_module
from rlxweb.host.variants import Variant
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import Attrs, TensorType, Types
from rlxweb.ir.shape import normal_axis
from rlxweb.machine.making import fast_mode
from rlxweb.machine.wasm import IN_A_TAB, opened

LEAST: Final = 1 << 9
"""Elements from which a call is faster than several of NumPy's."""
Array = NDArray[Any]


@cache
def _functions() -> dict[str, Callable[..., None]] | None:
    try:
        return dict(zip(OPS, opened(lines_module(), *OPS), strict=True))
    except OSError:  # a browser that refuses it
        return None


def _open(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    """Lines along the last axis, in float32."""
    if not IN_A_TAB or fast_mode() == "off" or out.rank == 0:
        return False
    alike = all(one.dtype is DType.F32 for one in inputs)
    last = normal_axis(attrs["axis"], out.rank) == out.rank - 1
    fits = alike and last and out.shape[-1] >= 4 and out.numel >= LEAST
    return fits and _functions() is not None


def _run(op: str, attrs: Attrs, x: Array, *rest: Array) -> Array:
    functions = _functions()
    assert functions is not None  # the gate asked
    x, out, n = np.ascontiguousarray(x), np.empty(x.shape, np.float32), x.shape[-1]
    held = [np.ascontiguousarray(one) for one in rest]
    ends = [one.ctypes.data for one in held] or [0, 0]
    room = np.full(8, attrs.get("eps", 0.0), np.float32)
    front = x.ctypes.data, out.ctypes.data, x.size // n, n
    functions[op](*front, *ends, room.ctypes.data)
    return out


LINES: Final = tuple(
    Variant(f"{op}, by WebAssembly", op, _open, partial(_run, op)) for op in OPS
)
"""The rows, before all others."""
