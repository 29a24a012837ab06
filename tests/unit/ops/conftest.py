"""Fixtures of the tests of ops."""

from __future__ import annotations

import pytest


@pytest.fixture
def wait_for_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile a kernel before its first use."""
    monkeypatch.setenv("RLX_FAST", "wait")
