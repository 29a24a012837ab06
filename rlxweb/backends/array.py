"""Runs a plan, or a bare graph, over any NumPy-like namespace by the ops' references.

This is the meaning of every op put to work: `ArrayBackend` is an engine on NumPy or on
a library that looks like it, and the tests evaluate graphs in float64 as their oracle.
Nothing here touches a device array but through its own namespace.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np

from rlxweb.backends.protocol import Array, Backend, Program, own, released
from rlxweb.compile.plan import Plan
from rlxweb.compile.target import Target
from rlxweb.errors import InputError
from rlxweb.given import array_of
from rlxweb.host.variants import Variant
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.lowering import Leaf
from rlxweb.ir.op import registry
from rlxweb.ir.verify import wrong_result
from rlxweb.stopping import check_stopped


class DeviceArray(Protocol):
    """What is asked of an array outside its own namespace."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> object: ...


@dataclass(frozen=True, slots=True)
class _Call:
    """One node as a function call: what to call, on which values, to which.

    dtype  the node's element type in the library's own words
    """

    node: Node
    function: Callable[..., DeviceArray]
    inputs: tuple[int, ...]
    drop: tuple[int, ...]
    dtype: object


@dataclass(slots=True)
class ArrayProgram(Program):
    """A plan as a flat list of calls; constants and params lie on the device."""

    plan: Plan
    engine: Backend
    calls: list[_Call]
    constants: dict[int, DeviceArray]
    params: dict[str, DeviceArray] = field(default_factory=dict)
    released: bool = False


def array_target(name: str, dtypes: frozenset[DType]) -> Target:
    """The target of a library that has every op, makes its own views and no kernels."""
    return Target(
        name=name,
        dtypes=dtypes,
        native=lambda op, inputs, out, attrs: True,
        max_operands=1 << 30,
        keeps_views=True,
        bool_bytes=1,
    )


class ArrayBackend(Backend):
    """See `protocol.Backend`. Values are dropped once no later step reads them.

    xp         the namespace: the functions that references call, and the dtypes
    target     what the compiler is told; `array_target` makes the usual one
    to_device  NumPy array → array of xp
    to_host    array of xp → NumPy array; it may lie in the same memory
    variants   faster ways to run an op on these arrays, the first open one is taken
    """

    # Said of each instance; the class must have them to be an engine.
    name = adapter = ""
    target = array_target("arrays", frozenset())

    def __init__(
        self,
        xp: Any,
        target: Target,
        *,
        name: str,
        adapter: str = "",
        api: str = "",
        driver: str = "",
        software: bool = False,
        to_device: Callable[[Array], DeviceArray],
        to_host: Callable[[Any], Array],
        variants: Sequence[Variant] = (),
    ) -> None:
        self.target = target
        self.name, self.adapter = name, adapter or name
        self.api, self.driver = api, driver
        self.software = software
        self._xp = xp
        self._to_device, self._to_host = to_device, to_host
        self._variants = tuple(variants)
        one = to_device(np.zeros(1, np.float32))
        # A library whose arrays lie in host memory lends it out: twice the same bytes.
        self._lends = np.may_share_memory(to_host(one), to_host(one))

    async def prepare(self, plan: Plan) -> ArrayProgram:
        graph = plan.graph
        nodes = [graph.node(i) for step in plan.steps for i in step.nodes]
        keep = set(graph.outputs) | {
            n.id for n in graph.nodes() if isinstance(registry.get(n.op).lower, Leaf)
        }
        drops = order_of_release([n.inputs for n in nodes], keep)
        dtypes = {
            dtype: self._to_device(np.zeros(1, dtype.numpy)).dtype
            for dtype in {n.type.dtype for n in nodes}
        }
        calls = [
            _Call(n, self._function(graph, n), n.inputs, tuple(d), dtypes[n.type.dtype])
            for n, d in zip(nodes, drops, strict=True)
        ]
        constants = {
            n.id: self._to_device(n.attrs["value"].array)
            for n in graph.nodes()
            if n.op == "constant"
        }
        return ArrayProgram(plan, self, calls, constants)

    def _function(self, graph: Graph, node: Node) -> Callable[..., DeviceArray]:
        types = tuple(graph.node(i).type for i in node.inputs)
        for row in self._variants:
            if row.op == node.op and row.gate(types, node.type, node.attrs):
                return row.run
        op = registry.get(node.op)
        if op.has("custom"):
            return partial(_by_strangers, op.reference, self._xp)
        return partial(op.reference, self._xp)

    async def set_param(self, program: Program, name: str, value: Array) -> None:
        program = own(self, ArrayProgram, program)
        program.params[name] = self._to_device(np.array(value))

    async def run(self, program: Program, feeds: Mapping[str, Array]) -> list[Array]:
        program = own(self, ArrayProgram, program)
        graph, calls = program.plan.graph, program.calls
        # Taken before it is asked whether they are still there: runs need no turns.
        held, values = dict(program.params), dict(program.constants)
        if program.released:
            raise released(f"run '{graph.name}' on {self.name}")
        for name, node in (graph.named("input") | graph.named("param")).items():
            given = held[name] if name in held else self._to_device(feeds[name])
            values[node.id] = given
        leaves = list(values.values())
        with np.errstate(all="ignore"):
            for call in calls:
                check_stopped()
                arrays = [values[i] for i in call.inputs]
                made = call.function(call.node.attrs, *arrays)
                values[call.node.id] = self._checked(call, made)
                for at in call.drop:
                    values.pop(at, None)
        others = [self._to_host(leaf) for leaf in leaves] if self._lends else []
        outs: list[Array] = []
        for i in graph.outputs:
            outs.append(_own(self._to_host(values[i]), [*others, *outs]))
        return outs

    def _checked(self, call: _Call, made: object) -> DeviceArray:
        """The array, or GraphError when a reference breaks its own shape rule."""
        array: DeviceArray = self._xp.asarray(made)
        if array.dtype != call.dtype or tuple(array.shape) != call.node.type.shape:
            raise wrong_result(call.node, array.shape, array.dtype)
        return array

    async def release(self, program: Program) -> None:
        program = own(self, ArrayProgram, program)
        program.released = True
        # New ones, as a run on another thread may be going through the old.
        program.calls, program.constants, program.params = [], {}, {}


