"""A loaded model: its inputs and outputs, its runs and its caches."""

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
from rlxweb.core.errors import (
    DTypeError,
    InputError,
    SessionClosed,
    ShapeError,
    UnknownName,
    Unsupported,
    UsageError,
)
from rlxweb.onnx.model import MAX_CONVERSIONS
from tests.cli_runners import run_python
from tests.onnx.model_factory import (
    FLOAT,
    INT64,
    initializers,
    make_model,
    node,
    single_op_model,
    value_info,
)

RNG = np.random.default_rng(3)
W = RNG.normal(size=(3, 4)).astype(np.float32)
B = RNG.normal(size=4).astype(np.float32)


def dense_model(batch: Any = "batch") -> bytes:
    """Return the bytes of a dense layer, relu(x w + b), for any batch."""
    return make_model(
        [
            node("MatMul", ["x", "w"], ["xw"]),
            node("Add", ["xw", "b"], ["s"]),
            node("Relu", ["s"], ["y"]),
        ],
        [value_info("x", (batch, 3))],
        [value_info("y", (batch, 4))],
        initializers(w=W, b=B),
    ).SerializeToString()


def expected_dense(x: np.ndarray) -> np.ndarray:
    return np.maximum(x.astype(np.float64) @ W + B, 0)


def test_a_model_runs_for_any_batch(rng: np.random.Generator) -> None:
    with rlx.onnx.load(dense_model()) as net:
        for batch in (1, 5, 0, 2):
            x = rng.normal(size=(batch, 3)).astype(np.float32)
            got = net.run({"x": x}, device="cpu")
            assert list(got) == ["y"]
            np.testing.assert_allclose(
                got["y"], expected_dense(x), rtol=1e-5, atol=1e-6
            )


def test_inputs_of_either_byte_order(rng: np.random.Generator) -> None:
    net = rlx.onnx.load(dense_model())
    x = rng.normal(size=(2, 3)).astype(np.float32)
    got = net.run({"x": x.astype(">f4")}, device="cpu")["y"]
    np.testing.assert_array_equal(got, net.run({"x": x}, device="cpu")["y"])
    assert len(net._conversions) == 1


def test_inputs_outputs_and_params_are_described() -> None:
    net = rlx.onnx.load(dense_model())
    assert str(net.inputs["x"]) == "x: [batch, 3] f32"
    assert str(net.outputs["y"]) == "y: [batch, 4] f32"
    assert net.opsets == {"": 21}
    np.testing.assert_array_equal(net.params["w"], W)
    assert not net.params["w"].flags.writeable
    assert net.missing == {}
    assert "not compiled yet" in net.explain()
    net.run({"x": np.ones((2, 3), np.float32)}, device="cpu")
    assert "NumPy" in net.explain()


def test_paths_bytes_and_files_load_alike(tmp_path: Path) -> None:
    path = tmp_path / "dense.onnx"
    path.write_bytes(dense_model())
    x = np.ones((2, 3), np.float32)
    for source in (
        path,
        str(path),
        dense_model(),
        bytearray(dense_model()),
        io.BytesIO(dense_model()),
    ):
        got = rlx.onnx.load(source).run({"x": x}, device="cpu")["y"]
        np.testing.assert_allclose(got, expected_dense(x), rtol=1e-5, atol=1e-6)
    assert rlx.onnx.load(path).name == "dense.onnx"


def test_graph_of_fixed_dims() -> None:
    graph = rlx.onnx.load(dense_model(2)).graph
    assert list(graph.named("input")) == ["x"]
    assert set(graph.named("param")) == {"w", "b"}
    assert graph.tensor(graph.outputs[0]).shape == (2, 4)
    net = rlx.onnx.load(dense_model())
    bound = net.graph_for({"x": np.zeros((7, 3), np.float32)})
    assert bound.tensor(bound.outputs[0]).shape == (7, 4)
    with pytest.raises(InputError, match="got a list; expected a dict"):
        net.graph_for([1])  # type: ignore[arg-type]


def test_bindings_are_cached_and_the_oldest_is_evicted() -> None:
    net = rlx.onnx.load(dense_model())
    for batch in range(1, MAX_CONVERSIONS + 4):
        net.run({"x": np.ones((batch, 3), np.float32)}, device="cpu")
    assert len(net._conversions) == MAX_CONVERSIONS
    before = [converted for _, converted in net._conversions]
    net.run({"x": np.ones((MAX_CONVERSIONS, 3), np.float32)}, device="cpu")
    assert {id(converted) for _, converted in net._conversions} == set(map(id, before))


