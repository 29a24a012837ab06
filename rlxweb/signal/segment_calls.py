"""What is computed of the segments of rows: a call for NumPy, or a graph of one op.

Owns the call, and how rows are brought into the range of their type before it. Who runs
it is `row_calls`' business.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from rlxweb.host import segment_spectra as host
from rlxweb.host.spec import WelchSpec
from rlxweb.ir.graph import Graph
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.spectral import complex_of
from rlxweb.signal.in_range import Rows, nan_of, times_powers
from rlxweb.signal.row_calls import Array, Shapes
from rlxweb.signal.scaled import Caller

Kind = Literal["power", "spectra", "cross"]

_OPS: Final = {
    "power": "segment_power",
    "spectra": "segment_spectra",
    "cross": "cross_power",
}


@dataclass(frozen=True, slots=True)
class SegmentCall:
    """One op over rows [B, T], or over pairs of them.

    kind     "power": [B, S, F]; "spectra": complex [B, S, F]; "cross": [B, 4, F], both
             powers and the cross power's two parts, averaged over the segments
    spec     the segments and their weights
    shift    of spectra: the sample of a segment where phases are zero
    """

    kind: Kind
    spec: WelchSpec
    shift: int = 0

    @property
    def inputs(self) -> tuple[str, ...]:
        return ("x", "y") if self.kind == "cross" else ("x",)

    @property
    def only_on_host(self) -> str:
        return self.spec.only_on_host

    @property
    def nbytes(self) -> int:
        return len(self.spec.window)

    @property
    def key(self) -> SegmentCall:
        return self

    def on_host(self, *rows: Array) -> Array:
        x, *others = rows
        if self.kind == "power":
            return host.segment_power(x, self.spec)
        if self.kind == "cross":
            return host.cross_power(x, others[0], self.spec)
        return host.segment_spectra(x, self.spec, self.shift)

    def graph(self, shapes: Shapes) -> Graph:
        graph = Graph(_OPS[self.kind])
        rows = [
            graph.input(name, shape, "f32")
            for name, shape in zip(self.inputs, shapes, strict=True)
        ]
        graph.set_outputs([self.applied(graph, *rows)])
        return graph

    def applied(self, graph: Graph, *rows: Tensor) -> Tensor:
        """The op over rows of a graph."""
        spec, op = self.spec, _OPS[self.kind]
        attrs: dict[str, Any] = {
            "hop": spec.hop,
            "segments": spec.segments_of(rows[0].shape[1]),
            "detrend": spec.detrend or "none",
            "doubling": self.kind != "spectra",
            "nfft": spec.nfft,
            "scale": spec.scale,
        }
        if self.shift:
            attrs["shift"] = self.shift
        window = graph.constant(spec.window_array, "f32")
        return graph.apply(op, *rows, window, **attrs)

    def of_device(self, out: Array) -> Array:
        return complex_of(np, out) if self.kind == "spectra" else out

    def width(self, shapes: Shapes) -> int:
        n_samples = shapes[0][1]
        segments = 4 if self.kind == "cross" else 2 * self.spec.segments_of(n_samples)
        return max(n_samples, segments * self.spec.n_freqs)


def restored(
    out: Array, call: SegmentCall, rows: Sequence[Rows], caller: Caller
) -> Array:
    """The rows' own answer, from that of rows that were divided. May be `out`, changed.

    A segment with a sample that is not finite is NaN, or the average it belongs to.
    Errors   UsageError where its type cannot hold it.
    """
    if any(one.up is not None for one in rows):
        ups = [np.zeros(len(out), np.int64) if r.up is None else r.up for r in rows]
        if call.kind == "cross":
            both = ups[0] + ups[1]
            by = np.stack([2 * ups[0], 2 * ups[1], both, both], axis=1)[..., None]
        else:
            by = ((1 if call.kind == "spectra" else 2) * ups[0])[:, None, None]
        out = times_powers(out, by, caller)
    for one in rows:
        lost = one.lost_segments(call.spec)
        if lost is not None:
            out[lost.any(axis=1) if call.kind == "cross" else lost] = nan_of(out)
    return out
