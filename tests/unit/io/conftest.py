"""Fixture that lowers the limit of unpacked data, for tests of hostile recordings."""

from __future__ import annotations

import pytest

from rlxweb.io import file_limits


@pytest.fixture
def small_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the limit of unpacked data to a sixteenth, so that less has to be
    packed.
    """
    monkeypatch.setattr(file_limits, "UNPACKED_AT_ONCE_NBYTES", 4 << 20)
