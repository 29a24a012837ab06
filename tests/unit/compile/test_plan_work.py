"""What a plan is said to ask of its device, by hand and as it is dispatched."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlxweb import Graph
from rlxweb.backends.cpu import CpuBackend
from rlxweb.backends.webgpu import WebGpuBackend
from rlxweb.compile.pipeline import compile_graph
from rlxweb.compile.plan_work import profile_plan, work_by_step, work_of
from rlxweb.compile.target import Target
from rlxweb.cost.io_profile import GraphIoProfile
from rlxweb.cost.work import Work
from rlxweb.gpu.drive import drive
from rlxweb.gpu.port import Dispatch, Range
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import TensorType, registry
from rlxweb.ir.tensor import Tensor
from tests.fake_port import FakePort
from tests.ports import fake

DEVICE = Target(
    "test", frozenset({DType.F32, DType.BOOL, DType.I32}), lambda *rest: True
)
HOST = CpuBackend.target
Build = Callable[[Graph], Sequence[Tensor]]


def graph_of(build: Build) -> Graph:
    graph = Graph("counted")
    graph.set_outputs(build(graph))
    return graph


def profile(build: Build, target: Target = DEVICE) -> GraphIoProfile:
    return profile_plan(compile_graph(graph_of(build), target), target)


def work(build: Build, target: Target = DEVICE) -> Work:
    return work_of(compile_graph(graph_of(build), target), target)


def x_of(g: Graph, *shape: int) -> Tensor:
    return g.input("x", shape)


def peaks_of(g: Graph, rows: int, samples: int, n: int) -> Tensor:
    window = g.constant([0.5] * n, "f32")
    return g.apply("welch_row_peaks", x_of(g, rows, samples), window, hop=n // 2, k=3)


@given(rows=st.integers(1, 50), width=st.integers(1, 50), links=st.integers(1, 9))
def test_a_chain_is_one_pass(rows: int, width: int, links: int) -> None:
    """A chain is read once and written once; on the CPU each link is a call."""

    def chain(g: Graph) -> list[Tensor]:
        x = x_of(g, rows, width)
        for _ in range(links):
            x = g.exp(x)
        return [x]

    size = 4 * rows * width
    kind = TensorType((rows, width), DType.F32)
    flops = registry.get("exp").flops((kind,), kind, {})
    assert profile(chain) == GraphIoProfile(1, 0, size, 2 * size)
    assert profile(chain, HOST) == GraphIoProfile(links, 0, size, 2 * size * links)
    for target, what in ((DEVICE, "elementwise"), (HOST, "exp")):
        found = work(chain, target)
        assert (found.upload_bytes, found.readback_bytes) == (size, size)
        assert sum(i.flops for i in found.items) == links * flops
        assert {i.kind for i in found.items} == {what}


VIEWED = 4 * 6 * 8
MOVED: dict[str, tuple[Build, Target, GraphIoProfile]] = {
    "views are free": (
        lambda g: [
            g.reshape(
                g.exp(g.reshape(g.transpose(x_of(g, 8, 6), (1, 0)), (3, 16))), (2, 24)
            )
        ],
        DEVICE,
        GraphIoProfile(2, 0, VIEWED, 4 * VIEWED),
    ),
    **{
        f"a view of a dense result is free on {target.name}": (
            lambda g: [g.reshape(g.exp(x_of(g, 8, 6)), (48,))],
            target,
            GraphIoProfile(1, 0, VIEWED, 2 * VIEWED),
        )
        for target in (DEVICE, HOST)
    },
    "a narrow reads its own elements": (
        lambda g: [g.exp(g.narrow(x_of(g, 100), 0, 30, 7))],
        DEVICE,
        GraphIoProfile(1, 0, 28, 28 + 28),
    ),
    "a broadcast reads those there are": (
        lambda g: [x_of(g, 1, 10) + g.input("y", (50, 1))],
        DEVICE,
        GraphIoProfile(1, 0, 2000, 40 + 200 + 2000),
    ),
    "read twice is read once, one element is code": (
        lambda g: [g.exp(x := x_of(g, 10)) * x * 2.0],
        DEVICE,
        GraphIoProfile(1, 0, 40, 80),
    ),
    "a kernel reads an operand it has twice once": (
        lambda g: [(x := x_of(g, 5, 5)) @ x],
        DEVICE,
        GraphIoProfile(1, 0, 100, 200),
    ),
}


@pytest.mark.parametrize("name", MOVED)
def test_what_a_plan_moves(name: str) -> None:
    build, target, wanted = MOVED[name]
    assert profile(build, target) == wanted


def test_a_copy_is_a_launch() -> None:
    """A kernel that needs dense data pays for having it made."""

    def turned(g: Graph) -> list[Tensor]:
        return [g.cumsum(g.transpose(x_of(g, 6, 4), (1, 0)), 1)]

    assert profile(turned) == GraphIoProfile(2, 0, 96, 4 * 96)
    kinds = [(i.kind, i.launches) for i in work(turned).items]
    assert kinds == [("copy", 1), ("cumsum", 1)]


def test_params_are_not_sent_again() -> None:
    """Inputs go up at every run; params and constants are there; all are read."""

    def product(g: Graph) -> list[Tensor]:
        return [x_of(g, 5, 7) @ g.param("w", (7, 3))]

    found = work(product)
    assert found.upload_bytes == 4 * 35
    assert found.readback_bytes == 4 * 15
    (item,) = found.items
    assert item.kind == "matmul"
    assert {"m": 5, "k": 7, "n": 3}.items() <= item.size.items()
    assert item.flops == 2 * 5 * 7 * 3
    assert item.nbytes == 4 * (35 + 21 + 15)
    assert profile(product) == GraphIoProfile(1, 0, 60, 4 * (35 + 21 + 15))


def test_an_unread_input_still_goes_up() -> None:
    def only_x(g: Graph) -> list[Tensor]:
        g.input("unread", (1000,))
        return [g.exp(x_of(g, 10))]

    assert work(only_x).upload_bytes == 4 * 1010


def test_welch_by_hand() -> None:
    """The fused op moves signal, window and peaks, and has sizes for the model."""
    found = work(lambda g: [peaks_of(g, 6, 64, 16)])
    (item,) = found.items
    assert item.kind == "welch"
    assert item.size == {"n": 16, "segments": 7, "rows": 6, "k": 3, "samples": 64}
    assert item.nbytes == 4 * (6 * 64 + 16 + 6 * 2 * 3)
    assert profile(lambda g: [peaks_of(g, 6, 64, 16)]) == GraphIoProfile(
        1, 0, 4 * 36, item.nbytes
    )


def test_kernels_start_as_often_as_the_target_says() -> None:
    many = Target(
        "many", DEVICE.dtypes, DEVICE.native, launches=lambda *rest: 5, gate=None
    )
    assert profile(lambda g: [g.cumsum(x_of(g, 4, 4), 1)], many).kernel_launches == 5


def test_an_output_that_is_returned_twice_comes_back_twice() -> None:
    assert profile(lambda g: [g.exp(x_of(g, 10))] * 2).host_output_bytes == 80


@pytest.mark.parametrize(("width", "target"), [(4, DEVICE), (1, HOST)])
def test_bools_are_as_wide_as_the_target_holds_them(width: int, target: Target) -> None:
    """Bools count as wide as the target holds them: read, written and brought back."""

    def compare(g: Graph) -> list[Tensor]:
        return [g.where(g.input("b", (10,), "bool"), x_of(g, 10), 0.0) > 1.0]

    found = work(compare, target)
    assert found.upload_bytes == 40 + 10 * width
    assert found.readback_bytes == 10 * width
    moved = 40 + 10 * width + 10 * width
    if target is DEVICE:
        assert sum(i.nbytes for i in found.items) == moved


def both(g: Graph) -> Tensor:
    return g.concat([x_of(g, 4, 8), g.exp(g.input("y", (4, 8)))], axis=1)


GRAPHS: dict[str, Build] = {
    "a region": lambda g: [g.exp(x_of(g, 40)) + 1.0],
    "two regions": lambda g: [g.sum(g.exp(x_of(g, 4, 9)), 1) + 1.0],
    "a copied view": lambda g: [g.transpose(x_of(g, 4, 9), (1, 0))],
    "an input itself": lambda g: [x_of(g, 4, 9)],
    "a product": lambda g: [x_of(g, 65, 40) @ g.param("w", (40, 33))],
    "a norm": lambda g: [g.softmax(x_of(g, 5, 300), 1)],
    "a transform": lambda g: [g.apply("fft", x_of(g, 3, 2 * 128))],
    "a long transform": lambda g: [g.apply("fft", x_of(g, 2, 2 * 65_536))],
    "an odd transform": lambda g: [g.apply("fft", x_of(g, 3, 2 * 97))],
    "real transforms": lambda g: [g.rfft(x_of(g, 16, 1024))[0]],
    "running sums": lambda g: [g.cumsum(x_of(g, 2, 5000), 1)],
    "an order": lambda g: [g.topk(x_of(g, 3, 700), 300)],
    "peaks": lambda g: [peaks_of(g, 6, 640, 128)],
    "peaks of many segments": lambda g: [peaks_of(g, 2, 9000, 64)],
    "two side by side": lambda g: [both(g)],
    "three side by side": lambda g: [
        g.concat([g.input(n, (2, 3)) for n in "abc"], axis=0)
    ],
    "nothing": lambda g: [g.exp(x_of(g, 0, 4))],
}


def is_storage(port: FakePort, one: Range) -> bool:
    """Return whether the range is of an array, not of a kernel's uniforms."""
    return port._tables.sizes[one.handle].usage == "storage"


@pytest.mark.parametrize("name", GRAPHS)
def test_launches_are_dispatches(name: str) -> None:
    """Launches are the program's dispatches, with the bytes they bind and read back."""
    port = fake()
    backend = WebGpuBackend(port)
    plan = compile_graph(graph_of(GRAPHS[name]), backend.target)
    program = drive(backend.prepare(plan))
    dispatches = [c for c in program.commands if isinstance(c, Dispatch)]
    found = profile_plan(plan, backend.target)
    assert found.kernel_launches == len(dispatches)
    for step, item, own in zip(
        plan.steps, work_by_step(plan, backend.target), program.steps, strict=True
    ):
        ranges = [r for c in own if isinstance(c, Dispatch) for r in c.bindings]
        bound = sum(r.nbytes for r in ranges if is_storage(port, r))
        told = item.nbytes if item else 0
        # A copy binds what lies between the elements that it moves.
        assert told == bound or (step.kind in ("copy", "join") and told < bound)
    assert found.sync_points == 0
    assert found.host_output_bytes == sum(s.type.nbytes for s in program.outputs)
