"""The Welch cost functions in seed mode: RLX's golden numbers to the last digit, its
own tests and its strategy names.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlxweb import rlx as costs
from rlxweb.core.device import Device
from rlxweb.core.errors import UnknownDevice, UsageError
from rlxweb.cost import (
    CpuCostModel,
    GraphIoProfile,
    MetalCostModel,
    MlxCostModel,
    WgpuCostModel,
    io_fusion_gate_for_target,
    profile_graph_io,
    should_fuse_with_target,
)
from rlxweb.rlx import WelchPeakParams, WelchPeaksStrategy
from rlxweb.signal.frequency_bins import BinRange
from rlxweb.signal.learned.gated_fft import all_open_gates, exact_program
from rlxweb.signal.learned.transform import LearnedTransform
from rlxweb.signal.learned.transform_file import save_transform

FAST = WelchPeakParams.fast(256, 16)
NO_MODEL = {Device.GPU: None, Device.CUDA: None, Device.METAL: None}
SEED_CPU, APPLE_CPU = CpuCostModel.seed(), CpuCostModel.seed(apple=True)


def metal_with_round_trip(round_trip_us: float) -> dict[Device, MetalCostModel]:
    """Return a Metal cost model with this round trip, in microseconds."""
    return {Device.METAL: MetalCostModel.seed(roundtrip_ns=1e3 * round_trip_us)}


def is_same_to_digit(got: float, expected: float, digits: int = 2) -> bool:
    """Check that a value equals the printed one to its last digit."""
    return abs(got - expected) <= 0.5000001 * 10**-digits


@pytest.mark.parametrize("batch", [256, 1024, 2048, 4096, 8192])
def test_profiles_per_row(batch: int) -> None:
    """Graphs move the bytes that RLX's table lists, for n 256, S 2, k 16.

    The host gets as many bytes as by the CPU's way, a 32nd of the spectrum's.
    """
    fft = profile_graph_io(costs.fft_only_graph(batch, 256, 2))
    fused = profile_graph_io(costs.build_welch_peaks_fused_graph(batch, FAST))
    assert fft == GraphIoProfile(3, 0, 4096 * batch, 22_528 * batch)
    assert fused == GraphIoProfile(4, 1, 128 * batch, 26_752 * batch)
    host = costs.host_fft_peaks_io_profile(batch, FAST)
    assert host.host_output_bytes == fused.host_output_bytes


GATE_SCORES = [
    # batch, Metal, wgpu, CUDA, read-back saved
    (256, -995_098.72, -25_018_418.24, -15_003_035.52, 1_015_808),
    (1024, 2_036_105.12, -24_974_672.96, -14_946_142.08, 4_063_232),
    (2048, 6_077_710.24, 113_654.08, 149_715.84, 8_126_464),
    (4096, 14_160_920.48, 230_308.16, 301_431.68, 16_252_928),
    (8192, 30_327_340.96, 463_616.32, 604_863.36, 32_505_856),
]


@pytest.mark.parametrize(("batch", "metal", "wgpu", "cuda", "saved"), GATE_SCORES)
def test_gate_scores(
    batch: int, metal: float, wgpu: float, cuda: float, saved: int
) -> None:
    """Fusion gates of each device family give RLX's scores, verdicts and savings."""
    for device, score in (("metal", metal), ("gpu", wgpu), ("cuda", cuda)):
        got = costs.welch_peaks_fusion_gate_breakdown(device, batch, 256, 16)
        assert is_same_to_digit(got.score_ns, score)
        assert got.should_fuse_io == (score > 0)
        assert costs.welch_peaks_io_fusion_gate(device, batch, 256, 16) == (score > 0)
        assert got.readback_saved_bytes == saved
        saved_waits = 0 if batch >= 2048 and device != "metal" else -1
        assert got.sync_points_saved == saved_waits


