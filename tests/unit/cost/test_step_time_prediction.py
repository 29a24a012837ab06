"""Predicted time of single steps: decompositions, single ops, strided operands."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlxweb import Graph
from rlxweb.compiler.pipeline import compile_graph
from rlxweb.compiler.plan_workload import plan_workload
from rlxweb.compiler.target import Target
from rlxweb.cost.calibration_record import Calibration, MeasuredPoint
from rlxweb.cost.graph_work import graph_workload, node_items
from rlxweb.cost.work_kinds import KINDS
from rlxweb.cost.work_pricing import FittedPrices, workload_terms
from rlxweb.cost.workload import WorkItem, Workload
from rlxweb.engines.cpu import CpuEngine
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import node_signature
from rlxweb.ir.lowering import Compose
from rlxweb.ir.op import registry
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.fft.wgsl import plan as calls
from rlxweb.select.calibration.calibration_jobs import op_probes
from tests.engines_under_test import single_op_graph

HOST_TARGET = CpuEngine.target
DEVICE_TARGET = Target("test", frozenset(DType), lambda *rest: True)
COPY_POINT = MeasuredPoint("copy", {"bytes": 1000}, 1000.0)  # a byte takes a nanosecond
MATMUL_POINTS = tuple(
    MeasuredPoint("matmul", {"m": n, "k": n, "n": n}, 2.0 * n**3 / gflops)
    for n, gflops in ((10, 1.0), (1000, 100.0))
)


def build_prices(*points: MeasuredPoint) -> FittedPrices:
    return FittedPrices(
        Calibration("cpu", "a", "b", "c", "d", "e", (COPY_POINT, *points))
    )


def work_items(
    build: Callable[[Graph], Tensor], target: Target
) -> tuple[WorkItem, ...]:
    graph = Graph("priced")
    graph.set_outputs([build(graph)])
    return plan_workload(compile_graph(graph, target), target).items


def build_attention(g: Graph, kind: str = "none") -> Tensor:
    shape = (2, 3, 8, 4)
    q, k, v = (g.input(name, shape) for name in "qkv")
    return g.attention(q, k, v, num_heads=3, head_dim=4, mask_kind=kind)


def test_attention_on_numpy_is_priced_as_products_and_softmax() -> None:
    steps = work_items(build_attention, HOST_TARGET)
    kinds = Counter(step.kind for step in steps)
    assert kinds == {"mul": 1, "matmul": 2, "softmax": 1}
    for step in steps:
        if step.kind == "matmul":
            assert step.flops == 2 * 2 * 3 * 8 * 8 * 4
            assert {"m": 8, "batch": 6}.items() <= step.size.items()
        if step.kind == "softmax":
            assert step.size == {"cells": 2 * 3 * 8 * 8, "rows": 2 * 3 * 8}
    masked = Counter(
        step.kind
        for step in work_items(lambda g: build_attention(g, "causal"), HOST_TARGET)
    )
    assert masked - kinds == {"le": 1, "where": 1}


@pytest.mark.parametrize(
    "name", [op.name for op in registry if isinstance(op.lower, Compose)]
)
def test_no_composed_op_is_priced_as_one_step(name: str) -> None:
    """A composed op is priced by its parts, unless it declares a work kind."""
    op = registry.get(name)
    for sample in op.samples:
        graph = single_op_graph(op, sample, sample.draw())
        (node,) = (n for n in graph.nodes() if n.op == name)
        steps = node_items(graph, node)
        if steps:
            break
    if op.work is not None:
        assert [step.kind for step in steps] == [
            op.work(*work_arguments(graph, name))[0]
        ]
        return
    assert steps
    assert name not in {step.kind for step in steps}
    assert graph_workload(graph).items == steps


def work_arguments(graph: Graph, name: str) -> tuple[object, ...]:
    """Return the arguments of an op's `work` function: input types, type,
    attributes.
    """
    (node,) = (n for n in graph.nodes() if n.op == name)
    return node_signature(graph, node)[1:]


def test_an_op_costs_its_measured_time() -> None:
    """An op costs its launch, the transfer of its bytes, and the time of its
    elements.
    """
    points = (
        MeasuredPoint("topk", {"cells": 10, "bytes": 80}, 500.0),
        MeasuredPoint("topk", {"cells": 1000, "bytes": 8000}, 500.0 + 8000.0 + 3000.0),
    )
    (item,) = work_items(lambda g: g.topk(g.input("x", (4, 50)), 4), HOST_TARGET)
    assert item.size == {"cells": 200, "rows": 4}
    terms = workload_terms(Workload((item,), 0, 0), build_prices(*points))
    assert terms.compute_ns == pytest.approx(500.0 + item.nbytes + 3.0 * 200)
    assert terms.traffic_ns == 0.0


def test_an_op_faster_than_a_copy_costs_a_share_of_it() -> None:
    points = (MeasuredPoint("sum", {"cells": 1000, "bytes": 4000}, 1000.0),)
    (item,) = work_items(lambda g: g.sum(g.input("x", (4, 50)), (1,)), HOST_TARGET)
    terms = workload_terms(Workload((item,), 0, 0), build_prices(*points))
    assert terms.compute_ns == pytest.approx(item.nbytes / 4)


def test_foreign_points_under_an_op_name_are_ignored() -> None:
    """Points of another measurement under an op's name do not price the op."""
    (item,) = work_items(lambda g: g.exp(g.input("x", (50,))), HOST_TARGET)
    foreign_points = (
        MeasuredPoint("exp", {"n": 3}, 1e9),
        MeasuredPoint("exp", {"cells": 0, "bytes": 9}, 1e9),
    )
    assert (
        workload_terms(Workload((item,), 0, 0), build_prices(*foreign_points)).total_ns
        < 1e9
    )


