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

Peer = Callable[..., Any]
"""(module, *arrays) → an array; asks for nothing of the host."""
Arrays = dict[str, npt.NDArray[Any]]
GIB = 1 << 30
FEW = 4
"""Rows that are judged at either end of an answer."""
_DRAWN = 1_000_003
"""Numbers that are drawn; longer inputs repeat them, never the same in a row."""


@dataclass(frozen=True, slots=True)
class Case:
    """One piece of work.

    few      the graph of the first rows of the answer, or (True) of the last ones; its
             inputs are the ends of the inputs
    nbytes   what must be moved: every input and output once
    flops    of float32 arithmetic
    peers    by library: the same work, written by hand
    slack    what an element may be off by besides the op's tolerance: of long sums that
             nearly cancel
    """

    name: str
    shape: str
    build: Callable[[], Graph]
    few: Callable[[bool], Graph]
    nbytes: float
    flops: float
    peers: Mapping[str, Peer] = field(default_factory=dict)
    slack: float = 0.0

    @property
    def label(self) -> str:
        return f"{self.name} {self.shape}"

    def feeds(self, graph: Graph) -> Arrays:
        """Normal random numbers for every input, the same each time."""
        rng = np.random.default_rng(0)
        return {
            name: drawn(rng, node.type.shape).astype(node.type.dtype.numpy, copy=False)
            for name, node in graph.named("input").items()
        }

    def ends(self, feeds: Arrays, graph: Graph, last: bool) -> Arrays:
        """The part of each input that the graph of few rows takes."""
        return {
            name: feeds[name][
                tuple(slice(-n, None) if last else slice(n) for n in node.type.shape)
            ]
            for name, node in graph.named("input").items()
        }


