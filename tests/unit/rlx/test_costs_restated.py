"""The Welch cost functions in seed mode against an independent restatement of RLX's
formulas, to the last bit, over shapes, devices and models that its tables do not show.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rlxweb import rlx as costs
from rlxweb.cost import CpuCostModel, profile_graph_io
from rlxweb.cost.seed_welch import counted_fft, counted_fused
from rlxweb.device import Device
from rlxweb.rlx import WelchPeakParams
from tests.unit.rlx import restated_costs as plain

SHAPES = {
    "batch": st.integers(1, 20_000) | st.sampled_from([511, 512, 2047, 2048, 8192]),
    "n": st.integers(1, 5000) | st.sampled_from([64, 256, 1024, 4096]),
    "k": st.integers(0, 300),
}
DEVICE = st.sampled_from(plain.DEVICES)


def test_the_restatement_knows_every_device() -> None:
    assert sorted(plain.DEVICES) == sorted(d.label for d in Device)


@given(**SHAPES, device=DEVICE, apple=st.booleans())
def test_costs_agree_with_the_restatement(
    batch: int, n: int, k: int, device: str, apple: bool
) -> None:
    cpu = plain.CPU_APPLE if apple else plain.CPU_OTHER
    want = plain.costs(device, batch, n, k, cpu)
    got = costs.estimate_welch_peaks_costs(
        device, batch, n, k, cpu_model=CpuCostModel.seed(apple=apple)
    )
    found = (got.ultra_ns, got.fast_ns, got.rlx_ns, got.learned_ns)
    assert found == want


@given(**SHAPES, device=DEVICE, segments=st.integers(1, 40), cs=st.floats(0, 2))
def test_graphs_agree_with_the_restatement(
    batch: int, n: int, k: int, device: str, segments: int, cs: float
) -> None:
    params = WelchPeakParams(n, k, segments)
    got = costs.estimate_fused_graph_ns(batch, params, device, cs)
    want = plain.fused_ns(batch, n, segments, k, device, cs, plain.CPU_OTHER)
    assert got == want
    got = costs.estimate_block_welch_ns(batch, n, k, device)
    want = plain.block_ns(batch, n, k, device, plain.CPU_OTHER)
    assert got == want


@given(**SHAPES, device=DEVICE)
def test_gates_agree_with_the_restatement(
    batch: int, n: int, k: int, device: str
) -> None:
    score, saved, waits = plain.io_score(device, batch, n, k)
    got = costs.welch_peaks_fusion_gate_breakdown(device, batch, n, k)
    assert got.score_ns == score
    assert (got.readback_saved_bytes, got.sync_points_saved) == (saved, waits)
    floor = plain.floor_ok(device, batch, n, k, plain.CPU_OTHER)
    assert costs.welch_peaks_fusion_compute_floor_ok(device, batch, n, k) is floor


@given(
    **SHAPES,
    device=DEVICE,
    active=st.none() | st.integers(0, 2000),
    total=st.integers(0, 6000),
)
def test_learned_agrees_with_the_restatement(
    batch: int, n: int, k: int, device: str, active: int | None, total: int
) -> None:
    want = plain.costs(device, batch, n, k, learned=(True, active, total))
    got = costs.estimate_welch_peaks_costs(device, batch, n, k, True, active, total)
    assert got.learned_ns == want[3]


@given(
    batch=st.integers(1, 300),
    n=st.integers(1, 200),
    segments=st.integers(1, 6),
    data=st.data(),
)
def test_counts_are_those_of_the_graphs(
    batch: int, n: int, segments: int, data: st.DataObject
) -> None:
    """The closed forms the estimates use are what the built graphs move."""
    k = data.draw(st.integers(1, n // 2 + 1))
    params = WelchPeakParams(n, k, segments)
    fused = profile_graph_io(costs.build_welch_peaks_fused_graph(batch, params))
    assert counted_fused(batch, params).io == fused
    fft = profile_graph_io(costs.fft_only_graph(batch, n, segments))
    assert counted_fft(batch, n, segments).io == fft