def test_gate_scores_in_closed_form() -> None:
    """Metal passes first at 509 rows; wgpu and CUDA flip at 2,048 and nowhere else."""
    for batch in (1, 100, 508, 509, 3000):
        got = costs.welch_peaks_fusion_gate_breakdown("metal", batch, 256, 16)
        assert got.score_ns == pytest.approx(3946.88 * batch - 2_005_500, rel=1e-12)
        assert got.should_fuse_io == (batch >= 509)
    for device, slope, fixed in (("gpu", 56.96, 3000), ("cuda", 74.08, 2000)):
        for batch in (2047, 2048, 5000):
            got = costs.welch_peaks_fusion_gate_breakdown(device, batch, 256, 16)
            assert got.should_fuse_io == (batch >= 2048)
            if batch >= 2048:
                want = slope * batch - fixed
                assert got.score_ns == pytest.approx(want, rel=1e-9)


ADJUSTED_DEVICES = ("metal", "cuda", "gpu")
HOST_COSTS = [
    # batch, ultra and fast of the CPU, the same of Apple's
    (32, 26_603.20, 40_299.20, 39_641.92, 58_099.52),
    (256, 191_825.60, 301_393.60, 282_135.36, 429_796.16),
    (512, 380_651.20, 599_787.20, 559_270.72, 854_592.32),
    (1024, 758_302.40, 1_196_574.40, 1_113_541.44, 1_704_184.64),
    (2048, 1_513_604.80, 2_390_148.80, 2_222_082.88, 3_403_369.28),
    (4096, 3_024_209.60, 4_777_297.60, 4_439_165.76, 6_801_738.56),
    (8192, 6_045_419.20, 9_551_595.20, 8_873_331.52, 13_598_477.12),
]
ADJUSTED_HOST_COSTS = [
    # CPU model, batch, fast beside Metal, CUDA, wgpu
    (SEED_CPU, 1024, 1_379_042.88, 1_320_984.73, 1_296_102.66),
    (SEED_CPU, 2048, 3_119_107.76, 2_887_166.27, 2_787_762.78),
    (SEED_CPU, 4096, 14_970_024.38, 11_594_716.39, 5_969_390.93),
    (SEED_CPU, 8192, 50_746_664.53, 36_514_778.32, 12_729_512.62),
    (APPLE_CPU, 8192, 72_247_341.10, 51_985_596.87, 18_122_835.24),
]


@pytest.mark.parametrize(("batch", "ultra", "fast", "ultra_a", "fast_a"), HOST_COSTS)
def test_host_estimates(
    batch: int, ultra: float, fast: float, ultra_a: float, fast_a: float
) -> None:
    """Host estimates match RLX's numbers for both CPU models."""
    for model, ultra_ns, fast_ns in (
        (SEED_CPU, ultra, fast),
        (APPLE_CPU, ultra_a, fast_a),
    ):
        got = costs.estimate_welch_peaks_costs("cpu", batch, 256, 16, cpu_model=model)
        assert is_same_to_digit(got.ultra_ns, ultra_ns)
        assert is_same_to_digit(got.fast_ns, fast_ns)
        assert got.rlx_ns == got.learned_ns == math.inf


@pytest.mark.parametrize(("model", "batch", *ADJUSTED_DEVICES), ADJUSTED_HOST_COSTS)
def test_adjusted_host_estimates(
    model: CpuCostModel, batch: int, metal: float, cuda: float, gpu: float
) -> None:
    for device, want in zip(ADJUSTED_DEVICES, (metal, cuda, gpu), strict=True):
        got = costs.estimate_welch_peaks_costs(device, batch, 256, 16, cpu_model=model)
        assert is_same_to_digit(got.fast_ns, want)
        assert got.ultra_ns == math.inf


def test_cpu_model_decides_metal_at_1024() -> None:
    """The CPU model decides at 1024: fused on Apple's, else fast (1.379 < 1.724 ms)."""
    pick = costs.pick_welch_peaks_strategy
    assert pick("metal", 1024, 256, 16) is WelchPeaksStrategy.FAST_STREAMING
    apple = pick("metal", 1024, 256, 16, cpu_model=APPLE_CPU)
    assert apple is WelchPeaksStrategy.RLX_COMPILED


