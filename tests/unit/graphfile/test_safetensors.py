"""Our files by the package that made the format, and its files by us."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes  # noqa: F401  tells NumPy of bfloat16, which the package names
import numpy as np
import safetensors
import safetensors.numpy

import rlxweb as rlx
from rlxweb.ir.dtype import as_dtype
from tests.unit.graphfile.files import mlp, weights
from tests.unit.graphfile.test_round_trip import packed_types, values


def test_the_package_opens_our_file(tmp_path: Path) -> None:
    path = tmp_path / "m.rlxg"
    params = values(packed_types())
    packed_types().save(path, params)
    found = safetensors.numpy.load_file(path)
    assert found.keys() == params.keys()
    for name, array in params.items():
        assert rlx.DType(name) is as_dtype(found[name].dtype)
        assert found[name].tobytes() == array.tobytes()


def test_a_file_that_the_package_wrote_anew_is_read(tmp_path: Path) -> None:
    """Tensors in its order, keys in its order: the same graph."""
    ours, theirs = tmp_path / "ours.rlxg", tmp_path / "theirs.rlxg"
    mlp().save(ours, weights())
    with safetensors.safe_open(ours, "np") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}
        safetensors.numpy.save_file(tensors, theirs, file.metadata())
    model = rlx.load(theirs)
    assert model.graph.key == rlx.load(ours).graph.key
    np.testing.assert_array_equal(model.params["w"], weights()["w"])
