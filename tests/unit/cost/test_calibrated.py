"""Calibrated prices: fits, curves, models and works, on records made up for this."""

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
from rlxweb.cost import (
    Candidate,
    CpuCostModel,
    IoFusionGate,
    Terms,
    WgpuCostModel,
    estimate_graph_cost,
)
from rlxweb.cost.curve import curve_of, interpolated
from rlxweb.cost.fit import fit_relative
from rlxweb.cost.kinds import assumed_cpu, assumed_gpu
from rlxweb.cost.price import Prices, terms_of
from rlxweb.cost.record import Calibration, Point
from rlxweb.cost.record_json import from_json
from rlxweb.cost.welch_model import (
    COLUMNS,
    WelchModel,
    WelchSize,
    block_terms,
    columns,
    transform_work,
)
from rlxweb.cost.work import Item, Work
from rlxweb.decision.candidate import comparison, ranked
from rlxweb.decision.terms import TIMES
from rlxweb.device import Device
from rlxweb.errors import InputError


def weighed(weights: dict[str, float], size: WelchSize) -> float:
    """The sum of the model's columns under these weights."""
    values = zip(COLUMNS, columns(size), strict=True)
    return sum(weights.get(name, 0.0) * value for name, value in values)


def record(*points: Point) -> Calibration:
    return Calibration("gpu", "an engine", "vulkan", "1.0", "0.1.0", "m", points)


TRIPS = (
    Point("submit", {}, 100_000.0),
    Point("dispatch", {}, 2_000.0),
    Point("upload", {"bytes": 1_000}, 1_000.0),
    Point("upload", {"bytes": 1_001_000}, 101_000.0),
    Point("readback", {"bytes": 1_000}, 2_000.0),
    Point("readback", {"bytes": 1_001_000}, 202_000.0),
)
KERNELS = (
    Point("copy", {"bytes": 1_000_000}, 10_000.0),
    Point("copy", {"bytes": 100_000_000}, 2_000_000.0),
    Point("matmul", {"m": 100, "k": 100, "n": 100}, 20_000.0),
    Point("matmul", {"m": 1000, "k": 1000, "n": 1000}, 2_000_000.0),
    Point("fft", {"n": 1024, "rows": 100}, 51_200.0),
    Point("elementwise", {"bytes": 1_000_000, "flops": 10_125_000}, 110_000.0),
)


@given(
    weights=st.lists(st.sampled_from([0.0, 0.5, 3.0, 40.0]), min_size=2, max_size=4),
    seed=st.integers(0, 99),
)
def test_a_fit_finds_weights_that_were_there(weights: list[float], seed: int) -> None:
    """Exact data of non-negative weights is reproduced, and the error says so."""
    draw = np.random.default_rng(seed)
    table = draw.uniform(0.1, 10.0, (12, len(weights)))
    values = table @ weights + 0.5
    got = fit_relative(table, values, known=0.5)
    if any(weights):
        assert table @ got.weights + 0.5 == pytest.approx(values, rel=1e-6)
        assert got.error < 1e-6
    assert min(got.weights) >= 0


@given(seed=st.integers(0, 200), size=st.integers(2, 5))
def test_a_fit_is_the_best_of_its_kind(seed: int, size: int) -> None:
    """No small step inside the allowed weights makes it better."""
    draw = np.random.default_rng(seed)
    table = draw.uniform(0.0, 1.0, (15, size))
    values = draw.uniform(0.5, 2.0, 15)
    got = np.array(fit_relative(table, values).weights)

    def miss(weights: np.ndarray) -> float:
        return float(np.sum(((table @ weights - values) / values) ** 2))

    best = miss(got)
    for _ in range(50):
        other = np.maximum(got + draw.normal(0, 0.05, size), 0.0)
        assert miss(other) >= best - 1e-9


def test_the_error_is_that_of_points_left_out() -> None:
    """Noise of ten percent is owned up to."""
    draw = np.random.default_rng(0)
    table = draw.uniform(1.0, 10.0, (40, 2))
    values = table @ [3.0, 5.0] * draw.normal(1.0, 0.1, 40)
    assert 0.05 < fit_relative(table, values).error < 0.2


def test_transfers_between_and_beyond_the_measured_sizes() -> None:
    curve = curve_of(p for p in TRIPS if p.what == "upload")
    assert curve.at(0) == 0.0
    assert curve.at(10) == curve.at(1_000) == 1_000.0
    assert curve.at(501_000) == pytest.approx(51_000.0)
    assert curve.at(2_001_000) == pytest.approx(201_000.0)
    assert curve_of([]).at(1e9) == 0.0


