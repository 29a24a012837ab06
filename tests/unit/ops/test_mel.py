"""Log-mel features: the formula, its floor, its gradient, its refusals."""

from __future__ import annotations

import numpy as np
import pytest

from rlxweb.core.errors import DTypeError, ShapeError
from tests.engines_under_test import Array
from tests.unit.ops.single_op_runner import build_op, run


def draw_operands(frames: int, n: int, mels: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(n)
    return rng.normal(size=(frames, 2 * n)), rng.uniform(0, 1, (mels, n // 2 + 1))


def test_log_mel_matches_whisper() -> None:
    spectrum, filters = draw_operands(3, 8, 4)
    re, im = spectrum[:, :5], spectrum[:, 8:13]
    y = np.log10(np.maximum((re**2 + im**2) @ filters.T, 1e-10))
    y = np.maximum(y, y.max(axis=1, keepdims=True) - 8)
    np.testing.assert_allclose(run("log_mel", spectrum, filters), (y + 4) / 4)


def test_each_frame_has_its_own_floor() -> None:
    """An empty band is 8 below the strongest band of its own frame."""
    spectrum, filters = draw_operands(2, 8, 3)
    filters[1] = 0.0
    spectrum[1] *= 10.0
    got = run("log_mel", spectrum, filters)
    np.testing.assert_allclose(got[:, 1], got.max(axis=1) - 2.0)


def test_gradient_matches_finite_differences() -> None:
    spectrum, filters = draw_operands(2, 6, 3)
    grad = np.random.default_rng(1).normal(size=(2, 3))
    got = run("log_mel_backward", spectrum, filters, grad)
    # A step keeps which band is the largest, so the floor's path plays no part.
    step = 1e-6
    for index in np.ndindex(spectrum.shape):
        perturbed = [spectrum.copy(), spectrum.copy()]
        perturbed[0][index] += step
        perturbed[1][index] -= step
        up, down = (run("log_mel", operand, filters) for operand in perturbed)
        slope = float((grad * (up - down)).sum() / (2 * step))
        assert got[index] == pytest.approx(slope, rel=1e-5, abs=1e-8)


def test_gradient_is_zero_at_the_floor_and_beyond_the_bins() -> None:
    spectrum, filters = draw_operands(2, 8, 2)
    filters[0] = 0.0
    grad = np.array([[1.0, 0.0], [1.0, 0.0]])
    assert not run("log_mel_backward", spectrum, filters, grad).any()
    gradient = run("log_mel_backward", spectrum, filters, np.ones((2, 2)))
    assert not gradient[:, 5:8].any()
    assert not gradient[:, 13:].any()
    assert gradient[:, :5].any()


def test_gradient_ignores_the_clamp() -> None:
    """The gradient has the clamp's slope where every band is below 1e-10."""
    spectrum = np.zeros((1, 4))
    spectrum[0, 0] = 1e-7
    filters = np.ones((1, 2))
    got = run("log_mel_backward", spectrum, filters, np.ones((1, 1)))
    assert got[0, 0] == pytest.approx(2e-7 * 0.25 / (1e-10 * np.log(10)))


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((3, 16), (4, 4)), r"filters must be \[mels, 5\]"),
        (((3, 16), (5,)), r"filters must be \[mels, 5\]"),
        (((3, 16), (0, 5)), "at least 1 row"),
        (((3, 15), (4, 5)), "last axis of even length"),
        (((3, 16), (4, 5), (3, 5)), r"\[3, 4\], the shape of the result of log_mel"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(
    shapes: tuple[tuple[int, ...], ...], message: str
) -> None:
    """Shapes of filters, or of a gradient, that do not fit are refused."""
    with pytest.raises(ShapeError, match=message):
        build_op("log_mel" if len(shapes) == 2 else "log_mel_backward", *shapes)


def test_types_that_cannot_hold_the_clamp_are_refused() -> None:
    with pytest.raises(DTypeError, match="1e-10, is 0 in f16"):
        build_op("log_mel", ((3, 16), "f16"), ((4, 5), "f16"))
    with pytest.raises(DTypeError, match="the operands have different dtypes"):
        build_op("log_mel", (3, 16), ((4, 5), "f64"))
