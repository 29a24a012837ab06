"""Tensor operators with NumPy arrays and scalars, and refused uses of a tensor in
Python statements.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from inspect import signature
from typing import Any

import numpy as np
import pytest

from rlxweb import Graph, Session, Tensor
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
from rlxweb.ir.op import registry
from tests.engines_under_test import Array

X = np.array([[0.5, -1.5, 2.0], [3.0, 0.25, -4.0]], np.float32)
ARRAY = np.array([2.0, 0.5, 4.0], np.float32)
ARITHMETIC = (operator.add, operator.sub, operator.mul, operator.truediv, operator.lt)


def run_expression(build: Callable[[Tensor], Tensor]) -> Array:
    """Return the output of a graph of one expression over X."""
    graph = Graph()
    graph.set_outputs([build(graph.input("x", X.shape))])
    return Session("cpu").compile(graph).run({"x": X})[0]


@pytest.mark.parametrize("operation", ARITHMETIC, ids=lambda how: str(how.__name__))
@pytest.mark.parametrize(
    "operand",
    [
        ARRAY,
        ARRAY.view(np.matrix),
        np.float32(2),
        np.float64(2),
        np.int64(2),
        np.array(3),
    ],
    ids=["array", "matrix", "float32", "float64", "int64", "0-d"],
)
def test_numpy_arrays_and_scalars_work_on_either_side(
    operation: Any, operand: Any
) -> None:
    """NumPy's arrays become constants and make no array of tensors."""
    plain = np.asarray(operand)
    with np.errstate(all="ignore"):
        right, left = operation(X, plain), operation(plain, X)
    np.testing.assert_allclose(
        run_expression(lambda t: operation(t, operand)), right, rtol=1e-6
    )
    np.testing.assert_allclose(
        run_expression(lambda t: operation(operand, t)), left, rtol=1e-6
    )


def test_matmul_takes_an_array_on_either_side() -> None:
    """Either side of `@` may be an array when the other is a tensor."""
    w = np.arange(6, dtype=np.float32).reshape(3, 2)
    np.testing.assert_allclose(run_expression(lambda t: t @ w), X @ w)
    np.testing.assert_allclose(run_expression(lambda t: w @ t), w @ X)


def test_an_array_of_another_type_is_not_narrowed() -> None:
    """An array of an explicit dtype is refused as a tensor of it would be; lists, and
    arrays of NumPy's default dtypes, take the tensor's.
    """
    x = Graph().input("x", (3,))
    with pytest.raises(DTypeError, match="f16 and f32"):
        np.ones(3, np.float16) + x
    row = [1, 2, 3]
    for values in (row, np.array(row, np.int64), np.array(row, np.float64)):
        np.testing.assert_array_equal(
            run_expression(lambda t, y=values: t + y), X + row
        )
    with pytest.raises(DTypeError, match="cannot be represented as i32"):
        Graph().input("i", (3,), "i32") + np.array([0.5, 1, 2])


def test_operators_of_integers_and_booleans() -> None:
    """Operators of integers and booleans are NumPy's, with a tensor on either side."""
    i = np.array([-7, 3, 12], np.int32)
    graph = Graph()
    t = graph.input("i", 3, "i32")
    functions: list[Callable[[Any], Any]] = [
        *(lambda v: v // 2, lambda v: 100 // v, lambda v: v % 5, lambda v: 7 % v),
        *(lambda v: v & 6, lambda v: 6 | v, lambda v: v ^ 5, lambda v: ~v),
        *(lambda v: v << 2, lambda v: v >> 1, lambda v: (v > 0) & ~(v > 3)),
    ]
    selected = [
        graph.where(t > 0, 1.0, 0.0),
        graph.where(t > 0, 1, 0),
        graph.clip(t, 0, 9),
    ]
    graph.set_outputs([*(function(t) for function in functions), *selected])
    got = evaluate(graph, {"i": i})
    want = [function(i) for function in functions]
    want += [np.where(i > 0, 1.0, 0.0), np.where(i > 0, 1, 0), np.clip(i, 0, 9)]
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)
    assert [str(m.dtype) for m in selected] == ["f32", "i32", "i32"]


VALUE_USES: dict[str, tuple[Callable[[Any], object], str]] = {
    "for": (lambda t: [v for v in t], r"t\[i\] for i in range\(3\)"),
    "unpacked": (lambda t: (lambda a, b, c: a)(*t), "no values until the graph runs"),
    "len": (len, r"t\.shape, which is \(3,\)"),
    "if": (bool, r"use graph\.where"),
    "in": (lambda t: 1.0 in t, r"use|graph\.eq"),
    "==": (lambda t: t == 1.0, r"t\.eq\(value\)"),
    "!=": (lambda t: t != ARRAY, r"t\.eq\(value\) or t\.ne"),
    "array ==": (lambda t: ARRAY == t, "ndarray"),
    "asarray": (np.asarray, "the array that run"),
    "array of a list": (lambda t: np.array([t, t]), "the array that run"),
    "stack": (lambda t: np.stack([t]), r"np\.stack .*graph\.stack"),
    "np.mean": (np.mean, r"np\.mean .*graph\.mean"),
    "np.dot": (lambda t: np.dot(ARRAY, t), r"graph\.dot"),
    "np.median": (np.median, "methods of the graph"),
}