def test_strided_reads_cost_a_transposition() -> None:
    """Strided reads cost a transposition, except for operands of a product."""
    transpose_point = MeasuredPoint(
        "turned", {"bytes": 100}, 300.0 + 700.0
    )  # 7 ns a byte besides
    operand_nbytes = 4 * 6 * 8

    def strided_sum(g: Graph) -> Tensor:
        return g.input("y", (8, 6)) + g.transpose(g.input("x", (6, 8)), (1, 0))

    def strided_matmul(g: Graph) -> Tensor:
        return g.input("y", (4, 8)) @ g.transpose(g.input("x", (6, 8)), (1, 0))

    for target in (HOST_TARGET, DEVICE_TARGET):
        (item,) = work_items(strided_sum, target)
        assert item.strided_bytes == operand_nbytes
        base_terms = workload_terms(Workload((item,), 0, 0), build_prices())
        strided_terms = workload_terms(
            Workload((item,), 0, 0), build_prices(transpose_point)
        )
        assert strided_terms.total_ns - base_terms.total_ns == pytest.approx(
            7.0 * operand_nbytes
        )
    assert [
        (i.kind, i.strided_bytes) for i in work_items(strided_matmul, HOST_TARGET)
    ] == [("matmul", 0)]
    assert [
        (i.kind, i.strided_bytes) for i in work_items(strided_matmul, DEVICE_TARGET)
    ] == [("matmul", 0)]

    def strided_cumsum(g: Graph) -> Tensor:
        return g.cumsum(g.transpose(g.input("x", (6, 8)), (1, 0)), 0)

    first, second = work_items(strided_cumsum, DEVICE_TARGET)  # a kernel wants it dense
    assert (first.kind, first.strided_bytes) == ("copy", operand_nbytes)
    assert second.strided_bytes == 0


def test_numpy_outputs_are_dense() -> None:
    def view(g: Graph) -> Tensor:
        return g.transpose(g.input("x", (6, 8)), (1, 0))

    (item,) = work_items(view, HOST_TARGET)
    assert (item.kind, item.nbytes, item.strided_bytes) == ("copy", 2 * 192, 192)
    assert (
        work_items(lambda g: g.reshape(g.input("x", (6, 8)), (48,)), HOST_TARGET) == ()
    )
    # An axis of one element turns nothing.
    assert (
        work_items(lambda g: g.transpose(g.input("x", (1, 8)), (1, 0)), HOST_TARGET)
        == ()
    )


def test_numpy_multiplies_the_matrices_of_a_batch_in_turn() -> None:
    """NumPy multiplies the matrices of a batch one by one; a device multiplies them at
    once.
    """
    item = WorkItem("matmul", "it", 1, 2.0 * 10**7, 10, matmul_size(1000, 10))
    on_host = workload_terms(Workload((item,), 0, 0), build_prices(*MATMUL_POINTS))
    assert on_host.compute_ns == pytest.approx(2e7 / 1.0)
    submit = MeasuredPoint("submit", {}, 1.0)
    on_device = workload_terms(
        Workload((item,), 0, 0), build_prices(*MATMUL_POINTS, submit)
    )
    assert on_device.compute_ns == pytest.approx(2e7 / 10.0)


