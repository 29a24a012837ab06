"""Whether peaks are fused into their estimate: by the plans of both spellings and the
prices of the target, never for the spelling itself.
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
from rlxweb.compile.pipeline import compile_graph
from rlxweb.compile.plan import Plan
from rlxweb.compile.plan_work import profile_plan
from rlxweb.compile.target import Target
from rlxweb.cost.fusion_gate import (
    FusionTarget,
    IoFusionGate,
    io_fusion_gate_for_target,
)
from rlxweb.cost.model import WgpuCostModel
from rlxweb.decision.decision import Decision
from rlxweb.device import Device
from rlxweb.errors import Unsupported, UsageError
from rlxweb.gpu.port import Want
from rlxweb.ir.dtype import DType
from rlxweb.ir.tensor import Tensor
from tests.unit.rlx.restated_costs import GATES, score_ns

NAMES = ("welch_power", "power_peaks", "welch_row_peaks")


def target(gate: IoFusionGate | None = None, without: tuple[str, ...] = ()) -> Target:
    """A device with a kernel for every op but those named."""
    return Target(
        "made up",
        frozenset({DType.F32, DType.BOOL, DType.I32}),
        lambda op, *rest: op.name not in without,
        gate=gate,
    )


def seed(name: str) -> IoFusionGate:
    return io_fusion_gate_for_target(FusionTarget(name))


def measured(dispatch: float = 2_000.0, bandwidth: float = 50.0) -> IoFusionGate:
    model = WgpuCostModel(dispatch_overhead_ns=dispatch, memory_bw=bandwidth)
    return IoFusionGate.calibrated(model)


def fused(g: Graph, x: Tensor, n: int = 16, k: int = 3) -> Tensor:
    """The peaks as one op."""
    window = g.constant(np.hanning(n), "f32")
    return g.apply("welch_row_peaks", x, window, hop=n // 2, k=k)


def apart(g: Graph, x: Tensor, n: int = 16, k: int = 3) -> Tensor:
    """The peaks as two."""
    window = g.constant(np.hanning(n), "f32")
    power = g.apply("welch_power", x, window, hop=n // 2)
    return g.apply("power_peaks", power, k=k)


Spelling = Callable[..., Tensor]
SPELLINGS = pytest.mark.parametrize("spelling", [fused, apart])


def graph_of(spelling: Spelling, rows: int = 4, n: int = 16, k: int = 3) -> Graph:
    graph = Graph("peaks")
    x = graph.input("x", (rows, 4 * n))
    graph.set_outputs([spelling(graph, x, n, k)])
    return graph


def kernels(plan: Plan) -> list[str]:
    """The Welch ops among the plan's kernels, in order."""
    ops = [plan.graph.node(s.nodes[0]).op for s in plan.steps if s.kind == "kernel"]
    return [op for op in ops if op in NAMES]


def gates_word(plan: Plan) -> list[Decision]:
    return [d for d in plan.decisions if d.what.startswith("welch_row_peaks")]


TOGETHER, TWO = ["welch_row_peaks"], ["welch_power", "power_peaks"]


def settled(
    graph: Graph,
    how: Target | IoFusionGate | None = None,
    without: tuple[str, ...] = (),
) -> tuple[list[str], Decision]:
    """The kernels of a graph with one site, and the word on it."""
    on = how if isinstance(how, Target) else target(how, without)
    plan = compile_graph(graph, on)
    (decision,) = gates_word(plan)
    return kernels(plan), decision


