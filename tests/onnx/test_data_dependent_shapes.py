"""Compare small detection models whose shapes depend on computed values with ONNX
Runtime.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

from rlxweb.core.errors import SessionClosed, Unsupported
from rlxweb.onnx.loading import load
from tests.cli_runners import CommandRunner
from tests.onnx.model_factory import (
    BOOL,
    INT64,
    initializers,
    make_model,
    node,
    value_info,
)
from tests.onnx.onnx_runtime import run_onnxruntime

ZERO_TENSOR = helper.make_tensor("none", INT64, [1], [0])
IMAGE_SIZE = 48
"""Side of the images: more elements than an input that determines shapes may have."""


def random_array(rng: np.random.Generator, *shape: int) -> Any:
    return rng.normal(size=shape).astype(np.float32) * 0.4


def detection_head(rng: np.random.Generator) -> tuple[list[Any], list[Any]]:
    """Build nodes for boxes [1, n, 4] and scores [1, 2, n] of an image, one per grid
    cell.
    """
    grid = IMAGE_SIZE // 4
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
    stored_inputs = initializers(
        w1=random_array(rng, 8, 3, 3, 3),
        w2=random_array(rng, 6, 8, 3, 3),
        flat=np.int64([1, 6, -1]),
        parts=np.int64([4, 2]),
        anchors=anchors,
        most=np.int64([20]),
        iou=np.float32([0.3]),
        least=np.float32([0.5]),
    )
    return nodes, stored_inputs


def single_stage_detector(rng: np.random.Generator) -> Any:
    """Build a model that gathers the boxes kept by NMS, as exporters of YOLO and SSD
    do.
    """
    nodes, stored_inputs = detection_head(rng)
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
    stored_inputs += initializers(two=np.int64(2), zero=np.int64([0]))
    outputs = [
        value_info("kept", [None, 3], INT64),
        value_info("found", [None, 4]),
        value_info("values", [None]),
        value_info("size", [2], INT64),
    ]
    return make_model(
        nodes, [value_info("x", [1, 3, IMAGE_SIZE, IMAGE_SIZE])], outputs, stored_inputs
    )


def two_stage_detector(rng: np.random.Generator) -> Any:
    """Build a two-stage detector: threshold, top-k and NMS, then classification of each
    region.
    """
    nodes, stored_inputs = detection_head(rng)
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
        node("ConstantOfShape", ["regions"], ["images"], value=ZERO_TENSOR),
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
    stored_inputs += initializers(
        one=np.int64([1]),
        zero=np.int64([0]),
        zero_one=np.int64([0, 1]),
        two=np.int64(2),
        half=np.float32(0.52),
        nine=np.int64([9]),
        w3=random_array(rng, 32, 3),
    )
    outputs = [
        value_info("found", [None, 4]),
        value_info("places", [1, None], INT64),
        value_info("same", [None]),
        value_info("judged", [None, 3]),
    ]
    return make_model(
        nodes, [value_info("x", [1, 3, IMAGE_SIZE, IMAGE_SIZE])], outputs, stored_inputs
    )


@pytest.mark.parametrize("build", [single_stage_detector, two_stage_detector])
def test_detectors_agree_with_onnxruntime(build: Any) -> None:
    # With this seed no two scores are so near that rounding decides which is first,
    # and each image has another number of boxes.
    rng = np.random.default_rng(14)
    onnx_model = build(rng)
    sizes = set()
    with load(onnx_model.SerializeToString()) as loaded_model:
        for scale in (0.1, 1.0, 3.0, 1.0):
            feeds = {
                "x": random_array(rng, 1, 3, IMAGE_SIZE, IMAGE_SIZE) * np.float32(scale)
            }
            got = loaded_model.run(feeds, device="cpu")
            want = run_onnxruntime(onnx_model.SerializeToString(), feeds)
            for output, expected in zip(got.values(), want, strict=True):
                assert (output.dtype, output.shape) == (expected.dtype, expected.shape)
                np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-4)
            sizes.add(tuple(output.shape for output in got.values()))
        assert len(sizes) > 1  # the images differ in what is found
        with pytest.raises(
            Unsupported, match="use `run`, which first computes the values that"
        ):
            loaded_model.graph_for(feeds)
    with pytest.raises(SessionClosed):
        loaded_model.run(feeds, device="cpu")


@pytest.mark.requires_wgpu
@pytest.mark.parametrize("build", [single_stage_detector, two_stage_detector])
def test_adapters_agree_with_cpu(build: Any, rng: np.random.Generator) -> None:
    """Each stage gives the range of 64-bit indices and counts, which adapters store in
    32 bits.
    """
    loaded_model = load(build(rng).SerializeToString())
    x = random_array(rng, 1, 3, IMAGE_SIZE, IMAGE_SIZE)
    want = loaded_model.run({"x": x}, device="cpu")
    for _ in range(2):
        got = loaded_model.run({"x": x}, device="vulkan", strict=True)
        for name, expected in want.items():
            assert got[name].dtype == expected.dtype
            np.testing.assert_allclose(got[name], expected, rtol=1e-4, atol=1e-4)


def test_second_run_reuses_results_of_first_stage(rng: np.random.Generator) -> None:
    """The second run's last stage takes the boxes from its first stage, without
    convolutions.
    """
    loaded_model = load(single_stage_detector(rng).SerializeToString())
    x = random_array(rng, 1, 3, IMAGE_SIZE, IMAGE_SIZE)
    first, second = (loaded_model.run({"x": x}, device="cpu") for _ in range(2))
    np.testing.assert_array_equal(first["found"], second["found"])
    (stages,) = loaded_model._staged_runs.values()
    ops = [{n.op for n in part.graph.nodes()} for part in stages.converted_models]
    assert ["conv" in stage_ops for stage_ops in ops] == [True, True, True, False]
    assert "x" not in list(stages.converted_models)[-1].inputs


def test_no_detections_give_empty_outputs(rng: np.random.Generator) -> None:
    onnx_model = single_stage_detector(rng)
    x = np.zeros((1, 3, IMAGE_SIZE, IMAGE_SIZE), np.float32)
    got = load(onnx_model.SerializeToString()).run({"x": x}, device="cpu")
    assert got["kept"].shape == (0, 3)
    assert got["found"].shape == (0, 4)


def test_if_branch_depends_on_computed_value() -> None:
    """`If` branches on a number that the model computes from a large input."""
    branches = {}
    for name, op in (("then_branch", "Neg"), ("else_branch", "Abs")):
        body = [node(op, ["x"], [name])]
        branches[name] = helper.make_graph(body, name, [], [value_info(name, None)])
    nodes = [
        node("ReduceSum", ["x"], ["all"], keepdims=0),
        node("Greater", ["all", "none"], ["is_more"]),
        node("If", ["is_more"], ["y"], **branches),
    ]
    outputs = [value_info("y", [5000]), value_info("is_more", [], BOOL)]
    stored_inputs = initializers(none=np.float32(0))
    loaded_model = load(
        make_model(
            nodes, [value_info("x", [5000])], outputs, stored_inputs
        ).SerializeToString()
    )
    for sign in (1, -1, 1):
        x = np.full(5000, sign, np.float32)
        got = loaded_model.run({"x": x}, device="cpu")
        np.testing.assert_array_equal(got["y"], np.full(5000, -1 if sign > 0 else 1))
        assert got["is_more"] == (sign > 0)


def test_run_command_reports_the_engine(
    tmp_path: Path, call: CommandRunner, rng: np.random.Generator
) -> None:
    file = tmp_path / "detector.onnx"
    file.write_bytes(single_stage_detector(rng).SerializeToString())
    np.save(tmp_path / "x.npy", random_array(rng, 1, 3, IMAGE_SIZE, IMAGE_SIZE))
    input_option = f"x={tmp_path}/x.npy"
    result = call(
        "run", file, "--input", input_option, "--device", "cpu", "--json", "-"
    )
    assert result.document["engine"].startswith("NumPy")
    names = [out["name"] for out in result.document["outputs"]]
    assert names == ["kept", "found", "values", "size"]
