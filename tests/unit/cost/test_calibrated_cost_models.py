"""Calibrated prices: fits, curves, models and workloads, on synthetic records."""

from __future__ import annotations

import dataclasses
import json
import math
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlxweb import Graph
from rlxweb.core.device import Device
from rlxweb.core.errors import InputError
from rlxweb.cost import (
    Candidate,
    CpuCostModel,
    IoFusionGate,
    Terms,
    WgpuCostModel,
    estimate_graph_cost,
)
from rlxweb.cost.calibration_json import calibration_from_json
from rlxweb.cost.calibration_record import (
    Calibration,
    MeasuredPoint,
)
from rlxweb.cost.decision import TIME_FIELDS, comparison_text, rank_candidates
from rlxweb.cost.interpolation import fit_cost_curve, fit_rate_curve, fit_relative
from rlxweb.cost.welch_model import (
    COLUMNS,
    WelchModel,
    WelchSize,
    block_terms,
    column_values,
    transform_work,
)
from rlxweb.cost.work_kinds import assumed_cpu, assumed_gpu
from rlxweb.cost.work_pricing import FittedPrices, workload_terms
from rlxweb.cost.workload import WorkItem, Workload


def weighted_sum(weights: dict[str, float], size: WelchSize) -> float:
    """Return the sum of the model's columns under these weights."""
    values = zip(COLUMNS, column_values(size), strict=True)
    return sum(weights.get(name, 0.0) * value for name, value in values)


def calibration_record(*points: MeasuredPoint) -> Calibration:
    return Calibration("gpu", "an engine", "vulkan", "1.0", "0.1.0", "m", points)


TRANSFER_POINTS = (
    MeasuredPoint("submit", {}, 100_000.0),
    MeasuredPoint("dispatch", {}, 2_000.0),
    MeasuredPoint("upload", {"bytes": 1_000}, 1_000.0),
    MeasuredPoint("upload", {"bytes": 1_001_000}, 101_000.0),
    MeasuredPoint("readback", {"bytes": 1_000}, 2_000.0),
    MeasuredPoint("readback", {"bytes": 1_001_000}, 202_000.0),
)
KERNEL_POINTS = (
    MeasuredPoint("copy", {"bytes": 1_000_000}, 10_000.0),
    MeasuredPoint("copy", {"bytes": 100_000_000}, 2_000_000.0),
    MeasuredPoint("matmul", {"m": 100, "k": 100, "n": 100}, 20_000.0),
    MeasuredPoint("matmul", {"m": 1000, "k": 1000, "n": 1000}, 2_000_000.0),
    MeasuredPoint("fft", {"n": 1024, "rows": 100}, 51_200.0),
    MeasuredPoint("elementwise", {"bytes": 1_000_000, "flops": 10_125_000}, 110_000.0),
)


@given(
    weights=st.lists(st.sampled_from([0.0, 0.5, 3.0, 40.0]), min_size=2, max_size=4),
    seed=st.integers(0, 99),
)
def test_fit_recovers_exact_weights(weights: list[float], seed: int) -> None:
    """Exact data of non-negative weights is reproduced, with an error near zero."""
    draw = np.random.default_rng(seed)
    table = draw.uniform(0.1, 10.0, (12, len(weights)))
    values = table @ weights + 0.5
    got = fit_relative(table, values, known=0.5)
    if any(weights):
        assert table @ got.weights + 0.5 == pytest.approx(values, rel=1e-6)
        assert got.error < 1e-6
    assert min(got.weights) >= 0


@given(seed=st.integers(0, 200), size=st.integers(2, 5))
def test_fit_is_a_local_optimum(seed: int, size: int) -> None:
    """No small step inside the allowed weights improves the fit."""
    draw = np.random.default_rng(seed)
    table = draw.uniform(0.0, 1.0, (15, size))
    values = draw.uniform(0.5, 2.0, 15)
    got = np.array(fit_relative(table, values).weights)

    def squared_error(weights: np.ndarray) -> float:
        return float(np.sum(((table @ weights - values) / values) ** 2))

    best = squared_error(got)
    for _ in range(50):
        other = np.maximum(got + draw.normal(0, 0.05, size), 0.0)
        assert squared_error(other) >= best - 1e-9