DEVICE_COSTS = [
    # models, device, batch, fused, block, whether it keeps to the floor, pick
    *(
        (NO_MODEL, device, batch, ns, block, True, pick)
        for batch, metal, gpu, cuda, block, pick in [
            (256, 745_939.20, 499_458.56, 400_000.0, 391_771.75, "fast"),
            (1024, 1_723_756.80, 505_635.33, 98_828.72, 1_497_967.00, "fast"),
            (2048, 3_027_513.60, 888_070.66, 173_577.45, 2_972_894.00, "rlx"),
            (4096, 5_635_027.20, 1_652_941.31, 323_074.89, 5_922_748.01, "rlx"),
            (8192, 10_850_054.40, 3_182_682.62, 622_069.79, 11_822_456.01, "rlx"),
        ]
        for device, ns in (("metal", metal), ("gpu", gpu), ("cuda", cuda))
    ),
    (None, "gpu", 256, 673_730.13, 461_353.86, True, "fast"),
    (None, "gpu", 1024, 1_220_825.17, 1_640_215.42, True, "fast"),
    (None, "gpu", 2048, 2_045_650.35, 3_212_030.85, True, "rlx"),
    (None, "gpu", 4096, 3_695_300.69, 6_355_661.70, True, "rlx"),
    (None, "gpu", 8192, 6_994_601.39, 12_642_923.39, True, "rlx"),
    (None, "cuda", 2048, 78_250.89, 2_722_745.45, True, "rlx"),
    (None, "cuda", 8192, 207_223.55, 10_795_941.79, True, "rlx"),
    (None, "rocm", 8192, 233_019.00, 10_834_354.51, True, "rlx"),
    (
        metal_with_round_trip(150),
        "metal",
        1024,
        3_740_323.20,
        1_558_935.45,
        True,
        "fast",
    ),
    (
        metal_with_round_trip(150),
        "metal",
        8192,
        13_752_585.60,
        11_685_243.60,
        False,
        "fast",
    ),
]


@pytest.mark.parametrize(
    ("models", "device", "batch", "fused", "block", "is_floor_ok", "pick"), DEVICE_COSTS
)
def test_device_estimates(
    models: Any,
    device: str,
    batch: int,
    fused: float,
    block: float,
    is_floor_ok: bool,
    pick: str,
) -> None:
    """Devices are priced without a model, with default constants and with those of a
    Metal.

    Without one the discrete fallback charges every start twice; with 150 us of
    round trip Metal's fused graph misses the floor at 8,192 rows.
    """
    size = (device, batch, 256, 16)
    got = costs.estimate_fused_graph_ns(batch, FAST, device, models=models)
    assert is_same_to_digit(got, fused)
    got = costs.estimate_block_welch_ns(batch, 256, 16, device, models=models)
    assert is_same_to_digit(got, block)
    assert (
        costs.welch_peaks_fusion_compute_floor_ok(*size, models=models) is is_floor_ok
    )
    picked = costs.pick_welch_peaks_strategy(*size, models=models)
    assert picked is costs.parse_welch_peaks_strategy(pick)


@pytest.mark.parametrize(
    ("batch", "limit_us"), [(8192, 86.7), (4096, 41.4), (2048, 18.8)]
)
def test_metal_fuses_below_round_trip_limit(batch: int, limit_us: float) -> None:
    """The floor passes below this round trip and not above it."""
    for change, passes in ((-0.1, True), (0.1, False)):
        got = costs.welch_peaks_fusion_compute_floor_ok(
            "metal", batch, 256, 16, models=metal_with_round_trip(limit_us + change)
        )
        assert got is passes


def test_small_batches_and_cpu_pick_ultra_fast() -> None:
    ultra_fast = WelchPeaksStrategy.ULTRA_FAST
    for device in Device:
        for batch in (1, 32, 128):
            assert costs.pick_welch_peaks_strategy(device, batch, 256, 16) is ultra_fast
    for batch in (32, 512, 8192):
        assert costs.pick_welch_peaks_strategy("cpu", batch, 256, 16) is ultra_fast


