"""Runs a plan over any NumPy-like namespace by the ops' references.

This is the meaning of every op put to work: `ArrayBackend` is an engine on NumPy or on
a library that looks like it. Nothing here touches a device array but through its own
namespace.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Any, Final

import numpy as np

from rlxweb.backends.array_calls import Call, by_strangers, order_of_release
from rlxweb.backends.array_residents import (
    ArrayResident,
    KeepsArrays,
    OwnArray,
    laid,
    of_type,
    unshared,
)
from rlxweb.backends.array_timed import StepClock
from rlxweb.backends.array_trips import ArrayTrips
from rlxweb.backends.protocol import (
    Array,
    Backend,
    Feeds,
    Program,
    Resident,
    own,
    own_resident,
    released,
)
from rlxweb.backends.timed import Timed
from rlxweb.compile.plan import Plan, Step
from rlxweb.compile.target import Target
from rlxweb.errors import OutOfMemory
from rlxweb.host.variants import Variant
from rlxweb.ir.dtype import NARROW, DType
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.lowering import Compose, Leaf
from rlxweb.ir.op import Attrs, Op, TensorType, Types, registry
from rlxweb.ir.verify import wrong_result
from rlxweb.stopping import stop_check

_SMALL: Final = 1 << 12
"""Bytes that a run may as well keep to its end."""
Work = tuple[Node, Callable[..., OwnArray], tuple[int, ...]]
"""What is computed, how, and of which nodes."""
Compute = Callable[[dict[int, OwnArray]], list[OwnArray]]


@dataclass(slots=True)
class ArrayProgram(Program):
    """A plan as one function; constants and params lie on the device.

    named    the nodes of inputs and params, by name
    compute  leaves by node, which are used up → outputs
    calls    the same one by one, in order
    """

    plan: Plan
    engine: Backend
    named: Mapping[str, int]
    compute: Compute
    calls: Sequence[Call]
    constants: dict[int, OwnArray]
    params: dict[str, OwnArray] = field(default_factory=dict)
    released: bool = False


def array_target(name: str, dtypes: frozenset[DType]) -> Target:
    """The target of a library that has every op, makes its own views and no kernels."""
    return Target(
        name=name,
        dtypes=dtypes - NARROW,
        stores=dtypes & NARROW,
        native=lambda op, *about: (
            not (isinstance(op.lower, Compose) and op.lower.apart)
        ),
        max_operands=1 << 30,
        keeps_views=True,
        bool_bytes=1,
    )


quiet = partial(np.errstate, all="ignore")


class ArrayBackend(KeepsArrays):
    """See `protocol.Backend`. Values are dropped once no later step reads them.

    xp         the namespace: the functions that references call, and the dtypes
    target     what the compiler is told; `array_target` makes the usual one
    to_device  NumPy array → array of xp
    to_host    array of xp → NumPy array; it may lie in the same memory
    copied     array of xp → the same in memory of its own, on its device
    from_dlpack  another library's array on the same device → array of xp, not moved
    around     entered around all that the library does: settings and device for this
               thread and this work alone; NumPy's errors are silent in any case
    why_lost   asked for `lost`: "" while the library works in this process
    room       most bytes of one array, for a library that more of them would crash
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
        to_device: Callable[[Array], OwnArray],
        to_host: Callable[[Any], Array],
        copied: Callable[[Any], OwnArray] | None = None,
        from_dlpack: Callable[[object], OwnArray] | None = None,
        variants: Sequence[Variant] = (),
        around: Callable[[], AbstractContextManager[Any]] = quiet,
        why_lost: Callable[[], str] = str,
        room: float = inf,
    ) -> None:
        self.target = target
        self.name, self.adapter = name, adapter or name
        self.api, self.driver = api, driver
        self.software = software
        self._xp = xp
        self._to_device, self._to_host = partial(laid, to_device), to_host
        self._copied = copied or partial(xp.asarray, copy=True)
        self._from_dlpack = from_dlpack
        self.variants = tuple(variants)
        self._around, self._why_lost, self._room = around, why_lost, room
        with around():
            one = to_device(np.zeros(1, np.float32))
            # A library whose arrays lie in host memory lends it: twice the same bytes.
            self._lends = np.may_share_memory(to_host(one), to_host(one))

    @property
    def lost(self) -> str:
        return self._why_lost()

    async def prepare(self, plan: Plan) -> ArrayProgram:
        graph = plan.graph
        self._check_room(graph)
        parts = [self._work(graph, step) for step in plan.steps]
        todo, steps = self._together(
            graph,
            [one for part in parts for one in part],
            [at for at, part in enumerate(parts) for _ in part],
        )
        keep = set(graph.outputs) | {
            n.id for n in graph.nodes() if isinstance(registry.get(n.op).lower, Leaf)
        }
        keep |= {n.id for n in graph.nodes() if n.type.nbytes < _SMALL}
        drops = order_of_release([inputs for _, _, inputs in todo], keep)
        with self._around():
            dtypes = {
                dtype: self._to_device(np.zeros(1, dtype.numpy)).dtype
                for dtype in {n.type.dtype for n, _, _ in todo}
            }
            constants = {
                n.id: self._to_device(n.attrs["value"].array)
                for n in graph.nodes()
                if n.op == "constant"
            }
        calls = [
            Call(node, function, inputs, tuple(drop), dtypes[node.type.dtype], at)
            for (node, function, inputs), drop, at in zip(
                todo, drops, steps, strict=True
            )
        ]
        compute = self._computation(graph, calls)
        nodes = graph.named("input") | graph.named("param")
        named = {name: node.id for name, node in nodes.items()}
        return ArrayProgram(plan, self, named, compute, calls, constants)

    def _check_room(self, graph: Graph) -> None:
        for node in graph.nodes():
            if node.type.nbytes > self._room:
                raise OutOfMemory(
                    f"{node} on {self.name}",
                    f"it takes {node.type.nbytes:,} bytes",
                    f"there are {self._room:,}",
                    "use a smaller problem, or split the batch",
                )

    def _work(self, graph: Graph, step: Step) -> list[Work]:
        """The calls of a step: one for each node, or one for all of a region."""
        region = self._region(graph, step) if step.kind == "region" else None
        if region is not None:
            return [(graph.node(step.nodes[-1]), *region)]
        nodes = [graph.node(i) for i in step.nodes]
        return [(node, self._function(graph, node), node.inputs) for node in nodes]

    def _together(
        self, graph: Graph, todo: list[Work], steps: list[int]
    ) -> tuple[list[Work], list[int]]:
        """Calls of several steps as one, where there is such a one."""
        return todo, steps

    def _region(
        self, graph: Graph, step: Step
    ) -> tuple[Callable[..., OwnArray], tuple[int, ...]] | None:
        """One function for a region and the nodes it reads, where there is one."""
        return None

    def _computation(self, graph: Graph, calls: Sequence[Call]) -> Compute:
        """How the outputs come of the leaves."""
        return partial(self._computed, graph, calls)

    def _function(self, graph: Graph, node: Node) -> Callable[..., OwnArray]:
        types = tuple(graph.node(i).type for i in node.inputs)
        for row in self.variants if node.type.numel else ():
            if row.op == node.op and row.takes(types, node.type, node.attrs):
                return row.of(types, node.type, node.attrs)
        op = registry.get(node.op)
        if op.has("custom"):
            return partial(by_strangers, op.reference, self._xp)
        if not node.type.numel and op.guard is None:
            # There libraries raise, or read what is not theirs.
            return partial(self._no_elements, node.type)
        return partial(op.reference, self._xp)

    def _no_elements(self, kind: TensorType, *given: object) -> OwnArray:
        return self._to_device(np.zeros(kind.shape, kind.dtype.numpy))

    async def trips(self) -> ArrayTrips | None:
        """None for a library that computes on the host's own cores."""
        if self.software or self._xp is np:
            return None
        return ArrayTrips(self._to_device, self._to_host, self._copied, self._around)

    def variants_for(
        self, op: Op, inputs: Types, out: TensorType, attrs: Attrs
    ) -> tuple[str, ...]:
        rows = (row for row in self.variants if row.op == op.name)
        return tuple(row.name for row in rows if row.takes(inputs, out, attrs))

    def forced(self, variant: str) -> Backend:
        rows = tuple(row for row in self.variants if row.name == variant)
        if not rows:
            return super().forced(variant)
        other = copy(self)
        other.variants = rows
        return other

    async def prepare_beside(self, plan: Plan, other: Program) -> ArrayProgram:
        program = await self.prepare(plan)
        program.params = own(self, ArrayProgram, other).params
        return program

    async def set_param(self, program: Program, name: str, value: Array) -> None:
        program = own(self, ArrayProgram, program)
        if name not in program.named:  # it is of no type of ours and never read
            return
        with self._around():
            program.params[name] = self._to_device(np.array(value))

    async def get_param(self, program: Program, name: str) -> Array:
        program = own(self, ArrayProgram, program)
        with self._around():
            held = np.array(self._to_host(program.params[name]))
        return of_type(held, program.plan.graph.named("param")[name].type.dtype)

    async def run(self, program: Program, feeds: Mapping[str, Array]) -> list[Array]:
        program = own(self, ArrayProgram, program)
        with self._around():
            compute, values = self._leaves(program, feeds)
            leaves = list(values.values())
            made = compute(values)
            return self._handed_out(program.plan.graph, made, leaves)

    def _handed_out(
        self, graph: Graph, made: Sequence[OwnArray], leaves: Sequence[OwnArray]
    ) -> list[Array]:
        """The outputs as the caller's own: none lies where a leaf does."""
        others = [self._to_host(leaf) for leaf in leaves] if self._lends else []
        outs: list[Array] = []
        for at, one in zip(graph.outputs, made, strict=True):
            mine = unshared(self._to_host(one), others + outs)
            outs.append(of_type(mine, graph.node(at).type.dtype))
        return outs

    async def timed(self, program: Program, feeds: Mapping[str, Array]) -> Timed:
        program = own(self, ArrayProgram, program)
        clock = StepClock(len(program.plan.steps), self._to_host)
        with self._around():
            _, values = self._leaves(program, feeds)
            leaves = [clock.waited(leaf) for leaf in values.values()]
            clock.uploaded()
            made = self._computed(program.plan.graph, program.calls, values, clock)
            clock.worked()
            outs = self._handed_out(program.plan.graph, made, leaves)
            return clock.timed(outs)

    def _leaves(
        self, program: ArrayProgram, feeds: Feeds
    ) -> tuple[Compute, dict[int, OwnArray]]:
        """What a run computes, and the values it starts from."""
        compute = program.compute
        # Taken before it is asked whether they are still there: runs need no turns.
        held, values = dict(program.params), dict(program.constants)
        if program.released:
            raise released(f"run '{program.plan.graph.name}' on {self.name}")
        for name, at in program.named.items():
            values[at] = held[name] if name in held else self._fed(feeds[name])
        return compute, values

    async def run_resident(
        self, program: Program, feeds: Feeds, keep: Sequence[bool]
    ) -> list[Array | Resident]:
        program = own(self, ArrayProgram, program)
        graph = program.plan.graph
        # What stays may be an input, or read it still when the caller writes there: a
        # library may take over the host's memory as it is.
        private = {
            name: one if isinstance(one, Resident) else np.array(one)
            for name, one in feeds.items()
        }
        with self._around():
            compute, values = self._leaves(program, private)
            leaves = list(values.values())
            made = compute(values)
            kinds = [graph.node(i).type for i in graph.outputs]
            stay = {
                at: self._resident(kind, self._dense(made[at]))
                for at, kind in enumerate(kinds)
                if keep[at]
            }
            mine = [*leaves, *(one.value for one in stay.values())]
            others = [self._to_host(one) for one in mine] if self._lends else []
            outs: list[Array | Resident] = []
            for at, one in enumerate(made):
                if at not in stay:
                    fresh = unshared(self._to_host(one), others)
                    others.append(of_type(fresh, kinds[at].dtype))
                outs.append(stay[at] if at in stay else others[-1])
        return outs

    async def set_param_resident(
        self, program: Program, name: str, value: Resident
    ) -> None:
        program = own(self, ArrayProgram, program)
        program.params[name] = own_resident(self, ArrayResident, value).value

    def _computed(
        self,
        graph: Graph,
        calls: Sequence[Call],
        values: dict[int, OwnArray],
        clock: StepClock | None = None,
    ) -> list[OwnArray]:
        """The outputs, call by call, under a clock where they are timed."""
        self.call_all(calls, values, clock)
        return [values[i] for i in graph.outputs]

    def call_all(
        self,
        calls: Sequence[Call],
        values: dict[int, OwnArray],
        clock: StepClock | None = None,
    ) -> None:
        """What calls make of values, among which it is put."""
        check, plain = stop_check(), np.ndarray if self._xp is np else None
        # A small network would feel every question that is asked twice.
        for call in calls:
            node, function, inputs, drop, dtype, step = call
            if check is not None:
                check()
            if len(inputs) == 1:
                made: Any = function(node.attrs, values[inputs[0]])
            elif len(inputs) == 2:
                made = function(node.attrs, values[inputs[0]], values[inputs[1]])
            else:
                made = function(node.attrs, *[values[i] for i in inputs])
            right = type(made) is plain and made.dtype is dtype
            if not right or made.shape != node.type.shape:
                made = self._checked(call, made)
            values[node.id] = made
            if clock is not None:
                clock.did(step, made)
            for at in drop:
                values.pop(at, None)

    def _checked(self, call: Call, made: object) -> OwnArray:
        """The array, or GraphError when a reference breaks its own shape rule."""
        array: OwnArray = self._xp.asarray(made)
        if array.dtype != call.dtype or tuple(array.shape) != call.node.type.shape:
            raise wrong_result(call.node, array.shape, array.dtype)
        return array

    async def release(self, program: Program) -> None:
        program = own(self, ArrayProgram, program)
        program.released = True
        # New ones, as a run on another thread may be going through the old.
        program.constants, program.params = {}, {}
        program.calls, program.compute = (), lambda values: []
