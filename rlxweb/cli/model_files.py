"""`MODEL` of `rlxweb run` and `inspect`, and the arrays given for its inputs."""

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

from rlxweb.cli.named_graph import arrays_of
from rlxweb.cli.options import check_new
from rlxweb.device import DeviceLike
from rlxweb.errors import InputError, UsageError, shown
from rlxweb.named_files import open_regular
from rlxweb.onnx.imported import Undecided
from rlxweb.onnx.loading import load as load_onnx
from rlxweb.onnx.model import Model
from rlxweb.runtime.loaded import LoadedGraph
from rlxweb.runtime.loaded import load as load_graph
from rlxweb.whole_file import reason

GRAPH_FILES = (".rlxg", ".safetensors")
MODEL = click.argument("model", metavar="MODEL")


def opened(path: str) -> Model | LoadedGraph:
    """A model of ONNX, or a graph that rlxweb saved.

    Errors   ModelError, GraphFileError; Unsupported without the package `onnx`.
    """
    if Path(path).suffix.lower() in GRAPH_FILES:
        return load_graph(path)
    return load_onnx(path)


def engine_of(
    loaded: Model | LoadedGraph,
    feeds: Mapping[str, Any],
    device: DeviceLike,
    adapter: str,
) -> str:
    """The engine on which it ran for these arrays; "" where none was needed."""
    if isinstance(loaded, LoadedGraph):
        return loaded.compiled(device=device, adapter=adapter).engine
    try:
        if not loaded.imported(feeds).graph.outputs:
            return ""
    except Undecided:  # it ran in stages
        return ", ".join(loaded.engines)
    return loaded.compiled(feeds, device=device, adapter=adapter).engine


def given_arrays(
    named: Sequence[str], all_of_them: str | None, wanted: Mapping[str, Any]
) -> dict[str, Any]:
    """The arrays of `--input NAME=…` over those of `--inputs F.npz`.

    wanted   the inputs of the model, by name
    Errors   InputError for a file that holds no array; UsageError for a text without a
             name, or one name twice.
    """
    found: dict[str, Any] = {}
    if all_of_them is not None:
        doing = f"--inputs {all_of_them}"
        found = dict(arrays_of(doing, all_of_them, "input"))
    seen: set[str] = set()
    for text in named:
        name, value = _parted(text, wanted)
        check_new("--input", name, seen)
        seen.add(name)
        found[name] = _array(name, value)
    return found


def _parted(text: str, wanted: Mapping[str, Any]) -> tuple[str, str]:
    """(the input's name, what is given for it): a name may hold '=' itself."""
    for name in sorted(wanted, key=len, reverse=True):
        if text.startswith(f"{name}="):
            return name, text[len(name) + 1 :]
    name, equals, value = text.partition("=")
    if not equals or not name or not value:
        raise UsageError(
            "--input",
            f"{shown(text)} has no name or no value",
            "an input is written NAME=FILE",
            "--input x=a.npy",
        )
    return name, value


def _array(name: str, text: str) -> Any:
    """The array of an NPY file, of an NPZ file (FILE:ARRAY), or numbers as JSON."""
    doing = f"--input {name}"
    path, colon, inner = text.rpartition(":")
    if colon and Path(path).suffix.lower() == ".npz":
        return _of_npz(doing, path, inner)
    if Path(text).suffix.lower() == ".npz":
        return _of_npz(doing, text, None)
    there = os.path.exists(text)  # and no error for numbers longer than any path
    if not there and (numbers := _numbers(text)) is not None:
        return numbers
    try:
        with open_regular(text):  # NumPy would wait for the writer of a pipe
            found = np.load(text, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError, BadZipFile, zlib.error) as error:
        why = reason(error) if isinstance(error, OSError) else "it holds none"
        raise InputError(
            doing,
            f"no array can be read from {shown(text)} ({why})",
            "an NPY file, FILE.npz:ARRAY, or numbers as JSON are wanted",
            "write it with numpy.save",
        ) from error
    return found


def _numbers(text: str) -> Any:
    """A number or a list of them; None for anything else."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, int | float | list) else None


def _of_npz(doing: str, path: str, inner: str | None) -> Any:
    arrays = arrays_of(doing, path, "input")
    names = list(arrays)
    if inner is None and len(names) == 1:
        return arrays[names[0]]
    if inner is None or inner not in arrays:
        said = "names none of its arrays" if inner is None else f"has no {inner!r}"
        raise InputError(
            doing,
            f"{shown(path)} {said}",
            "it has " + ", ".join(map(repr, names)),
            f"write {path}:{names[0] if names else 'ARRAY'}",
        )
    return arrays[inner]