def test_metal_and_gpu_at_8192_rows_are_fused() -> None:
    rlx = WelchPeaksStrategy.RLX_COMPILED
    for device in ("metal", "gpu"):
        assert costs.pick_welch_peaks_strategy(device, 8192, 256, 16) is rlx
    assert costs.welch_peaks_fusion_gate_breakdown("cuda", 8192, 256, 16).should_fuse
    assert costs.fused_welch_peaks_auto_viable("gpu")
    assert not costs.fused_welch_peaks_auto_viable("cpu")
    assert not costs.fused_welch_peaks_auto_viable("tpu")


def test_useful_bytes_and_bandwidth() -> None:
    touched_bytes = costs.useful_bytes_touched(32, FAST)
    assert touched_bytes == 69_632
    assert costs.algorithm_bandwidth_gbps(touched_bytes, 1.0) == pytest.approx(0.069632)
    assert costs.algorithm_bandwidth_gbps(touched_bytes, 0.0) == 0.0


def test_presets() -> None:
    """Presets have RLX's segments, hop and frame length, and k of at least 1."""
    ultra_fast = WelchPeakParams.ultra_fast(256, 0)
    fast = FAST
    reference = WelchPeakParams.reference(256, 16)
    assert (ultra_fast.n_segments, fast.n_segments, reference.n_segments) == (1, 2, 8)
    assert [p.frame_length for p in (ultra_fast, fast, reference)] == [256, 384, 1152]
    assert (ultra_fast.k, fast.hop, fast.n_bins) == (1, 128, 129)


@pytest.mark.parametrize(
    ("strategy", "texts"),
    [
        ("AUTO", ["", "auto", " AUTO "]),
        ("ULTRA_FAST", ["ultra", "Ultra-Fast", "ultra_fast_rustfft", "1seg"]),
        ("FAST_STREAMING", ["fast", "streaming", "fast-streaming"]),
        ("FAST_STREAMING", ["fast_streaming_rustfft", "rustfft", "2seg"]),
        ("RLX_COMPILED", ["rlx", "rlx-compiled", "compiled", "gpu"]),
        ("LEARNED_COMPILED", ["learned", "learned_compiled"]),
    ],
)
def test_strategy_spellings(strategy: str, texts: list[str]) -> None:
    """Strategy names are parsed in RLX's spellings, whatever the case, spaces or
    dashes.
    """
    got = {costs.parse_welch_peaks_strategy(text) for text in texts}
    assert got == {WelchPeaksStrategy[strategy]}


def test_an_unknown_strategy_is_refused() -> None:
    with pytest.raises(UsageError, match=r"unknown welch peaks strategy 'fft' \(try "):
        costs.parse_welch_peaks_strategy("fft")


def test_legacy_rule_depends_on_batch_only() -> None:
    pick = costs.pick_welch_peaks_strategy
    assert pick("gpu", 8192, 256, 16, legacy=True).label == "rlx_compiled"
    learned = pick("gpu", 8192, 256, 16, True, 200, 1024, legacy=True)
    assert learned.label == "learned_compiled"
    assert pick("gpu", 128, 256, 16, legacy=True).label == "ultra_fast_rustfft"
    assert pick("cpu", 256, 256, 16, legacy=True).label == "ultra_fast_rustfft"
    assert pick("gpu", 129, 256, 16, legacy=True).label == "fast_streaming_rustfft"


