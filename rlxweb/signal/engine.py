"""The engines a Welch estimate can run on: NumPy on the host, or a graph on a device.

Both answer the same two questions, power and strongest bins, for checked rows [B, T].
Which one is asked is `choose.py`'s business; what the estimate means is in the spec.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rlxweb.backends.pool import pool
from rlxweb.devices.device import Device
from rlxweb.errors import Unsupported
from rlxweb.ir.graph import Graph
from rlxweb.runtime.session import CompiledGraph, Session
from rlxweb.signal.peak_search import strongest_bins
from rlxweb.signal.spec import WelchSpec
from rlxweb.signal.spectrum import welch_power

Rows = NDArray[Any]

# Rows go to the device in batches of at most this many bytes, so that a batch of any
# size runs in bounded device memory and no dispatch takes long.
BATCH_BYTES = 64 << 20
CAPACITY = 16


class Engine(Protocol):
    """Runs one spec over rows x [B, T] of the spec's dtype."""

    @property
    def device(self) -> Device: ...

    @property
    def name(self) -> str: ...

    def power(self, x: Rows, spec: WelchSpec) -> Rows:
        """Average power [B, F]."""
        ...

    def strongest(
        self, x: Rows, spec: WelchSpec, k: int
    ) -> tuple[NDArray[np.int64], Rows]:
        """(bins [B, k] int64, power [B, k]), strongest first, ties to the smaller."""
        ...


@dataclass(frozen=True, slots=True)
class NumpyEngine:
    """Rows in cache-sized blocks on a few threads."""

    device: Device = Device.CPU

    @property
    def name(self) -> str:
        return f"NumPy {np.__version__}"

    def power(self, x: Rows, spec: WelchSpec) -> Rows:
        return welch_power(x, spec)

    def strongest(
        self, x: Rows, spec: WelchSpec, k: int
    ) -> tuple[NDArray[np.int64], Rows]:
        return strongest_bins(welch_power(x, spec), k)


@dataclass(slots=True)
class GraphEngine:
    """A graph with one Welch op, compiled per batch shape and kept."""

    device: Device
    adapter: str = ""
    _programs: OrderedDict[Any, CompiledGraph] = field(default_factory=OrderedDict)

    @property
    def name(self) -> str:
        return str(pool.backend(self.device.label, self.adapter).name)

    def power(self, x: Rows, spec: WelchSpec) -> Rows:
        return self._rows(x, spec, 0)

    def strongest(
        self, x: Rows, spec: WelchSpec, k: int
    ) -> tuple[NDArray[np.int64], Rows]:
        pairs = self._rows(x, spec, k)
        return pairs[:, 0::2].astype(np.int64), np.ascontiguousarray(pairs[:, 1::2])

    def _rows(self, x: Rows, spec: WelchSpec, k: int) -> Rows:
        """All rows through the device, in batches; [B, F], or pairs [B, 2k]."""
        n_rows, n_samples = x.shape
        width = 2 * k if k else spec.n_freqs
        out = np.empty((n_rows, width), np.float32)
        step = max(1, BATCH_BYTES // (4 * max(1, n_samples, spec.n_freqs)))
        for at in range(0, n_rows, step):
            batch = x[at : at + step]
            program = self._program(batch.shape, spec, k)
            (out[at : at + step],) = program.run({"x": batch})
        return out

    def _program(
        self, shape: tuple[int, ...], spec: WelchSpec, k: int
    ) -> CompiledGraph:
        key = (shape, spec, k)
        if key not in self._programs:
            session = Session(self.device, adapter=self.adapter)
            self._programs[key] = session.compile(welch_graph(shape, spec, k))
            if len(self._programs) > CAPACITY:
                self._programs.popitem(last=False)[1].close()
        self._programs.move_to_end(key)
        return self._programs[key]


def welch_graph(shape: tuple[int, ...], spec: WelchSpec, k: int = 0) -> Graph:
    """Rows x [B, T] f32 → power [B, F] (k = 0) or packed peaks [B, 2k].

    Errors   Unsupported for what the device ops do not cover: medians, complex rows,
    two-sided spectra, float64.
    """
    reason = refusal(spec)
    if reason:
        raise Unsupported("welch on a device", reason, hint="use device='cpu'")
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
        graph.set_outputs([graph.apply("welch_row_peaks", x, window, k=k, **attrs)])
    else:
        graph.set_outputs([graph.apply("welch_power", x, window, **attrs)])
    return graph


def refusal(spec: WelchSpec) -> str:
    """Why a device cannot run this estimate; "" when it can."""
    if spec.dtype != "float32":
        return f"the samples are {spec.dtype} and devices compute float32"
    if spec.average != "mean":
        return f"average='{spec.average}' is computed by NumPy only"
    if not spec.one_sided:
        return "two-sided spectra are computed by NumPy only"
    return ""
