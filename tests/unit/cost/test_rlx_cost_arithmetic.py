"""Cost arithmetic of RLX: constants, node prices, gates, golden numbers.

The expected values are restated here as plain numbers from the formulas; none of them
is computed by the code under test.
"""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlxweb import Graph
from rlxweb.core.device import Device
from rlxweb.core.errors import UsageError
from rlxweb.cost import (
    BackendCostModel,
    CpuCostModel,
    CudaCostModel,
    DiscreteGpuCostModel,
    FusionBenefit,
    FusionTarget,
    GraphIoProfile,
    IoFusionGate,
    MetalCostModel,
    MlxCostModel,
    RocmCostModel,
    WgpuCostModel,
    estimate_graph_cost,
    estimate_graph_cost_with_io,
    fusion_benefit,
    io_fusion_gate_for_target,
    pick_best_device,
    profile_graph_io,
    should_fuse_with_target,
)
from tests.unit.rlx.reference_cost_formulas import FUSION_GATES, gate_score_ns

CONSTANTS = [
    (CpuCostModel.seed(), 200, 300, 3_000, 30, 30, False),
    (CpuCostModel.seed(apple=True), 1000, 500, 5_000, 50, 50, False),
    (CudaCostModel.seed(), 12_000, 3_000, 35_000, 900, 900, False),
    (RocmCostModel.seed(), 10_000, 3_000, 40_000, 800, 800, False),
    (WgpuCostModel.seed(), 2_500, 5_000, 80_000, 120, 120, False),
    (DiscreteGpuCostModel.seed(), 800, 2_000, 20_000, 800, 50, False),
    (MetalCostModel.seed(roundtrip_ns=7.0), 1000, 2_000, 7, 200, 200, True),
    (MlxCostModel.seed(roundtrip_ns=9.0), 1000, 2_000, 9, 200, 200, False),
]


def matmul_graph(n: int = 4) -> Graph:
    graph = Graph("product")
    graph.set_outputs([graph.input("a", (n, n)) @ graph.input("b", (n, n))])
    return graph


@pytest.mark.parametrize(
    (
        "model",
        "gflops",
        "dispatch",
        "round_trip",
        "memory_bw",
        "readback_bw",
        "unified",
    ),
    CONSTANTS,
)
def test_the_published_constants(
    model: BackendCostModel,
    gflops: float,
    dispatch: float,
    round_trip: float,
    memory_bw: float,
    readback_bw: float,
    unified: bool,
) -> None:
    assert model.sgemm_gflops(512, 512, 512) == gflops
    assert model.dispatch_overhead_ns == dispatch
    assert model.round_trip_overhead_ns == round_trip
    assert (model.memory_bw, model.host_readback_bw) == (memory_bw, readback_bw)
    assert model.unified_memory is unified
    assert model.num_threads >= 1
    assert model.mode == "seed"
    assert model.calibration is None


def test_rates_depend_on_the_shape_as_in_rlx() -> None:
    """MLX has a small and a large kernel; an empty product has no rate."""
    mlx = MlxCostModel.seed(small_gflops=5.0, large_gflops=50.0)
    assert mlx.sgemm_gflops(32, 32, 31) == 5.0
    assert mlx.sgemm_gflops(32, 32, 32) == 50.0
    for apple in (False, True):
        assert CpuCostModel.seed(apple).sgemm_gflops(0, 4, 4) == 0.0
    assert CpuCostModel(sgemm_gflops=9.0).sgemm_gflops(4, 0, 4) == 0.0


@pytest.mark.parametrize(
    ("model", "gflops"),
    [
        (MetalCostModel, 1_000.0),
        (MlxCostModel, 50.0),
        (CudaCostModel, 12_000.0),
        (RocmCostModel, 10_000.0),
        (WgpuCostModel, 2_500.0),
        (DiscreteGpuCostModel, 800.0),
    ],
)
def test_an_empty_product_has_the_usual_rate_on_a_gpu(
    model: type[BackendCostModel], gflops: float
) -> None:
    """An empty product has the usual rate, except on the CPU, whose rate is 0."""
    for shape in ((0, 4, 4), (4, 0, 4), (4, 4, 0)):
        assert model.seed().sgemm_gflops(*shape) == gflops


def test_any_attribute_can_be_overridden() -> None:
    model = WgpuCostModel(device=Device.VULKAN, memory_bw=300.0, sgemm_gflops=7.0)
    assert model.device is Device.VULKAN
    assert model.memory_bw == model.host_readback_bw == 300.0
    assert model.sgemm_gflops(1, 1, 1) == 7.0
    assert model.dispatch_overhead_ns == 5_000.0
    by_shape = CudaCostModel(sgemm_gflops=lambda m, k, n: float(m))
    assert by_shape.sgemm_gflops(3, 1, 1) == 3.0
    assert WgpuCostModel(memory_bw=300.0) == WgpuCostModel(memory_bw=300.0)
    assert WgpuCostModel.seed("gl").device is Device.OPENGL


