"""What a calibration measures of each kind of work: sizes, and graphs that are so much.

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

Size = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Probe:
    """One size that a calibration measures, and the graph that is so much work.

    name    what progress, and the list of what was left out, call it
    shapes  params of the graph by name: a shape of float32, or what is to be drawn
    build   (graph, *params) → what is computed
    turn    0 for the one that tells most, one of each kind: no graph can be priced
            without it, and it is measured before everything else; 3 for one of many
    """

    name: str
    size: Size
    shapes: Mapping[str, tuple[int, ...] | Drawn]
    build: Callable[..., Tensor]
    turn: int = 0


def products(is_cpu: bool) -> Iterator[Probe]:
    """Square matrices."""
    for n in (256, 64, 512) if is_cpu else (256, 64, 512, 1024):
        size, shapes = {"m": n, "k": n, "n": n}, {"a": (n, n), "b": (n, n)}
        turn = 0 if n == 256 else 2
        yield Probe(f"matmul {n}", size, shapes, lambda g, a, b: a @ b, turn)


def whole_products(is_cpu: bool) -> Iterator[Probe]:
    """The same of integers."""
    from rlxweb.ir.dtype import DType
    from rlxweb.ir.sample import Drawn

    for turn, n in ((0, 128),) if is_cpu else ((0, 128), (2, 512)):
        size, one = {"m": n, "k": n, "n": n}, Drawn((n, n), DType.I32)
        shapes = {"a": one, "b": one}
        yield Probe(f"whole_matmul {n}", size, shapes, lambda g, a, b: a @ b, turn)


def readings(is_cpu: bool) -> Iterator[Probe]:
    """A product that is over when its matrix was read once."""
    n = 2048
    size = {"bytes": 4 * (n * n + 2 * n)}
    shapes = {"a": (1, n), "b": (n, n)}
    yield Probe(f"matvec {n}", size, shapes, lambda g, a, b: a @ b)


def turnings(is_cpu: bool) -> Iterator[Probe]:
    """Columns read as rows beside rows that are written."""
    n = 1000  # a power of two would be the worst there is
    size = {"bytes": 4 * n * n}
    shapes = {"x": (n, n), "y": (n, n)}
    build = lambda g, x, y: x + g.transpose(y, (1, 0))  # noqa: E731
    yield Probe(f"turned {n}", size, shapes, build)


def transforms(is_cpu: bool) -> Iterator[Probe]:
    """Rows of a power of two."""
    for turn, (n, rows) in enumerate(((2048, 64), (128, 256))):
        size, shapes = {"n": n, "rows": rows}, {"x": (rows, 2 * n)}
        name = f"fft {rows} × {n}"
        yield Probe(name, size, shapes, lambda g, x: g.apply("fft", x), turn)


def prime_transforms(is_cpu: bool) -> Iterator[Probe]:
    """Rows of a prime length."""
    n, rows = 1021, 64
    size, shapes = {"n": n, "rows": rows}, {"x": (rows, 2 * n)}
    name = f"bluestein {rows} × {n}"
    yield Probe(name, size, shapes, lambda g, x: g.apply("fft", x))


def copies(is_cpu: bool) -> Iterator[Probe]:
    """Moving bytes: what caches hold and what they do not."""
    for nbytes, turn in ((2 << 20, 0), (64 << 10, 2), (8 << 20, 2), (64 << 20, 2)):
        size = {"bytes": 2 * nbytes}  # read and written
        shapes = {"x": (nbytes // 4,)}
        yield Probe(f"copy {nbytes:,}", size, shapes, lambda g, x: x * 1.5, turn)


def arithmetic(is_cpu: bool) -> Iterator[Probe]:
    """A fused chain of 64 operations; on NumPy, which fuses nothing, many passes."""
    if is_cpu:
        from rlxweb.ir.dtype import DType
        from rlxweb.ir.op import TensorType, registry

        cells = 128 << 10
        kind = TensorType((cells,), DType.F32)
        flops = int(registry.get("gelu").flops((kind,), kind, {}))
    else:
        cells = 1 << 20
        flops = 64 * cells
    size = {"bytes": 8 * cells, "flops": flops}
    build = _chain if not is_cpu else lambda g, x: g.gelu(x)
    yield Probe("elementwise", size, {"x": (cells,)}, build)


def _chain(g: Graph, x: Tensor) -> Tensor:
    for _ in range(32):
        x = x * 0.999 + 0.001
    return x
