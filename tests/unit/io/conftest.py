"""What the tests of hostile recordings share."""

from __future__ import annotations

import pytest

from rlxweb.io import bounds


@pytest.fixture
def small_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packed data may unpack to a sixteenth of what they may: less has to be packed."""
    monkeypatch.setattr(bounds, "UNPACKED_AT_ONCE_NBYTES", 4 << 20)
