"""Autotuning of kernel variants: timed, checked, stored, and what the results
decide.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.compiler.pipeline import compile_graph
from rlxweb.core.errors import GpuTimeout, InputError
from rlxweb.cost.calibration_json import calibration_from_json
from rlxweb.cost.calibration_record import (
    AutotuneResult,
    Calibration,
    MeasuredPoint,
    nearest_result,
)
from rlxweb.engines.pool import pool
from rlxweb.engines.webgpu.engine import WebGpuEngine
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import node_signature
from rlxweb.ir.op import TensorType, registry
from rlxweb.ops.kernel_variant import KernelVariant
from rlxweb.ops.reduce.wgsl.variants import row_reduction_planner
from rlxweb.select.calibration import autotune as module
from rlxweb.select.calibration.autotune import (
    AUTOTUNE_CASES,
    AutotuneCase,
    autotune_ops,
    rank_by_time,
    repeats_per_sample,
)
from rlxweb.select.calibration.calibration_store import calibration_store
from rlxweb.select.calibration.engine_calibration_lookup import known_record
from rlxweb.select.calibration.stopwatch import Stopwatch
from rlxweb.select.device_and_adapter import engine_identity, parse_place
from tests.kernel_tables import WGSL_TABLE

PLACE = parse_place("vulkan:llvmpipe")
VARIANT_TABLE = WGSL_TABLE.id
QUICK_STOPWATCH = Stopwatch(samples=3, sample_ns=0, budget_ns=1e6)
FFT_RESULT = AutotuneResult(
    "fft", (8, 512), (("fft, unrolled passes", 1.0), ("fft", 2.0)), (), VARIANT_TABLE
)


@pytest.fixture
def lavapipe() -> Iterator[WebGpuEngine]:
    """The pool's lavapipe engine; its autotuning results are cleared after the
    test.
    """
    engine = pool.engine("vulkan", "llvmpipe")
    assert isinstance(engine, WebGpuEngine)
    yield engine
    engine.apply_autotuning(())


def engine_with_variants(
    engine: WebGpuEngine, *variants: KernelVariant
) -> WebGpuEngine:
    """Return an engine of the same device with other kernel variants."""
    return WebGpuEngine(engine.port, variants=variants)


def single_op_graph(op: str, *attrs: Any) -> rlx.Graph:
    graph = rlx.Graph(op)
    graph.set_outputs([getattr(graph, op)(graph.input("x", (8, 512)), *attrs)])
    return graph


def chosen_variant(engine: WebGpuEngine, graph: rlx.Graph | None = None) -> str:
    """Name of the variant chosen for the graph's op; for an FFT if no graph is
    given.
    """
    graph = graph or single_op_graph("fft")
    node = graph.node(graph.outputs[0])
    kernel = engine.kernel_selector.select_kernel(*node_signature(graph, node))
    return "" if kernel is None else kernel.variant


def case_op(case: AutotuneCase) -> str:
    graph = case.graph(1 if case.has_independent_rows else case.width)
    return graph.node(graph.outputs[0]).op


def test_faster_variant_is_first_and_ties_keep_order() -> None:
    times = {"a": 104.0, "b": 100.0, "c": 10.0, "d": 9.0, "e": 9.1}
    want = ("d", 9.0), ("e", 9.1), ("c", 10.0), ("a", 104.0), ("b", 100.0)
    assert rank_by_time(times) == want
    assert rank_by_time({}) == ()


def test_round_trip_is_small_part_of_sample() -> None:
    """A run of 10 µs behind a round trip of 150 µs is repeated; one of a second is done
    once.
    """
    now = 0

    def run(times: int, each: int = 10_000) -> None:
        nonlocal now
        now += 150_000 + times * each

    watch = Stopwatch(clock=lambda: now)
    assert 150_000 < 0.1 * repeats_per_sample(run, watch) * 10_000
    assert repeats_per_sample(partial(run, each=10**9), watch) == 1


def test_every_op_is_autotuned_before_any_repeats() -> None:
    ops = [case_op(case) for case in AUTOTUNE_CASES]
    assert len(set(ops[: len(set(ops))])) == len(set(ops)) > 5


@pytest.mark.requires_wgpu
def test_every_eligible_variant_is_timed(
    lavapipe: WebGpuEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Variants are timed interleaved, including the op's own kernel; the fastest comes
    first.
    """
    fft_cases = [case for case in AUTOTUNE_CASES if case.width == 512][:1]
    monkeypatch.setattr(module, "AUTOTUNE_CASES", fft_cases)
    steps: list[str] = []
    (result,) = autotune_ops(lavapipe, QUICK_STOPWATCH, 60.0, steps.append)
    assert {name for name, _ in result.ways} == {
        "fft",
        "fft, team of lanes a row",
        "fft, workgroup a row",
        "fft, unrolled passes",
    }
    assert result.ways == rank_by_time(dict(result.ways)), "the fastest first"
    assert min(ns for _, ns in result.ways) > 0
    assert (result.op, result.size, result.wrong) == ("fft", (128, 512), ())
    assert steps == ["autotuning fft, 128 × 512"]
    assert f"fft 128 × 512: {result.ways[0][0]}; " in str(result)
    assert list(autotune_ops(lavapipe, QUICK_STOPWATCH, 0.0, steps.append)) == []


