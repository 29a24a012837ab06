"""MatMulNBits agrees with ONNX Runtime; its weights stay packed as in the file."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import rlxweb as rlx
from rlxweb.core.errors import ModelError, Unsupported
from tests.onnx.model_factory import make_model, node, value_info
from tests.onnx.onnx_runtime import run_onnxruntime

MICROSOFT_DOMAIN = "com.microsoft"
FLOAT16 = onnx.TensorProto.FLOAT16


def matmul_nbits_model(
    arrays: dict[str, Any], k: int, n: int, kind: int = 1, **attributes: Any
) -> Any:
    """Return a model of one product; every array except "a" is a weight of it."""
    names = [
        key if arrays.get(key) is not None else ""
        for key in ("a", "b", "scales", "zeros", "g_idx", "bias")
    ]
    model_proto = make_model(
        [
            node(
                "MatMulNBits",
                names,
                ["y"],
                domain=MICROSOFT_DOMAIN,
                K=k,
                N=n,
                **attributes,
            )
        ],
        [value_info("a", arrays["a"].shape, kind)],
        [value_info("y", None, kind)],
        opsets={"": 21, MICROSOFT_DOMAIN: 1},
    )
    for name, array in arrays.items():
        if name != "a" and array is not None:
            model_proto.graph.initializer.append(
                onnx.numpy_helper.from_array(array, name)
            )
    return model_proto


def random_operands(
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
    packed_codes = rng.integers(0, 256, (n, groups, size * bits // 8)).astype(np.uint8)
    zero_row_nbytes = -(-groups * bits // 8)
    return {
        "a": rng.standard_normal(a).astype(dtype),
        "b": packed_codes,
        "scales": rng.uniform(0.01, 0.1, (n, groups)).astype(dtype),
        "zeros": rng.integers(0, 256, (n, zero_row_nbytes)).astype(np.uint8)
        if zeros
        else None,
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
def test_products_match_onnx_runtime(
    a: tuple[int, ...],
    n: int,
    bits: int,
    size: int,
    zeros: bool,
    rng: np.random.Generator,
) -> None:
    """Products on NumPy and on a GPU match ONNX Runtime, and the packed weights stay as
    in the file.
    """
    arrays = random_operands(rng, a, n, bits, size, zeros)
    arrays["bias"] = rng.standard_normal(n).astype(np.float32) if zeros else None
    message = matmul_nbits_model(arrays, a[-1], n, bits=bits, block_size=size)
    (want,) = run_onnxruntime(message.SerializeToString(), {"a": arrays["a"]})
    loaded = rlx.onnx.load(message.SerializeToString())
    for device in ("cpu", "gpu"):
        got = loaded.run({"a": arrays["a"]}, device=device)["y"]
        tolerance = 1e-4 * float(np.abs(want).max())
        np.testing.assert_allclose(got, want, atol=tolerance, err_msg=device)
    words = loaded.params["b"]
    assert np.asarray(words).tobytes() == arrays["b"].tobytes()


def test_float16_products_keep_large_zero_points(rng: np.random.Generator) -> None:
    """Packed 8-bit weights with float16 scales keep large zero points, compared with
    float64.
    """
    arrays = random_operands(rng, (2, 64), 5, 8, 32, True, "f2")
    message = matmul_nbits_model(arrays, 64, 5, FLOAT16, bits=8, block_size=32)
    got = rlx.onnx.load(message.SerializeToString()).run({"a": arrays["a"]})["y"]
    codes = arrays["b"].reshape(5, 2, 32).astype(float) - arrays["zeros"][..., None]
    w = (codes * arrays["scales"].astype(float)[..., None]).reshape(5, 64)
    want = arrays["a"].astype(float) @ w.T
    np.testing.assert_allclose(got, want, rtol=2e-3, atol=2e-3 * np.abs(want).max())


def test_unsupported_weights_are_refused(rng: np.random.Generator) -> None:
    arrays = random_operands(rng, (2, 64), 5, 4, 32, False)
    truncated = {**arrays, "b": arrays["b"][:4]}
    sorted_by = {**arrays, "g_idx": np.arange(64, dtype=np.int32) // 32}
    for operands, size, error, message in (
        (truncated, 32, ModelError, "5 rows of 32 bytes"),
        (sorted_by, 32, Unsupported, "g_idx"),
        (arrays, 24, Unsupported, "a power of 2 >= 16"),
    ):
        loaded = rlx.onnx.load(
            matmul_nbits_model(operands, 64, 5, block_size=size).SerializeToString()
        )
        with pytest.raises(error, match=message):
            loaded.run({"a": arrays["a"]})
