"""The Welch cost functions in seed mode: RLX's golden numbers to the last digit, its
own tests, and the words it knows its strategies by.
"""

from __future__ import annotations

import math

import pytest

from rlxweb.cost import CpuCostModel, MetalCostModel, profile_graph_io
from rlxweb.device import Device
from rlxweb.errors import UsageError
from rlxweb.signal import costs
from rlxweb.signal.costs import WelchPeakParams, WelchPeaksStrategy

FAST = WelchPeakParams.fast(256, 16)
NO_MODEL = {Device.GPU: None, Device.CUDA: None, Device.METAL: None}
SEED_CPU, APPLE_CPU = CpuCostModel.seed(), CpuCostModel.seed(apple=True)


def same(got: float, printed: float, digits: int = 2) -> bool:
    """Equal to the last printed digit."""
    return abs(got - printed) <= 0.5000001 * 10**-digits


@pytest.mark.parametrize("batch", [256, 1024, 2048, 4096, 8192])
def test_profiles_per_row(batch: int) -> None:
    """The graphs themselves move what the table says, n 256, S 2, k 16."""
    fft = profile_graph_io(costs.fft_only_graph(batch, 256, 2))
    fused = profile_graph_io(costs.build_welch_peaks_fused_graph(batch, FAST))
    assert (fft.kernel_launches, fft.sync_points) == (3, 0)
    assert (fused.kernel_launches, fused.sync_points) == (4, 1)
    assert (fft.host_output_bytes, fft.device_traffic_bytes) == (
        4096 * batch,
        22_528 * batch,
    )
    assert (fused.host_output_bytes, fused.device_traffic_bytes) == (
        128 * batch,
        26_752 * batch,
    )


GATES = [
    # batch, Metal, wgpu, CUDA, read-back saved
    (256, -995_098.72, -25_018_418.24, -15_003_035.52, 1_015_808),
    (1024, 2_036_105.12, -24_974_672.96, -14_946_142.08, 4_063_232),
    (2048, 6_077_710.24, 113_654.08, 149_715.84, 8_126_464),
    (4096, 14_160_920.48, 230_308.16, 301_431.68, 16_252_928),
    (8192, 30_327_340.96, 463_616.32, 604_863.36, 32_505_856),
]


@pytest.mark.parametrize(("batch", "metal", "wgpu", "cuda", "saved"), GATES)
def test_gate_scores(
    batch: int, metal: float, wgpu: float, cuda: float, saved: int
) -> None:
    """Scores, verdicts and what is saved, for one device of each family."""
    for device, score in (("metal", metal), ("gpu", wgpu), ("cuda", cuda)):
        found = costs.welch_peaks_fusion_gate_breakdown(device, batch, 256, 16)
        assert same(found.score_ns, score)
        assert found.should_fuse_io == (score > 0)
        assert found.readback_saved_bytes == saved
        waits = 0 if batch >= 2048 and device != "metal" else -1
        assert found.sync_points_saved == waits


def test_closed_forms_of_the_scores() -> None:
    """Metal passes first at 509 rows; wgpu and CUDA flip at 2,048 and nowhere else."""
    for batch in (1, 100, 508, 509, 3000):
        found = costs.welch_peaks_fusion_gate_breakdown("metal", batch, 256, 16)
        assert found.score_ns == pytest.approx(3946.88 * batch - 2_005_500, rel=1e-12)
        assert found.should_fuse_io == (batch >= 509)
    for device, slope, fixed in (("gpu", 56.96, 3000), ("cuda", 74.08, 2000)):
        for batch in (2047, 2048, 5000):
            found = costs.welch_peaks_fusion_gate_breakdown(device, batch, 256, 16)
            assert found.should_fuse_io == (batch >= 2048)
            if batch >= 2048:
                want = slope * batch - fixed
                assert found.score_ns == pytest.approx(want, rel=1e-9)


HOST = [
    (32, 26_603.20, 40_299.20, 39_641.92, 58_099.52),
    (256, 191_825.60, 301_393.60, 282_135.36, 429_796.16),
    (512, 380_651.20, 599_787.20, 559_270.72, 854_592.32),
    (1024, 758_302.40, 1_196_574.40, 1_113_541.44, 1_704_184.64),
    (2048, 1_513_604.80, 2_390_148.80, 2_222_082.88, 3_403_369.28),
    (4096, 3_024_209.60, 4_777_297.60, 4_439_165.76, 6_801_738.56),
    (8192, 6_045_419.20, 9_551_595.20, 8_873_331.52, 13_598_477.12),
]