@pytest.mark.parametrize("case", VALUE_USES)
def test_uses_that_need_values_are_refused_with_advice(case: str) -> None:
    """The error names the tensor and what to write instead."""
    use, words = VALUE_USES[case]
    with pytest.raises(UsageError, match=rf"(?s){words}") as error:
        use(Graph().input("x", (3,)))
    assert "Tensor(%0 [3] f32)" in str(error.value)


@pytest.mark.parametrize("use", [np.exp, lambda t: np.add(ARRAY, t)])
def test_ufuncs_are_refused(use: Callable[[Any], object]) -> None:
    """NumPy's ufuncs refuse tensors and make no object array."""
    with pytest.raises(TypeError, match="'Tensor' does not support ufuncs"):
        use(Graph().input("x", (3,)))


def test_tensors_compare_by_identity() -> None:
    """`==` between tensors asks for identity, so that they can be found and hashed."""
    x = Graph().input("x", (3,))
    assert x == x
    assert x != x + 1
    assert x in [x + 1, x]
    assert {x: "x"}[x] == "x"


@pytest.mark.parametrize("key", [0.5, "a", True, {0}, slice(0.5, 2), slice(0, 2, 0)])
def test_an_index_is_an_integer_or_a_slice(key: Any) -> None:
    """Other indices are refused with an error that names the tensor."""
    x = Graph().input("x", (3,))
    with pytest.raises(ShapeError, match=r"^Tensor\(%0 \[3\] f32\): "):
        x[key]


INVALID_ARGUMENTS: dict[
    str, tuple[Callable[[Graph, Tensor], Any], type[RlxError], str]
] = {
    "axis 0.0": (lambda g, x: g.softmax(x, axis=0.0), AttributeRefused, "axis=0.0"),
    "axis True": (lambda g, x: g.cumsum(x, axis=True), AttributeRefused, "axis=True"),
    "axis np.True_": (
        lambda g, x: g.cumsum(x, np.True_),
        AttributeRefused,
        "an integer",
    ),
    "axes text": (lambda g, x: g.sum(x, axes="0"), AttributeRefused, "axes='0'"),
    "axes of floats": (
        lambda g, x: g.sum(x, axes=np.array([0.0])),
        AttributeRefused,
        "expected an integer or a sequence of integers",
    ),
    "keep_dim 1": (
        lambda g, x: g.sum(x, keep_dim=1),
        AttributeRefused,
        "True or False",
    ),
    "eps text": (
        lambda g, x: g.rms_norm(x, x, x, eps="1e-5"),
        AttributeRefused,
        "expected a number",
    ),
    "eps True": (lambda g, x: g.rms_norm(x, x, x, eps=True), AttributeRefused, "True"),
    "shape of floats": (lambda g, x: g.reshape(x, (3.0,)), AttributeRefused, "3.0"),
    "no shape": (lambda g, x: g.reshape(x, None), AttributeRefused, "shape=None"),
    "a long array": (
        lambda g, x: g.softmax(x, axis=[*range(9000)]),
        AttributeRefused,
        r"^.{,130}… \(list\) is invalid",
    ),
    "input of text": (
        lambda g, x: g.input("y", "ab"),
        ShapeError,
        "input 'y' of graph",
    ),
    "input of float": (lambda g, x: g.input("y", 3.0), ShapeError, "integers, got 3.0"),
    "input of nothing": (lambda g, x: g.input("y", None), ShapeError, "got None"),
    "input of bool": (lambda g, x: g.input("y", (True,)), ShapeError, "got True"),
    "dtype": (lambda g, x: g.param("w", 3, "f99"), DTypeError, "param 'w' of graph"),
    "complex": (lambda g, x: g.constant(1j), DTypeError, "constant of graph 'graph'"),
    "no list": (lambda g, x: g.concat(x), GraphError, "got a rlxweb.Tensor"),
    "one output": (lambda g, x: g.set_outputs(x), GraphError, r"set_outputs\(\[t\]\)"),
    "no op": (lambda g, x: g.apply(None, x), UnknownOp, "op None"),
    "an array for an op": (
        lambda g, x: g.apply(ARRAY, x),
        UnknownOp,
        "the op is not registered",
    ),
    "an array alone": (
        lambda g, x: g.relu(X),
        GraphError,
        "not a tensor of this graph",
    ),
    "no bins": (lambda g, x: g.fftfreq(0), ShapeError, "n is 0; n must be >= 1"),
    "half a bin": (
        lambda g, x: g.rfftfreq(2.5),
        AttributeRefused,
        "rfftfreq: attribute n=2.5",
    ),
}


