"""Spectral ops fft, rfft, irfft, psd, frame and stft: values and refusals."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlxweb.core.errors import AttributeRefused, DTypeError, ShapeError
from rlxweb.gpu.port_protocol import AdapterRequest
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import registry
from rlxweb.ops.fft import by_matmul as compose
from rlxweb.rlx import Graph as RlxGraph
from tests.engines_under_test import Array, engine
from tests.unit.ops.single_op_runner import build_op, run, run_decomposition

NORMS = ("backward", "ortho", "forward")
ALLOWED = ("allowed: backward", *NORMS[1:], "none")
FRAMES = ("length", "hop", "count")
LENGTHS = (*range(1, 40), 61, 64, 67, 97, 100, 127, 131, 134, 200, 256)


def to_block(z: Array) -> Array:
    return np.concatenate([z.real, z.imag], axis=-1)


def draw_array(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("inverse", [False, True])
def test_fft_matches_numpy(norm: str, inverse: bool) -> None:
    x = draw_array(2, 3, 20)
    z = x[..., :10] + 1j * x[..., 10:]
    transform = np.fft.ifft if inverse else np.fft.fft
    want = to_block(transform(z, norm=norm))
    np.testing.assert_allclose(run("fft", x, inverse=inverse, norm=norm), want)


def test_norm_none_scales_nothing() -> None:
    """A round trip gives N times the row, as in RLX's Backward."""
    x = draw_array(4, 14)
    spectrum = run("fft", x, norm="none")
    back = run("fft", spectrum, norm="none", inverse=True)
    np.testing.assert_allclose(back, 7 * x)


RLX_NORMS = {
    "Backward": "none",
    "none": "none",
    " BACKWARD ": "none",
    "Forward": "backward",
    "forward": "backward",
    "Ortho": "ortho",
    "orthonormal": "ortho",
}


@pytest.mark.parametrize("name", RLX_NORMS)
def test_rlx_norm_names_map_to_numpy_norms(name: str) -> None:
    """Every name that pyrlx knows is accepted, in any letter case."""
    g = RlxGraph()
    g.fft_norm(g.input("x", (2, 8)), inverse=True, norm=name)
    assert g.nodes()[-1].attrs["norm"] == RLX_NORMS[name]


@pytest.mark.parametrize("name", ["unitary", "", None, 1])
def test_other_norms_are_refused(name: Any) -> None:
    """Other norms are refused with RLX's names by `fft_norm`, NumPy's by `fft`."""
    g = RlxGraph()
    x = g.input("x", (2, 8))
    with pytest.raises(AttributeRefused, match=r"expected 'Backward' \(or 'none'\)"):
        g.fft_norm(x, norm=name)
    if name is not None:
        with pytest.raises(AttributeRefused, match=r"norm="):
            g.fft(x, norm=name)


@pytest.mark.parametrize("on_cpu", [True, False])
def test_round_trip_by_every_norm(on_cpu: bool, adapter: AdapterRequest) -> None:
    """A round trip restores x by NumPy's norms and by RLX's Forward and Ortho; RLX's
    Backward gives N · x.
    """
    x = draw_array(2, 24).astype(np.float32)
    g = RlxGraph()
    tensor = g.input("x", x.shape)
    round_trips: list[Any] = [
        g.fft(g.fft(tensor), True),
        g.ifft(g.fft(tensor, norm=None), None),
    ]
    round_trips += [g.ifft(g.fft(tensor, norm=n), n) for n in ("ortho", "forward")]
    round_trips += [
        g.fft_norm(g.fft_norm(tensor, norm=n), True, n)
        for n in ("Forward", "orthonormal")
    ]
    unscaled = [
        g.fft_norm(g.fft_norm(tensor), True),
        g.ifft(g.fft(tensor, norm="none"), "none"),
    ]
    g.set_outputs([*round_trips, *unscaled])
    outs = engine(None if on_cpu else adapter).run(g, {"x": x})
    for out in outs[: len(round_trips)]:
        np.testing.assert_allclose(out, x, atol=1e-5)
    for out in outs[len(round_trips) :]:
        np.testing.assert_allclose(out, 12 * x, atol=1e-4)


@pytest.mark.parametrize("name", ["fft", "rfft", "irfft"])
def test_the_doc_of_a_transform_explains_its_norms(name: str) -> None:
    """The doc tells users of RLX how the norms differ."""
    doc = registry.get(name).doc
    assert "divides only the inverse by N" in doc
    assert "RLX's" in doc


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("n", [1, 2, 7, 12])
def test_rfft_and_irfft_match_numpy(n: int, norm: str) -> None:
    x = draw_array(3, n)
    half = run("rfft", x, norm=norm)
    np.testing.assert_allclose(half, to_block(np.fft.rfft(x, norm=norm)))
    np.testing.assert_allclose(run("irfft", half, n=n, norm=norm), x, atol=1e-14)