@pytest.mark.parametrize(("batch", "ultra", "fast", "ultra_a", "fast_a"), HOST)
def test_host_estimates(
    batch: int, ultra: float, fast: float, ultra_a: float, fast_a: float
) -> None:
    """The CPU's own times, on both CPU models."""
    for model, one, two in ((SEED_CPU, ultra, fast), (APPLE_CPU, ultra_a, fast_a)):
        found = costs.estimate_welch_peaks_costs("cpu", batch, 256, 16, cpu_model=model)
        assert same(found.ultra_ns, one)
        assert same(found.fast_ns, two)
        assert found.rlx_ns == found.learned_ns == math.inf


ADJUSTED = [
    (1024, 1_379_042.88, 1_320_984.73, 1_296_102.66),
    (2048, 3_119_107.76, 2_887_166.27, 2_787_762.78),
    (4096, 14_970_024.38, 11_594_716.39, 5_969_390.93),
    (8192, 50_746_664.53, 36_514_778.32, 12_729_512.62),
]


@pytest.mark.parametrize(("batch", "metal", "cuda", "wgpu"), ADJUSTED)
def test_adjusted_host_estimates(
    batch: int, metal: float, cuda: float, wgpu: float
) -> None:
    for device, want in (("metal", metal), ("cuda", cuda), ("gpu", wgpu)):
        found = costs.estimate_welch_peaks_costs(device, batch, 256, 16)
        assert same(found.fast_ns, want)
        assert found.ultra_ns == math.inf


def test_adjusted_host_estimates_of_apple_silicon() -> None:
    wants = {"metal": 72_247_341.10, "cuda": 51_985_596.87, "gpu": 18_122_835.24}
    for device, want in wants.items():
        found = costs.estimate_welch_peaks_costs(
            device, 8192, 256, 16, cpu_model=APPLE_CPU
        )
        assert same(found.fast_ns, want)


FALLBACK = [
    # batch, io only, Metal, Gpu, Cuda, block, pick of Metal, on Apple, of Gpu
    (256, 99_458.56, 745_939.20, 499_458.56, 400_000.0, 391_771.75),
    (1024, 229_834.24, 1_723_756.80, 505_635.33, 98_828.72, 1_497_967.00),
    (2048, 403_668.48, 3_027_513.60, 888_070.66, 173_577.45, 2_972_894.00),
    (4096, 751_336.96, 5_635_027.20, 1_652_941.31, 323_074.89, 5_922_748.01),
    (8192, 1_446_673.92, 10_850_054.40, 3_182_682.62, 622_069.79, 11_822_456.01),
]


@pytest.mark.parametrize(("batch", "io", "metal", "gpu", "cuda", "block"), FALLBACK)
def test_devices_without_a_model(
    batch: int, io: float, metal: float, gpu: float, cuda: float, block: float
) -> None:
    """The discrete fallback, which charges every start twice."""
    for device, fused in (("metal", metal), ("gpu", gpu), ("cuda", cuda)):
        got = costs.estimate_fused_graph_ns(batch, FAST, device, models=NO_MODEL)
        assert same(got, fused)
        got = costs.estimate_block_welch_ns(batch, 256, 16, device, models=NO_MODEL)
        assert same(got, block)
        assert costs.welch_peaks_fusion_compute_floor_ok(
            device, batch, 256, 16, models=NO_MODEL
        )
    assert same(metal / 7.5, io)


PICKS = {256: "fast", 1024: "fast", 2048: "rlx", 4096: "rlx", 8192: "rlx"}


@pytest.mark.parametrize("batch", PICKS)
@pytest.mark.parametrize("device", ["metal", "gpu", "cuda"])
def test_picks_of_devices_without_a_model(device: str, batch: int) -> None:
    want = costs.parse_welch_peaks_strategy(PICKS[batch])
    got = costs.pick_welch_peaks_strategy(device, batch, 256, 16, models=NO_MODEL)
    assert got is want


