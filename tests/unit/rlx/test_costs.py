"""The Welch cost functions in seed mode: RLX's golden numbers to the last digit, its
own tests, and the words it knows its strategies by.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlxweb import rlx as costs
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
from rlxweb.device import Device
from rlxweb.errors import UnknownDevice, UsageError
from rlxweb.rlx import WelchPeakParams, WelchPeaksStrategy
from rlxweb.signal.band_peaks import Band
from rlxweb.signal.learned.file import save
from rlxweb.signal.learned.network import exact, open_gates
from rlxweb.signal.learned.transform import LearnedTransform

FAST = WelchPeakParams.fast(256, 16)
NO_MODEL = {Device.GPU: None, Device.CUDA: None, Device.METAL: None}
SEED_CPU, APPLE_CPU = CpuCostModel.seed(), CpuCostModel.seed(apple=True)


def metal_of(us: float) -> dict[Device, MetalCostModel]:
    """A real Metal whose round trip takes so long."""
    return {Device.METAL: MetalCostModel.seed(roundtrip_ns=1e3 * us)}


def same(got: float, printed: float, digits: int = 2) -> bool:
    """Equal to the last printed digit."""
    return abs(got - printed) <= 0.5000001 * 10**-digits


@pytest.mark.parametrize("batch", [256, 1024, 2048, 4096, 8192])
def test_profiles_per_row(batch: int) -> None:
    """The graphs themselves move what the table says, n 256, S 2, k 16.

    The host gets as many bytes as by the CPU's way, a 32nd of the spectrum's.
    """
    fft = profile_graph_io(costs.fft_only_graph(batch, 256, 2))
    fused = profile_graph_io(costs.build_welch_peaks_fused_graph(batch, FAST))
    assert fft == GraphIoProfile(3, 0, 4096 * batch, 22_528 * batch)
    assert fused == GraphIoProfile(4, 1, 128 * batch, 26_752 * batch)
    host = costs.host_fft_peaks_io_profile(batch, FAST)
    assert host.host_output_bytes == fused.host_output_bytes


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
    """Gates of a device of each family have scores, verdicts and what is saved."""
    for device, score in (("metal", metal), ("gpu", wgpu), ("cuda", cuda)):
        found = costs.welch_peaks_fusion_gate_breakdown(device, batch, 256, 16)
        assert same(found.score_ns, score)
        assert found.should_fuse_io == (score > 0)
        assert costs.welch_peaks_io_fusion_gate(device, batch, 256, 16) == (score > 0)
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


BESIDE = ("metal", "cuda", "gpu")
HOST = [
    # batch, ultra and fast of the CPU, the same of Apple's
    (32, 26_603.20, 40_299.20, 39_641.92, 58_099.52),
    (256, 191_825.60, 301_393.60, 282_135.36, 429_796.16),
    (512, 380_651.20, 599_787.20, 559_270.72, 854_592.32),
    (1024, 758_302.40, 1_196_574.40, 1_113_541.44, 1_704_184.64),
    (2048, 1_513_604.80, 2_390_148.80, 2_222_082.88, 3_403_369.28),
    (4096, 3_024_209.60, 4_777_297.60, 4_439_165.76, 6_801_738.56),
    (8192, 6_045_419.20, 9_551_595.20, 8_873_331.52, 13_598_477.12),
]
ADJUSTED = [
    # CPU model, batch, fast beside Metal, CUDA, wgpu
    (SEED_CPU, 1024, 1_379_042.88, 1_320_984.73, 1_296_102.66),
    (SEED_CPU, 2048, 3_119_107.76, 2_887_166.27, 2_787_762.78),
    (SEED_CPU, 4096, 14_970_024.38, 11_594_716.39, 5_969_390.93),
    (SEED_CPU, 8192, 50_746_664.53, 36_514_778.32, 12_729_512.62),
    (APPLE_CPU, 8192, 72_247_341.10, 51_985_596.87, 18_122_835.24),
]


@pytest.mark.parametrize(("batch", "ultra", "fast", "ultra_a", "fast_a"), HOST)
def test_host_estimates(
    batch: int, ultra: float, fast: float, ultra_a: float, fast_a: float
) -> None:
    """The host's times are those of both CPU models."""
    for model, one, two in ((SEED_CPU, ultra, fast), (APPLE_CPU, ultra_a, fast_a)):
        found = costs.estimate_welch_peaks_costs("cpu", batch, 256, 16, cpu_model=model)
        assert same(found.ultra_ns, one)
        assert same(found.fast_ns, two)
        assert found.rlx_ns == found.learned_ns == math.inf


