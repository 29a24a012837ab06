"""Tensors of a safetensors checkpoint: one file, or the shards that an index file
names.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlxweb.core.errors import GraphFileError, shown
from rlxweb.runtime.graph_files.memory_mapped_bytes import Source, load_bytes
from rlxweb.runtime.graph_files.safetensors_header import (
    MAX_FOREIGN_HEADER,
    SafetensorsLayout,
    TensorEntry,
    check_name,
    read_layout,
)
from rlxweb.runtime.graph_files.strict_json import (
    FormatViolation,
    JsonCursor,
    check_depth,
)

SINGLE_FILE, INDEX_FILE = "model.safetensors", "model.safetensors.index.json"
MAX_FILES = 10_000


@dataclass(frozen=True, slots=True)
class ShardTensor:
    """Tensor and the layout of the file that holds it."""

    layout: SafetensorsLayout
    entry: TensorEntry


def open_tensors(source: Source, context: str) -> dict[str, ShardTensor]:
    """Return all tensors by name: of a file, of an index with its files, or of a
    folder.

    Errors   GraphFileError.
    """
    path = Path(source) if isinstance(source, str | os.PathLike) else None
    if path is not None and path.is_dir():
        path = _find_in_folder(path, context)
        source = path
    name, data = load_bytes(source, context)
    context = f"{context} from {shown(name)}" if name else context
    if path is not None and path.suffix == ".json":
        if len(data) > MAX_FOREIGN_HEADER:
            problem = f"the index has {len(data):,} bytes"
            rule = f"at most {MAX_FOREIGN_HEADER:,} are allowed"
            raise GraphFileError(context, problem, rule)
        return _open_indexed(path, data.tobytes(), context)
    layout = read_layout(data, context)
    return {name: ShardTensor(layout, entry) for name, entry in layout.entries.items()}


def _find_in_folder(folder: Path, context: str) -> Path:
    """Return the model file or the index of a folder."""
    for name in (SINGLE_FILE, INDEX_FILE):
        if (folder / name).is_file():
            return folder / name
    raise GraphFileError(
        f"{context} from {shown(str(folder))}",
        f"the folder contains neither {SINGLE_FILE} nor {INDEX_FILE}",
        hint="pass the path of the weights file",
    )


def _open_indexed(path: Path, raw: bytes, context: str) -> dict[str, ShardTensor]:
    """Return each tensor from the file that the index says it is in."""
    files = _parse_index(raw, context)
    layouts: dict[str, SafetensorsLayout] = {}
    tensors: dict[str, ShardTensor] = {}
    for name, file in files.items():
        if file not in layouts:
            _, data = load_bytes(path.parent / file, context)
            layouts[file] = read_layout(data, f"{context}, {shown(file)}")
        entry = layouts[file].entries.get(name)
        if entry is None:
            raise GraphFileError(
                context,
                f"the index lists tensor {shown(name)} in {shown(file)}",
                "this file does not contain the tensor",
                "the index and the files do not match: download all of them again",
            )
        tensors[name] = ShardTensor(layouts[file], entry)
    return tensors


def _parse_index(raw: bytes, context: str) -> dict[str, str]:
    """Return the index's files by tensor; each must lie beside the index."""
    try:
        text = raw.decode()
        check_depth(text)
        files = _read_weight_map(JsonCursor(text))
    except UnicodeDecodeError as error:
        raise GraphFileError(
            context, "the index is not valid text", "it must be UTF-8"
        ) from error
    except FormatViolation as error:
        offset = len(text[: error.position].encode())
        raise GraphFileError(
            context, error.problem, error.rule, offset=offset
        ) from None
    return files


def _read_weight_map(cursor: JsonCursor) -> dict[str, str]:
    """Read the `weight_map` of an index: file names by tensor."""
    files: dict[str, str] = {}
    for key, position in cursor.iter_members():
        if key != "weight_map":
            cursor.skip_value()
            continue
        value: Any = cursor.read_value()
        if not isinstance(value, dict):
            raise FormatViolation(
                "weight_map is not an object",
                "weight_map must map tensor names to file names",
                position,
            )
        for name, file in value.items():
            check_name(name, "the name of a tensor", position)
            check_name(file, "the name of a file", position)
            if not file or Path(file).name != file or "\\" in file or ":" in file:
                rule = "expected a file name in the folder of the index, without a path"
                raise FormatViolation(
                    f"the index lists tensor {shown(name)} in {shown(file)}",
                    rule,
                    position,
                )
            files[name] = file
    if not files:
        raise FormatViolation(
            "the index has no weight_map, or an empty one",
            "weight_map must map tensor names to file names",
            cursor.position,
        )
    if len(set(files.values())) > MAX_FILES:
        problem = f"the index lists {len(set(files.values())):,} files"
        raise FormatViolation(problem, f"at most {MAX_FILES:,} are allowed")
    return files