def test_legacy_rule_from_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The keyword overrides the environment variable; RLX reports no costs under the
    legacy rule.
    """
    monkeypatch.setenv("RLX_FFT_LEGACY_PICKER", "1")
    pick = costs.pick_welch_peaks_strategy
    assert pick("cpu", 257, 256, 16) is WelchPeaksStrategy.FAST_STREAMING
    assert pick("cpu", 257, 256, 16, legacy=False) is WelchPeaksStrategy.ULTRA_FAST
    got = costs.pick_welch_peaks_breakdown("gpu", 8192, 256, 16)
    assert got.picked is WelchPeaksStrategy.RLX_COMPILED
    assert got.costs == costs.WelchPeaksCosts(0, 0, 0, 0)


def test_picker_trace(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The picker writes its estimates to standard error when tracing is enabled."""
    got = costs.pick_welch_peaks_breakdown("gpu", 8192, 256, 16)
    assert got.costs == costs.estimate_welch_peaks_costs("gpu", 8192, 256, 16)
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("RLX_FFT_PICKER_TRACE", "1")
    assert costs.pick_welch_peaks_strategy("gpu", 8192, 256, 16) is got.picked
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err == (
        "welch peaks on gpu, batch 8192, n_fft 256, k 16: picked rlx_compiled from "
        "ultra inf ms, fast 12.7295 ms, rlx 6.9946 ms, learned inf ms\n"
    )


def test_resolve_strategy() -> None:
    """A named strategy is used as it is; auto is picked by cost."""
    names = costs.all_welch_peaks_strategy_names()
    assert names == ("auto", "ultra", "fast", "rlx", "learned")
    size = ("gpu", 8192, 256, 16)
    for name in names[1:]:
        strategy = costs.parse_welch_peaks_strategy(name)
        assert costs.resolve_welch_peaks_strategy(name, *size) is strategy
    for options in ({}, {"models": NO_MODEL}, {"legacy": True}):
        picked = costs.pick_welch_peaks_strategy(*size, **options)
        assert costs.resolve_welch_peaks_strategy("auto", *size, **options) is picked


@pytest.mark.parametrize("batch", [256, 1024, 2047, 2048, 8192])
def test_profiles_compared_by_gate(batch: int) -> None:
    """The gate's profiles are those of the graphs, less a wait where RLX's kernel is
    native.
    """
    for device in Device:
        before, after = costs.welch_peaks_fusion_io_profiles(batch, 256, 16, device)
        assert before == GraphIoProfile(3, 0, 4096 * batch, 22_528 * batch)
        is_apple = device in (Device.METAL, Device.MLX, Device.ANE)
        is_native = batch >= 2048 and not is_apple and device not in ("cpu", "tpu")
        waits = 0 if is_native else 1
        assert after == GraphIoProfile(4, waits, 128 * batch, 26_752 * batch)
        target = costs.welch_peaks_fusion_target(device)
        gate = io_fusion_gate_for_target(target)
        got = costs.welch_peaks_fusion_gate_breakdown(device, batch, 256, 16)
        assert gate.score_ns(before, after) == got.score_ns
        assert io_fusion_gate_for_target(device) is gate
        assert io_fusion_gate_for_target(target.value) is gate
        is_fused = should_fuse_with_target(device.label, before, after)
        assert is_fused == gate.should_fuse(before, after)
    with pytest.raises(UnknownDevice, match="'abacus'"):
        io_fusion_gate_for_target("abacus")


def test_fitted_compute_scales() -> None:
    scale = costs.fused_io_compute_scale_for_calibration
    assert {d.label: scale(d) for d in Device} == {
        **dict.fromkeys(("cpu", "tpu"), 1.0),
        **dict.fromkeys(("metal", "mlx", "ane"), 7.5),
        **dict.fromkeys(("cuda", "rocm"), 0.43),
        **dict.fromkeys(("gpu", "vulkan", "opengl", "directx", "webgpu"), 2.2),
    }


def test_cost_models_are_shared_within_a_family() -> None:
    """A model of one device serves its whole family; a device's own model has
    precedence.
    """
    mlx, slow = MlxCostModel.seed(roundtrip_ns=9e6), WgpuCostModel(memory_bw=1.0)
    other = WgpuCostModel(memory_bw=2.0)
    cost_models = {Device.MLX: mlx, Device.GPU: slow, Device.OPENGL: other}

    def block_ns(device: str, models: Any = cost_models) -> float:
        return costs.estimate_block_welch_ns(512, 256, 16, device, models=models)

    assert block_ns("ane") == block_ns("mlx") != block_ns("ane", None)
    assert (
        block_ns("vulkan")
        == block_ns("webgpu")
        == block_ns("gpu")
        != block_ns("gpu", None)
    )
    assert (
        block_ns("opengl") == block_ns("vulkan", {Device.GPU: other}) != block_ns("gpu")
    )
    assert block_ns("directx", {Device.GPU: None}) == block_ns(
        "gpu", {Device.GPU: None}
    )
    assert block_ns("mlx", {Device.ANE: mlx}) == block_ns("mlx", None)