@pytest.mark.parametrize("case", INVALID_ARGUMENTS)
def test_a_bad_argument_is_named(case: str) -> None:
    """The error names the op, the argument and the expected value, without Python's
    traceback.
    """
    build, error, words = INVALID_ARGUMENTS[case]
    graph = Graph()
    with pytest.raises(error, match=words):
        build(graph, graph.input("x", (3,)))


def test_numpy_integers_are_accepted() -> None:
    """NumPy scalars and arrays serve where one or several integers are expected."""
    graph = Graph()
    x = graph.input("x", np.array([2, 3]))
    assert graph.input("row", np.int32(5)).shape == (5,)
    assert graph.sum(x, axes=np.array([0, 1])).shape == ()
    assert graph.softmax(x, axis=np.int8(-1)).shape == (2, 3)
    assert graph.sum(x, axes=np.array(1)).shape == (2,)
    assert graph.reshape(x, np.int64(6)).shape == (6,)
    assert graph.reshape(x, np.array([3, 2])).shape == x.reshape([3, 2]).shape == (3, 2)
    assert graph.transpose(x, np.array([1, 0])).shape == x.transpose((1, 0)).shape
    assert x[np.uint8(1)].shape == (3,)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "got None; expected a Graph"),
        (Graph, r"create an instance: Graph\(\)"),
        ([Graph()], "got a list"),
        (ARRAY, "got a numpy.ndarray"),
        (Graph().input("x", 3), r"pass t\.graph"),
    ],
)
def test_only_a_graph_is_compiled(value: Any, words: str) -> None:
    """The error names the object that was given instead of a graph."""
    with pytest.raises(VerifyError, match=words):
        Session("cpu").compile(value)


ANNOTATED_KINDS = ("int", "float", "bool", "str", "Axes", "SpatialSizes")


@pytest.mark.parametrize("name", sorted(Graph.BUILDS & registry.graph_methods.keys()))
def test_every_argument_of_a_method_is_checked(name: str) -> None:
    """An argument of a wrong type is refused by its name before anything is added."""
    graph = Graph()
    for parameter in signature(registry.graph_methods[name]).parameters.values():
        if str(parameter.annotation).removesuffix(" | None") not in ANNOTATED_KINDS:
            continue
        with pytest.raises(
            AttributeRefused, match=f"^{name}: attribute {parameter.name}=.* is invalid"
        ):
            getattr(graph, name)(**{parameter.name: object()})
    assert not graph.nodes()


@pytest.mark.parametrize("axes", ["a", 1.5, (0.5,), True, (None,)], ids=repr)
@pytest.mark.parametrize(
    "name", ["var", "std", "norm", "logsumexp", "any", "all", "sum", "mean"]
)
def test_axes_are_integers(name: str, axes: Any) -> None:
    """Axes that are no integers are refused rather than taken for none."""
    graph = Graph()
    x = graph.input("x", (2, 3))
    with pytest.raises(AttributeRefused, match=f"{name} of .*attribute axes="):
        getattr(graph, name)(x, axes=axes)
    assert getattr(graph, name)(x, axes=iter((0, 1))).shape == ()


@pytest.mark.parametrize("eps", [-1.0, float("nan"), float("inf")])
def test_every_normalization_refuses_an_eps_below_0(eps: float) -> None:
    graph = Graph()
    x, channels = graph.input("x", (2, 3)), graph.input("channels", (3,))
    calls: dict[str, tuple[Any, ...]] = {
        "layer_norm": (x,),
        "rms_norm": (x,),
        "inv_std": (x,),
        "normalize": (x,),
        "instance_norm": (x,),
        "group_norm": (x, 3),
        "batch_norm": (x, channels, channels),
    }
    for name, arguments in calls.items():
        with pytest.raises(AttributeRefused, match=f"^{name} of .*eps must be >= 0"):
            getattr(graph, name)(*arguments, eps=eps)


def test_arguments_of_an_op_are_named_with_its_method() -> None:
    """A missing operand or attribute, or an unknown one, names the method."""
    graph = Graph()
    x = graph.input("x", (2, 3))
    for call, problem in (
        (lambda: graph.add(x), "missing a required argument: 'y'"),
        (lambda: graph.bitcast(x), "missing a required argument: 'to'"),
        (lambda: graph.relu(x, slope=1), "unexpected keyword argument 'slope'"),
    ):
        with pytest.raises(TypeError, match=rf"^Graph\.\w+\(\) .*{problem}"):
            call()
    assert str(graph.bitcast(x, "i32").dtype) == "i32"
