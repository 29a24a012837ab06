"""A loaded model: what it takes and gives, how it is run, and what it keeps."""

from __future__ import annotations

import io
import pickle
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

import rlxweb as rlx
from rlxweb.errors import (
    DTypeError,
    InputError,
    SessionClosed,
    ShapeError,
    UnknownName,
    Unsupported,
    UsageError,
)
from rlxweb.onnx.model import MOST_KEPT
from tests.command_line import python
from tests.onnx.made import FLOAT, INT64, model, node, one, value, weights

RNG = np.random.default_rng(3)
W = RNG.normal(size=(3, 4)).astype(np.float32)
B = RNG.normal(size=4).astype(np.float32)


def dense(batch: Any = "batch") -> bytes:
    """A dense layer: relu(x w + b), for any batch."""
    return model(
        [
            node("MatMul", ["x", "w"], ["xw"]),
            node("Add", ["xw", "b"], ["s"]),
            node("Relu", ["s"], ["y"]),
        ],
        [value("x", (batch, 3))],
        [value("y", (batch, 4))],
        weights(w=W, b=B),
    ).SerializeToString()


def right(x: np.ndarray) -> np.ndarray:
    return np.maximum(x.astype(np.float64) @ W + B, 0)


def test_a_model_runs_for_any_batch(rng: np.random.Generator) -> None:
    with rlx.onnx.load(dense()) as net:
        for batch in (1, 5, 0, 2):
            x = rng.normal(size=(batch, 3)).astype(np.float32)
            got = net.run({"x": x}, device="cpu")
            assert list(got) == ["y"]
            np.testing.assert_allclose(got["y"], right(x), rtol=1e-5, atol=1e-6)


def test_bytes_may_stand_in_either_order(rng: np.random.Generator) -> None:
    net = rlx.onnx.load(dense())
    x = rng.normal(size=(2, 3)).astype(np.float32)
    got = net.run({"x": x.astype(">f4")}, device="cpu")["y"]
    np.testing.assert_array_equal(got, net.run({"x": x}, device="cpu")["y"])
    assert len(net._made) == 1


def test_what_it_takes_and_gives_is_told() -> None:
    net = rlx.onnx.load(dense())
    assert str(net.inputs["x"]) == "x: [batch, 3] f32"
    assert str(net.outputs["y"]) == "y: [batch, 4] f32"
    assert net.opsets == {"": 21}
    np.testing.assert_array_equal(net.params["w"], W)
    assert not net.params["w"].flags.writeable
    assert net.missing == {}
    assert "nothing was compiled yet" in net.explain()
    net.run({"x": np.ones((2, 3), np.float32)}, device="cpu")
    assert "NumPy" in net.explain()


def test_paths_bytes_and_files_load_alike(tmp_path: Path) -> None:
    path = tmp_path / "dense.onnx"
    path.write_bytes(dense())
    x = np.ones((2, 3), np.float32)
    for source in (path, str(path), dense(), bytearray(dense()), io.BytesIO(dense())):
        got = rlx.onnx.load(source).run({"x": x}, device="cpu")["y"]
        np.testing.assert_allclose(got, right(x), rtol=1e-5, atol=1e-6)
    assert rlx.onnx.load(path).name == "dense.onnx"


def test_a_graph_where_all_dims_are_numbers() -> None:
    graph = rlx.onnx.load(dense(2)).graph
    assert list(graph.named("input")) == ["x"]
    assert set(graph.named("param")) == {"w", "b"}
    assert graph.tensor(graph.outputs[0]).shape == (2, 4)
    net = rlx.onnx.load(dense())
    bound = net.graph_for({"x": np.zeros((7, 3), np.float32)})
    assert bound.tensor(bound.outputs[0]).shape == (7, 4)
    with pytest.raises(InputError, match="a list was given"):
        net.graph_for([1])  # type: ignore[arg-type]


def test_bindings_are_kept_and_the_oldest_goes() -> None:
    net = rlx.onnx.load(dense())
    for batch in range(1, MOST_KEPT + 4):
        net.run({"x": np.ones((batch, 3), np.float32)}, device="cpu")
    assert len(net._made) == MOST_KEPT
    before = [made for _, made in net._made]
    net.run({"x": np.ones((MOST_KEPT, 3), np.float32)}, device="cpu")
    assert {id(made) for _, made in net._made} == set(map(id, before))


