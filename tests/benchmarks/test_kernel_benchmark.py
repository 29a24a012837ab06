"""Tests of `./dev bench kernels`: cases, rows, variants, record and budget, on
lavapipe.
"""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlxweb.cli.bench_engines import gpu_roofline
from rlxweb.engines.evaluate import evaluate
from rlxweb.engines.reference_comparison import compare_to_reference
from rlxweb.ir.op import registry
from rlxweb.select.device_and_adapter import CPU_PLACE
from tests.benchmarks import kernel_benchmark, kernel_contenders, kernel_timing
from tests.benchmarks.kernel_cases import KernelCase, make_cases, welch_peaks_case
from tests.benchmarks.kernel_contenders import CaseData, Contender, ContenderRow
from tests.benchmarks.kernel_machine_facts import memory_types
from tests.benchmarks.kernel_timing import KernelBenchmark

TINY_OPTIONS = ("--mib", "0.06", "--rows", "8", "--rounds", "3")


def run_bench(folder: Path, device: str, only: str, code: int = 0) -> Any:
    """Run a tiny benchmark that ends with an exit code, and return its record."""
    record = folder / "kernels.json"
    options = ("--device", device, "--only", only, "--json", str(record))
    assert kernel_benchmark.main([*TINY_OPTIONS, *options]) == code
    return json.loads(record.read_text("utf-8"))


@pytest.mark.parametrize(
    "case", list(make_cases(1 << 14, 8)), ids=lambda case: case.label
)
def test_every_case_is_a_graph_that_runs(case: KernelCase) -> None:
    """NumPy runs every case: its inputs are all fed, and something comes out."""
    graph = case.build()
    (out,) = evaluate(graph, case.make_feeds(graph))
    assert out.size
    assert case.nbytes > 0 <= case.flops


@pytest.mark.parametrize(
    "case", list(make_cases(1 << 14, 8)), ids=lambda case: case.label
)
def test_few_rows_equal_the_ends_of_the_full_answer(case: KernelCase) -> None:
    """A few rows, which stand for answers of a GiB, equal those of the full answer.

    They are the first or the last ones.
    """
    graph = case.build()
    feeds = case.make_feeds(graph)
    (out,) = (np.asarray(output) for output in evaluate(graph, feeds))
    node = graph.node(graph.outputs[0])
    for last in (False, True):
        short_graph = case.few(last)
        (want,) = map(
            np.asarray,
            evaluate(short_graph, case.slice_feeds(feeds, short_graph, last)),
        )
        flat = out.reshape(-1)
        end = flat[-want.size :] if last else flat[: want.size]
        tolerance = registry.get(node.op).tolerance
        agreement = compare_to_reference(
            end.reshape(want.shape), want, node.type.dtype, tolerance
        )
        assert not agreement.reason


@pytest.mark.parametrize(
    "name", ["cupy", pytest.param("torch", marks=pytest.mark.requires_torch)]
)
def test_library_implementations_give_the_same_answers(name: str) -> None:
    """PyTorch, and NumPy, whose functions CuPy has, give the same answers."""
    lib = import_module("torch" if name == "torch" else "numpy")
    n_compared = 0
    for case in make_cases(1 << 14, 8):
        graph = case.build()
        feeds = case.make_feeds(graph)
        (want,) = (np.asarray(output) for output in evaluate(graph, feeds))
        if name not in case.peers:
            continue
        operands = (lib.as_tensor(x) if name == "torch" else x for x in feeds.values())
        got = np.asarray(case.peers[name](lib, *operands))
        if case.name == "fft":  # of other pairs of the same numbers
            pairs = feeds["x"].view(np.complex64)
            want = np.fft.fft(pairs)
        elif case.name == "Welch peaks":
            want = want[:, 1::2]  # no bins
        np.testing.assert_allclose(got, want, rtol=2e-2, atol=3e-2, err_msg=case.label)
        n_compared += 1
    assert n_compared > 25


