"""What tests of the picker share: a machine that nobody has measured or used yet."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import Mock

import pytest

from rlxweb.backends.registry import ROWS, Row
from rlxweb.devices.place import CPU
from tests.unit.signal.pretend_gpu import LABEL, PLACE, QUICK, SLOW, PretendGpu


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[PretendGpu]:
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


@pytest.fixture
def nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever looks for other devices fails."""
    never = Mock(side_effect=AssertionError("other devices were looked for"))
    monkeypatch.setattr("rlxweb.choose.chooser.available_places", never)