def test_bad_constants_are_refused() -> None:
    for value in (-1.0, math.nan, math.inf):
        with pytest.raises(UsageError, match="memory_bw"):
            CpuCostModel(memory_bw=value)
    with pytest.raises(UsageError, match="sgemm_gflops"):
        CpuCostModel(sgemm_gflops=-3)
    with pytest.raises(UsageError, match="is missing"):
        BackendCostModel()


def test_golden_numbers_of_a_small_product() -> None:
    """A 4 x 4 product costs the published numbers, and the CPU wins."""
    graph = matmul_graph()
    io = profile_graph_io(graph)
    for model, seed, with_io in (
        (CpuCostModel.seed(), 3300.6368, 3310.7701),
        (CpuCostModel.seed(apple=True), 5500.1279, 5506.2079),
        (WgpuCostModel.seed(), 85_000.0512, 85_002.5845),
        (CudaCostModel.seed(), 38_000.0107, 38_000.3484),
    ):
        assert estimate_graph_cost(graph, model) == pytest.approx(seed, abs=5e-5)
        got = estimate_graph_cost_with_io(graph, model, io)
        assert got == pytest.approx(with_io, abs=7e-5)
    models = [CpuCostModel.seed(), CudaCostModel.seed(), WgpuCostModel.seed()]
    assert pick_best_device(graph, models) is Device.CPU


@given(
    m=st.integers(1, 60),
    k=st.integers(1, 60),
    n=st.integers(1, 60),
    batch=st.integers(1, 5),
)
def test_products_are_priced_by_arithmetic(m: int, k: int, n: int, batch: int) -> None:
    """Products take 2 m k n over rate + 1; m takes the batch in; leaves are free."""
    graph = Graph()
    a, b = graph.input("a", (batch, m, k)), graph.param("b", (batch, k, n))
    graph.set_outputs([a @ b])
    rows = batch * m * n // n
    inner = batch * m * k // rows
    want = 80_000 + 5_000 + 2 * rows * inner * n / 2501
    got = estimate_graph_cost(graph, WgpuCostModel.seed())
    assert got == pytest.approx(want, rel=1e-12)


def test_attention_is_priced_by_flops_and_the_rest_by_bytes() -> None:
    """Attention is priced as two products over seq² scores; the rest is priced by
    bytes.
    """
    graph = Graph()
    q = graph.input("q", (2, 3, 5, 4))
    out = graph.apply("attention", q, q, q, num_heads=3, head_dim=4)
    graph.set_outputs([graph.reshape(graph.exp(out), (120,))])
    model = CpuCostModel.seed()
    attention = 2 * 3 * 25 * 4 * 2 / 201 + 300
    byte_cost = 120 * 4 / 30 + 300
    want = 3_000 + attention + byte_cost + byte_cost  # exp, and the reshape as well
    assert estimate_graph_cost(graph, model) == pytest.approx(want, rel=1e-12)


def test_the_dtype_does_not_matter_to_the_seed() -> None:
    """RLX counts 4 bytes an element for every dtype."""
    costs = []
    for dtype in ("f32", "f64", "i32"):
        graph = Graph()
        graph.set_outputs([graph.neg(graph.input("x", (1000,), dtype))])
        costs.append(estimate_graph_cost(graph, CpuCostModel.seed()))
    assert costs[0] == costs[1] == costs[2]


def test_a_graph_is_summed_node_by_node() -> None:
    """A graph is summed node by node from the round trip on, to the last bit."""
    graph = Graph()
    x = graph.input("x", (900,))
    for _ in range(37):
        x = graph.exp(x)
    graph.set_outputs([x])
    model = CpuCostModel(memory_bw=30.0, dispatch_overhead_ns=0.1)
    node_cost, want, nodes_only = 900 * 4 / 30.0 + 0.1, 3_000.0, 0.0
    for _ in range(37):
        want += node_cost
        nodes_only += node_cost
    assert estimate_graph_cost(graph, model) == want
    # Sums begun at 0, with and without compensation, would be told from it.
    assert want not in (3_000.0 + nodes_only, 3_000.0 + math.fsum([node_cost] * 37))


def test_bandwidth_below_one_gigabyte_counts_as_one() -> None:
    graph = Graph()
    graph.set_outputs([graph.exp(graph.input("x", (1000,)))])
    model = CpuCostModel(memory_bw=0.25)
    assert estimate_graph_cost(graph, model) == 3_000 + 300 + 4_000


def test_first_of_equal_costs_wins_and_nan_never() -> None:
    graph = matmul_graph()
    twins = [WgpuCostModel.seed("vulkan"), WgpuCostModel.seed("opengl")]
    assert pick_best_device(graph, twins) is Device.VULKAN
    assert pick_best_device(graph, []) is Device.CPU
    nan_model = CudaCostModel(sgemm_gflops=lambda m, k, n: math.nan)
    assert pick_best_device(graph, [nan_model, twins[0]]) is Device.VULKAN


BEFORE = GraphIoProfile(3, 0, 33_554_432, 184_549_376)
AFTER = GraphIoProfile(4, 1, 1_048_576, 219_152_384)


