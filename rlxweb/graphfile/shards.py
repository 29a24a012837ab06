"""The tensors of one safetensors file, or of the several that an index names."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlxweb.errors import GraphFileError, shown
from rlxweb.graphfile.layout import (
    FOREIGN_HEADER,
    Entry,
    Layout,
    check_name,
    read_layout,
)
from rlxweb.graphfile.opened import Source, opened
from rlxweb.graphfile.strict_json import Cursor, Refused, check_depth

ONE, INDEX = "model.safetensors", "model.safetensors.index.json"
MOST_FILES = 10_000


@dataclass(frozen=True, slots=True)
class Held:
    """A tensor and the file it lies in."""

    layout: Layout
    entry: Entry


def tensors_of(source: Source, doing: str) -> dict[str, Held]:
    """All tensors by name: of a file, of an index with its files, of a folder.

    Errors   GraphFileError.
    """
    path = Path(source) if isinstance(source, str | os.PathLike) else None
    if path is not None and path.is_dir():
        path = _in_folder(path, doing)
        source = path
    name, data = opened(source, doing)
    doing = f"{doing} from {shown(name)}" if name else doing
    if path is not None and path.suffix == ".json":
        if len(data) > FOREIGN_HEADER:
            rule = f"an index has at most {FOREIGN_HEADER:,}"
            raise GraphFileError(doing, f"it has {len(data):,} bytes", rule)
        return _of_index(path, data.tobytes(), doing)
    layout = read_layout(data, doing)
    return {name: Held(layout, entry) for name, entry in layout.entries.items()}


def _in_folder(folder: Path, doing: str) -> Path:
    for name in (ONE, INDEX):
        if (folder / name).is_file():
            return folder / name
    raise GraphFileError(
        f"{doing} from {shown(str(folder))}",
        f"the folder has no {ONE} and no {INDEX}",
        hint="name the file",
    )


def _of_index(path: Path, raw: bytes, doing: str) -> dict[str, Held]:
    """Each tensor from the file that the index says it is in."""
    files = _weight_map(raw, doing)
    layouts: dict[str, Layout] = {}
    found: dict[str, Held] = {}
    for name, file in files.items():
        if file not in layouts:
            _, data = opened(path.parent / file, doing)
            layouts[file] = read_layout(data, f"{doing}, {shown(file)}")
        entry = layouts[file].entries.get(name)
        if entry is None:
            raise GraphFileError(
                doing,
                f"tensor {shown(name)} is said to be in {shown(file)}",
                "it is not there",
                "fetch the files again; they are not of one model",
            )
        found[name] = Held(layouts[file], entry)
    return found


def _weight_map(raw: bytes, doing: str) -> dict[str, str]:
    """Files by tensor. A file lies beside the index: no path is followed."""
    try:
        text = raw.decode()
        check_depth(text)
        files = _mapped(Cursor(text))
    except UnicodeDecodeError as error:
        raise GraphFileError(doing, "it is no text", "UTF-8") from error
    except Refused as error:
        at = len(text[: error.at].encode())
        raise GraphFileError(doing, error.problem, error.rule, offset=at) from None
    return files


def _mapped(cursor: Cursor) -> dict[str, str]:
    files: dict[str, str] = {}
    for key, at in cursor.members():
        if key != "weight_map":
            cursor.skip_value()
            continue
        value: Any = cursor.value()
        if not isinstance(value, dict):
            raise Refused("its weight_map is no object", "files by tensor", at)
        for name, file in value.items():
            check_name(name, "the name of a tensor", at)
            check_name(file, "the name of a file", at)
            if not file or Path(file).name != file or "\\" in file or ":" in file:
                rule = "a file beside the index, no path"
                raise Refused(f"tensor {shown(name)} is in {shown(file)}", rule, at)
            files[name] = file
    if not files:
        raise Refused("it has no weight_map", "files by tensor", cursor.at)
    if len(set(files.values())) > MOST_FILES:
        raise Refused("more files", f"at most {MOST_FILES:,}")
    return files
