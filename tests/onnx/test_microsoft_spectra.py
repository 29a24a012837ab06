"""Spectra of com.microsoft, which ONNX Runtime has on GPUs alone: as NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the extra onnx is not installed")
pytest.importorskip("onnxruntime", reason="it is not installed")

from rlxweb.errors import ModelError, Unsupported
from tests.onnx.test_microsoft_images import ENGINES, real, run


def parts(x: Any) -> Any:
    return np.stack([x.real, x.imag], -1)


def as_complex(x: Any) -> Any:
    return x[..., 0] + 1j * x[..., 1]


@pytest.mark.parametrize("device", ENGINES)
@pytest.mark.parametrize("shape", [(8,), (4, 4), (2, 3, 10), (1, 64), (2, 7)])
def test_half_spectra_of_rows(shape: Any, device: str) -> None:
    x = real(*shape)
    want = parts(np.fft.rfft(x))
    got = run("Rfft", x, device=device, signal_ndim=1)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(run("Rfft", x, device=device), want, atol=1e-4)
    if shape[-1] % 2 == 0:
        back = run("Irfft", want.astype(np.float32), device=device, signal_ndim=1)
        np.testing.assert_allclose(back, x, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("op", ["ComplexMul", "ComplexMulConj"])
@pytest.mark.parametrize(
    "shapes",
    [
        ((3, 2), (3, 2)),
        ((2, 4, 2), (1, 4, 2)),
        ((4, 1, 2), (2, 1, 5, 2)),
        ((2,), (6, 2)),
    ],
)
def test_products_of_complex_numbers(op: str, shapes: Any) -> None:
    a, b = (real(*shape) for shape in shapes)
    second = as_complex(b).conj() if op.endswith("Conj") else as_complex(b)
    want = parts(as_complex(a) * second)
    np.testing.assert_allclose(run(op, a, b), want, rtol=1e-5, atol=1e-6)


REFUSED: dict[str, Any] = {
    "normalized=1": (("Rfft", real(8)), {"normalized": 1}),
    "onesided=0": (("Rfft", real(8)), {"onesided": 0}),
    "signal_ndim=2": (("Irfft", real(4, 3, 2)), {"signal_ndim": 2}),
    "numbers [4, 3]": (("Irfft", real(4, 3)), {"signal_ndim": 1}),
    "spectra [1, 2]": (("Irfft", real(1, 2)), {"signal_ndim": 1}),
    "numbers [5]": (("ComplexMul", real(5), real(5)), {}),
}


@pytest.mark.parametrize("says", REFUSED)
def test_what_is_not_done_is_refused(says: str) -> None:
    given, how = REFUSED[says]
    with pytest.raises((ModelError, Unsupported)) as caught:
        run(*given, **how)
    assert says in str(caught.value)