def matmul_size(batch: int, n: int) -> dict[str, int]:
    return {"batch": batch, "m": n, "k": n, "n": n}


def test_a_product_is_bounded_by_reading_its_operands() -> None:
    matvec_point = MeasuredPoint("matvec", {"bytes": 1000}, 500.0)
    size = {"batch": 1, "m": 1, "k": 1000, "n": 1000}
    item = WorkItem("matmul", "it", 1, 2e6, 4_000_000, size)
    compute_bound = workload_terms(
        Workload((item,), 0, 0), build_prices(*MATMUL_POINTS)
    )
    memory_bound = workload_terms(
        Workload((item,), 0, 0), build_prices(*MATMUL_POINTS, matvec_point)
    )
    assert compute_bound.compute_ns == pytest.approx(2e6 / 10.0)
    assert memory_bound.compute_ns == pytest.approx(4_000_000 * 0.5)


def test_a_numpy_run_has_a_fixed_overhead() -> None:
    call, run = MeasuredPoint("call", {}, 100.0), MeasuredPoint("run", {}, 5000.0)
    item = WorkItem("copy", "it", 1, 0.0, 0)
    assert (
        workload_terms(Workload((item,), 0, 0), build_prices(call, run)).dispatch_ns
        == 5000.0
    )
    assert (
        workload_terms(
            Workload((item, item), 0, 0), build_prices(call, run)
        ).dispatch_ns
        == 5100.0
    )
    submit = MeasuredPoint("submit", {}, 1.0)
    assert (
        workload_terms(Workload((item,), 0, 0), build_prices(submit, run)).dispatch_ns
        == 0.0
    )


def test_a_gather_costs_only_the_gathered_rows() -> None:
    """A gather costs the gathered rows, not the table."""

    def rows(g: Graph) -> Tensor:
        return g.gather(g.input("x", (10_000, 16)), g.input("i", (5,), "i32"), 0)

    for target in (HOST_TARGET, DEVICE_TARGET):
        (item,) = work_items(rows, target)
        assert item.nbytes < 10_000
        assert item.size["cells"] == 5 * 16


@pytest.mark.parametrize("is_cpu", [True, False])
def test_every_step_without_a_work_kind_has_probes(is_cpu: bool) -> None:
    """Every op without a work kind has probes of a small and a large size.

    Lines have a short one too; some have numbers that NumPy is slow with.
    """
    bitwise_prefixes = ("bitwise_", "shift_")  # which have no other numbers
    slow_names = [
        n
        for n, _ in op_probes(is_cpu)
        if " " in n and not n.startswith(bitwise_prefixes)
    ]
    assert sorted(slow_names) == (
        ["div whole", "mul half", "topk whole"] if is_cpu else []
    )
    probes = [
        (name, probe) for name, probe in op_probes(is_cpu) if name not in slow_names
    ]
    assert {"softmax", "topk", "gather"} <= {name for name, _ in probes}
    assert ("exp" in {name for name, _ in probes}) is is_cpu
    times = Counter(name for name, _ in probes)
    assert set(times.values()) == ({2, 3} if is_cpu else {1})
    for name, probe in probes:
        graph = Graph()
        inputs = [
            graph.input(n, operand.shape, operand.dtype)
            for n, operand in probe.shapes.items()
        ]
        graph.set_outputs([probe.build(graph, *inputs)])
        (item,) = graph_workload(graph).items
        assert item.kind == name.removesuffix(" whole")
        size = {"cells": item.size["cells"], "bytes": item.nbytes}
        assert size | {"rows": item.size.get("rows", 1)} == probe.size


