"""Steps priced as they will run: compositions, single ops, operands that lie across."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlxweb import Graph
from rlxweb.backends.cpu import CpuBackend
from rlxweb.calibration.kernels import op_probes
from rlxweb.compile.pipeline import compile_graph
from rlxweb.compile.plan_work import work_of
from rlxweb.compile.target import Target
from rlxweb.cost.graph_work import items_of, work_of_graph
from rlxweb.cost.kinds import KINDS
from rlxweb.cost.price import Prices, terms_of
from rlxweb.cost.record import Calibration, Point
from rlxweb.cost.work import Item, Work
from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import Compose
from rlxweb.ir.op import registry
from rlxweb.ir.tensor import Tensor
from rlxweb.recipes import fft_calls as calls
from tests.agreement import one_op

HOST = CpuBackend.target
DEVICE = Target("test", frozenset(DType), lambda *rest: True)
COPIED = Point("copy", {"bytes": 1000}, 1000.0)  # a byte takes a nanosecond
PRODUCTS = tuple(
    Point("matmul", {"m": n, "k": n, "n": n}, 2.0 * n**3 / gflops)
    for n, gflops in ((10, 1.0), (1000, 100.0))
)


def prices(*points: Point) -> Prices:
    return Prices(Calibration("cpu", "a", "b", "c", "d", "e", (COPIED, *points)))


def items(build: Callable[[Graph], Tensor], target: Target) -> tuple[Item, ...]:
    graph = Graph("priced")
    graph.set_outputs([build(graph)])
    return work_of(compile_graph(graph, target), target).items


def attended(g: Graph, kind: str = "none") -> Tensor:
    shape = (2, 3, 8, 4)
    q, k, v = (g.input(name, shape) for name in "qkv")
    return g.attention(q, k, v, num_heads=3, head_dim=4, mask_kind=kind)


def test_attention_on_numpy_is_its_products_and_its_softmax() -> None:
    found = items(attended, HOST)
    kinds = Counter(one.kind for one in found)
    assert kinds == {"mul": 1, "matmul": 2, "softmax": 1}
    for one in found:
        if one.kind == "matmul":
            assert one.flops == 2 * 2 * 3 * 8 * 8 * 4
            assert {"m": 8, "batch": 6}.items() <= one.size.items()
        if one.kind == "softmax":
            assert one.size == {"cells": 2 * 3 * 8 * 8, "rows": 2 * 3 * 8}
    masked = Counter(one.kind for one in items(lambda g: attended(g, "causal"), HOST))
    assert masked - kinds == {"le": 1, "where": 1}


@pytest.mark.parametrize(
    "name", [op.name for op in registry if isinstance(op.lower, Compose)]
)
def test_no_composed_op_is_priced_as_one_step(name: str) -> None:
    """A composed op is priced by its parts, unless it says which kind it is."""
    op = registry.get(name)
    for sample in op.samples:
        graph = one_op(op, sample, sample.draw())
        (node,) = (n for n in graph.nodes() if n.op == name)
        found = items_of(graph, node)
        if found:
            break
    if op.work is not None:
        assert [one.kind for one in found] == [op.work(*asked(graph, name))[0]]
        return
    assert found
    assert name not in {one.kind for one in found}
    assert work_of_graph(graph).items == found


def asked(graph: Graph, name: str) -> tuple[object, ...]:
    (node,) = (n for n in graph.nodes() if n.op == name)
    return tuple(graph.node(i).type for i in node.inputs), node.type, node.attrs


def test_an_op_costs_what_was_measured_of_it() -> None:
    """An op costs its call, the moving of its bytes, and what its elements take."""
    points = (
        Point("topk", {"cells": 10, "bytes": 80}, 500.0),
        Point("topk", {"cells": 1000, "bytes": 8000}, 500.0 + 8000.0 + 3000.0),
    )
    (one,) = items(lambda g: g.topk(g.input("x", (4, 50)), 4), HOST)
    assert one.size == {"cells": 200, "rows": 4}
    found = terms_of(Work((one,), 0, 0), prices(*points))
    assert found.compute_ns == pytest.approx(500.0 + one.nbytes + 3.0 * 200)
    assert found.traffic_ns == 0.0


def test_an_op_that_is_quicker_than_a_copy_is_a_share_of_one() -> None:
    points = (Point("sum", {"cells": 1000, "bytes": 4000}, 1000.0),)
    (one,) = items(lambda g: g.sum(g.input("x", (4, 50)), (1,)), HOST)
    found = terms_of(Work((one,), 0, 0), prices(*points))
    assert found.compute_ns == pytest.approx(one.nbytes / 4)


def test_points_that_are_not_of_an_op_price_nothing() -> None:
    """Points that another part measured under an op's name do not price it."""
    (one,) = items(lambda g: g.exp(g.input("x", (50,))), HOST)
    odd = (Point("exp", {"n": 3}, 1e9), Point("exp", {"cells": 0, "bytes": 9}, 1e9))
    assert terms_of(Work((one,), 0, 0), prices(*odd)).total_ns < 1e9