def test_what_is_let_go_of_stays_usable_and_is_freed_where_nobody_has_it() -> None:
    """A compiled graph that somebody holds outlives the conversion that it is of."""
    net = rlx.onnx.load(dense())
    x = np.ones((1, 3), np.float32)
    held = net.compiled({"x": x}, device="cpu")
    freed = weakref.ref(net.compiled({"x": np.ones((2, 3), "f4")}, device="cpu"))
    for batch in range(3, MOST_KEPT + 3):
        net.run({"x": np.ones((batch, 3), np.float32)}, device="cpu")
    np.testing.assert_allclose(held.run({"x": x})[0], right(x), rtol=1e-5, atol=1e-6)
    assert freed() is None


@pytest.mark.parametrize(
    ("given", "kind", "says"),
    [
        ({}, InputError, "'x' was not given"),
        (None, InputError, "'x' was not given"),
        ([1], InputError, "a list was given"),
        ({"y": np.ones((2, 3), "f4")}, UnknownName, "no input 'y'"),
        ({"x": np.ones((2, 3), "f8")}, DTypeError, "float64; the model declares f32"),
        ({"x": np.ones((2, 4), "f4")}, ShapeError, r"\[2, 4\]; the model declares"),
        ({"x": np.ones(3, "f4")}, ShapeError, r"\[3\]; the model declares"),
        ({"x": "text"}, DTypeError, "input 'x'"),
        ({"x": None}, DTypeError, "input 'x'"),
    ],
)
def test_bad_inputs_are_refused(given: Any, kind: Any, says: str) -> None:
    with pytest.raises(kind, match=says):
        rlx.onnx.load(dense()).run(given, device="cpu")


def test_one_name_is_one_size() -> None:
    made = model(
        [node("Add", ["x", "y"], ["z"])],
        [value("x", ("n", 2)), value("y", ("n", 2))],
        [value("z", ("n", 2))],
    )
    net = rlx.onnx.load(made.SerializeToString())
    x, y = np.ones((3, 2), "f4"), np.ones((1, 2), "f4")
    with pytest.raises(ShapeError, match="'n', is 1; input 'x' has 3 for it"):
        net.run({"x": x, "y": y}, device="cpu")


def test_values_that_decide_shapes_are_used() -> None:
    """The model is converted anew for other values, and not for the same."""
    made = model(
        [node("Reshape", ["x", "shape"], ["y"])],
        [value("x", (2, 3)), value("shape", ("rank",), INT64)],
        [value("y", None)],
    )
    net = rlx.onnx.load(made.SerializeToString())
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for shape in ([3, 2], [6, 1], [3, 2]):
        got = net.run({"x": x, "shape": np.array(shape)}, device="cpu")["y"]
        np.testing.assert_array_equal(got, x.reshape(shape))
    assert len(net._made) == 2


def test_large_inputs_do_not_decide_shapes() -> None:
    made = model(
        [
            node("Cast", ["x"], ["i"], to=INT64),
            node("Reshape", ["x", "i"], ["y"]),
        ],
        [value("x", ("n",))],
        [value("y", None)],
    )
    net = rlx.onnx.load(made.SerializeToString())
    with pytest.raises(Unsupported, match=r"values of input 'x' \[5000\]; .* 4,096"):
        net.run({"x": np.ones(5000, "f4")}, device="cpu")


def test_outputs_that_are_known_or_inputs() -> None:
    made = model(
        [node("Shape", ["x"], ["s"]), node("Identity", ["x"], ["same"])],
        [value("x", ("n", 2)), value("unused", (1,))],
        [value("s", (2,), INT64), value("same", ("n", 2))],
    )
    net = rlx.onnx.load(made.SerializeToString())
    x = np.ones((3, 2), np.float32)
    got = net.run({"x": x, "unused": [0.0]}, device="cpu")
    assert got["s"].tolist() == [3, 2]
    np.testing.assert_array_equal(got["same"], x)
    assert not np.shares_memory(got["same"], x)


def test_state_stays_on_the_device_between_runs() -> None:
    made = model(
        [node("Add", ["state", "x"], ["next"]), node("Neg", ["next"], ["y"])],
        [value("x", (2,)), value("state", (2,))],
        [value("y", (2,)), value("next", (2,))],
    )
    net = rlx.onnx.load(made.SerializeToString())
    state: Any = np.zeros(2, np.float32)
    for turn in range(1, 4):
        got = net.run({"x": [1.0, 2.0], "state": state}, device="cpu", keep=["next"])
        state = got["next"]
        assert isinstance(state, rlx.DeviceArray)
        assert got["y"].tolist() == [-turn, -2.0 * turn]
    with pytest.raises(UsageError, match=r"keep names 'nxt'.*did you mean 'next'"):
        net.run({"x": [1.0, 2.0], "state": state}, device="cpu", keep=["nxt"])


