"""MatMulNBits as ONNX Runtime has it; its weights stay as the file has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import rlxweb as rlx
from rlxweb.errors import ModelError, Unsupported
from tests.onnx.made import model, node, value
from tests.onnx.test_saving import runtime

MS = "com.microsoft"
HALF = onnx.TensorProto.FLOAT16


def of(arrays: dict[str, Any], k: int, n: int, kind: int = 1, **how: Any) -> Any:
    """A model of one product; what is not called "a" is a weight of it."""
    names = [
        key if arrays.get(key) is not None else ""
        for key in ("a", "b", "scales", "zeros", "g_idx", "bias")
    ]
    made = model(
        [node("MatMulNBits", names, ["y"], domain=MS, K=k, N=n, **how)],
        [value("a", arrays["a"].shape, kind)],
        [value("y", None, kind)],
        opsets={"": 21, MS: 1},
    )
    for name, array in arrays.items():
        if name != "a" and array is not None:
            made.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return made


def drawn(
    rng: np.random.Generator,
    a: tuple[int, ...],
    n: int,
    bits: int,
    size: int,
    zeros: bool,
    dtype: Any = "f4",
) -> dict[str, Any]:
    k = a[-1]
    groups = -(-k // size)
    octets = rng.integers(0, 256, (n, groups, size * bits // 8)).astype(np.uint8)
    line = -(-groups * bits // 8)
    return {
        "a": rng.standard_normal(a).astype(dtype),
        "b": octets,
        "scales": rng.uniform(0.01, 0.1, (n, groups)).astype(dtype),
        "zeros": rng.integers(0, 256, (n, line)).astype(np.uint8) if zeros else None,
    }


@pytest.mark.requires_wgpu
@pytest.mark.parametrize(
    ("a", "n", "bits", "size", "zeros"),
    [
        ((3, 64), 10, 4, 32, False),
        ((1, 96), 7, 4, 32, True),
        ((2, 5, 100), 6, 4, 16, True),
        ((20, 256), 33, 8, 128, False),
        ((3, 80), 9, 8, 32, True),
    ],
)
def test_products_are_onnx_runtimes(
    a: tuple[int, ...],
    n: int,
    bits: int,
    size: int,
    zeros: bool,
    rng: np.random.Generator,
) -> None:
    """Products on NumPy and a GPU are ONNX Runtime's, of words as the file has them."""
    arrays = drawn(rng, a, n, bits, size, zeros)
    arrays["bias"] = rng.standard_normal(n).astype(np.float32) if zeros else None
    message = of(arrays, a[-1], n, bits=bits, block_size=size)
    (want,) = runtime(message.SerializeToString(), {"a": arrays["a"]})
    loaded = rlx.onnx.load(message.SerializeToString())
    for device in ("cpu", "gpu"):
        got = loaded.run({"a": arrays["a"]}, device=device)["y"]
        near = 1e-4 * float(np.abs(want).max())
        np.testing.assert_allclose(got, want, atol=near, err_msg=device)
    words = loaded.params["b"]
    assert np.asarray(words).tobytes() == arrays["b"].tobytes()


def test_halves_keep_their_zero_points(rng: np.random.Generator) -> None:
    """Packed halves of 8 bits keep large zero points, as float64 has it."""
    arrays = drawn(rng, (2, 64), 5, 8, 32, True, "f2")
    message = of(arrays, 64, 5, HALF, bits=8, block_size=32)
    got = rlx.onnx.load(message.SerializeToString()).run({"a": arrays["a"]})["y"]
    codes = arrays["b"].reshape(5, 2, 32).astype(float) - arrays["zeros"][..., None]
    w = (codes * arrays["scales"].astype(float)[..., None]).reshape(5, 64)
    want = arrays["a"].astype(float) @ w.T
    np.testing.assert_allclose(got, want, rtol=2e-3, atol=2e-3 * np.abs(want).max())


def test_what_is_not_done_is_said(rng: np.random.Generator) -> None:
    arrays = drawn(rng, (2, 64), 5, 4, 32, False)
    short = {**arrays, "b": arrays["b"][:4]}
    sorted_by = {**arrays, "g_idx": np.arange(64, dtype=np.int32) // 32}
    for given, size, error, said in (
        (short, 32, ModelError, "32 bytes a row"),
        (sorted_by, 32, Unsupported, "g_idx"),
        (arrays, 24, Unsupported, "powers of 2"),
    ):
        loaded = rlx.onnx.load(of(given, 64, 5, block_size=size).SerializeToString())
        with pytest.raises(error, match=said):
            loaded.run({"a": arrays["a"]})
