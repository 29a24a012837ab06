"""The files of a model: of a package that is installed, of a folder, or as bytes.

A package is found by its name and never imported: its code is not ours to run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rlxweb.errors import ModelError, UsageError, not_installed, shown
from rlxweb.given import named
from rlxweb.graphfile.strict_json import Refused, check_depth
from rlxweb.whole_file import reason

MOST_TEXT = 64 << 20

Files = str | os.PathLike[str] | Mapping[str, bytes]


class ModelFiles:
    """Files by name, wherever they are. `doing` begins the messages of what is wrong.

    name  what to call the model
    """

    def __init__(
        self, files: Path | Mapping[str, bytes], doing: str, name: str = ""
    ) -> None:
        self.doing = doing
        self._files = files
        own = files.name if isinstance(files, Path) else ""
        self.name = name or own or "model"

    def source(self, name: str) -> Path | bytes:
        """A file as `load_weights` takes it. Errors  ModelError, UsageError."""
        if isinstance(self._files, Path):
            path = self._files / name
            if not path.is_file():
                hint = f"it should lie in {self._files}"
                raise ModelError(self.doing, f"there is no {name}", hint=hint)
            return path
        if name not in self._files:
            given = ", ".join(map(shown, self._files)) or "none"
            rule = f"files were given: {given}"
            raise ModelError(self.doing, f"there is no {name}", rule)
        raw = self._files[name]
        if not isinstance(raw, bytes | bytearray | memoryview):
            raise UsageError(self.doing, f"{name} is {named(raw)}", "bytes are wanted")
        return bytes(raw)

    def has(self, name: str) -> bool:
        if isinstance(self._files, Path):
            return (self._files / name).is_file()
        return name in self._files

    def read(self, name: str) -> bytes:
        """The bytes of a small file. Errors  ModelError."""
        source = self.source(name)
        try:
            nbytes = len(source) if isinstance(source, bytes) else source.stat().st_size
            if nbytes > MOST_TEXT:
                rule = f"at most {MOST_TEXT:,}"
                raise ModelError(self.doing, f"{name} has {nbytes:,} bytes", rule)
            return source if isinstance(source, bytes) else source.read_bytes()
        except OSError as error:
            problem = f"the system cannot read {name} ({reason(error)})"
            raise ModelError(self.doing, problem) from error

    def json(self, name: str) -> Any:
        """What a file of JSON holds. Errors  ModelError."""
        raw = self.read(name)
        try:
            text = raw.decode()
            check_depth(text)
            return json.loads(text)
        except Refused as error:
            problem = f"{name} has {error.problem}"
            raise ModelError(self.doing, problem, error.rule) from None
        except (ValueError, RecursionError):
            raise ModelError(self.doing, f"{name} is no JSON") from None

    def object(self, name: str) -> dict[str, Any]:
        """A file that holds one JSON object. Errors  ModelError."""
        said = self.json(name)
        if not isinstance(said, dict):
            raise ModelError(self.doing, f"{name} is {shown(said)}", "an object")
        return said


def model_files(
    given: Files | None, package: str, inside: str, doing: str
) -> ModelFiles:
    """The files that were named, or those of an installed package.

    package  as Python calls it; its files lie in the folder `inside` of it
    Errors   Unsupported where it is not installed; ModelError for no folder
    """
    if given is None:
        name = package.replace("_", "-")
        return ModelFiles(installed(package, doing) / inside, doing, name)
    if isinstance(given, Mapping):
        return ModelFiles(given, doing)
    try:
        folder = Path(os.fsdecode(given))
    except TypeError:
        wanted = "a folder, or bytes by file name"
        raise UsageError(doing, f"{named(given)} was given", wanted) from None
    if not folder.is_dir():
        problem = f"{shown(str(folder))} is no folder"
        raise ModelError(doing, problem, hint="name the folder with the model's files")
    return ModelFiles(folder, doing)


def installed(
    package: str, doing: str, wanted: str = "a folder with the model's files"
) -> Path:
    """Where a package lies; it is not imported.

    wanted   what may be named instead
    Errors   Unsupported where it is not installed
    """
    try:
        spec = find_spec(package)
    except (ImportError, ValueError):
        spec = None
    places = list(spec.submodule_search_locations or ()) if spec else []
    if not places:
        name = package.replace("_", "-")
        hint = f"pip install {name}, or name {wanted}"
        raise not_installed(doing, name, hint)
    return Path(places[0])