def test_zero_sizes_are_rejected() -> None:
    with pytest.raises(UsageError, match="batch is 0"):
        costs.estimate_welch_peaks_costs("gpu", 0, 256, 16)
    with pytest.raises(UsageError, match="n_fft is 0"):
        costs.estimate_block_welch_ns(8, 0, 16, "gpu")


@pytest.mark.parametrize("wrong", [1.5, "8", None, True])
def test_sizes_must_be_integers(wrong: Any) -> None:
    for call in (costs.estimate_welch_peaks_costs, costs.pick_welch_peaks_strategy):
        for size in ((wrong, 256), (8, wrong)):
            with pytest.raises(UsageError, match="must be a whole number"):
                call("cpu", *size, 16)
        with pytest.raises(UsageError, match=r"k is .* must be a whole number"):
            call("cpu", 8, 256, wrong)


def test_learned_file_gives_its_gate_counts(tmp_path: Path) -> None:
    """A learned file is priced by its gate counts; one of another length is refused."""
    transform = LearnedTransform(
        n=256,
        fs=128.0,
        window=np.ones(256).tobytes(),
        detrend=None,
        band=BinRange(3, 6),
        gates=all_open_gates(256),
        program=exact_program(256, BinRange(3, 6)),
        error=0.0,
        worst=0.0,
        recall=1.0,
        asked=0.0,
        k=1,
    )
    save_transform(transform, tmp_path / "own.rlxl")
    size = ("metal", 8192, 256, 16)
    by_file = costs.estimate_welch_peaks_costs(*size, str(tmp_path / "own.rlxl"))
    assert by_file == costs.estimate_welch_peaks_costs(
        *size, True, transform.active, transform.total
    )
    assert (
        costs.pick_welch_peaks_strategy(*size, transform)
        is WelchPeaksStrategy.RLX_COMPILED
    )
    with pytest.raises(
        UsageError, match="n_fft is 512; the learned transform requires 256"
    ):
        costs.estimate_welch_peaks_costs("metal", 8192, 512, 16, transform)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"models": {"vulkan": 3}},
            "the model of vulkan is 3; expected a BackendCostModel",
        ),
        ({"models": [3]}, r"models is \[3\]; expected a dict"),
        ({"models": 0}, "models is 0; expected a dict"),
        ({"cpu_model": 1}, "cpu_model is 1; expected a BackendCostModel"),
        ({"cost_mode": 3}, "cost_mode is 3; it must be 'seed' or 'calibrated'"),
        ({"adapter": 3}, "adapter is 3"),
        ({"learned_total_gates": "4"}, "learned_total_gates is '4'"),
        (
            {"learned_active_gates": -1},
            "learned_active_gates is -1; it must be at least 0",
        ),
    ],
)
def test_keywords_of_wrong_type_are_rejected(options: Any, message: str) -> None:
    for call in (costs.estimate_welch_peaks_costs, costs.pick_welch_peaks_strategy):
        with pytest.raises(UsageError, match=message):
            call("gpu", 256, 256, 16, **options)


