"""Weights that are not what they say, and data beside a model that lies elsewhere."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import (
    AttributeProto,
    SparseTensorProto,
    StringStringEntryProto,
    TensorProto,
    numpy_helper,
)

from rlxweb.errors import ModelError, NotFinite, ShapeError
from rlxweb.onnx.loading import load
from tests.onnx.made import FLOAT, INT64, model, node, value, weights


def held(tensor: Any) -> bytes:
    """A model with one weight as it is given."""
    made = model(
        [node("Add", ["x", "w"], ["y"])], [value("x", (2,))], [value("y", None)]
    )
    made.graph.initializer.append(tensor)
    return made.SerializeToString()


def raw(dims: Any, content: bytes, kind: int = FLOAT) -> Any:
    return TensorProto(name="w", data_type=kind, dims=dims, raw_data=content)


@pytest.mark.parametrize(
    ("tensor", "says"),
    [
        (raw((2,), b"\0" * 4), "the model holds 4 bytes"),
        (raw((2,), b"\0" * 12), "the model holds 12 bytes"),
        (raw((1 << 31,), b"\0" * 4), "8,589,934,592 bytes"),
        (raw((1 << 40, 1 << 40), b""), "the model holds 0 bytes"),
        (raw((-2,), b"\0" * 8), "no dimension is < 0"),
        (raw((2,), b"\0" * 8, 77), "element type 77"),
        (raw((2,), b"\0" * 8, 0), "element type 0"),
        (TensorProto(name="w", data_type=FLOAT, dims=[3], float_data=[1.0]), "holds 1"),
        (TensorProto(name="w", data_type=INT64, dims=[1 << 50]), "holds 0"),
        (TensorProto(name="w", data_type=FLOAT, dims=[2]), "holds 0"),
        (raw([1] * 9, b"\0" * 4), "rank 9"),
    ],
)
def test_a_weight_that_is_not_what_it_says_is_refused(tensor: Any, says: str) -> None:
    """A weight that is not what it says is refused, and no memory reserved for it."""
    tracemalloc.start()
    try:
        with pytest.raises((ModelError, ShapeError), match=says):
            load(held(tensor)).run({"x": np.ones(2, np.float32)}, device="cpu")
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("dims", [(1 << 31,), (1 << 40, 1 << 40), (-4,)])
def test_a_sparse_constant_claims_no_more_than_a_constant_has(dims: Any) -> None:
    one = numpy_helper.from_array(np.ones(1, np.float32), "one")
    at = numpy_helper.from_array(np.array([3]), "at")
    constant = node("Constant", [], ["c"])
    sparse = SparseTensorProto(values=one, indices=at, dims=dims)
    constant.attribute.append(
        AttributeProto(name="sparse_value", type=11, sparse_tensor=sparse)
    )
    made = model(
        [constant, node("Add", ["x", "c"], ["y"])],
        [value("x", (1,))],
        [value("y", None)],
    )
    with pytest.raises(ModelError, match="sparse tensor 'one'"):
        load(made.SerializeToString())


def beside(folder: Path, **said: str) -> Path:
    """A model in a folder whose weight lies in a file."""
    tensor = TensorProto(name="w", data_type=FLOAT, dims=[2])
    tensor.data_location = TensorProto.EXTERNAL
    del tensor.external_data[:]
    for key, text in said.items():
        tensor.external_data.append(StringStringEntryProto(key=key, value=text))
    path = folder / "model.onnx"
    path.write_bytes(held(tensor))
    return path


def put_right_data(folder: Path) -> None:
    (folder / "w.bin").write_bytes(np.array([1, 2, 3, 4], np.float32).tobytes())


def test_external_data_is_read_where_it_lies(tmp_path: Path) -> None:
    put_right_data(tmp_path)
    path = beside(tmp_path, location="w.bin", offset="4", length="8")
    with load(path) as made:
        got = made.run({"x": np.ones(2, np.float32)}, device="cpu")["y"]
        assert got.tolist() == [3.0, 4.0]
        assert isinstance(made.params["w"], np.memmap)


@pytest.mark.parametrize(
    ("said", "says"),
    [
        ({"location": "/etc/passwd"}, "own folder"),
        ({"location": "../w.bin"}, "own folder"),
        ({"location": "inner/../../w.bin"}, "own folder"),
        ({"location": ""}, "own folder"),
        ({"location": "C:\\w.bin"}, "own folder"),
        ({"location": "\\\\host\\share\\w.bin"}, "own folder"),
        ({"location": "\0"}, "own folder"),
        ({"location": "pipe"}, "not a regular file"),
        ({"location": "null"}, "not a regular file"),
        ({"location": "gone.bin"}, "not there"),
        ({"location": "x" * 300}, "not there"),
        ({"location": "."}, "folder"),
        ({"location": "w.bin", "offset": "12"}, "the file has 16"),
        ({"location": "w.bin", "offset": "-4"}, "offset"),
        ({"location": "w.bin", "offset": "0x10"}, "offset"),
        ({"location": "w.bin", "offset": "9" * 30}, "offset"),
        ({"location": "w.bin", "length": "4"}, "said to have 4"),
        ({"location": "w.bin", "length": "4000000000"}, "said to have 4,000,000,000"),
    ],
)
def test_hostile_external_data_is_refused(
    tmp_path: Path, said: dict[str, str], says: str
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "w.bin").write_bytes(b"\0" * 16)
    put_right_data(folder)
    os.mkfifo(folder / "pipe")
    os.symlink("/dev/null", folder / "null")
    with pytest.raises(ModelError, match=says):
        load(beside(folder, **said))


def test_a_name_that_is_no_text_is_refused(tmp_path: Path) -> None:
    put_right_data(tmp_path)
    path = beside(tmp_path, location="w.bin", offset="4", length="8")
    path.write_bytes(path.read_bytes().replace(b"w.bin", b"w\xff\xfein"))
    with pytest.raises(ModelError, match="own folder"):
        load(path)


def test_a_link_to_external_data_is_followed(tmp_path: Path) -> None:
    """A link to where external data lies is followed.

    Caches of models and git-annex keep files so.
    """
    put_right_data(tmp_path)
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "link.bin").symlink_to("../w.bin")
    with load(beside(folder, location="link.bin", length="8")) as made:
        assert made.params["w"].tolist() == [1.0, 2.0]


def test_a_model_that_is_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.onnx")
    with pytest.raises(ModelError, match="not a regular file"):
        load(tmp_path / "pipe.onnx")


def test_external_data_of_bytes_has_no_folder(tmp_path: Path) -> None:
    path = beside(tmp_path, location="w.bin")
    with pytest.raises(ModelError, match="load it by its path"):
        load(path.read_bytes())


def test_weights_that_are_nan_are_refused() -> None:
    bad = np.array([1.0, np.nan], np.float32)
    made = model(
        [node("Add", ["x", "w"], ["y"])],
        [value("x", (2,))],
        [value("y", (2,))],
        weights(w=bad),
    )
    with pytest.raises(NotFinite, match="'w' \\[2\\] holds NaN; 1 of 2 numbers"):
        load(made.SerializeToString()).run({"x": np.ones(2, "f4")}, device="cpu")
