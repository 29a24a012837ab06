"""Invalid and hostile model files: each raises one clear error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

from rlxweb.core.errors import (
    DTypeError,
    MissingOps,
    ModelError,
    RlxError,
    ShapeError,
    Unsupported,
)
from rlxweb.onnx import model_conversion
from rlxweb.onnx.loading import load
from tests.onnx.model_factory import (
    BOOL,
    INT64,
    initializers,
    make_model,
    node,
    single_op_model,
    value_info,
)


def relu_model() -> Any:
    return single_op_model("Relu", (2, 3), out=(2, 3))


def relu_bytes() -> bytes:
    return relu_model().SerializeToString()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 64,
        b"\x89PNG\r\n\x1a\n" + b"\0" * 64,
        b"PK\x03\x04" + b"\0" * 64,
        b"hello, this is some text and no model",
        b"\xff" * 200,
        bytes(range(256)),
    ],
)
def test_non_model_bytes_are_refused(content: bytes) -> None:
    with pytest.raises(ModelError, match="not an ONNX model"):
        load(content)


def test_every_truncation_is_refused() -> None:
    """A truncated file never loads as a smaller model, however many bytes are
    missing.
    """
    content = make_model(
        [node("Add", ["x", "w"], ["s"]), node("Relu", ["s"], ["y"])],
        [value_info("x", (2, 3))],
        [value_info("y", (2, 3))],
        initializers(w=np.ones((2, 3), np.float32)),
    ).SerializeToString()
    output_names, messages = set(), []
    for length in range(len(content)):
        try:
            with load(content[:length]) as loaded:
                # Fields at the end, the opsets, may be cut off cleanly.
                output_names.add(tuple(loaded.outputs))
                loaded.run({"x": np.ones((2, 3), np.float32)}, device="cpu")
        except RlxError as error:
            messages.append(str(error))
    assert len(messages) > len(content) // 2
    assert all(messages)
    assert output_names <= {("y",)}


def modified_model(change: Callable[[Any], object], model_proto: Any = None) -> bytes:
    """Return the bytes of a valid model after a change."""
    model_proto = relu_model() if model_proto is None else model_proto
    change(model_proto)
    return model_proto.SerializeToString()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.ClearField("graph"), "no graph"),
        (lambda m: m.ClearField("ir_version"), "no version"),
        (lambda m: setattr(m, "ir_version", 9999), "ir_version 9999"),
        (lambda m: m.ClearField("opset_import"), "opset"),
        (lambda m: setattr(m.opset_import[0], "version", 0), "opset 0"),
        (lambda m: setattr(m.opset_import[0], "version", 9999), "opset 9999"),
        (
            lambda m: m.opset_import.append(helper.make_opsetid("other", 1 << 40)),
            "opset 1099511627776 of domain 'other'",
        ),
        (lambda m: setattr(m.graph.node[0], "domain", "no.where"), "no.where"),
        (lambda m: setattr(m.graph.node[0], "op_type", "Relux"), "Relux"),
        (lambda m: setattr(m.graph.node[0], "op_type", ""), "Relu|No Op|op_type"),
        (lambda m: m.graph.node[0].input.append("a"), "has input size 2"),
        (lambda m: m.graph.node[0].input.__setitem__(0, "q"), "q"),
        (lambda m: m.graph.output[0].__setattr__("name", "q"), "q"),
        (lambda m: setattr(m.graph.input[0], "name", ""), "name"),
        (
            lambda m: m.graph.node.append(node("Relu", ["y"], ["y"])),
            "SSA|single assignment|y",
        ),
        (
            lambda m: m.graph.node[0].attribute.append(
                helper.make_attribute("alpha", 1.0)
            ),
            "alpha",
        ),
        (
            lambda m: setattr(m.graph.input[0].type.tensor_type, "elem_type", 99),
            "element type 99",
        ),
    ],
)
def test_a_broken_structure_is_refused(
    change: Callable[[Any], object], message: str
) -> None:
    with pytest.raises((ModelError, MissingOps), match=message):
        load(modified_model(change)).run(
            {"a": np.ones((2, 3), np.float32)}, device="cpu"
        )


def test_non_utf8_op_name_is_refused() -> None:
    with pytest.raises(ModelError, match=r"node 0: .* must be UTF-8"):
        load(relu_bytes().replace(b"Relu", b"Re\xff\xfe"))


def test_cyclic_graph_is_refused() -> None:
    circle = make_model(
        [node("Add", ["x", "b"], ["a"]), node("Relu", ["a"], ["b"])],
        [value_info("x", (2,))],
        [value_info("b", (2,))],
    )
    with pytest.raises(ModelError, match=r"topological|sorted"):
        load(circle.SerializeToString())


def test_recursive_functions_are_refused() -> None:
    opset = helper.make_opsetid("own", 1)
    function = helper.make_function(
        "own",
        "Round",
        ["x"],
        ["y"],
        [node("Round", ["x"], ["y"], domain="own")],
        [opset],
    )
    model_proto = make_model(
        [node("Round", ["x"], ["y"], domain="own")],
        [value_info("x", (2,))],
        [value_info("y", (2,))],
        opsets={"": 21, "own": 1},
        functions=[function],
    )
    with pytest.raises(RlxError, match=r"call|recurs|cycl"):
        load(model_proto.SerializeToString()).run(
            {"x": np.ones(2, np.float32)}, device="cpu"
        )


def doubling_functions(levels: int, last_op: str, domain: str = "") -> Any:
    """Return a model whose functions each call the next one twice: 2 ** levels nodes
    once inlined.
    """
    functions = []
    for level in range(levels):
        is_last = level == levels - 1
        called = last_op if is_last else f"F{level + 1}"
        op_domain = domain if is_last else "own"
        functions.append(
            helper.make_function(
                "own",
                f"F{level}",
                ["x"],
                ["y"],
                [
                    node(called, ["x"], ["a"], domain=op_domain),
                    node(called, ["a"], ["y"], domain=op_domain),
                ],
                [
                    helper.make_opsetid(opset_domain, 21)
                    for opset_domain in ("", "own", "no.where")
                ],
            )
        )
    return make_model(
        [node("F0", ["x"], ["y"], domain="own")],
        [value_info("x", (2,))],
        [value_info("y", (2,))],
        opsets={"": 21, "own": 21},
        functions=functions,
    )


def test_exponential_inlining_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_conversion, "MAX_NODES", 2000)
    loaded = load(doubling_functions(40, "Identity").SerializeToString())
    assert loaded.missing == {}
    with pytest.raises(Unsupported, match="the model expands to more than 2,000 nodes"):
        loaded.run({"x": np.ones(2, np.float32)}, device="cpu")
    with pytest.raises(Unsupported, match="the model expands to more than 2,000 nodes"):
        _ = load(doubling_functions(40, "Own", "no.where").SerializeToString()).missing


def encode_field(number: int, content: bytes | int) -> bytes:
    """Encode a protobuf field as bytes, since protobuf would not write a message nested
    too deep.
    """
    if isinstance(content, int):
        return encode_varint(number << 3) + encode_varint(content)
    return encode_varint(number << 3 | 2) + encode_varint(len(content)) + content


def encode_varint(number: int) -> bytes:
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def nested_if_model(depth: int) -> bytes:
    """Return the bytes of a model with If nodes nested to this depth."""
    graph = b""
    for _ in range(depth):
        branch = (
            encode_field(1, b"then_branch")
            + encode_field(6, graph)
            + encode_field(20, 5)
        )
        call = encode_field(2, b"y") + encode_field(4, b"If") + encode_field(5, branch)
        graph = encode_field(1, call) + encode_field(2, b"g")
    return (
        encode_field(1, 10)
        + encode_field(7, graph)
        + encode_field(8, encode_field(2, 21))
    )


@pytest.mark.parametrize("depth", [34, 40, 1000, 5000])
def test_too_deeply_nested_graphs_are_refused(depth: int) -> None:
    with pytest.raises(ModelError, match=r"are nested \d+ deep|not an ONNX model"):
        load(nested_if_model(depth))


def test_missing_paths_and_non_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="No such file"):
        load(tmp_path / "no.onnx")
    with pytest.raises(ModelError, match="folder"):
        load(tmp_path)
    with pytest.raises(ModelError, match="got an int; expected a path"):
        load(3)  # type: ignore[arg-type]
    text = tmp_path / "text"
    text.write_text("x")
    with text.open() as file, pytest.raises(ModelError, match="'rb'"):
        load(file)  # type: ignore[arg-type]


def constant_shape_model(op: str, shape: list[int], **attrs: Any) -> Any:
    """Return a model of one op that a constant shape makes large."""
    return make_model(
        [
            node("Constant", [], ["s"], value_ints=shape),
            node(op, ["s"] if op == "ConstantOfShape" else ["x", "s"], ["y"], **attrs),
        ],
        [value_info("x", (1,))],
        [value_info("y", None)],
    )


@pytest.mark.parametrize(
    ("model_proto", "kind"),
    [
        (constant_shape_model("ConstantOfShape", [1 << 40]), RlxError),
        (constant_shape_model("ConstantOfShape", [1 << 40, 1 << 40]), RlxError),
        (constant_shape_model("ConstantOfShape", [-1]), RlxError),
        (constant_shape_model("Expand", [1 << 40]), RlxError),
        (constant_shape_model("Reshape", [1 << 40]), ShapeError),
        (constant_shape_model("Reshape", [-1, -1]), ShapeError),
        (single_op_model("MatMul", (2, 3), (4, 5), out=None), ShapeError),
        (single_op_model("Add", (2, 3), (4,), out=None), ShapeError),
        (single_op_model("Concat", (2, 3), (4, 5), out=None, axis=1), ShapeError),
        (single_op_model("Transpose", (2, 3), out=None, perm=[0, 0]), RlxError),
        (single_op_model("Softmax", (2, 3), out=None, axis=7), RlxError),
        (single_op_model("Relu", (2, 3), out=(2, 4)), ModelError),
        (single_op_model("Relu", (2, 3), out=(2, 3, 1)), ModelError),
    ],
)
def test_contradicting_or_huge_shapes_are_refused(
    model_proto: Any, kind: type[RlxError]
) -> None:
    """The error names the node; nothing large is allocated for it."""
    feeds = {
        v.name: np.ones([d.dim_value for d in v.type.tensor_type.shape.dim], "f4")
        for v in model_proto.graph.input
    }
    with pytest.raises(kind, match=r"node \d|output 'y'|run|the host is out of memory"):
        load(model_proto.SerializeToString()).run(feeds, device="cpu")


def test_contradicting_dtypes_are_refused() -> None:
    model_proto = make_model(
        [node("Add", ["x", "i"], ["y"])],
        [value_info("x", (2,)), value_info("i", (2,), INT64)],
        [value_info("y", (2,))],
    )
    with pytest.raises(DTypeError, match=r"node 0, Add: add of \[2\] f32, \[2\] i64"):
        load(model_proto.SerializeToString()).run(
            {"x": np.ones(2, np.float32), "i": np.ones(2, np.int64)}, device="cpu"
        )


def test_declared_output_dtype_is_enforced() -> None:
    model_proto = single_op_model("Relu", (2, 3), out=(2, 3))
    model_proto.graph.output[0].type.tensor_type.elem_type = INT64
    with pytest.raises(ModelError, match="the declared type is"):
        load(model_proto.SerializeToString()).run(
            {"a": np.ones((2, 3), "f4")}, device="cpu"
        )


def test_all_missing_ops_are_reported_together() -> None:
    model_proto = make_model(
        [
            node("DictVectorizer", ["x"], ["a"], domain="ai.onnx.ml"),
            node("Relu", ["a"], ["b"], name="mine"),
            node("Own", ["b"], ["c"], domain="some.where", name="last"),
            node("Own", ["c"], ["y"], domain="some.where"),
        ],
        [value_info("x", (2,))],
        [value_info("y", (2,))],
        opsets={"": 21, "ai.onnx.ml": 3, "some.where": 1},
    )
    loaded = load(model_proto.SerializeToString())
    assert set(loaded.missing) == {
        "ai.onnx.ml.DictVectorizer (opset 3)",
        "some.where.Own (opset 1)",
    }
    assert loaded.missing["some.where.Own (opset 1)"] == ("node 2 'last'", "node 3")
    with pytest.raises(MissingOps, match="2 operators that rlxweb") as error:
        loaded.run({"x": np.ones(2, np.float32)}, device="cpu")
    assert error.value.missing == loaded.missing
    assert error.value.exit_code == 4


def test_missing_op_name_cannot_inject_a_line() -> None:
    op = node(
        "Own\nrlxweb: all is well", ["x"], ["y"], domain="some.where", name="a\nb"
    )
    model_proto = make_model(
        [op],
        [value_info("x", (2,))],
        [value_info("y", (2,))],
        opsets={"": 21, "some.where": 1},
    )
    with pytest.raises(
        MissingOps, match="an operator that rlxweb does not support"
    ) as error:
        load(model_proto.SerializeToString()).run({"x": [1.0, 2.0]}, device="cpu")
    (line,) = str(error.value).splitlines()[1:]
    assert r"Own\nrlxweb" in line


def test_unneeded_unknown_op_is_not_missing() -> None:
    model_proto = make_model(
        [
            node("Own", ["x"], ["a"], domain="some.where"),
            node("Relu", ["x"], ["y"]),
        ],
        [value_info("x", (2,))],
        [value_info("y", (2,))],
        opsets={"": 21, "some.where": 1},
    )
    loaded = load(model_proto.SerializeToString())
    assert loaded.missing == {}
    assert loaded.run({"x": [-1.0, 2.0]}, device="cpu")["y"].tolist() == [0.0, 2.0]


def test_endless_loop_is_refused() -> None:
    body = helper.make_graph(
        [node("Identity", ["c"], ["d"]), node("Neg", ["v"], ["w"])],
        "body",
        [value_info("i", (), INT64), value_info("c", (), BOOL), value_info("v", (2,))],
        [value_info("d", (), BOOL), value_info("w", (2,))],
    )
    model_proto = make_model(
        [node("Loop", ["", "", "x"], ["y"], body=body)],
        [value_info("x", (2,))],
        [value_info("y", (2,))],
    )
    with pytest.raises(Unsupported, match="more than 10,000 iterations"):
        load(model_proto.SerializeToString()).run({"x": np.ones(2, "f4")}, device="cpu")
