"""Graph of one op that computes a Welch estimate, for every engine but the host."""

from __future__ import annotations

from typing import Any

from rlxweb.core.errors import Unsupported
from rlxweb.core.message_text import Advice
from rlxweb.ir.graph import Graph
from rlxweb.ops.welch.spec import WelchSpec


def welch_graph(
    shape: tuple[int, ...],
    spec: WelchSpec,
    k: int = 0,
    band: tuple[int, int] | None = None,
) -> Graph:
    """Build the graph of rows x [B, T] f32 → power [B, F] (k = 0) or packed peaks [B,
    2k].

    band     bins [first, stop): F is their number, and peaks count from the first

    Errors   Unsupported for what the device ops do not cover: medians, complex rows,
    two-sided spectra, float64.
    """
    reason = spec.host_only_reason
    if reason:
        raise Unsupported(
            "welch on a device other than the CPU",
            reason,
            hint=Advice("use {}", device="cpu"),
        )
    graph = Graph("welch_peaks" if k else "welch")
    x = graph.input("x", shape, "f32")
    window = graph.constant(spec.window_array, "f32")
    attrs: dict[str, Any] = {
        "hop": spec.hop,
        "segments": spec.segments_per_row(shape[1]),
        "detrend": spec.detrend or "none",
        "doubling": True,
        "nfft": spec.nfft,
        "scale": spec.scale,
    }
    if k and band is None:
        out = graph.apply("welch_row_peaks", x, window, **attrs, k=k)
    else:
        out = graph.apply("welch_power", x, window, **attrs)
    if band is not None:
        out = out[:, band[0] : band[1]]
        out = graph.apply("power_peaks", out, k=k) if k else out
    graph.set_outputs([out])
    return graph
