"""Graphs: accepted nodes, error messages, and the nodes that operators build."""

from __future__ import annotations

import numpy as np
import pytest

from rlxweb.core.errors import (
    AttributeRefused,
    DTypeError,
    GraphError,
    RlxError,
    ShapeError,
    UnknownOp,
    UsageError,
    VerifyError,
)
from rlxweb.engines.evaluate import evaluate
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Constant, Graph, Node
from rlxweb.ir.op import TensorType
from rlxweb.ir.verify import verify
from rlxweb.runtime.session import Session


def error_text(error: RlxError) -> tuple[str, str]:
    return error.doing, str(error)


def test_an_error_names_the_op_and_its_operands() -> None:
    """An error gives the op, its name and every operand's type, the rule, and a
    hint.
    """
    graph = Graph("net")
    x, y = graph.input("x", (4, 3)), graph.input("y", (2, 3), "i32")
    with pytest.raises(DTypeError) as caught:
        graph.apply("add", x, y, name="residual")
    assert caught.value.doing == "add 'residual' of [4, 3] f32, [2, 3] i32"
    assert "cast the operands to one dtype" in caught.value.hint
    with pytest.raises(ShapeError) as shaped:
        graph.add(x, graph.input("z", (2, 3)))
    assert shaped.value.doing == "add of [4, 3] f32, [2, 3] f32"
    assert "cannot broadcast [4, 3] with [2, 3]" in str(shaped.value)
    assert len(graph) == 3


def test_unknown_ops_come_with_near_matches() -> None:
    """An unknown op name is answered with similar names."""
    graph = Graph()
    with pytest.raises(UnknownOp, match=r"did you mean .*softmax"):
        graph.apply("sofmax", graph.input("x", (3,)))


def test_attributes_are_checked_by_their_record() -> None:
    """Unknown, missing and wrong-kind attributes each have their own message."""
    graph = Graph()
    x = graph.input("x", (4, 3))
    for attrs, words in (
        ({"axes": (0,), "keepdims": True}, "unknown attribute 'keepdims'"),
        ({"axes": "no"}, "attribute axes='no' is invalid; expected an int"),
        (
            {"axes": (0,), "keep_dim": 3},
            "keep_dim=3 is invalid; expected True or False",
        ),
    ):
        with pytest.raises(AttributeRefused, match=words):
            graph.apply("sum", x, **attrs)
    with pytest.raises(AttributeRefused, match="attribute 'to' is required"):
        graph.apply("cast", x)


def test_the_number_of_inputs_is_checked() -> None:
    """Too few and too many operands are refused with the expected number."""
    graph = Graph()
    x = graph.input("x", (4,))
    with pytest.raises(GraphError, match="expected 2 inputs, got 1"):
        graph.apply("add", x)
    with pytest.raises(GraphError, match="expected 1 input, got 2"):
        graph.apply("exp", x, x)


def test_tensors_of_other_graphs_are_refused() -> None:
    """Tensors of other graphs are refused as operands and as outputs."""
    graph, other = Graph("mine"), Graph("other")
    x, y = graph.input("x", (4,)), other.input("y", (4,))
    with pytest.raises(GraphError, match="not a tensor of this graph"):
        graph.add(x, y)
    with pytest.raises(GraphError, match="not a tensor of this graph"):
        graph.set_outputs([y])
    with pytest.raises(GraphError, match="not a tensor of this graph"):
        graph.apply("exp", np.zeros(3))


@pytest.mark.parametrize("name", ["", "x", 3, ["x"], np.array("x"), {}])
def test_input_names_are_distinct_strings(name: object) -> None:
    """Empty, taken and non-text names are refused."""
    graph = Graph()
    graph.input("x", (4,))
    with pytest.raises(
        GraphError, match=r"already used|the name must be a non-empty string"
    ):
        graph.param(name, (4,))  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [np.array(1.0), 3, None])
def test_outputs_are_a_list(value: object) -> None:
    """A scalar array, a number and None are refused as outputs."""
    with pytest.raises(GraphError, match=r"got .*; expected a list"):
        Graph().set_outputs(value)  # type: ignore[arg-type]