def test_default_cases_include_the_planned_sizes() -> None:
    """Default cases have a GiB at most, 65,536 rows, and every planned length and
    product.
    """
    default_cases = list(make_cases())
    labels = [case.label for case in default_cases]
    assert len(set(labels)) == len(labels)
    assert max(case.nbytes for case in default_cases) <= 1.01 * (1 << 30)
    for label in (
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
        assert label in labels


@pytest.mark.requires_wgpu
def test_every_variant_is_timed_alone(tmp_path: Path) -> None:
    """Every variant is timed alone, cooperative ones too, with engines and
    latencies.
    """
    record = run_bench(tmp_path, "vulkan:llvmpipe", "fft 8 × 256")
    assert record["schema"] == "rlxweb.bench.gpu/1"
    assert record["partial"] is False
    assert record["engines"][0]["software"] is True
    trips = record["trips"]["vulkan:llvmpipe"]
    parts = ("small_run", "round_trip", "encode_and_submit", "wait_and_map")
    assert all(trips[f"{part}_ns"] > 0 for part in parts)
    assert record["from_host"]["vulkan:llvmpipe"]["whole"] > 0
    variants = [row["variant"] for row in record["rows"]]
    assert variants[0] == ""
    for name in ("workgroup a row", "unrolled passes"):
        assert f"fft, {name}" in variants
    assert all(row["ns"] > 0 and not row["why"] for row in record["rows"])
    assert all(row["judged"] == "right" for row in record["rows"])
    assert variants[-1] == "its choice, unchecked shaders"
    assert max(row["of_best"] for row in record["rows"]) == 1


def test_numpy_can_be_timed(tmp_path: Path) -> None:
    """NumPy can be timed; an engine without transfers has no latencies."""
    record = run_bench(tmp_path, "cpu", "row sums 8")
    assert "round_trip_ns" not in record["trips"]["cpu"]
    assert {row["case"] for row in record["rows"]} == {"row sums"}
    chosen, *others = record["rows"]
    assert chosen["chosen"]
    assert "sum" in {chosen["chosen"], *(row["variant"] for row in others)}
    for row in record["rows"]:
        assert row["judged"] == "right", row["why"]
        assert row["samples"] >= 3


@pytest.mark.requires_wgpu
def test_a_wrong_variant_has_no_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong variant has a row that says where, no time, and an exit code of 1."""
    judge = CaseData.check_answer

    def off_by_one(got: Any, *arguments: Any) -> Any:
        return compare_to_reference(np.asarray(got) + 1, *arguments)

    def judge_one_wrong(given: CaseData, row: ContenderRow, *arguments: Any) -> None:
        is_wrong = row.variant == "softmax, workgroup a row"
        compare_function = off_by_one if is_wrong else compare_to_reference
        monkeypatch.setattr(kernel_contenders, "compare_to_reference", compare_function)
        judge(given, row, *arguments)

    monkeypatch.setattr(CaseData, "check_answer", judge_one_wrong)
    record = run_bench(tmp_path, "vulkan:llvmpipe", "softmax 8", code=1)
    rows = {row["variant"]: row for row in record["rows"]}
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
    measure = KernelBenchmark.measure

    def measure_or_stop(
        work: KernelBenchmark, case: KernelCase, budget_ns: float
    ) -> list[ContenderRow]:
        if case.name == "layer norm":
            raise KeyboardInterrupt
        return measure(work, case, budget_ns)

    monkeypatch.setattr(KernelBenchmark, "measure", measure_or_stop)
    record = run_bench(tmp_path, "cpu", "m", code=130)
    assert record["partial"] is True
    case_names = {row["case"] for row in record["rows"]}
    assert "softmax" in case_names
    assert "layer norm" not in case_names


def test_an_unknown_case_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        kernel_benchmark.main(["--device", "cpu", "--only", "nothing"])
    assert "gelu chain" in capsys.readouterr().err


class FakeClock:
    """Clock that simulated work advances by its cost."""

    def __init__(self) -> None:
        self.ns = 0

    def __call__(self) -> int:
        return self.ns


def synthetic_bench(
    clock: FakeClock, costs: dict[str, float], monkeypatch: Any
) -> KernelBenchmark:
    """Create a bench whose contenders take these nanoseconds per run; infinite ones
    raise.
    """

    def contenders(given: Any, places: Any, with_peers: bool) -> Any:
        for name, cost in costs.items():

            def make(stack: Any, cost: float = cost) -> Any:
                def run(times: int) -> None:
                    if cost == np.inf:
                        raise MemoryError("no room")
                    clock.ns += int(cost * times)

                return run

            yield Contender(ContenderRow(given.case, name), make)

    monkeypatch.setattr(kernel_timing, "list_contenders", contenders)
    return KernelBenchmark([CPU_PLACE], budget_s=10.0, clock=clock)


def test_times_are_per_run_and_errors_are_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times are of one run; a contender that fails is a row and ends no other."""
    clock = FakeClock()
    costs = {"slow": 5e6, "fast": 40_000.0, "broken": np.inf}
    work = synthetic_bench(clock, costs, monkeypatch)
    (rows,) = work.run([welch_peaks_case(8, 64, 2)])
    rows_by_engine = {row.engine: row for row in rows}
    assert rows_by_engine["slow"].ns == pytest.approx(5e6)
    assert rows_by_engine["fast"].ns == pytest.approx(40_000, rel=0.01)
    assert rows_by_engine["fast"].samples == 7
    assert "no room" in rows_by_engine["broken"].failure
    assert rows_by_engine["broken"].lacks_memory


def test_a_contender_without_memory_is_timed_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A contender that finds no memory beside the others is timed when they are gone.

    Each holds 3 of 8 GiB, so the third finds none.
    """
    allocations = []

    def contenders(given: Any, places: Any, with_peers: bool) -> Any:
        for name in "abc":

            def make(stack: Any) -> Any:
                if len(allocations) == 2:
                    raise MemoryError("out of memory")
                allocations.append(3)
                stack.callback(allocations.pop)
                return lambda times: None

            yield Contender(ContenderRow(given.case, name), make)

    monkeypatch.setattr(kernel_timing, "list_contenders", contenders)
    (rows,) = KernelBenchmark([CPU_PLACE], budget_s=10.0).run(
        [welch_peaks_case(8, 64, 2)]
    )
    assert [row.failure for row in rows] == ["", "", ""]
    assert all(row.samples for row in rows)


def test_bench_keeps_its_budget_and_names_skipped_cases(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The time is shared among the cases; the last are named when it is gone."""
    clock = FakeClock()
    work = synthetic_bench(clock, {"slow": 0.9e9}, monkeypatch)
    all_cases = list(make_cases(1 << 14, 8))
    results = list(work.run(all_cases))
    assert 0 < len(results) < len(all_cases)
    assert len(results) + len(work.skipped_cases) == len(all_cases)
    assert "no time is left" in work.skipped_cases[0]
    assert clock.ns < 10e9 + 8 * 0.9e9


def test_memory_types_need_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are no memory types where no Vulkan loader is."""
    monkeypatch.setattr("ctypes.CDLL", lambda name: (_ for _ in ()).throw(OSError()))
    assert memory_types() == {}


def test_vendor_figures_are_looked_up_by_gpu_name() -> None:
    """A vendor's figures are found by the GPU's name, NaN if it is not known."""
    assert gpu_roofline("NVIDIA H100 80GB HBM3") == (3350, 66.9)
    assert gpu_roofline("NVIDIA H100 PCIe")[0] == 2039
    assert gpu_roofline("NVIDIA A100-SXM4-80GB")[1] == 19.5
    assert np.isnan(gpu_roofline("llvmpipe")).all()