def test_reading_across_rows_costs_its_turning() -> None:
    """A read across rows costs its turning, but for operands of a product."""
    turned = Point("turned", {"bytes": 100}, 300.0 + 700.0)  # 7 ns a byte besides
    given = 4 * 6 * 8

    def across(g: Graph) -> Tensor:
        return g.input("y", (8, 6)) + g.transpose(g.input("x", (6, 8)), (1, 0))

    def multiplied(g: Graph) -> Tensor:
        return g.input("y", (4, 8)) @ g.transpose(g.input("x", (6, 8)), (1, 0))

    for target in (HOST, DEVICE):
        (one,) = items(across, target)
        assert one.turned == given
        plain = terms_of(Work((one,), 0, 0), prices())
        dear = terms_of(Work((one,), 0, 0), prices(turned))
        assert dear.total_ns - plain.total_ns == pytest.approx(7.0 * given)
    assert [(i.kind, i.turned) for i in items(multiplied, HOST)] == [("matmul", 0)]
    assert [(i.kind, i.turned) for i in items(multiplied, DEVICE)] == [("matmul", 0)]

    def summed(g: Graph) -> Tensor:
        return g.cumsum(g.transpose(g.input("x", (6, 8)), (1, 0)), 0)

    first, second = items(summed, DEVICE)  # a kernel wants it dense
    assert (first.kind, first.turned) == ("copy", given)
    assert second.turned == 0


def test_what_numpy_hands_out_is_dense() -> None:
    def view(g: Graph) -> Tensor:
        return g.transpose(g.input("x", (6, 8)), (1, 0))

    (one,) = items(view, HOST)
    assert (one.kind, one.nbytes, one.turned) == ("copy", 2 * 192, 192)
    assert items(lambda g: g.reshape(g.input("x", (6, 8)), (48,)), HOST) == ()
    # An axis of one element turns nothing.
    assert items(lambda g: g.transpose(g.input("x", (1, 8)), (1, 0)), HOST) == ()


def test_numpy_multiplies_one_matrix_of_a_batch_after_the_other() -> None:
    """NumPy takes each matrix of a batch as a small one, a device all at once."""
    item = Item("matmul", "it", 1, 2.0 * 10**7, 10, size_of(1000, 10))
    on_host = terms_of(Work((item,), 0, 0), prices(*PRODUCTS))
    assert on_host.compute_ns == pytest.approx(2e7 / 1.0)
    submit = Point("submit", {}, 1.0)
    elsewhere = terms_of(Work((item,), 0, 0), prices(*PRODUCTS, submit))
    assert elsewhere.compute_ns == pytest.approx(2e7 / 10.0)


def size_of(batch: int, n: int) -> dict[str, int]:
    return {"batch": batch, "m": n, "k": n, "n": n}


def test_a_product_is_no_faster_than_its_operands_are_read() -> None:
    read = Point("matvec", {"bytes": 1000}, 500.0)
    size = {"batch": 1, "m": 1, "k": 1000, "n": 1000}
    item = Item("matmul", "it", 1, 2e6, 4_000_000, size)
    alone = terms_of(Work((item,), 0, 0), prices(*PRODUCTS))
    bound = terms_of(Work((item,), 0, 0), prices(*PRODUCTS, read))
    assert alone.compute_ns == pytest.approx(2e6 / 10.0)
    assert bound.compute_ns == pytest.approx(4_000_000 * 0.5)


def test_a_run_of_numpy_costs_something_by_itself() -> None:
    call, run = Point("call", {}, 100.0), Point("run", {}, 5000.0)
    item = Item("copy", "it", 1, 0.0, 0)
    assert terms_of(Work((item,), 0, 0), prices(call, run)).dispatch_ns == 5000.0
    assert terms_of(Work((item, item), 0, 0), prices(call, run)).dispatch_ns == 5100.0
    submit = Point("submit", {}, 1.0)
    assert terms_of(Work((item,), 0, 0), prices(submit, run)).dispatch_ns == 0.0


def test_a_gather_costs_the_rows_it_takes() -> None:
    """A gather costs the rows it takes, not the table they come from."""

    def rows(g: Graph) -> Tensor:
        return g.gather(g.input("x", (10_000, 16)), g.input("i", (5,), "i32"), 0)

    for target in (HOST, DEVICE):
        (one,) = items(rows, target)
        assert one.nbytes < 10_000
        assert one.size["cells"] == 5 * 16


@pytest.mark.parametrize("is_cpu", [True, False])
def test_every_step_without_a_kind_is_measured(is_cpu: bool) -> None:
    """Every op without a kind has probes at a small size and a large one.

    Lines have a short one too; some have numbers that NumPy is slow with.
    """
    of_bits = ("bitwise_", "shift_")  # which have no other numbers
    slow = [n for n, _ in op_probes(is_cpu) if " " in n and not n.startswith(of_bits)]
    assert sorted(slow) == (["div whole", "mul half", "topk whole"] if is_cpu else [])
    found = [(name, probe) for name, probe in op_probes(is_cpu) if name not in slow]
    assert {"softmax", "topk", "gather"} <= {name for name, _ in found}
    assert ("exp" in {name for name, _ in found}) is is_cpu
    times = Counter(name for name, _ in found)
    assert set(times.values()) == ({2, 3} if is_cpu else {1})
    for name, probe in found:
        graph = Graph()
        given = [
            graph.input(n, one.shape, one.dtype) for n, one in probe.shapes.items()
        ]
        graph.set_outputs([probe.build(graph, *given)])
        (item,) = work_of_graph(graph).items
        assert item.kind == name.removesuffix(" whole")
        size = {"cells": item.size["cells"], "bytes": item.nbytes}
        assert size | {"rows": item.size.get("rows", 1)} == probe.size


