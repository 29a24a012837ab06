"""RLX's Welch cost functions in calibrated mode, on engines of known speed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlxweb import rlx as costs
from rlxweb.cost import CpuCostModel, GraphIoProfile, WgpuCostModel
from rlxweb.cost.record import Point
from rlxweb.device import Device
from rlxweb.devices.place import CPU
from rlxweb.errors import AdapterMissing, Unsupported, UsageError
from rlxweb.rlx import WelchPeakParams, WelchPeaksStrategy
from tests.unit.signal.pretend_gpu import PLACE, QUICK, SLOW, PretendGpu, Speed

FAST = WelchPeakParams.fast(256, 16)
MEASURED = {"cost_mode": "calibrated"}


def near(ns: float) -> Any:
    return pytest.approx(ns, rel=1e-3)


@given(
    launches=st.integers(0, 1000),
    waits=st.integers(0, 10),
    back=st.integers(0, 10**9),
    traffic=st.integers(0, 10**10),
    unified=st.booleans(),
)
def test_a_profile_pays_each_byte_once(
    launches: int, waits: int, back: int, traffic: int, unified: bool
) -> None:
    """A profile has a last wait, traffic, and the bytes that really come back."""
    model = WgpuCostModel(
        dispatch_overhead_ns=7.0,
        round_trip_overhead_ns=1e5,
        memory_bw=20.0,
        host_readback_bw=0.5,
        unified_memory=unified,
    )
    got = costs.io_cost_ns(
        GraphIoProfile(launches, waits, back, traffic), model, **MEASURED
    )
    want = 1e5 * (1 + waits) + 7.0 * launches + traffic / 20.0
    want += 0 if unified else back / 0.5
    assert got == pytest.approx(want)


def test_seed_mode_adds_a_quarter_of_the_traffic() -> None:
    """Seed mode adds a quarter of the traffic, the calibrated mode nothing."""
    model = WgpuCostModel.seed()
    io = GraphIoProfile(1, 0, 0, 4_000_000)
    more = costs.io_cost_ns(io, model) - costs.io_cost_ns(io, model, **MEASURED)
    assert more == pytest.approx(1_000_000 / model.host_readback_bw)


@pytest.mark.parametrize("batch", [1, 100, 2047, 2048, 3584])
@pytest.mark.parametrize("n", [64, 1024])
def test_estimates_are_the_measured_times(two: PretendGpu, batch: int, n: int) -> None:
    """Estimates are the measured times: no step, no floor, no factor."""
    params = WelchPeakParams.reference(n, 16)
    got = costs.estimate_fused_graph_ns(batch, params, "tpu", **MEASURED)
    assert got == near(QUICK.ns(n, 8, batch))
    found = costs.estimate_welch_peaks_costs("tpu", batch, n, 16, **MEASURED)
    assert found.ultra_ns == near(SLOW.ns(n, 1, batch))
    assert found.fast_ns == near(SLOW.ns(n, 2, batch))
    block = costs.estimate_block_welch_ns(batch, n, 16, "tpu", **MEASURED)
    assert found.rlx_ns == near(min(block, QUICK.ns(n, 2, batch)))
    assert found.learned_ns == math.inf


def test_a_scaled_transform_costs_less(two: PretendGpu) -> None:
    """A scaled transform's arithmetic is scaled, the trip is not."""
    whole, half, none = (
        costs.estimate_fused_graph_ns(4000, FAST, "tpu", scale, **MEASURED)
        for scale in (1.0, 0.5, 0.0)
    )
    assert none == near(QUICK.call)
    assert half == near((whole + none) / 2)


def test_the_gate_is_the_difference_of_the_times(gpu: PretendGpu) -> None:
    """The gate weighs the spectrum's way back against the peaks'; any gain will do."""
    SLOW.give_to(CPU)
    trips = [
        Point("readback", {"bytes": nbytes}, ns)
        for nbytes, ns in ((1000, 1e3), (100_001_000, 1e8 + 1e3))
    ]
    QUICK.give_to(PLACE, *trips)
    for batch in (100, 3000):
        fused = costs.estimate_fused_graph_ns(batch, FAST, "tpu", **MEASURED)
        block = costs.estimate_block_welch_ns(batch, 256, 16, "tpu", **MEASURED)
        size = ("tpu", batch, 256, 16)
        gate = costs.welch_peaks_fusion_gate_breakdown(*size, **MEASURED)
        assert gate.score_ns == pytest.approx(block - fused)
        assert gate.readback_saved_bytes == batch * (4 * 129 - 8 * 16)
        assert gate.score_ns > gate.readback_saved_bytes * 0.99
        assert gate.min_gain_ns == 0.0
        for verdict in (
            gate.should_fuse,
            gate.should_fuse_io,
            costs.welch_peaks_io_fusion_gate(*size, **MEASURED),
            costs.welch_peaks_fusion_compute_floor_ok(*size, **MEASURED),
        ):
            assert verdict is True