def test_fit_error_is_cross_validated() -> None:
    """Noise of ten percent shows in the error."""
    draw = np.random.default_rng(0)
    table = draw.uniform(1.0, 10.0, (40, 2))
    values = table @ [3.0, 5.0] * draw.normal(1.0, 0.1, 40)
    assert 0.05 < fit_relative(table, values).error < 0.2


def test_transfer_curve_interpolates_and_extrapolates() -> None:
    curve = fit_cost_curve(p for p in TRANSFER_POINTS if p.what == "upload")
    assert curve.ns_at(0) == 0.0
    assert curve.ns_at(10) == curve.ns_at(1_000) == 1_000.0
    assert curve.ns_at(501_000) == pytest.approx(51_000.0)
    assert curve.ns_at(2_001_000) == pytest.approx(201_000.0)
    assert fit_cost_curve([]).ns_at(1e9) == 0.0


@given(st.lists(st.tuples(st.integers(1, 10**8), st.floats(1, 1e9)), min_size=1))
def test_transfer_curve_is_monotonic(pairs: list[tuple[int, float]]) -> None:
    """A curve through noisy points never makes more bytes cheaper."""
    curve = fit_cost_curve(MeasuredPoint("upload", {"bytes": n}, ns) for n, ns in pairs)
    sizes = sorted({s * f // 2 for s, _ in pairs for f in (1, 2, 3, 9)})
    times = [curve.ns_at(size) for size in sizes]
    assert all(b >= a * (1 - 1e-12) for a, b in pairwise(times))


def test_rates_interpolate_in_log_log_and_are_constant_outside() -> None:
    line = fit_rate_curve([(1000, 100.0), (10, 0.5), (10, 1.0)])
    assert line.rate_at(100) == pytest.approx(10.0)
    assert (line.rate_at(1), line.rate_at(10**9)) == (1.0, 100.0)


def test_model_attributes_of_a_measured_device() -> None:
    model = WgpuCostModel.from_record(
        calibration_record(*TRANSFER_POINTS, *KERNEL_POINTS), Device.VULKAN
    )
    assert model.mode == "calibrated"
    assert model.device is Device.VULKAN
    assert model.round_trip_overhead_ns == 100_000.0
    assert model.dispatch_overhead_ns == 2_000.0
    assert model.memory_bw == pytest.approx(50.0)
    assert model.host_readback_bw == pytest.approx(5.0)
    assert model.sgemm_gflops(100, 100, 100) == pytest.approx(100.0)
    assert model.sgemm_gflops(1000, 1000, 1000) == pytest.approx(1000.0)
    assert 100 < model.sgemm_gflops(300, 300, 300) < 1000
    assert model.assumed == ()


def test_unmeasured_attributes_come_from_the_seed_and_are_listed() -> None:
    model = WgpuCostModel.from_record(
        calibration_record(TRANSFER_POINTS[0]), Device.GPU
    )
    assert model.memory_bw == WgpuCostModel.seed().memory_bw
    assert set(model.assumed) == {
        "sgemm_gflops",
        "dispatch_overhead_ns",
        "memory_bw",
        "host_readback_bw",
    }


def test_cpu_has_no_transfers() -> None:
    """The CPU has no round trip and no read-back: results are in host memory."""
    model = CpuCostModel.from_record(assumed_cpu(), Device.CPU)
    assert model.round_trip_overhead_ns == 0.0
    assert model.unified_memory


def test_implausible_rates_are_rejected() -> None:
    implausible = calibration_record(
        MeasuredPoint("matmul", {"m": 1000, "k": 1000, "n": 1000}, 1.0)
    )
    with pytest.raises(InputError, match="the rate must be at most 1e"):
        WgpuCostModel.from_record(implausible, Device.GPU)


def test_each_term_follows_from_its_points() -> None:
    """Check every term of two kernels, an upload and a read-back by hand."""
    prices = FittedPrices(calibration_record(*TRANSFER_POINTS, *KERNEL_POINTS))
    size = {"batch": 1, "m": 100, "k": 100, "n": 100}
    matmul_item = WorkItem("matmul", "a", 1, 2e6, 120_000, size)
    copy_item = WorkItem("copy", "b", 2, 0.0, 1_000_000)
    terms = workload_terms(Workload((matmul_item, copy_item), 1_000, 1_001_000), prices)
    assert (terms.launches, terms.syncs) == (3, 1)
    assert (terms.dispatch_ns, terms.sync_ns) == (6_000.0, 100_000.0)
    assert (terms.upload_ns, terms.readback_ns) == (1_000.0, 202_000.0)
    assert terms.compute_ns == pytest.approx(20_000.0)
    assert terms.traffic_ns == pytest.approx(10_000.0)
    assert terms.total_ns == pytest.approx(339_000.0)


def test_ffts_and_elementwise_chains_use_their_own_rates() -> None:
    prices = FittedPrices(calibration_record(*TRANSFER_POINTS, *KERNEL_POINTS))
    transform = WorkItem(
        "fft", "f", 1, 5 * 1024 * 10 * 100.0, 0, {"n": 1024, "rows": 100}
    )
    chain = WorkItem("elementwise", "c", 1, 10_125_000.0, 1_000_000)
    terms = workload_terms(Workload((transform,), 0, 0), prices)
    assert terms.compute_ns == pytest.approx(51_200.0)
    terms = workload_terms(Workload((chain,), 0, 0), prices)
    assert terms.compute_ns + terms.traffic_ns == pytest.approx(110_000.0)


def test_calibrated_models_charge_nothing_for_views() -> None:
    """A chain of views costs nothing; the seed charges each."""
    model = WgpuCostModel.from_record(
        calibration_record(*TRANSFER_POINTS, *KERNEL_POINTS), Device.GPU
    )

    def chain(views: int) -> Graph:
        graph = Graph()
        x = graph.exp(graph.input("x", (64, 64)))
        for _ in range(views):
            x = graph.transpose(x, (1, 0))
        graph.set_outputs([x])
        return graph

    assert estimate_graph_cost(chain(9), model) == estimate_graph_cost(chain(1), model)
    seed = WgpuCostModel.seed()
    assert estimate_graph_cost(chain(9), seed) > estimate_graph_cost(chain(1), seed)


def test_calibrated_gate_accepts_any_gain() -> None:
    model = WgpuCostModel.from_record(
        calibration_record(*TRANSFER_POINTS, *KERNEL_POINTS), Device.GPU
    )
    gate = IoFusionGate.calibrated(model)
    assert (gate.min_gain_ns, gate.host_thunk_penalty_ns) == (0.0, 0.0)
    assert gate.dispatch_ns == 2_000.0
    assert not gate.unified_memory
    assert gate.source == "calibrated"


def synthetic_record(
    point_kind: str, weights: dict[str, float], *fixed_points: MeasuredPoint
) -> Calibration:
    """Return a record whose Welch times are known sums of the model's columns."""
    points = []
    batches = ((1, 8), (16, 0), (16, 4), (300, 8), (300, 0))
    for n, segments, (rows, k) in product((64, 128, 512, 2048), (1, 2, 6), batches):
        size = {"n": n, "segments": segments, "rows": rows, "k": k}
        welch_size = WelchSize.from_mapping(size)
        ns = weighted_sum(weights, welch_size)
        if fixed_points:
            ns += (
                WelchModel(calibration_record(*fixed_points))
                ._latency_terms(welch_size)
                .total_ns
            )
        points.append(MeasuredPoint(point_kind, size, ns))
    return calibration_record(*fixed_points, *points)


def test_welch_model_recovers_synthetic_weights() -> None:
    """A model of exact data predicts between and beyond its sizes, with a tiny
    error.
    """
    weights = {"a call": 40.0, "transforms": 0.2, "bins": 3.0, "latency": 1.0}
    model = WelchModel(synthetic_record("welch_host", weights), "welch_host")
    assert model.error < 1e-6
    size = WelchSize(1024, 4, 5000, 8, 2560)
    want = weighted_sum(weights, size)
    assert model.terms(size).total_ns == pytest.approx(want, rel=1e-4)


def test_latencies_are_used_as_measured() -> None:
    """Separately measured latencies have terms of their own."""
    weights = {"a call": 50.0, "transforms": 0.1}
    model = WelchModel(
        synthetic_record("welch_fused", weights, *TRANSFER_POINTS), "welch_fused"
    )
    terms = model.terms(WelchSize(256, 8, 100, 16, 1152))
    assert terms.sync_ns == 100_000.0
    assert terms.upload_ns == model.latency.upload.ns_at(4 * 100 * 1152)
    assert terms.readback_ns == model.latency.readback.ns_at(100 * 16 * 8)
    assert terms.dispatch_ns == pytest.approx(2_000.0 + 50_000.0, rel=1e-3)
    assert (terms.launches, terms.syncs) == (1, 1)


def test_block_terms_include_spectrum_readback_and_host_search() -> None:
    device = WelchModel(
        synthetic_record("welch_fused", {"transforms": 0.1}, *TRANSFER_POINTS)
    )
    host = WelchModel(
        synthetic_record("welch_host", {"a call": 40.0, "bins": 9.0, "searched": 2.0}),
        "welch_host",
    )
    size = WelchSize(256, 8, 1000, 16, 1152)
    block, fused = block_terms(device, host, size), device.terms(size)
    assert block.readback_ns == device.latency.readback.ns_at(4 * 1000 * 129)
    assert block.readback_ns > fused.readback_ns
    assert block.host_ns == pytest.approx(2.0 * 1000 * 129 + 20_000.0, rel=1e-3)
    assert fused.host_ns == 0.0


@given(st.integers(1, 20_000))
def test_transform_work_of_any_length(n: int) -> None:
    """A transform's work is n log2 n at powers of two, never less, and bounded."""
    work = transform_work(n)
    assert work >= max(1.0, n * math.log2(n) * 0.999)
    padded_length = 1 << (2 * n - 1).bit_length()
    assert work <= max(
        1.0, 3 * max(2, padded_length) * math.log2(max(2, padded_length))
    )
    if n & (n - 1) == 0:
        assert work == pytest.approx(max(1.0, n * math.log2(n)))


def test_assumed_records_are_plausible() -> None:
    """A GPU is slower for one row and faster for many; the CPU needs no transfer."""
    gpu = WelchModel(assumed_gpu(), "welch_fused")
    cpu = WelchModel(assumed_cpu(), "welch_host")

    def predicted_ns(model: WelchModel, rows: int) -> float:
        return model.terms(WelchSize(1024, 8, rows, 16, 4608)).total_ns

    assert predicted_ns(gpu, 1) > predicted_ns(cpu, 1)
    assert predicted_ns(gpu, 4096) < predicted_ns(cpu, 4096)


def test_candidates_are_ranked_by_corrected_predictions() -> None:
    slow = Candidate(Device.GPU, "g", terms=Terms(compute_ns=10.0), correction=3.0)
    quick = Candidate(Device.CPU, "c", terms=Terms(compute_ns=20.0), source="seed")
    blocked = Candidate(Device.MLX, "m", terms=Terms(), blocker="not here")
    assert rank_candidates([blocked, slow, quick]) == (quick, slow, blocked)
    assert blocked.predicted_ns == math.inf
    assert blocked.as_json()["predicted_ns"] is None
    assert json.dumps(slow.as_json())
    text = comparison_text(quick, [blocked, slow, quick])
    assert text == "predicted 20.0 ns (seed); next best: g, 30.0 ns"
    assert comparison_text(quick, [quick, blocked]).endswith("; not on m: not here")


def test_terms_add_up() -> None:
    terms = Terms(2, 1, *range(1, 9))
    assert terms.total_ns == sum(range(1, 9))
    assert len(TIME_FIELDS) == 8
    assert terms.as_json()["total_ns"] == terms.total_ns


def test_record_round_trips_through_json() -> None:
    full_record = dataclasses.replace(
        calibration_record(*TRANSFER_POINTS, *KERNEL_POINTS),
        left_out=("fft: too late",),
        made="now",
        took_s=2.0,
    )
    assert (
        calibration_from_json(json.loads(json.dumps(full_record.as_json())))
        == full_record
    )
