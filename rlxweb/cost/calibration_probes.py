"""Calibration probes for each kind of work: sizes, and graphs that do that much work.

Knows no op but those that these graphs are made of, and no device but the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # who only prices a Welch job loads no graph
    from rlxweb.ir.graph import Graph
    from rlxweb.ir.sample import Drawn
    from rlxweb.ir.tensor import Tensor

WorkSize = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class CalibrationProbe:
    """Size that a calibration measures, and the graph that does that much work.

    name    what progress, and the list of what was left out, call it
    shapes  params of the graph by name: a shape of float32, or what is to be drawn
    build   (graph, *params) → what is computed
    priority  0 for the one that tells most, one of each kind: no graph can be priced
            without it, and it is measured before everything else; 3 for one of many
    """

    name: str
    size: WorkSize
    shapes: Mapping[str, tuple[int, ...] | Drawn]
    build: Callable[..., Tensor]
    priority: int = 0


def matmul_probes(is_cpu: bool) -> Iterator[CalibrationProbe]:
    """Yield probes that multiply square matrices."""
    for n in (256, 64, 512) if is_cpu else (256, 64, 512, 1024):
        size, shapes = {"m": n, "k": n, "n": n}, {"a": (n, n), "b": (n, n)}
        priority = 0 if n == 256 else 2
        yield CalibrationProbe(
            f"matmul {n}", size, shapes, lambda g, a, b: a @ b, priority
        )


def integer_matmul_probes(is_cpu: bool) -> Iterator[CalibrationProbe]:
    """Yield probes that multiply square integer matrices."""
    from rlxweb.ir.dtype import DType
    from rlxweb.ir.sample import Drawn

    for priority, n in ((0, 128),) if is_cpu else ((0, 128), (2, 512)):
        size, operand = {"m": n, "k": n, "n": n}, Drawn((n, n), DType.I32)
        shapes = {"a": operand, "b": operand}
        yield CalibrationProbe(
            f"whole_matmul {n}", size, shapes, lambda g, a, b: a @ b, priority
        )


def matvec_probes(is_cpu: bool) -> Iterator[CalibrationProbe]:
    """Yield a product bound by reading its matrix once."""
    n = 2048
    size = {"bytes": 4 * (n * n + 2 * n)}
    shapes = {"a": (1, n), "b": (n, n)}
    yield CalibrationProbe(f"matvec {n}", size, shapes, lambda g, a, b: a @ b)


def transposed_read_probes(is_cpu: bool) -> Iterator[CalibrationProbe]:
    """Yield a probe that reads columns as rows while it writes rows."""
    n = 1000  # a power of two would be the worst there is
    size = {"bytes": 4 * n * n}
    shapes = {"x": (n, n), "y": (n, n)}
    build = lambda g, x, y: x + g.transpose(y, (1, 0))  # noqa: E731
    yield CalibrationProbe(f"turned {n}", size, shapes, build)


def fft_probes(is_cpu: bool) -> Iterator[CalibrationProbe]:
    """Yield transforms of rows of a power of two."""
    for priority, (n, rows) in enumerate(((2048, 64), (128, 256))):
        size, shapes = {"n": n, "rows": rows}, {"x": (rows, 2 * n)}
        name = f"fft {rows} × {n}"
        yield CalibrationProbe(
            name, size, shapes, lambda g, x: g.apply("fft", x), priority
        )


def prime_fft_probes(is_cpu: bool) -> Iterator[CalibrationProbe]:
    """Yield transforms of rows of a prime length."""
    n, rows = 1021, 64
    size, shapes = {"n": n, "rows": rows}, {"x": (rows, 2 * n)}
    name = f"bluestein {rows} × {n}"
    yield CalibrationProbe(name, size, shapes, lambda g, x: g.apply("fft", x))


def copy_probes(is_cpu: bool) -> Iterator[CalibrationProbe]:
    """Yield copies of sizes that caches hold and of sizes that they do not."""
    for nbytes, priority in ((2 << 20, 0), (64 << 10, 2), (8 << 20, 2), (64 << 20, 2)):
        size = {"bytes": 2 * nbytes}  # read and written
        shapes = {"x": (nbytes // 4,)}
        yield CalibrationProbe(
            f"copy {nbytes:,}", size, shapes, lambda g, x: x * 1.5, priority
        )


def elementwise_probes(is_cpu: bool) -> Iterator[CalibrationProbe]:
    """Yield a fused chain of 64 operations; on NumPy, which fuses nothing, many
    passes.
    """
    if is_cpu:
        from rlxweb.ir.dtype import DType
        from rlxweb.ir.op import TensorType, registry

        cells = 128 << 10
        tensor_type = TensorType((cells,), DType.F32)
        flops = int(registry.get("gelu").flops((tensor_type,), tensor_type, {}))
    else:
        cells = 1 << 20
        flops = 64 * cells
    size = {"bytes": 8 * cells, "flops": flops}
    build = _elementwise_chain if not is_cpu else lambda g, x: g.gelu(x)
    yield CalibrationProbe("elementwise", size, {"x": (cells,)}, build)


def _elementwise_chain(g: Graph, x: Tensor) -> Tensor:
    for _ in range(32):
        x = x * 0.999 + 0.001
    return x
