"""Workload of a plan, checked by hand and against the dispatches."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlxweb import Graph
from rlxweb.compiler.pipeline import compile_graph
from rlxweb.compiler.plan_workload import plan_workload, profile_plan, step_items
from rlxweb.compiler.target import Target
from rlxweb.cost.graph_traffic_counts import GraphIoProfile
from rlxweb.cost.workload import Workload
from rlxweb.engines.cpu import CpuEngine
from rlxweb.engines.webgpu.engine import WebGpuEngine
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.gpu.port_protocol import BufferRange, Dispatch
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import TensorType, registry
from rlxweb.ir.tensor import Tensor
from tests.fake_gpu_port import FakePort
from tests.gpu_ports import open_fake_port

DEVICE = Target(
    "test", frozenset({DType.F32, DType.BOOL, DType.I32}), lambda *rest: True
)
HOST = CpuEngine.target
OutputsBuilder = Callable[[Graph], Sequence[Tensor]]


def build_graph(build: OutputsBuilder) -> Graph:
    graph = Graph("counted")
    graph.set_outputs(build(graph))
    return graph


def profile_outputs(build: OutputsBuilder, target: Target = DEVICE) -> GraphIoProfile:
    return profile_plan(compile_graph(build_graph(build), target), target)


def workload(build: OutputsBuilder, target: Target = DEVICE) -> Workload:
    return plan_workload(compile_graph(build_graph(build), target), target)


def input_x(g: Graph, *shape: int) -> Tensor:
    return g.input("x", shape)


def welch_peaks(g: Graph, rows: int, samples: int, n: int) -> Tensor:
    window = g.constant([0.5] * n, "f32")
    return g.apply(
        "welch_row_peaks", input_x(g, rows, samples), window, hop=n // 2, k=3
    )


@given(rows=st.integers(1, 50), width=st.integers(1, 50), links=st.integers(1, 9))
def test_a_chain_is_one_pass(rows: int, width: int, links: int) -> None:
    """A chain is read once and written once; on the CPU each link is a call."""

    def chain(g: Graph) -> list[Tensor]:
        x = input_x(g, rows, width)
        for _ in range(links):
            x = g.exp(x)
        return [x]

    size = 4 * rows * width
    tensor_type = TensorType((rows, width), DType.F32)
    flops = registry.get("exp").flops((tensor_type,), tensor_type, {})
    assert profile_outputs(chain) == GraphIoProfile(1, 0, size, 2 * size)
    assert profile_outputs(chain, HOST) == GraphIoProfile(
        links, 0, size, 2 * size * links
    )
    for target, work_kind in ((DEVICE, "elementwise"), (HOST, "exp")):
        total_work = workload(chain, target)
        assert (total_work.upload_bytes, total_work.readback_bytes) == (size, size)
        assert sum(i.flops for i in total_work.items) == links * flops
        assert {i.kind for i in total_work.items} == {work_kind}


VIEWED_NBYTES = 4 * 6 * 8
MOVED_DATA_CASES: dict[str, tuple[OutputsBuilder, Target, GraphIoProfile]] = {
    "views are free": (
        lambda g: [
            g.reshape(
                g.exp(g.reshape(g.transpose(input_x(g, 8, 6), (1, 0)), (3, 16))),
                (2, 24),
            )
        ],
        DEVICE,
        GraphIoProfile(2, 0, VIEWED_NBYTES, 4 * VIEWED_NBYTES),
    ),
    **{
        f"a view of a dense result is free on {target.name}": (
            lambda g: [g.reshape(g.exp(input_x(g, 8, 6)), (48,))],
            target,
            GraphIoProfile(1, 0, VIEWED_NBYTES, 2 * VIEWED_NBYTES),
        )
        for target in (DEVICE, HOST)
    },
    "a narrow reads its own elements": (
        lambda g: [g.exp(g.narrow(input_x(g, 100), 0, 30, 7))],
        DEVICE,
        GraphIoProfile(1, 0, 28, 28 + 28),
    ),
    "a broadcast reads those there are": (
        lambda g: [input_x(g, 1, 10) + g.input("y", (50, 1))],
        DEVICE,
        GraphIoProfile(1, 0, 2000, 40 + 200 + 2000),
    ),
    "read twice is read once, one element is code": (
        lambda g: [g.exp(x := input_x(g, 10)) * x * 2.0],
        DEVICE,
        GraphIoProfile(1, 0, 40, 80),
    ),
    "a kernel reads an operand it has twice once": (
        lambda g: [(x := input_x(g, 5, 5)) @ x],
        DEVICE,
        GraphIoProfile(1, 0, 100, 200),
    ),
}


@pytest.mark.parametrize("name", MOVED_DATA_CASES)
def test_profile_of_data_movement(name: str) -> None:
    build, target, expected = MOVED_DATA_CASES[name]
    assert profile_outputs(build, target) == expected


def test_a_copy_is_a_launch() -> None:
    """A kernel that needs dense data pays for the copy."""

    def transposed_cumsum(g: Graph) -> list[Tensor]:
        return [g.cumsum(g.transpose(input_x(g, 6, 4), (1, 0)), 1)]

    assert profile_outputs(transposed_cumsum) == GraphIoProfile(2, 0, 96, 4 * 96)
    kinds = [(i.kind, i.launches) for i in workload(transposed_cumsum).items]
    assert kinds == [("copy", 1), ("cumsum", 1)]


def test_params_are_not_uploaded_again() -> None:
    """Inputs are uploaded at every run; params and constants stay on the device; all
    are read.
    """

    def product(g: Graph) -> list[Tensor]:
        return [input_x(g, 5, 7) @ g.param("w", (7, 3))]

    total_work = workload(product)
    assert total_work.upload_bytes == 4 * 35
    assert total_work.readback_bytes == 4 * 15
    (item,) = total_work.items
    assert item.kind == "matmul"
    assert {"m": 5, "k": 7, "n": 3}.items() <= item.size.items()
    assert item.flops == 2 * 5 * 7 * 3
    assert item.nbytes == 4 * (35 + 21 + 15)
    assert profile_outputs(product) == GraphIoProfile(1, 0, 60, 4 * (35 + 21 + 15))


def test_unread_input_is_uploaded() -> None:
    def only_x(g: Graph) -> list[Tensor]:
        g.input("unread", (1000,))
        return [g.exp(input_x(g, 10))]

    assert workload(only_x).upload_bytes == 4 * 1010


def test_welch_workload() -> None:
    """The fused op moves signal, window and peaks, and has sizes for the cost model."""
    total_work = workload(lambda g: [welch_peaks(g, 6, 64, 16)])
    (item,) = total_work.items
    assert item.kind == "welch"
    assert item.size == {"n": 16, "segments": 7, "rows": 6, "k": 3, "samples": 64}
    assert item.nbytes == 4 * (6 * 64 + 16 + 6 * 2 * 3)
    assert profile_outputs(lambda g: [welch_peaks(g, 6, 64, 16)]) == GraphIoProfile(
        1, 0, 4 * 36, item.nbytes
    )


def test_launch_count_comes_from_the_target() -> None:
    multi_launch_target = Target(
        "many", DEVICE.dtypes, DEVICE.native, launches=lambda *rest: 5, gate=None
    )
    assert (
        profile_outputs(
            lambda g: [g.cumsum(input_x(g, 4, 4), 1)], multi_launch_target
        ).kernel_launches
        == 5
    )


def test_repeated_output_is_read_back_twice() -> None:
    assert (
        profile_outputs(lambda g: [g.exp(input_x(g, 10))] * 2).host_output_bytes == 80
    )


@pytest.mark.parametrize(("width", "target"), [(4, DEVICE), (1, HOST)])
def test_bools_have_the_targets_width(width: int, target: Target) -> None:
    """Bools are counted as wide as the target stores them: read, written and read
    back.
    """

    def compare(g: Graph) -> list[Tensor]:
        return [g.where(g.input("b", (10,), "bool"), input_x(g, 10), 0.0) > 1.0]

    total_work = workload(compare, target)
    assert total_work.upload_bytes == 40 + 10 * width
    assert total_work.readback_bytes == 10 * width
    moved_bytes = 40 + 10 * width + 10 * width
    if target is DEVICE:
        assert sum(i.nbytes for i in total_work.items) == moved_bytes


def concat_two(g: Graph) -> Tensor:
    return g.concat([input_x(g, 4, 8), g.exp(g.input("y", (4, 8)))], axis=1)


GRAPHS: dict[str, OutputsBuilder] = {
    "a region": lambda g: [g.exp(input_x(g, 40)) + 1.0],
    "two regions": lambda g: [g.sum(g.exp(input_x(g, 4, 9)), 1) + 1.0],
    "a copied view": lambda g: [g.transpose(input_x(g, 4, 9), (1, 0))],
    "an input itself": lambda g: [input_x(g, 4, 9)],
    "a product": lambda g: [input_x(g, 65, 40) @ g.param("w", (40, 33))],
    "a norm": lambda g: [g.softmax(input_x(g, 5, 300), 1)],
    "a transform": lambda g: [g.apply("fft", input_x(g, 3, 2 * 128))],
    "a long transform": lambda g: [g.apply("fft", input_x(g, 2, 2 * 65_536))],
    "an odd transform": lambda g: [g.apply("fft", input_x(g, 3, 2 * 97))],
    "real transforms": lambda g: [g.rfft(input_x(g, 16, 1024))[0]],
    "running sums": lambda g: [g.cumsum(input_x(g, 2, 5000), 1)],
    "an order": lambda g: [g.topk(input_x(g, 3, 700), 300)],
    "peaks": lambda g: [welch_peaks(g, 6, 640, 128)],
    "peaks of many segments": lambda g: [welch_peaks(g, 2, 9000, 64)],
    "two side by side": lambda g: [concat_two(g)],
    "three side by side": lambda g: [
        g.concat([g.input(n, (2, 3)) for n in "abc"], axis=0)
    ],
    "nothing": lambda g: [g.exp(input_x(g, 0, 4))],
}


def is_storage(port: FakePort, buffer_range: BufferRange) -> bool:
    """Return whether the range belongs to an array, not to a kernel's uniforms."""
    return port._handle_table.buffer_facts[buffer_range.handle].usage == "storage"


@pytest.mark.parametrize("name", GRAPHS)
def test_launches_are_dispatches(name: str) -> None:
    """Launches are the program's dispatches, with the bytes they bind and read back."""
    port = open_fake_port()
    engine = WebGpuEngine(port)
    plan = compile_graph(build_graph(GRAPHS[name]), engine.target)
    program = run_blocking(engine.prepare(plan))
    dispatches = [c for c in program.commands if isinstance(c, Dispatch)]
    plan_profile = profile_plan(plan, engine.target)
    assert plan_profile.kernel_launches == len(dispatches)
    for step, item, commands in zip(
        plan.steps, step_items(plan, engine.target), program.step_commands, strict=True
    ):
        ranges = [r for c in commands if isinstance(c, Dispatch) for r in c.bindings]
        bound_bytes = sum(r.nbytes for r in ranges if is_storage(port, r))
        item_bytes = item.nbytes if item else 0
        # A copy binds what lies between the elements that it moves.
        assert item_bytes == bound_bytes or (
            step.kind in ("copy", "join") and item_bytes < bound_bytes
        )
    assert plan_profile.sync_points == 0
    assert plan_profile.host_output_bytes == sum(s.type.nbytes for s in program.outputs)
