"""Fused Welch kernels: every shape of their text, on the software adapters.

The power is compared with NumPy in float64, and the peaks with an exact search in that
very power: ties, rows without a number and rows of one value included.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from numpy.typing import NDArray

from rlxweb import Graph
from rlxweb.backends.protocol import Backend
from rlxweb.compile.pipeline import compile_graph
from rlxweb.cost.graph_work import asked_of
from rlxweb.gpu.drive import drive
from rlxweb.gpu.port import Want
from rlxweb.host.spec import WelchSpec
from rlxweb.host.spectrum import welch_power
from rlxweb.host.strongest import strongest_bins
from rlxweb.host.welch_graph import welch_graph
from tests.agreement import on_adapter
from tests.tiers import thinned

WAYS = ("team of lanes a row", "workgroup a row")


@dataclass(frozen=True)
class Job:
    """Rows of `segments` segments of n, zero-padded to nfft."""

    n: int
    hop: int
    segments: int
    k: int
    nfft: int = 0
    detrend: str | None = None
    rows: int = 9

    @property
    def samples(self) -> int:
        return self.n + (self.segments - 1) * self.hop

    @property
    def spec(self) -> WelchSpec:
        return WelchSpec(
            nperseg=self.n,
            hop=self.hop,
            nfft=self.nfft or self.n,
            n_segments=0,
            window=np.hanning(self.n + 2)[1:-1].tobytes(),
            detrend=self.detrend,
            one_sided=True,
            scale=1.0,
            average="mean",
            dtype="float32",
        )

    def rows_of_noise(self) -> NDArray[np.float32]:
        """Noise, and rows that have ties, no number, one value, and an infinity."""
        rng = np.random.default_rng(self.n + self.k)
        x = rng.standard_normal((self.rows, self.samples)).astype(np.float32)
        x[1] = 0.0
        x[2, self.samples // 2] = np.nan
        x[3] = 1.0
        x[4, 0] = np.inf
        x[5] *= 1e-12
        return x


# The default tier has the first of each four.
JOBS = [
    Job(256, 128, 1, 5),
    Job(256, 128, 2, 16),
    Job(256, 64, 3, 32),
    Job(128, 128, 6, 1, detrend="constant"),
    Job(512, 4, 3, 16, detrend="linear"),
    Job(512, 256, 2, 17),
    Job(1024, 512, 2, 16),
    Job(1024, 1024, 5, 40),
    Job(100, 60, 6, 1, nfft=128, detrend="constant"),
    Job(128, 32, 2, 8),
    Job(300, 60, 4, 12, nfft=1024, detrend="constant"),
    Job(200, 100, 2, 16, nfft=256),
]


def outputs(
    engine: Backend, graph: Graph, x: NDArray[np.float32], way: str
) -> NDArray[np.float32]:
    node = graph.node(graph.outputs[0])
    op, *rest = asked_of(graph, node)
    assert engine.variants_for(op, *rest) == (f"{op.name}, {way}",)
    program = drive(engine.prepare(compile_graph(graph, engine.target)))
    try:
        out: NDArray[np.float32]
        (out,) = drive(engine.run(program, {"x": x}))
        return out
    finally:
        drive(engine.release(program))


@pytest.mark.full("opengl")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("job", thinned(JOBS, 4), ids=str)
def test_powers_and_peaks(job: Job, way: str, adapter: Want) -> None:
    engine = on_adapter(adapter)
    x, spec = job.rows_of_noise(), job.spec
    shape = x.shape
    of_power = engine.forced(f"welch_power, {way}")
    power = outputs(of_power, welch_graph(shape, spec), x, way)
    finite = np.isfinite(x).all(axis=1)
    want = welch_power(x.astype(np.float64), replace(spec, dtype="float64"))
    for row in np.flatnonzero(finite):
        most = want[row].max()
        np.testing.assert_allclose(power[row], want[row], 2e-6, 4e-6 * most + 1e-35)
    assert np.isnan(power[2]).all()
    of_peaks = engine.forced(f"welch_row_peaks, {way}")
    pairs = outputs(of_peaks, welch_graph(shape, spec, job.k), x, way)
    bins, top = pairs[:, 0::2], pairs[:, 1::2]
    found, powers = strongest_bins(power, job.k)
    np.testing.assert_array_equal(top, powers)
    # A place that no number took has its own number instead of a bin's.
    places = np.broadcast_to(np.arange(job.k), bins.shape)
    found = np.where(np.isnan(powers), places, found)
    np.testing.assert_array_equal(bins, found)
