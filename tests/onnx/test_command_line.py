"""`rlxweb run` and `rlxweb inspect`: what they say of a model, and what they write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from tests.command_line import Call, check_refused
from tests.onnx.made import INT64, model, node, value, weights

W = np.random.default_rng(5).normal(size=(3, 4)).astype(np.float32)


def stored(folder: Path) -> Path:
    """A model of two inputs: y = x w + shift."""
    made = model(
        [node("MatMul", ["x", "w"], ["xw"]), node("Add", ["xw", "a=b"], ["y"])],
        [value("x", ("batch", 3)), value("a=b", (4,))],
        [value("y", ("batch", 4))],
        weights(w=W),
    )
    path = folder / "dense.onnx"
    path.write_bytes(made.SerializeToString())
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return stored(tmp_path)


@pytest.fixture
def x(tmp_path: Path) -> np.ndarray:
    made = np.random.default_rng(6).normal(size=(5, 3)).astype(np.float32)
    np.save(tmp_path / "x.npy", made)
    np.savez(tmp_path / "in.npz", x=made, **{"a=b": np.ones(4, np.float32)})
    return made


def test_outputs_are_written(path: Path, x: np.ndarray, call: Call) -> None:
    out = path.with_name("out.npz")
    given = f"x={path.parent}/x.npy", "a=b=[0, 1, 2, 3]"
    flags = [part for one in given for part in ("--input", one)]
    said = call("run", path, *flags, "--device", "cpu", "--npz", out)
    assert said.code == 0, said.err
    assert "[5, 4] float32" in said.out
    assert "NumPy" in said.out
    want = x.astype(np.float64) @ W + np.arange(4)
    with np.load(out) as found:
        np.testing.assert_allclose(found["y"], want, rtol=1e-5, atol=1e-6)


def test_json_tells_values_and_engine(path: Path, x: np.ndarray, call: Call) -> None:
    inputs = path.parent / "in.npz"
    said = call(
        *("run", path, "--inputs", inputs, "--device", "cpu", "--json", "-"),
        *("--repeats", 2),
    )
    record = said.record
    assert record["schema"] == "rlxweb.run/1"
    assert record["engine"].startswith("NumPy")
    assert record["median_ns"] > 0
    (out,) = record["outputs"]
    assert (out["name"], out["shape"], out["dtype"]) == ("y", [5, 4], "float32")
    np.testing.assert_allclose(out["values"], x @ W + 1, rtol=1e-5, atol=1e-6)
    one = call("run", path, "-i", f"x={inputs}:x", "--inputs", inputs, "--quiet")
    assert (one.code, one.out) == (0, "")


def test_numbers_may_be_longer_than_a_path(path: Path, call: Call) -> None:
    x = json.dumps([[1.0, 2.0, 3.0]] * 500)
    said = call("run", path, "-i", f"x={x}", "-i", "a=b=[0, 0, 0, 0]", "--json", "-")
    assert said.record["outputs"][0]["shape"] == [500, 4]


def test_a_saved_graph_runs_too(tmp_path: Path, call: Call) -> None:
    graph = rlx.Graph("double")
    graph.set_outputs([graph.input("x", (2,)) * 2.0])
    graph.save(str(tmp_path / "g.rlxg"), {}, outputs=["y"])
    said = call("run", tmp_path / "g.rlxg", "-i", "x=[1, 2]", "--json", "-")
    assert said.record["outputs"][0]["values"] == [2.0, 4.0]
    check_refused(call("inspect", tmp_path / "g.rlxg"), 2, "models of ONNX")


@pytest.mark.parametrize(
    ("flags", "says"),
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
    path: Path, call: Call, flags: tuple[str, ...], says: str
) -> None:
    check_refused(call("run", path, *flags), 2, says)


def test_files_that_are_no_arrays_are_refused(path: Path, call: Call) -> None:
    bad = path.with_name("bad.npy")
    bad.write_text("no array")
    check_refused(call("run", path, "-i", f"x={bad}"), 2, "it holds none")
    two = path.with_name("two.npz")
    np.savez(two, a=1, b=2)
    check_refused(call("run", path, "-i", f"x={two}"), 2, "'a', 'b'")
    check_refused(call("run", path, "-i", f"x={two}:c"), 2, "has no 'c'")
    check_refused(call("run", bad), 2, "no model of ONNX")
    check_refused(call("run", path, "--npz", path), 2, "dense.onnx")


def test_a_model_is_looked_into(path: Path, call: Call) -> None:
    said = call("inspect", path, "--dim", "batch=1000", "--device", "cpu")
    assert said.code == 0, said.err
    assert "in   x: [batch, 3] f32" in said.out
    rows = [line.split() for line in said.out.splitlines()]
    assert ["MatMul", "1", "rlxweb"] in rows
    assert "with batch 1000:" in said.out
    assert "--dim" not in said.out
    assert "--dim batch=8" in call("inspect", path, "--device", "cpu").out
    record = call("inspect", path, "--json", "-", "--device", "cpu").record
    assert record["schema"] == "rlxweb.inspect/1"
    assert record["weights_bytes"] == 48
    assert record["missing"] == {}
    sized = record["sized"]
    assert (sized["dims"], sized["params"]) == ({"batch": 1}, 48)
    assert sized["flops"] >= 2 * 3 * 4
    assert sized["candidates"][0]["device"] == "cpu"
    check_refused(call("inspect", path, "--dim", "bach=1"), 2, "did you mean 'batch'")
    check_refused(call("inspect", path, "--dim", "batch"), 2, "NAME=SIZE")


def test_what_is_missing_is_told_with_its_places(tmp_path: Path, call: Call) -> None:
    made = model(
        [
            node("Own", ["x"], ["a"], domain="some.where", name="first"),
            node("Relu", ["a"], ["b"]),
            node("Own", ["b"], ["y"], domain="some.where"),
        ],
        [value("x", (2,))],
        [value("y", (2,))],
        opsets={"": 21, "some.where": 1},
    )
    path = tmp_path / "own.onnx"
    path.write_bytes(made.SerializeToString())
    said = call("inspect", path)
    assert said.code == 0
    assert "missing: some.where.Own (opset 1), at node 0 'first', node 2" in said.out
    record = call("inspect", path, "--json", "-").record
    assert record["missing"] == {
        "some.where.Own (opset 1)": ["node 0 'first'", "node 2"]
    }
    assert record["sized"] is None
    assert {one["op"]: one["how"] for one in record["ops"]} == {
        "some.where.Own": "missing",
        "Relu": "rlxweb",
    }
    check_refused(call("run", path, "-i", "x=[1, 2]"), 4, "some.where.Own")


def test_nothing_is_left_to_compute(tmp_path: Path, call: Call) -> None:
    made = model(
        [node("Shape", ["x"], ["y"])], [value("x", ("n", 2))], [value("y", (2,), INT64)]
    )
    path = tmp_path / "shape.onnx"
    path.write_bytes(made.SerializeToString())
    said = call("run", path, "-i", "x=[[1, 2], [3, 4], [5, 6]]", "--json", "-")
    assert json.loads(said.out)["outputs"][0]["values"] == [3, 2]
    assert call("inspect", path).code == 0


def test_a_binding_that_does_not_fit_is_said(tmp_path: Path, call: Call) -> None:
    made = model(
        [node("Add", ["x", "w"], ["y"])],
        [value("x", ("n",))],
        [value("y", ("n",))],
        weights(w=np.ones(3, np.float32)),
    )
    path = tmp_path / "three.onnx"
    path.write_bytes(made.SerializeToString())
    said: Any = call("inspect", path, "--dim", "n=2")
    assert said.code == 0
    assert "not converted" in said.out
    assert "cannot broadcast" in said.out
