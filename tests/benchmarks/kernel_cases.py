"""Cases of `./dev bench kernels`: graphs with their bytes and operations, and the same
work written by hand for PyTorch and CuPy.

A case needs no device: `build` makes its graph, `feeds` its arrays, a peer is a
function of the library's module and arrays of it. `few` is the same work for the first
or the last rows alone, by which NumPy tells whether an answer is right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph

PeerFunction = Callable[..., Any]
"""(module, *arrays) → an array; transfers nothing to the host."""
Arrays = dict[str, npt.NDArray[Any]]
GIB = 1 << 30
N_CHECKED_ROWS = 4
"""Number of rows that are checked at either end of an answer."""
_N_RANDOM_VALUES = 1_000_003
"""Number of random values; longer inputs repeat them, never the same in a row."""


@dataclass(frozen=True, slots=True)
class KernelCase:
    """One piece of work.

    few      the graph of the first rows of the answer, or (True) of the last ones; its
             inputs are the ends of the inputs
    nbytes   what must be moved: every input and output once
    flops    of float32 arithmetic
    peers    by library: the same work, written by hand
    extra_tolerance  what an element may be off by besides the op's tolerance: of long
                     sums that nearly cancel
    """

    name: str
    shape: str
    build: Callable[[], Graph]
    few: Callable[[bool], Graph]
    nbytes: float
    flops: float
    peers: Mapping[str, PeerFunction] = field(default_factory=dict)
    extra_tolerance: float = 0.0

    @property
    def label(self) -> str:
        return f"{self.name} {self.shape}"

    def make_feeds(self, graph: Graph) -> Arrays:
        """Return normal random numbers for every input, the same each time."""
        rng = np.random.default_rng(0)
        return {
            name: random_floats(rng, node.type.shape).astype(
                node.type.dtype.numpy, copy=False
            )
            for name, node in graph.named("input").items()
        }

    def slice_feeds(self, feeds: Arrays, graph: Graph, last: bool) -> Arrays:
        """Return the part of each input that the graph of few rows takes."""
        return {
            name: feeds[name][
                tuple(slice(-n, None) if last else slice(n) for n in node.type.shape)
            ]
            for name, node in graph.named("input").items()
        }


def random_floats(rng: np.random.Generator, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Return normal random float32 numbers; long arrays repeat some."""
    count = math.prod(shape)
    values = rng.standard_normal(min(count, _N_RANDOM_VALUES), np.float32)
    return np.resize(values, shape)


def _build_graph(make: Callable[..., Any], *sizes: Any) -> Graph:
    g = Graph("bench")
    g.set_outputs([make(g, *sizes)])
    return g


def _graph_builders(
    make: Callable[..., Any], full_size: Any, few_rows: Any
) -> dict[str, Any]:
    """Return `build` and `few` of a case whose rows are all alike."""
    return {
        "build": partial(_build_graph, make, full_size),
        "few": lambda last: _build_graph(make, min(full_size, few_rows)),
    }


def _upload_once(array: npt.NDArray[Any]) -> PeerFunction:
    """Return (module, x) → the array on the device of x; it is uploaded once."""
    uploaded: dict[str, Any] = {}

    def upload(lib: Any, x: Any) -> Any:
        name = lib.__name__
        if name not in uploaded:
            is_torch = name == "torch"
            uploaded[name] = (
                lib.as_tensor(array, device=x.device)
                if is_torch
                else lib.asarray(array)
            )
        return uploaded[name]

    return upload


def copy_case(count: int) -> KernelCase:
    """One pass over `count` numbers: the memory bandwidth."""
    return KernelCase(
        "copy",
        f"{count * 4 / (1 << 20):.3g} MiB",
        nbytes=8.0 * count,
        flops=float(count),
        peers={"torch": lambda t, x: -x, "cupy": lambda c, x: -x},
        **_graph_builders(lambda g, n: -g.input("x", (n,)), count, 4096),
    )


