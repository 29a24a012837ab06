"""`rlxweb` and `python -m rlxweb`: the command line, stopped quietly at any moment."""

from __future__ import annotations

import warnings

from rlxweb.cli.signals import signals

signals.take()  # before anything that takes time is imported

_FOR_DEVELOPERS = (
    *(DeprecationWarning, PendingDeprecationWarning),
    *(ImportWarning, ResourceWarning),
)
"""The kinds that Python itself hides from users."""


def run() -> None:
    """The command line, with the arguments of this process."""
    # Whatever PYTHONWARNINGS says, a warning of a library does not end a command. In
    # `main` this would hide those warnings from the tests.
    warnings.resetwarnings()
    for kind in _FOR_DEVELOPERS:
        warnings.simplefilter("ignore", kind)
    code = None
    try:
        from rlxweb.cli.main import main

        main()
    except SystemExit as done:
        code = int(done.code or 0)
        raise
    finally:
        signals.end(code)


if __name__ == "__main__":
    run()
