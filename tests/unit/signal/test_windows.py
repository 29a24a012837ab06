"""Windows equal SciPy's by the same names and parameters."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import scipy.signal

from rlxweb.core.errors import UsageError
from rlxweb.signal.windows import get_window, window_names

LENGTHS = (1, 2, 3, 4, 5, 8, 17, 64, 255, 1024)
WINDOWS_WITH_PARAMETERS = (
    ("chebwin", 60.0),
    ("dpss", 0.5),
    ("dpss", 2.5),
    ("dpss", 30.0),
    ("exponential", None, 3.0),
    ("gaussian", 7.0),
    ("general_cosine", (0.5, 0.3, 0.2)),
    ("general_gaussian", 1.5, 7.0),
    ("general_hamming", 0.7),
    ("kaiser", 0.0),
    ("kaiser", 8.6),
    ("taylor", 5, 40.0),
    ("taylor", 3, 35.0, False),
    ("tukey", 0.0),
    ("tukey", 0.25),
    ("tukey", 1.0),
)
WINDOWS_WITHOUT_PARAMETERS = tuple(
    name
    for name in window_names()
    if name not in {w[0] for w in WINDOWS_WITH_PARAMETERS}
    or name in ("taylor", "tukey")
)


@pytest.mark.parametrize(
    "window", WINDOWS_WITHOUT_PARAMETERS + WINDOWS_WITH_PARAMETERS, ids=str
)
def test_equals_scipy(window: object) -> None:
    """Every window agrees to 1e-12 in both forms, from one sample on; dpss to 1e-9."""
    name = window[0] if isinstance(window, tuple) else window
    tolerance = 1e-9 if name == "dpss" else 1e-12
    mismatches = []
    for n, periodic in product(LENGTHS, (True, False)):
        ours = theirs = window
        if isinstance(window, tuple) and name == "general_cosine":
            theirs = (name, np.array(window[1]))
        if isinstance(window, tuple) and name == "dpss":
            ours = theirs = ("dpss", min(window[1], n / 4))
        expected = scipy.signal.get_window(theirs, n, fftbins=periodic)
        got = get_window(ours, n, periodic=periodic)
        if got.shape != expected.shape or not np.abs(got - expected).max() <= tolerance:
            mismatches.append((n, "periodic" if periodic else "symmetric"))
    assert mismatches == []


@pytest.mark.parametrize("alias", ["han", "rect", "brthan", "ksr_symmetric"])
def test_aliases_and_the_symmetric_suffix_are_accepted(alias: str) -> None:
    """SciPy's short names and its `_symmetric` suffix are accepted."""
    window = (alias, 4.0) if alias.startswith("ksr") else alias
    full_name = {"han": "hann", "rect": "boxcar", "brthan": "barthann"}.get(alias)
    full_name = full_name or ("kaiser", 4.0)
    expected = get_window(full_name, 9, periodic=not alias.endswith("_symmetric"))
    np.testing.assert_array_equal(get_window(window, 9), expected)


def test_the_window_of_the_rlx_preset_is_the_symmetric_hann() -> None:
    """The window is ½(1 - cos(2πi/(n - 1))), and one sample is 1."""
    for n in (1, 8):
        got = get_window("hann_symmetric", n)
        np.testing.assert_allclose(got, np.hanning(n), atol=1e-15)


@pytest.mark.parametrize(
    ("window", "message"),
    [
        ("haning", "hann"),
        ("hamning", "did you mean 'hamming'"),
        ("planck", "pass any other window as an array"),
        ("dpss", "got 0 parameters; expected 1"),
        (("dpss", 9.0), "nw must be above 0 and below 8.5"),
        (("chebwin", 1e6), "does not accept"),
        ("kaiser", "got 0 parameters; expected 1"),
        (("hann", 3), "got 1 parameter; expected 0"),
        (("tukey", 0.1, 0.2), "expected 0 to 1"),
        (("kaiser", "wide"), "does not accept"),
        ((), "does not start with a name"),
        ((3, 4), "does not start with a name"),
    ],
)
def test_invalid_windows_are_refused(window: object, message: str) -> None:
    """The message names the window, the rule and the most similar name."""
    with pytest.raises(UsageError, match=message):
        get_window(window, 16)


def test_no_samples_is_refused() -> None:
    with pytest.raises(UsageError, match="the length is 0; must be at least 1"):
        get_window("hann", 0)