def _by_strangers(reference: Callable[..., Any], *given: Any) -> Any:
    """A custom op's result; its operands, which others read too, cannot be written.

    Errors   ValueError by NumPy, where it tries; DTypeError for masked results.
    """
    made = reference(*map(_sealed, given))
    is_subclass = isinstance(made, np.ndarray) and type(made) is not np.ndarray
    return array_of(made, "the reference of a custom op") if is_subclass else made


def _sealed(one: Any) -> Any:
    if not isinstance(one, np.ndarray):
        return one
    view = one.view()
    view.flags.writeable = False
    return view


def _own(array: Array, others: Sequence[Array]) -> Array:
    """The array itself, or a copy when its memory is not the caller's to write."""
    plain = array.flags.c_contiguous and array.flags.writeable
    if not plain or any(np.may_share_memory(array, o) for o in others):
        return array.copy(order="C")
    return array


def evaluate(
    graph: Graph,
    feeds: Mapping[str, Any],
    xp: Any = np,
    *,
    promote: bool = False,
) -> list[Any]:
    """Every output of a graph, node by node.

    feeds    inputs and params by name
    promote  compute in float64: floats in are promoted and casts to floats stay there
    """
    values: dict[int, Any] = {}
    with np.errstate(all="ignore"):
        for node in graph.nodes():
            values[node.id] = _value(node, values, feeds, xp, promote)
    return [values[i] for i in graph.outputs]


def _value(
    node: Node,
    values: Mapping[int, Any],
    feeds: Mapping[str, Any],
    xp: Any,
    promote: bool,
) -> Any:
    if node.op in ("input", "param"):
        if node.name not in feeds:
            raise InputError(f"evaluate {node}", "no value was given for it")
        value = xp.asarray(feeds[node.name])
    else:
        attrs = dict(node.attrs)
        if promote and attrs.get("to") in (DType.F16, DType.F32):
            attrs["to"] = DType.F64
        op = registry.get(node.op)
        value = op.reference(xp, attrs, *(values[i] for i in node.inputs))
    if promote and node.type.dtype.is_float:
        value = xp.asarray(value, dtype=xp.float64)
    return value


def order_of_release(steps: Sequence[Sequence[int]], keep: set[int]) -> list[list[int]]:
    """For each step (ids it reads), the values no later step needs."""
    last = {value: at for at, reads in enumerate(steps) for value in reads}
    return [
        [i for i in dict.fromkeys(reads) if last[i] == at and i not in keep]
        for at, reads in enumerate(steps)
    ]