def gelu_chain_case(count: int) -> KernelCase:
    """gelu(gelu(gelu(x) + 1) * 0.5): one pass where it is fused."""

    def make(g: Graph, n: int) -> Any:
        return g.gelu(g.gelu(g.gelu(g.input("x", (n,))) + 1.0) * 0.5)

    def torch(t: Any, x: Any) -> Any:
        gelu = t.nn.functional.gelu
        return gelu(gelu(gelu(x) + 1.0) * 0.5)

    return KernelCase(
        "gelu chain",
        f"{count}",
        nbytes=8.0 * count,
        flops=30.0 * count,
        peers={"torch": torch},
        **_graph_builders(make, count, 4096),
    )


def matmul_case(n: int, dtype: DType = DType.F32) -> KernelCase:
    """A square matrix product."""
    size = 4 if dtype is DType.F32 else 2
    product: PeerFunction = lambda lib, a, b: a @ b  # noqa: E731
    return KernelCase(
        f"matmul {dtype}",
        f"{n}",
        nbytes=3.0 * size * n * n,
        flops=2.0 * n**3,
        peers={"torch": product, "cupy": product},
        **_graph_builders(
            lambda g, rows: (
                g.input("a", (rows, n), dtype) @ g.input("b", (n, n), dtype)
            ),
            n,
            N_CHECKED_ROWS,
        ),
    )


def softmax_case(rows: int, width: int) -> KernelCase:
    """Softmax along the last axis."""
    return KernelCase(
        "softmax",
        f"{rows} × {width}",
        nbytes=8.0 * rows * width,
        flops=5.0 * rows * width,
        peers={"torch": lambda t, x: t.softmax(x, -1)},
        **_graph_builders(
            lambda g, n: g.softmax(g.input("x", (n, width))), rows, N_CHECKED_ROWS
        ),
    )


def layer_norm_case(rows: int, width: int) -> KernelCase:
    """Layer normalisation with weight and bias."""

    def make(g: Graph, n: int) -> Any:
        w, b = g.input("w", (width,)), g.input("b", (width,))
        return g.layer_norm(g.input("x", (n, width)), w, b)

    return KernelCase(
        "layer norm",
        f"{rows} × {width}",
        nbytes=8.0 * rows * width,
        flops=8.0 * rows * width,
        peers={
            "torch": lambda t, w, b, x: t.nn.functional.layer_norm(x, (width,), w, b),
        },
        **_graph_builders(make, rows, N_CHECKED_ROWS),
    )


def attention_case(batch: int, heads: int, length: int, width: int) -> KernelCase:
    """Softmax(QKᵀ)V of all heads, no mask."""
    shape = (batch, heads, length, width)

    def make(g: Graph, n: int) -> Any:
        q, k, v = (g.input(name, (n, *shape[1:])) for name in "qkv")
        return g.attention(q, k, v, num_heads=heads, head_dim=width)

    def torch(t: Any, q: Any, k: Any, v: Any) -> Any:
        return t.nn.functional.scaled_dot_product_attention(q, k, v)

    return KernelCase(
        "attention",
        ", ".join(map(str, shape)),
        nbytes=16.0 * math.prod(shape),
        flops=4.0 * math.prod(shape) * length,
        peers={"torch": torch},
        **_graph_builders(make, batch, 1),
    )


def topk_case(rows: int, n: int, k: int = 16) -> KernelCase:
    """Indices of the k largest of each row."""

    def cupy(c: Any, x: Any) -> Any:
        return c.argsort(-x, axis=1)[:, :k]

    return KernelCase(
        "top-k",
        f"{k} of {rows} × {n}",
        nbytes=4.0 * rows * (n + k),
        flops=float(rows * n),
        peers={"torch": lambda t, x: t.topk(x, k)[1], "cupy": cupy},
        **_graph_builders(
            lambda g, m: g.topk(g.input("x", (m, n)), k), rows, N_CHECKED_ROWS
        ),
    )


