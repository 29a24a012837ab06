"""Function traced for one signature: its graph, its inputs, and how results are
built.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlxweb.core.array_coercion import DeviceResident, as_array
from rlxweb.core.errors import ShapeError
from rlxweb.ir.graph import Graph
from rlxweb.ir.shape_arithmetic import format_shape
from rlxweb.ir.tensor import Tensor
from rlxweb.trace import supported_functions  # noqa: F401  # fills the tables
from rlxweb.trace.closure_and_global_reads import ReadLocation, find_read_locations
from rlxweb.trace.pytrees import IdentityKey, PyTree, flatten_tree
from rlxweb.trace.trace import CapturedArray, Trace, activate_trace
from rlxweb.trace.trace_errors import trace_error
from rlxweb.trace.traced_array import NumpyDtype, TracedArray

Array = npt.NDArray[Any]


class ArgumentArray(NamedTuple):
    """Array argument: its path within the arguments, its dtype and shape, and its
    device if it is on one.
    """

    path: str
    dtype: NumpyDtype
    shape: tuple[Any, ...]
    device: str = ""

    def __str__(self) -> str:
        where = f" on {self.device}" if self.device else ""
        return f"{self.path}: {self.dtype.name} {format_shape(self.shape)}{where}"


def describe_argument(
    path: str, value: Any, dims: tuple[Any, ...] | None
) -> tuple[ArgumentArray, Any]:
    """Return the description of an argument's array, and the array as a run takes it.

    dims   its shape where sizes vary. Errors  ShapeError for one of another rank.
    """
    device, array = "", value
    if isinstance(value, DeviceResident):
        device = str(array.device)
    else:
        array = as_array(value, f"argument {path}")
    shape = tuple(array.shape)
    if dims is not None and len(dims) != len(shape):
        problem = f"the array has shape {format_shape(shape)}"
        rule = f"dims declares {format_shape(dims)}"
        raise ShapeError(f"argument {path}", problem, rule)
    dtype = array.dtype.newbyteorder("=")
    return ArgumentArray(path, dtype, shape if dims is None else dims, device), array


class ResultArray(NamedTuple):
    """Array result: the positions of its parts among the graph's outputs, and its
    dtype.
    """

    re: int
    im: int
    dtype: NumpyDtype


class TracedProgram:
    """Result of tracing a function for one signature.

    graph    None where no result is computed from the arguments
    leaves   the arrays that come in
    read_locations  what the function read from around itself
    """

    def __init__(
        self,
        trace: Trace,
        leaves: Sequence[ArgumentArray],
        read_locations: list[ReadLocation],
    ) -> None:
        self.leaves = tuple(leaves)
        self.read_locations = read_locations
        self.float64_as_float32 = trace.float64_as_float32
        self.captured: list[CapturedArray] = []
        self.graph: Graph | None = trace.graph
        self.tree: PyTree
        self.results: list[ResultArray | Array] = []

    @property
    def is_fresh(self) -> bool:
        """Return whether everything that was built into the graph is unchanged."""
        return all(location.is_same for location in self.read_locations) and not any(
            captured.has_changed for captured in self.captured if not captured.param
        )

    def params(self) -> dict[str, Array]:
        """Return the arrays captured from outside the function, in the graph's
        dtypes.
        """
        assert self.graph is not None
        dtypes = {
            n: node.type.dtype.numpy for n, node in self.graph.named("param").items()
        }
        return {
            captured.param: captured.seen_values.astype(
                dtypes[captured.param], copy=False
            )
            for captured in self.captured
            if captured.param
        }

    def feeds(self, arrays: Sequence[Any]) -> dict[str, Any]:
        """Return the graph's inputs by name, from the arrays of a call."""
        assert self.graph is not None
        feeds: dict[str, Any] = {}
        for leaf, array in zip(self.leaves, arrays, strict=True):
            if leaf.dtype.kind == "c":
                feeds[f"{leaf.path}.real"] = array.real
                feeds[f"{leaf.path}.imag"] = array.imag
            else:
                feeds[leaf.path] = array
        if not self.float64_as_float32:
            return feeds
        for name, node in self.graph.named("input").items():
            if not isinstance(feeds[name], DeviceResident):
                feeds[name] = np.asarray(feeds[name], node.type.dtype.numpy)
        return feeds

    def build_result(self, outs: Sequence[Any]) -> Any:
        """Build the function's result from the outputs of a run."""
        return self.tree.unflatten(
            iter([self._result_value(result, outs) for result in self.results])
        )

    def _result_value(self, result: ResultArray | Array, outs: Sequence[Any]) -> Any:
        if not isinstance(result, ResultArray):
            return result.copy() if isinstance(result, np.ndarray) else result
        re = outs[result.re]
        if isinstance(re, DeviceResident):
            return re if result.im < 0 else (re, outs[result.im])
        if result.im < 0:
            array = re.astype(result.dtype, copy=False)
        else:
            array = np.empty(re.shape, result.dtype)
            array.real, array.imag = re, outs[result.im]
        return array if array.ndim else array[()]


