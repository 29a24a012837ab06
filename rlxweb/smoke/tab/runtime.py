"""Pyodide's files: where they are, or how to get them. Nothing is fetched."""

from __future__ import annotations

import json
from pathlib import Path

from rlxweb.errors import UsageError

NEEDED = ("pyodide.mjs", "pyodide.asm.wasm", "pyodide-lock.json")
_BUILT = Path(__file__).resolve().parents[3] / "build" / "site"
HOW = (
    "in a checkout of rlxweb `./dev site` builds a folder that has them; or unpack a "
    "full release of Pyodide and name its folder"
)


def runtime_folder(given: str | None) -> Path:
    """The folder of Pyodide and NumPy: `given` itself, or what a built site has in it.

    given   None for the site that was built in this checkout

    Errors   UsageError where one of the files is missing, with how to get them.
    """
    if given is None and not _BUILT.is_dir():
        why = "this checkout has no built site, and no folder is named"
        raise UsageError("looking for Pyodide", why, hint=HOW)
    folder = (_BUILT if given is None else Path(given)).resolve()
    doing = f"looking for Pyodide in {str(folder)!r}"
    places = (folder, folder / "runtime", folder / "pyodide")
    found = next((p for p in places if (p / NEEDED[0]).is_file()), None)
    if found is None:
        raise UsageError(doing, f"there is no {NEEDED[0]} in it", hint=HOW)
    missing = [name for name in NEEDED if not (found / name).is_file()]
    if missing:
        raise UsageError(doing, f"it lacks {' and '.join(missing)}", hint=HOW)
    wheel = _numpy(doing, found)
    if not (found / wheel).is_file():
        raise UsageError(doing, f"it lacks {wheel}, its NumPy", hint=HOW)
    return found


def _numpy(doing: str, folder: Path) -> str:
    """The name of NumPy's wheel, by the lock file."""
    try:
        lock = json.loads((folder / "pyodide-lock.json").read_bytes())
        return str(lock["packages"]["numpy"]["file_name"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        said = f"pyodide-lock.json names no NumPy ({type(error).__name__}: {error})"
        raise UsageError(doing, said, hint=HOW) from error