@given(st.sampled_from(["fft", "rfft", "irfft"]), st.integers(1, 3000))
def test_a_transform_is_priced_by_its_kernel_plan(op: str, n: int) -> None:
    """A row whose length has a large prime factor costs two transforms of a longer
    row.
    """
    attrs = {"n": n} if op == "irfft" else {}
    width = {"fft": 2 * n, "rfft": n, "irfft": 2 * (n // 2 + 1)}[op]
    (item,) = work_items(
        lambda g: g.apply(op, g.input("x", (3, width)), **attrs), DEVICE_TARGET
    )
    plan_attrs = attrs | {"norm": "none", "inverse": False}
    dispatches = calls.plan_fft(op, (3, width), plan_attrs).dispatches
    by_bluestein = any(call.shader == "fft_modulate" for call in dispatches)
    assert item.kind == ("bluestein" if by_bluestein else "fft")
    if by_bluestein:
        (size,) = calls.smooth_lengths(n, op != "fft")
        assert item.flops == pytest.approx(3 * 2 * 5 * size * math.log2(size))
        assert item.flops == KINDS["bluestein"].flops(item.size)


@pytest.mark.parametrize("dtype", [DType.I32, DType.U32, DType.I64])
def test_integers_are_priced_by_their_own_points(dtype: DType) -> None:
    """NumPy has separate points for integers; a device uses the same for all dtypes."""
    size = {"cells": 1000, "bytes": 12_000}
    points = (
        MeasuredPoint("div", size, 20_000.0),
        MeasuredPoint("div whole", size, 90_000.0),
    )

    def compute(dtype: DType, target: Target) -> float:
        def build(g: Graph) -> Tensor:
            return g.div(g.input("x", (1000,), dtype), g.input("y", (1000,), dtype))

        work = Workload(work_items(build, target), 0, 0)
        terms = workload_terms(work, build_prices(*points))
        return terms.compute_ns + terms.traffic_ns

    width_ratio = dtype.nbytes / 4  # NumPy's bytes weigh what they are
    assert compute(DType.F32, HOST_TARGET) == pytest.approx(20_000)
    assert compute(dtype, HOST_TARGET) == pytest.approx(
        90_000 + (width_ratio - 1) * 12_000
    )
    assert work_items(
        lambda g: g.input("x", (8, 4), dtype) @ g.input("y", (4, 2), dtype),
        DEVICE_TARGET,
    )[0].kind == ("whole_matmul")


def test_half_precision_costs_its_conversions() -> None:
    """Float16 costs the conversions measured with some op; a measured op is not
    guessed.
    """
    size = {"cells": 1000, "bytes": 6_000}
    half_prices = build_prices(MeasuredPoint("mul half", size, 70_000.0))

    def compute(op: str, dtype: DType, price_table: FittedPrices) -> float:
        def build(g: Graph) -> Tensor:
            return g.apply(op, g.input("x", (1000,), dtype))

        return workload_terms(
            Workload(work_items(build, HOST_TARGET), 0, 0), price_table
        ).compute_ns

    for op in ("tanh", "neg"):
        extra_ns = compute(op, DType.F16, half_prices) - compute(
            op, DType.F16, build_prices()
        )
        assert extra_ns == pytest.approx(70_000)
        assert compute(op, DType.F32, half_prices) == compute(
            op, DType.F32, build_prices()
        )
    tanh_size = {"cells": 1000, "bytes": 4_000}
    exact_prices = build_prices(
        MeasuredPoint("mul half", size, 70_000.0),
        MeasuredPoint("tanh half", tanh_size, 9_000.0),
    )
    assert compute("tanh", DType.F16, exact_prices) == pytest.approx(9_000)


def test_a_product_costs_at_least_writing_its_result() -> None:
    """A copied byte takes a nanosecond; columns times rows have next to no flops."""
    work = Workload(
        work_items(
            lambda g: g.input("a", (500, 1)) @ g.input("b", (1, 400)), HOST_TARGET
        ),
        0,
        0,
    )
    assert workload_terms(
        work, build_prices(*MATMUL_POINTS)
    ).compute_ns == pytest.approx(8 * 500 * 400)


def test_many_short_rows_cost_more_than_few_long_ones() -> None:
    """Rows have a measured cost of their own, besides their elements."""
    points = (
        MeasuredPoint("sum", {"cells": 60, "bytes": 260, "rows": 4}, 100.0),
        MeasuredPoint("sum", {"cells": 8000, "bytes": 40_000, "rows": 2000}, 100_000.0),
        MeasuredPoint("sum", {"cells": 8000, "bytes": 32_080, "rows": 20}, 40_000.0),
    )

    def compute(shape: tuple[int, int]) -> float:
        step = work_items(lambda g: g.sum(g.input("x", shape), 1), HOST_TARGET)
        terms = workload_terms(Workload(step, 0, 0), build_prices(*points))
        return terms.compute_ns + terms.traffic_ns

    assert compute((2000, 4)) == pytest.approx(100_000, rel=0.05)
    assert compute((20, 400)) == pytest.approx(40_000, rel=0.05)
    assert compute((4000, 4)) == pytest.approx(200_000, rel=0.05)
