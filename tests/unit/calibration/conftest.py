"""The lab that stands for an engine of known speed."""

from __future__ import annotations

import pytest

from tests.unit.calibration.lab import Lab


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Lab:
    """A lab for an engine's own jobs: a run takes 10 ns, a call of NumPy's 20."""
    made, module = Lab(), "rlxweb.calibration.measure"
    monkeypatch.setattr(f"{module}.empty_run", lambda place: made.job("run", 10))
    monkeypatch.setattr(f"{module}.call_job", lambda place: made.job("call", 20))
    monkeypatch.setattr(f"{module}.compile_job", lambda place: made.job("compile", 70))
    monkeypatch.setattr(f"{module}.kernel_jobs", lambda place: made.named())
    monkeypatch.setattr(f"{module}.TELLING", 0)
    return made
