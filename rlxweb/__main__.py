"""`rlxweb` and `python -m rlxweb`: the command line, stopped quietly at any moment."""

from __future__ import annotations

import warnings

from rlxweb.cli.signals import signals

signals.take()  # before anything that takes time is imported


def run() -> None:
    """The command line, with the arguments of this process."""
    # Whatever PYTHONWARNINGS says: what a library calls by an old name ends nothing.
    warnings.simplefilter("ignore", DeprecationWarning)
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