def test_evicted_graph_stays_usable_while_referenced() -> None:
    """A compiled graph that is still referenced outlives its evicted conversion;
    another one is freed.
    """
    net = rlx.onnx.load(dense_model())
    x = np.ones((1, 3), np.float32)
    compiled = net.compiled({"x": x}, device="cpu")
    reference = weakref.ref(net.compiled({"x": np.ones((2, 3), "f4")}, device="cpu"))
    for batch in range(3, MAX_CONVERSIONS + 3):
        net.run({"x": np.ones((batch, 3), np.float32)}, device="cpu")
    np.testing.assert_allclose(
        compiled.run({"x": x})[0], expected_dense(x), rtol=1e-5, atol=1e-6
    )
    assert reference() is None


@pytest.mark.parametrize(
    ("inputs", "kind", "message"),
    [
        ({}, InputError, "'x' was not given"),
        (None, InputError, "'x' was not given"),
        ([1], InputError, "got a list; expected a dict"),
        ({"y": np.ones((2, 3), "f4")}, UnknownName, "no input 'y'"),
        (
            {"x": np.ones((2, 3), "f8")},
            DTypeError,
            "float64; the model declares dtype f32",
        ),
        ({"x": np.ones((2, 4), "f4")}, ShapeError, r"\[2, 4\]; the model declares"),
        ({"x": np.ones(3, "f4")}, ShapeError, r"\[3\]; the model declares"),
        ({"x": "text"}, DTypeError, "input 'x'"),
        ({"x": None}, DTypeError, "input 'x'"),
    ],
)
def test_bad_inputs_are_refused(inputs: Any, kind: Any, message: str) -> None:
    with pytest.raises(kind, match=message):
        rlx.onnx.load(dense_model()).run(inputs, device="cpu")


def test_dim_name_has_one_size() -> None:
    model_proto = make_model(
        [node("Add", ["x", "y"], ["z"])],
        [value_info("x", ("n", 2)), value_info("y", ("n", 2))],
        [value_info("z", ("n", 2))],
    )
    net = rlx.onnx.load(model_proto.SerializeToString())
    x, y = np.ones((3, 2), "f4"), np.ones((1, 2), "f4")
    with pytest.raises(ShapeError, match=r"\('n'\) is 1; 'n' is 3 in input 'x'"):
        net.run({"x": x, "y": y}, device="cpu")


def test_input_values_may_determine_shapes() -> None:
    """The model is converted again for other values, and not for the same."""
    model_proto = make_model(
        [node("Reshape", ["x", "shape"], ["y"])],
        [value_info("x", (2, 3)), value_info("shape", ("rank",), INT64)],
        [value_info("y", None)],
    )
    net = rlx.onnx.load(model_proto.SerializeToString())
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for shape in ([3, 2], [6, 1], [3, 2]):
        got = net.run({"x": x, "shape": np.array(shape)}, device="cpu")["y"]
        np.testing.assert_array_equal(got, x.reshape(shape))
    assert len(net._conversions) == 2


def test_large_inputs_do_not_determine_shapes() -> None:
    model_proto = make_model(
        [
            node("Cast", ["x"], ["i"], to=INT64),
            node("Reshape", ["x", "i"], ["y"]),
        ],
        [value_info("x", ("n",))],
        [value_info("y", None)],
    )
    net = rlx.onnx.load(model_proto.SerializeToString())
    with pytest.raises(
        Unsupported, match=r"values of input 'x' \[5000\] determine .*; .* 4,096"
    ):
        net.run({"x": np.ones(5000, "f4")}, device="cpu")


def test_outputs_that_are_constants_or_inputs() -> None:
    model_proto = make_model(
        [node("Shape", ["x"], ["s"]), node("Identity", ["x"], ["same"])],
        [value_info("x", ("n", 2)), value_info("unused", (1,))],
        [value_info("s", (2,), INT64), value_info("same", ("n", 2))],
    )
    net = rlx.onnx.load(model_proto.SerializeToString())
    x = np.ones((3, 2), np.float32)
    got = net.run({"x": x, "unused": [0.0]}, device="cpu")
    assert got["s"].tolist() == [3, 2]
    np.testing.assert_array_equal(got["same"], x)
    assert not np.shares_memory(got["same"], x)


def test_state_stays_on_the_device_between_runs() -> None:
    model_proto = make_model(
        [node("Add", ["state", "x"], ["next"]), node("Neg", ["next"], ["y"])],
        [value_info("x", (2,)), value_info("state", (2,))],
        [value_info("y", (2,)), value_info("next", (2,))],
    )
    net = rlx.onnx.load(model_proto.SerializeToString())
    state: Any = np.zeros(2, np.float32)
    for step in range(1, 4):
        got = net.run({"x": [1.0, 2.0], "state": state}, device="cpu", keep=["next"])
        state = got["next"]
        assert isinstance(state, rlx.DeviceArray)
        assert got["y"].tolist() == [-step, -2.0 * step]
    with pytest.raises(
        UsageError, match=r"keep contains the unknown output 'nxt'.*did you mean 'next'"
    ):
        net.run({"x": [1.0, 2.0], "state": state}, device="cpu", keep=["nxt"])


