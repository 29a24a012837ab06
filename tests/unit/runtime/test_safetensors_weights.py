"""Loading weights from other files: matched by name, checked against the graph, never
guessed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.core.errors import GraphFileError, InputError, NotFinite, UsageError
from tests.unit.runtime.sample_graph_files import safetensors_bytes

KERNEL = np.arange(6, dtype=np.float32).reshape(2, 3)
BIAS = np.array([1, 2, 3], np.float32)


def linear_graph(dtype: str = "f32") -> rlx.Graph:
    g = rlx.Graph("linear")
    w, b = g.param("layer.weight", (2, 3), dtype), g.param("layer.bias", (3,), dtype)
    g.set_outputs([g.input("x", (1, 2), dtype) @ w + b])
    return g


def weights_file(**tensors: Any) -> bytes:
    """Return a safetensors file of these tensors; _ in a name stands for a dot."""
    return safetensors_bytes(
        {n.replace("_", "."): array for n, array in tensors.items()}
    )


GOOD = weights_file(layer_weight=KERNEL, layer_bias=BIAS)


def test_weights_are_views_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(GOOD)
    weights = rlx.load_weights(linear_graph(), path, check=True)
    assert list(weights) == ["layer.weight", "layer.bias"]
    assert weights["layer.weight"].tolist() == KERNEL.tolist()
    assert not weights["layer.weight"].flags.owndata
    assert not weights["layer.weight"].flags.writeable
    assert weights.nbytes == 36
    linear_graph().save(tmp_path / "m.rlxg", weights)
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
def test_weights_are_renamed_to_params(rename: Any) -> None:
    raw = weights_file(
        dense_kernel=KERNEL, dense_bias=BIAS, step=np.array([7], np.int64)
    )
    weights = rlx.load_weights(linear_graph(), raw, rename=rename)
    assert weights["layer.bias"].tolist() == BIAS.tolist()


def test_all_mismatches_are_one_error() -> None:
    """Report missing names, unknown names and wrong shapes and dtypes in one error."""
    g = linear_graph()
    g.set_outputs([g.tensor(g.outputs[0]) * g.param("scale", (3,))])
    raw = weights_file(
        layer_weigth=KERNEL, layer_bias=BIAS.astype(np.float64), scale=KERNEL[0:1]
    )
    with pytest.raises(InputError) as caught:
        rlx.load_weights(g, raw)
    message = str(caught.value)
    assert "'layer.weight' (did you mean 'layer.weigth'?)" in message
    assert "1 weight without a param: 'layer.weigth'" in message
    assert (
        "'layer.bias' has dtype f64, expected f32 (pass convert=True to cast it)"
        in message
    )
    assert "'scale' has shape [1, 3], expected [3]" in message


def test_long_mismatch_lists_are_shortened_with_a_count() -> None:
    g = rlx.Graph("many")
    g.set_outputs([g.param(f"w{i}", (2,)) for i in range(15)])
    raw = weights_file(**{f"w{i}": np.ones(3, np.float32) for i in range(15)})
    with pytest.raises(
        InputError, match=r"'w11' has .* and 3 more; the graph has 15 params"
    ):
        rlx.load_weights(g, raw)


def test_a_transposed_weight_is_reported_and_not_guessed() -> None:
    raw = weights_file(layer_weight=KERNEL.T.copy(), layer_bias=BIAS)
    with pytest.raises(InputError, match="the dimensions are in reverse order"):
        rlx.load_weights(linear_graph(), raw)


def test_unknown_weights_are_skipped_unless_strict() -> None:
    raw = weights_file(layer_weight=KERNEL, layer_bias=BIAS, more=BIAS)
    with pytest.raises(InputError, match="1 weight without a param: 'more'"):
        rlx.load_weights(linear_graph(), raw)
    assert len(rlx.load_weights(linear_graph(), raw, strict=False)) == 2


def test_two_weights_of_one_param_are_refused() -> None:
    raw = weights_file(layer_weight=KERNEL, layer_bias=BIAS, other=BIAS)
    with pytest.raises(InputError, match="both map to param"):
        rlx.load_weights(linear_graph(), raw, rename={"other": "layer.bias"})


def test_dtypes_are_converted_on_request_and_exactly() -> None:
    half = weights_file(layer_weight=KERNEL.astype(np.float16), layer_bias=BIAS)
    with pytest.raises(InputError, match="f16, expected f32"):
        rlx.load_weights(linear_graph(), half)
    weight = rlx.load_weights(linear_graph(), half, convert=True)["layer.weight"]
    assert weight.dtype == np.float32
    assert weight.tolist() == KERNEL.tolist()
    # Down where nothing is lost, and refused where something is.
    bias = rlx.load_weights(linear_graph("f16"), GOOD, convert=True)["layer.bias"]
    assert bias.dtype == np.float16
    lossy = weights_file(layer_weight=KERNEL + np.float32(1e-5), layer_bias=BIAS)
    with pytest.raises(InputError, match=r"a cast would change \d+ of its values"):
        rlx.load_weights(linear_graph("f16"), lossy, convert=True)


@pytest.mark.parametrize(
    ("value", "have", "want", "is_exact"),
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
def test_conversion_never_changes_a_value(
    value: float, have: Any, want: str, is_exact: bool
) -> None:
    g = rlx.Graph("one")
    g.set_outputs([g.param("w", (1,), want)])
    raw = weights_file(w=np.array([value], have))
    if is_exact:
        weight = rlx.load_weights(g, raw, convert=True)["w"]
        np.testing.assert_array_equal(weight, np.array([value], have))
    else:
        with pytest.raises(InputError, match="a cast would change 1 of its values"):
            rlx.load_weights(g, raw, convert=True)


def test_bfloat16_is_widened_exactly() -> None:
    values = np.array([1.0, -2.5, 3e38, np.inf, 1e-40, 0.0], np.float32)
    bits = (values.view(np.uint32) >> 16).astype(np.uint16)
    raw = weights_file(layer_weight=("BF16", (2, 3), bits.tobytes()), layer_bias=BIAS)
    want = (bits.astype(np.uint32) << 16).view(np.float32).reshape(2, 3)
    weight = rlx.load_weights(linear_graph(), raw, convert=True)["layer.weight"]
    assert weight.tolist() == want.tolist()
    with pytest.raises(NotFinite, match=r"1 in 'layer\.weight'"):
        rlx.load_weights(linear_graph(), raw, convert=True, check=True)


def test_nan_is_reported_when_checked() -> None:
    kernel_with_nan = KERNEL.copy()
    kernel_with_nan[0, :2] = np.nan, np.inf
    raw = weights_file(layer_weight=kernel_with_nan, layer_bias=BIAS)
    rlx.load_weights(linear_graph(), raw)
    with pytest.raises(NotFinite, match=r"2 in 'layer\.weight'"):
        rlx.load_weights(linear_graph(), raw, check=True)


def write_sharded(folder: Path, index: Any) -> Path:
    (folder / "a.safetensors").write_bytes(weights_file(layer_weight=KERNEL))
    (folder / "b.safetensors").write_bytes(weights_file(layer_bias=BIAS))
    path = folder / "model.safetensors.index.json"
    path.write_text(index if isinstance(index, str) else json.dumps(index))
    return path


def test_several_files_are_read_by_their_index(tmp_path: Path) -> None:
    """Weights of several files are read by the index or its folder, size unchecked."""
    files = {"layer.weight": "a.safetensors", "layer.bias": "b.safetensors"}
    index = {"metadata": {"total_size": 36.0}, "weight_map": files}
    path = write_sharded(tmp_path, index)
    for source in (path, tmp_path):
        weights = rlx.load_weights(linear_graph(), source)
        assert weights["layer.bias"].tolist() == BIAS.tolist()


@pytest.mark.parametrize(
    ("index", "words"),
    [
        ({"weight_map": {"layer.weight": "../a.safetensors"}}, "without a path"),
        ({"weight_map": {"layer.weight": "/etc/passwd"}}, "without a path"),
        ({"weight_map": {"layer.weight": "..\\a"}}, "without a path"),
        ({"weight_map": {"layer.weight": ".."}}, "folder|regular|no path"),
        (
            {"weight_map": {"layer.weight": "none.safetensors"}},
            "the file does not exist",
        ),
        (
            {"weight_map": {"layer.weight": "b.safetensors"}},
            "this file does not contain the tensor",
        ),
        ({"weight_map": {"layer.weight": 1}}, "expected a string"),
        ({"weight_map": []}, "weight_map must map tensor names to file names"),
        ({}, "no weight_map"),
        ("[1]", "expected '{'"),
        ("{", "invalid JSON"),
        ('{"weight_map":{},"weight_map":{}}', "keys must be unique"),
    ],
)
def test_an_invalid_index_is_refused(tmp_path: Path, index: Any, words: str) -> None:
    with pytest.raises(GraphFileError, match=words):
        rlx.load_weights(linear_graph(), write_sharded(tmp_path, index))


def test_invalid_arguments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="regular expression"):
        rlx.load_weights(linear_graph(), GOOD, rename=[("(", "a")])
    with pytest.raises(UsageError, match="regular expression"):
        rlx.load_weights(linear_graph(), GOOD, rename=3)  # type: ignore[arg-type]
    for rename, words in (
        ([(r"layer.*", r"\3")], "invalid group reference"),
        ([(r"layer.*", 3)], "a replacement"),
        ([(b"layer", "a")], "both strings"),
        (lambda name: 3, "rename returned 3 for 'layer.weight'"),
        ({"layer.bias": ["a"]}, "rename returned"),
    ):
        with pytest.raises(UsageError, match=words):
            rlx.load_weights(linear_graph(), GOOD, rename=rename)  # type: ignore[arg-type]
    with pytest.raises(GraphFileError, match=r"contains neither model\.safetensors"):
        rlx.load_weights(linear_graph(), tmp_path)
    with pytest.raises(rlx.RlxError, match="expected a Graph"):
        rlx.load_weights(3, GOOD)  # type: ignore[arg-type]
