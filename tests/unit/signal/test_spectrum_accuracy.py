"""Accuracy of a spectrum: its error against the exact one, and the engine that computes
the exact one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlxweb.core.errors import Inexact
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.ops.welch.cpu.decimate_rows import decimation_kernels
from rlxweb.ops.welch.cpu.kernel_cache import welch_kernels
from rlxweb.signal import spectrum_accuracy
from rlxweb.signal.band_engine import DecimatingEngine
from rlxweb.signal.compiled_welch_engine import COMPILED_ENGINE
from rlxweb.signal.frequency_bins import BinRange
from rlxweb.signal.presets import spec_from_preset
from rlxweb.signal.spectrum_accuracy import spectrum_error
from rlxweb.signal.welch_engine import NUMPY_ENGINE_WITHOUT_COMPILE


def test_error_is_the_rms_of_relative_errors() -> None:
    expected = np.array([[1.0, 2.0], [4.0, 8.0]])
    computed = expected * np.array([[1.0, 1.1], [0.9, 1.0]])
    assert spectrum_error(computed, expected) == pytest.approx(
        np.sqrt(0.02 / 4), rel=1e-5
    )
    assert spectrum_error(np.empty((0, 3)), np.empty((0, 3))) == 0.0


def test_weak_bins_are_relative_to_the_strongest_bin() -> None:
    expected = np.array([[1.0, 1e-12]], np.float32)
    assert spectrum_error(expected + np.float32(1e-9), expected) < 1e-3


def test_silent_rows_must_stay_silent() -> None:
    expected = np.array([[0.0, 0.0], [1.0, 2.0]])
    assert spectrum_error(expected.copy(), expected) == 0.0
    noisy = expected.copy()
    noisy[0, 1] = 1e-3
    assert spectrum_error(noisy, expected) == np.inf


@pytest.mark.requires_fast
def test_compiled_engines_are_checked_by_compiled_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Compiled code computes both sides of the check where it is ready."""
    spec = spec_from_preset("rlx", 6144, nperseg=256, dtype=np.float32)
    band, error = BinRange(4, 16), 1e-3
    rng = np.random.default_rng(3)
    x = rng.standard_normal((3, 6144)).astype(np.float32)
    tone = np.sin(2 * np.pi * (0.5 - 10 / 256) * np.arange(6144))
    engine = DecimatingEngine(COMPILED_ENGINE, 2, error)
    expected = run_blocking(NUMPY_ENGINE_WITHOUT_COMPILE.power(x, spec, band))

    def fail_if_called(*args: Any) -> Any:
        raise AssertionError("NumPy was asked")

    monkeypatch.setattr(spectrum_accuracy, "welch_power", fail_if_called)
    monkeypatch.setenv("RLX_FAST", "wait")
    with decimation_kernels.wait_for_kernels(), welch_kernels.wait_for_kernels():
        computed = run_blocking(engine.power(x, spec, band))
        assert spectrum_error(computed, expected) <= error
        with pytest.raises(Inexact):
            run_blocking(engine.power((x + 1e4 * tone).astype(np.float32), spec, band))
    with pytest.raises(AssertionError, match="NumPy"):
        run_blocking(
            DecimatingEngine(NUMPY_ENGINE_WITHOUT_COMPILE, 2, error).power(
                x, spec, band
            )
        )
