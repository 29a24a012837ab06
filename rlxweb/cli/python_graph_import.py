"""Import and compilation of graphs named `MODULE:GRAPH` or `FILE.py:GRAPH`.

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

from rlxweb.core.array_coercion import describe_type
from rlxweb.core.atomic_file import error_reason
from rlxweb.core.device import Device
from rlxweb.core.errors import InputError, RlxError, UsageError, did_you_mean
from rlxweb.core.message_text import Advice, Blank
from rlxweb.io.npz_arrays import read_npz_arrays
from rlxweb.ir.array_validation import unknown_name_error, unset_params_clause
from rlxweb.ir.graph import Graph
from rlxweb.runtime.compiled_graph import CompiledGraph
from rlxweb.runtime.graph_devices import GraphDevices
from rlxweb.runtime.session import Session

ACCEPTED_TARGETS = (
    "a Graph, a CompiledGraph, a GraphDevices, or a function that returns one"
)


def load_compiled_graph(
    target: str, weights: str | None, verb: str = "export"
) -> CompiledGraph:
    """Return the graph named by `target`, compiled and with its params set.

    verb      what is done with it, as errors say
    weights   an NPZ file with an array for each param that has no value yet
    Errors    UsageError for a target that is not there or is something else; InputError
              for weights that do not fit.
    """
    context = f"{verb} {target}"
    target_object = _call_factory(context, target, _resolve_target(context, target))
    if isinstance(target_object, GraphDevices):
        target_object = target_object.compile(Device.CPU)
    if isinstance(target_object, Graph):
        _check_weights(context, target_object, weights)
        target_object = Session(Device.CPU).compile(target_object)
    if not isinstance(target_object, CompiledGraph):
        raise UsageError(
            context,
            f"got {describe_type(target_object)}",
            f"expected {ACCEPTED_TARGETS}",
        )
    if weights is not None:
        _set_params(target_object, weights)
    return target_object


def _resolve_target(context: str, target: str) -> Any:
    module_target, colon, name = target.rpartition(":")
    if not colon or not module_target or not name:
        raise UsageError(
            context,
            "the name of the graph is missing",
            "expected MODULE:GRAPH or FILE.py:GRAPH",
            "append a colon and the name of the graph",
        )
    target_object: Any = _import_target_module(context, module_target)
    for part in name.split("."):
        try:
            target_object = getattr(target_object, part)
        except AttributeError as error:
            raise UsageError(
                context,
                f"{module_target!r} has no attribute {name!r}",
                hint=did_you_mean(
                    part,
                    vars(target_object) if hasattr(target_object, "__dict__") else (),
                )
                or f"select {ACCEPTED_TARGETS}",
            ) from error
    return target_object


def _import_target_module(context: str, module_target: str) -> ModuleType:
    """Import the caller's module or file, which runs its code; raise UsageError with
    what it raised.
    """
    is_file = module_target.endswith(".py")
    if is_file and not Path(module_target).is_file():
        raise UsageError(context, f"there is no file {module_target!r}")
    import_dir = str(Path(module_target).resolve().parent) if is_file else os.getcwd()
    sys.path.insert(0, import_dir)  # as `python FILE` and `python -m MODULE` have it
    try:
        return _import_file(module_target) if is_file else import_module(module_target)
    except RlxError:
        raise
    except ModuleNotFoundError as error:
        if (
            error.name is None
            or error.name.split(".")[0] != module_target.split(".")[0]
        ):
            raise _user_code_error(context, module_target, error) from error
        raise UsageError(
            context,
            f"there is no module {module_target!r}",
            f"searched {import_dir} and Python's module path",
            "run the command in the folder of the module, or pass FILE.py:GRAPH",
        ) from error
    except Exception as error:
        raise _user_code_error(context, module_target, error) from error
    finally:
        sys.path.remove(import_dir)


def _import_file(file_name: str) -> ModuleType:
    path = Path(file_name).resolve()
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None  # of a file that ends in .py there is one
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _call_factory(context: str, target: str, target_object: Any) -> Any:
    if isinstance(target_object, Graph | CompiledGraph | GraphDevices) or not callable(
        target_object
    ):
        return target_object
    try:
        return target_object()
    except RlxError:
        raise
    except Exception as error:
        raise _user_code_error(context, target, error) from error


def _user_code_error(context: str, source: str, error: Exception) -> UsageError:
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    line = (
        ""
        if traceback is None
        else f"{traceback.tb_frame.f_code.co_filename}:{traceback.tb_lineno}"
    )
    problem = f"{source!r} raised {type(error).__name__}: {error_reason(error)}"
    return UsageError(context, problem, line)


def _check_weights(context: str, graph: Graph, weights: str | None) -> None:
    """Raise InputError if a bare graph has params but no weights file was given."""
    params = list(graph.named("param"))
    if params and weights is None:
        raise InputError(
            context,
            unset_params_clause(params),
            "a Graph does not contain param values",
            Advice("pass {}, or select a CompiledGraph", weights=Blank("F.npz")),
        )


def _set_params(graph: CompiledGraph, path: str) -> None:
    context = f"load weights of '{graph.graph.name}' from '{path}'"
    params = graph.graph.named("param")
    arrays = load_npz_arrays(context, path, "param")
    for name in arrays:
        if name not in params:
            raise unknown_name_error(context, "param", name, params)
    for name, array in arrays.items():
        try:
            graph.set_param(name, array)
        except RlxError as error:
            error.doing = f"{context}, param '{name}'"
            raise


def load_npz_arrays(context: str, path: str, kind: str) -> Mapping[str, Any]:
    """Load the arrays of an NPZ file, one for each `kind`, by name; raise InputError if
    it cannot be read.
    """
    try:
        return read_npz_arrays(path)
    except (OSError, ValueError) as error:
        why = error_reason(error)
        raise InputError(
            context,
            f"the file cannot be read ({why})",
            f"expected an NPZ file with one array per {kind}, named after the {kind}",
            "write the file with numpy.savez",
        ) from error
