"""Fixture of a calibration on a fake clock, which stands for an engine of known
speed.
"""

from __future__ import annotations

import pytest

from tests.unit.select.calibration.fake_clock_calibration import CalibrationLab


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> CalibrationLab:
    """Provide a lab for an engine's own jobs: a run takes 10 ns, a NumPy call 20."""
    calibration_lab, module = (
        CalibrationLab(),
        "rlxweb.select.calibration.measure_engine",
    )
    monkeypatch.setattr(
        f"{module}.empty_run_job", lambda place: calibration_lab.make_job("run", 10)
    )
    monkeypatch.setattr(
        f"{module}.call_job", lambda place: calibration_lab.make_job("call", 20)
    )
    monkeypatch.setattr(
        f"{module}.compile_job", lambda place: calibration_lab.make_job("compile", 70)
    )
    monkeypatch.setattr(
        f"{module}.kernel_jobs", lambda place: calibration_lab.named_kernels()
    )
    monkeypatch.setattr(f"{module}.ESSENTIAL_KERNEL_COUNT", 0)
    return calibration_lab