def test_a_graph_of_any_size_has_a_short_repr() -> None:
    """The repr gives counts; `str` prints the nodes."""
    graph = Graph("net")
    x = graph.input("x", (4,))
    for _ in range(200):
        x = graph.exp(x)
    graph.set_outputs([x])
    assert repr(graph) == "Graph('net': 201 nodes, 1 output)"
    assert len(str(graph)) > 5000
    assert repr(Session("cpu").compile(graph).plan).startswith("Plan('net': ")


def test_leaves_are_not_added_by_name() -> None:
    """An input without a name could never be fed, nor a constant be checked."""
    with pytest.raises(GraphError, match="cannot be added by op name"):
        Graph().apply("constant", value=np.zeros(3))
    with pytest.raises(GraphError, match="attribute 'name' is required"):
        Graph().apply("input", name="x")


def test_constants_take_the_small_types() -> None:
    """Python numbers become f32 and i32; NumPy arrays keep what they are."""
    graph = Graph()
    assert graph.constant(1.5).dtype is DType.F32
    assert graph.constant([1, 2]).dtype is DType.I32
    assert graph.constant(True).dtype is DType.BOOL
    assert graph.constant(np.float64(2)).dtype is DType.F64
    assert graph.constant(np.arange(2, dtype=np.int64)).dtype is DType.I64
    assert graph.constant([1, 2], "f32").dtype is DType.F32


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (2**31, None),
        (2**31, "i32"),
        (-1, "u32"),
        (1.5, "i32"),
        (2, "bool"),
        (float("nan"), "i32"),
        (1e39, None),
        ([0.0, -1e300], "f32"),
        (70_000, "f16"),
    ],
)
def test_a_constant_never_wraps_or_truncates(value: object, dtype: str | None) -> None:
    """A number that its type cannot hold is refused: no other number, no infinity."""
    with pytest.raises(DTypeError, match=r"cannot be represented as \w+"):
        Graph().constant(value, dtype)  # type: ignore[arg-type]


def test_a_constant_is_a_frozen_copy() -> None:
    """Changing the array afterwards changes nothing."""
    graph = Graph()
    array = np.zeros(3, np.float32)
    constant = graph.node(graph.constant(array).id).attrs["value"]
    array[0] = 5
    assert constant.array[0] == 0
    with pytest.raises(ValueError, match="read-only"):
        constant.array[0] = 1


def test_constants_compare_by_content_and_type() -> None:
    """Equal bytes under another dtype or shape are another constant."""
    zeros = Constant(np.zeros(4, np.float32))
    assert zeros == Constant(np.zeros(4, np.float32))
    assert hash(zeros) == hash(Constant(np.zeros(4, np.float32)))
    for other in (np.zeros(4, np.int32), np.zeros((2, 2), np.float32), -np.zeros(4)):
        assert zeros != Constant(other)


def test_operators_equal_those_of_arrays() -> None:
    """Each operator, with tensors and numbers on either side, against NumPy."""
    x = np.array([[1.5, -2, 3], [0.25, 4, -1]], np.float32)
    y = np.array([2, 0.5, -1], np.float32)
    cases = [
        lambda a, b: a + b,
        lambda a, b: a - 2,
        lambda a, b: 2 - a,
        lambda a, b: a * b / 4,
        lambda a, b: 1 / b,
        lambda a, b: abs(-a),
        lambda a, b: abs(a) ** 2,
        lambda a, b: 2**b,
        lambda a, b: a < b,
        lambda a, b: a >= 1,
        lambda a, b: (
            (a <= b) == (a > b) if isinstance(a, np.ndarray) else ((a <= b).eq(a > b))
        ),
        lambda a, b: a[1],
        lambda a, b: a[:, 1:],
        lambda a, b: a[-1, 0:2],
        lambda a, b: a @ b.reshape(3, 1),
        lambda a, b: a.transpose(1, 0),
        lambda a, b: a.sum(0),
        lambda a, b: a.mean(1),
    ]
    graph = Graph()
    a, b = graph.input("x", x.shape), graph.input("y", y.shape)
    graph.set_outputs([case(a, b) for case in cases])
    for case, got in zip(cases, evaluate(graph, {"x": x, "y": y}), strict=True):
        want = np.asarray(case(x, y))
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-6)


