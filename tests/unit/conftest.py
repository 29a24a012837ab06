"""What tests of the picker share: a machine that nobody has measured or used yet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rlxweb.backends.registry import ROWS, Row
from rlxweb.calibration.corrections import corrections
from rlxweb.calibration.store import store
from rlxweb.calibration.worth import worth
from rlxweb.choose.chooser import recent
from rlxweb.devices.place import CPU
from tests.unit.signal.pretend_gpu import LABEL, PLACE, QUICK, SLOW, PretendGpu

VARIABLES = ("DEVICE", "DEVICES", "DENY_DEVICES", "PREFER_DEVICES", "BENCHMARK_PICK")


def forget() -> None:
    """Drop what this process remembers of engines and jobs."""
    store.forget()
    corrections.forget()
    recent.forget()


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Nothing measured, learned, picked or spent, and no word of the environment."""
    for name in VARIABLES:
        monkeypatch.delenv(f"RLX_{name}", raising=False)
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(worth, "spent_ns", 0.0)
    forget()
    yield
    forget()


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, fresh: None) -> Iterator[PretendGpu]:
    """A machine with a CPU and one made-up GPU, called "tpu", and no other device."""
    made = PretendGpu()
    for label in [label for label in ROWS if label != "cpu"]:
        monkeypatch.delitem(ROWS, label)
    monkeypatch.setitem(ROWS, LABEL, Row(made.open))
    yield made
    made.forget()


@pytest.fixture
def two(gpu: PretendGpu) -> PretendGpu:
    """The same machine with both engines measured."""
    SLOW.give_to(CPU)
    QUICK.give_to(PLACE)
    return gpu