def test_closed_model_refuses_to_run() -> None:
    net = rlx.onnx.load(dense_model())
    net.run({"x": np.ones((2, 3), np.float32)}, device="cpu")
    net.close()
    net.close()
    with pytest.raises(SessionClosed, match="was closed"):
        net.run({"x": np.ones((2, 3), np.float32)}, device="cpu")
    with pytest.raises(Unsupported, match="load it in the process that needs it"):
        pickle.dumps(rlx.onnx.load(dense_model()))


@pytest.mark.requires_wgpu
def test_a_model_runs_on_an_adapter(rng: np.random.Generator) -> None:
    x = rng.normal(size=(5, 3)).astype(np.float32)
    got = rlx.onnx.load(dense_model()).run({"x": x}, device="gpu")["y"]
    np.testing.assert_allclose(got, expected_dense(x), rtol=1e-5, atol=1e-5)


def test_sequences_and_optionals_go_in_and_out() -> None:
    kind = helper.make_tensor_type_proto(FLOAT, ["n"])
    sequence = helper.make_sequence_type_proto(kind)
    model_proto = make_model(
        [node("SequenceInsert", ["xs", "x"], ["ys"])],
        [helper.make_value_info("xs", sequence), value_info("x", (2,))],
        [helper.make_value_info("ys", sequence)],
    )
    net = rlx.onnx.load(model_proto.SerializeToString())
    assert net.inputs["xs"].kind == "sequence"
    xs = [np.ones(3, np.float32), np.zeros(1, np.float32)]
    got = net.run({"xs": xs, "x": [1.0, 2.0]}, device="cpu")["ys"]
    assert [array.tolist() for array in got] == [[1.0] * 3, [0.0], [1.0, 2.0]]
    got = net.run({"xs": [[3.0]], "x": [1.0, 2.0]}, device="cpu")["ys"]
    assert [array.tolist() for array in got] == [[3.0], [1.0, 2.0]]
    with pytest.raises(InputError, match="expected a list"):
        net.run({"xs": xs[0], "x": [1.0, 2.0]}, device="cpu")


def test_import_of_the_package_does_not_load_onnx() -> None:
    code = "import rlxweb, sys; assert not {'onnx', 'rlxweb.onnx'} & set(sys.modules)"
    assert run_python("-c", code).code == 0


def test_old_broadcasting_by_an_axis() -> None:
    model_proto = make_model(
        [node("Add", ["x", "y"], ["z"], broadcast=1, axis=0)],
        [value_info("x", (2, 3)), value_info("y", (2,))],
        [value_info("z", (2, 3))],
        opsets={"": 6},
    )
    net = rlx.onnx.load(model_proto.SerializeToString())
    got = net.run({"x": np.zeros((2, 3), "f4"), "y": [1.0, 2.0]}, device="cpu")["z"]
    assert got.tolist() == [[1.0] * 3, [2.0] * 3]


def test_single_op_model_loads() -> None:
    assert (
        rlx.onnx.load(
            single_op_model("Relu", (2,), out=(2,)).SerializeToString()
        ).missing
        == {}
    )


def test_nodes_may_be_in_any_order() -> None:
    """Nodes may be in any order, and a body sees values computed after its node.

    Converters to float16 leave them so.
    """
    then = helper.make_graph(
        [node("Add", ["h", "one"], ["t"])], "then", [], [value_info("t", None)]
    )
    other = helper.make_graph(
        [node("Neg", ["h"], ["e"])], "else", [], [value_info("e", None)]
    )
    nodes = [
        node("Mul", ["r", "r"], ["y"]),
        node("If", ["yes"], ["r"], then_branch=then, else_branch=other),
        node("Exp", ["x"], ["h"]),
    ]
    weights_of_graph = initializers(yes=np.array(True), one=np.float32(1.0))
    model_proto = make_model(
        nodes, [value_info("x", (3,))], [value_info("y", (3,))], weights_of_graph
    )
    x = np.array([0.5, -1.0, 2.0], np.float32)
    got = rlx.onnx.load(model_proto.SerializeToString()).run({"x": x}, device="cpu")[
        "y"
    ]
    np.testing.assert_allclose(got, (np.exp(x) + 1) ** 2, 1e-6)
