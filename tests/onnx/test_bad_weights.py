"""Weights that contradict their declaration, and external data outside the model's
folder.
"""

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

from rlxweb.core.errors import ModelError, NotFinite, ShapeError
from rlxweb.onnx.loading import load
from tests.onnx.model_factory import (
    FLOAT,
    INT64,
    initializers,
    make_model,
    node,
    value_info,
)


def model_with_weight(tensor: Any) -> bytes:
    """Return the bytes of a model with one weight exactly as given."""
    model_proto = make_model(
        [node("Add", ["x", "w"], ["y"])],
        [value_info("x", (2,))],
        [value_info("y", None)],
    )
    model_proto.graph.initializer.append(tensor)
    return model_proto.SerializeToString()


def raw_tensor(dims: Any, content: bytes, kind: int = FLOAT) -> Any:
    return TensorProto(name="w", data_type=kind, dims=dims, raw_data=content)


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (raw_tensor((2,), b"\0" * 4), "the model contains 4 bytes for this tensor"),
        (raw_tensor((2,), b"\0" * 12), "the model contains 12 bytes for this tensor"),
        (raw_tensor((1 << 31,), b"\0" * 4), "8,589,934,592 bytes"),
        (
            raw_tensor((1 << 40, 1 << 40), b""),
            "the model contains 0 bytes for this tensor",
        ),
        (raw_tensor((-2,), b"\0" * 8), "dimensions must be >= 0"),
        (raw_tensor((2,), b"\0" * 8, 77), "element type 77"),
        (raw_tensor((2,), b"\0" * 8, 0), "element type 0"),
        (
            TensorProto(name="w", data_type=FLOAT, dims=[3], float_data=[1.0]),
            "the model contains 1 for this tensor",
        ),
        (
            TensorProto(name="w", data_type=INT64, dims=[1 << 50]),
            "the model contains 0 for this tensor",
        ),
        (
            TensorProto(name="w", data_type=FLOAT, dims=[2]),
            "the model contains 0 for this tensor",
        ),
        (raw_tensor([1] * 9, b"\0" * 4), "rank is 9"),
    ],
)
def test_contradicting_weight_is_refused(tensor: Any, message: str) -> None:
    """A weight that contradicts its declaration is refused before memory is allocated
    for it.
    """
    tracemalloc.start()
    try:
        with pytest.raises((ModelError, ShapeError), match=message):
            load(model_with_weight(tensor)).run(
                {"x": np.ones(2, np.float32)}, device="cpu"
            )
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("dims", [(1 << 31,), (1 << 40, 1 << 40), (-4,)])
def test_huge_sparse_constant_is_refused(dims: Any) -> None:
    values = numpy_helper.from_array(np.ones(1, np.float32), "one")
    indices = numpy_helper.from_array(np.array([3]), "at")
    constant = node("Constant", [], ["c"])
    sparse = SparseTensorProto(values=values, indices=indices, dims=dims)
    constant.attribute.append(
        AttributeProto(name="sparse_value", type=11, sparse_tensor=sparse)
    )
    model_proto = make_model(
        [constant, node("Add", ["x", "c"], ["y"])],
        [value_info("x", (1,))],
        [value_info("y", None)],
    )
    with pytest.raises(ModelError, match="sparse tensor 'one'"):
        load(model_proto.SerializeToString())


def write_model_with_external_data(folder: Path, **external_data: str) -> Path:
    """Write a model whose weight is in an external file and return its path."""
    tensor = TensorProto(name="w", data_type=FLOAT, dims=[2])
    tensor.data_location = TensorProto.EXTERNAL
    del tensor.external_data[:]
    for key, text in external_data.items():
        tensor.external_data.append(StringStringEntryProto(key=key, value=text))
    path = folder / "model.onnx"
    path.write_bytes(model_with_weight(tensor))
    return path


def write_weight_file(folder: Path) -> None:
    (folder / "w.bin").write_bytes(np.array([1, 2, 3, 4], np.float32).tobytes())