def test_models_accept_device_aliases() -> None:
    """An alias names its device; an unknown name is refused."""
    by_alias, by_device = (
        costs.estimate_block_welch_ns(256, 256, 16, "gpu", models={name: None})
        for name in ("wgpu", Device.GPU)
    )
    assert by_alias == by_device
    assert by_alias != costs.estimate_block_welch_ns(256, 256, 16, "gpu")
    with pytest.raises(UnknownDevice, match="did you mean 'vulkan'"):
        costs.estimate_block_welch_ns(256, 256, 16, "gpu", models={"vulcan": None})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: costs.host_fft_peaks_io_profile(-4, FAST),
            "batch is -4; it must be at least 1",
        ),
        (
            lambda: costs.host_fft_peaks_io_profile(4, 3),
            "params is 3; expected a WelchPeakP",
        ),
        (
            lambda: costs.build_welch_peaks_fused_graph(0, FAST),
            "batch is 0; it must be at least 1",
        ),
        (
            lambda: costs.build_welch_peaks_fused_graph(2, 256),
            "params is 256; expected a WelchPeakP",
        ),
        (
            lambda: costs.fft_only_graph(1, 256, 0),
            "n_segments is 0; it must be at least 1",
        ),
        (lambda: costs.useful_bytes_touched("4", FAST), "batch is '4'; it must be a w"),
        (
            lambda: costs.io_cost_ns(GraphIoProfile(), 3),
            "model is 3; expected a BackendCostMod",
        ),
        (lambda: costs.io_cost_ns(3, SEED_CPU), "io is 3; expected a GraphIoProfile"),
        (
            lambda: costs.algorithm_bandwidth_gbps("a", 1),
            "useful_bytes is 'a'; it must",
        ),
        (
            lambda: costs.algorithm_bandwidth_gbps(1, "a"),
            "time_ms is 'a'; it must be a",
        ),
        (
            lambda: costs.algorithm_bandwidth_gbps(-1, 1),
            "useful_bytes is -1; must be >= 0",
        ),
        (lambda: WelchPeakParams("256"), "n_fft is '256'; it must be a whole number"),
        (lambda: WelchPeakParams(256.0), "n_fft is 256.0; it must be a whole number"),
        (lambda: WelchPeakParams(256, "3"), "k is '3'; it must be a whole number"),
        (lambda: WelchPeakParams(256, 3, 0), "n_segments is 0; it must be at least 1"),
        (
            lambda: costs.estimate_fused_graph_ns(3, 4, "gpu"),
            "params is 4; expected a WelchPeakP",
        ),
        (
            lambda: costs.estimate_fused_graph_ns(3, FAST, "gpu", "x"),
            "compute_scale is 'x'; it must be a number",
        ),
        (
            lambda: costs.pick_welch_peaks_strategy("gpu", 3, 256, 16, legacy="yes"),
            "legacy is 'yes'; it must be True or False",
        ),
        (
            lambda: costs.resolve_welch_peaks_strategy("fast", "gpu", 0, 256, 16),
            "batch is 0; it must be at least 1",
        ),
    ],
)
def test_arguments_outside_their_domain_are_rejected(call: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        call()


def test_infinite_time_has_zero_bandwidth() -> None:
    """Bandwidth is zero for the infinite time of an excluded strategy."""
    assert costs.algorithm_bandwidth_gbps(4096, math.inf) == 0.0


@pytest.mark.parametrize(
    "name", ["estimate_welch_peaks_costs", "pick_welch_peaks_breakdown"]
)
def test_unknown_keyword_error_names_the_function(name: str) -> None:
    message = rf"^{name}\(\) got an unexpected .*'cost_mod'; did you mean 'cost_mode'\?"
    with pytest.raises(TypeError, match=message):
        getattr(costs, name)("gpu", 256, 256, 16, cost_mod="seed")
    with pytest.raises(TypeError, match=r"estimate_block_welch_ns.*'legacy'"):
        costs.estimate_block_welch_ns(256, 256, 16, "gpu", legacy=True)


def test_numpy_integers_do_not_overflow() -> None:
    """NumPy's numbers count as plain ones: 44 bytes times 2^30 does not overflow."""
    numpy_profiles = costs.welch_peaks_fusion_io_profiles(
        np.int32(1 << 21), np.int32(256), 1, "gpu"
    )
    assert numpy_profiles == costs.welch_peaks_fusion_io_profiles(
        1 << 21, 256, 1, "gpu"
    )
    assert type(WelchPeakParams(np.int64(256)).n_fft) is int
