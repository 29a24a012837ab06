"""Log-mel features: the formula, its floor, its gradient, its refusals."""

from __future__ import annotations

import numpy as np
import pytest

from rlxweb.errors import DTypeError, ShapeError
from tests.agreement import Array
from tests.unit.ops.alone import added, run


def parts(frames: int, n: int, mels: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(n)
    return rng.normal(size=(frames, 2 * n)), rng.uniform(0, 1, (mels, n // 2 + 1))


def test_log_mel_is_whispers() -> None:
    spectrum, filters = parts(3, 8, 4)
    re, im = spectrum[:, :5], spectrum[:, 8:13]
    y = np.log10(np.maximum((re**2 + im**2) @ filters.T, 1e-10))
    y = np.maximum(y, y.max(axis=1, keepdims=True) - 8)
    np.testing.assert_allclose(run("log_mel", spectrum, filters), (y + 4) / 4)


def test_each_frame_has_its_own_floor() -> None:
    """An empty band lies 8 below the strongest of its frame, not of all frames."""
    spectrum, filters = parts(2, 8, 3)
    filters[1] = 0.0
    spectrum[1] *= 10.0
    got = run("log_mel", spectrum, filters)
    np.testing.assert_allclose(got[:, 1], got.max(axis=1) - 2.0)


def test_gradient_is_the_slope_away_from_the_floor() -> None:
    spectrum, filters = parts(2, 6, 3)
    grad = np.random.default_rng(1).normal(size=(2, 3))
    got = run("log_mel_backward", spectrum, filters, grad)
    # A step keeps which band is the largest, so the floor's path plays no part.
    step = 1e-6
    for at in np.ndindex(spectrum.shape):
        bent = [spectrum.copy(), spectrum.copy()]
        bent[0][at] += step
        bent[1][at] -= step
        up, down = (run("log_mel", one, filters) for one in bent)
        slope = float((grad * (up - down)).sum() / (2 * step))
        assert got[at] == pytest.approx(slope, rel=1e-5, abs=1e-8)


def test_gradient_is_zero_at_the_floor_and_beyond_the_bins() -> None:
    spectrum, filters = parts(2, 8, 2)
    filters[0] = 0.0
    grad = np.array([[1.0, 0.0], [1.0, 0.0]])
    assert not run("log_mel_backward", spectrum, filters, grad).any()
    whole = run("log_mel_backward", spectrum, filters, np.ones((2, 2)))
    assert not whole[:, 5:8].any()
    assert not whole[:, 13:].any()
    assert whole[:, :5].any()


def test_gradient_ignores_the_clamp() -> None:
    """The gradient has the clamp's slope where every band is below 1e-10."""
    spectrum = np.zeros((1, 4))
    spectrum[0, 0] = 1e-7
    filters = np.ones((1, 2))
    got = run("log_mel_backward", spectrum, filters, np.ones((1, 1)))
    assert got[0, 0] == pytest.approx(2e-7 * 0.25 / (1e-10 * np.log(10)))


@pytest.mark.parametrize(
    ("shapes", "said"),
    [
        (((3, 16), (4, 4)), r"filters are \[mels, 5\]"),
        (((3, 16), (5,)), r"filters are \[mels, 5\]"),
        (((3, 16), (0, 5)), "at least 1 row"),
        (((3, 15), (4, 5)), "even last axis"),
        (((3, 16), (4, 5), (3, 5)), r"log_mel gives \[3, 4\]"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(
    shapes: tuple[tuple[int, ...], ...], said: str
) -> None:
    """Shapes of filters, or of a gradient, that do not fit are refused."""
    with pytest.raises(ShapeError, match=said):
        added("log_mel" if len(shapes) == 2 else "log_mel_backward", *shapes)


def test_types_that_cannot_hold_the_clamp_are_refused() -> None:
    with pytest.raises(DTypeError, match="1e-10 is 0 in f16"):
        added("log_mel", ((3, 16), "f16"), ((4, 5), "f16"))
    with pytest.raises(DTypeError, match="operands differ"):
        added("log_mel", (3, 16), ((4, 5), "f64"))