@pytest.mark.parametrize("n", [8, 9])
def test_irfft_ignores_imaginary_ends(n: int) -> None:
    half = draw_array(2, 2 * (n // 2 + 1))
    changed = half.copy()
    changed[:, n // 2 + 1] += 5.0
    if n % 2 == 0:
        changed[:, -1] -= 3.0
    np.testing.assert_allclose(run("irfft", changed, n=n), run("irfft", half, n=n))


@pytest.mark.parametrize("n", [1, 8, 9])
def test_other_libraries_get_no_imaginary_ends(n: int) -> None:
    """Imaginary parts at the ends are removed, since cuFFT does not ignore them."""
    spectra = []

    def irfft(z: Array, **options: Any) -> Array:
        spectra.append(z)
        return np.fft.irfft(z, **options)

    class Library:
        fft = SimpleNamespace(irfft=irfft)

        def __getattr__(self, name: str) -> Any:
            return getattr(np, name)

    half = draw_array(2, 2 * (n // 2 + 1))
    half[0, n // 2 + 1] += 5.0
    attrs = {"n": n, "norm": "backward"}
    got = registry.get("irfft").reference(Library(), attrs, half)
    np.testing.assert_array_equal(got, run("irfft", half, n=n))
    (z,) = spectra
    assert (z[:, 0].imag == 0).all()
    assert n % 2 or (z[:, -1].imag == 0).all()
    assert n < 4 or (z[:, 1].imag != 0).all()


def test_float32_rows_stay_float32() -> None:
    x = draw_array(3, 32).astype(np.float32)
    assert run("fft", x).dtype == np.float32
    assert run("rfft", x).dtype == np.float32


def test_psd_divides_by_the_number_of_bins() -> None:
    re, im = draw_array(2, 5), draw_array(2, 5, seed=1)
    np.testing.assert_allclose(run("psd", re, im), (re**2 + im**2) / 5)


@pytest.mark.parametrize("count", [0, 3, 5])
def test_frames_overlap(count: int) -> None:
    x = draw_array(2, 40)
    got = run("frame", x, length=10, hop=6, count=count)
    for s in range(count or 6):
        np.testing.assert_array_equal(got[:, s], x[:, 6 * s : 6 * s + 10])


@given(st.integers(1, 60), st.integers(1, 30), st.integers(1, 40))
def test_frames_match_numpy_sliding_windows(width: int, length: int, hop: int) -> None:
    x = np.arange(2.0 * width).reshape(2, width)
    if length > width:
        with pytest.raises(ShapeError, match=f"{length} > {width}"):
            run("frame", x, length=length, hop=hop)
        return
    want = np.lib.stride_tricks.sliding_window_view(x, length, axis=-1)[:, ::hop]
    np.testing.assert_array_equal(run("frame", x, length=length, hop=hop), want)


def test_frame_is_a_view() -> None:
    """A frame on a device is a view: consecutive frames share their values."""
    g = Graph()
    g.frame(g.input("x", (2, 40)), 10, 5)
    assert registry.get("frame").has_trait("view")


def test_stft_puts_frames_first() -> None:
    x = draw_array(3, 50)
    got = run("stft", x, length=16, hop=8)
    assert got.shape == (5, 3, 18)
    np.testing.assert_allclose(got[2, 1], to_block(np.fft.rfft(x[1, 16:32])))


def check_decomposition(op: str, x: Array, atol: float, **attrs: Any) -> None:
    got = run_decomposition(op, x, **attrs)
    np.testing.assert_allclose(got, run(op, x, **attrs), atol=atol)


@pytest.mark.parametrize("n", LENGTHS)
def test_matrix_products_compose_any_transform(n: int) -> None:
    """Every length by DFT matrices, twiddles and, for large primes, a chirp."""
    block = draw_array(2, 3, 2 * n)
    real = draw_array(2, n)
    half = draw_array(2, 2 * (n // 2 + 1))
    for inverse in (False, True):
        check_decomposition("fft", block, 1e-12, inverse=inverse, norm="ortho")
    check_decomposition("rfft", real, 1e-12, norm="forward")
    check_decomposition("irfft", half, 1e-10, n=n, norm="none")


def test_matrices_stay_small() -> None:
    """No constant of a long composite transform passes a binding of 4 KiB but the
    twiddles, which are as long as the row.
    """
    g = Graph()
    compose.build_fft(g, {"inverse": False, "norm": "none"}, g.input("x", (1, 2048)))
    square = [
        n.type.shape for n in g.nodes() if n.op == "constant" and len(n.type.shape) == 2
    ]
    sides = {shape for shape in square if shape[0] == shape[1]}
    assert sides
    assert max(a * b for a, b in sides) * 4 <= 4096


@pytest.mark.parametrize(
    ("op", "types", "attrs", "error", "message"),
    [
        ("fft", [(2, 7)], {}, ShapeError, "last axis of even length, got 7 elements"),
        *(
            (op, [shape], {}, ShapeError, "last axis of at least 1 element")
            for op in ("fft", "rfft")
            for shape in ((), (3, 0))
        ),
        ("fft", [(2, 8)], {"norm": "Ortho"}, AttributeRefused, ", ".join(ALLOWED)),
        ("fft", [((2, 8), "i32")], {}, DTypeError, "accepts only floats"),
        (
            "irfft",
            [(2, 10)],
            {"n": 10},
            ShapeError,
            "5 bins give rows of 8 or 9 values",
        ),
        ("irfft", [(2, 2)], {"n": 0}, AttributeRefused, "n=0"),
        (
            "psd",
            [(2, 4), (2, 5)],
            {},
            ShapeError,
            "both parts must have the same shape",
        ),
        *(
            ("frame", [(2, 10)], dict(zip(FRAMES, cut, strict=False)), error, said)
            for cut, error, said in [
                ((11, 1), ShapeError, "11 > 10"),
                ((4, 3, 4), ShapeError, "they need 13 values; at most 3"),
                ((0, 1), AttributeRefused, "length=0"),
                ((4, 0), AttributeRefused, "hop=0"),
                ((4, 1, -1), AttributeRefused, "count=-1"),
            ]
        ),
    ],
)
def test_invalid_operands_and_attributes_are_refused(
    op: str,
    types: list[Any],
    attrs: dict[str, Any],
    error: type[Exception],
    message: str,
) -> None:
    with pytest.raises(error, match=message):
        build_op(op, *types, **attrs)
