"""Sessions and their compiled graphs: life cycle, params, names and ownership."""

from __future__ import annotations

import copy
import pickle
from functools import partial

import numpy as np
import pytest

from rlxweb import Device, Graph, Session
from rlxweb.core.errors import (
    AdapterMissing,
    DTypeError,
    InputError,
    SessionClosed,
    ShapeError,
    UnknownDevice,
    UnknownName,
    Unsupported,
)
from rlxweb.core.limits import tiny_limits
from rlxweb.cost.decision import Candidate, Decision
from rlxweb.engines.pool import pool
from rlxweb.ir.dtype import DType
from rlxweb.ops.kernel_variant import load_kernels
from rlxweb.runtime.compiled_graph import CompiledGraph
from rlxweb.select.chooser import DevicePick, PlaceRequest
from rlxweb.select.graph_job import GraphJob
from tests.run_in_threads import run_concurrently

X = np.arange(8, dtype=np.float32).reshape(2, 4)


def layer_graph() -> Graph:
    """Build relu(x @ w) with its input x as the second output."""
    graph = Graph("layer")
    x, w = graph.input("x", (2, 4)), graph.param("w", (4, 3))
    graph.set_outputs([graph.relu(x @ w), x])
    return graph


@pytest.fixture
def compiled() -> CompiledGraph:
    compiled_graph = Session("cpu").compile(layer_graph())
    compiled_graph.set_param("w", np.ones((4, 3), np.float32))
    return compiled_graph


def test_graph_runs_repeatedly(compiled: CompiledGraph) -> None:
    """Repeated runs return the outputs in order, with other inputs and the same
    params.
    """
    first, input_copy = compiled.run({"x": X})
    np.testing.assert_array_equal(first, np.repeat(X.sum(1)[:, None], 3, 1))
    np.testing.assert_array_equal(input_copy, X)
    second, _ = compiled.run({"x": -X})
    np.testing.assert_array_equal(second, np.zeros((2, 3)))


def test_params_can_be_set_again(compiled: CompiledGraph) -> None:
    """Later runs use the new value; the caller's array is not kept."""
    weights = np.zeros((4, 3), np.float32)
    compiled.set_param("w", weights)
    weights[...] = 9
    assert compiled.run({"x": X})[0].max() == 0


def test_a_param_without_value_is_named() -> None:
    """Runs with an unset param are refused."""
    compiled_graph = Session("cpu").compile(layer_graph())
    with pytest.raises(InputError, match="param 'w' has no value; 1 of 1 params unset"):
        compiled_graph.run({"x": X})


def test_all_params_without_a_value_are_named() -> None:
    """Several unset params are named in one sentence."""
    graph = Graph("affine")
    x, w, b = graph.input("x", 2), graph.param("w", 2), graph.param("b", 2)
    graph.set_outputs([x * w + b])
    with pytest.raises(InputError, match="params 'b', 'w' have no value; 2 of 2"):
        Session("cpu").compile(graph).run({"x": [1.0, 2.0]})


def test_params_are_checked_like_inputs(compiled: CompiledGraph) -> None:
    """Params are checked for name, dtype and shape."""
    with pytest.raises(UnknownName, match="no param 'v'; its params are 'w'"):
        compiled.set_param("v", 1.0)
    with pytest.raises(DTypeError, match="set_param of 'layer'"):
        compiled.set_param("w", np.ones((4, 3)))
    with pytest.raises(ShapeError, match=r"has shape \[3, 4\]"):
        compiled.set_param("w", np.ones((3, 4), np.float32))


def test_a_param_is_not_an_input(compiled: CompiledGraph) -> None:
    """Passing a param to `run` is an unknown input."""
    with pytest.raises(UnknownName, match="no input 'w'"):
        compiled.run({"x": X, "w": np.ones((4, 3), np.float32)})


def test_a_graph_without_inputs_needs_none() -> None:
    """A graph without inputs runs by `run()`."""
    graph = Graph()
    graph.set_outputs([graph.constant([1.0, 2.0]) * 2.0])
    np.testing.assert_array_equal(Session("cpu").compile(graph).run()[0], [2, 4])


def test_results_share_memory_with_nothing() -> None:
    """Results share no memory with inputs, params, constants or each other."""
    graph = Graph()
    x, p = graph.input("x", (2, 4)), graph.param("p", (4,))
    c = graph.constant(np.ones(4, np.float32))
    y = x * 2.0
    outputs = [x, x, p, c, graph.reshape(x, (8,)), graph.narrow(x, 0, 0, 1)]
    outputs += [y, graph.reshape(y, (8,)), graph.transpose(y, (1, 0)), y]
    outputs += [graph.expand(graph.reshape(p, (1, 4)), (3, 4))]
    graph.set_outputs(outputs)
    compiled_graph = Session("cpu").compile(graph)
    param = np.ones(4, np.float32)
    compiled_graph.set_param("p", param)
    input_array = X.copy()
    first = compiled_graph.run({"x": input_array})
    copies = [output.copy() for output in first]
    for index, output in enumerate(first):
        assert not np.shares_memory(output, input_array)
        assert all(not np.shares_memory(output, earlier) for earlier in first[:index])
        output[...] = -1
    np.testing.assert_array_equal(input_array, X)
    for second_output, first_copy in zip(
        compiled_graph.run({"x": input_array}), copies, strict=True
    ):
        np.testing.assert_array_equal(second_output, first_copy)


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_rank_is_kept_down_to_zero(shape: tuple[int, ...]) -> None:
    """A view of one element comes back with the rank it was declared with."""
    graph = Graph()
    x = graph.exp(graph.input("x", (1, 1, 1)))
    graph.set_outputs([graph.reshape(x, shape)])
    (out,) = Session("cpu").compile(graph).run({"x": [[[0.0]]]})
    assert out.shape == shape


