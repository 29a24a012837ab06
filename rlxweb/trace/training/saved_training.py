"""Saved state of a training: one file, written atomically and validated when it is
read.

An .npz of the arrays by their places in the state, the losses so far, and what tells
that it belongs to this training. Nothing in it is executed.
"""

from __future__ import annotations

import json
from os import PathLike, fspath
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from rlxweb.core.atomic_file import atomic_path
from rlxweb.core.errors import InputError, RecordingError, shown
from rlxweb.io.npz_arrays import read_npz_arrays
from rlxweb.ir.shape_arithmetic import format_shape
from rlxweb.trace.training.tree_map import flatten_arrays

VERSION = 1
_METADATA_KEY = "rlxweb"
PathArgument = str | PathLike[str]


class SavedTraining(NamedTuple):
    """Saved point of a training: its state, the number of steps made, their losses."""

    state: Any
    step: int
    losses: npt.NDArray[np.float64]


def save_training(file: PathArgument, saved: SavedTraining) -> None:
    """Write a training's state to a file. Errors  RecordingError if it cannot be
    written.
    """
    _, leaves = flatten_arrays(saved.state, "state")
    arrays = {f"a{n}": np.asarray(leaf) for n, (_, leaf) in enumerate(leaves)}
    metadata = {
        "version": VERSION,
        "step": saved.step,
        "places": [path for path, _ in leaves],
    }
    arrays["losses"] = np.asarray(saved.losses, np.float64)
    arrays[_METADATA_KEY] = np.frombuffer(json.dumps(metadata).encode(), np.uint8)
    with atomic_path(file) as path, path.open("wb") as out:
        np.savez(out, **cast(Any, arrays))


def load_training(file: PathArgument, like: Any) -> SavedTraining:
    """Read a training's state from a file, for a state that is built like `like`.

    Errors   RecordingError for what cannot be read or is no such file, whole;
    InputError for that of another training.
    """
    context = f"resuming from {shown(fspath(file))}"
    tree, leaves = flatten_arrays(like, "state")
    metadata, arrays = _read_arrays(file, context)
    paths = [path for path, _ in leaves]
    if metadata["places"] != paths:
        differences = [
            f"; only the {owner}: {', '.join(sorted(names)[:3])}"
            + (", …" if len(names) > 3 else "")
            for owner, names in (
                ("file has", set(metadata["places"]) - set(paths)),
                ("training has", set(paths) - set(metadata["places"])),
            )
            if names
        ]
        raise InputError(
            context,
            f"the file has {len(metadata['places'])} arrays, this training has "
            f"{len(paths)}" + ("".join(differences) or "; their order differs"),
            "a file can resume only the training that wrote it",
            "pass another file, or delete this one to start over",
        )
    for n, (path, leaf) in enumerate(leaves):
        stored = arrays[f"a{n}"]
        if stored.shape != tuple(leaf.shape) or stored.dtype != leaf.dtype:
            raise InputError(
                context,
                f"{path} is {format_shape(stored.shape)} {stored.dtype} in the file",
                f"expected {format_shape(leaf.shape)} {leaf.dtype}",
                "pass another file, or delete this one to start over",
            )
    state = tree.unflatten(iter([arrays[f"a{n}"] for n in range(len(leaves))]))
    return SavedTraining(state, metadata["step"], arrays["losses"])


def _read_arrays(
    file: PathArgument, context: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    try:
        arrays = read_npz_arrays(file)
        metadata = json.loads(arrays.pop(_METADATA_KEY).tobytes())
        expected_keys = {f"a{n}" for n in range(len(metadata["places"]))} | {"losses"}
        is_complete = isinstance(metadata["step"], int) and metadata["step"] == len(
            arrays["losses"]
        )
    except OSError as error:
        raise RecordingError(context, f"the file cannot be read ({error})") from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise RecordingError(
            context,
            f"the file is not a complete training state ({error})",
            hint="delete the file to start over",
        ) from None
    if (
        metadata.get("version") != VERSION
        or set(arrays) != expected_keys
        or not is_complete
    ):
        n_losses = arrays["losses"].size if "losses" in arrays else 0
        raise RecordingError(
            context,
            f"the file has version {shown(metadata.get('version'))}, "
            f"{len(arrays)} arrays, {shown(metadata['step'])} steps and "
            f"{n_losses} losses",
            f"expected version {VERSION}, {len(expected_keys)} arrays and one loss per "
            "step",
        )
    return metadata, arrays
