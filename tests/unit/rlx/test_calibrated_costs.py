"""RLX's Welch cost functions in calibrated mode, on simulated engines of known
speed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlxweb import rlx as costs
from rlxweb.core.device import Device
from rlxweb.core.errors import AdapterMissing, Unsupported, UsageError
from rlxweb.cost import CpuCostModel, GraphIoProfile, WgpuCostModel
from rlxweb.cost.calibration_record import MeasuredPoint
from rlxweb.rlx import WelchPeakParams, WelchPeaksStrategy
from rlxweb.select.device_and_adapter import CPU_PLACE
from tests.unit.signal.fake_gpu import (
    CPU_SPEED,
    GPU_PLACE,
    GPU_SPEED,
    EngineSpeed,
    FakeGpu,
)

FAST = WelchPeakParams.fast(256, 16)
CALIBRATED = {"cost_mode": "calibrated"}


def approx_ns(ns: float) -> Any:
    """Return a matcher for times within 0.1 %."""
    return pytest.approx(ns, rel=1e-3)


@given(
    launches=st.integers(0, 1000),
    waits=st.integers(0, 10),
    back=st.integers(0, 10**9),
    traffic=st.integers(0, 10**10),
    unified=st.booleans(),
)
def test_profile_charges_each_byte_once(
    launches: int, waits: int, back: int, traffic: int, unified: bool
) -> None:
    """A profile is charged one final wait, the traffic and the bytes that are really
    read back.
    """
    model = WgpuCostModel(
        dispatch_overhead_ns=7.0,
        round_trip_overhead_ns=1e5,
        memory_bw=20.0,
        host_readback_bw=0.5,
        unified_memory=unified,
    )
    got = costs.io_cost_ns(
        GraphIoProfile(launches, waits, back, traffic), model, **CALIBRATED
    )
    want = 1e5 * (1 + waits) + 7.0 * launches + traffic / 20.0
    want += 0 if unified else back / 0.5
    assert got == pytest.approx(want)


def test_seed_mode_adds_a_quarter_of_the_traffic() -> None:
    """Seed mode adds a quarter of the traffic, the calibrated mode nothing."""
    model = WgpuCostModel.seed()
    io = GraphIoProfile(1, 0, 0, 4_000_000)
    extra_ns = costs.io_cost_ns(io, model) - costs.io_cost_ns(io, model, **CALIBRATED)
    assert extra_ns == pytest.approx(1_000_000 / model.host_readback_bw)


@pytest.mark.parametrize("batch", [1, 100, 2047, 2048, 3584])
@pytest.mark.parametrize("n", [64, 1024])
def test_estimates_equal_measured_times(two: FakeGpu, batch: int, n: int) -> None:
    """Estimates equal the measured times without steps, floors or factors."""
    params = WelchPeakParams.reference(n, 16)
    got = costs.estimate_fused_graph_ns(batch, params, "tpu", **CALIBRATED)
    assert got == approx_ns(GPU_SPEED.duration_ns(n, 8, batch))
    estimate = costs.estimate_welch_peaks_costs("tpu", batch, n, 16, **CALIBRATED)
    assert estimate.ultra_ns == approx_ns(CPU_SPEED.duration_ns(n, 1, batch))
    assert estimate.fast_ns == approx_ns(CPU_SPEED.duration_ns(n, 2, batch))
    block = costs.estimate_block_welch_ns(batch, n, 16, "tpu", **CALIBRATED)
    assert estimate.rlx_ns == approx_ns(min(block, GPU_SPEED.duration_ns(n, 2, batch)))
    assert estimate.learned_ns == math.inf


def test_a_scaled_transform_costs_less(two: FakeGpu) -> None:
    """A scaled transform's arithmetic is scaled, the trip is not."""
    full, half, none = (
        costs.estimate_fused_graph_ns(4000, FAST, "tpu", scale, **CALIBRATED)
        for scale in (1.0, 0.5, 0.0)
    )
    assert none == approx_ns(GPU_SPEED.call_ns)
    assert half == approx_ns((full + none) / 2)