@pytest.mark.parametrize(("model", "batch", *BESIDE), ADJUSTED)
def test_adjusted_host_estimates(
    model: CpuCostModel, batch: int, metal: float, cuda: float, gpu: float
) -> None:
    for device, want in zip(BESIDE, (metal, cuda, gpu), strict=True):
        found = costs.estimate_welch_peaks_costs(
            device, batch, 256, 16, cpu_model=model
        )
        assert same(found.fast_ns, want)
        assert found.ultra_ns == math.inf


def test_metal_at_1024_is_decided_by_the_cpu_model() -> None:
    """The CPU model decides at 1024: fused on Apple's, else fast (1.379 < 1.724 ms)."""
    pick = costs.pick_welch_peaks_strategy
    assert pick("metal", 1024, 256, 16) is WelchPeaksStrategy.FAST_STREAMING
    apple = pick("metal", 1024, 256, 16, cpu_model=APPLE_CPU)
    assert apple is WelchPeaksStrategy.RLX_COMPILED


DEVICES = [
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
    (metal_of(150), "metal", 1024, 3_740_323.20, 1_558_935.45, True, "fast"),
    (metal_of(150), "metal", 8192, 13_752_585.60, 11_685_243.60, False, "fast"),
]


@pytest.mark.parametrize(
    ("models", "device", "batch", "fused", "block", "floor", "pick"), DEVICES
)
def test_devices(
    models: Any,
    device: str,
    batch: int,
    fused: float,
    block: float,
    floor: bool,
    pick: str,
) -> None:
    """Devices are priced with no model, default constants, and those of a Metal.

    Without one the discrete fallback charges every start twice; with 150 us of
    round trip Metal's fused graph misses the floor at 8,192 rows.
    """
    size = (device, batch, 256, 16)
    got = costs.estimate_fused_graph_ns(batch, FAST, device, models=models)
    assert same(got, fused)
    got = costs.estimate_block_welch_ns(batch, 256, 16, device, models=models)
    assert same(got, block)
    assert costs.welch_peaks_fusion_compute_floor_ok(*size, models=models) is floor
    found = costs.pick_welch_peaks_strategy(*size, models=models)
    assert found is costs.parse_welch_peaks_strategy(pick)


@pytest.mark.parametrize(("batch", "us"), [(8192, 86.7), (4096, 41.4), (2048, 18.8)])
def test_the_round_trip_at_which_metal_fuses(batch: int, us: float) -> None:
    """The floor passes below this round trip and not above it."""
    for change, passes in ((-0.1, True), (0.1, False)):
        got = costs.welch_peaks_fusion_compute_floor_ok(
            "metal", batch, 256, 16, models=metal_of(us + change)
        )
        assert got is passes


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
        assert costs.pick_welch_peaks_strategy(device, 8192, 256, 16) is rlx
    assert costs.welch_peaks_fusion_gate_breakdown("cuda", 8192, 256, 16).should_fuse
    assert costs.fused_welch_peaks_auto_viable("gpu")
    assert not costs.fused_welch_peaks_auto_viable("cpu")
    assert not costs.fused_welch_peaks_auto_viable("tpu")


def test_useful_bytes_and_bandwidth() -> None:
    touched = costs.useful_bytes_touched(32, FAST)
    assert touched == 69_632
    assert costs.algorithm_bandwidth_gbps(touched, 1.0) == pytest.approx(0.069632)
    assert costs.algorithm_bandwidth_gbps(touched, 0.0) == 0.0


