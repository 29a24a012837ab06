"""Load an ONNX model from a path, bytes or an open file, and check it completely."""

from __future__ import annotations

from os import PathLike, fspath
from pathlib import Path
from typing import Any, BinaryIO

from rlxweb.core.array_coercion import describe_type
from rlxweb.core.errors import ModelError, shown
from rlxweb.core.safe_file_opening import open_regular_file
from rlxweb.onnx import onnx_library_access
from rlxweb.onnx.model import Model
from rlxweb.onnx.model_reader import read_model
from rlxweb.onnx.topological_order import sort_nodes


def load(source: str | PathLike[str] | bytes | BinaryIO) -> Model:
    """Load an ONNX model.

    source   a path, the file's bytes, or an open binary file. A model with external
             data is loaded by its path; its data lies in the same folder or below it
    returns  the model; what rlxweb lacks for it is in `missing`, and a run says so
    Errors   ModelError for a file that is missing, no model, cut short, or against
    ONNX's rules; Unsupported where the package `onnx` is not installed.

    Example  rlx.onnx.load("model.onnx").run({"x": x})["y"]
    """
    name, data, path = _read_source(source)
    context = f"load {shown(name)}"
    message = onnx_library_access.parse_model(data, context)
    _check_opsets(message, context)
    sort_nodes(message)
    folder = None if path is None else path.parent
    record = read_model(message, folder, context)
    onnx_library_access.check_model(message, context)
    return Model(record, name)


def _read_source(source: Any) -> tuple[str, bytes, Path | None]:
    """Return a display name, the bytes, and the path if there is one."""
    if isinstance(source, bytes | bytearray | memoryview):
        return "model", bytes(source), None
    if hasattr(source, "read"):
        data = source.read()
        if not isinstance(data, bytes):
            raise ModelError(
                "load a model",
                f"reading the open file returned {describe_type(data)}",
                "expected bytes",
                "open the file with mode 'rb'",
            )
        return Path(str(getattr(source, "name", "model"))).name, data, None
    try:
        path = Path(fspath(source))
    except TypeError:
        raise ModelError(
            "load a model",
            f"got {describe_type(source)}",
            "expected a path, bytes or an open file",
        ) from None
    try:
        with open_regular_file(path) as file:
            return path.name, file.read(), path
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ModelError(f"load {shown(str(path))}", reason) from None


def _check_opsets(message: Any, context: str) -> None:
    """Check the opset versions that a model was written for. Raises ModelError."""
    newest = onnx_library_access.newest_opset()
    for opset in message.opset_import:
        if not 0 <= opset.version < 1 << 31:
            raise ModelError(
                context,
                f"the model uses opset {opset.version} of domain {shown(opset.domain)}",
                "an opset version must be 0 to 2^31 - 1",
            )
        if opset.domain in ("", "ai.onnx") and not 1 <= opset.version <= newest:
            raise ModelError(
                context,
                f"the model uses opset {opset.version}",
                f"the installed package onnx supports opsets 1 to {newest}",
                "try a newer version of the package",
            )
