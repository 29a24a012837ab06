"""Runs inside Pyodide: /bytecode.zip with the bytecode of what a page imports.

Unchecked pyc files, as PEP 552 has them: the lock file pins them and their sources.
"""

import sys
import zipfile
from pathlib import Path
from py_compile import PycInvalidationMode, compile

import numpy as np

import rlxweb

SITE = Path(np.__file__).parents[1]
SAME_DATE = (1980, 1, 1, 0, 0, 0)  # the same bytes whenever it is built


def sources() -> list[Path]:
    """The modules that importing rlxweb and a first result have loaded."""
    rlxweb.welch_peaks(np.zeros((1, 256), np.float32), device="cpu")
    files = (getattr(module, "__file__", None) for module in sys.modules.values())
    paths = {Path(file) for file in files if file and file.endswith(".py")}
    ours = {path for path in (SITE / "rlxweb").rglob("*.py") if "cli" not in path.parts}
    return sorted(ours | {path for path in paths if path.is_relative_to(SITE)})


with zipfile.ZipFile("/bytecode.zip", "w", zipfile.ZIP_DEFLATED) as archive:
    for source in sources():
        cached = compile(
            str(source),
            doraise=True,
            invalidation_mode=PycInvalidationMode.UNCHECKED_HASH,
        )
        name = str(Path(cached).relative_to(SITE))
        entry = zipfile.ZipInfo(name, SAME_DATE)
        entry.compress_type = zipfile.ZIP_DEFLATED
        archive.writestr(entry, Path(cached).read_bytes())
