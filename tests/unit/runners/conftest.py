"""The made-up devices that the tests of this room share."""

from __future__ import annotations

import pytest

from rlxweb.runners import resolver
from tests.unit.runners.fakes import THREE, FakeMachine, only_there


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> FakeMachine:
    """Three devices are there, and these are they."""
    only_there(monkeypatch, *THREE)
    monkeypatch.setattr(resolver, "is_available", lambda d: d in THREE)
    return FakeMachine()