def argsort_case(rows: int, n: int) -> KernelCase:
    """Indices that sort each row."""
    return KernelCase(
        "argsort",
        f"{rows} × {n}",
        nbytes=8.0 * rows * n,
        flops=float(rows * n * n.bit_length()),
        peers={
            "torch": lambda t, x: t.argsort(x, dim=1, stable=True),
            "cupy": lambda c, x: c.argsort(x, axis=1),
        },
        **_graph_builders(
            lambda g, m: g.argsort(g.input("x", (m, n)), 1), rows, N_CHECKED_ROWS
        ),
    )


def row_sums_case(rows: int, n: int) -> KernelCase:
    """The sum of each row; with one row, the sum of all."""
    peer: PeerFunction = lambda lib, x: x.sum(1)  # noqa: E731
    return KernelCase(
        "row sums" if rows > 1 else "sum of all",
        f"{rows} × {n}",
        nbytes=4.0 * rows * n,
        flops=float(rows * n),
        peers={"torch": peer, "cupy": peer},
        extra_tolerance=1e-5 * math.sqrt(n),
        **_graph_builders(
            lambda g, m: g.sum(g.input("x", (m, n)), 1), rows, N_CHECKED_ROWS
        ),
    )


def transpose_case(n: int) -> KernelCase:
    """A square matrix, its columns as rows."""
    return KernelCase(
        "transpose",
        f"{n} × {n}",
        nbytes=8.0 * n * n,
        flops=0.0,
        **_graph_builders(
            lambda g, m: g.transpose(g.input("x", (n, m)), (1, 0)), n, N_CHECKED_ROWS
        ),
        peers={
            "torch": lambda t, x: x.t().contiguous(),
            "cupy": lambda c, x: c.ascontiguousarray(x.T),
        },
    )


def gather_case(rows: int, n: int) -> KernelCase:
    """A gather of as many rows of a table as it has, at random."""
    index = np.random.default_rng(1).integers(0, rows, rows).astype(np.int32)

    device_index = _upload_once(index.astype(np.int64))
    peer: PeerFunction = lambda lib, x: x[device_index(lib, x)]  # noqa: E731

    def make(g: Graph, indices: npt.NDArray[np.int32]) -> Any:
        return g.gather(g.input("x", (rows, n)), g.constant(indices))

    return KernelCase(
        "gather",
        f"{rows} rows of {n}",
        partial(_build_graph, make, index),
        lambda last: _build_graph(
            make, index[-N_CHECKED_ROWS:] if last else index[:N_CHECKED_ROWS]
        ),
        nbytes=8.0 * rows * n + 4.0 * rows,
        flops=0.0,
        peers={"torch": peer, "cupy": peer},
    )


def fft_case(rows: int, n: int) -> KernelCase:
    """Complex rows in blocks of real and imaginary parts; peers have complex64."""

    def peer(lib: Any, x: Any) -> Any:
        # Half the numbers are the imaginary parts: the same bytes, read as pairs.
        pairs = x.reshape(rows, n, 2)
        z = lib.view_as_complex(pairs) if hasattr(lib, "view_as_complex") else None
        return lib.fft.fft(x.view(lib.complex64) if z is None else z)

    return KernelCase(
        "fft",
        f"{rows} × {n}",
        nbytes=16.0 * rows * n,
        flops=5.0 * rows * n * math.log2(n),
        peers={"torch": peer, "cupy": peer},
        **_graph_builders(
            lambda g, m: g.fft(g.input("x", (m, 2 * n))), rows, N_CHECKED_ROWS
        ),
    )


