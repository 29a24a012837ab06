"""A model in one file: of a package that is installed, of a path, or bytes."""

from __future__ import annotations

import os
from collections.abc import Mapping

from rlxweb.errors import ModelError, shown
from rlxweb.models.folder import installed
from rlxweb.onnx.loading import load
from rlxweb.onnx.model import Model
from rlxweb.runtime.loaded import LoadedGraph
from rlxweb.runtime.loaded import load as load_graph

File = str | os.PathLike[str] | bytes
Ports = Mapping[str, tuple[int | None, ...]]
"""Names of inputs or outputs with their dims; None: any."""


def onnx_model(
    given: File | None, package: str, inside: str, doing: str, *wanted: Ports
) -> Model:
    """The model that was named, or that of an installed package, of which no code runs.

    given    a path, or the file's bytes
    package  as Python calls it; its file lies at `inside` it
    wanted   what the inputs must be, one or the other
    Errors   Unsupported where the package is not installed; ModelError for a file that
    is missing, broken, or another model
    """
    source = given
    if source is None:
        source = installed(package, doing, "a model's file").joinpath(
            *inside.split("/")
        )
        if not source.is_file():
            hint = "another version of the package keeps it elsewhere: name the file"
            raise ModelError(doing, f"{package} has no {inside}", hint=hint)
    model = load(source)
    dims = {name: port.dims for name, port in model.inputs.items()}
    found = ", ".join(map(str, model.inputs.values())) or "none"
    _check(model.name, dims, found, doing, wanted)
    return model


def saved_graph(given: File, doing: str, wanted: Ports) -> LoadedGraph | None:
    """The same as a graph that rlxweb saved; None for what is another file.

    Errors   GraphFileError for a broken file; ModelError for another model
    """
    if isinstance(given, bytes):
        is_ours = given[8:9] == b"{"
    else:
        is_ours = os.fsdecode(given).lower().endswith(".rlxg")
    if not is_ours:
        return None
    model = load_graph(given)
    dims = {name: one.shape for name, one in model.inputs.items()}
    found = ", ".join(f"{name}: {one}" for name, one in model.inputs.items())
    _check(model.name, dims, found or "none", doing, (wanted,))
    return model


def _check(
    name: str,
    dims: Mapping[str, tuple[object, ...] | None],
    found: str,
    doing: str,
    wanted: tuple[Ports, ...],
) -> None:
    def has(ports: Ports) -> bool:
        return all(n in dims and _fits(dims[n], own) for n, own in ports.items())

    if not any(map(has, wanted)):
        raise ModelError(
            doing,
            f"{shown(name)} is another model: its inputs are {found}",
            " or ".join(map(_told, wanted)) + " are wanted",
        )


def _told(wanted: Ports) -> str:
    def dims(own: tuple[int | None, ...]) -> str:
        return ", ".join("any" if dim is None else str(dim) for dim in own)

    return ", ".join(f"{name} [{dims(own)}]" for name, own in wanted.items())


def _fits(dims: tuple[object, ...] | None, wanted: tuple[int | None, ...]) -> bool:
    if dims is None or len(dims) != len(wanted):
        return False
    pairs = zip(dims, wanted, strict=True)
    return all(w is None or not isinstance(d, int) or d == w for d, w in pairs)
