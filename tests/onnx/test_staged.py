"""Models whose shapes depend on what they compute: small detectors, by ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import helper

from rlxweb.errors import SessionClosed, Unsupported
from rlxweb.onnx.loading import load
from tests.command_line import Call
from tests.onnx.made import BOOL, INT64, model, node, value, weights

NONE = helper.make_tensor("none", INT64, [1], [0])
SIDE = 48
"""Images of more elements than an input that decides may have."""


def drawn(rng: np.random.Generator, *shape: int) -> Any:
    return rng.normal(size=shape).astype(np.float32) * 0.4


def head(rng: np.random.Generator) -> tuple[list[Any], list[Any]]:
    """Boxes [1, n, 4] and scores [1, 2, n] of an image, a place of a grid each."""
    grid = SIDE // 4
    ys, xs = np.mgrid[0:grid, 0:grid].reshape(2, -1) * 4.0
    anchors = np.stack([ys, xs, ys + 9, xs + 9], -1)[None].astype(np.float32)
    nodes = [
        node("Conv", ["x", "w1"], ["h1"], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Relu", ["h1"], ["h2"]),
        node("Conv", ["h2", "w2"], ["h3"], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Reshape", ["h3", "flat"], ["rows"]),
        node("Split", ["rows", "parts"], ["moves", "classes"], axis=1),
        node("Transpose", ["moves"], ["shifts"], perm=[0, 2, 1]),
        node("Add", ["shifts", "anchors"], ["boxes"]),
        node("Sigmoid", ["classes"], ["scores"]),
    ]
    held = weights(
        w1=drawn(rng, 8, 3, 3, 3),
        w2=drawn(rng, 6, 8, 3, 3),
        flat=np.int64([1, 6, -1]),
        parts=np.int64([4, 2]),
        anchors=anchors,
        most=np.int64([20]),
        iou=np.float32([0.3]),
        least=np.float32([0.5]),
    )
    return nodes, held


def detector(rng: np.random.Generator) -> Any:
    """A model that ends as exporters of YOLO and SSD do: the kept boxes gathered."""
    nodes, held = head(rng)
    nodes += [
        node(
            "NonMaxSuppression", ["boxes", "scores", "most", "iou", "least"], ["kept"]
        ),
        node("Gather", ["kept", "two"], ["which"], axis=1),
        node("Squeeze", ["boxes", "zero"], ["all"]),
        node("Gather", ["all", "which"], ["found"], axis=0),
        node("GatherND", ["scores", "kept"], ["values"]),
        node("Shape", ["found"], ["size"]),
    ]
    held += weights(two=np.int64(2), zero=np.int64([0]))
    outputs = [
        value("kept", [None, 3], INT64),
        value("found", [None, 4]),
        value("values", [None]),
        value("size", [2], INT64),
    ]
    return model(nodes, [value("x", [1, 3, SIDE, SIDE])], outputs, held)


def proposals(rng: np.random.Generator) -> Any:
    """A detector of two halves: large scores, the best of them, NMS, regions judged."""
    nodes, held = head(rng)
    nodes += [
        node("ReduceMax", ["scores", "one"], ["best"], keepdims=0),
        node("Squeeze", ["best", "zero"], ["line"]),
        node("Greater", ["line", "half"], ["is_some"]),
        node("NonZero", ["is_some"], ["places"]),
        node("Squeeze", ["places", "zero"], ["at"]),
        node("Squeeze", ["boxes", "zero"], ["all"]),
        node("Gather", ["all", "at"], ["some"], axis=0),
        node("Gather", ["line", "at"], ["rank"], axis=0),
        # min(9, how many there are), as exporters write it
        node("Shape", ["rank"], ["count"]),
        node("Concat", ["count", "nine"], ["both"], axis=0),
        node("ReduceMin", ["both"], ["k"], keepdims=1),
        node("TopK", ["rank", "k"], ["top", "order"], axis=0),
        node("Gather", ["some", "order"], ["first"], axis=0),
        node("Unsqueeze", ["first", "zero"], ["boxes2"]),
        node("Unsqueeze", ["top", "zero_one"], ["scores2"]),
        node("NonMaxSuppression", ["boxes2", "scores2", "most", "iou"], ["kept"]),
        node("Gather", ["kept", "two"], ["which"], axis=1),
        node("Gather", ["first", "which"], ["found"], axis=0),
        node("Compress", ["line", "is_some"], ["same"], axis=0),
        # the second half: what the network made of each region, judged
        node("Shape", ["which"], ["regions"]),
        node("ConstantOfShape", ["regions"], ["images"], value=NONE),
        node(
            "RoiAlign",
            ["h2", "found", "images"],
            ["pooled"],
            output_height=2,
            output_width=2,
            sampling_ratio=2,
            spatial_scale=0.5,
        ),
        node("Flatten", ["pooled"], ["lines"]),
        node("MatMul", ["lines", "w3"], ["judged"]),
    ]
    held += weights(
        one=np.int64([1]),
        zero=np.int64([0]),
        zero_one=np.int64([0, 1]),
        two=np.int64(2),
        half=np.float32(0.52),
        nine=np.int64([9]),
        w3=drawn(rng, 32, 3),
    )
    outputs = [
        value("found", [None, 4]),
        value("places", [1, None], INT64),
        value("same", [None]),
        value("judged", [None, 3]),
    ]
    return model(nodes, [value("x", [1, 3, SIDE, SIDE])], outputs, held)


def wanted(made: Any, feeds: dict[str, Any]) -> list[Any]:
    session = onnxruntime.InferenceSession(
        made.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    results: list[Any] = session.run(None, feeds)
    return results


@pytest.mark.parametrize("build", [detector, proposals])
def test_detectors_find_what_others_find(build: Any) -> None:
    # With this seed no two scores are so near that rounding decides which is first,
    # and each image has another number of boxes.
    rng = np.random.default_rng(14)
    made = build(rng)
    sizes = set()
    with load(made.SerializeToString()) as ours:
        for scale in (0.1, 1.0, 3.0, 1.0):
            feeds = {"x": drawn(rng, 1, 3, SIDE, SIDE) * np.float32(scale)}
            got = ours.run(feeds, device="cpu")
            want = wanted(made, feeds)
            for one, right in zip(got.values(), want, strict=True):
                assert (one.dtype, one.shape) == (right.dtype, right.shape)
                np.testing.assert_allclose(one, right, rtol=1e-4, atol=1e-4)
            sizes.add(tuple(one.shape for one in got.values()))
        assert len(sizes) > 1  # the images differ in what is found
        with pytest.raises(Unsupported, match="`run` computes it on the way"):
            ours.graph_for(feeds)
    with pytest.raises(SessionClosed):
        ours.run(feeds, device="cpu")


@pytest.mark.requires_wgpu
@pytest.mark.parametrize("build", [detector, proposals])
def test_adapters_find_the_same(build: Any, rng: np.random.Generator) -> None:
    """Places and counts of 64 bits are held in 32: a stage tells how far they lie."""
    ours, x = load(build(rng).SerializeToString()), drawn(rng, 1, 3, SIDE, SIDE)
    want = ours.run({"x": x}, device="cpu")
    for _ in range(2):
        got = ours.run({"x": x}, device="vulkan", strict=True)
        for name, right in want.items():
            assert got[name].dtype == right.dtype
            np.testing.assert_allclose(got[name], right, rtol=1e-4, atol=1e-4)


def test_nothing_is_computed_twice_once_it_is_known(rng: np.random.Generator) -> None:
    """The second run's last stage gets the boxes from its first: it convolves none."""
    ours, x = load(detector(rng).SerializeToString()), drawn(rng, 1, 3, SIDE, SIDE)
    first, second = (ours.run({"x": x}, device="cpu") for _ in range(2))
    np.testing.assert_array_equal(first["found"], second["found"])
    (stages,) = ours._staged_ones.values()
    ops = [{n.op for n in part.graph.nodes()} for part in stages.parts]
    assert ["conv" in one for one in ops] == [True, True, True, False]
    assert "x" not in list(stages.parts)[-1].inputs


