"""`./dev test wasm [PYTEST ARGUMENTS]`: the unit tests in Pyodide, under node.

Without arguments all of them; `tests/unit/ir -k reshape` are some.
"""

from __future__ import annotations

import subprocess
import sys

from tests.cli_runners import ROOT
from tests.wasm.pyodide_setup import prepare_pyodide

TIMEOUT_S = 3600
PYTEST_OPTIONS = ("-q", "-p", "no:cacheprovider", "--capture=sys")


def main(words: list[str]) -> int:
    """Run pytest with its output passed through, and return its exit code."""
    paths = [word for word in words if not word.startswith("-")]
    arguments = words if paths else ["tests/unit", *words]
    command = prepare_pyodide().command(*PYTEST_OPTIONS, *arguments)
    process = subprocess.run(command, cwd=ROOT, check=False, timeout=TIMEOUT_S)
    return process.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