def test_gate_score_is_time_difference(gpu: FakeGpu) -> None:
    """The gate compares the read-back of the spectrum with that of the peaks; any gain
    suffices.
    """
    CPU_SPEED.save_calibration(CPU_PLACE)
    readback_points = [
        MeasuredPoint("readback", {"bytes": nbytes}, ns)
        for nbytes, ns in ((1000, 1e3), (100_001_000, 1e8 + 1e3))
    ]
    GPU_SPEED.save_calibration(GPU_PLACE, *readback_points)
    for batch in (100, 3000):
        fused = costs.estimate_fused_graph_ns(batch, FAST, "tpu", **CALIBRATED)
        block = costs.estimate_block_welch_ns(batch, 256, 16, "tpu", **CALIBRATED)
        size = ("tpu", batch, 256, 16)
        gate = costs.welch_peaks_fusion_gate_breakdown(*size, **CALIBRATED)
        assert gate.score_ns == pytest.approx(block - fused)
        assert gate.readback_saved_bytes == batch * (4 * 129 - 8 * 16)
        assert gate.score_ns > gate.readback_saved_bytes * 0.99
        assert gate.min_gain_ns == 0.0
        for verdict in (
            gate.should_fuse,
            gate.should_fuse_io,
            costs.welch_peaks_io_fusion_gate(*size, **CALIBRATED),
            costs.welch_peaks_fusion_compute_floor_ok(*size, **CALIBRATED),
        ):
            assert verdict is True


def test_pick_is_fastest_strategy(two: FakeGpu) -> None:
    """The picked strategy has the smallest predicted time, without hard-coded
    thresholds.
    """

    def pick(batch: int) -> WelchPeaksStrategy:
        return costs.pick_welch_peaks_strategy("tpu", batch, 256, 16, **CALIBRATED)

    batch = 1
    while CPU_SPEED.duration_ns(256, 1, batch) < GPU_SPEED.duration_ns(256, 2, batch):
        batch += 1
    assert pick(round(0.97 * batch)) is WelchPeaksStrategy.ULTRA_FAST
    assert pick(round(1.03 * batch)) is WelchPeaksStrategy.RLX_COMPILED


def test_cpu_never_fuses() -> None:
    EngineSpeed(1e3, 1.0).save_calibration(CPU_PLACE)
    estimate = costs.estimate_welch_peaks_costs("cpu", 64, 256, 16, **CALIBRATED)
    assert estimate.ultra_ns < estimate.fast_ns < estimate.rlx_ns == math.inf
    for predict in (
        lambda: costs.estimate_fused_graph_ns(1, FAST, "cpu", **CALIBRATED),
        lambda: costs.estimate_block_welch_ns(1, 256, 16, "cpu", **CALIBRATED),
    ):
        with pytest.raises(Unsupported, match="the CPU does not support '"):
            predict()


def test_device_with_kernel_is_viable(gpu: FakeGpu) -> None:
    """Viability depends on the device's own kernels, not on a list of names."""
    viable = costs.fused_welch_peaks_auto_viable
    assert viable("tpu", **CALIBRATED)
    assert not viable("tpu")
    assert not viable("cuda", **CALIBRATED)
    assert viable("cuda")
    assert not viable(Device.CPU, **CALIBRATED)


def test_missing_devices_have_no_estimate(gpu: FakeGpu) -> None:
    with pytest.raises(
        (AdapterMissing, Unsupported), match="no engine supports this device"
    ):
        costs.estimate_fused_graph_ns(1, FAST, "cuda", **CALIBRATED)


@pytest.mark.requires_wgpu
def test_uncalibrated_software_device_is_refused(adapter: Any) -> None:
    """An uncalibrated software device is refused with advice to calibrate."""
    with pytest.raises(Unsupported, match="`rlxweb calibrate`"):
        costs.estimate_block_welch_ns(
            1, 256, 16, adapter.backends[0], adapter=adapter.name, **CALIBRATED
        )


WELCH_SIZE = ("cpu", 1, 256, 16)
CALLS_WITH_COST_MODE: dict[Callable[..., object], tuple[object, ...]] = {
    costs.io_cost_ns: (GraphIoProfile(), CpuCostModel.seed()),
    costs.fused_welch_peaks_auto_viable: ("cpu",),
    costs.estimate_fused_graph_ns: (1, FAST, "cpu"),
    costs.estimate_block_welch_ns: (1, 256, 16, "cpu"),
    costs.welch_peaks_fusion_gate_breakdown: WELCH_SIZE,
    costs.welch_peaks_io_fusion_gate: WELCH_SIZE,
    costs.welch_peaks_fusion_compute_floor_ok: WELCH_SIZE,
    costs.estimate_welch_peaks_costs: WELCH_SIZE,
    costs.pick_welch_peaks_strategy: WELCH_SIZE,
}


@pytest.mark.parametrize(
    "function", CALLS_WITH_COST_MODE, ids=lambda function: function.__name__
)
@pytest.mark.parametrize("mode", ["", "measured", "SEED", None])
def test_unknown_modes_are_refused_everywhere(
    function: Callable[..., object], mode: Any
) -> None:
    message = rf"cost_mode is {mode!r}; it must be 'seed' or 'calibrated'"
    with pytest.raises(UsageError, match=message):
        function(*CALLS_WITH_COST_MODE[function], cost_mode=mode)
    function(*CALLS_WITH_COST_MODE[function], cost_mode="seed")