def test_a_closed_model_is_not_run() -> None:
    net = rlx.onnx.load(dense())
    net.run({"x": np.ones((2, 3), np.float32)}, device="cpu")
    net.close()
    net.close()
    with pytest.raises(SessionClosed, match="was closed"):
        net.run({"x": np.ones((2, 3), np.float32)}, device="cpu")
    with pytest.raises(Unsupported, match="load it where it is needed"):
        pickle.dumps(rlx.onnx.load(dense()))


@pytest.mark.requires_wgpu
def test_a_model_runs_on_an_adapter(rng: np.random.Generator) -> None:
    x = rng.normal(size=(5, 3)).astype(np.float32)
    got = rlx.onnx.load(dense()).run({"x": x}, device="gpu")["y"]
    np.testing.assert_allclose(got, right(x), rtol=1e-5, atol=1e-5)


def test_sequences_and_optionals_go_in_and_out() -> None:
    kind = helper.make_tensor_type_proto(FLOAT, ["n"])
    sequence = helper.make_sequence_type_proto(kind)
    made = model(
        [node("SequenceInsert", ["xs", "x"], ["ys"])],
        [helper.make_value_info("xs", sequence), value("x", (2,))],
        [helper.make_value_info("ys", sequence)],
    )
    net = rlx.onnx.load(made.SerializeToString())
    assert net.inputs["xs"].kind == "sequence"
    xs = [np.ones(3, np.float32), np.zeros(1, np.float32)]
    got = net.run({"xs": xs, "x": [1.0, 2.0]}, device="cpu")["ys"]
    assert [one.tolist() for one in got] == [[1.0] * 3, [0.0], [1.0, 2.0]]
    got = net.run({"xs": [[3.0]], "x": [1.0, 2.0]}, device="cpu")["ys"]
    assert [one.tolist() for one in got] == [[3.0], [1.0, 2.0]]
    with pytest.raises(InputError, match="a list is wanted"):
        net.run({"xs": xs[0], "x": [1.0, 2.0]}, device="cpu")


def test_import_of_the_package_does_not_load_onnx() -> None:
    code = "import rlxweb, sys; assert not {'onnx', 'rlxweb.onnx'} & set(sys.modules)"
    assert python("-c", code).code == 0


def test_old_broadcasting_by_an_axis() -> None:
    made = model(
        [node("Add", ["x", "y"], ["z"], broadcast=1, axis=0)],
        [value("x", (2, 3)), value("y", (2,))],
        [value("z", (2, 3))],
        opsets={"": 6},
    )
    net = rlx.onnx.load(made.SerializeToString())
    got = net.run({"x": np.zeros((2, 3), "f4"), "y": [1.0, 2.0]}, device="cpu")["z"]
    assert got.tolist() == [[1.0] * 3, [2.0] * 3]


def test_one_op_models_of_these_tests_are_models() -> None:
    assert rlx.onnx.load(one("Relu", (2,), out=(2,)).SerializeToString()).missing == {}


def test_nodes_may_stand_in_any_order() -> None:
    """Nodes may stand in any order, and a body sees what comes after its node.

    Converters to float16 leave them so.
    """
    then = helper.make_graph(
        [node("Add", ["h", "one"], ["t"])], "then", [], [value("t", None)]
    )
    other = helper.make_graph(
        [node("Neg", ["h"], ["e"])], "else", [], [value("e", None)]
    )
    nodes = [
        node("Mul", ["r", "r"], ["y"]),
        node("If", ["yes"], ["r"], then_branch=then, else_branch=other),
        node("Exp", ["x"], ["h"]),
    ]
    held = weights(yes=np.array(True), one=np.float32(1.0))
    made = model(nodes, [value("x", (3,))], [value("y", (3,))], held)
    x = np.array([0.5, -1.0, 2.0], np.float32)
    got = rlx.onnx.load(made.SerializeToString()).run({"x": x}, device="cpu")["y"]
    np.testing.assert_allclose(got, (np.exp(x) + 1) ** 2, 1e-6)