def test_presets() -> None:
    """Presets have RLX's segments, hop and frame, and k at least 1."""
    one, two, all_ = (
        WelchPeakParams.ultra_fast(256, 0),
        FAST,
        WelchPeakParams.reference(256, 16),
    )
    assert (one.n_segments, two.n_segments, all_.n_segments) == (1, 2, 8)
    assert [p.frame_length for p in (one, two, all_)] == [256, 384, 1152]
    assert (one.k, two.hop, two.n_bins) == (1, 128, 129)


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
def test_strategy_names(strategy: str, texts: list[str]) -> None:
    """Strategies have RLX's spellings, whatever the case, the spaces or the dashes."""
    found = {costs.parse_welch_peaks_strategy(text) for text in texts}
    assert found == {WelchPeaksStrategy[strategy]}


def test_an_unknown_strategy_is_refused() -> None:
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


def test_the_legacy_rule_may_come_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """A keyword comes before it; RLX shows no costs then."""
    monkeypatch.setenv("RLX_FFT_LEGACY_PICKER", "1")
    pick = costs.pick_welch_peaks_strategy
    assert pick("cpu", 257, 256, 16) is WelchPeaksStrategy.FAST_STREAMING
    assert pick("cpu", 257, 256, 16, legacy=False) is WelchPeaksStrategy.ULTRA_FAST
    found = costs.pick_welch_peaks_breakdown("gpu", 8192, 256, 16)
    assert found.picked is WelchPeaksStrategy.RLX_COMPILED
    assert found.costs == costs.WelchPeaksCosts(0, 0, 0, 0)