def test_nothing_found_is_a_result(rng: np.random.Generator) -> None:
    made = detector(rng)
    x = np.zeros((1, 3, SIDE, SIDE), np.float32)
    got = load(made.SerializeToString()).run({"x": x}, device="cpu")
    assert got["kept"].shape == (0, 3)
    assert got["found"].shape == (0, 4)


def test_a_branch_is_taken_by_what_was_computed() -> None:
    """An `If` on a number that the model computes of a large input."""
    branches = {}
    for name, op in (("then_branch", "Neg"), ("else_branch", "Abs")):
        body = [node(op, ["x"], [name])]
        branches[name] = helper.make_graph(body, name, [], [value(name, None)])
    nodes = [
        node("ReduceSum", ["x"], ["all"], keepdims=0),
        node("Greater", ["all", "none"], ["is_more"]),
        node("If", ["is_more"], ["y"], **branches),
    ]
    outputs = [value("y", [5000]), value("is_more", [], BOOL)]
    held = weights(none=np.float32(0))
    ours = load(model(nodes, [value("x", [5000])], outputs, held).SerializeToString())
    for sign in (1, -1, 1):
        x = np.full(5000, sign, np.float32)
        got = ours.run({"x": x}, device="cpu")
        np.testing.assert_array_equal(got["y"], np.full(5000, -1 if sign > 0 else 1))
        assert got["is_more"] == (sign > 0)


def test_the_command_runs_it_and_tells_its_engine(
    tmp_path: Path, call: Call, rng: np.random.Generator
) -> None:
    file = tmp_path / "detector.onnx"
    file.write_bytes(detector(rng).SerializeToString())
    np.save(tmp_path / "x.npy", drawn(rng, 1, 3, SIDE, SIDE))
    given = f"x={tmp_path}/x.npy"
    said = call("run", file, "--input", given, "--device", "cpu", "--json", "-")
    assert said.record["engine"].startswith("NumPy")
    names = [out["name"] for out in said.record["outputs"]]
    assert names == ["kept", "found", "values", "size"]
