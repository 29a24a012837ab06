"""Fixture `call` of the sweeps' tests: run `./dev bench sweep` in this process."""

from __future__ import annotations

import pytest

from tests.cli_runners import CommandRunner, make_command_runner


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> CommandRunner:
    """Run `./dev bench sweep ARGS` in this process."""
    from tests.benchmarks.sweep_command import main

    return make_command_runner(main, capsys)
