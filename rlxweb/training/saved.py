"""The state of a training as one file: written whole or not at all, and held to every
rule when it is read.

An .npz of the arrays by their places in the state, the losses so far, and what tells
that it belongs to this training. Nothing in it is executed.
"""

from __future__ import annotations

import json
from os import PathLike, fspath
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from rlxweb.errors import InputError, RecordingError, shown
from rlxweb.io.npz_arrays import read_npz_arrays
from rlxweb.ir.shape import show
from rlxweb.training.trees import taken_apart
from rlxweb.whole_file import atomic_path

VERSION = 1
_TOLD = "rlxweb"
File = str | PathLike[str]


class Saved(NamedTuple):
    """Where a training was: its state, how many steps it had made, their losses."""

    state: Any
    step: int
    losses: npt.NDArray[np.float64]


def save(file: File, saved: Saved) -> None:
    """Write where a training is. Errors  RecordingError where nothing may be."""
    _, leaves = taken_apart(saved.state, "state")
    arrays = {f"a{n}": np.asarray(one) for n, (_, one) in enumerate(leaves)}
    told = {
        "version": VERSION,
        "step": saved.step,
        "places": [path for path, _ in leaves],
    }
    arrays["losses"] = np.asarray(saved.losses, np.float64)
    arrays[_TOLD] = np.frombuffer(json.dumps(told).encode(), np.uint8)
    with atomic_path(file) as path, path.open("wb") as out:
        np.savez(out, **cast(Any, arrays))


def load(file: File, like: Any) -> Saved:
    """Where a training was, for one whose state is built like this.

    Errors   RecordingError for what cannot be read or is no such file, whole;
    InputError for that of another training.
    """
    doing = f"go on from {shown(fspath(file))}"
    tree, leaves = taken_apart(like, "state")
    told, arrays = _read(file, doing)
    places = [path for path, _ in leaves]
    if told["places"] != places:
        odd = sorted(set(told["places"]) ^ set(places))[:3]
        raise InputError(
            doing,
            f"it has {len(told['places'])} arrays, this training {len(places)}"
            + (f"; one of them alone has {', '.join(odd)}" if odd else ""),
            "a file goes on with the training that wrote it",
            "name another file, or delete it to begin anew",
        )
    for n, (path, one) in enumerate(leaves):
        have = arrays[f"a{n}"]
        if have.shape != tuple(one.shape) or have.dtype != one.dtype:
            raise InputError(
                doing,
                f"{path} is {show(have.shape)} {have.dtype}",
                f"this training has {show(one.shape)} {one.dtype}",
                "name another file, or delete it to begin anew",
            )
    state = tree.built(iter([arrays[f"a{n}"] for n in range(len(leaves))]))
    return Saved(state, told["step"], arrays["losses"])


def _read(file: File, doing: str) -> tuple[dict[str, Any], dict[str, Any]]:
    try:
        arrays = read_npz_arrays(file)
        told = json.loads(arrays.pop(_TOLD).tobytes())
        wanted = {f"a{n}" for n in range(len(told["places"]))} | {"losses"}
        whole = isinstance(told["step"], int) and told["step"] == len(arrays["losses"])
    except OSError as error:
        raise RecordingError(doing, f"it cannot be read: {error}") from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise RecordingError(
            doing,
            f"it is no state of a training, or not a whole one ({error})",
            hint="delete it to begin anew",
        ) from None
    if told.get("version") != VERSION or set(arrays) != wanted or not whole:
        raise RecordingError(
            doing,
            f"it is of version {shown(told.get('version'))}, {len(arrays)} arrays, "
            f"{shown(told['step'])} steps",
            f"version {VERSION}, with an array for each place and a loss for each step",
        )
    return told, arrays
