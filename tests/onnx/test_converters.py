"""What converters take, and where a model by itself shows what they must get right."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, defs

from rlxweb.errors import MissingOps, ModelError, ShapeError
from rlxweb.onnx import converters
from rlxweb.onnx.converters import converter_of
from rlxweb.onnx.loading import load
from tests.onnx.made import INT64, model, node, value, weights

INT32, UINT32 = TensorProto.INT32, TensorProto.UINT32
OLD = {"consumed_inputs"}
"""Said where operands may be written over, in the first versions."""


def test_every_attribute_of_an_op_is_known_to_its_converter() -> None:
    """ONNX's own table is asked, of every version of every op."""
    lacking, asked = {}, 0
    for schema in defs.get_all_schemas_with_history():
        op, version = schema.name, schema.since_version
        found = converter_of(op, schema.domain, version)
        if found is None or found.attrs is None or schema.deprecated:
            continue
        asked += 1
        lacks = schema.attributes.keys() - found.attrs - OLD
        if lacks:
            lacking[op, version] = lacks
    assert asked > 300
    assert lacking == {}


def test_the_manual_lists_all_operators_outside_the_standard() -> None:
    manual = Path(__file__).parents[2] / "site/pages/howto/onnx.md"
    row = re.compile(r"(?m)^\| `([a-z.]+)` \|.*\| (.*) \|$")
    rows = row.findall(manual.read_text("utf-8"))
    listed = [(domain, op) for domain, ops in rows for op in re.findall(r"\w+", ops)]
    refused = ("ai.onnx.ml", "ZipMap")  # has a converter that says what to do
    converters._loaded()
    outside = {key for key in converters._table if key[0]} - {refused}
    assert sorted(listed) == sorted(outside)


@pytest.mark.parametrize("op", ["CDist", "DecoderMaskedSelfAttention", "NhwcConv"])
def test_an_operator_of_another_domain_is_refused_with_its_domain(op: str) -> None:
    own = node(op, ["x"], ["y"], domain="com.microsoft")
    opsets = {"": 17, "com.microsoft": 1}
    made = model([own], [value("x", (2,))], [value("y", (2,))], opsets=opsets)
    with pytest.raises(MissingOps) as error:
        ran(made, x=np.ones(2, np.float32))
    assert "an operator that rlxweb does not read" in str(error.value)
    assert f"com.microsoft.{op} (opset 1), 1 time: node 0" in str(error.value)


def ran(made: Any, device: str = "cpu", **feeds: Any) -> Any:
    return load(made.SerializeToString()).run(feeds, device=device)["y"]


def power(kind: int, x: np.ndarray, held: Any) -> Any:
    inputs = [value("x", x.shape, kind)]
    inputs += [] if held else [value("e", x.shape, kind)]
    powers = node("Pow", ["x", "e"], ["y"])
    return model([powers], inputs, [value("y", x.shape, kind)], held)


BASES = (0, 0, 1, 1, 3, 7, 2, 5, 12345, -1, -1, -3, -1, 2, 1, -1)
POWERS = (0, 3, 5, 99, 19, 5, 30, 1, 2, 3, 4, 3, -1, -1, -3, -2)


@pytest.mark.parametrize("kind", [INT64, INT32, UINT32])
@pytest.mark.parametrize("is_known", [True, False])
def test_powers_of_integers_are_exact(kind: int, is_known: bool) -> None:
    dtype = {INT64: np.int64, INT32: np.int32, UINT32: np.uint32}[kind]
    least = 0 if kind == UINT32 else -(1 << 31)
    pairs = [(b, p) for b, p in zip(BASES, POWERS, strict=True) if min(b, p) >= least]
    pairs += [(16_777_217, 1)] + ([(3, 39)] if kind == INT64 else [])
    x, e = (np.array(column, dtype) for column in zip(*pairs, strict=True))
    want = [int(float(b) ** p) if p < 0 else b**p for b, p in pairs]
    made = power(kind, x, weights(e=e) if is_known else ())
    got = ran(made, x=x) if is_known else ran(made, x=x, e=e)
    assert (got.dtype, got.tolist()) == (dtype, want)


