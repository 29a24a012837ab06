"""NaN, infinity, zeros and the largest numbers, and what ops must make of them.

Needs NumPy and nothing else: it runs inside the tab too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import Expr
from rlxweb.ir.op import registry
from tests.agreement import Array, oracle

NAN, INF, MOST = np.nan, np.inf, 3.4028234e38
_TEXT = """nan -nan inf -inf 0 -0 1 -1 .5 -.5 2 3 -3 7 3.4028234e38 -3.4028234e38 3e6
-3e6 16777218 88 -88 100 -104 150 1e10 -1e10 1e20 -1e20 .99999994 1.0000001 1e-30
12345.678 8192.5"""
SPECIAL = np.array(_TEXT.split(), np.float32)
# Relative, and below this a GPU may write 0: what is denormal in a step is flushed.
CLOSE, TINY = 3e-5, 1.2e-38


def same(got: Array, want: Array, peak: float = 0.0) -> Array:
    """Elementwise: near where finite in float32, else the same infinity or NaN."""
    with np.errstate(all="ignore"):
        want32, wide = want.astype(got.dtype), want.astype(np.float64)
        off = np.abs(got.astype(np.float64) - wide)
        near = off <= CLOSE * np.maximum(np.abs(wide), peak) + TINY
    return (got == want32) | (np.isnan(got) & np.isnan(want32)) | near


# These are near 0 at a value that is not: an absolute error beside 1.
PEAK = dict.fromkeys(["sin", "cos", "log", "gelu", "gelu_approx", "silu"], 0.02)


def elementwise() -> list[str]:
    """Every op of floats alone whose kernel is one expression."""
    return sorted(
        op.name
        for op in registry
        if isinstance(op.lower, Expr) and op.name not in ("where", "cast", "psd")
    )


FOLDED: dict[str, Callable[[Any], Any]] = {
    "x * 0": lambda x: x * 0.0,
    "0 * x": lambda x: 0.0 * x,
    "x / 0": lambda x: x / 0.0,
    "x / -0": lambda x: x / -0.0,
    "0 / x": lambda x: 0.0 / x,
    "x - x": lambda x: x - x,
    "x / x": lambda x: x / x,
    "x + inf": lambda x: x + float("inf"),
    "x * nan": lambda x: x * float("nan"),
    "(x + a) - a": lambda x: (x + 3e38) - 3e38,
    "(x - a) + a": lambda x: (x - 1e10) + 1e10,
    "a - (a - x)": lambda x: 1e10 - (1e10 - x),
    "(x * a) / a": lambda x: (x * 4.0) / 4.0,
    "(x / a) * a": lambda x: (x / 1e30) * 1e30,
    "|x| - |x|": lambda x: abs(x) - abs(x),
}


def of_op(name: str, width: int) -> tuple[Graph, dict[str, Array]]:
    """An elementwise op on every special value or every pair; length 4n + width."""
    grid = np.meshgrid(*[SPECIAL] * int(str(registry.get(name).arity)), indexing="ij")
    size = grid[0].size // 4 * 4 + width
    feeds = {f"x{k}": np.resize(axis.reshape(-1), size) for k, axis in enumerate(grid)}
    graph = Graph(name)
    graph.set_outputs([graph.apply(name, *(graph.input(k, size) for k in feeds))])
    return graph, feeds


def of_way(way: str) -> tuple[Graph, dict[str, Array]]:
    """A way of FOLDED on every special value."""
    graph = Graph(way)
    graph.set_outputs([FOLDED[way](graph.input("x", SPECIAL.size))])
    return graph, {"x": SPECIAL}


def missed(graph: Graph, feeds: dict[str, Array], got: Array) -> str:
    """What of a result is wrong, or ""; `graph` is of `of_op` or `of_way`."""
    if graph.name in FOLDED:
        with np.errstate(all="ignore"):
            want = FOLDED[graph.name](SPECIAL)
    else:
        want = oracle(graph, feeds)[0]
    peak = PEAK.get(graph.name, 0.0)
    right = got == want if want.dtype == bool else same(got, want, peak)
    if right.all():
        return ""
    given = [feed[~right][:4].tolist() for feed in feeds.values()]
    shown = got[~right][:4].tolist(), want[~right][:4].tolist()
    return f"{graph.name} of {given}: {shown[0]} instead of {shown[1]}"
