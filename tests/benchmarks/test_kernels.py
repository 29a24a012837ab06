"""`./dev bench kernels`: cases, rows, variants, record, budget; on lavapipe."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlxweb.backends.agreement import compare
from rlxweb.backends.evaluate import evaluate
from rlxweb.cli.bench_engines import roof_of
from rlxweb.devices.place import CPU
from rlxweb.ir.op import registry
from tests.benchmarks import kernel_contenders, kernel_timing, kernels
from tests.benchmarks.kernel_cases import Case, cases, welch_peaks
from tests.benchmarks.kernel_contenders import Contender, Given, Row
from tests.benchmarks.kernel_machine import memory_types
from tests.benchmarks.kernel_timing import Bench

TINY = ("--mib", "0.06", "--rows", "8", "--rounds", "3")


def bench(folder: Path, device: str, only: str, code: int = 0) -> Any:
    """Return the record of a tiny run, which ends with an exit code."""
    record = folder / "kernels.json"
    how = ("--device", device, "--only", only, "--json", str(record))
    assert kernels.main([*TINY, *how]) == code
    return json.loads(record.read_text("utf-8"))


@pytest.mark.parametrize("case", list(cases(1 << 14, 8)), ids=lambda case: case.label)
def test_every_case_is_a_graph_that_runs(case: Case) -> None:
    """NumPy runs every case: its inputs are all fed, and something comes out."""
    graph = case.build()
    (out,) = evaluate(graph, case.feeds(graph))
    assert out.size
    assert case.nbytes > 0 <= case.flops


@pytest.mark.parametrize("case", list(cases(1 << 14, 8)), ids=lambda case: case.label)
def test_few_rows_are_the_ends_of_the_whole_answer(case: Case) -> None:
    """A few rows, by which answers of a GiB are judged, are those of the whole.

    They are the first or the last ones.
    """
    graph = case.build()
    feeds = case.feeds(graph)
    (out,) = (np.asarray(one) for one in evaluate(graph, feeds))
    node = graph.node(graph.outputs[0])
    for last in (False, True):
        few = case.few(last)
        (want,) = map(np.asarray, evaluate(few, case.ends(feeds, few, last)))
        flat = out.reshape(-1)
        end = flat[-want.size :] if last else flat[: want.size]
        allowed = registry.get(node.op).tolerance
        agreed = compare(end.reshape(want.shape), want, node.type.dtype, allowed)
        assert not agreed.why


@pytest.mark.parametrize(
    "name", ["cupy", pytest.param("torch", marks=pytest.mark.requires_torch)]
)
def test_work_by_hand_is_the_same_work(name: str) -> None:
    """PyTorch, and NumPy, whose functions CuPy has, do the same work by hand."""
    lib = import_module("torch" if name == "torch" else "numpy")
    judged = 0
    for case in cases(1 << 14, 8):
        graph = case.build()
        feeds = case.feeds(graph)
        (want,) = (np.asarray(one) for one in evaluate(graph, feeds))
        if name not in case.peers:
            continue
        given = (lib.as_tensor(x) if name == "torch" else x for x in feeds.values())
        got = np.asarray(case.peers[name](lib, *given))
        if case.name == "fft":  # of other pairs of the same numbers
            pairs = feeds["x"].view(np.complex64)
            want = np.fft.fft(pairs)
        elif case.name == "Welch peaks":
            want = want[:, 1::2]  # no bins
        np.testing.assert_allclose(got, want, rtol=2e-2, atol=3e-2, err_msg=case.label)
        judged += 1
    assert judged > 25


def test_the_usual_cases_reach_what_was_promised() -> None:
    """A GiB at most, 65,536 rows, every length and product of the plan."""
    usual = list(cases())
    labels = [case.label for case in usual]
    assert len(set(labels)) == len(labels)
    assert max(case.nbytes for case in usual) <= 1.01 * (1 << 30)
    for wanted in (
        "Welch peaks 65536 × 256, 2 segments",
        "Welch peaks 65536 × 1024, 2 segments",
        "fft 65536 × 1024",
        "fft 4096 × 16384",
        "matmul f32 8192",
        "matmul f16 512",
        "softmax 1024 × 1024",
        "layer norm 65536 × 128",
        "attention 8, 12, 512, 64",
        "gelu chain 67108864",
    ):
        assert wanted in labels


@pytest.mark.requires_wgpu
def test_every_variant_is_timed_alone(tmp_path: Path) -> None:
    """Every variant is timed alone, a team of lanes too, with engines and trips."""
    told = bench(tmp_path, "vulkan:llvmpipe", "fft 8 × 256")
    assert told["schema"] == "rlxweb.bench.gpu/1"
    assert told["partial"] is False
    assert told["engines"][0]["software"] is True
    trips = told["trips"]["vulkan:llvmpipe"]
    parts = ("small_run", "round_trip", "encode_and_submit", "wait_and_map")
    assert all(trips[f"{part}_ns"] > 0 for part in parts)
    assert told["from_host"]["vulkan:llvmpipe"]["whole"] > 0
    variants = [row["variant"] for row in told["rows"]]
    assert variants[0] == ""
    for name in ("workgroup a row", "unrolled passes"):
        assert f"fft, {name}" in variants
    assert all(row["ns"] > 0 and not row["why"] for row in told["rows"])
    assert all(row["judged"] == "right" for row in told["rows"])
    assert variants[-1] == "its choice, unchecked shaders"
    assert max(row["of_best"] for row in told["rows"]) == 1


def test_numpy_may_be_asked_for(tmp_path: Path) -> None:
    """NumPy is an engine that can be timed; one that moves nothing has no trips."""
    told = bench(tmp_path, "cpu", "softmax 8")
    assert "round_trip_ns" not in told["trips"]["cpu"]
    assert {row["case"] for row in told["rows"]} == {"softmax"}
    assert told["rows"][0]["samples"] >= 3


@pytest.mark.requires_wgpu
def test_a_wrong_variant_has_no_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong variant has a row that says where, no time, and an exit code of 1."""
    judge = Given.judge

    def off_by_one(got: Any, *more: Any) -> Any:
        return compare(np.asarray(got) + 1, *more)

    def judged(given: Given, row: Row, *more: Any) -> None:
        is_wrong = row.variant == "softmax, workgroup a row"
        found = off_by_one if is_wrong else compare
        monkeypatch.setattr(kernel_contenders, "compare", found)
        judge(given, row, *more)

    monkeypatch.setattr(Given, "judge", judged)
    told = bench(tmp_path, "vulkan:llvmpipe", "softmax 8", code=1)
    rows = {row["variant"]: row for row in told["rows"]}
    wrong = rows.pop("softmax, workgroup a row")
    assert wrong["judged"] == "wrong"
    assert wrong["ns"] is None
    assert "elements are wrong" in wrong["why"]
    assert rows
    assert all(row["judged"] == "right" and row["ns"] for row in rows.values())


