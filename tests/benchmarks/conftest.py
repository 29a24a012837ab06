"""`call` of the sweeps' tests: `./dev bench sweep` in this process."""

from __future__ import annotations

import pytest

from tests.command_line import Call, caller


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs `./dev bench sweep ARGS` in this process."""
    from tests.benchmarks.picker import main

    return caller(main, capsys)
