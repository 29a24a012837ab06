"""Sessions on NumPy: the life of a compiled graph, params, names, ownership."""

from __future__ import annotations

import copy
import pickle
from functools import partial

import numpy as np
import pytest

from rlxweb import Device, Graph, Session
from rlxweb.backends.pool import pool
from rlxweb.choose.chooser import Asked, Pick
from rlxweb.choose.graphs import GraphJob
from rlxweb.decision.candidate import Candidate
from rlxweb.decision.decision import Decision
from rlxweb.errors import (
    AdapterMissing,
    DTypeError,
    InputError,
    SessionClosed,
    ShapeError,
    UnknownDevice,
    UnknownName,
    Unsupported,
)
from rlxweb.ir.dtype import DType
from rlxweb.limits import shrunk
from rlxweb.runtime.compiled import CompiledGraph
from tests.threads import at_once

X = np.arange(8, dtype=np.float32).reshape(2, 4)


def layer() -> Graph:
    graph = Graph("layer")
    x, w = graph.input("x", (2, 4)), graph.param("w", (4, 3))
    graph.set_outputs([graph.relu(x @ w), x])
    return graph


@pytest.fixture
def compiled() -> CompiledGraph:
    made = Session("cpu").compile(layer())
    made.set_param("w", np.ones((4, 3), np.float32))
    return made


def test_a_graph_runs_again_and_again(compiled: CompiledGraph) -> None:
    """A graph runs again with outputs in order, other inputs and the same params."""
    first, back = compiled.run({"x": X})
    np.testing.assert_array_equal(first, np.repeat(X.sum(1)[:, None], 3, 1))
    np.testing.assert_array_equal(back, X)
    second, _ = compiled.run({"x": -X})
    np.testing.assert_array_equal(second, np.zeros((2, 3)))


def test_params_can_be_set_again(compiled: CompiledGraph) -> None:
    """The next run uses the new value; the caller's array is not kept."""
    weights = np.zeros((4, 3), np.float32)
    compiled.set_param("w", weights)
    weights[...] = 9
    assert compiled.run({"x": X})[0].max() == 0


def test_a_param_without_value_is_named() -> None:
    """No run with whatever memory held."""
    made = Session("cpu").compile(layer())
    with pytest.raises(InputError, match="param 'w' has no value; 1 of 1 params unset"):
        made.run({"x": X})


def test_params_are_checked_like_inputs(compiled: CompiledGraph) -> None:
    """Params are checked for name, dtype and shape."""
    with pytest.raises(UnknownName, match="no param 'v'; it has 'w'"):
        compiled.set_param("v", 1.0)
    with pytest.raises(DTypeError, match="set_param of 'layer'"):
        compiled.set_param("w", np.ones((4, 3)))
    with pytest.raises(ShapeError, match=r"is \[3, 4\]"):
        compiled.set_param("w", np.ones((3, 4), np.float32))


def test_a_param_is_not_an_input(compiled: CompiledGraph) -> None:
    """Giving it to `run` is told apart from setting it."""
    with pytest.raises(UnknownName, match="no input 'w'"):
        compiled.run({"x": X, "w": np.ones((4, 3), np.float32)})


def test_a_graph_without_inputs_needs_none() -> None:
    """`run()` is enough."""
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
    made = Session("cpu").compile(graph)
    param = np.ones(4, np.float32)
    made.set_param("p", param)
    fed = X.copy()
    first = made.run({"x": fed})
    kept = [out.copy() for out in first]
    for at, out in enumerate(first):
        assert not np.shares_memory(out, fed)
        assert all(not np.shares_memory(out, o) for o in first[:at])
        out[...] = -1
    np.testing.assert_array_equal(fed, X)
    for again, before in zip(made.run({"x": fed}), kept, strict=True):
        np.testing.assert_array_equal(again, before)


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_rank_is_kept_down_to_zero(shape: tuple[int, ...]) -> None:
    """A view of one element comes back with the rank it was declared with."""
    graph = Graph()
    x = graph.exp(graph.input("x", (1, 1, 1)))
    graph.set_outputs([graph.reshape(x, shape)])
    (out,) = Session("cpu").compile(graph).run({"x": [[[0.0]]]})
    assert out.shape == shape


def test_a_closed_graph_says_so(compiled: CompiledGraph) -> None:
    """Running and setting are refused; closing twice is not an error."""
    compiled.close()
    compiled.close()
    with pytest.raises(SessionClosed, match="run 'layer'"):
        compiled.run({"x": X})
    with pytest.raises(SessionClosed, match="set_param"):
        compiled.set_param("w", np.ones((4, 3), np.float32))


def test_a_closed_session_compiles_no_more(compiled: CompiledGraph) -> None:
    """Graphs it compiled before stay usable."""
    session = Session("cpu")
    graph = Graph()
    graph.set_outputs([graph.exp(graph.input("x", (2, 4)))])
    before = session.compile(graph)
    session.close()
    session.close()
    with pytest.raises(SessionClosed, match="this session was closed"):
        session.compile(graph)
    np.testing.assert_allclose(before.run({"x": X})[0], np.exp(X), rtol=1e-6)


@pytest.mark.parametrize("copied", [pickle.dumps, copy.copy, copy.deepcopy])
def test_sessions_and_graphs_are_not_copied(
    copied: object, compiled: CompiledGraph
) -> None:
    """A device cannot be pickled; the message says what to do instead."""
    with pytest.raises(Unsupported, match="compile again"):
        copied(compiled)  # type: ignore[operator]
    with pytest.raises(Unsupported, match="make a Session where"):
        copied(Session("cpu"))  # type: ignore[operator]