def test_ctrl_c_keeps_what_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record says that it is partial; the exit code is 130."""
    measure = Bench.measure

    def stopped(work: Bench, case: Case, budget_ns: float) -> list[Row]:
        if case.name == "layer norm":
            raise KeyboardInterrupt
        return measure(work, case, budget_ns)

    monkeypatch.setattr(Bench, "measure", stopped)
    told = bench(tmp_path, "cpu", "m", code=130)
    assert told["partial"] is True
    found = {row["case"] for row in told["rows"]}
    assert "softmax" in found
    assert "layer norm" not in found


def test_a_name_that_no_case_has_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        kernels.main(["--device", "cpu", "--only", "nothing"])
    assert "gelu chain" in capsys.readouterr().err


class Clock:
    """Moves by what work says it costs."""

    def __init__(self) -> None:
        self.ns = 0

    def __call__(self) -> int:
        return self.ns


def made_up(clock: Clock, costs: dict[str, float], monkeypatch: Any) -> Bench:
    """A bench whose contenders take so many ns a run; infinite ones raise."""

    def contenders(given: Any, places: Any, with_peers: bool) -> Any:
        for name, cost in costs.items():

            def make(stack: Any, cost: float = cost) -> Any:
                def go(times: int) -> None:
                    if cost == np.inf:
                        raise MemoryError("no room")
                    clock.ns += int(cost * times)

                return go

            yield Contender(Row(given.case, name), make)

    monkeypatch.setattr(kernel_timing, "contenders", contenders)
    return Bench([CPU], budget_s=10.0, clock=clock)


def test_times_are_per_run_and_errors_are_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times are of one run; a contender that fails is a row and ends no other."""
    clock = Clock()
    costs = {"slow": 5e6, "fast": 40_000.0, "broken": np.inf}
    work = made_up(clock, costs, monkeypatch)
    (rows,) = work.run([welch_peaks(8, 64, 2)])
    told = {row.engine: row for row in rows}
    assert told["slow"].ns == pytest.approx(5e6)
    assert told["fast"].ns == pytest.approx(40_000, rel=0.01)
    assert told["fast"].samples == 7
    assert "no room" in told["broken"].why
    assert told["broken"].is_short


def test_who_finds_no_memory_beside_the_others_is_timed_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A contender that finds no memory beside the others is timed when they are gone.

    Each holds 3 of 8 GiB, so the third finds none.
    """
    held = []

    def contenders(given: Any, places: Any, with_peers: bool) -> Any:
        for name in "abc":

            def make(stack: Any) -> Any:
                if len(held) == 2:
                    raise MemoryError("out of memory")
                held.append(3)
                stack.callback(held.pop)
                return lambda times: None

            yield Contender(Row(given.case, name), make)

    monkeypatch.setattr(kernel_timing, "contenders", contenders)
    (rows,) = Bench([CPU], budget_s=10.0).run([welch_peaks(8, 64, 2)])
    assert [row.why for row in rows] == ["", "", ""]
    assert all(row.samples for row in rows)


def test_it_ends_within_its_budget_and_says_what_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The time is shared among the cases; the last are named when it is gone."""
    clock = Clock()
    work = made_up(clock, {"slow": 0.9e9}, monkeypatch)
    every = list(cases(1 << 14, 8))
    done = list(work.run(every))
    assert 0 < len(done) < len(every)
    assert len(done) + len(work.left_out) == len(every)
    assert "no time is left" in work.left_out[0]
    assert clock.ns < 10e9 + 8 * 0.9e9


def test_memory_types_need_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are no memory types where no Vulkan loader is."""
    monkeypatch.setattr("ctypes.CDLL", lambda name: (_ for _ in ()).throw(OSError()))
    assert memory_types() == {}


def test_makers_figures_are_found_by_name() -> None:
    """A maker's figures are found by the GPU's name, NaN where it is not known."""
    assert roof_of("NVIDIA H100 80GB HBM3") == (3350, 66.9)
    assert roof_of("NVIDIA H100 PCIe")[0] == 2039
    assert roof_of("NVIDIA A100-SXM4-80GB")[1] == 19.5
    assert np.isnan(roof_of("llvmpipe")).all()