@given(st.lists(st.tuples(st.integers(1, 10**8), st.floats(1, 1e9)), min_size=1))
def test_more_bytes_never_cost_less(pairs: list[tuple[int, float]]) -> None:
    """A curve through noisy points never makes more bytes cheaper."""
    curve = curve_of(Point("upload", {"bytes": n}, ns) for n, ns in pairs)
    sizes = sorted({s * f // 2 for s, _ in pairs for f in (1, 2, 3, 9)})
    times = [curve.at(size) for size in sizes]
    assert all(b >= a * (1 - 1e-12) for a, b in pairwise(times))


def test_rates_are_straight_in_log_log_and_flat_outside() -> None:
    line = interpolated([(1000, 100.0), (10, 0.5), (10, 1.0)])
    assert line.at(100) == pytest.approx(10.0)
    assert (line.at(1), line.at(10**9)) == (1.0, 100.0)


def test_attributes_of_a_measured_device() -> None:
    model = WgpuCostModel.from_record(record(*TRIPS, *KERNELS), Device.VULKAN)
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


def test_what_was_not_measured_is_the_seeds_and_said() -> None:
    model = WgpuCostModel.from_record(record(TRIPS[0]), Device.GPU)
    assert model.memory_bw == WgpuCostModel.seed().memory_bw
    assert set(model.assumed) == {
        "sgemm_gflops",
        "dispatch_overhead_ns",
        "memory_bw",
        "host_readback_bw",
    }


def test_the_cpu_moves_nothing() -> None:
    """No round trip, no read-back: results lie where they are read."""
    model = CpuCostModel.from_record(assumed_cpu(), Device.CPU)
    assert model.round_trip_overhead_ns == 0.0
    assert model.unified_memory


def test_flops_in_place_of_gigaflops_are_refused() -> None:
    bad = record(Point("matmul", {"m": 1000, "k": 1000, "n": 1000}, 1.0))
    with pytest.raises(InputError, match="nothing passes 1e"):
        WgpuCostModel.from_record(bad, Device.GPU)


def test_each_term_is_what_its_points_say() -> None:
    """Two kernels, an upload, a read-back: every term by hand."""
    prices = Prices(record(*TRIPS, *KERNELS))
    size = {"batch": 1, "m": 100, "k": 100, "n": 100}
    multiplied = Item("matmul", "a", 1, 2e6, 120_000, size)
    moved = Item("copy", "b", 2, 0.0, 1_000_000)
    terms = terms_of(Work((multiplied, moved), 1_000, 1_001_000), prices)
    assert (terms.launches, terms.syncs) == (3, 1)
    assert (terms.dispatch_ns, terms.sync_ns) == (6_000.0, 100_000.0)
    assert (terms.upload_ns, terms.readback_ns) == (1_000.0, 202_000.0)
    assert terms.compute_ns == pytest.approx(20_000.0)
    assert terms.traffic_ns == pytest.approx(10_000.0)
    assert terms.total_ns == pytest.approx(339_000.0)


def test_transforms_and_chains_use_their_own_rates() -> None:
    prices = Prices(record(*TRIPS, *KERNELS))
    transform = Item("fft", "f", 1, 5 * 1024 * 10 * 100.0, 0, {"n": 1024, "rows": 100})
    chain = Item("elementwise", "c", 1, 10_125_000.0, 1_000_000)
    terms = terms_of(Work((transform,), 0, 0), prices)
    assert terms.compute_ns == pytest.approx(51_200.0)
    terms = terms_of(Work((chain,), 0, 0), prices)
    assert terms.compute_ns + terms.traffic_ns == pytest.approx(110_000.0)


def test_calibrated_graphs_pay_no_views_and_one_traffic_term() -> None:
    """A chain of views costs nothing; the seed charges each."""
    model = WgpuCostModel.from_record(record(*TRIPS, *KERNELS), Device.GPU)

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


def test_a_calibrated_gate_takes_any_gain() -> None:
    model = WgpuCostModel.from_record(record(*TRIPS, *KERNELS), Device.GPU)
    gate = IoFusionGate.calibrated(model)
    assert (gate.min_gain_ns, gate.host_thunk_penalty_ns) == (0.0, 0.0)
    assert gate.dispatch_ns == 2_000.0
    assert not gate.unified_memory
    assert gate.source == "calibrated"


def made_up(how: str, weights: dict[str, float], *fixed: Point) -> Calibration:
    """A record whose Welch times are known sums of the model's columns."""
    points = []
    batches = ((1, 8), (16, 0), (16, 4), (300, 8), (300, 0))
    for n, segments, (rows, k) in product((64, 128, 512, 2048), (1, 2, 6), batches):
        size = {"n": n, "segments": segments, "rows": rows, "k": k}
        one = WelchSize.of(size)
        ns = weighed(weights, one)
        if fixed:
            ns += WelchModel(record(*fixed))._fixed(one).total_ns
        points.append(Point(how, size, ns))
    return record(*fixed, *points)


def test_a_welch_model_finds_what_was_put_in() -> None:
    """A model of exact data fits between and beyond its sizes, with a tiny error."""
    weights = {"a call": 40.0, "transforms": 0.2, "bins": 3.0, "latency": 1.0}
    model = WelchModel(made_up("welch_host", weights), "welch_host")
    assert model.error < 1e-6
    size = WelchSize(1024, 4, 5000, 8, 2560)
    want = weighed(weights, size)
    assert model.terms(size).total_ns == pytest.approx(want, rel=1e-4)


def test_trips_are_taken_as_measured() -> None:
    """What was measured apart stands in terms of its own."""
    weights = {"a call": 50.0, "transforms": 0.1}
    model = WelchModel(made_up("welch_fused", weights, *TRIPS), "welch_fused")
    terms = model.terms(WelchSize(256, 8, 100, 16, 1152))
    assert terms.sync_ns == 100_000.0
    assert terms.upload_ns == model.trips.upload.at(4 * 100 * 1152)
    assert terms.readback_ns == model.trips.readback.at(100 * 16 * 8)
    assert terms.dispatch_ns == pytest.approx(2_000.0 + 50_000.0, rel=1e-3)
    assert (terms.launches, terms.syncs) == (1, 1)


def test_a_block_brings_the_spectrum_back_and_searches_on_the_host() -> None:
    device = WelchModel(made_up("welch_fused", {"transforms": 0.1}, *TRIPS))
    host = WelchModel(
        made_up("welch_host", {"a call": 40.0, "bins": 9.0, "searched": 2.0}),
        "welch_host",
    )
    size = WelchSize(256, 8, 1000, 16, 1152)
    block, fused = block_terms(device, host, size), device.terms(size)
    assert block.readback_ns == device.trips.readback.at(4 * 1000 * 129)
    assert block.readback_ns > fused.readback_ns
    assert block.host_ns == pytest.approx(2.0 * 1000 * 129 + 20_000.0, rel=1e-3)
    assert fused.host_ns == 0.0


@given(st.integers(1, 20_000))
def test_the_work_of_any_length(n: int) -> None:
    """A transform's work is n log2 n at powers of two, never less, and bounded."""
    work = transform_work(n)
    assert work >= max(1.0, n * math.log2(n) * 0.999)
    power = 1 << (2 * n - 1).bit_length()
    assert work <= max(1.0, 3 * max(2, power) * math.log2(max(2, power)))
    if n & (n - 1) == 0:
        assert work == pytest.approx(max(1.0, n * math.log2(n)))


def test_assumed_records_are_sane() -> None:
    """A GPU is slower for one row and faster for many; the CPU needs no trip."""
    gpu = WelchModel(assumed_gpu(), "welch_fused")
    cpu = WelchModel(assumed_cpu(), "welch_host")

    def ns(model: WelchModel, rows: int) -> float:
        return model.terms(WelchSize(1024, 8, rows, 16, 4608)).total_ns

    assert ns(gpu, 1) > ns(cpu, 1)
    assert ns(gpu, 4096) < ns(cpu, 4096)


def test_candidates_are_ranked_by_corrected_predictions() -> None:
    slow = Candidate(Device.GPU, "g", terms=Terms(compute_ns=10.0), correction=3.0)
    quick = Candidate(Device.CPU, "c", terms=Terms(compute_ns=20.0), source="seed")
    shut = Candidate(Device.MLX, "m", terms=Terms(), blocker="not here")
    assert ranked([shut, slow, quick]) == (quick, slow, shut)
    assert shut.predicted_ns == math.inf
    assert shut.as_json()["predicted_ns"] is None
    assert json.dumps(slow.as_json())
    said = comparison(quick, [shut, slow, quick])
    assert said == "predicted 20.0 ns (seed); next, g, 30.0 ns"
    assert comparison(quick, [quick, shut]).endswith("; not on m: not here")


def test_terms_add_up() -> None:
    terms = Terms(2, 1, *range(1, 9))
    assert terms.total_ns == sum(range(1, 9))
    assert len(TIMES) == 8
    assert terms.as_json()["total_ns"] == terms.total_ns


def test_a_record_goes_through_json() -> None:
    one = dataclasses.replace(
        record(*TRIPS, *KERNELS), left_out=("fft: too late",), made="now", took_s=2.0
    )
    assert from_json(json.loads(json.dumps(one.as_json()))) == one
