"""Weights of others: found by name, held against the graph, and never guessed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.errors import GraphFileError, InputError, NotFinite, UsageError
from tests.unit.graphfile.files import safetensors_of

KERNEL = np.arange(6, dtype=np.float32).reshape(2, 3)
BIAS = np.array([1, 2, 3], np.float32)


def linear(dtype: str = "f32") -> rlx.Graph:
    g = rlx.Graph("linear")
    w, b = g.param("layer.weight", (2, 3), dtype), g.param("layer.bias", (3,), dtype)
    g.set_outputs([g.input("x", (1, 2), dtype) @ w + b])
    return g


def written(**tensors: Any) -> bytes:
    """A file of them; _ stands for a dot."""
    return safetensors_of({n.replace("_", "."): one for n, one in tensors.items()})


GOOD = written(layer_weight=KERNEL, layer_bias=BIAS)


def test_weights_are_views_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(GOOD)
    found = rlx.load_weights(linear(), path, check=True)
    assert list(found) == ["layer.weight", "layer.bias"]
    assert found["layer.weight"].tolist() == KERNEL.tolist()
    assert not found["layer.weight"].flags.owndata
    assert not found["layer.weight"].flags.writeable
    assert found.nbytes == 36
    linear().save(tmp_path / "m.rlxg", found)
    got = rlx.load(tmp_path / "m.rlxg").run({"x": [[1.0, 1.0]]}, device="cpu")
    assert got["out0"].tolist() == [[4, 7, 10]]


@pytest.mark.parametrize(
    "rename",
    [
        {"dense.kernel": "layer.weight", "dense.bias": "layer.bias", "step": None},
        lambda name: {"dense.kernel": "layer.weight", "dense.bias": "layer.bias"}.get(
            name
        ),
        [
            (r"dense\.kernel", "layer.weight"),
            (r"dense\.(.*)", r"layer.\1"),
            ("step", None),
        ],
    ],
    ids=["mapping", "function", "patterns"],
)
def test_names_are_made_to_fit(rename: Any) -> None:
    raw = written(dense_kernel=KERNEL, dense_bias=BIAS, step=np.array([7], np.int64))
    found = rlx.load_weights(linear(), raw, rename=rename)
    assert found["layer.bias"].tolist() == BIAS.tolist()


def test_all_that_does_not_fit_is_one_error() -> None:
    """Missing and unknown names, shapes and dtypes that do not fit are one error."""
    g = linear()
    g.set_outputs([g.tensor(g.outputs[0]) * g.param("scale", (3,))])
    raw = written(
        layer_weigth=KERNEL, layer_bias=BIAS.astype(np.float64), scale=KERNEL[0:1]
    )
    with pytest.raises(InputError) as caught:
        rlx.load_weights(g, raw)
    said = str(caught.value)
    assert "'layer.weight' (is it 'layer.weigth'?)" in said
    assert "1 weight of no param: 'layer.weigth'" in said
    assert "'layer.bias' is f64, not f32 (`convert` would cast it)" in said
    assert "'scale' is [1, 3], not [3]" in said


def test_of_very_much_that_does_not_fit_the_first_is_told_and_how_much() -> None:
    g = rlx.Graph("many")
    g.set_outputs([g.param(f"w{at}", (2,)) for at in range(15)])
    raw = written(**{f"w{at}": np.ones(3, np.float32) for at in range(15)})
    with pytest.raises(InputError, match=r"'w11' is .* and 3 more; 15 params"):
        rlx.load_weights(g, raw)


def test_a_transpose_is_told_and_not_guessed() -> None:
    raw = written(layer_weight=KERNEL.T.copy(), layer_bias=BIAS)
    with pytest.raises(InputError, match="is it transposed"):
        rlx.load_weights(linear(), raw)


def test_what_belongs_to_no_param_is_left_out_where_asked() -> None:
    raw = written(layer_weight=KERNEL, layer_bias=BIAS, more=BIAS)
    with pytest.raises(InputError, match="1 weight of no param: 'more'"):
        rlx.load_weights(linear(), raw)
    assert len(rlx.load_weights(linear(), raw, strict=False)) == 2


def test_two_weights_of_one_param_are_refused() -> None:
    raw = written(layer_weight=KERNEL, layer_bias=BIAS, other=BIAS)
    with pytest.raises(InputError, match="both for param"):
        rlx.load_weights(linear(), raw, rename={"other": "layer.bias"})


def test_dtypes_are_converted_where_asked_and_exact() -> None:
    half = written(layer_weight=KERNEL.astype(np.float16), layer_bias=BIAS)
    with pytest.raises(InputError, match="f16, not f32"):
        rlx.load_weights(linear(), half)
    found = rlx.load_weights(linear(), half, convert=True)["layer.weight"]
    assert found.dtype == np.float32
    assert found.tolist() == KERNEL.tolist()
    # Down where nothing is lost, and refused where something is.
    narrow = rlx.load_weights(linear("f16"), GOOD, convert=True)["layer.bias"]
    assert narrow.dtype == np.float16
    lossy = written(layer_weight=KERNEL + np.float32(1e-5), layer_bias=BIAS)
    with pytest.raises(InputError, match="of its values would change"):
        rlx.load_weights(linear("f16"), lossy, convert=True)


@pytest.mark.parametrize(
    ("value", "have", "want", "is_kept"),
    [
        (2**53, np.int64, "f64", True),
        (2**53 + 1, np.int64, "f64", False),
        (2**63 - 1, np.int64, "f64", False),
        (2**64 - 1, np.uint64, "f64", False),
        (2**24, np.int32, "f32", True),
        (2**31 - 1, np.int32, "f32", False),
        (2.0**31, np.float32, "i32", False),
        (2.0**32, np.float64, "u32", False),
        (-(2.0**31), np.float32, "i32", True),
        (2.0**63, np.float64, "i64", False),
        (-1.0, np.float32, "u32", False),
        (np.nan, np.float32, "i32", False),
        (np.nan, np.float64, "f32", True),
        (1e39, np.float64, "f32", False),
        (np.inf, np.float64, "f32", True),
    ],
)
def test_no_value_changes_where_kinds_do(
    value: float, have: Any, want: str, is_kept: bool
) -> None:
    g = rlx.Graph("one")
    g.set_outputs([g.param("w", (1,), want)])
    raw = written(w=np.array([value], have))
    if is_kept:
        found = rlx.load_weights(g, raw, convert=True)["w"]
        np.testing.assert_array_equal(found, np.array([value], have))
    else:
        with pytest.raises(InputError, match="1 of its values would change"):
            rlx.load_weights(g, raw, convert=True)


def test_bfloat16_is_widened_exactly() -> None:
    values = np.array([1.0, -2.5, 3e38, np.inf, 1e-40, 0.0], np.float32)
    bits = (values.view(np.uint32) >> 16).astype(np.uint16)
    raw = written(layer_weight=("BF16", (2, 3), bits.tobytes()), layer_bias=BIAS)
    want = (bits.astype(np.uint32) << 16).view(np.float32).reshape(2, 3)
    found = rlx.load_weights(linear(), raw, convert=True)["layer.weight"]
    assert found.tolist() == want.tolist()
    with pytest.raises(NotFinite, match=r"1 of 'layer\.weight'"):
        rlx.load_weights(linear(), raw, convert=True, check=True)


def test_nan_is_told_where_asked() -> None:
    spoiled = KERNEL.copy()
    spoiled[0, :2] = np.nan, np.inf
    raw = written(layer_weight=spoiled, layer_bias=BIAS)
    rlx.load_weights(linear(), raw)
    with pytest.raises(NotFinite, match=r"2 of 'layer\.weight'"):
        rlx.load_weights(linear(), raw, check=True)


def sharded(folder: Path, index: Any) -> Path:
    (folder / "a.safetensors").write_bytes(written(layer_weight=KERNEL))
    (folder / "b.safetensors").write_bytes(written(layer_bias=BIAS))
    path = folder / "model.safetensors.index.json"
    path.write_text(index if isinstance(index, str) else json.dumps(index))
    return path


def test_several_files_are_read_by_their_index(tmp_path: Path) -> None:
    """Weights of several files are read by the index or its folder, size unchecked."""
    files = {"layer.weight": "a.safetensors", "layer.bias": "b.safetensors"}
    index = {"metadata": {"total_size": 36.0}, "weight_map": files}
    path = sharded(tmp_path, index)
    for source in (path, tmp_path):
        found = rlx.load_weights(linear(), source)
        assert found["layer.bias"].tolist() == BIAS.tolist()


@pytest.mark.parametrize(
    ("index", "words"),
    [
        ({"weight_map": {"layer.weight": "../a.safetensors"}}, "no path"),
        ({"weight_map": {"layer.weight": "/etc/passwd"}}, "no path"),
        ({"weight_map": {"layer.weight": "..\\a"}}, "no path"),
        ({"weight_map": {"layer.weight": ".."}}, "folder|regular|no path"),
        ({"weight_map": {"layer.weight": "none.safetensors"}}, "no such file"),
        ({"weight_map": {"layer.weight": "b.safetensors"}}, "not there"),
        ({"weight_map": {"layer.weight": 1}}, "a text is wanted"),
        ({"weight_map": []}, "files by tensor"),
        ({}, "no weight_map"),
        ("[1]", "wanted"),
        ("{", "is no JSON"),
        ('{"weight_map":{},"weight_map":{}}', "each key once"),
    ],
)
def test_an_index_that_says_otherwise_is_refused(
    tmp_path: Path, index: Any, words: str
) -> None:
    with pytest.raises(GraphFileError, match=words):
        rlx.load_weights(linear(), sharded(tmp_path, index))


def test_what_is_asked_wrongly_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="regular expression"):
        rlx.load_weights(linear(), GOOD, rename=[("(", "a")])
    with pytest.raises(UsageError, match="regular expression"):
        rlx.load_weights(linear(), GOOD, rename=3)  # type: ignore[arg-type]
    for rename, words in (
        ([(r"layer.*", r"\3")], "invalid group reference"),
        ([(r"layer.*", 3)], "a replacement"),
        ([(b"layer", "a")], "as text"),
        (lambda name: 3, "rename makes 3 of 'layer.weight'"),
        ({"layer.bias": ["a"]}, "rename makes"),
    ):
        with pytest.raises(UsageError, match=words):
            rlx.load_weights(linear(), GOOD, rename=rename)  # type: ignore[arg-type]
    with pytest.raises(GraphFileError, match=r"has no model\.safetensors"):
        rlx.load_weights(linear(), tmp_path)
    with pytest.raises(rlx.RlxError, match="a Graph is wanted"):
        rlx.load_weights(3, GOOD)  # type: ignore[arg-type]
