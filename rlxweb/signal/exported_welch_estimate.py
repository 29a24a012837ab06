"""Exported Welch estimate: the graph that a web page runs, and the page's steps around
it.

The graph is the one that a device runs; around it a page does what the host does here:
rows made ready before it, peaks told from rounding after it. The record `welch` of the
plan says how; numbers are decimal and exact, all arithmetic is in doubles.

    output     "peaks", "power" or "both"
    rows, samples, fs, nperseg, hop, segments, nfft, bins, k   the estimate; k 0: none
    input      the plan's input: rows x samples of float32
    peaks      its output of k pairs (bin, power) a row, strongest first; or null
    power      its output of the power of every bin; or null
    used       so many samples of a row are read
    least, most, shift, floor_highest   numbers, as below
    floor      [from, nbytes] in the file of the weights: a float64 for every bin

Before a run, of every row:
    any sample not finite          → refused, with row and sample
    s ← Σ x[i]², big ← max |x[i]|  over i < used
    up ← 0
    if big > 0 and not least ≤ s ≤ most:
        up ← e of big = m · 2^e, ½ ≤ m < 1
        x ← x · 2^-up              (in float32 it changes no digit), s anew
    energy ← s / used;  by ← 2 · up + shift
After it, of every row's powers p (of the pairs, or of all bins):
    if by ≠ 0:
        P ← p · 2^by
        max P above float32's range, or max p > energy · floor_highest and
        max P below its smallest normal number → refused: float32 cannot hold them
        p ← float32(P);  energy ← energy · 2^by
Of the pairs: those with p > energy · floor[bin] are peaks, in their order; the others
come behind them as bin -1, hz NaN, power NaN; count is the number of peaks.

A run gives, for "peaks": hz (rows, k) = (bin · fs) / nfft, power (rows, k), bins
(rows, k), count (rows); for "power": hz (bins), power (rows, bins); for "both": all of
"peaks", and freqs (bins), spectrum (rows, bins).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from rlxweb.export.binary_array_file import BinaryFile
from rlxweb.ir.graph import Graph
from rlxweb.ops.welch.graph import welch_graph
from rlxweb.ops.welch.spec import WelchSpec
from rlxweb.signal.rounding_floor import rounding_shares
from rlxweb.signal.row_preparation import EnergyLimits

Output = Literal["peaks", "power", "both"]


@dataclass(frozen=True, slots=True)
class ExportedWelchEstimate:
    """Welch estimate of a fixed number of rows and samples, with the outputs of the
    page.

    range_check  the estimate that the graph computes, and which rows it takes as they
                 are
    """

    spec: WelchSpec
    range_check: EnergyLimits
    rows: int
    samples: int
    fs: float
    k: int
    output: Output

    def graph(self, rows: int) -> Graph:
        """Build the graph for a batch of rows; its outputs are "pairs", "spectrum" or
        both.
        """
        shape, spec = (rows, self.samples), self.range_check.spec
        graph = welch_graph(shape, spec, self.k if self.output == "peaks" else 0)
        if self.output == "both":
            power = graph.tensor(graph.outputs[0])
            graph.set_outputs([graph.apply("power_peaks", power, k=self.k), power])
        return graph

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the graph's outputs."""
        both = ("pairs", "spectrum")
        return {"peaks": both[:1], "power": both[1:], "both": both}[self.output]

    def plan_entry(self, weights: BinaryFile) -> dict[str, Any]:
        """Return the `welch` entry of the plan; its rounding floor is added to the
        weights.
        """
        spec, range_check = self.spec, self.range_check
        shares = rounding_shares(range_check.spec)
        floor = list(weights.add_array(shares.line)) if self.k else None
        return {
            "output": self.output,
            "rows": self.rows,
            "samples": self.samples,
            "fs": self.fs,
            "nperseg": spec.nperseg,
            "hop": spec.hop,
            "segments": spec.segments_per_row(self.samples),
            "nfft": spec.nfft,
            "bins": spec.n_freqs,
            "k": self.k,
            "input": "x",
            "peaks": "pairs" if "pairs" in self.output_names else None,
            "power": "spectrum" if "spectrum" in self.output_names else None,
            "used": range_check.n_used,
            "least": min(range_check.min_sum, float(np.finfo(np.float64).max)),
            "most": range_check.max_sum,
            "shift": range_check.shift,
            "floor_highest": shares.max_line,
            "floor": floor,
        }