def test_the_picker_tells_what_it_saw(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The picker tells what it saw on standard error, when asked to."""
    found = costs.pick_welch_peaks_breakdown("gpu", 8192, 256, 16)
    assert found.costs == costs.estimate_welch_peaks_costs("gpu", 8192, 256, 16)
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("RLX_FFT_PICKER_TRACE", "1")
    assert costs.pick_welch_peaks_strategy("gpu", 8192, 256, 16) is found.picked
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == (
        "welch peaks on gpu, batch 8192, n_fft 256, k 16: rlx_compiled of "
        "ultra inf ms, fast 12.7295 ms, rlx 6.9946 ms, learned inf ms\n"
    )


def test_a_strategy_is_resolved() -> None:
    """A strategy that is named is taken, auto is picked."""
    names = costs.all_welch_peaks_strategy_names()
    assert names == ("auto", "ultra", "fast", "rlx", "learned")
    size = ("gpu", 8192, 256, 16)
    for name in names[1:]:
        named = costs.parse_welch_peaks_strategy(name)
        assert costs.resolve_welch_peaks_strategy(name, *size) is named
    for how in ({}, {"models": NO_MODEL}, {"legacy": True}):
        picked = costs.pick_welch_peaks_strategy(*size, **how)
        assert costs.resolve_welch_peaks_strategy("auto", *size, **how) is picked


@pytest.mark.parametrize("batch", [256, 1024, 2047, 2048, 8192])
def test_the_profiles_that_the_gate_compares(batch: int) -> None:
    """The gate's profiles are the graphs', less a wait where RLX's kernel is native."""
    for device in Device:
        before, after = costs.welch_peaks_fusion_io_profiles(batch, 256, 16, device)
        assert before == GraphIoProfile(3, 0, 4096 * batch, 22_528 * batch)
        apple = device in (Device.METAL, Device.MLX, Device.ANE)
        native = batch >= 2048 and not apple and device not in ("cpu", "tpu")
        waits = 0 if native else 1
        assert after == GraphIoProfile(4, waits, 128 * batch, 26_752 * batch)
        target = costs.welch_peaks_fusion_target(device)
        gate = io_fusion_gate_for_target(target)
        found = costs.welch_peaks_fusion_gate_breakdown(device, batch, 256, 16)
        assert gate.score_ns(before, after) == found.score_ns
        assert io_fusion_gate_for_target(device) is gate
        assert io_fusion_gate_for_target(target.value) is gate
        took = should_fuse_with_target(device.label, before, after)
        assert took == gate.should_fuse(before, after)
    with pytest.raises(UnknownDevice, match="'abacus'"):
        io_fusion_gate_for_target("abacus")


def test_the_fitted_scales() -> None:
    scale = costs.fused_io_compute_scale_for_calibration
    assert {d.label: scale(d) for d in Device} == {
        **dict.fromkeys(("cpu", "tpu"), 1.0),
        **dict.fromkeys(("metal", "mlx", "ane"), 7.5),
        **dict.fromkeys(("cuda", "rocm"), 0.43),
        **dict.fromkeys(("gpu", "vulkan", "opengl", "directx", "webgpu"), 2.2),
    }


def test_mlx_serves_ane_and_gpu_all_shaders() -> None:
    """A model that is given for one of a kind is the kind's; one's own comes first."""
    mlx, slow = MlxCostModel.seed(roundtrip_ns=9e6), WgpuCostModel(memory_bw=1.0)
    other = WgpuCostModel(memory_bw=2.0)
    given = {Device.MLX: mlx, Device.GPU: slow, Device.OPENGL: other}

    def block(device: str, models: Any = given) -> float:
        return costs.estimate_block_welch_ns(512, 256, 16, device, models=models)

    assert block("ane") == block("mlx") != block("ane", None)
    assert block("vulkan") == block("webgpu") == block("gpu") != block("gpu", None)
    assert block("opengl") == block("vulkan", {Device.GPU: other}) != block("gpu")
    assert block("directx", {Device.GPU: None}) == block("gpu", {Device.GPU: None})
    assert block("mlx", {Device.ANE: mlx}) == block("mlx", None)


def test_nonsense_is_refused() -> None:
    with pytest.raises(UsageError, match="batch is 0"):
        costs.estimate_welch_peaks_costs("gpu", 0, 256, 16)
    with pytest.raises(UsageError, match="n_fft is 0"):
        costs.estimate_block_welch_ns(8, 0, 16, "gpu")


@pytest.mark.parametrize("wrong", [1.5, "8", None, True])
def test_numbers_of_rows_and_samples_are_whole(wrong: Any) -> None:
    for ask in (costs.estimate_welch_peaks_costs, costs.pick_welch_peaks_strategy):
        for job in ((wrong, 256), (8, wrong)):
            with pytest.raises(UsageError, match="must be a whole number"):
                ask("cpu", *job, 16)
        with pytest.raises(UsageError, match=r"k is .* must be a whole number"):
            ask("cpu", 8, 256, wrong)


def test_a_file_says_how_many_gates_are_active(tmp_path: Path) -> None:
    """A file is priced as its numbers are; one of another length is refused."""
    own = LearnedTransform(
        n=256,
        fs=128.0,
        window=np.ones(256).tobytes(),
        detrend=None,
        band=Band(3, 6),
        gates=open_gates(256),
        program=exact(256, Band(3, 6)),
        error=0.0,
        worst=0.0,
        recall=1.0,
        asked=0.0,
        k=1,
    )
    save(own, tmp_path / "own.rlxl")
    how = ("metal", 8192, 256, 16)
    by_file = costs.estimate_welch_peaks_costs(*how, str(tmp_path / "own.rlxl"))
    assert by_file == costs.estimate_welch_peaks_costs(
        *how, True, own.active, own.total
    )
    assert costs.pick_welch_peaks_strategy(*how, own) is WelchPeaksStrategy.RLX_COMPILED
    with pytest.raises(UsageError, match="n_fft is 512; the transform is one of 256"):
        costs.estimate_welch_peaks_costs("metal", 8192, 512, 16, own)


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ({"models": {"vulkan": 3}}, "the model of vulkan is 3; a BackendCostModel"),
        ({"models": [3]}, r"models is \[3\]; a dict of cost models"),
        ({"models": 0}, "models is 0; a dict of cost models"),
        ({"cpu_model": 1}, "cpu_model is 1; a BackendCostModel"),
        ({"cost_mode": 3}, "cost_mode is 3; it must be 'seed' or 'calibrated'"),
        ({"adapter": 3}, "adapter is 3"),
        ({"learned_total_gates": "4"}, "learned_total_gates is '4'"),
        ({"learned_active_gates": -1}, "learned_active_gates is -1; at least 0"),
    ],
)
def test_keywords_of_another_type_are_refused(mode: Any, said: str) -> None:
    for call in (costs.estimate_welch_peaks_costs, costs.pick_welch_peaks_strategy):
        with pytest.raises(UsageError, match=said):
            call("gpu", 256, 256, 16, **mode)


