"""`call` of the sweeps' tests: `./dev bench sweep` in this process."""

from __future__ import annotations

import pytest

from tests.command_line import Call, Said


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs `./dev bench sweep ARGS` in this process; a fixture of the tests."""
    from tests.benchmarks.picker import main

    def run(*args: object) -> Said:
        capsys.readouterr()
        with pytest.raises(SystemExit) as done:
            main([str(arg) for arg in args])
        said = capsys.readouterr()
        return Said(int(str(done.value.code or 0)), said.out, said.err)

    return run