@given(st.sampled_from(["fft", "rfft", "irfft"]), st.integers(1, 3000))
def test_a_transform_is_priced_by_what_its_recipe_runs(op: str, n: int) -> None:
    """Rows of a length with a large prime factor are rows of a longer one, twice."""
    attrs = {"n": n} if op == "irfft" else {}
    width = {"fft": 2 * n, "rfft": n, "irfft": 2 * (n // 2 + 1)}[op]
    (item,) = items(lambda g: g.apply(op, g.input("x", (3, width)), **attrs), DEVICE)
    how = attrs | {"norm": "none", "inverse": False}
    run = calls.recipe_of(op, (3, width), how).calls
    by_bluestein = any(call.shader == "fft_modulate" for call in run)
    assert item.kind == ("bluestein" if by_bluestein else "fft")
    if by_bluestein:
        (size,) = calls.smooth_lengths(n, op != "fft")
        assert item.flops == pytest.approx(3 * 2 * 5 * size * math.log2(size))
        assert item.flops == KINDS["bluestein"].flops(item.size)


@pytest.mark.parametrize("dtype", [DType.I32, DType.U32, DType.I64])
def test_whole_numbers_are_priced_by_their_own_figures(dtype: DType) -> None:
    """NumPy has figures for whole numbers; a device has the same for all."""
    size = {"cells": 1000, "bytes": 12_000}
    timed = Point("div", size, 20_000.0), Point("div whole", size, 90_000.0)

    def compute(dtype: DType, target: Target) -> float:
        def build(g: Graph) -> Tensor:
            return g.div(g.input("x", (1000,), dtype), g.input("y", (1000,), dtype))

        work = Work(items(build, target), 0, 0)
        terms = terms_of(work, prices(*timed))
        return terms.compute_ns + terms.traffic_ns

    wide = dtype.nbytes / 4  # NumPy's bytes weigh what they are
    assert compute(DType.F32, HOST) == pytest.approx(20_000)
    assert compute(dtype, HOST) == pytest.approx(90_000 + (wide - 1) * 12_000)
    assert items(
        lambda g: g.input("x", (8, 4), dtype) @ g.input("y", (4, 2), dtype), DEVICE
    )[0].kind == ("whole_matmul")


def test_half_precision_costs_its_conversions() -> None:
    """Halves cost the conversions seen with some op; a timed op is not guessed."""
    size = {"cells": 1000, "bytes": 6_000}
    seen = prices(Point("mul half", size, 70_000.0))

    def compute(op: str, dtype: DType, known: Prices) -> float:
        def build(g: Graph) -> Tensor:
            return g.apply(op, g.input("x", (1000,), dtype))

        return terms_of(Work(items(build, HOST), 0, 0), known).compute_ns

    for op in ("tanh", "neg"):
        more = compute(op, DType.F16, seen) - compute(op, DType.F16, prices())
        assert more == pytest.approx(70_000)
        assert compute(op, DType.F32, seen) == compute(op, DType.F32, prices())
    both = {"cells": 1000, "bytes": 4_000}
    own = prices(Point("mul half", size, 70_000.0), Point("tanh half", both, 9_000.0))
    assert compute("tanh", DType.F16, own) == pytest.approx(9_000)


def test_a_product_costs_at_least_the_writing_of_its_result() -> None:
    """A byte copied takes a nanosecond; columns times rows have next to no flops."""
    work = Work(
        items(lambda g: g.input("a", (500, 1)) @ g.input("b", (1, 400)), HOST), 0, 0
    )
    assert terms_of(work, prices(*PRODUCTS)).compute_ns == pytest.approx(8 * 500 * 400)


def test_many_short_rows_cost_more_than_few_long_ones() -> None:
    """Rows cost what they were seen to take besides their elements."""
    timed = (
        Point("sum", {"cells": 60, "bytes": 260, "rows": 4}, 100.0),
        Point("sum", {"cells": 8000, "bytes": 40_000, "rows": 2000}, 100_000.0),
        Point("sum", {"cells": 8000, "bytes": 32_080, "rows": 20}, 40_000.0),
    )

    def compute(shape: tuple[int, int]) -> float:
        step = items(lambda g: g.sum(g.input("x", shape), 1), HOST)
        terms = terms_of(Work(step, 0, 0), prices(*timed))
        return terms.compute_ns + terms.traffic_ns

    assert compute((2000, 4)) == pytest.approx(100_000, rel=0.05)
    assert compute((20, 400)) == pytest.approx(40_000, rel=0.05)
    assert compute((4000, 4)) == pytest.approx(200_000, rel=0.05)