def test_the_hand_written_profiles() -> None:
    """A Metal-like gate fuses, a wgpu-like one rejects, at the published scores."""
    for target, score, fuses in (
        (FusionTarget.METAL, 30_327_340.96, True),
        (FusionTarget.WGPU, -24_566_383.68, False),
    ):
        gate = io_fusion_gate_for_target(target)
        assert gate.score_ns(BEFORE, AFTER) == pytest.approx(score, abs=0.005)
        assert should_fuse_with_target(target, BEFORE, AFTER) is fuses


def test_a_benefit_scores_like_its_profiles() -> None:
    """A gate penalises a benefit's added waits; the benefit itself does not."""
    benefit = fusion_benefit(BEFORE, AFTER)
    for target in FusionTarget:
        gate = io_fusion_gate_for_target(target)
        assert gate.score_ns(benefit) == gate.score_ns(BEFORE, AFTER)
        assert gate.score_ns(benefit=benefit) == gate.score_ns(benefit)
        assert gate.should_fuse(benefit) is gate.should_fuse(BEFORE, AFTER)
    with pytest.raises(UsageError, match="a FusionBenefit or two GraphIoProfiles"):
        gate.score_ns(BEFORE)
    with pytest.raises(UsageError, match="a FusionBenefit or two GraphIoProfiles"):
        gate.should_fuse(benefit, AFTER)
    prices = (3_000.0, 30_000.0, 100.0, 40.0, False)
    gain = -3_000 - 30_000 - 34_603_008 / 100 + 32_505_856 / 40
    assert benefit.score_ns(*prices) == pytest.approx(gain, rel=1e-12)
    assert benefit.should_fuse(*prices, min_gain_ns=0.0)
    assert benefit.should_fuse(*prices, benefit.score_ns(*prices))
    assert not benefit.should_fuse(*prices, benefit.score_ns(*prices) + 1)


def test_rlx_names_of_fields_are_accepted() -> None:
    """Field names of RLX can be read and passed as keywords."""
    model = WgpuCostModel(roundtrip_overhead_ns=7.0)
    assert model.roundtrip_overhead_ns == model.round_trip_overhead_ns == 7.0
    assert model == WgpuCostModel(round_trip_overhead_ns=7.0)
    with pytest.raises(TypeError, match="is an alias of round_trip_overhead_ns="):
        WgpuCostModel(roundtrip_overhead_ns=7.0, round_trip_overhead_ns=7.0)
    gate = io_fusion_gate_for_target(FusionTarget.CUDA)
    assert gate.roundtrip_ns == gate.round_trip_ns == 20_000.0
    rebuilt_gate = IoFusionGate(
        dispatch_ns=2e3,
        roundtrip_ns=2e4,
        memory_bw=800.0,
        host_readback_bw=50.0,
        unified_memory=False,
        host_thunk_penalty_ns=15e6,
        min_gain_ns=5e3,
    )
    assert rebuilt_gate == gate
    benefit = FusionBenefit(
        launches_saved=1,
        sync_points_saved=2,
        host_readback_bytes_saved=0,
        device_traffic_bytes_saved=0,
    )
    assert benefit.launches_saved == benefit.kernel_launches_saved == 1
    by_name = {"memory_bw": 1.0, "host_readback_bw": 1.0, "unified_memory": False}
    assert benefit.score_ns(dispatch_ns=10.0, roundtrip_ns=100.0, **by_name) == 210.0


def test_the_first_benefit_scenario() -> None:
    benefit = fusion_benefit(
        GraphIoProfile(2, 0, 8_192, 1000), GraphIoProfile(1, 0, 512, 1000)
    )
    assert benefit.kernel_launches_saved == 1
    assert benefit.host_readback_bytes_saved == 7_680
    assert benefit.sync_points_saved == benefit.device_traffic_bytes_saved == 0


COUNTS = st.integers(0, 10**9)
PROFILE = st.builds(
    GraphIoProfile, st.integers(0, 99), st.integers(0, 9), COUNTS, COUNTS
)


@given(before=PROFILE, after=PROFILE, device=st.sampled_from(Device))
def test_gates_follow_the_published_formula(
    before: GraphIoProfile, after: GraphIoProfile, device: Device
) -> None:
    want = gate_score_ns(
        device.label,
        before.kernel_launches - after.kernel_launches,
        before.sync_points - after.sync_points,
        before.host_output_bytes - after.host_output_bytes,
        before.device_traffic_bytes - after.device_traffic_bytes,
    )
    gate = io_fusion_gate_for_target(FusionTarget.of(device))
    score, min_gain = gate.score_ns(before, after), FUSION_GATES[device.label][6]
    assert score == pytest.approx(want, rel=1e-9, abs=1e-3)
    assert gate.should_fuse(before, after) == (score >= min_gain)


def test_every_device_has_a_target() -> None:
    wanted = {
        "cpu": "cpu",
        "metal": "metal",
        "mlx": "mlx",
        "ane": "mlx",
        "cuda": "cuda",
        "rocm": "rocm",
        "tpu": "tpu",
        **dict.fromkeys(("gpu", "vulkan", "opengl", "directx", "webgpu"), "wgpu"),
    }
    assert {d.label: FusionTarget.of(d).value for d in Device} == wanted