def test_metal_at_1024_is_decided_by_the_cpu_model() -> None:
    """Fused on an Apple CPU model, fast on the other: 1.379 ms beat 1.724 ms."""
    pick = costs.pick_welch_peaks_strategy
    assert pick("metal", 1024, 256, 16) is WelchPeaksStrategy.FAST_STREAMING
    apple = pick("metal", 1024, 256, 16, cpu_model=APPLE_CPU)
    assert apple is WelchPeaksStrategy.RLX_COMPILED


DEFAULTS = [
    ("gpu", 256, 673_730.13, 461_353.86, "fast"),
    ("gpu", 1024, 1_220_825.17, 1_640_215.42, "fast"),
    ("gpu", 2048, 2_045_650.35, 3_212_030.85, "rlx"),
    ("gpu", 4096, 3_695_300.69, 6_355_661.70, "rlx"),
    ("gpu", 8192, 6_994_601.39, 12_642_923.39, "rlx"),
    ("cuda", 2048, 78_250.89, 2_722_745.45, "rlx"),
    ("cuda", 8192, 207_223.55, 10_795_941.79, "rlx"),
    ("rocm", 8192, 233_019.00, 10_834_354.51, "rlx"),
]


@pytest.mark.parametrize(("device", "batch", "fused", "block", "pick"), DEFAULTS)
def test_devices_with_default_constants(
    device: str, batch: int, fused: float, block: float, pick: str
) -> None:
    assert same(costs.estimate_fused_graph_ns(batch, FAST, device), fused)
    assert same(costs.estimate_block_welch_ns(batch, 256, 16, device), block)
    got = costs.pick_welch_peaks_strategy(device, batch, 256, 16)
    assert got is costs.parse_welch_peaks_strategy(pick)


METAL = [
    (1024, 3_740_323.20, 1_558_935.45, True),
    (8192, 13_752_585.60, 11_685_243.60, False),
]


@pytest.mark.parametrize(("batch", "fused", "block", "floor"), METAL)
def test_a_real_metal_model(
    batch: int, fused: float, block: float, floor: bool
) -> None:
    """With 150 us of round trip the fused graph misses the floor at 8,192 rows."""
    models = {Device.METAL: MetalCostModel.seed(roundtrip_ns=150_000.0)}
    got = costs.estimate_fused_graph_ns(batch, FAST, "metal", models=models)
    assert same(got, fused)
    got = costs.estimate_block_welch_ns(batch, 256, 16, "metal", models=models)
    assert same(got, block)
    ok = costs.welch_peaks_fusion_compute_floor_ok(
        "metal", batch, 256, 16, models=models
    )
    assert ok is floor
    pick = costs.pick_welch_peaks_strategy("metal", batch, 256, 16, models=models)
    assert pick is WelchPeaksStrategy.FAST_STREAMING


@pytest.mark.parametrize(("batch", "us"), [(8192, 86.7), (4096, 41.4), (2048, 18.8)])
def test_the_round_trip_at_which_metal_fuses(batch: int, us: float) -> None:
    """The floor passes below this round trip and not above it."""
    for change, passes in ((-0.1, True), (0.1, False)):
        models = {Device.METAL: MetalCostModel.seed(roundtrip_ns=1e3 * (us + change))}
        assert (
            costs.welch_peaks_fusion_compute_floor_ok(
                "metal", batch, 256, 16, models=models
            )
            is passes
        )


def test_small_batches_and_the_cpu_take_ultra() -> None:
    ultra = WelchPeaksStrategy.ULTRA_FAST
    for device in Device:
        for batch in (1, 32, 128):
            assert costs.pick_welch_peaks_strategy(device, batch, 256, 16) is ultra
    for batch in (32, 512, 8192):
        assert costs.pick_welch_peaks_strategy("cpu", batch, 256, 16) is ultra


