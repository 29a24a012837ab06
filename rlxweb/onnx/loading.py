"""Load a model: from a path, bytes or an open file; checked, nothing half loaded."""

from __future__ import annotations

from os import PathLike, fspath
from pathlib import Path
from typing import Any, BinaryIO

from rlxweb.errors import ModelError, shown
from rlxweb.given import named
from rlxweb.named_files import open_regular
from rlxweb.onnx import library
from rlxweb.onnx.model import Model
from rlxweb.onnx.order import put_in_order
from rlxweb.onnx.reading import read_model


def load(source: str | PathLike[str] | bytes | BinaryIO) -> Model:
    """A model of ONNX, ready to be run.

    source   a path, the file's bytes, or an open binary file. A model with external
             data is loaded by its path; its data lies in the same folder or below it
    returns  the model; what rlxweb lacks for it is in `missing`, and a run says so
    Errors   ModelError for a file that is missing, no model, cut short, or against
    ONNX's rules; Unsupported where the package `onnx` is not installed.

    Example  rlx.onnx.load("model.onnx").run({"x": x})["y"]
    """
    name, data, path = _contents(source)
    doing = f"load {shown(name)}"
    message = library.parsed(data, doing)
    _check_opsets(message, doing)
    put_in_order(message)
    folder = None if path is None else path.parent
    record = read_model(message, folder, doing)
    library.check(message, doing)
    return Model(record, name)


def _contents(source: Any) -> tuple[str, bytes, Path | None]:
    """(what to call it, its bytes, where it lies)."""
    if isinstance(source, bytes | bytearray | memoryview):
        return "model", bytes(source), None
    if hasattr(source, "read"):
        data = source.read()
        if not isinstance(data, bytes):
            raise ModelError(
                "load a model",
                f"the file gives {named(data)}",
                "bytes are wanted",
                "open it with mode 'rb'",
            )
        return Path(str(getattr(source, "name", "model"))).name, data, None
    try:
        path = Path(fspath(source))
    except TypeError:
        raise ModelError(
            "load a model",
            f"{named(source)} was given",
            "a path, bytes or an open file is wanted",
        ) from None
    try:
        with open_regular(path) as file:
            return path.name, file.read(), path
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise ModelError(f"load {shown(str(path))}", why) from None


def _check_opsets(message: Any, doing: str) -> None:
    """The versions that a model was written for. Errors  ModelError."""
    newest = library.newest_opset()
    for one in message.opset_import:
        if not 0 <= one.version < 1 << 31:
            raise ModelError(
                doing,
                f"it is written for opset {one.version} of {shown(one.domain)}",
                "a version is a whole number of 31 bits",
            )
        if one.domain in ("", "ai.onnx") and not 1 <= one.version <= newest:
            raise ModelError(
                doing,
                f"it is written for opset {one.version}",
                f"the package onnx that is installed knows 1 to {newest}",
                "a newer version of the package may know it",
            )
