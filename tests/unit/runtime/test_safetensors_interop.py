"""Interoperability with the safetensors package: it reads files of rlxweb, and rlxweb
reads its files.
"""

from __future__ import annotations

from pathlib import Path

import ml_dtypes  # noqa: F401  tells NumPy of bfloat16, which the package names
import numpy as np
import safetensors
import safetensors.numpy

import rlxweb as rlx
from rlxweb.ir.dtype import as_dtype
from tests.unit.runtime.sample_graph_files import mlp_graph, mlp_weights
from tests.unit.runtime.test_graph_file_round_trip import (
    params_of_all_dtypes,
    random_params,
)


def test_the_package_opens_our_file(tmp_path: Path) -> None:
    path = tmp_path / "m.rlxg"
    params = random_params(params_of_all_dtypes())
    params_of_all_dtypes().save(path, params)
    tensors = safetensors.numpy.load_file(path)
    assert tensors.keys() == params.keys()
    for name, array in params.items():
        assert rlx.DType(name) is as_dtype(tensors[name].dtype)
        assert tensors[name].tobytes() == array.tobytes()


def test_a_file_rewritten_by_the_package_is_read(tmp_path: Path) -> None:
    """The graph is the same with tensors and keys in the package's order."""
    ours, theirs = tmp_path / "ours.rlxg", tmp_path / "theirs.rlxg"
    mlp_graph().save(ours, mlp_weights())
    with safetensors.safe_open(ours, "np") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}
        safetensors.numpy.save_file(tensors, theirs, file.metadata())
    model = rlx.load(theirs)
    assert model.graph.key == rlx.load(ours).graph.key
    np.testing.assert_array_equal(model.params["w"], mlp_weights()["w"])