def test_closed_graph_raises(compiled: CompiledGraph) -> None:
    """Running and setting are refused; closing twice is not an error."""
    compiled.close()
    compiled.close()
    with pytest.raises(SessionClosed, match="run 'layer'"):
        compiled.run({"x": X})
    with pytest.raises(SessionClosed, match="set_param"):
        compiled.set_param("w", np.ones((4, 3), np.float32))


def test_closed_session_does_not_compile(compiled: CompiledGraph) -> None:
    """Graphs compiled before the close stay usable."""
    session = Session("cpu")
    graph = Graph()
    graph.set_outputs([graph.exp(graph.input("x", (2, 4)))])
    compiled_before = session.compile(graph)
    session.close()
    session.close()
    with pytest.raises(SessionClosed, match="this session was closed"):
        session.compile(graph)
    np.testing.assert_allclose(compiled_before.run({"x": X})[0], np.exp(X), rtol=1e-6)


@pytest.mark.parametrize("copy_function", [pickle.dumps, copy.copy, copy.deepcopy])
def test_sessions_and_graphs_cannot_be_copied(
    copy_function: object, compiled: CompiledGraph
) -> None:
    """A device cannot be pickled; the message says what to do instead."""
    with pytest.raises(Unsupported, match="compile again"):
        copy_function(compiled)  # type: ignore[operator]
    with pytest.raises(Unsupported, match="create a Session in the process"):
        copy_function(Session("cpu"))  # type: ignore[operator]


def test_auto_explains_its_choice() -> None:
    """The decision comes first in the list and in the explanation."""
    graph = Graph("tiny")
    graph.set_outputs([graph.exp(graph.input("x", (4,)))])
    compiled_graph = Session().compile(graph)
    assert compiled_graph.device.label == "cpu"
    assert compiled_graph.decisions[0].what == f"device {compiled_graph.engine}"
    text = compiled_graph.explain()
    assert text.startswith(
        f"tiny on {compiled_graph.engine}\ndevice {compiled_graph.engine}: predicted "
    )
    assert "region exp" in text


@pytest.mark.requires_wgpu
def test_wide_types_go_to_the_cpu() -> None:
    """Wide types go to the CPU, whatever the size of the work."""
    graph = Graph()
    graph.set_outputs([graph.exp(graph.input("x", (1 << 22,), "f64"))])
    compiled_graph = Session().compile(graph)
    assert "f64" in compiled_graph.decisions[0].why


def test_bad_choices_are_rejected() -> None:
    """An unknown device, one that is not here, a precision, limits on a CPU."""
    for not_a_device in (np.zeros(2), ["cpu"], 3):  # an array is equal to nothing
        with pytest.raises(UnknownDevice, match="expected a name or a Device"):
            Session(not_a_device)  # type: ignore[arg-type]
    with pytest.raises(UnknownDevice, match="did you mean 'vulkan'"):
        Session("vulcan")
    with pytest.raises(AdapterMissing):
        Session("tpu")
    with pytest.raises(DTypeError, match="only 'f32' is supported"):
        Session("cpu", "f64")
    with pytest.raises(Unsupported, match="only wgpu devices"):
        Session("cpu", limits=tiny_limits()).compile(layer_graph())


def test_typed_calls_use_bytes() -> None:
    """RLX's typed calls take and return little-endian bytes and labels in every
    dtype.
    """
    for dtype in DType:
        graph = Graph()
        x, w = graph.input("x", (2,), dtype), graph.param("w", (2,), dtype)
        selected = graph.where(graph.eq(x, w), x, w)
        graph.set_outputs([selected, graph.eq(x, w)])
        compiled_graph = Session("cpu").compile(graph)
        values = np.array([0, 1]).astype(dtype.numpy)
        raw = values.astype(values.dtype.newbyteorder("<")).tobytes()
        compiled_graph.set_param_typed("w", raw, dtype.label)
        same, equal = compiled_graph.run_typed({"x": (raw, dtype.label)})
        assert same == (raw, dtype.label)
        assert equal == (b"\1\1", "bool")


