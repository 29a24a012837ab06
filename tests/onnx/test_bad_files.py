"""Files that are no models, or hostile ones: one clear error each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

from rlxweb.errors import (
    DTypeError,
    MissingOps,
    ModelError,
    RlxError,
    ShapeError,
    Unsupported,
)
from rlxweb.onnx import walk
from rlxweb.onnx.loading import load
from tests.onnx.made import BOOL, INT64, model, node, one, value, weights


def relu() -> Any:
    return one("Relu", (2, 3), out=(2, 3))


def data() -> bytes:
    return relu().SerializeToString()


@pytest.mark.parametrize(
    "given",
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
def test_what_is_no_model_is_refused(given: bytes) -> None:
    with pytest.raises(ModelError, match="no model of ONNX"):
        load(given)


def test_every_truncation_is_refused() -> None:
    """However many bytes are missing, the file never loads as something smaller."""
    whole = model(
        [node("Add", ["x", "w"], ["s"]), node("Relu", ["s"], ["y"])],
        [value("x", (2, 3))],
        [value("y", (2, 3))],
        weights(w=np.ones((2, 3), np.float32)),
    ).SerializeToString()
    outs, said = set(), []
    for length in range(len(whole)):
        try:
            with load(whole[:length]) as cut:
                # Fields at the end, the opsets, may be cut off cleanly.
                outs.add(tuple(cut.outputs))
                cut.run({"x": np.ones((2, 3), np.float32)}, device="cpu")
        except RlxError as error:
            said.append(str(error))
    assert len(said) > len(whole) // 2
    assert all(said)
    assert outs <= {("y",)}


def changed(how: Callable[[Any], object], made: Any = None) -> bytes:
    """A good model's bytes after a change."""
    made = relu() if made is None else made
    how(made)
    return made.SerializeToString()


