"""Fixtures of a machine with a CPU and one fake GPU, unmeasured and unused, for tests
of device choice.
"""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import Mock

import pytest

from rlxweb.engines.registry import ROWS, Row
from rlxweb.select.device_and_adapter import CPU_PLACE
from tests.unit.signal.fake_gpu import (
    CPU_SPEED,
    DEVICE_LABEL,
    GPU_PLACE,
    GPU_SPEED,
    FakeGpu,
)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGpu]:
    """A machine with a CPU and one made-up GPU, called "tpu", and no other device."""
    pretend_gpu = FakeGpu()
    for label in [label for label in ROWS if label != "cpu"]:
        monkeypatch.delitem(ROWS, label)
    monkeypatch.setitem(ROWS, DEVICE_LABEL, Row(pretend_gpu.open))
    yield pretend_gpu
    pretend_gpu.reset()


@pytest.fixture
def two(gpu: FakeGpu) -> FakeGpu:
    """The same machine with both engines measured."""
    CPU_SPEED.save_calibration(CPU_PLACE)
    GPU_SPEED.save_calibration(GPU_PLACE)
    return gpu


@pytest.fixture
def nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail any test that looks for other devices."""
    failing_search = Mock(side_effect=AssertionError("other devices were looked for"))
    monkeypatch.setattr("rlxweb.select.chooser.available_places", failing_search)