def test_a_tensor_has_no_truth_value() -> None:
    """`if a < b` in a builder is a mistake that must not pass silently."""
    graph = Graph()
    x = graph.input("x", (3,))
    with pytest.raises(UsageError, match=r"use graph\.where"):
        bool(x < 1)


def test_invalid_indices_are_refused() -> None:
    """A step of 0, too many indices and an index out of range are refused."""
    x = Graph().input("x", (4, 3))
    with pytest.raises(ShapeError, match="the slice step is 0"):
        x[::0]
    with pytest.raises(ShapeError, match="3 indices; the tensor has rank 2"):
        x[0, 0, 0]
    with pytest.raises(ShapeError, match=r"index 4 on axis 0 of \[4, 3\]"):
        x[4]


@pytest.mark.parametrize(
    ("value", "dtype"),
    [(0.5, "i32"), (2**31, "i32"), (-1, "u32"), (1j, "f32"), (1e39, "f32")],
)
def test_a_number_beside_a_tensor_must_fit_its_type(value: object, dtype: str) -> None:
    """`ints + 0.5` is refused: nothing is promoted and nothing is truncated."""
    x = Graph().input("x", (3,), dtype)
    with pytest.raises(DTypeError, match=rf"cannot be represented as {dtype}"):
        x + value  # type: ignore[operator]


def test_a_graph_prints_every_node() -> None:
    """One line for each node, with operands, attributes and type, then the outputs."""
    graph = Graph("demo")
    graph.set_outputs([graph.transpose(graph.input("x", (2, 3)), (1, 0))])
    assert str(graph).splitlines() == [
        "graph @demo {",
        "  %0 = input(name=x) 'x' : [2, 3] f32",
        "  %1 = transpose(%0, perm=(1, 0)) : [3, 2] f32",
        "  return %1",
        "}",
    ]


def broken_graph(*nodes: Node, outputs: tuple[int, ...]) -> Graph:
    """Build a graph without the checks of `apply`."""
    graph = Graph("broken")
    graph._state.nodes.extend(nodes)
    graph._state.outputs = outputs
    return graph


VECTOR = TensorType((4,), DType.F32)
X = Node(0, "input", (), {"name": "x"}, VECTOR, "x")


@pytest.mark.parametrize(
    ("graph", "words"),
    [
        (broken_graph(X, outputs=()), "has no outputs"),
        (broken_graph(X, outputs=(3,)), "output %3 is not a node"),
        (
            broken_graph(X, Node(2, "exp", (0,), {}, VECTOR), outputs=(1,)),
            "at position 1",
        ),
        (
            broken_graph(X, Node(1, "exp", (1,), {}, VECTOR), outputs=(1,)),
            "not come before",
        ),
        (
            broken_graph(X, Node(1, "exp", (-1,), {}, VECTOR), outputs=(1,)),
            "not come before",
        ),
        (
            broken_graph(
                X, Node(1, "exp", (0,), {}, TensorType((5,), DType.F32)), outputs=(1,)
            ),
            r"declares \[5\] f32; the shape rule of the op returns \[4\] f32",
        ),
    ],
)
def test_a_broken_graph_is_refused(graph: Graph, words: str) -> None:
    """Order, existence and declared types are checked from zero."""
    with pytest.raises(VerifyError, match=words):
        verify(graph)


def test_verify_checks_ops_and_attributes_again() -> None:
    """An unknown op or attribute that bypassed `apply` is found."""
    with pytest.raises(UnknownOp):
        verify(broken_graph(X, Node(1, "no_such_op", (0,), {}, VECTOR), outputs=(1,)))
    with pytest.raises(AttributeRefused):
        verify(broken_graph(X, Node(1, "exp", (0,), {"q": 1}, VECTOR), outputs=(1,)))


def test_verify_refuses_other_objects_by_type() -> None:
    with pytest.raises(VerifyError, match="got an int; expected a Graph"):
        verify(3)  # type: ignore[arg-type]


def test_a_built_graph_verifies() -> None:
    """The verifier accepts every graph that `apply` accepted."""
    graph = Graph()
    x = graph.input("x", (4, 3))
    graph.set_outputs([graph.softmax(x * 2.0), x.sum()])
    verify(graph)
    assert len(graph.outputs) == 2