@pytest.mark.parametrize(
    ("how", "says"),
    [
        (lambda m: m.ClearField("graph"), "no graph"),
        (lambda m: m.ClearField("ir_version"), "no version"),
        (lambda m: setattr(m, "ir_version", 9999), "ir_version 9999"),
        (lambda m: m.ClearField("opset_import"), "opset"),
        (lambda m: setattr(m.opset_import[0], "version", 0), "opset 0"),
        (lambda m: setattr(m.opset_import[0], "version", 9999), "opset 9999"),
        (
            lambda m: m.opset_import.append(helper.make_opsetid("other", 1 << 40)),
            "opset 1099511627776 of 'other'",
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
def test_a_broken_structure_is_refused(how: Callable[[Any], object], says: str) -> None:
    with pytest.raises((ModelError, MissingOps), match=says):
        load(changed(how)).run({"a": np.ones((2, 3), np.float32)}, device="cpu")


def test_an_op_whose_name_is_no_text_is_refused() -> None:
    with pytest.raises(ModelError, match=r"node 0: .* it is no UTF-8"):
        load(data().replace(b"Relu", b"Re\xff\xfe"))


def test_a_circle_is_refused() -> None:
    circle = model(
        [node("Add", ["x", "b"], ["a"]), node("Relu", ["a"], ["b"])],
        [value("x", (2,))],
        [value("b", (2,))],
    )
    with pytest.raises(ModelError, match=r"topological|sorted"):
        load(circle.SerializeToString())


def test_functions_that_call_themselves_are_refused() -> None:
    opset = helper.make_opsetid("own", 1)
    function = helper.make_function(
        "own",
        "Round",
        ["x"],
        ["y"],
        [node("Round", ["x"], ["y"], domain="own")],
        [opset],
    )
    made = model(
        [node("Round", ["x"], ["y"], domain="own")],
        [value("x", (2,))],
        [value("y", (2,))],
        opsets={"": 21, "own": 1},
        functions=[function],
    )
    with pytest.raises(RlxError, match=r"call|recurs|cycl"):
        load(made.SerializeToString()).run({"x": np.ones(2, np.float32)}, device="cpu")


def doubling(levels: int, last: str, domain: str = "") -> Any:
    """Functions that each call the next one twice: 2 ** levels nodes, laid out."""
    functions = []
    for level in range(levels):
        is_last = level == levels - 1
        called = last if is_last else f"F{level + 1}"
        within = domain if is_last else "own"
        functions.append(
            helper.make_function(
                "own",
                f"F{level}",
                ["x"],
                ["y"],
                [
                    node(called, ["x"], ["a"], domain=within),
                    node(called, ["a"], ["y"], domain=within),
                ],
                [helper.make_opsetid(one, 21) for one in ("", "own", "no.where")],
            )
        )
    return model(
        [node("F0", ["x"], ["y"], domain="own")],
        [value("x", (2,))],
        [value("y", (2,))],
        opsets={"": 21, "own": 21},
        functions=functions,
    )


def test_functions_without_end_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "MOST_NODES", 2000)
    loaded = load(doubling(40, "Identity").SerializeToString())
    assert loaded.missing == {}
    with pytest.raises(Unsupported, match="laid out it has more than 2,000 nodes"):
        loaded.run({"x": np.ones(2, np.float32)}, device="cpu")
    with pytest.raises(Unsupported, match="laid out it has more than 2,000 nodes"):
        _ = load(doubling(40, "Own", "no.where").SerializeToString()).missing


def field(number: int, content: bytes | int) -> bytes:
    """A field of a message as bytes: protobuf would not write what is too deep."""
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(number: int) -> bytes:
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def nested(depth: int) -> bytes:
    """A model of an If within an If within an If …"""
    graph = b""
    for _ in range(depth):
        branch = field(1, b"then_branch") + field(6, graph) + field(20, 5)
        call = field(2, b"y") + field(4, b"If") + field(5, branch)
        graph = field(1, call) + field(2, b"g")
    return field(1, 10) + field(7, graph) + field(8, field(2, 21))


@pytest.mark.parametrize("depth", [34, 40, 1000, 5000])
def test_graphs_too_deep_within_each_other_are_refused(depth: int) -> None:
    with pytest.raises(ModelError, match=r"within each other|no model of ONNX"):
        load(nested(depth))


def test_a_path_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="No such file"):
        load(tmp_path / "no.onnx")
    with pytest.raises(ModelError, match="folder"):
        load(tmp_path)
    with pytest.raises(ModelError, match="an int was given"):
        load(3)  # type: ignore[arg-type]
    text = tmp_path / "text"
    text.write_text("x")
    with text.open() as file, pytest.raises(ModelError, match="'rb'"):
        load(file)  # type: ignore[arg-type]


def known(op: str, shape: list[int], **attrs: Any) -> Any:
    """A model of one op that a known shape makes large."""
    return model(
        [
            node("Constant", [], ["s"], value_ints=shape),
            node(op, ["s"] if op == "ConstantOfShape" else ["x", "s"], ["y"], **attrs),
        ],
        [value("x", (1,))],
        [value("y", None)],
    )


@pytest.mark.parametrize(
    ("made", "kind"),
    [
        (known("ConstantOfShape", [1 << 40]), RlxError),
        (known("ConstantOfShape", [1 << 40, 1 << 40]), RlxError),
        (known("ConstantOfShape", [-1]), RlxError),
        (known("Expand", [1 << 40]), RlxError),
        (known("Reshape", [1 << 40]), ShapeError),
        (known("Reshape", [-1, -1]), ShapeError),
        (one("MatMul", (2, 3), (4, 5), out=None), ShapeError),
        (one("Add", (2, 3), (4,), out=None), ShapeError),
        (one("Concat", (2, 3), (4, 5), out=None, axis=1), ShapeError),
        (one("Transpose", (2, 3), out=None, perm=[0, 0]), RlxError),
        (one("Softmax", (2, 3), out=None, axis=7), RlxError),
        (one("Relu", (2, 3), out=(2, 4)), ModelError),
        (one("Relu", (2, 3), out=(2, 3, 1)), ModelError),
    ],
)
def test_shapes_that_contradict_or_nobody_could_hold(
    made: Any, kind: type[RlxError]
) -> None:
    """The error names the node; nothing large is reserved for it."""
    feeds = {
        v.name: np.ones([d.dim_value for d in v.type.tensor_type.shape.dim], "f4")
        for v in made.graph.input
    }
    with pytest.raises(kind, match=r"node \d|output 'y'|run|the host's memory"):
        load(made.SerializeToString()).run(feeds, device="cpu")


def test_types_that_contradict_are_refused() -> None:
    made = model(
        [node("Add", ["x", "i"], ["y"])],
        [value("x", (2,)), value("i", (2,), INT64)],
        [value("y", (2,))],
    )
    with pytest.raises(DTypeError, match=r"node 0, Add: add of \[2\] f32, \[2\] i64"):
        load(made.SerializeToString()).run(
            {"x": np.ones(2, np.float32), "i": np.ones(2, np.int64)}, device="cpu"
        )


def test_a_declared_type_of_an_output_is_held_to() -> None:
    made = one("Relu", (2, 3), out=(2, 3))
    made.graph.output[0].type.tensor_type.elem_type = INT64
    with pytest.raises(ModelError, match="declared as"):
        load(made.SerializeToString()).run({"a": np.ones((2, 3), "f4")}, device="cpu")


def test_all_that_is_missing_is_told_at_once() -> None:
    made = model(
        [
            node("DictVectorizer", ["x"], ["a"], domain="ai.onnx.ml"),
            node("Relu", ["a"], ["b"], name="mine"),
            node("Own", ["b"], ["c"], domain="some.where", name="last"),
            node("Own", ["c"], ["y"], domain="some.where"),
        ],
        [value("x", (2,))],
        [value("y", (2,))],
        opsets={"": 21, "ai.onnx.ml": 3, "some.where": 1},
    )
    loaded = load(made.SerializeToString())
    assert set(loaded.missing) == {
        "ai.onnx.ml.DictVectorizer (opset 3)",
        "some.where.Own (opset 1)",
    }
    assert loaded.missing["some.where.Own (opset 1)"] == ("node 2 'last'", "node 3")
    with pytest.raises(MissingOps, match="2 operators that rlxweb") as error:
        loaded.run({"x": np.ones(2, np.float32)}, device="cpu")
    assert error.value.missing == loaded.missing
    assert error.value.exit_code == 4


def test_the_name_of_an_op_that_is_missing_forges_no_line() -> None:
    op = node(
        "Own\nrlxweb: all is well", ["x"], ["y"], domain="some.where", name="a\nb"
    )
    made = model(
        [op], [value("x", (2,))], [value("y", (2,))], opsets={"": 21, "some.where": 1}
    )
    with pytest.raises(
        MissingOps, match="an operator that rlxweb does not read"
    ) as error:
        load(made.SerializeToString()).run({"x": [1.0, 2.0]}, device="cpu")
    (line,) = str(error.value).splitlines()[1:]
    assert r"Own\nrlxweb" in line


def test_an_op_that_no_output_needs_is_not_missed() -> None:
    made = model(
        [
            node("Own", ["x"], ["a"], domain="some.where"),
            node("Relu", ["x"], ["y"]),
        ],
        [value("x", (2,))],
        [value("y", (2,))],
        opsets={"": 21, "some.where": 1},
    )
    loaded = load(made.SerializeToString())
    assert loaded.missing == {}
    assert loaded.run({"x": [-1.0, 2.0]}, device="cpu")["y"].tolist() == [0.0, 2.0]


def test_a_loop_that_would_not_end_is_refused() -> None:
    body = helper.make_graph(
        [node("Identity", ["c"], ["d"]), node("Neg", ["v"], ["w"])],
        "body",
        [value("i", (), INT64), value("c", (), BOOL), value("v", (2,))],
        [value("d", (), BOOL), value("w", (2,))],
    )
    made = model(
        [node("Loop", ["", "", "x"], ["y"], body=body)],
        [value("x", (2,))],
        [value("y", (2,))],
    )
    with pytest.raises(Unsupported, match="more than 10,000 turns"):
        load(made.SerializeToString()).run({"x": np.ones(2, "f4")}, device="cpu")
