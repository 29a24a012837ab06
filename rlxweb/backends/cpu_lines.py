"""Softmax and norms along the last axis on the CPU, as one function of machine code.

Rows of the table of variants: where a gate opens the code is used once it is there, and
the op's reference until then.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.host.arrays import pool
from rlxweb.host.compiled import address
from rlxweb.host.in_parts import in_parts
from rlxweb.host.shared_code import Shared
from rlxweb.host.variants import Variant
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import Attrs, TensorType, Types
from rlxweb.ir.shape import normal_axis
from rlxweb.machine import library
from rlxweb.machine.jobs import packed
from rlxweb.machine.making import code_of, fast_mode
from rlxweb.machine.workshop import Workshop

OPS: Final = ("softmax", "layer_norm", "rms_norm")
LEAST: Final = 1 << 11
"""Elements from which a call of ours is faster than several of NumPy's."""
_TASK: Final = 1 << 13
_THREADED: Final = 1 << 15


def _made(about: object) -> Shared:
    from rlxweb.machine.lines import lines_text

    return function_of(code_of(lines_text(str(about), library.processor().nbytes)))


def function_of(code: library.Code) -> Shared:
    """What a module of lines exports, as `machine/lines.py` says."""
    return Shared.of(code, "lines")


line_kernels: Workshop[Shared] = Workshop(_made, fast_mode)
"""The compiled ops on lines of this process."""


def _open(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    """Lines along the last axis, in float32."""
    alike = all(one.dtype is DType.F32 for one in inputs)
    last = normal_axis(attrs["axis"], out.rank) == out.rank - 1
    return alike and last and out.numel >= LEAST and line_kernels.is_open


def _run(op: str) -> Callable[..., Any]:
    by_numpy = in_parts(op)

    def run(attrs: Attrs, x: NDArray[Any], *rest: NDArray[Any]) -> NDArray[Any]:
        kernel = line_kernels.ready(op)
        if kernel is not None:
            return computed(kernel, attrs, x, rest)
        begun = perf_counter()
        made = by_numpy(attrs, x, *rest)
        line_kernels.spent(op, perf_counter() - begun)
        return made

    return run


def computed(
    kernel: Shared,
    attrs: Attrs,
    x: NDArray[Any],
    rest: tuple[NDArray[Any], ...],
    out: NDArray[Any] | None = None,
) -> NDArray[Any]:
    """The lines of x, into `out` or into an array of its own."""
    x = np.ascontiguousarray(x)
    out, n = pool.empty(x.shape, np.float32) if out is None else out, x.shape[-1]
    rows = x.size // n
    held = [np.ascontiguousarray(one) for one in rest]
    ends = [address(one) for one in held] or [0, 0]
    eps = float(attrs.get("eps", 0.0))
    taken = np.zeros(1, np.int64)
    each = max(1, _TASK // n)
    front = address(x), address(out), rows, n
    job = packed(*front, *ends, eps, address(taken), each)
    kernel(job, threaded=x.size >= _THREADED and rows > each)
    return out


COMPILED: Final = tuple(Variant(f"{op}, compiled", op, _open, _run(op)) for op in OPS)
"""The rows, before all others."""
