"""The commands `rlxweb run` and `rlxweb inspect`: their reports about a model and their
output files.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from tests.cli_runners import CommandRunner, check_rejected
from tests.onnx.model_factory import INT64, initializers, make_model, node, value_info

W = np.random.default_rng(5).normal(size=(3, 4)).astype(np.float32)


def store_model(folder: Path) -> Path:
    """Write a model of two inputs, y = x w + shift, and return its path."""
    model_proto = make_model(
        [node("MatMul", ["x", "w"], ["xw"]), node("Add", ["xw", "a=b"], ["y"])],
        [value_info("x", ("batch", 3)), value_info("a=b", (4,))],
        [value_info("y", ("batch", 4))],
        initializers(w=W),
    )
    path = folder / "dense.onnx"
    path.write_bytes(model_proto.SerializeToString())
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return store_model(tmp_path)


@pytest.fixture
def x(tmp_path: Path) -> np.ndarray:
    values = np.random.default_rng(6).normal(size=(5, 3)).astype(np.float32)
    np.save(tmp_path / "x.npy", values)
    np.savez(tmp_path / "in.npz", x=values, **{"a=b": np.ones(4, np.float32)})
    return values


def test_outputs_are_written(path: Path, x: np.ndarray, call: CommandRunner) -> None:
    out = path.with_name("out.npz")
    inputs = f"x={path.parent}/x.npy", "a=b=[0, 1, 2, 3]"
    flags = [part for assignment in inputs for part in ("--input", assignment)]
    result = call("run", path, *flags, "--device", "cpu", "--npz", out)
    assert result.code == 0, result.err
    assert "[5, 4] float32" in result.out
    assert "NumPy" in result.out
    want = x.astype(np.float64) @ W + np.arange(4)
    with np.load(out) as outputs:
        np.testing.assert_allclose(outputs["y"], want, rtol=1e-5, atol=1e-6)


def test_json_has_values_and_engine(
    path: Path, x: np.ndarray, call: CommandRunner
) -> None:
    inputs = path.parent / "in.npz"
    result = call(
        *("run", path, "--inputs", inputs, "--device", "cpu", "--json", "-"),
        *("--repeats", 2),
    )
    record = result.document
    assert record["schema"] == "rlxweb.run/1"
    assert record["engine"].startswith("NumPy")
    assert record["median_ns"] > 0
    (out,) = record["outputs"]
    assert (out["name"], out["shape"], out["dtype"]) == ("y", [5, 4], "float32")
    np.testing.assert_allclose(out["values"], x @ W + 1, rtol=1e-5, atol=1e-6)
    quiet_result = call(
        "run", path, "-i", f"x={inputs}:x", "--inputs", inputs, "--quiet"
    )
    assert (quiet_result.code, quiet_result.out) == (0, "")


def test_inline_values_may_be_longer_than_a_path(
    path: Path, call: CommandRunner
) -> None:
    x = json.dumps([[1.0, 2.0, 3.0]] * 500)
    result = call("run", path, "-i", f"x={x}", "-i", "a=b=[0, 0, 0, 0]", "--json", "-")
    assert result.document["outputs"][0]["shape"] == [500, 4]


def test_a_saved_graph_runs_too(tmp_path: Path, call: CommandRunner) -> None:
    graph = rlx.Graph("double")
    graph.set_outputs([graph.input("x", (2,)) * 2.0])
    graph.save(str(tmp_path / "g.rlxg"), {}, outputs=["y"])
    result = call("run", tmp_path / "g.rlxg", "-i", "x=[1, 2]", "--json", "-")
    assert result.document["outputs"][0]["values"] == [2.0, 4.0]
    check_rejected(call("inspect", tmp_path / "g.rlxg"), 2, "only ONNX models")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((), "'x' was not given"),
        (("-i", "x"), "NAME=FILE"),
        (("-i", "=a"), "NAME=FILE"),
        (("-i", "x=no.npy"), "No such file"),
        (("-i", "x=1", "-i", "x=2"), "twice"),
        (("-i", "q=1", "-i", "x=[[1,2,3]]", "-i", "a=b=[1,2,3,4]"), "no input 'q'"),
        (("-i", "x=[[1,2]]", "-i", "a=b=[1,2,3,4]"), "declares"),
        (("--inputs", "no.npz"), "no.npz"),
        (("--device", "nowhere"), "nowhere"),
    ],
)
def test_bad_calls_are_refused(
    path: Path, call: CommandRunner, flags: tuple[str, ...], message: str
) -> None:
    check_rejected(call("run", path, *flags), 2, message)


def test_non_array_files_are_refused(path: Path, call: CommandRunner) -> None:
    bad = path.with_name("bad.npy")
    bad.write_text("no array")
    check_rejected(call("run", path, "-i", f"x={bad}"), 2, "the file contains no array")
    two = path.with_name("two.npz")
    np.savez(two, a=1, b=2)
    check_rejected(call("run", path, "-i", f"x={two}"), 2, "'a', 'b'")
    check_rejected(call("run", path, "-i", f"x={two}:c"), 2, "has no array 'c'")
    check_rejected(call("run", bad), 2, "not an ONNX model")
    check_rejected(call("run", path, "--npz", path), 2, "dense.onnx")


def test_inspect_describes_a_model(path: Path, call: CommandRunner) -> None:
    result = call("inspect", path, "--dim", "batch=1000", "--device", "cpu")
    assert result.code == 0, result.err
    assert "in   x: [batch, 3] f32" in result.out
    rows = [line.split() for line in result.out.splitlines()]
    assert ["MatMul", "1", "rlxweb"] in rows
    assert "with batch 1000:" in result.out
    assert "--dim" not in result.out
    assert "--dim batch=8" in call("inspect", path, "--device", "cpu").out
    record = call("inspect", path, "--json", "-", "--device", "cpu").document
    assert record["schema"] == "rlxweb.inspect/1"
    assert record["weights_bytes"] == 48
    assert record["missing"] == {}
    sized = record["sized"]
    assert (sized["dims"], sized["params"]) == ({"batch": 1}, 48)
    assert sized["flops"] >= 2 * 3 * 4
    assert sized["candidates"][0]["device"] == "cpu"
    check_rejected(call("inspect", path, "--dim", "bach=1"), 2, "did you mean 'batch'")
    check_rejected(call("inspect", path, "--dim", "batch"), 2, "NAME=SIZE")


def test_missing_ops_are_listed_with_their_nodes(
    tmp_path: Path, call: CommandRunner
) -> None:
    model_proto = make_model(
        [
            node("Own", ["x"], ["a"], domain="some.where", name="first"),
            node("Relu", ["a"], ["b"]),
            node("Own", ["b"], ["y"], domain="some.where"),
        ],
        [value_info("x", (2,))],
        [value_info("y", (2,))],
        opsets={"": 21, "some.where": 1},
    )
    path = tmp_path / "own.onnx"
    path.write_bytes(model_proto.SerializeToString())
    result = call("inspect", path)
    assert result.code == 0
    assert (
        "not supported: some.where.Own (opset 1), at node 0 'first', node 2"
        in result.out
    )
    record = call("inspect", path, "--json", "-").document
    assert record["missing"] == {
        "some.where.Own (opset 1)": ["node 0 'first'", "node 2"]
    }
    assert record["sized"] is None
    assert {entry["op"]: entry["how"] for entry in record["ops"]} == {
        "some.where.Own": "missing",
        "Relu": "rlxweb",
    }
    check_rejected(call("run", path, "-i", "x=[1, 2]"), 4, "some.where.Own")


def test_model_without_any_computation(tmp_path: Path, call: CommandRunner) -> None:
    model_proto = make_model(
        [node("Shape", ["x"], ["y"])],
        [value_info("x", ("n", 2))],
        [value_info("y", (2,), INT64)],
    )
    path = tmp_path / "shape.onnx"
    path.write_bytes(model_proto.SerializeToString())
    result = call("run", path, "-i", "x=[[1, 2], [3, 4], [5, 6]]", "--json", "-")
    assert json.loads(result.out)["outputs"][0]["values"] == [3, 2]
    assert call("inspect", path).code == 0


def test_inspect_reports_an_invalid_binding(
    tmp_path: Path, call: CommandRunner
) -> None:
    model_proto = make_model(
        [node("Add", ["x", "w"], ["y"])],
        [value_info("x", ("n",))],
        [value_info("y", ("n",))],
        initializers(w=np.ones(3, np.float32)),
    )
    path = tmp_path / "three.onnx"
    path.write_bytes(model_proto.SerializeToString())
    result: Any = call("inspect", path, "--dim", "n=2")
    assert result.code == 0
    assert "the model cannot be converted" in result.out
    assert "cannot broadcast" in result.out
