"""Fusion of peaks into their Welch estimate, decided by the plans and the target's
prices, never by how the graph is written.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlxweb import Graph, Session
from rlxweb.compiler.pipeline import compile_graph
from rlxweb.compiler.plan import Plan
from rlxweb.compiler.plan_workload import profile_plan
from rlxweb.compiler.target import Target
from rlxweb.core.device import Device
from rlxweb.core.errors import Unsupported, UsageError
from rlxweb.cost.decision import Decision
from rlxweb.cost.device_models import WgpuCostModel
from rlxweb.cost.fusion_gate import (
    FusionTarget,
    IoFusionGate,
    io_fusion_gate_for_target,
)
from rlxweb.gpu.port_protocol import AdapterRequest
from rlxweb.ir.dtype import DType
from rlxweb.ir.tensor import Tensor
from tests.unit.rlx.reference_cost_formulas import FUSION_GATES, gate_score_ns

WELCH_OPS = ("welch_power", "power_peaks", "welch_row_peaks")


def target(gate: IoFusionGate | None = None, without: tuple[str, ...] = ()) -> Target:
    """Return a device with a kernel for every op but those named."""
    return Target(
        "made up",
        frozenset({DType.F32, DType.BOOL, DType.I32}),
        lambda op, *rest: op.name not in without,
        gate=gate,
    )


def seed_gate(name: str) -> IoFusionGate:
    return io_fusion_gate_for_target(FusionTarget(name))


def measured_gate(dispatch: float = 2_000.0, bandwidth: float = 50.0) -> IoFusionGate:
    model = WgpuCostModel(dispatch_overhead_ns=dispatch, memory_bw=bandwidth)
    return IoFusionGate.calibrated(model)


def one_op_peaks(g: Graph, x: Tensor, n: int = 16, k: int = 3) -> Tensor:
    """Add the peaks as one op."""
    window = g.constant(np.hanning(n), "f32")
    return g.apply("welch_row_peaks", x, window, hop=n // 2, k=k)


def two_op_peaks(g: Graph, x: Tensor, n: int = 16, k: int = 3) -> Tensor:
    """Add the peaks as two ops."""
    window = g.constant(np.hanning(n), "f32")
    power = g.apply("welch_power", x, window, hop=n // 2)
    return g.apply("power_peaks", power, k=k)


PeaksBuilder = Callable[..., Tensor]
BOTH_BUILDERS = pytest.mark.parametrize("spelling", [one_op_peaks, two_op_peaks])


def peaks_graph(
    build_peaks: PeaksBuilder, rows: int = 4, n: int = 16, k: int = 3
) -> Graph:
    graph = Graph("peaks")
    x = graph.input("x", (rows, 4 * n))
    graph.set_outputs([build_peaks(graph, x, n, k)])
    return graph


def welch_kernels(plan: Plan) -> list[str]:
    """Return the Welch ops among the plan's kernels, in order."""
    ops = [plan.graph.node(s.nodes[0]).op for s in plan.steps if s.kind == "kernel"]
    return [op for op in ops if op in WELCH_OPS]


def fusion_decisions(plan: Plan) -> list[Decision]:
    return [d for d in plan.decisions if d.what.startswith("welch_row_peaks")]


FUSED_OPS, SEPARATE_OPS = ["welch_row_peaks"], ["welch_power", "power_peaks"]


def compile_site(
    graph: Graph,
    target_or_gate: Target | IoFusionGate | None = None,
    without: tuple[str, ...] = (),
) -> tuple[list[str], Decision]:
    """Return the kernels of a graph with one fusion site, and the decision on it."""
    device_target = (
        target_or_gate
        if isinstance(target_or_gate, Target)
        else target(target_or_gate, without)
    )
    plan = compile_graph(graph, device_target)
    (decision,) = fusion_decisions(plan)
    return welch_kernels(plan), decision