def test_auto_says_what_it_chose_and_why() -> None:
    """The decision comes first in the list and in the explanation."""
    graph = Graph("tiny")
    graph.set_outputs([graph.exp(graph.input("x", (4,)))])
    made = Session().compile(graph)
    assert made.device.label == "cpu"
    assert made.decisions[0].what == f"device {made.engine}"
    text = made.explain()
    assert text.startswith(f"tiny on {made.engine}\ndevice {made.engine}: predicted ")
    assert "region exp" in text


@pytest.mark.requires_wgpu
def test_wide_types_go_to_the_cpu() -> None:
    """Wide types go to the CPU, whatever the size of the work."""
    graph = Graph()
    graph.set_outputs([graph.exp(graph.input("x", (1 << 22,), "f64"))])
    made = Session().compile(graph)
    assert "f64" in made.decisions[0].why


def test_bad_choices_are_refused() -> None:
    """An unknown device, one that is not here, a precision, limits on a CPU."""
    for given in (np.zeros(2), ["cpu"], 3):  # an array is equal to nothing
        with pytest.raises(UnknownDevice, match="expected a name or a Device"):
            Session(given)  # type: ignore[arg-type]
    with pytest.raises(UnknownDevice, match="did you mean 'vulkan'"):
        Session("vulcan")
    with pytest.raises(AdapterMissing):
        Session("tpu")
    with pytest.raises(DTypeError, match="'f32' is the only one"):
        Session("cpu", "f64")
    with pytest.raises(Unsupported, match="wgpu devices only"):
        Session("cpu", limits=shrunk()).compile(layer())


def test_typed_calls_take_and_give_bytes() -> None:
    """RLX's shape, in every dtype there is: little-endian bytes and labels."""
    for dtype in DType:
        graph = Graph()
        x, w = graph.input("x", (2,), dtype), graph.param("w", (2,), dtype)
        twice = graph.where(graph.eq(x, w), x, w)
        graph.set_outputs([twice, graph.eq(x, w)])
        made = Session("cpu").compile(graph)
        values = np.array([0, 1]).astype(dtype.numpy)
        raw = values.astype(values.dtype.newbyteorder("<")).tobytes()
        made.set_param_typed("w", raw, dtype.label)
        same, equal = made.run_typed({"x": (raw, dtype.label)})
        assert same == (raw, dtype.label)
        assert equal == (b"\1\1", "bool")


def test_typed_calls_refuse_what_does_not_fit(compiled: CompiledGraph) -> None:
    """Typed calls refuse with both numbers; a bool is a byte, false only if 0."""
    w = np.ones((4, 3), np.float32)
    with pytest.raises(ShapeError, match=r"'w'.* 47 bytes .*\[4, 3\] f32 takes 48"):
        compiled.set_param_typed("w", w.tobytes()[:-1], "f32")
    with pytest.raises(ShapeError, match=r"'w'.* 48 bytes .*\[4, 3\] i64 takes 96"):
        compiled.set_param_typed("w", w.tobytes(), "i64")
    with pytest.raises(DTypeError, match=r"'w': .* 'f8' is 'f64' here"):
        compiled.set_param_typed("w", w, "f8")
    with pytest.raises(UnknownName, match="no input 'y'"):
        compiled.run_typed({"y": (b"", "f32")})
    for wrong in (X, b"1234", "f32", (b"", "f32", 1)):
        with pytest.raises(DTypeError, match="a pair of bytes and a dtype"):
            compiled.run_typed({"x": wrong})
    for wrong in ([X], X, 3, "x"):
        with pytest.raises(InputError, match="inputs are given by name, in a dict"):
            compiled.run_typed(wrong)
    with pytest.raises(InputError, match="input 'x' was not given"):
        compiled.run_typed()
    with pytest.raises(ShapeError, match=r"0 bytes .*\[2, 4\] f32 takes 32"):
        compiled.run_typed({"x": (b"", "f32")})
    graph = Graph()
    graph.set_outputs([graph.cast(graph.input("b", (3,), "bool"), "i32")])
    (got,) = Session("cpu").compile(graph).run_typed({"b": (b"\0\1\xff", "bool")})
    assert got == (np.array([0, 1, 1], "<i4").tobytes(), "i32")


def test_sessions_say_what_they_are(compiled: CompiledGraph) -> None:
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

    at_once([partial(work, k) for k in range(8)])
    assert wrong == []


def test_an_automatic_choice_that_refuses_falls_back_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The graph runs on the CPU; the decision names the device and its reason."""

    async def pick(job: GraphJob, asked: Asked) -> Pick[GraphJob]:
        decision = Decision("device of the test", "it was picked")
        return Pick(job, Candidate(Device.VULKAN, "none"), decision)

    async def refuse(self: Session, way: Candidate) -> object:
        if way.device is Device.CPU:
            return pool.backend("cpu")
        raise Unsupported("open", "it will not")

    monkeypatch.setattr("rlxweb.runtime.session.choose_async", pick)
    monkeypatch.setattr(Session, "_backend", refuse)
    graph = Graph()
    graph.set_outputs([graph.exp(graph.input("x", (2,)))])
    compiled = Session("auto").compile(graph)
    assert compiled.device is Device.CPU
    assert "device of the test" in compiled.decisions[0].why
    assert "it will not" in compiled.decisions[0].why