def test_metal_and_gpu_at_8192_rows_are_fused() -> None:
    rlx = WelchPeaksStrategy.RLX_COMPILED
    for device in ("metal", "gpu"):
        assert costs.welch_peaks_io_fusion_gate(device, 8192, 256, 16)
        assert costs.pick_welch_peaks_strategy(device, 8192, 256, 16) is rlx
        assert not costs.welch_peaks_io_fusion_gate(device, 256, 256, 16)
    for batch in (1024, 4096):
        assert costs.welch_peaks_io_fusion_gate("metal", batch, 256, 16)
    found = costs.welch_peaks_fusion_gate_breakdown("gpu", 8192, 256, 16)
    assert found.readback_saved_bytes > 0
    assert found.sync_points_saved == 0
    assert costs.fused_welch_peaks_auto_viable("gpu")
    assert not costs.fused_welch_peaks_auto_viable("cpu")
    assert not costs.fused_welch_peaks_auto_viable("tpu")
    cuda = costs.welch_peaks_fusion_gate_breakdown("cuda", 8192, 256, 16)
    assert cuda.should_fuse
    assert cuda.sync_points_saved == 0


def test_fused_brings_back_far_less() -> None:
    """Host bytes: as many as the CPU way's, and a 32nd of the spectrum's."""
    fused = profile_graph_io(costs.build_welch_peaks_fused_graph(8192, FAST))
    host = costs.host_fft_peaks_io_profile(8192, FAST)
    spectrum = profile_graph_io(costs.fft_only_graph(8192, 256, 2))
    assert fused.host_output_bytes == host.host_output_bytes == 1_048_576
    assert spectrum.host_output_bytes == 33_554_432


def test_useful_bytes_and_bandwidth() -> None:
    touched = costs.useful_bytes_touched(32, FAST)
    assert touched == 69_632
    assert costs.algorithm_bandwidth_gbps(touched, 1.0) == pytest.approx(0.069632)
    assert costs.algorithm_bandwidth_gbps(touched, 0.0) == 0.0


def test_presets() -> None:
    """Segments, hop and frame of the three presets, and k at least 1."""
    one, two, all_ = (
        WelchPeakParams.ultra_fast(256, 0),
        FAST,
        WelchPeakParams.reference(256, 16),
    )
    assert (one.n_segments, two.n_segments, all_.n_segments) == (1, 2, 8)
    assert [p.frame_length for p in (one, two, all_)] == [256, 384, 1152]
    assert (one.k, two.hop, two.n_bins) == (1, 128, 129)


def test_strategy_names() -> None:
    """RLX's spellings, whatever the case, the spaces or the dashes."""
    names = {
        WelchPeaksStrategy.AUTO: ["", "auto", " AUTO "],
        WelchPeaksStrategy.ULTRA_FAST: [
            "ultra",
            "Ultra-Fast",
            "ultra_fast_rustfft",
            "1seg",
        ],
        WelchPeaksStrategy.FAST_STREAMING: [
            "fast",
            "streaming",
            "fast-streaming",
            "fast_streaming_rustfft",
            "rustfft",
            "2seg",
        ],
        WelchPeaksStrategy.RLX_COMPILED: ["rlx", "rlx-compiled", "compiled", "gpu"],
        WelchPeaksStrategy.LEARNED_COMPILED: ["learned", "learned_compiled"],
    }
    for strategy, texts in names.items():
        for text in texts:
            assert costs.parse_welch_peaks_strategy(text) is strategy
    with pytest.raises(UsageError, match=r"unknown welch peaks strategy 'fft' \(try "):
        costs.parse_welch_peaks_strategy("fft")


def test_the_legacy_rule_looks_at_the_batch_alone() -> None:
    pick = costs.pick_welch_peaks_strategy
    assert pick("gpu", 8192, 256, 16, legacy=True).label == "rlx_compiled"
    learned = pick("gpu", 8192, 256, 16, True, 200, 1024, legacy=True)
    assert learned.label == "learned_compiled"
    assert pick("gpu", 128, 256, 16, legacy=True).label == "ultra_fast_rustfft"
    assert pick("cpu", 256, 256, 16, legacy=True).label == "ultra_fast_rustfft"
    assert pick("gpu", 129, 256, 16, legacy=True).label == "fast_streaming_rustfft"


def test_nonsense_is_refused() -> None:
    with pytest.raises(UsageError, match="batch is 0"):
        costs.estimate_welch_peaks_costs("gpu", 0, 256, 16)
    with pytest.raises(UsageError, match="n_fft is 0"):
        costs.estimate_block_welch_ns(8, 0, 16, "gpu")
    with pytest.raises(UsageError, match="'seed' or 'calibrated'"):
        costs.estimate_welch_peaks_costs("gpu", 1, 256, 16, cost_mode="guess")
