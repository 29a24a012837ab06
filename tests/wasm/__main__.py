"""`./dev test wasm [PYTEST ARGUMENTS]`: the unit tests in Pyodide, under node.

Without arguments all of them; `tests/unit/ir -k reshape` are some.
"""

from __future__ import annotations

import subprocess
import sys

from tests.command_line import ROOT
from tests.wasm.ready import make_ready

PATIENCE_S = 3600
ALWAYS = ("-q", "-p", "no:cacheprovider", "--capture=sys")


def main(words: list[str]) -> int:
    """Run, show everything as it comes, and hand on the exit code."""
    places = [word for word in words if not word.startswith("-")]
    asked = words if places else ["tests/unit", *words]
    command = make_ready().command(*ALWAYS, *asked)
    done = subprocess.run(command, cwd=ROOT, check=False, timeout=PATIENCE_S)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
