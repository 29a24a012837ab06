"""Operations over the segments of rows: NumPy functions, or graphs of one op.

Owns the call, and how rows are brought into the range of their type before it. Who runs
it is `row_calls`' business.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from rlxweb.ir.graph import Graph
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.fft.op import block_to_complex
from rlxweb.ops.welch.cpu import segment_spectra as host
from rlxweb.ops.welch.spec import WelchSpec
from rlxweb.signal.row_operation_runner import Array, Shapes
from rlxweb.signal.row_preparation import RowErrorContext
from rlxweb.signal.row_rescaling import RescaledRows, nan_for, scale_by_powers_of_two

SegmentOperationKind = Literal["power", "spectra", "cross"]

_OP_NAMES: Final = {
    "power": "segment_power",
    "spectra": "segment_spectra",
    "cross": "cross_power",
}


@dataclass(frozen=True, slots=True)
class SegmentOperation:
    """Operation of one op over rows [B, T], or over pairs of rows.

    kind     "power": [B, S, F]; "spectra": complex [B, S, F]; "cross": [B, 4, F], both
             powers and the cross power's two parts, averaged over the segments
    spec     the segments and their weights
    phase_origin  of spectra: the sample of a segment where phases are zero
    """

    kind: SegmentOperationKind
    spec: WelchSpec
    phase_origin: int = 0

    @property
    def input_names(self) -> tuple[str, ...]:
        return ("x", "y") if self.kind == "cross" else ("x",)

    @property
    def host_only_reason(self) -> str:
        return self.spec.host_only_reason

    @property
    def nbytes(self) -> int:
        return len(self.spec.window)

    @property
    def cache_key(self) -> SegmentOperation:
        return self

    def compute_on_host(self, *rows: Array) -> Array:
        x, *others = rows
        if self.kind == "power":
            return host.segment_power(x, self.spec)
        if self.kind == "cross":
            return host.cross_power(x, others[0], self.spec)
        return host.segment_spectra(x, self.spec, self.phase_origin)

    def build_graph(self, shapes: Shapes) -> Graph:
        graph = Graph(_OP_NAMES[self.kind])
        rows = [
            graph.input(name, shape, "f32")
            for name, shape in zip(self.input_names, shapes, strict=True)
        ]
        graph.set_outputs([self.apply_op(graph, *rows)])
        return graph

    def apply_op(self, graph: Graph, *rows: Tensor) -> Tensor:
        """Apply the op to rows of a graph."""
        spec, op = self.spec, _OP_NAMES[self.kind]
        attrs: dict[str, Any] = {
            "hop": spec.hop,
            "segments": spec.segments_per_row(rows[0].shape[1]),
            "detrend": spec.detrend or "none",
            "doubling": self.kind != "spectra",
            "nfft": spec.nfft,
            "scale": spec.scale,
        }
        if self.phase_origin:
            attrs["shift"] = self.phase_origin
        window = graph.constant(spec.window_array, "f32")
        return graph.apply(op, *rows, window, **attrs)

    def convert_graph_output(self, out: Array) -> Array:
        return block_to_complex(np, out) if self.kind == "spectra" else out

    def row_width(self, shapes: Shapes) -> int:
        n_samples = shapes[0][1]
        segments = (
            4 if self.kind == "cross" else 2 * self.spec.segments_per_row(n_samples)
        )
        return max(n_samples, segments * self.spec.n_freqs)


def restore_output(
    out: Array,
    operation: SegmentOperation,
    rows: Sequence[RescaledRows],
    caller: RowErrorContext,
) -> Array:
    """Return the rows' own output, from that of rows that were divided. May be `out`,
    modified in place.

    A segment with a sample that is not finite is NaN, or the average it belongs to.
    Errors   UsageError where its type cannot hold it.
    """
    if any(row_set.exponents is not None for row_set in rows):
        exponents = [
            np.zeros(len(out), np.int64) if r.exponents is None else r.exponents
            for r in rows
        ]
        if operation.kind == "cross":
            exponent_sum = exponents[0] + exponents[1]
            output_exponents = np.stack(
                [2 * exponents[0], 2 * exponents[1], exponent_sum, exponent_sum], axis=1
            )[..., None]
        else:
            output_exponents = (
                (1 if operation.kind == "spectra" else 2) * exponents[0]
            )[:, None, None]
        out = scale_by_powers_of_two(out, output_exponents, caller)
    for row_set in rows:
        invalid_segments = row_set.invalid_segments(operation.spec)
        if invalid_segments is not None:
            out[
                invalid_segments.any(axis=1)
                if operation.kind == "cross"
                else invalid_segments
            ] = nan_for(out)
    return out
