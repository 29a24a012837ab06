"""Test every variant of the fused Welch kernels on the software adapters.

The power is compared with NumPy in float64, and the peaks with an exact search in that
very power: ties, rows without a number and rows of one value included.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from numpy.typing import NDArray

from rlxweb import Graph
from rlxweb.compiler.pipeline import compile_graph
from rlxweb.engines.protocol import Engine
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.gpu.port_protocol import AdapterRequest
from rlxweb.ir.graph import node_signature
from rlxweb.ops.welch.cpu.spectrum import welch_power
from rlxweb.ops.welch.cpu.strongest_bins import strongest_bins
from rlxweb.ops.welch.graph import welch_graph
from rlxweb.ops.welch.spec import WelchSpec
from tests.engines_under_test import adapter_engine
from tests.suite_tiers import thin_out_cases

WELCH_VARIANTS = ("team of lanes a row", "workgroup a row")


@dataclass(frozen=True)
class WelchKernelCase:
    """Test case: rows of `segments` segments of n samples, zero-padded to nfft."""

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

    def noise_rows(self) -> NDArray[np.float32]:
        """Return noise rows, some of them with ties, NaN, one constant value, and an
        infinity.
        """
        rng = np.random.default_rng(self.n + self.k)
        x = rng.standard_normal((self.rows, self.samples)).astype(np.float32)
        x[1] = 0.0
        x[2, self.samples // 2] = np.nan
        x[3] = 1.0
        x[4, 0] = np.inf
        x[5] *= 1e-12
        return x


# The default tier has the first of each four.
CASES = [
    WelchKernelCase(256, 128, 1, 5),
    WelchKernelCase(256, 128, 2, 16),
    WelchKernelCase(256, 64, 3, 32),
    WelchKernelCase(128, 128, 6, 1, detrend="constant"),
    WelchKernelCase(512, 4, 3, 16, detrend="linear"),
    WelchKernelCase(512, 256, 2, 17),
    WelchKernelCase(1024, 512, 2, 16),
    WelchKernelCase(1024, 1024, 5, 40),
    WelchKernelCase(100, 60, 6, 1, nfft=128, detrend="constant"),
    WelchKernelCase(128, 32, 2, 8),
    WelchKernelCase(300, 60, 4, 12, nfft=1024, detrend="constant"),
    WelchKernelCase(200, 100, 2, 16, nfft=256),
]


def run_variant(
    engine: Engine, graph: Graph, x: NDArray[np.float32], variant: str
) -> NDArray[np.float32]:
    node = graph.node(graph.outputs[0])
    op, *rest = node_signature(graph, node)
    assert engine.variants_for(op, *rest) == (f"{op.name}, {variant}",)
    program = run_blocking(engine.prepare(compile_graph(graph, engine.target)))
    try:
        out: NDArray[np.float32]
        (out,) = run_blocking(engine.run(program, {"x": x}))
        return out
    finally:
        run_blocking(program.close())


@pytest.mark.full("opengl")
@pytest.mark.parametrize("variant", WELCH_VARIANTS)
@pytest.mark.parametrize("case", thin_out_cases(CASES, 4), ids=str)
def test_powers_and_peaks(
    case: WelchKernelCase, variant: str, adapter: AdapterRequest
) -> None:
    engine = adapter_engine(adapter)
    x, spec = case.noise_rows(), case.spec
    shape = x.shape
    power_engine = engine.with_variant(f"welch_power, {variant}")
    power = run_variant(power_engine, welch_graph(shape, spec), x, variant)
    finite = np.isfinite(x).all(axis=1)
    want = welch_power(x.astype(np.float64), replace(spec, dtype="float64"))
    for row in np.flatnonzero(finite):
        max_power = want[row].max()
        np.testing.assert_allclose(
            power[row], want[row], 2e-6, 4e-6 * max_power + 1e-35
        )
    assert np.isnan(power[2]).all()
    peaks_engine = engine.with_variant(f"welch_row_peaks, {variant}")
    pairs = run_variant(peaks_engine, welch_graph(shape, spec, case.k), x, variant)
    bins, top = pairs[:, 0::2], pairs[:, 1::2]
    expected_bins, powers = strongest_bins(power, case.k)
    np.testing.assert_array_equal(top, powers)
    # A place that no number took has its own number instead of a bin's.
    ranks = np.broadcast_to(np.arange(case.k), bins.shape)
    expected_bins = np.where(np.isnan(powers), ranks, expected_bins)
    np.testing.assert_array_equal(bins, expected_bins)