@pytest.mark.parametrize("shape", [(), (1,), (1, 1, 1)])
def test_a_square_is_a_product_unless_its_shape_is_another(
    shape: tuple[int, ...],
) -> None:
    x = np.array([[-3.1, 0.0, 1e30, np.inf, np.nan, 7.7]], np.float32)
    with np.errstate(over="ignore"):
        want = (x * x).reshape(np.broadcast_shapes(x.shape, shape))
    kind = TensorProto.FLOAT
    made = model(
        [node("Pow", ["x", "e"], ["y"])],
        [value("x", x.shape, kind)],
        [value("y", want.shape, kind)],
        weights(e=np.full(shape, 2, np.float32)),
    )
    np.testing.assert_array_equal(ran(made, x=x), want)
    ops = {node.op for node in load(made.SerializeToString()).graph.nodes()}
    assert ("mul" in ops, "pow" in ops) == (len(shape) < 3, len(shape) == 3)


@pytest.mark.requires_wgpu
def test_powers_of_integers_are_exact_on_an_adapter() -> None:
    x, e = np.array([-3, 3, 46_341, -1], np.int32), np.array([3, 19, 1, -1], np.int32)
    got = ran(power(INT32, x, ()), "gpu", x=x, e=e)
    assert got.tolist() == [-27, 3**19, 46_341, -1]


@pytest.mark.parametrize("axis", [2, -3])
def test_an_old_softmax_has_an_axis_of_its_operand(axis: int) -> None:
    made = model(
        [node("Softmax", ["x"], ["y"], axis=axis)],
        [value("x", (2, 3))],
        [value("y", None)],
        opsets={"": 11},
    )
    with pytest.raises(ShapeError, match=f"Softmax: axis {axis} is outside rank 2"):
        ran(made, x=np.ones((2, 3), np.float32))


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
def test_padding_that_no_version_knows_is_refused(op: str) -> None:
    made = model(
        [node(op, ["x", "w"], ["y"], auto_pad="SAME")],
        [value("x", (1, 1, 4))],
        [value("y", None)],
        weights(w=np.ones((1, 1, 2), np.float32)),
    )
    with pytest.raises(ModelError, match="auto_pad is 'SAME'"):
        ran(made, x=np.ones((1, 1, 4), np.float32))


def test_attention_has_both_of_its_past_or_none() -> None:
    shape = (1, 1, 2, 4)
    made = model(
        [node("Attention", ["x", "x", "x", "", "x"], ["y"])],
        [value("x", shape)],
        [value("y", None)],
        opsets={"": 23},
    )
    with pytest.raises(ModelError, match="one of past_key and past_value"):
        ran(made, x=np.ones(shape, np.float32))


@pytest.mark.parametrize(
    ("split", "says"),
    [([3, 2], r"parts of \(3, 2\)"), ([5, -1], r"\(5, -1\)"), (0, "parts of 0")],
)
def test_parts_of_a_sequence_are_all_of_the_axis(split: Any, says: str) -> None:
    made = model(
        [
            node("SplitToSequence", ["x", "split"], ["parts"]),
            node("SequenceAt", ["parts", "first"], ["y"]),
        ],
        [value("x", (4,))],
        [value("y", None)],
        weights(split=np.array(split), first=np.array(0)),
    )
    with pytest.raises(ModelError, match=says):
        ran(made, x=np.ones(4, np.float32))


def test_what_changes_nothing_is_no_node() -> None:
    """Casts to the same type, slices of all, shapes of shapes, as exporters write."""
    made = model(
        [
            node("Cast", ["x"], ["a"], to=TensorProto.FLOAT),
            node("Slice", ["a", "from", "to"], ["b"]),
            node("Reshape", ["b", "flat"], ["c"]),
            node("Reshape", ["c", "shape"], ["d"]),
            node("Neg", ["d"], ["y"]),
        ],
        [value("x", (2, 3))],
        [value("y", (2, 3))],
        weights(**{"from": [0], "to": [9], "flat": [-1], "shape": [2, 3]}),
    )
    graph = load(made.SerializeToString()).graph
    assert [one.op for one in graph.nodes()] == ["input", "neg"]
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(ran(made, x=x), -x)