def welch_peaks_case(rows: int, n: int, segments: int, k: int = 16) -> KernelCase:
    """Half-overlapped Hann segments, mean power, the k strongest bins."""
    hop = n // 2
    width = hop * (segments + 1)
    window = np.hanning(n).astype(np.float32)
    device_window = _upload_once(window)

    def make(g: Graph, m: int) -> Any:
        x = g.input("x", (m, width))
        w = g.constant(window)
        return g.apply(
            "welch_row_peaks", x, w, hop=hop, segments=segments, k=k, scale=1.0
        )

    def torch(t: Any, x: Any) -> Any:
        z = t.fft.rfft(x.unfold(1, n, hop) * device_window(t, x))
        return t.topk((z.real**2 + z.imag**2).mean(1), k)[0]

    def cupy(c: Any, x: Any) -> Any:
        frames = c.lib.stride_tricks.sliding_window_view(x, n, axis=1)[:, ::hop]
        z = c.fft.rfft(frames * device_window(c, x))
        p = (z.real**2 + z.imag**2).mean(1)
        return c.sort(c.partition(p, p.shape[1] - k)[:, -k:])[:, ::-1]

    transforms = rows * segments * 2.5 * n * math.log2(n)
    return KernelCase(
        "Welch peaks",
        f"{rows} × {n}, {segments} segments",
        nbytes=4.0 * rows * width + 8.0 * rows * k,
        flops=transforms + rows * segments * 4.0 * n,
        peers={"torch": torch, "cupy": cupy},
        **_graph_builders(make, rows, N_CHECKED_ROWS),
    )


def _fitting_rows(n: int, per_row: float, max_rows: int, nbytes: float) -> int:
    """Return the largest power of two of rows that fits."""
    return 1 << max(0, int(math.log2(min(max_rows, nbytes / (per_row * n)))))


def make_cases(nbytes: float = GIB, max_rows: int = 65_536) -> Iterator[KernelCase]:
    """Yield all cases, the most informative first; no input is larger than `nbytes`."""
    yield copy_case(int(nbytes) // 8)
    for n in (256, 1024, 4096):
        for segments in (2, 8):
            per_row = 2.0 * (segments + 1)
            yield welch_peaks_case(
                _fitting_rows(n, per_row, max_rows, nbytes), n, segments
            )
    for n in (256, 1024, 4096):
        yield fft_case(_fitting_rows(n, 16, max_rows, nbytes), n)
    size_ratio = nbytes / GIB
    sides = [n for n in (1024, 4096, 512, 2048, 8192) if 12 * n * n <= nbytes]
    yield from (matmul_case(n) for n in sides[:2] or [128])
    yield from (matmul_case(n, DType.F16) for n in sides[:2] or [128])
    width = min(1024, int(1024 * size_ratio) or 64)
    yield softmax_case(width, width)
    yield softmax_case(_fitting_rows(128, 8, max_rows, nbytes), 128)
    yield layer_norm_case(_fitting_rows(128, 8, max_rows, nbytes), 128)
    yield attention_case(*((8, 12, 512, 64) if size_ratio >= 1 else (1, 2, 64, 32)))
    yield topk_case(_fitting_rows(128, 8, max_rows, nbytes), 128)
    yield topk_case(1, int(min(1 << 20, nbytes / 8)))
    yield argsort_case(_fitting_rows(1024, 8, max_rows, nbytes), 1024)
    yield row_sums_case(_fitting_rows(128, 8, max_rows, nbytes), 128)
    yield row_sums_case(1, int(min(1 << 26, nbytes / 8)))
    yield transpose_case(_fitting_rows(1, 1, 4096, math.sqrt(nbytes / 8)))
    yield gather_case(_fitting_rows(128, 16, max_rows, nbytes), 128)
    yield gelu_chain_case(min(1 << 26, int(nbytes) // 16))
    for n in (64, 512, 2048, 8192, 16_384):
        yield fft_case(_fitting_rows(n, 16, max_rows, nbytes), n)
    for n in (512, 2048, 8192, 16_384):
        yield welch_peaks_case(_fitting_rows(n, 6.0, max_rows, nbytes), n, 2)
    yield from (matmul_case(n) for n in sides[2:])
    yield from (matmul_case(n, DType.F16) for n in sides[2:])