def drawn(rng: np.random.Generator, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Normal random float32 numbers; long arrays repeat some."""
    count = math.prod(shape)
    drawn = rng.standard_normal(min(count, _DRAWN), np.float32)
    return np.resize(drawn, shape)


def _graph(make: Callable[..., Any], *sizes: Any) -> Graph:
    g = Graph("bench")
    g.set_outputs([make(g, *sizes)])
    return g


def _graphs(make: Callable[..., Any], all_: Any, few: Any) -> dict[str, Any]:
    """`build` and `few` of a case whose rows are all alike."""
    return {
        "build": partial(_graph, make, all_),
        "few": lambda last: _graph(make, min(all_, few)),
    }


def _once(array: npt.NDArray[Any]) -> Peer:
    """(module, x) → the array where x lies; brought there once."""
    there: dict[str, Any] = {}

    def on(lib: Any, x: Any) -> Any:
        name = lib.__name__
        if name not in there:
            is_torch = name == "torch"
            there[name] = (
                lib.as_tensor(array, device=x.device)
                if is_torch
                else lib.asarray(array)
            )
        return there[name]

    return on


def copy(count: int) -> Case:
    """One pass over `count` numbers: what the memory can do."""
    return Case(
        "copy",
        f"{count * 4 / (1 << 20):.3g} MiB",
        nbytes=8.0 * count,
        flops=float(count),
        peers={"torch": lambda t, x: -x, "cupy": lambda c, x: -x},
        **_graphs(lambda g, n: -g.input("x", (n,)), count, 4096),
    )


def gelu_chain(count: int) -> Case:
    """gelu(gelu(gelu(x) + 1) * 0.5): one pass where it is fused."""

    def make(g: Graph, n: int) -> Any:
        return g.gelu(g.gelu(g.gelu(g.input("x", (n,))) + 1.0) * 0.5)

    def torch(t: Any, x: Any) -> Any:
        gelu = t.nn.functional.gelu
        return gelu(gelu(gelu(x) + 1.0) * 0.5)

    return Case(
        "gelu chain",
        f"{count}",
        nbytes=8.0 * count,
        flops=30.0 * count,
        peers={"torch": torch},
        **_graphs(make, count, 4096),
    )


def matmul(n: int, dtype: DType = DType.F32) -> Case:
    """A square product."""
    size = 4 if dtype is DType.F32 else 2
    product: Peer = lambda lib, a, b: a @ b  # noqa: E731
    return Case(
        f"matmul {dtype}",
        f"{n}",
        nbytes=3.0 * size * n * n,
        flops=2.0 * n**3,
        peers={"torch": product, "cupy": product},
        **_graphs(
            lambda g, rows: (
                g.input("a", (rows, n), dtype) @ g.input("b", (n, n), dtype)
            ),
            n,
            FEW,
        ),
    )


def softmax(rows: int, width: int) -> Case:
    """Along the last axis."""
    return Case(
        "softmax",
        f"{rows} × {width}",
        nbytes=8.0 * rows * width,
        flops=5.0 * rows * width,
        peers={"torch": lambda t, x: t.softmax(x, -1)},
        **_graphs(lambda g, n: g.softmax(g.input("x", (n, width))), rows, FEW),
    )


def layer_norm(rows: int, width: int) -> Case:
    """Layer normalisation with weight and bias."""

    def make(g: Graph, n: int) -> Any:
        w, b = g.input("w", (width,)), g.input("b", (width,))
        return g.layer_norm(g.input("x", (n, width)), w, b)

    return Case(
        "layer norm",
        f"{rows} × {width}",
        nbytes=8.0 * rows * width,
        flops=8.0 * rows * width,
        peers={
            "torch": lambda t, w, b, x: t.nn.functional.layer_norm(x, (width,), w, b),
        },
        **_graphs(make, rows, FEW),
    )


def attention(batch: int, heads: int, length: int, width: int) -> Case:
    """Softmax(QKᵀ)V of all heads, no mask."""
    shape = (batch, heads, length, width)

    def make(g: Graph, n: int) -> Any:
        q, k, v = (g.input(name, (n, *shape[1:])) for name in "qkv")
        return g.attention(q, k, v, num_heads=heads, head_dim=width)

    def torch(t: Any, q: Any, k: Any, v: Any) -> Any:
        return t.nn.functional.scaled_dot_product_attention(q, k, v)

    return Case(
        "attention",
        ", ".join(map(str, shape)),
        nbytes=16.0 * math.prod(shape),
        flops=4.0 * math.prod(shape) * length,
        peers={"torch": torch},
        **_graphs(make, batch, 1),
    )


def topk(rows: int, n: int, k: int = 16) -> Case:
    """Indices of the k largest of each row."""

    def cupy(c: Any, x: Any) -> Any:
        return c.argsort(-x, axis=1)[:, :k]

    return Case(
        "top-k",
        f"{k} of {rows} × {n}",
        nbytes=4.0 * rows * (n + k),
        flops=float(rows * n),
        peers={"torch": lambda t, x: t.topk(x, k)[1], "cupy": cupy},
        **_graphs(lambda g, m: g.topk(g.input("x", (m, n)), k), rows, FEW),
    )


def sums(rows: int, n: int) -> Case:
    """The sum of each row; of one row, that of all."""
    peer: Peer = lambda lib, x: x.sum(1)  # noqa: E731
    return Case(
        "row sums" if rows > 1 else "sum of all",
        f"{rows} × {n}",
        nbytes=4.0 * rows * n,
        flops=float(rows * n),
        peers={"torch": peer, "cupy": peer},
        slack=1e-5 * math.sqrt(n),
        **_graphs(lambda g, m: g.sum(g.input("x", (m, n)), 1), rows, FEW),
    )


def transpose(n: int) -> Case:
    """A square matrix, its columns as rows."""
    return Case(
        "transpose",
        f"{n} × {n}",
        nbytes=8.0 * n * n,
        flops=0.0,
        **_graphs(lambda g, m: g.transpose(g.input("x", (n, m)), (1, 0)), n, FEW),
        peers={
            "torch": lambda t, x: x.t().contiguous(),
            "cupy": lambda c, x: c.ascontiguousarray(x.T),
        },
    )


def gather(rows: int, n: int) -> Case:
    """A gather of as many rows of a table as it has, at random."""
    index = np.random.default_rng(1).integers(0, rows, rows).astype(np.int32)

    there = _once(index.astype(np.int64))
    peer: Peer = lambda lib, x: x[there(lib, x)]  # noqa: E731

    def make(g: Graph, wanted: npt.NDArray[np.int32]) -> Any:
        return g.gather(g.input("x", (rows, n)), g.constant(wanted))

    return Case(
        "gather",
        f"{rows} rows of {n}",
        partial(_graph, make, index),
        lambda last: _graph(make, index[-FEW:] if last else index[:FEW]),
        nbytes=8.0 * rows * n + 4.0 * rows,
        flops=0.0,
        peers={"torch": peer, "cupy": peer},
    )


def fft(rows: int, n: int) -> Case:
    """Complex rows in blocks of real and imaginary parts; peers have complex64."""

    def peer(lib: Any, x: Any) -> Any:
        # Half the numbers are the imaginary parts: the same bytes, read as pairs.
        pairs = x.reshape(rows, n, 2)
        z = lib.view_as_complex(pairs) if hasattr(lib, "view_as_complex") else None
        return lib.fft.fft(x.view(lib.complex64) if z is None else z)

    return Case(
        "fft",
        f"{rows} × {n}",
        nbytes=16.0 * rows * n,
        flops=5.0 * rows * n * math.log2(n),
        peers={"torch": peer, "cupy": peer},
        **_graphs(lambda g, m: g.fft(g.input("x", (m, 2 * n))), rows, FEW),
    )


def welch_peaks(rows: int, n: int, segments: int, k: int = 16) -> Case:
    """Half-overlapped Hann segments, mean power, the k strongest bins."""
    hop = n // 2
    width = hop * (segments + 1)
    window = np.hanning(n).astype(np.float32)
    there = _once(window)

    def make(g: Graph, m: int) -> Any:
        x = g.input("x", (m, width))
        w = g.constant(window)
        return g.apply(
            "welch_row_peaks", x, w, hop=hop, segments=segments, k=k, scale=1.0
        )

    def torch(t: Any, x: Any) -> Any:
        z = t.fft.rfft(x.unfold(1, n, hop) * there(t, x))
        return t.topk((z.real**2 + z.imag**2).mean(1), k)[0]

    def cupy(c: Any, x: Any) -> Any:
        cut = c.lib.stride_tricks.sliding_window_view(x, n, axis=1)[:, ::hop]
        z = c.fft.rfft(cut * there(c, x))
        p = (z.real**2 + z.imag**2).mean(1)
        return c.sort(c.partition(p, p.shape[1] - k)[:, -k:])[:, ::-1]

    transforms = rows * segments * 2.5 * n * math.log2(n)
    return Case(
        "Welch peaks",
        f"{rows} × {n}, {segments} segments",
        nbytes=4.0 * rows * width + 8.0 * rows * k,
        flops=transforms + rows * segments * 4.0 * n,
        peers={"torch": torch, "cupy": cupy},
        **_graphs(make, rows, FEW),
    )


def _rows(n: int, per_row: float, most: int, nbytes: float) -> int:
    """The most rows that fit, a power of two."""
    return 1 << max(0, int(math.log2(min(most, nbytes / (per_row * n)))))


def cases(nbytes: float = GIB, most_rows: int = 65_536) -> Iterator[Case]:
    """All of them, what says most first; no input is larger than `nbytes`."""
    yield copy(int(nbytes) // 8)
    for n in (256, 1024, 4096):
        for segments in (2, 8):
            per_row = 2.0 * (segments + 1)
            yield welch_peaks(_rows(n, per_row, most_rows, nbytes), n, segments)
    for n in (256, 1024, 4096):
        yield fft(_rows(n, 16, most_rows, nbytes), n)
    large = nbytes / GIB
    sides = [n for n in (1024, 4096, 512, 2048, 8192) if 12 * n * n <= nbytes]
    yield from (matmul(n) for n in sides[:2] or [128])
    yield from (matmul(n, DType.F16) for n in sides[:2] or [128])
    width = min(1024, int(1024 * large) or 64)
    yield softmax(width, width)
    yield softmax(_rows(128, 8, most_rows, nbytes), 128)
    yield layer_norm(_rows(128, 8, most_rows, nbytes), 128)
    yield attention(*((8, 12, 512, 64) if large >= 1 else (1, 2, 64, 32)))
    yield topk(_rows(128, 8, most_rows, nbytes), 128)
    yield topk(1, int(min(1 << 20, nbytes / 8)))
    yield sums(_rows(128, 8, most_rows, nbytes), 128)
    yield sums(1, int(min(1 << 26, nbytes / 8)))
    yield transpose(_rows(1, 1, 4096, math.sqrt(nbytes / 8)))
    yield gather(_rows(128, 16, most_rows, nbytes), 128)
    yield gelu_chain(min(1 << 26, int(nbytes) // 16))
    for n in (64, 512, 2048, 8192, 16_384):
        yield fft(_rows(n, 16, most_rows, nbytes), n)
    for n in (512, 2048, 8192, 16_384):
        yield welch_peaks(_rows(n, 6.0, most_rows, nbytes), n, 2)
    yield from (matmul(n) for n in sides[2:])
    yield from (matmul(n, DType.F16) for n in sides[2:])
