"""Attributes that converters accept, and models that show what a converter must get
right.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, defs

from rlxweb.core.errors import MissingOps, ModelError, ShapeError
from rlxweb.onnx import converter_registry
from rlxweb.onnx.converter_registry import find_converter
from rlxweb.onnx.loading import load
from tests.onnx.model_factory import INT64, initializers, make_model, node, value_info

INT32, UINT32 = TensorProto.INT32, TensorProto.UINT32
OBSOLETE_ATTRIBUTES = {"consumed_inputs"}
"""Attributes of the first versions that mark operands which may be overwritten."""


def test_every_attribute_of_an_op_is_known_to_its_converter() -> None:
    """Every attribute in ONNX's schemas of every version of every op is known to its
    converter.
    """
    unknown_attributes, checked_count = {}, 0
    for schema in defs.get_all_schemas_with_history():
        op, version = schema.name, schema.since_version
        converter = find_converter(op, schema.domain, version)
        if converter is None or converter.attr_names is None or schema.deprecated:
            continue
        checked_count += 1
        unknown = schema.attributes.keys() - converter.attr_names - OBSOLETE_ATTRIBUTES
        if unknown:
            unknown_attributes[op, version] = unknown
    assert checked_count > 300
    assert unknown_attributes == {}


def test_the_manual_lists_all_operators_outside_the_standard() -> None:
    manual = Path(__file__).parents[2] / "site/pages/howto/onnx.md"
    row = re.compile(r"(?m)^\| `([a-z.]+)` \|.*\| (.*) \|$")
    rows = row.findall(manual.read_text("utf-8"))
    listed = [(domain, op) for domain, ops in rows for op in re.findall(r"\w+", ops)]
    refused = ("ai.onnx.ml", "ZipMap")  # has a converter that says what to do
    converter_registry._load_converters()
    outside = {key for key in converter_registry._converters if key[0]} - {refused}
    assert sorted(listed) == sorted(outside)


@pytest.mark.parametrize("op", ["CDist", "DecoderMaskedSelfAttention", "NhwcConv"])
def test_an_operator_of_another_domain_is_refused_with_its_domain(op: str) -> None:
    op_node = node(op, ["x"], ["y"], domain="com.microsoft")
    opsets = {"": 17, "com.microsoft": 1}
    model_proto = make_model(
        [op_node], [value_info("x", (2,))], [value_info("y", (2,))], opsets=opsets
    )
    with pytest.raises(MissingOps) as error:
        run_model(model_proto, x=np.ones(2, np.float32))
    assert "an operator that rlxweb does not support" in str(error.value)
    assert f"com.microsoft.{op} (opset 1), 1 time: node 0" in str(error.value)


def run_model(model_proto: Any, device: str = "cpu", **feeds: Any) -> Any:
    return load(model_proto.SerializeToString()).run(feeds, device=device)["y"]


def power_model(kind: int, x: np.ndarray, weights_of_graph: Any) -> Any:
    inputs = [value_info("x", x.shape, kind)]
    inputs += [] if weights_of_graph else [value_info("e", x.shape, kind)]
    pow_node = node("Pow", ["x", "e"], ["y"])
    return make_model(
        [pow_node], inputs, [value_info("y", x.shape, kind)], weights_of_graph
    )


BASES = (0, 0, 1, 1, 3, 7, 2, 5, 12345, -1, -1, -3, -1, 2, 1, -1)
POWERS = (0, 3, 5, 99, 19, 5, 30, 1, 2, 3, 4, 3, -1, -1, -3, -2)


@pytest.mark.parametrize("kind", [INT64, INT32, UINT32])
@pytest.mark.parametrize("is_known", [True, False])
def test_powers_of_integers_are_exact(kind: int, is_known: bool) -> None:
    dtype = {INT64: np.int64, INT32: np.int32, UINT32: np.uint32}[kind]
    min_value = 0 if kind == UINT32 else -(1 << 31)
    pairs = [
        (b, p) for b, p in zip(BASES, POWERS, strict=True) if min(b, p) >= min_value
    ]
    pairs += [(16_777_217, 1)] + ([(3, 39)] if kind == INT64 else [])
    x, e = (np.array(column, dtype) for column in zip(*pairs, strict=True))
    want = [int(float(b) ** p) if p < 0 else b**p for b, p in pairs]
    model_proto = power_model(kind, x, initializers(e=e) if is_known else ())
    got = run_model(model_proto, x=x) if is_known else run_model(model_proto, x=x, e=e)
    assert (got.dtype, got.tolist()) == (dtype, want)


@pytest.mark.parametrize("shape", [(), (1,), (1, 1, 1)])
def test_square_becomes_a_product_unless_it_broadcasts(
    shape: tuple[int, ...],
) -> None:
    x = np.array([[-3.1, 0.0, 1e30, np.inf, np.nan, 7.7]], np.float32)
    with np.errstate(over="ignore"):
        want = (x * x).reshape(np.broadcast_shapes(x.shape, shape))
    kind = TensorProto.FLOAT
    model_proto = make_model(
        [node("Pow", ["x", "e"], ["y"])],
        [value_info("x", x.shape, kind)],
        [value_info("y", want.shape, kind)],
        initializers(e=np.full(shape, 2, np.float32)),
    )
    np.testing.assert_array_equal(run_model(model_proto, x=x), want)
    ops = {node.op for node in load(model_proto.SerializeToString()).graph.nodes()}
    assert ("mul" in ops, "pow" in ops) == (len(shape) < 3, len(shape) == 3)


@pytest.mark.requires_wgpu
def test_powers_of_integers_are_exact_on_an_adapter() -> None:
    x, e = np.array([-3, 3, 46_341, -1], np.int32), np.array([3, 19, 1, -1], np.int32)
    got = run_model(power_model(INT32, x, ()), "gpu", x=x, e=e)
    assert got.tolist() == [-27, 3**19, 46_341, -1]


@pytest.mark.parametrize("axis", [2, -3])
def test_softmax_axis_outside_the_rank_is_refused(axis: int) -> None:
    model_proto = make_model(
        [node("Softmax", ["x"], ["y"], axis=axis)],
        [value_info("x", (2, 3))],
        [value_info("y", None)],
        opsets={"": 11},
    )
    with pytest.raises(
        ShapeError, match=f"Softmax: axis {axis} is out of range for rank 2"
    ):
        run_model(model_proto, x=np.ones((2, 3), np.float32))


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
def test_unknown_auto_pad_is_refused(op: str) -> None:
    model_proto = make_model(
        [node(op, ["x", "w"], ["y"], auto_pad="SAME")],
        [value_info("x", (1, 1, 4))],
        [value_info("y", None)],
        initializers(w=np.ones((1, 1, 2), np.float32)),
    )
    with pytest.raises(ModelError, match="auto_pad is 'SAME'"):
        run_model(model_proto, x=np.ones((1, 1, 4), np.float32))


def test_attention_needs_both_past_key_and_value() -> None:
    shape = (1, 1, 2, 4)
    model_proto = make_model(
        [node("Attention", ["x", "x", "x", "", "x"], ["y"])],
        [value_info("x", shape)],
        [value_info("y", None)],
        opsets={"": 23},
    )
    with pytest.raises(ModelError, match="past_key is given, but past_value is not"):
        run_model(model_proto, x=np.ones(shape, np.float32))


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ([3, 2], r"parts have sizes \(3, 2\)"),
        ([5, -1], r"\(5, -1\)"),
        (0, "part size is 0"),
    ],
)
def test_split_to_sequence_sizes_cover_the_axis(split: Any, message: str) -> None:
    model_proto = make_model(
        [
            node("SplitToSequence", ["x", "split"], ["parts"]),
            node("SequenceAt", ["parts", "first"], ["y"]),
        ],
        [value_info("x", (4,))],
        [value_info("y", None)],
        initializers(split=np.array(split), first=np.array(0)),
    )
    with pytest.raises(ModelError, match=message):
        run_model(model_proto, x=np.ones(4, np.float32))


def test_noops_become_no_nodes() -> None:
    """Casts to the same type, full slices and identity reshapes, as exporters write
    them, become no nodes.
    """
    model_proto = make_model(
        [
            node("Cast", ["x"], ["a"], to=TensorProto.FLOAT),
            node("Slice", ["a", "from", "to"], ["b"]),
            node("Reshape", ["b", "flat"], ["c"]),
            node("Reshape", ["c", "shape"], ["d"]),
            node("Neg", ["d"], ["y"]),
        ],
        [value_info("x", (2, 3))],
        [value_info("y", (2, 3))],
        initializers(**{"from": [0], "to": [9], "flat": [-1], "shape": [2, 3]}),
    )
    graph = load(model_proto.SerializeToString()).graph
    assert [graph_node.op for graph_node in graph.nodes()] == ["input", "neg"]
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(run_model(model_proto, x=x), -x)