def test_typed_calls_reject_misfits(compiled: CompiledGraph) -> None:
    """Typed calls refuse with both numbers; a bool is a byte, false only if 0."""
    w = np.ones((4, 3), np.float32)
    with pytest.raises(
        ShapeError, match=r"'w'.* 47 bytes; \[4, 3\] f32 takes 48 bytes"
    ):
        compiled.set_param_typed("w", w.tobytes()[:-1], "f32")
    with pytest.raises(
        ShapeError, match=r"'w'.* 48 bytes; \[4, 3\] i64 takes 96 bytes"
    ):
        compiled.set_param_typed("w", w.tobytes(), "i64")
    with pytest.raises(DTypeError, match=r"'w': .* 'f8' is 'f64' in rlxweb"):
        compiled.set_param_typed("w", w, "f8")
    with pytest.raises(UnknownName, match="no input 'y'"):
        compiled.run_typed({"y": (b"", "f32")})
    for wrong in (X, b"1234", "f32", (b"", "f32", 1)):
        with pytest.raises(DTypeError, match=r"a pair \(bytes, dtype\)"):
            compiled.run_typed({"x": wrong})
    for wrong in ([X], X, 3, "x"):
        with pytest.raises(InputError, match="inputs must be a dict of arrays by name"):
            compiled.run_typed(wrong)
    with pytest.raises(InputError, match="input 'x' was not given"):
        compiled.run_typed()
    with pytest.raises(ShapeError, match=r"0 bytes; \[2, 4\] f32 takes 32 bytes"):
        compiled.run_typed({"x": (b"", "f32")})
    graph = Graph()
    graph.set_outputs([graph.cast(graph.input("b", (3,), "bool"), "i32")])
    (got,) = Session("cpu").compile(graph).run_typed({"b": (b"\0\1\xff", "bool")})
    assert got == (np.array([0, 1, 1], "<i4").tobytes(), "i32")


def test_session_and_graph_repr(compiled: CompiledGraph) -> None:
    session = Session("cpu", "float32")
    assert repr(session) == "Session('cpu', 'f32')"
    assert session.device == "cpu"
    assert session.precision == "f32"
    assert repr(compiled) == f"CompiledGraph('layer' on {compiled.engine})"


def test_threads_may_share_a_compiled_graph(compiled: CompiledGraph) -> None:
    """NumPy programs hold no state between calls: eight threads, right answers."""
    wrong: list[int] = []

    def work(seed: int) -> None:
        x = np.full((2, 4), seed, np.float32)
        for _ in range(50):
            if (compiled.run({"x": x})[0] != 4 * seed).any():
                wrong.append(seed)

    run_concurrently([partial(work, k) for k in range(8)])
    assert wrong == []


def test_failed_automatic_choice_falls_back_to_cpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The graph runs on the CPU; the decision names the device and its reason."""

    async def pick_vulkan(job: GraphJob, request: PlaceRequest) -> DevicePick[GraphJob]:
        decision = Decision("device of the test", "it was picked")
        return DevicePick(job, Candidate(Device.VULKAN, "none"), decision)

    async def refuse_vulkan(self: Session, candidate: Candidate) -> object:
        if candidate.device is Device.CPU:
            return pool.engine("cpu")
        raise Unsupported("open", "it will not")

    monkeypatch.setattr("rlxweb.runtime.session.choose_place_async", pick_vulkan)
    monkeypatch.setattr(Session, "_open_engine", refuse_vulkan)
    graph = Graph()
    graph.set_outputs([graph.exp(graph.input("x", (2,)))])
    compiled = Session("auto").compile(graph)
    assert compiled.device is Device.CPU
    assert "device of the test" in compiled.decisions[0].why
    assert "it will not" in compiled.decisions[0].why


def test_explain_names_the_kernel_variants(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that a kernel variant runs says which; the op's own kernel has no name."""
    monkeypatch.setenv("RLX_FAST", "off")
    for columns, name in ((1 << 18, " by 'cumsum, in parts'"), (3, "")):
        graph = Graph("sums")
        graph.set_outputs([graph.cumsum(graph.input("x", (4, columns)), axis=1)])
        (step,) = (
            line
            for line in Session("cpu").compile(graph).explain().splitlines()
            if "cumsum" in line
        )
        head, _, tail = step.partition("f32")
        assert head == f"  v1 = kernel cumsum(v0) : [4, {columns}] "
        assert tail.lstrip(" @0") == name.lstrip()


@pytest.mark.requires_wgpu
def test_explain_names_the_kernel_variants_of_a_gpu() -> None:
    """The text names what the engine selects, with a region after it too."""
    graph = Graph("dense")
    x, w = graph.input("x", (512, 512)), graph.param("w", (512, 512))
    graph.set_outputs([graph.relu(x @ w), graph.cumsum(x, axis=1)])
    text = Session("vulkan").compile(graph).explain()
    names = {variant.name for variant in load_kernels("wgsl") if variant.op == "matmul"}
    matmul_step = next(line for line in text.splitlines() if "matmul+relu" in line)
    assert matmul_step.partition(" by '")[2].removesuffix("'") in names
    assert not any("cumsum" in line and " by '" in line for line in text.splitlines())