@given(
    device=st.sampled_from(Device),
    rows=st.integers(1, 4000),
    n=st.sampled_from([4, 16, 100, 256]),
    spelling=st.sampled_from([fused, apart]),
)
def test_rlxs_gates_by_their_formula(
    device: Device, rows: int, n: int, spelling: Spelling
) -> None:
    """One launch is saved, and the spectrum's way out and in again."""
    least = GATES[device.label][6]
    traffic = 2 * 4 * rows * (n // 2 + 1)
    score = score_ns(device.label, 1, 0, 0, traffic)
    gate = io_fusion_gate_for_target(FusionTarget.of(device))
    found, decision = settled(graph_of(spelling, rows, n), gate)
    assert found == (TOGETHER if score >= least else TWO)
    assert decision.what.endswith("fused" if score >= least else "apart")
    assert decision.numbers == {
        "score_ns": round(score, 2),
        "launches_saved": 1,
        "waits_saved": 0,
        "traffic_saved_bytes": traffic,
        "readback_saved_bytes": 0,
    }
    assert decision.why.startswith(f"the seed gate scores it {score:,.0f} ns, ")
    assert f"{least:,.0f} ns" in decision.why


@SPELLINGS
@pytest.mark.parametrize("rows", [1, 50, 3000])
def test_a_measured_gate_takes_any_gain(spelling: Spelling, rows: int) -> None:
    """A measured gate takes any gain, where RLX's keeps small ones apart."""
    graph = graph_of(spelling, rows)
    found, decision = settled(graph, measured())
    assert found == TOGETHER
    score = 2000 + 8 * rows * 9 / 50
    assert decision.numbers["score_ns"] == score
    assert (
        decision.why == f"the calibrated gate scores it {score:,.0f} ns, at least 0 ns"
    )
    if rows == 1:
        assert kernels(compile_graph(graph, target(seed("wgpu")))) == TWO


@SPELLINGS
def test_a_fused_kernel_that_costs_more_is_left(spelling: Spelling) -> None:
    """Three launches against two, on a device where only launches cost."""
    costly = replace(
        target(measured(bandwidth=1e9)),
        launches=lambda op, *rest: 3 if op.name == "welch_row_peaks" else 1,
    )
    found, decision = settled(graph_of(spelling), costly)
    assert found == TWO
    assert decision.what == "welch_row_peaks apart"
    assert decision.numbers["launches_saved"] == -1
    assert decision.numbers["score_ns"] == pytest.approx(-2000)
    assert decision.why.endswith("less than 0 ns")


@SPELLINGS
def test_without_a_gate_a_kernel_is_used(spelling: Spelling) -> None:
    found, decision = settled(graph_of(spelling))
    assert found == TOGETHER
    assert decision.why == "the target has no gate to ask"
    assert decision.numbers["launches_saved"] == 1


@SPELLINGS
@pytest.mark.parametrize("gate", [None, measured(), seed("metal")])
def test_what_has_no_kernel_is_never_fused(
    spelling: Spelling, gate: IoFusionGate | None
) -> None:
    """A device without the kernel never fuses, whatever the gate would say."""
    found, decision = settled(graph_of(spelling, 4000), gate, ("welch_row_peaks",))
    assert found == TWO
    assert decision.what == "welch_row_peaks apart"
    assert decision.why == "made up has no kernel for it at this size"


@SPELLINGS
def test_both_spellings_make_one_plan(spelling: Spelling) -> None:
    """Both spellings make one plan, kernel for kernel, byte for byte."""
    for gate in (measured(), seed("wgpu")):
        plans = [
            compile_graph(graph_of(s, 300, 64), target(gate)) for s in (fused, apart)
        ]
        one, two = (profile_plan(p, target()) for p in plans)
        assert one == two
        assert kernels(plans[0]) == kernels(plans[1])
        assert plans[0].decisions[1:] == plans[1].decisions[1:]


def test_the_numbers_are_the_difference_of_the_plans() -> None:
    """The numbers are the difference of both plans, each forced by a gate."""
    never = replace(measured(), min_gain_ns=float("inf"))
    before = compile_graph(graph_of(fused, 77, 100, 5), target(never))
    after = compile_graph(graph_of(apart, 77, 100, 5), target())
    assert (kernels(before), kernels(after)) == (TWO, TOGETHER)
    one, two = profile_plan(before, target()), profile_plan(after, target())
    assert gates_word(before)[0].numbers | {"score_ns": 0} == {
        "score_ns": 0,
        "launches_saved": one.kernel_launches - two.kernel_launches,
        "waits_saved": one.sync_points - two.sync_points,
        "traffic_saved_bytes": one.device_traffic_bytes - two.device_traffic_bytes,
        "readback_saved_bytes": one.host_output_bytes - two.host_output_bytes,
    }
    json.dumps(gates_word(before)[0].as_json(), allow_nan=False)


@SPELLINGS
@pytest.mark.parametrize(("more", "kept"), [(0.0, TOGETHER), (1e-6, TWO)])
def test_a_gain_that_is_just_enough_will_do(
    spelling: Spelling, more: float, kept: list[str]
) -> None:
    """A gain of exactly the least is enough, and the decision says what was done."""
    gate = replace(measured(1000.0, 1.0), min_gain_ns=1000.0 + 8 * 4 * 9 + more)
    found, decision = settled(graph_of(spelling), gate)
    assert found == kept
    assert decision.what.split()[1] == ("fused" if kept is TOGETHER else "apart")


@pytest.mark.parametrize("sizes", [(16, 64), (64, 16)])
@pytest.mark.parametrize("gate", [None, measured()])
def test_a_kernel_for_one_size_is_none_for_another(
    sizes: tuple[int, int], gate: IoFusionGate | None
) -> None:
    """Two sites with results of one shape, of which the device can fuse one."""
    some = replace(
        target(gate),
        native=lambda op, inputs, *rest: (
            op.name != "welch_row_peaks" or inputs[1].shape == (16,)
        ),
    )
    graph = Graph("two sizes")
    found = [fused(graph, graph.input(f"x{n}", (4, 256)), n) for n in sizes]
    graph.set_outputs(found)
    plan = compile_graph(graph, some)
    assert kernels(plan) == (TOGETHER + TWO if sizes[0] == 16 else TWO + TOGETHER)
    words = {n: d for n, d in zip(sizes, gates_word(plan), strict=True)}
    assert words[16].what == "welch_row_peaks fused"
    assert words[64].what == "welch_row_peaks apart"
    assert words[64].why == "made up has no kernel for it at this size"


def test_each_site_is_settled_on_its_own() -> None:
    """Sites are settled each on its own: a large one fused, a small one apart."""
    for first, second in ((4, 9999), (9999, 4)):
        graph = Graph("two")
        small, large = graph.input("a", (first, 64)), graph.input("b", (second, 64))
        graph.set_outputs([fused(graph, small), apart(graph, large)])
        plan = compile_graph(graph, target(seed("wgpu")))
        words = [d.what.split()[1] for d in gates_word(plan)]
        assert words == (["apart", "fused"] if first < second else ["fused", "apart"])
        assert kernels(plan) == (TWO + TOGETHER if first < second else TOGETHER + TWO)


def test_a_spectrum_that_is_wanted_is_not_hidden() -> None:
    """A spectrum that is an output or read by another op stays; nothing is decided."""
    for reader in ("output", "op"):
        graph = Graph("kept")
        x = graph.input("x", (4000, 64))
        window = graph.constant(np.hanning(16), "f32")
        power = graph.apply("welch_power", x, window, hop=8)
        peaks = graph.apply("power_peaks", power, k=3)
        other = power if reader == "output" else graph.log(power)
        graph.set_outputs([peaks, other])
        plan = compile_graph(graph, target(measured()))
        assert kernels(plan) == TWO
        assert gates_word(plan) == []


def test_peaks_of_other_power_are_no_site() -> None:
    graph = Graph("plain")
    graph.set_outputs([graph.apply("power_peaks", graph.input("p", (9, 9)), k=2)])
    assert gates_word(compile_graph(graph, target(measured()))) == []


def test_a_dead_site_is_not_asked_about() -> None:
    graph = Graph("dead")
    x = graph.input("x", (4, 64))
    fused(graph, x)
    graph.set_outputs([graph.exp(x)])
    assert gates_word(compile_graph(graph, target(measured()))) == []


@SPELLINGS
def test_unoptimised_graphs_are_run_as_they_are_written(spelling: Spelling) -> None:
    for gate in (measured(), seed("wgpu")):
        plan = compile_graph(graph_of(spelling), target(gate), optimise=False)
        assert kernels(plan) == (TOGETHER if spelling is fused else TWO)
        assert gates_word(plan) == []


@SPELLINGS
def test_a_spelling_that_is_refused_is_not_taken(spelling: Spelling) -> None:
    """A device that cannot search a spectrum can still run the fused kernel."""
    never = replace(measured(), min_gain_ns=float("inf"))
    found, decision = settled(graph_of(spelling), never, ("power_peaks",))
    assert found == TOGETHER
    assert decision.what == "welch_row_peaks"
    assert decision.why.startswith("the other spelling is refused: %")
    assert "power_peaks" in decision.why


@SPELLINGS
def test_where_neither_runs_the_graph_is_refused(spelling: Spelling) -> None:
    nothing = target(measured(), without=("power_peaks", "welch_row_peaks"))
    with pytest.raises(Unsupported, match=r"power_peaks.* on made up"):
        compile_graph(graph_of(spelling), nothing)


@pytest.mark.requires_wgpu
@SPELLINGS
@pytest.mark.parametrize("rows", [5, 800])
def test_sessions_ask_the_gate_of_their_mode(
    adapter: Want, spelling: Spelling, rows: int
) -> None:
    """RLX's constants keep five rows apart; prices fuse them; answers are the same."""
    graph = graph_of(spelling, rows, 256, 16)
    x = np.random.default_rng(3).standard_normal((rows, 1024)).astype(np.float32)
    answers = []
    for mode in ("seed", "calibrated"):
        session = Session(adapter.backends[0], adapter=adapter.name, cost_mode=mode)
        compiled = session.compile(graph)
        (decision,) = [d for d in compiled.decisions if "welch_row_peaks" in d.what]
        is_small = rows == 5
        wants = TWO if mode == "seed" and is_small else TOGETHER
        assert kernels(compiled.plan) == wants
        source = "seed" if mode == "seed" else "assumed"
        assert decision.why.startswith(f"the {source} gate scores it ")
        assert decision.what in compiled.explain()
        answers.append(compiled.run({"x": x})[0])
        compiled.close()
    want = Session("cpu").compile(graph).run({"x": x})[0]
    for got in answers:
        np.testing.assert_allclose(got[:, 1::2], want[:, 1::2], rtol=1e-5)


def test_unknown_modes_are_refused() -> None:
    with pytest.raises(UsageError, match="it must be 'seed' or 'calibrated'"):
        Session("cpu", cost_mode="guess").compile(graph_of(fused))


@SPELLINGS
def test_numpy_gives_the_same_either_way(spelling: Spelling) -> None:
    """NumPy's answer is the same bit for bit, with the CPU's own gate and without."""
    x = np.random.default_rng(5).standard_normal((4, 64)).astype(np.float32)
    found: list[Any] = []
    for mode in ("seed", "calibrated"):
        compiled = Session("cpu", cost_mode=mode).compile(graph_of(spelling))
        found += compiled.run({"x": x})
    np.testing.assert_array_equal(found[0], found[1])