@given(
    device=st.sampled_from(Device),
    rows=st.integers(1, 4000),
    n=st.sampled_from([4, 16, 100, 256]),
    spelling=st.sampled_from([one_op_peaks, two_op_peaks]),
)
def test_seed_gates_follow_the_rlx_formula(
    device: Device, rows: int, n: int, spelling: PeaksBuilder
) -> None:
    """Fusion saves one launch, and writing and reading the spectrum."""
    min_gain = FUSION_GATES[device.label][6]
    traffic = 2 * 4 * rows * (n // 2 + 1)
    score = gate_score_ns(device.label, 1, 0, 0, traffic)
    gate = io_fusion_gate_for_target(FusionTarget.of(device))
    chosen_kernels, decision = compile_site(peaks_graph(spelling, rows, n), gate)
    assert chosen_kernels == (FUSED_OPS if score >= min_gain else SEPARATE_OPS)
    assert decision.what.partition(" ")[2] == (
        "fused" if score >= min_gain else "not fused"
    )
    assert decision.numbers == {
        "score_ns": round(score, 2),
        "launches_saved": 1,
        "waits_saved": 0,
        "traffic_saved_bytes": traffic,
        "readback_saved_bytes": 0,
    }
    assert decision.why.startswith(
        f"the seed fusion gate estimates a gain of {score:,.0f} ns, "
    )
    assert f"{min_gain:,.0f} ns" in decision.why


@BOTH_BUILDERS
@pytest.mark.parametrize("rows", [1, 50, 3000])
def test_measured_gate_accepts_any_gain(spelling: PeaksBuilder, rows: int) -> None:
    """A measured gate accepts any gain, where RLX's gate rejects small ones."""
    graph = peaks_graph(spelling, rows)
    chosen_kernels, decision = compile_site(graph, measured_gate())
    assert chosen_kernels == FUSED_OPS
    score = 2000 + 8 * rows * 9 / 50
    assert decision.numbers["score_ns"] == score
    assert (
        decision.why
        == f"the calibrated fusion gate estimates a gain of {score:,.0f} ns, at "
        "least the required 0 ns"
    )
    if rows == 1:
        assert (
            welch_kernels(compile_graph(graph, target(seed_gate("wgpu"))))
            == SEPARATE_OPS
        )


@BOTH_BUILDERS
def test_costlier_fused_kernel_is_not_used(spelling: PeaksBuilder) -> None:
    """The fused op takes three launches against two, on a device where only launches
    cost.
    """
    costly = replace(
        target(measured_gate(bandwidth=1e9)),
        launches=lambda op, *rest: 3 if op.name == "welch_row_peaks" else 1,
    )
    chosen_kernels, decision = compile_site(peaks_graph(spelling), costly)
    assert chosen_kernels == SEPARATE_OPS
    assert decision.what == "welch_row_peaks not fused"
    assert decision.numbers["launches_saved"] == -1
    assert decision.numbers["score_ns"] == pytest.approx(-2000)
    assert decision.why.endswith("less than the required 0 ns")


@BOTH_BUILDERS
def test_fused_kernel_is_used_without_a_gate(spelling: PeaksBuilder) -> None:
    chosen_kernels, decision = compile_site(peaks_graph(spelling))
    assert chosen_kernels == FUSED_OPS
    assert decision.why == ("the target has no fusion gate, so the fusion is applied")
    assert decision.numbers["launches_saved"] == 1


@BOTH_BUILDERS
@pytest.mark.parametrize("gate", [None, measured_gate(), seed_gate("metal")])
def test_missing_kernel_is_never_fused(
    spelling: PeaksBuilder, gate: IoFusionGate | None
) -> None:
    """A device without the kernel never fuses, whatever the gate would say."""
    chosen_kernels, decision = compile_site(
        peaks_graph(spelling, 4000), gate, ("welch_row_peaks",)
    )
    assert chosen_kernels == SEPARATE_OPS
    assert decision.what == "welch_row_peaks not fused"
    assert decision.why == "made up has no fused kernel for this size"


@BOTH_BUILDERS
def test_both_forms_compile_to_the_same_plan(spelling: PeaksBuilder) -> None:
    """Both ways to write the graph give the same plan, kernel for kernel, byte for
    byte.
    """
    for gate in (measured_gate(), seed_gate("wgpu")):
        plans = [
            compile_graph(peaks_graph(build, 300, 64), target(gate))
            for build in (one_op_peaks, two_op_peaks)
        ]
        first_profile, second_profile = (profile_plan(p, target()) for p in plans)
        assert first_profile == second_profile
        assert welch_kernels(plans[0]) == welch_kernels(plans[1])
        assert plans[0].decisions[1:] == plans[1].decisions[1:]


def test_decision_numbers_are_the_difference_of_the_plans() -> None:
    """The decision's numbers are the difference of both plans, each forced by a
    gate.
    """
    never_fusing_gate = replace(measured_gate(), min_gain_ns=float("inf"))
    separate_plan = compile_graph(
        peaks_graph(one_op_peaks, 77, 100, 5), target(never_fusing_gate)
    )
    fused_plan = compile_graph(peaks_graph(two_op_peaks, 77, 100, 5), target())
    assert (welch_kernels(separate_plan), welch_kernels(fused_plan)) == (
        SEPARATE_OPS,
        FUSED_OPS,
    )
    separate_profile = profile_plan(separate_plan, target())
    fused_profile = profile_plan(fused_plan, target())
    assert fusion_decisions(separate_plan)[0].numbers | {"score_ns": 0} == {
        "score_ns": 0,
        "launches_saved": separate_profile.kernel_launches
        - fused_profile.kernel_launches,
        "waits_saved": separate_profile.sync_points - fused_profile.sync_points,
        "traffic_saved_bytes": separate_profile.device_traffic_bytes
        - fused_profile.device_traffic_bytes,
        "readback_saved_bytes": separate_profile.host_output_bytes
        - fused_profile.host_output_bytes,
    }
    json.dumps(fusion_decisions(separate_plan)[0].as_json(), allow_nan=False)


@BOTH_BUILDERS
@pytest.mark.parametrize(
    ("excess_ns", "expected_kernels"), [(0.0, FUSED_OPS), (1e-6, SEPARATE_OPS)]
)
def test_gain_equal_to_the_minimum_is_enough(
    spelling: PeaksBuilder, excess_ns: float, expected_kernels: list[str]
) -> None:
    """A gain equal to the minimum is enough, and the decision says what was done."""
    gate = replace(
        measured_gate(1000.0, 1.0), min_gain_ns=1000.0 + 8 * 4 * 9 + excess_ns
    )
    chosen_kernels, decision = compile_site(peaks_graph(spelling), gate)
    assert chosen_kernels == expected_kernels
    assert decision.what.partition(" ")[2] == (
        "fused" if expected_kernels is FUSED_OPS else "not fused"
    )


@pytest.mark.parametrize("sizes", [(16, 64), (64, 16)])
@pytest.mark.parametrize("gate", [None, measured_gate()])
def test_kernel_support_depends_on_the_size(
    sizes: tuple[int, int], gate: IoFusionGate | None
) -> None:
    """The device can fuse one of two sites whose results have the same shape."""
    one_size_target = replace(
        target(gate),
        native=lambda op, inputs, *rest: (
            op.name != "welch_row_peaks" or inputs[1].shape == (16,)
        ),
    )
    graph = Graph("two sizes")
    outputs = [one_op_peaks(graph, graph.input(f"x{n}", (4, 256)), n) for n in sizes]
    graph.set_outputs(outputs)
    plan = compile_graph(graph, one_size_target)
    assert welch_kernels(plan) == (
        FUSED_OPS + SEPARATE_OPS if sizes[0] == 16 else SEPARATE_OPS + FUSED_OPS
    )
    decisions = {n: d for n, d in zip(sizes, fusion_decisions(plan), strict=True)}
    assert decisions[16].what == "welch_row_peaks fused"
    assert decisions[64].what == "welch_row_peaks not fused"
    assert decisions[64].why == "made up has no fused kernel for this size"


def test_each_site_is_decided_separately() -> None:
    """A large site is fused and a small one is not."""
    for first, second in ((4, 9999), (9999, 4)):
        graph = Graph("two")
        small, large = graph.input("a", (first, 64)), graph.input("b", (second, 64))
        graph.set_outputs([one_op_peaks(graph, small), two_op_peaks(graph, large)])
        plan = compile_graph(graph, target(seed_gate("wgpu")))
        verdicts = [d.what.partition(" ")[2] for d in fusion_decisions(plan)]
        assert verdicts == (
            ["not fused", "fused"] if first < second else ["fused", "not fused"]
        )
        assert welch_kernels(plan) == (
            SEPARATE_OPS + FUSED_OPS if first < second else FUSED_OPS + SEPARATE_OPS
        )


def test_spectrum_with_other_readers_is_not_fused() -> None:
    """A spectrum that is an output or read by another op stays; nothing is decided."""
    for reader in ("output", "op"):
        graph = Graph("kept")
        x = graph.input("x", (4000, 64))
        window = graph.constant(np.hanning(16), "f32")
        power = graph.apply("welch_power", x, window, hop=8)
        peaks = graph.apply("power_peaks", power, k=3)
        other_output = power if reader == "output" else graph.log(power)
        graph.set_outputs([peaks, other_output])
        plan = compile_graph(graph, target(measured_gate()))
        assert welch_kernels(plan) == SEPARATE_OPS
        assert fusion_decisions(plan) == []


def test_peaks_of_other_power_are_no_fusion_site() -> None:
    graph = Graph("plain")
    graph.set_outputs([graph.apply("power_peaks", graph.input("p", (9, 9)), k=2)])
    assert fusion_decisions(compile_graph(graph, target(measured_gate()))) == []


def test_dead_site_is_not_decided() -> None:
    graph = Graph("dead")
    x = graph.input("x", (4, 64))
    one_op_peaks(graph, x)
    graph.set_outputs([graph.exp(x)])
    assert fusion_decisions(compile_graph(graph, target(measured_gate()))) == []


@BOTH_BUILDERS
def test_unoptimised_graphs_run_as_written(spelling: PeaksBuilder) -> None:
    for gate in (measured_gate(), seed_gate("wgpu")):
        plan = compile_graph(peaks_graph(spelling), target(gate), optimise=False)
        assert welch_kernels(plan) == (
            FUSED_OPS if spelling is one_op_peaks else SEPARATE_OPS
        )
        assert fusion_decisions(plan) == []


@BOTH_BUILDERS
def test_unsupported_form_is_not_chosen(spelling: PeaksBuilder) -> None:
    """A device that cannot search a spectrum can still run the fused kernel."""
    never_fusing_gate = replace(measured_gate(), min_gain_ns=float("inf"))
    chosen_kernels, decision = compile_site(
        peaks_graph(spelling), never_fusing_gate, ("power_peaks",)
    )
    assert chosen_kernels == FUSED_OPS
    assert decision.what == "welch_row_peaks"
    assert decision.why.startswith("the unfused form is not supported: %")
    assert "power_peaks" in decision.why


@BOTH_BUILDERS
def test_graph_is_rejected_if_neither_form_runs(spelling: PeaksBuilder) -> None:
    unable_target = target(measured_gate(), without=("power_peaks", "welch_row_peaks"))
    with pytest.raises(Unsupported, match=r"power_peaks.* on made up"):
        compile_graph(peaks_graph(spelling), unable_target)


@pytest.mark.requires_wgpu
@BOTH_BUILDERS
@pytest.mark.parametrize("rows", [5, 800])
def test_session_cost_mode_selects_the_gate(
    adapter: AdapterRequest, spelling: PeaksBuilder, rows: int
) -> None:
    """RLX's constants do not fuse five rows; measured prices do; the results are the
    same.
    """
    graph = peaks_graph(spelling, rows, 256, 16)
    x = np.random.default_rng(3).standard_normal((rows, 1024)).astype(np.float32)
    results = []
    for mode in ("seed", "calibrated"):
        session = Session(adapter.backends[0], adapter=adapter.name, cost_mode=mode)
        compiled = session.compile(graph)
        (decision,) = [d for d in compiled.decisions if "welch_row_peaks" in d.what]
        is_small = rows == 5
        expected_kernels = SEPARATE_OPS if mode == "seed" and is_small else FUSED_OPS
        assert welch_kernels(compiled.plan) == expected_kernels
        source = "seed" if mode == "seed" else "assumed"
        assert decision.why.startswith(f"the {source} fusion gate estimates ")
        assert decision.what in compiled.explain()
        results.append(compiled.run({"x": x})[0])
        compiled.close()
    want = Session("cpu").compile(graph).run({"x": x})[0]
    for got in results:
        np.testing.assert_allclose(got[:, 1::2], want[:, 1::2], rtol=1e-5)


def test_unknown_cost_modes_are_rejected() -> None:
    with pytest.raises(UsageError, match="it must be 'seed' or 'calibrated'"):
        Session("cpu", cost_mode="guess").compile(peaks_graph(one_op_peaks))


@BOTH_BUILDERS
def test_numpy_results_do_not_depend_on_fusion(spelling: PeaksBuilder) -> None:
    """NumPy's results are the same bit for bit with the seed gate and the calibrated
    one.
    """
    x = np.random.default_rng(5).standard_normal((4, 64)).astype(np.float32)
    results: list[Any] = []
    for mode in ("seed", "calibrated"):
        compiled = Session("cpu", cost_mode=mode).compile(peaks_graph(spelling))
        results += compiled.run({"x": x})
    np.testing.assert_array_equal(results[0], results[1])
