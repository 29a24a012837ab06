"""Windows are scipy's windows, by the same names and parameters."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import scipy.signal

from rlxweb.errors import UsageError
from rlxweb.signal.windows import get_window, window_names

LENGTHS = (1, 2, 3, 4, 5, 8, 17, 64, 255, 1024)
WITH_PARAMETERS = (
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
BARE = tuple(
    name
    for name in window_names()
    if name not in {w[0] for w in WITH_PARAMETERS} or name in ("taylor", "tukey")
)


@pytest.mark.parametrize("window", BARE + WITH_PARAMETERS, ids=str)
def test_equals_scipy(window: object) -> None:
    """Every window agrees to 1e-12 in both forms, from one sample on; dpss to 1e-9."""
    name = window[0] if isinstance(window, tuple) else window
    near = 1e-9 if name == "dpss" else 1e-12
    wrong = []
    for n, periodic in product(LENGTHS, (True, False)):
        ours = theirs = window
        if isinstance(window, tuple) and name == "general_cosine":
            theirs = (name, np.array(window[1]))
        if isinstance(window, tuple) and name == "dpss":
            ours = theirs = ("dpss", min(window[1], n / 4))
        wanted = scipy.signal.get_window(theirs, n, fftbins=periodic)
        got = get_window(ours, n, periodic=periodic)
        if got.shape != wanted.shape or not np.abs(got - wanted).max() <= near:
            wrong.append((n, "periodic" if periodic else "symmetric"))
    assert wrong == []


@pytest.mark.parametrize("alias", ["han", "rect", "brthan", "ksr_symmetric"])
def test_an_alias_and_an_ending_are_understood(alias: str) -> None:
    """The short names of scipy and its `_symmetric` ending work here too."""
    window = (alias, 4.0) if alias.startswith("ksr") else alias
    plain = {"han": "hann", "rect": "boxcar", "brthan": "barthann"}.get(alias)
    plain = plain or ("kaiser", 4.0)
    wanted = get_window(plain, 9, periodic=not alias.endswith("_symmetric"))
    np.testing.assert_array_equal(get_window(window, 9), wanted)


def test_the_window_of_the_rlx_preset_is_the_symmetric_hann() -> None:
    """½(1 - cos(2πi/(n - 1))), and one sample is 1."""
    for n in (1, 8):
        got = get_window("hann_symmetric", n)
        np.testing.assert_allclose(got, np.hanning(n), atol=1e-15)


@pytest.mark.parametrize(
    ("window", "said"),
    [
        ("haning", "hann"),
        ("hamning", "did you mean 'hamming'"),
        ("planck", "any other window can be given as an array"),
        ("dpss", "was given 0 parameters; it takes 1"),
        (("dpss", 9.0), "between 0 and half the length, 8.5"),
        (("chebwin", 1e6), "cannot use"),
        ("kaiser", "was given 0 parameters; it takes 1"),
        (("hann", 3), "was given 1 parameters; it takes 0"),
        (("tukey", 0.1, 0.2), "it takes 0 to 1"),
        (("kaiser", "wide"), "cannot use"),
        ((), "does not start with a name"),
        ((3, 4), "does not start with a name"),
    ],
)
def test_a_wrong_window_is_refused(window: object, said: str) -> None:
    """The message names the window, the rule and the nearest name."""
    with pytest.raises(UsageError, match=said):
        get_window(window, 16)


def test_no_samples_is_refused() -> None:
    with pytest.raises(UsageError, match="the length is 0; it must be at least 1"):
        get_window("hann", 0)
