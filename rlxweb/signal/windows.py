"""Window functions by scipy.signal's names, computed with NumPy alone.

Owns the formulas, the names and their parameters. It must not know what the windows
are used for: spectra, files and devices are other rooms. `get_window` agrees with
scipy.signal.get_window to 1e-12, dpss to 1e-9. `hann_symmetric` is the window of the
preset `rlx`.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlxweb.core.errors import UsageError, did_you_mean, shown
from rlxweb.core.message_text import Advice, Blank
from rlxweb.signal.tapers import dpss

Window: TypeAlias = NDArray[np.float64]
WindowLike: TypeAlias = str | tuple[object, ...]
Formula: TypeAlias = Callable[..., Window]

_CONTEXT = "window"


def _sample_indices(n: int) -> Window:
    """Return the sample indices 0 … n - 1."""
    return np.arange(n, dtype=np.float64)


def _centered_indices(n: int) -> Window:
    """Return the sample indices relative to the middle of the window."""
    return _sample_indices(n) - (n - 1) / 2.0


def _cosine_sum(*weights: float) -> Formula:
    """Return the formula of a window that is a weighted sum of cosines."""

    def window(n: int) -> Window:
        angle = np.linspace(-np.pi, np.pi, n)
        total = np.zeros(n)
        for order, weight in enumerate(weights):
            total += weight * np.cos(order * angle)
        return total

    return window


_hann = _cosine_sum(0.5, 0.5)


def _triang(n: int) -> Window:
    """Return the triangular window."""
    width = n if n % 2 == 0 else n + 1
    return 1.0 - np.abs(_centered_indices(n)) / (width / 2.0)


def _barthann(n: int) -> Window:
    """Return the modified Bartlett-Hann window."""
    x = np.abs(_sample_indices(n) / (n - 1) - 0.5)
    return 0.62 - 0.48 * x + 0.38 * np.cos(2 * np.pi * x)


def _bohman(n: int) -> Window:
    """Return the Bohman window."""
    x = np.abs(np.linspace(-1, 1, n))
    window = (1 - x) * np.cos(np.pi * x) + np.sin(np.pi * x) / np.pi
    window[[0, -1]] = 0.0
    return window


def _parzen(n: int) -> Window:
    """Return the Parzen window."""
    x = np.abs(_centered_indices(n)) / (n / 2.0)
    inner = 1 - 6 * x**2 + 6 * x**3
    outer = 2 * (1 - x) ** 3
    return np.where(np.abs(_centered_indices(n)) <= (n - 1) / 4.0, inner, outer)


def _tukey(n: int, alpha: float = 0.5) -> Window:
    """Return the Tukey (tapered cosine) window."""
    if alpha <= 0:
        return np.ones(n)
    if alpha >= 1:
        return _hann(n)
    from_edge = (n - 1) / 2.0 - np.abs(_centered_indices(n))
    rise = 0.5 * (1 - np.cos(2 * np.pi * from_edge / (alpha * (n - 1))))
    width = int(np.floor(alpha * (n - 1) / 2.0))
    return np.where(from_edge <= width, rise, 1.0)


def _kaiser(n: int, beta: float) -> Window:
    """Return the Kaiser window."""
    x = _centered_indices(n) / ((n - 1) / 2.0)
    return np.i0(beta * np.sqrt(np.maximum(1 - x**2, 0.0))) / np.i0(beta)


def _exponential(n: int, center: float | None = None, tau: float = 1.0) -> Window:
    """Return the exponential (Poisson) window."""
    middle = (n - 1) / 2.0 if center is None else center
    return np.exp(-np.abs(_sample_indices(n) - middle) / tau)


def _taylor(n: int, nbar: int = 4, sll: float = 30.0, norm: bool = True) -> Window:
    """Return the Taylor window."""
    a = np.arccosh(10 ** (sll / 20)) / np.pi
    m = np.arange(1, nbar, dtype=np.float64)
    dilation = nbar**2 / (a**2 + (nbar - 0.5) ** 2)
    zeros = dilation * (a**2 + (m - 0.5) ** 2)
    weights = np.empty(len(m))
    for i, order in enumerate(m):
        others = np.delete(m, i)
        weights[i] = np.prod(1 - order**2 / zeros) / (
            2 * np.prod(1 - order**2 / others**2)
        )
    weights[1::2] *= -1
    x = np.append(_centered_indices(n), 0.0) / n
    window = 1 + 2 * weights @ np.cos(2 * np.pi * m[:, None] * x)
    return (window / window[-1] if norm else window)[:-1]


def _chebwin(n: int, at: float) -> Window:
    """Return the Dolph-Chebyshev window."""
    order = n - 1
    beta = np.cosh(np.arccosh(10 ** (abs(at) / 20.0)) / order)
    x = beta * np.cos(np.pi * _sample_indices(n) / n)
    inside = np.cos(order * np.arccos(np.clip(x, -1, 1)))
    outside = np.cosh(order * np.arccosh(np.maximum(np.abs(x), 1.0)))
    # The polynomial of degree n - 1 is odd for even n, so its left arm is negative.
    outside = np.where((x < 0) & (order % 2 == 1), -outside, outside)
    spectrum = np.where(np.abs(x) > 1, outside, inside)
    if n % 2:
        half = np.fft.fft(spectrum).real[: (n + 1) // 2]
        window = np.concatenate((half[:0:-1], half))
    else:
        shifted_spectrum = spectrum * np.exp(1j * np.pi / n * _sample_indices(n))
        half = np.fft.fft(shifted_spectrum).real[1 : n // 2 + 1]
        window = np.concatenate((half[::-1], half))
    scaled: Window = window / window.max()
    return scaled


def _dpss(n: int, nw: float) -> Window:
    """Return the first Slepian taper as a window, with a maximum of 1."""
    if not 0 < nw < n / 2:
        raise ValueError(f"nw must be above 0 and below {n / 2:g}")
    window = dpss(n, nw, 1, periodic=False).values[0]
    window = window / window.max()
    # The maximum of an even number lies between two samples.
    scaled: Window = window if n % 2 else window * n**2 / (n**2 + nw)
    return scaled


# Each takes the length of the symmetric form, and then the window's own parameters.
_FORMULAS: dict[str, Formula] = {
    "barthann brthan bth": _barthann,
    "bartlett bart brt": lambda n: 1.0 - np.abs(_centered_indices(n)) / ((n - 1) / 2.0),
    "blackman black blk": _cosine_sum(0.42, 0.50, 0.08),
    "blackmanharris blackharr bkh": _cosine_sum(0.35875, 0.48829, 0.14128, 0.01168),
    "bohman bman bmn": _bohman,
    "boxcar box ones rect rectangular": lambda n: np.ones(n),
    "chebwin cheb": _chebwin,
    "cosine halfcosine": lambda n: np.sin(np.pi / n * (_sample_indices(n) + 0.5)),
    "dpss": _dpss,
    "exponential poisson": _exponential,
    "flattop flat flt": _cosine_sum(
        0.21557895, 0.41663158, 0.277263158, 0.083578947, 0.006947368
    ),
    "gaussian gauss gss": lambda n, std: np.exp(
        -0.5 * (_centered_indices(n) / std) ** 2
    ),
    "general_cosine": lambda n, w: _cosine_sum(*np.asarray(w, np.float64))(n),
    "general_gaussian general_gauss ggs": lambda n, p, sig: np.exp(
        -0.5 * np.abs(_centered_indices(n) / sig) ** (2 * p)
    ),
    "general_hamming": lambda n, alpha: _cosine_sum(alpha, 1.0 - alpha)(n),
    "hamming hamm ham": _cosine_sum(0.54, 0.46),
    "hann han": _hann,
    "kaiser ksr": _kaiser,
    "lanczos sinc": lambda n: np.sinc(np.abs(_centered_indices(n)) / ((n - 1) / 2.0)),
    "nuttall nutl nut": _cosine_sum(0.3635819, 0.4891775, 0.1365995, 0.0106411),
    "parzen parz par": _parzen,
    "taylor taylorwin": _taylor,
    "triang triangle tri": _triang,
    "tukey tuk": _tukey,
}
_FORMULA_BY_NAME = {name: f for names, f in _FORMULAS.items() for name in names.split()}


def window_names() -> tuple[str, ...]:
    """Return the main name of every window, in alphabetical order."""
    return tuple(sorted(names.split()[0] for names in _FORMULAS))


def _parse_window(
    window: WindowLike, periodic: bool
) -> tuple[str, tuple[object, ...], bool]:
    """Return name, parameters and form of a window; the name may end in `_periodic` or
    `_symmetric`, as in SciPy.
    """
    head, params = (window, ()) if isinstance(window, str) else (window[:1], window[1:])
    name = head if isinstance(head, str) else (head[0] if head else None)
    if not isinstance(name, str):
        raise UsageError(
            _CONTEXT,
            f"the window {shown(window)} does not start with a name",
            "",
            "pass a name or a tuple like ('kaiser', 8.6)",
        )
    for ending, is_periodic in (("_periodic", True), ("_symmetric", False)):
        if name.endswith(ending):
            name, periodic = name.removesuffix(ending), is_periodic
    return name.replace(" ", "_"), tuple(params), periodic


def _find_formula(name: str, n_params: int) -> Formula:
    """Return the formula of a named window. Raises UsageError for an unknown name or a
    wrong number of parameters.
    """
    formula = _FORMULA_BY_NAME.get(name)
    if formula is None:
        suggestion = did_you_mean(name, _FORMULA_BY_NAME, least=0.5)
        raise UsageError(
            _CONTEXT,
            f"no window is named {name!r}",
            f"known: {', '.join(window_names())}",
            f"{suggestion} pass any other window as an array".lstrip(),
        )
    _, *parameters = signature(formula).parameters.values()
    required, allowed = sum(p.default is p.empty for p in parameters), len(parameters)
    if not required <= n_params <= allowed:
        allowed_text = (
            f"{required} to {allowed}" if required < allowed else str(allowed)
        )
        raise UsageError(
            _CONTEXT,
            f"{name!r} got {n_params} parameter{'s' * (n_params != 1)}",
            f"expected {allowed_text}",
            Advice("pass its parameters: {}", window=(name, Blank("…")))
            if allowed
            else "",
        )
    return formula


def get_window(window: WindowLike, n: int, *, periodic: bool = True) -> Window:
    """Return the samples of a named window, float64, equal to scipy.signal.get_window.

    Shapes   window: a name or a tuple (name, parameters…) → (n,)
    Numerics float64, within 1e-12 of scipy (dpss: 1e-9); periodic is its fftbins=True
    Errors   UsageError for an unknown name, wrong parameters, or n < 1
    """
    if n < 1:
        raise UsageError(_CONTEXT, f"the length is {n}", "must be at least 1")
    name, params, periodic = _parse_window(window, periodic)
    formula = _find_formula(name, len(params))
    if n == 1:
        return np.ones(1)
    try:
        with np.errstate(all="ignore"):  # whether all are finite is told by its user
            samples = formula(n + 1 if periodic else n, *params)
    except (TypeError, ValueError, ArithmeticError) as error:
        raise UsageError(
            _CONTEXT,
            f"the window {name!r} does not accept the parameters {shown(params)}",
            str(error),
            "pass plain numbers" if isinstance(error, TypeError) else "",
        ) from error
    return samples[:n]