def test_external_data_is_memory_mapped(tmp_path: Path) -> None:
    write_weight_file(tmp_path)
    path = write_model_with_external_data(
        tmp_path, location="w.bin", offset="4", length="8"
    )
    with load(path) as loaded:
        got = loaded.run({"x": np.ones(2, np.float32)}, device="cpu")["y"]
        assert got.tolist() == [3.0, 4.0]
        assert isinstance(loaded.params["w"], np.memmap)


@pytest.mark.parametrize(
    ("external_data", "message"),
    [
        ({"location": "/etc/passwd"}, "in the header's folder"),
        ({"location": "../w.bin"}, "in the header's folder"),
        ({"location": "inner/../../w.bin"}, "in the header's folder"),
        ({"location": ""}, "in the header's folder"),
        ({"location": "C:\\w.bin"}, "in the header's folder"),
        ({"location": "\\\\host\\share\\w.bin"}, "in the header's folder"),
        ({"location": "\0"}, "in the header's folder"),
        ({"location": "pipe"}, "not a regular file"),
        ({"location": "null"}, "not a regular file"),
        ({"location": "gone.bin"}, "does not exist"),
        ({"location": "x" * 300}, "does not exist"),
        ({"location": "."}, "folder"),
        ({"location": "w.bin", "offset": "12"}, "the file has 16"),
        ({"location": "w.bin", "offset": "-4"}, "offset"),
        ({"location": "w.bin", "offset": "0x10"}, "offset"),
        ({"location": "w.bin", "offset": "9" * 30}, "offset"),
        (
            {"location": "w.bin", "length": "4"},
            "the declared length of the external data is 4 bytes",
        ),
        (
            {"location": "w.bin", "length": "4000000000"},
            "the declared length of the external data is 4,000,000,000 bytes",
        ),
    ],
)
def test_hostile_external_data_is_refused(
    tmp_path: Path, external_data: dict[str, str], message: str
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "w.bin").write_bytes(b"\0" * 16)
    write_weight_file(folder)
    os.mkfifo(folder / "pipe")
    os.symlink("/dev/null", folder / "null")
    with pytest.raises(ModelError, match=message):
        load(write_model_with_external_data(folder, **external_data))


def test_non_utf8_external_data_name_is_refused(tmp_path: Path) -> None:
    write_weight_file(tmp_path)
    path = write_model_with_external_data(
        tmp_path, location="w.bin", offset="4", length="8"
    )
    path.write_bytes(path.read_bytes().replace(b"w.bin", b"w\xff\xfein"))
    with pytest.raises(ModelError, match="in the header's folder"):
        load(path)


def test_external_data_symlink_is_followed(tmp_path: Path) -> None:
    """A symbolic link to external data is followed.

    Caches of models and git-annex keep files so.
    """
    write_weight_file(tmp_path)
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "link.bin").symlink_to("../w.bin")
    with load(
        write_model_with_external_data(folder, location="link.bin", length="8")
    ) as loaded:
        assert loaded.params["w"].tolist() == [1.0, 2.0]


def test_model_path_that_is_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.onnx")
    with pytest.raises(ModelError, match="not a regular file"):
        load(tmp_path / "pipe.onnx")


def test_external_data_needs_a_model_path(tmp_path: Path) -> None:
    path = write_model_with_external_data(tmp_path, location="w.bin")
    with pytest.raises(ModelError, match="load the model from its path"):
        load(path.read_bytes())


def test_nan_weights_are_refused() -> None:
    bad = np.array([1.0, np.nan], np.float32)
    model_proto = make_model(
        [node("Add", ["x", "w"], ["y"])],
        [value_info("x", (2,))],
        [value_info("y", (2,))],
        initializers(w=bad),
    )
    with pytest.raises(NotFinite, match="'w' \\[2\\] contains NaN; 1 of 2 elements"):
        load(model_proto.SerializeToString()).run({"x": np.ones(2, "f4")}, device="cpu")