def trace_function(
    function: Callable[..., Any],
    name: str,
    tree: PyTree,
    leaves: Sequence[ArgumentArray],
    float64_as_float32: bool,
    call_by_name: Callable[[Any], Any],
) -> TracedProgram:
    """Trace a function for arguments of this structure.

    tree    of the arguments by name
    call_by_name  calls the function with arguments by name
    Errors  TraceError for what it does that no graph can say; those of the function
    """
    trace = Trace(name, float64_as_float32)
    input_arrays = [_add_input(trace, leaf) for leaf in leaves]
    arguments = tree.unflatten(iter(input_arrays))
    read_locations = find_read_locations(function, _static_objects(tree))
    with activate_trace(trace):
        result = call_by_name(arguments)
    program = TracedProgram(trace, leaves, read_locations)
    _set_outputs(program, trace, result)
    del arguments, result, input_arrays
    program.captured = [
        captured for captured in trace.captured.values() if captured.needs_tracking()
    ]
    return program


def _add_input(trace: Trace, leaf: ArgumentArray) -> TracedArray:
    dtype = trace.effective_dtype(leaf.dtype)
    element_dtype = trace.element_dtype(dtype)
    if dtype.kind != "c":
        x = trace.graph.input(leaf.path, leaf.shape, element_dtype)
        return TracedArray(trace, x, None, dtype, is_view=True)
    re, im = (
        trace.graph.input(f"{leaf.path}.{suffix}", leaf.shape, element_dtype)
        for suffix in ("real", "imag")
    )
    return TracedArray(trace, re, im, dtype, is_view=True)


def _static_objects(tree: PyTree) -> list[Any]:
    """List the objects among the static arguments, whose attributes the function may
    read.
    """
    if tree.kind == "static":
        return [tree.value]
    return [
        static_object
        for child in tree.children
        for static_object in _static_objects(child)
    ]


def _set_outputs(program: TracedProgram, trace: Trace, result: Any) -> None:
    """Set the outputs of the graph, each tensor once."""
    named_results: list[tuple[str, Any]] = []
    program.tree = flatten_tree(
        result, "result", named_results, lambda value, path: IdentityKey(value)
    )
    tensors: dict[int, tuple[int, Tensor]] = {}

    def output_position(tensor: Tensor) -> int:
        return tensors.setdefault(tensor.id, (len(tensors), tensor))[0]

    for path, leaf in named_results:
        if not isinstance(leaf, TracedArray):
            program.results.append(leaf)
            continue
        if leaf.trace is not trace:
            raise trace_error(
                path, "the array belongs to another call, which has ended"
            )
        im = -1 if leaf.im is None else output_position(leaf.im)
        program.results.append(ResultArray(output_position(leaf.re), im, leaf.dtype))
    if tensors:
        trace.graph.set_outputs([tensor for _, tensor in tensors.values()])
    else:
        program.graph = None