def test_the_pick_is_the_smallest_time(two: PretendGpu) -> None:
    """The pick is the smallest sum, without the hard-coded steps."""

    def pick(batch: int) -> WelchPeaksStrategy:
        return costs.pick_welch_peaks_strategy("tpu", batch, 256, 16, **MEASURED)

    batch = 1
    while SLOW.ns(256, 1, batch) < QUICK.ns(256, 2, batch):
        batch += 1
    assert pick(round(0.97 * batch)) is WelchPeaksStrategy.ULTRA_FAST
    assert pick(round(1.03 * batch)) is WelchPeaksStrategy.RLX_COMPILED


def test_on_the_cpu_nothing_is_fused() -> None:
    Speed(1e3, 1.0).give_to(CPU)
    found = costs.estimate_welch_peaks_costs("cpu", 64, 256, 16, **MEASURED)
    assert found.ultra_ns < found.fast_ns < found.rlx_ns == math.inf
    for predict in (
        lambda: costs.estimate_fused_graph_ns(1, FAST, "cpu", **MEASURED),
        lambda: costs.estimate_block_welch_ns(1, 256, 16, "cpu", **MEASURED),
    ):
        with pytest.raises(Unsupported, match="the CPU averages on the host"):
            predict()


def test_what_has_a_kernel_is_viable(gpu: PretendGpu) -> None:
    """A device is viable by its own word, not by a list of names."""
    viable = costs.fused_welch_peaks_auto_viable
    assert viable("tpu", **MEASURED)
    assert not viable("tpu")
    assert not viable("cuda", **MEASURED)
    assert viable("cuda")
    assert not viable(Device.CPU, **MEASURED)


def test_devices_that_are_not_there_have_no_price(gpu: PretendGpu) -> None:
    with pytest.raises((AdapterMissing, Unsupported), match="no backend for it"):
        costs.estimate_fused_graph_ns(1, FAST, "cuda", **MEASURED)


@pytest.mark.requires_wgpu
def test_software_is_not_priced_unmeasured(adapter: Any) -> None:
    """An unmeasured software device is refused with what to do."""
    with pytest.raises(Unsupported, match="`rlxweb calibrate`"):
        costs.estimate_block_welch_ns(
            1, 256, 16, adapter.backends[0], adapter=adapter.name, **MEASURED
        )


SIZE = ("cpu", 1, 256, 16)
ALL: dict[Callable[..., object], tuple[object, ...]] = {
    costs.io_cost_ns: (GraphIoProfile(), CpuCostModel.seed()),
    costs.fused_welch_peaks_auto_viable: ("cpu",),
    costs.estimate_fused_graph_ns: (1, FAST, "cpu"),
    costs.estimate_block_welch_ns: (1, 256, 16, "cpu"),
    costs.welch_peaks_fusion_gate_breakdown: SIZE,
    costs.welch_peaks_io_fusion_gate: SIZE,
    costs.welch_peaks_fusion_compute_floor_ok: SIZE,
    costs.estimate_welch_peaks_costs: SIZE,
    costs.pick_welch_peaks_strategy: SIZE,
}


@pytest.mark.parametrize("function", ALL, ids=lambda function: function.__name__)
@pytest.mark.parametrize("mode", ["", "measured", "SEED", None])
def test_unknown_modes_are_refused_everywhere(
    function: Callable[..., object], mode: Any
) -> None:
    said = rf"cost_mode is {mode!r}; it must be 'seed' or 'calibrated'"
    with pytest.raises(UsageError, match=said):
        function(*ALL[function], cost_mode=mode)
    function(*ALL[function], cost_mode="seed")
