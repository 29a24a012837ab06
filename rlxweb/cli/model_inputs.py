"""`MODEL` argument of `rlxweb run` and `inspect`, and the arrays given for the model's
inputs.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import click
import numpy as np

from rlxweb.cli.console import format_count
from rlxweb.cli.options import check_not_repeated
from rlxweb.cli.python_graph_import import load_npz_arrays
from rlxweb.core.atomic_file import error_reason
from rlxweb.core.device import DeviceLike
from rlxweb.core.errors import InputError, UsageError, shown
from rlxweb.core.safe_file_opening import open_regular_file
from rlxweb.onnx.converted_model import DataDependentShape
from rlxweb.onnx.loading import load as load_onnx
from rlxweb.onnx.model import Model
from rlxweb.runtime.loaded_graph import LoadedGraph
from rlxweb.runtime.loaded_graph import load as load_graph

GRAPH_SUFFIXES = (".rlxg", ".safetensors")
MODEL_ARGUMENT = click.argument("model", metavar="MODEL")


def load_model(path: str) -> Model | LoadedGraph:
    """Load an ONNX model or a graph saved by rlxweb.

    Errors   ModelError, GraphFileError; Unsupported without the package `onnx`.
    """
    if Path(path).suffix.lower() in GRAPH_SUFFIXES:
        return load_graph(path)
    return load_onnx(path)


def used_engine_name(
    loaded: Model | LoadedGraph,
    feeds: Mapping[str, Any],
    device: DeviceLike,
    adapter: str,
) -> str:
    """Return the name of the engine that ran the model on these arrays; "" where none
    was needed.
    """
    if isinstance(loaded, LoadedGraph):
        return loaded.compiled(device=device, adapter=adapter).engine
    try:
        if not loaded.imported(feeds).graph.outputs:
            return ""
    except DataDependentShape:  # it ran in stages
        return ", ".join(loaded.engines)
    return loaded.compiled(feeds, device=device, adapter=adapter).engine


def load_input_arrays(
    assignments: Sequence[str], npz_path: str | None, model_inputs: Mapping[str, Any]
) -> dict[str, Any]:
    """Load the arrays of `--inputs F.npz`, overridden by those of `--input NAME=…`.

    model_inputs  the inputs of the model, by name
    Errors   InputError for a file that holds no array; UsageError for a text without a
             name, or one name twice.
    """
    arrays: dict[str, Any] = {}
    if npz_path is not None:
        context = f"--inputs {npz_path}"
        arrays = dict(load_npz_arrays(context, npz_path, "input"))
    seen_names: set[str] = set()
    for text in assignments:
        name, value = _split_assignment(text, model_inputs)
        check_not_repeated("--input", name, seen_names)
        seen_names.add(name)
        arrays[name] = _load_array(name, value)
    return arrays


def _split_assignment(text: str, model_inputs: Mapping[str, Any]) -> tuple[str, str]:
    """Split `NAME=VALUE` into the input's name and the text given for it; a name may
    contain '='.
    """
    for name in sorted(model_inputs, key=len, reverse=True):
        if text.startswith(f"{name}="):
            return name, text[len(name) + 1 :]
    name, equals, value = text.partition("=")
    if not equals or not name or not value:
        raise UsageError(
            "--input",
            f"got {shown(text)}",
            "expected NAME=FILE",
            "write it like --input x=a.npy",
        )
    return name, value


def _load_array(name: str, text: str) -> Any:
    """Load the array of an NPY file or of an NPZ file (FILE:ARRAY), or parse numbers
    written as JSON.
    """
    context = f"--input {name}"
    path, colon, array_name = text.rpartition(":")
    if colon and Path(path).suffix.lower() == ".npz":
        return _load_npz_array(context, path, array_name)
    if Path(text).suffix.lower() == ".npz":
        return _load_npz_array(context, text, None)
    path_exists = os.path.exists(text)  # and no error for numbers longer than any path
    if not path_exists and (numbers := _parse_json_numbers(text)) is not None:
        return numbers
    try:
        with open_regular_file(text):  # NumPy would wait for the writer of a pipe
            array = np.load(text, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError, BadZipFile, zlib.error) as error:
        why = (
            error_reason(error)
            if isinstance(error, OSError)
            else "the file contains no array"
        )
        raise InputError(
            context,
            f"no array can be read from {shown(text)} ({why})",
            "expected an NPY file, FILE.npz:ARRAY, or numbers as JSON",
            "write the file with numpy.save",
        ) from error
    return array


def _parse_json_numbers(text: str) -> Any:
    """Parse a number or a list of numbers; return None for anything else."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, int | float | list) else None


def _load_npz_array(context: str, path: str, array_name: str | None) -> Any:
    arrays = load_npz_arrays(context, path, "input")
    names = list(arrays)
    if array_name is None and len(names) == 1:
        return arrays[names[0]]
    if array_name is None or array_name not in arrays:
        problem = (
            f"contains {format_count(len(names), 'array')}, and none was selected"
            if array_name is None
            else f"has no array {array_name!r}"
        )
        raise InputError(
            context,
            f"{shown(path)} {problem}",
            "its arrays: " + (", ".join(map(repr, names)) or "none"),
            f"write {context}={path}:{names[0] if names else 'ARRAY'}",
        )
    return arrays[array_name]