def test_models_go_by_any_name_of_their_device() -> None:
    """An alias means its device; a name that means none is refused."""
    by_alias, by_device = (
        costs.estimate_block_welch_ns(256, 256, 16, "gpu", models={name: None})
        for name in ("wgpu", Device.GPU)
    )
    assert by_alias == by_device
    assert by_alias != costs.estimate_block_welch_ns(256, 256, 16, "gpu")
    with pytest.raises(UnknownDevice, match="did you mean 'vulkan'"):
        costs.estimate_block_welch_ns(256, 256, 16, "gpu", models={"vulcan": None})


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: costs.host_fft_peaks_io_profile(-4, FAST), "batch is -4; at least 1"),
        (lambda: costs.host_fft_peaks_io_profile(4, 3), "params is 3; a WelchPeakP"),
        (lambda: costs.build_welch_peaks_fused_graph(0, FAST), "batch is 0; at least"),
        (lambda: costs.build_welch_peaks_fused_graph(2, 256), "params is 256; a Welch"),
        (lambda: costs.fft_only_graph(1, 256, 0), "n_segments is 0; at least 1"),
        (lambda: costs.useful_bytes_touched("4", FAST), "batch is '4'; it must be a w"),
        (lambda: costs.io_cost_ns(GraphIoProfile(), 3), "model is 3; a BackendCostMod"),
        (lambda: costs.io_cost_ns(3, SEED_CPU), "io is 3; a GraphIoProfile"),
        (
            lambda: costs.algorithm_bandwidth_gbps("a", 1),
            "useful_bytes is 'a'; it must",
        ),
        (
            lambda: costs.algorithm_bandwidth_gbps(1, "a"),
            "time_ms is 'a'; it must be a",
        ),
        (lambda: costs.algorithm_bandwidth_gbps(-1, 1), "useful_bytes is -1; at least"),
        (lambda: WelchPeakParams("256"), "n_fft is '256'; it must be a whole number"),
        (lambda: WelchPeakParams(256.0), "n_fft is 256.0; it must be a whole number"),
        (lambda: WelchPeakParams(256, "3"), "k is '3'; it must be a whole number"),
        (lambda: WelchPeakParams(256, 3, 0), "n_segments is 0; at least 1"),
        (lambda: costs.estimate_fused_graph_ns(3, 4, "gpu"), "params is 4; a Welch"),
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
            "batch is 0; at least 1",
        ),
    ],
)
def test_arguments_outside_their_domain_are_refused(call: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        call()


def test_an_infinite_time_moves_nothing() -> None:
    """An infinite time, of a strategy that is ruled out, moves nothing."""
    assert costs.algorithm_bandwidth_gbps(4096, math.inf) == 0.0


@pytest.mark.parametrize(
    "name", ["estimate_welch_peaks_costs", "pick_welch_peaks_breakdown"]
)
def test_an_unknown_keyword_names_the_function_called(name: str) -> None:
    said = rf"^{name}\(\) got an unexpected .*'cost_mod'; did you mean 'cost_mode'\?"
    with pytest.raises(TypeError, match=said):
        getattr(costs, name)("gpu", 256, 256, 16, cost_mod="seed")
    with pytest.raises(TypeError, match=r"estimate_block_welch_ns.*'legacy'"):
        costs.estimate_block_welch_ns(256, 256, 16, "gpu", legacy=True)


def test_numbers_of_numpy_are_plain_ones() -> None:
    """NumPy's numbers count as plain ones: 44 bytes times 2^30 does not overflow."""
    wide = costs.welch_peaks_fusion_io_profiles(
        np.int32(1 << 21), np.int32(256), 1, "gpu"
    )
    assert wide == costs.welch_peaks_fusion_io_profiles(1 << 21, 256, 1, "gpu")
    assert type(WelchPeakParams(np.int64(256)).n_fft) is int
