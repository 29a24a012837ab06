"""The Welch cost functions in seed mode against an independent implementation of RLX's
formulas, bit for bit, over shapes, devices and models beyond RLX's tables.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rlxweb import rlx as costs
from rlxweb.core.device import Device
from rlxweb.cost import CpuCostModel, profile_graph_io
from rlxweb.cost.rlx_welch_costs import fft_graph_counts, fused_graph_counts
from rlxweb.rlx import WelchPeakParams
from tests.unit.rlx import reference_cost_formulas as plain

SIZE_STRATEGIES = {
    "batch": st.integers(1, 20_000) | st.sampled_from([511, 512, 2047, 2048, 8192]),
    "n": st.integers(1, 5000) | st.sampled_from([64, 256, 1024, 4096]),
    "k": st.integers(0, 300),
}
DEVICE_NAMES = st.sampled_from(plain.DEVICES)


def test_reference_covers_every_device() -> None:
    assert sorted(plain.DEVICES) == sorted(d.label for d in Device)


@given(**SIZE_STRATEGIES, device=DEVICE_NAMES, apple=st.booleans())
def test_costs_match_reference(
    batch: int, n: int, k: int, device: str, apple: bool
) -> None:
    cpu_model = plain.APPLE_CPU_MODEL if apple else plain.DEFAULT_CPU_MODEL
    want = plain.strategy_costs(device, batch, n, k, cpu_model)
    got = costs.estimate_welch_peaks_costs(
        device, batch, n, k, cpu_model=CpuCostModel.seed(apple=apple)
    )
    got_ns = (got.ultra_ns, got.fast_ns, got.rlx_ns, got.learned_ns)
    assert got_ns == want


@given(
    **SIZE_STRATEGIES,
    device=DEVICE_NAMES,
    segments=st.integers(1, 40),
    cs=st.floats(0, 2),
)
def test_graph_costs_match_reference(
    batch: int, n: int, k: int, device: str, segments: int, cs: float
) -> None:
    params = WelchPeakParams(n, k, segments)
    got = costs.estimate_fused_graph_ns(batch, params, device, cs)
    want = plain.fused_ns(batch, n, segments, k, device, cs, plain.DEFAULT_CPU_MODEL)
    assert got == want
    got = costs.estimate_block_welch_ns(batch, n, k, device)
    want = plain.block_ns(batch, n, k, device, plain.DEFAULT_CPU_MODEL)
    assert got == want


@given(**SIZE_STRATEGIES, device=DEVICE_NAMES)
def test_gates_match_reference(batch: int, n: int, k: int, device: str) -> None:
    score, saved, waits = plain.io_gate_score(device, batch, n, k)
    got = costs.welch_peaks_fusion_gate_breakdown(device, batch, n, k)
    assert got.score_ns == score
    assert (got.readback_saved_bytes, got.sync_points_saved) == (saved, waits)
    floor = plain.is_compute_floor_ok(device, batch, n, k, plain.DEFAULT_CPU_MODEL)
    assert costs.welch_peaks_fusion_compute_floor_ok(device, batch, n, k) is floor


@given(
    **SIZE_STRATEGIES,
    device=DEVICE_NAMES,
    active=st.none() | st.integers(0, 2000),
    total=st.integers(0, 6000),
)
def test_learned_costs_match_reference(
    batch: int, n: int, k: int, device: str, active: int | None, total: int
) -> None:
    want = plain.strategy_costs(device, batch, n, k, learned=(True, active, total))
    got = costs.estimate_welch_peaks_costs(device, batch, n, k, True, active, total)
    assert got.learned_ns == want[3]


@given(
    batch=st.integers(1, 300),
    n=st.integers(1, 200),
    segments=st.integers(1, 6),
    data=st.data(),
)
def test_closed_form_counts_match_graphs(
    batch: int, n: int, segments: int, data: st.DataObject
) -> None:
    """The closed forms used by the estimates equal the counts of the built graphs."""
    k = data.draw(st.integers(1, n // 2 + 1))
    params = WelchPeakParams(n, k, segments)
    fused = profile_graph_io(costs.build_welch_peaks_fused_graph(batch, params))
    assert fused_graph_counts(batch, params).io == fused
    fft = profile_graph_io(costs.fft_only_graph(batch, n, segments))
    assert fft_graph_counts(batch, n, segments).io == fft
