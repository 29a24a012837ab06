"""A Welch estimate as a graph of one op: how any engine but the host computes it."""

from __future__ import annotations

from typing import Any

from rlxweb.advice import Advice
from rlxweb.errors import Unsupported
from rlxweb.host.spec import WelchSpec
from rlxweb.ir.graph import Graph


def welch_graph(shape: tuple[int, ...], spec: WelchSpec, k: int = 0) -> Graph:
    """Rows x [B, T] f32 → power [B, F] (k = 0) or packed peaks [B, 2k].

    Errors   Unsupported for what the device ops do not cover: medians, complex rows,
    two-sided spectra, float64.
    """
    reason = spec.only_on_host
    if reason:
        raise Unsupported(
            "welch on a device", reason, hint=Advice("use {}", device="cpu")
        )
    graph = Graph("welch_peaks" if k else "welch")
    x = graph.input("x", shape, "f32")
    window = graph.constant(spec.window_array, "f32")
    attrs: dict[str, Any] = {
        "hop": spec.hop,
        "segments": spec.segments_of(shape[1]),
        "detrend": spec.detrend or "none",
        "doubling": True,
        "nfft": spec.nfft,
        "scale": spec.scale,
    }
    if k:
        attrs["k"] = k
    op = "welch_row_peaks" if k else "welch_power"
    graph.set_outputs([graph.apply(op, x, window, **attrs)])
    return graph
