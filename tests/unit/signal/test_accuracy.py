"""How far a spectrum is from the exact one, and who computes that to compare with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlxweb.errors import Inexact
from rlxweb.gpu.drive import drive
from rlxweb.host.decimated import decimation_kernels
from rlxweb.host.welch_kernels import welch_kernels
from rlxweb.signal import accuracy
from rlxweb.signal.accuracy import spectrum_error
from rlxweb.signal.band_engine import DecimatingEngine
from rlxweb.signal.band_peaks import Band
from rlxweb.signal.compiled_engine import COMPILED
from rlxweb.signal.engine import NUMPY_ALONE
from rlxweb.signal.presets import from_preset


def test_it_is_the_root_of_the_mean_square_of_relative_errors() -> None:
    right = np.array([[1.0, 2.0], [4.0, 8.0]])
    found = right * np.array([[1.0, 1.1], [0.9, 1.0]])
    assert spectrum_error(found, right) == pytest.approx(np.sqrt(0.02 / 4), rel=1e-5)
    assert spectrum_error(np.empty((0, 3)), np.empty((0, 3))) == 0.0


def test_weak_bins_are_measured_by_their_rows_strongest() -> None:
    right = np.array([[1.0, 1e-12]], np.float32)
    assert spectrum_error(right + np.float32(1e-9), right) < 1e-3


def test_a_silent_row_is_right_where_it_is_silent() -> None:
    right = np.array([[0.0, 0.0], [1.0, 2.0]])
    assert spectrum_error(right.copy(), right) == 0.0
    heard = right.copy()
    heard[0, 1] = 1e-3
    assert spectrum_error(heard, right) == np.inf


@pytest.mark.requires_fast
def test_compiled_code_is_held_against_compiled_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Errors are judged by compiled code where it is ready, on both sides."""
    spec = from_preset("rlx", 6144, nperseg=256, dtype=np.float32)
    band, error = Band(4, 16), 1e-3
    rng = np.random.default_rng(3)
    x = rng.standard_normal((3, 6144)).astype(np.float32)
    tone = np.sin(2 * np.pi * (0.5 - 10 / 256) * np.arange(6144))
    engine = DecimatingEngine(COMPILED, 2, error)
    right = drive(NUMPY_ALONE.power(x, spec, band))

    def nobody(*given: Any) -> Any:
        raise AssertionError("NumPy was asked")

    monkeypatch.setattr(accuracy, "welch_power", nobody)
    monkeypatch.setenv("RLX_FAST", "wait")
    with decimation_kernels.waiting(), welch_kernels.waiting():
        found = drive(engine.power(x, spec, band))
        assert spectrum_error(found, right) <= error
        with pytest.raises(Inexact):
            drive(engine.power((x + 1e4 * tone).astype(np.float32), spec, band))
    with pytest.raises(AssertionError, match="NumPy"):
        drive(DecimatingEngine(NUMPY_ALONE, 2, error).power(x, spec, band))
