"""Command line entry point of `rlxweb` and `python -m rlxweb`."""

from __future__ import annotations

import warnings

from rlxweb.cli.termination_signals import process_signals

process_signals.install_handlers()  # before anything that takes time is imported

_DEVELOPER_WARNINGS = (
    *(DeprecationWarning, PendingDeprecationWarning),
    *(ImportWarning, ResourceWarning),
)
"""Warning categories that Python itself hides from users."""


def run() -> None:
    """Run the command line with the arguments of this process."""
    # Whatever PYTHONWARNINGS says, a warning of a library does not end a command. In
    # `main` this would hide those warnings from the tests.
    warnings.resetwarnings()
    for category in _DEVELOPER_WARNINGS:
        warnings.simplefilter("ignore", category)
    exit_code = None
    try:
        from rlxweb.cli.main import main

        main()
    except SystemExit as system_exit:
        exit_code = int(system_exit.code or 0)
        raise
    finally:
        process_signals.end_command(exit_code)


if __name__ == "__main__":
    run()
