"""`MODULE:GRAPH`, `FILE.py:GRAPH`: what code of the caller's makes, compiled.

Runs that code. What is found there is a Graph, a CompiledGraph or a GraphDevices, or a
function that takes nothing and returns one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from rlxweb.advice import Advice, Blank
from rlxweb.device import Device
from rlxweb.errors import InputError, RlxError, UsageError, did_you_mean
from rlxweb.io.npz_arrays import read_npz_arrays
from rlxweb.ir.fitting import unknown
from rlxweb.ir.graph import Graph
from rlxweb.runtime.compiled import CompiledGraph
from rlxweb.runtime.graph_devices import GraphDevices
from rlxweb.runtime.session import Session
from rlxweb.whole_file import reason

WANTED = "a Graph, a CompiledGraph, a GraphDevices, or a function that returns one"


def compiled_object(
    target: str, weights: str | None, verb: str = "export"
) -> CompiledGraph:
    """What `target` names, compiled, its params set.

    verb      what is done with it, as errors say
    weights   an NPZ file with an array for each param that has no value yet
    Errors    UsageError for a target that is not there or is something else; InputError
              for weights that do not fit.
    """
    doing = f"{verb} {target}"
    found = _called(doing, target, _attribute(doing, target))
    if isinstance(found, GraphDevices):
        found = found.compile(Device.CPU)
    if isinstance(found, Graph):
        _check_weights(doing, found, weights)
        found = Session(Device.CPU).compile(found)
    if not isinstance(found, CompiledGraph):
        raise UsageError(
            doing, f"it is a {type(found).__name__}", f"{WANTED} is wanted"
        )
    if weights is not None:
        _set(found, weights)
    return found


def _attribute(doing: str, target: str) -> Any:
    where, colon, name = target.rpartition(":")
    if not colon or not where or not name:
        raise UsageError(
            doing,
            "it names no graph",
            "MODULE:GRAPH or FILE.py:GRAPH is wanted",
            "for a module of yours, put a colon and the graph's name behind it",
        )
    found: Any = _module(doing, where)
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError as error:
            raise UsageError(
                doing,
                f"{where!r} has no {name!r}",
                hint=did_you_mean(
                    part, vars(found) if hasattr(found, "__dict__") else ()
                )
                or f"name {WANTED}",
            ) from error
    return found


def _module(doing: str, where: str) -> ModuleType:
    """Run the caller's code. Errors  UsageError with what it raised."""
    is_file = where.endswith(".py")
    if is_file and not Path(where).is_file():
        raise UsageError(doing, f"there is no file {where!r}")
    home = str(Path(where).resolve().parent) if is_file else os.getcwd()
    sys.path.insert(0, home)  # as `python FILE` and `python -m MODULE` have it
    try:
        return _of_file(where) if is_file else import_module(where)
    except RlxError:
        raise
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != where.split(".")[0]:
            raise _broken(doing, where, error) from error
        raise UsageError(
            doing,
            f"there is no module {where!r}",
            f"looked for in {home} and where Python looks",
            "go to the folder it is in, or give the file: FILE.py:GRAPH",
        ) from error
    except Exception as error:
        raise _broken(doing, where, error) from error
    finally:
        sys.path.remove(home)


def _of_file(where: str) -> ModuleType:
    path = Path(where).resolve()
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None  # of a file that ends in .py there is one
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _called(doing: str, target: str, found: Any) -> Any:
    if isinstance(found, Graph | CompiledGraph | GraphDevices) or not callable(found):
        return found
    try:
        return found()
    except RlxError:
        raise
    except Exception as error:
        raise _broken(doing, target, error) from error


def _broken(doing: str, where: str, error: Exception) -> UsageError:
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    line = "" if at is None else f"{at.tb_frame.f_code.co_filename}:{at.tb_lineno}"
    said = f"{where!r} raised {type(error).__name__}: {reason(error)}"
    return UsageError(doing, said, line)


def _check_weights(doing: str, graph: Graph, weights: str | None) -> None:
    """A bare graph's params come from a file. Errors  InputError."""
    params = list(graph.named("param"))
    if params and weights is None:
        raise InputError(
            doing,
            f"param {', '.join(map(repr, params))} has no value",
            "it is a Graph, which holds none",
            Advice("give {}, or name a CompiledGraph", weights=Blank("F.npz")),
        )


def _set(graph: CompiledGraph, path: str) -> None:
    doing = f"weights of '{graph.graph.name}' from '{path}'"
    params = graph.graph.named("param")
    arrays = arrays_of(doing, path, "param")
    for name in arrays:
        if name not in params:
            raise unknown(doing, "param", name, params)
    for name, array in arrays.items():
        try:
            graph.set_param(name, array)
        except RlxError as error:
            error.doing = f"{doing}, param '{name}'"
            raise


def arrays_of(doing: str, path: str, kind: str) -> Mapping[str, Any]:
    """The arrays of an NPZ file, one for each `kind`, by name. Errors  InputError."""
    try:
        return read_npz_arrays(path)
    except (OSError, ValueError) as error:
        why = reason(error)
        raise InputError(
            doing,
            f"it cannot be read ({why})",
            f"an NPZ file is wanted, an array for each {kind}, under its name",
            "write it with numpy.savez",
        ) from error