@pytest.mark.parametrize("case", AUTOTUNE_CASES, ids=lambda heat: f"{heat.width}")
def test_cases_are_single_op_graphs_by_rows(case: Any) -> None:
    """Cases compute row by row, so that checking the first and last rows of a result
    suffices.
    """
    graph = case.graph(case.shape(1 << 22)[0])
    assert registry.get(graph.node(graph.outputs[0]).op).name
    assert case.shape(1 << 22)[0] * case.width <= 1 << 22


@pytest.mark.requires_wgpu
def test_wrong_variant_is_excluded_and_reported(
    lavapipe: WebGpuEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong variant is excluded and reported however fast it is; no engine uses
    it.
    """
    wrong = KernelVariant("sum, the largest", "sum", row_reduction_planner("max"))
    right = KernelVariant("sum, many lanes", "sum", row_reduction_planner("sum"))
    engine = engine_with_variants(lavapipe, wrong, right)
    total = single_op_graph("sum", 1)
    assert chosen_variant(engine, total) == wrong.name
    variants = engine.kernel_selector.kernels.variants
    monkeypatch.setattr(module, "load_kernels", lambda kind: variants)
    monkeypatch.setattr(
        module,
        "AUTOTUNE_CASES",
        [case for case in AUTOTUNE_CASES if case_op(case) == "sum"],
    )
    result, *_ = autotune_ops(engine, QUICK_STOPWATCH, 60.0, lambda step: None)
    ((name, why),) = result.wrong
    assert name == wrong.name
    assert "elements are wrong" in why
    assert {variant for variant, _ in result.ways} == {"sum", right.name}
    engine.apply_autotuning([result])
    assert chosen_variant(engine, total) == result.ways[0][0]


@pytest.mark.requires_wgpu
def test_hanging_variant_ends_autotuning_not_calibration(
    lavapipe: WebGpuEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A variant that hangs is named and never used; the others keep the order of the
    table.
    """
    engine = engine_with_variants(lavapipe, *WGSL_TABLE.variants)
    with_variant = engine.with_variant

    def with_hanging_variant(variant: str) -> Any:
        if "team of lanes" in variant:
            raise GpuTimeout("wait", "it did not finish")
        return with_variant(variant)

    monkeypatch.setattr(engine, "with_variant", with_hanging_variant)
    (result,) = autotune_ops(engine, QUICK_STOPWATCH, 60.0, lambda step: None)
    assert result.ways == ()
    assert result.wrong[0][0] == "fft, team of lanes a row"
    assert str(result).endswith("no variant succeeded")
    assert chosen_variant(engine) == "fft, team of lanes a row"
    engine.apply_autotuning([result])
    assert chosen_variant(engine) == "fft, workgroup a row"


@pytest.mark.requires_wgpu
def test_engine_uses_order_of_autotuning(lavapipe: WebGpuEngine) -> None:
    """A result orders the variants, including the op's own kernel; without it the order
    is unchanged.
    """
    assert chosen_variant(lavapipe) == "fft, team of lanes a row"
    lavapipe.apply_autotuning([FFT_RESULT])
    assert chosen_variant(lavapipe) == "fft, unrolled passes"
    plain_first = dataclasses.replace(
        FFT_RESULT, ways=(("fft", 1.0), *FFT_RESULT.ways[:1])
    )
    lavapipe.apply_autotuning([plain_first])
    assert chosen_variant(lavapipe) == "fft"
    lavapipe.apply_autotuning([dataclasses.replace(FFT_RESULT, table="another")])
    assert chosen_variant(lavapipe) == "fft, team of lanes a row"
    lavapipe.apply_autotuning([FFT_RESULT])
    lavapipe.apply_autotuning([])
    assert chosen_variant(lavapipe) == "fft, team of lanes a row"


def test_nearest_result_decides() -> None:
    """The nearest result of the same op decides, in octaves of rows and width."""

    def fft_result(rows: int, width: int) -> AutotuneResult:
        return AutotuneResult("fft", (rows, width), (("fft", 1.0),))

    near, far = fft_result(1024, 512), fft_result(16, 8192)
    for rows, width, expected in ((1000, 512, near), (8, 4096, far), (64, 256, near)):
        x = TensorType((rows, width), DType.F32)
        assert nearest_result([far, near], "fft", (x,)) is expected
        assert nearest_result([far, near], "rfft", (x,)) is None
    assert nearest_result([near], "fft", (TensorType((0, 0), DType.F32),)) is near


def calibration_record(**changes: Any) -> Calibration:
    names = ("engine", "backend", "driver", "rlxweb", "machine")
    identity = engine_identity(PLACE)
    points = (MeasuredPoint("run", {}, 5.0),)
    fields = dict(zip(names, identity, strict=False)) | changes
    return Calibration(device="vulkan", points=points, made="now", **fields)


@pytest.mark.requires_wgpu
def test_record_stores_autotune_results() -> None:
    """A record stores its results, old records have none, and invalid results are
    rejected.
    """
    stored = calibration_record(
        races=(dataclasses.replace(FFT_RESULT, wrong=(("fft, x", "no"),)),)
    )
    document = json.loads(json.dumps(stored.as_json()))
    assert calibration_from_json(document) == stored
    del document["races"]
    assert calibration_from_json(document).races == ()
    for invalid_results in (
        [{"op": 1}],
        [stored.as_json()["races"][0] | {"ways": [["a", -1]]}],
    ):
        with pytest.raises(InputError):
            calibration_from_json(document | {"races": invalid_results})


@pytest.mark.requires_wgpu
def test_session_uses_autotune_results(
    lavapipe: WebGpuEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session uses its engine's autotuned variants; its results are the same without
    them.
    """
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path))
    x = np.random.default_rng(0).standard_normal((8, 512)).astype(np.float32)

    def run_fft() -> Any:
        session = rlx.Session("vulkan", adapter="llvmpipe")
        return session.compile(single_op_graph("fft")).run({"x": x})[0]

    calibration_store.clear()
    before = run_fft()
    calibration_store.save(calibration_record(races=(FFT_RESULT,)))
    after = run_fft()
    assert chosen_variant(lavapipe) == "fft, unrolled passes"
    np.testing.assert_allclose(after, before, atol=1e-4)
    calibration_store.clear()
    for path in tmp_path.iterdir():
        path.unlink()
    assert known_record(PLACE) is None
    np.testing.assert_array_equal(run_fft(), before)
    assert chosen_variant(lavapipe) == "fft, team of lanes a row"


@pytest.mark.requires_wgpu
def test_variant_is_forced_by_name(lavapipe: WebGpuEngine) -> None:
    """A variant is forced by name; with an empty name the op runs as declared."""
    plain = lavapipe.with_variant("")
    assert isinstance(plain, WebGpuEngine)
    assert chosen_variant(plain) == "fft"
    plan = compile_graph(single_op_graph("fft"), plain.target)
    program = run_blocking(plain.prepare(plan))
    run_blocking(program.close())
