"""Folder of Pyodide's files: find it, or explain how to get it. Nothing is
downloaded.
"""

from __future__ import annotations

import json
from pathlib import Path

from rlxweb.core.errors import UsageError

REQUIRED_FILES = ("pyodide.mjs", "pyodide.asm.wasm", "pyodide-lock.json")
_BUILT_SITE = Path(__file__).resolve().parents[3] / "build" / "site"
INSTALL_HINT = (
    "run `./dev site` in a checkout of rlxweb, or unpack a full release of Pyodide and "
    "pass its folder"
)


def find_pyodide_folder(folder_option: str | None) -> Path:
    """Return the folder of Pyodide and NumPy: the given one, or the one inside a built
    site.

    folder_option  None for the site that was built in this checkout

    Errors   UsageError where one of the files is missing, with how to get them.
    """
    if folder_option is None and not _BUILT_SITE.is_dir():
        reason = "no folder is given and this checkout has no built site"
        raise UsageError("looking for Pyodide", reason, hint=INSTALL_HINT)
    folder = (_BUILT_SITE if folder_option is None else Path(folder_option)).resolve()
    context = f"looking for Pyodide in {str(folder)!r}"
    candidates = (folder, folder / "runtime", folder / "pyodide")
    pyodide_folder = next(
        (
            candidate
            for candidate in candidates
            if (candidate / REQUIRED_FILES[0]).is_file()
        ),
        None,
    )
    if pyodide_folder is None:
        raise UsageError(context, f"{REQUIRED_FILES[0]} is missing", hint=INSTALL_HINT)
    missing = [name for name in REQUIRED_FILES if not (pyodide_folder / name).is_file()]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        reason = f"{' and '.join(missing)} {verb} missing"
        raise UsageError(context, reason, hint=INSTALL_HINT)
    wheel = _numpy_wheel_name(context, pyodide_folder)
    if not (pyodide_folder / wheel).is_file():
        reason = f"the NumPy wheel {wheel} is missing"
        raise UsageError(context, reason, hint=INSTALL_HINT)
    return pyodide_folder


def _numpy_wheel_name(context: str, folder: Path) -> str:
    """Return the file name of NumPy's wheel from the lock file."""
    try:
        lock = json.loads((folder / "pyodide-lock.json").read_bytes())
        return str(lock["packages"]["numpy"]["file_name"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = (
            f"pyodide-lock.json has no NumPy entry ({type(error).__name__}: {error})"
        )
        raise UsageError(context, reason, hint=INSTALL_HINT) from error
