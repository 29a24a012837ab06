"""Engine that runs a plan over any NumPy-like namespace with the ops' reference
implementations.

This is the meaning of every op put to work: `ArrayEngine` is an engine on NumPy or on
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

from rlxweb.compiler.plan import Plan, PlanStep
from rlxweb.compiler.target import Target
from rlxweb.core.errors import OutOfMemory
from rlxweb.core.thread_tasks import cancellation_check
from rlxweb.engines.array_device_arrays import (
    LibraryArray,
    LibraryArrayEngine,
    copy_if_shared,
    restore_dtype,
    upload_array,
)
from rlxweb.engines.array_latency_probes import ArrayLatencyProbes
from rlxweb.engines.array_node_calls import (
    NodeCall,
    call_custom_reference,
    dead_after_steps,
)
from rlxweb.engines.array_step_clock import StepClock
from rlxweb.engines.capabilities import (
    HasVariants,
    Measures,
    Profiles,
    SharesParams,
    unknown_variant_error,
)
from rlxweb.engines.protocol import (
    Array,
    DeviceBuffer,
    EngineIdentity,
    Feeds,
    Program,
    closed_error,
    require_own_program,
)
from rlxweb.engines.timed_run_result import TimedRun
from rlxweb.ir.dtype import PACKED_DTYPES, DType
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.lowering import Compose, Leaf
from rlxweb.ir.op import Attrs, Op, TensorType, Types, registry
from rlxweb.ir.verify import result_type_error
from rlxweb.ops.kernel_variant import KernelTable, KernelVariant, select_kernel

_SMALL_BYTES: Final = 1 << 12
"""Values below this size are kept to the end of the run."""
NodeWork = tuple[Node, Callable[..., LibraryArray], tuple[int, ...]]
"""A node, the function that computes it, and the ids of its operands."""
Compute = Callable[[dict[int, LibraryArray]], list[LibraryArray]]


@dataclass(slots=True)
class ArrayProgram(Program):
    """Plan compiled to one function; constants and params are on the device.

    leaf_ids  the nodes of inputs and params, by name
    compute  leaves by node, which are used up → outputs
    calls    the same one by one, in order
    call_variants  the kernel variants of the calls, by the number of their node;
                   `compute` may run several calls by another one
    """

    plan: Plan
    engine: ArrayEngine
    leaf_ids: Mapping[str, int]
    compute: Compute
    calls: Sequence[NodeCall]
    constants: dict[int, LibraryArray]
    call_variants: Mapping[int, str]
    kernel_variants: Mapping[int, str] = field(default_factory=dict)
    params: dict[str, LibraryArray] = field(default_factory=dict)
    is_closed: bool = False

    async def set_param(self, name: str, value: Array | DeviceBuffer) -> None:
        if self.is_closed:
            raise closed_error(f"set param '{name}'")
        if name not in self.leaf_ids:  # it is of no type of ours and never read
            return
        if not isinstance(value, DeviceBuffer):
            value = np.array(value)  # else a library may take over the caller's memory
        with self.engine.library_context():
            self.params[name] = self.engine.library_array(value)

    async def get_param(self, name: str) -> Array:
        if self.is_closed:
            raise closed_error(f"get param '{name}'")
        with self.engine.library_context():
            values = np.array(self.engine.copy_to_host(self.params[name]))
        return restore_dtype(values, self.plan.graph.named("param")[name].type.dtype)

    async def close(self) -> None:
        self.is_closed = True
        # New ones, as a run on another thread may be going through the old.
        self.constants, self.params = {}, {}
        self.calls, self.compute = (), lambda values: []


def array_target(name: str, dtypes: frozenset[DType]) -> Target:
    """Return the target of a library that implements every op, makes its own views and
    has no kernels.
    """
    return Target(
        name=name,
        dtypes=dtypes - PACKED_DTYPES,
        storage_dtypes=dtypes & PACKED_DTYPES,
        native=lambda op, *arguments: (
            not (isinstance(op.lower, Compose) and op.lower.is_always_expanded)
        ),
        max_operands=1 << 30,
        keeps_views=True,
        bool_bytes=1,
    )


ignore_float_errors = partial(np.errstate, all="ignore")


class ArrayEngine(LibraryArrayEngine, Profiles, SharesParams, Measures, HasVariants):
    """Engine over a NumPy-like array library; values are dropped once no later step
    reads them.

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
    variants   faster kernels of ops on these arrays; the first that can run a node does
    """

    # Said of each instance; the class must have them to be an engine.
    identity = EngineIdentity("arrays")
    target = array_target("arrays", frozenset())

    def __init__(
        self,
        xp: Any,
        identity: EngineIdentity,
        target: Target,
        *,
        to_device: Callable[[Array], LibraryArray],
        to_host: Callable[[Any], Array],
        copied: Callable[[Any], LibraryArray] | None = None,
        from_dlpack: Callable[[object], LibraryArray] | None = None,
        variants: Sequence[KernelVariant] = (),
        around: Callable[[], AbstractContextManager[Any]] = ignore_float_errors,
        why_lost: Callable[[], str] = str,
        room: float = inf,
    ) -> None:
        self.identity, self.target = identity, target
        self.xp = xp
        self._to_device, self.copy_to_host = partial(upload_array, to_device), to_host
        self.copy_array = copied or partial(xp.asarray, copy=True)
        self._from_dlpack = from_dlpack
        self.kernels = KernelTable(variants)
        self._library_dtypes: dict[DType, Any] = {}
        self.library_context, self._loss_reason, self._max_array_bytes = (
            around,
            why_lost,
            room,
        )
        with around():
            probe = to_device(np.zeros(1, np.float32))
            # A library whose arrays lie in host memory lends it: twice the same bytes.
            self._shares_host_memory = np.may_share_memory(
                to_host(probe), to_host(probe)
            )

    @property
    def lost(self) -> str:
        return self._loss_reason()

    async def prepare(self, plan: Plan) -> ArrayProgram:
        graph = plan.graph
        self._check_array_sizes(graph)
        variants: dict[int, str] = {}
        step_work = [self._step_work(graph, step, variants) for step in plan.steps]
        work, steps = self._fuse_calls(
            graph,
            [item for work_items in step_work for item in work_items],
            [index for index, work_items in enumerate(step_work) for _ in work_items],
        )
        keep_ids = set(graph.outputs) | {
            n.id for n in graph.nodes() if isinstance(registry.get(n.op).lower, Leaf)
        }
        keep_ids |= {n.id for n in graph.nodes() if n.type.nbytes < _SMALL_BYTES}
        dead_values = dead_after_steps([inputs for _, _, inputs in work], keep_ids)
        with self.library_context():
            dtypes = {
                n.type.dtype: self._library_dtype(n.type.dtype) for n, _, _ in work
            }
            constants = {
                n.id: self._to_device(n.attrs["value"].array)
                for n in graph.nodes()
                if n.op == "constant"
            }
        calls = [
            NodeCall(
                node, function, inputs, tuple(dead), dtypes[node.type.dtype], index
            )
            for (node, function, inputs), dead, index in zip(
                work, dead_values, steps, strict=True
            )
        ]
        compute = self._bind_computation(graph, calls)
        nodes = graph.named("input") | graph.named("param")
        leaf_ids = {name: node.id for name, node in nodes.items()}
        return ArrayProgram(
            plan, self, leaf_ids, compute, calls, constants, variants, variants
        )

    def _library_dtype(self, dtype: DType) -> Any:
        """Return the library's own name of a dtype."""
        if dtype not in self._library_dtypes:
            sample = self._to_device(np.zeros(1, dtype.numpy))
            self._library_dtypes[dtype] = sample.dtype
        return self._library_dtypes[dtype]

    def _check_array_sizes(self, graph: Graph) -> None:
        for node in graph.nodes():
            if node.type.nbytes > self._max_array_bytes:
                raise OutOfMemory(
                    f"{node} on {self.name}",
                    f"the result needs {node.type.nbytes:,} bytes",
                    "an array on this device can have at most "
                    f"{self._max_array_bytes:,} bytes",
                    "use a smaller problem, or split the batch",
                )

    def _step_work(
        self, graph: Graph, step: PlanStep, variants: dict[int, str]
    ) -> list[NodeWork]:
        """Return the calls of a step: one for each node, or one for a whole region.

        variants  gets the kernel variant of each node that one runs
        """
        is_fused = step.kind in ("region", "lines")
        region = self._region_function(graph, step) if is_fused else None
        if region is not None:
            return [(graph.node(step.nodes[-1]), *region)]
        work: list[NodeWork] = []
        for i in step.nodes:
            node = graph.node(i)
            function, variant = self._node_kernel(graph, node)
            work.append((node, function, node.inputs))
            if variant:
                variants[i] = variant
        return work

    def _fuse_calls(
        self, graph: Graph, work: list[NodeWork], steps: list[int]
    ) -> tuple[list[NodeWork], list[int]]:
        """Merge calls of several steps into one where the engine can."""
        return work, steps

    def _region_function(
        self, graph: Graph, step: PlanStep
    ) -> tuple[Callable[..., LibraryArray], tuple[int, ...]] | None:
        """Return one function for a region, or for a fused row reduction, and the ids
        of the nodes it reads; None to run it op by op.
        """
        return None

    def _bind_computation(self, graph: Graph, calls: Sequence[NodeCall]) -> Compute:
        """Return the function that computes the outputs from the leaves."""
        return partial(self._compute_outputs, graph, calls)

    def _node_function(self, graph: Graph, node: Node) -> Callable[..., LibraryArray]:
        return self._node_kernel(graph, node)[0]

    def _node_kernel(
        self, graph: Graph, node: Node
    ) -> tuple[Callable[..., LibraryArray], str]:
        """Return the function that computes a node, and the name of its variant."""
        types = tuple([graph.node(i).type for i in node.inputs])
        op = registry.get(node.op)

        def fit(
            variant: KernelVariant | None,
        ) -> tuple[Callable[..., LibraryArray], str] | None:
            if variant is None:
                return self._reference_function(op, node), ""
            function = variant.build(types, node.type, node.attrs)
            return None if function is None else (function, variant.name)

        ordered = self.kernels.ordered(node.op, types) if node.type.numel else (None,)
        kernel = select_kernel(ordered, types, node.type, node.attrs, fit)
        assert kernel is not None  # the reference fits
        return kernel

    def _reference_function(self, op: Op, node: Node) -> Callable[..., LibraryArray]:
        """Return the op's own function (attrs, *arrays) → array."""
        if op.has_trait("custom"):
            return partial(call_custom_reference, op.reference, self.xp)
        if not node.type.numel and op.guard is None:
            # There libraries raise, or read what is not theirs.
            return partial(self._empty_result, node.type)
        return partial(op.reference, self.xp)

    def _empty_result(self, out: TensorType, *operands: object) -> LibraryArray:
        return self._to_device(np.zeros(out.shape, out.dtype.numpy))

    async def latency_probes(self) -> ArrayLatencyProbes | None:
        """Return the latency probes; None for a library that computes on the host's own
        cores.
        """
        if self.identity.software or self.xp is np:
            return None
        return ArrayLatencyProbes(
            self._to_device, self.copy_to_host, self.copy_array, self.library_context
        )

    def variants_for(
        self, op: Op, inputs: Types, out: TensorType, attrs: Attrs
    ) -> tuple[str, ...]:
        return tuple(
            variant.name
            for variant in self.kernels.for_op(op.name)
            if variant.can_run(inputs, out, attrs)
        )

    def with_variant(self, variant: str) -> ArrayEngine:
        variants = self.kernels.with_name(variant)
        if variant and not variants:
            raise unknown_variant_error(self, variant)
        engine = copy(self)
        # Cached programs and the verdicts on custom ops belong to one set of kernels.
        vars(engine).pop("_caches", None)
        engine.kernels = KernelTable(variants)
        return engine

    async def prepare_sharing_params(self, plan: Plan, other: Program) -> ArrayProgram:
        program = await self.prepare(plan)
        program.params = require_own_program(self, ArrayProgram, other).params
        return program

    async def run(
        self, program: Program, feeds: Feeds, keep: Sequence[bool] = ()
    ) -> list[Any]:
        program = require_own_program(self, ArrayProgram, program)
        if any(keep):
            # What stays may be an input, or read it still when the caller writes there:
            # a library may take over the host's memory as it is.
            feeds = {
                name: value if isinstance(value, DeviceBuffer) else np.array(value)
                for name, value in feeds.items()
            }
        with self.library_context():
            compute, values = self._bind_leaves(program, feeds)
            leaves = list(values.values())
            outputs = compute(values)
            return self._caller_outputs(program.plan.graph, outputs, leaves, keep)

    def _caller_outputs(
        self,
        graph: Graph,
        outputs: Sequence[LibraryArray],
        leaves: Sequence[LibraryArray],
        keep: Sequence[bool] = (),
    ) -> list[Any]:
        """Return the outputs that stay as device buffers, the others in memory of the
        caller's own, which none shares with a leaf or with what stays.
        """
        types = [graph.node(i).type for i in graph.outputs]
        kept_buffers = {
            index: self._device_buffer(types[index], self._contiguous(outputs[index]))
            for index, stays in enumerate(keep)
            if stays
        }
        shared: list[Array] = []
        if self._shares_host_memory:
            values = [*leaves, *(buffer.value for buffer in kept_buffers.values())]
            shared = [self.copy_to_host(value) for value in values]
        results: list[Any] = []
        for index, output in enumerate(outputs):
            if index in kept_buffers:
                results.append(kept_buffers[index])
                continue
            array = copy_if_shared(self.copy_to_host(output), shared)
            shared.append(restore_dtype(array, types[index].dtype))
            results.append(shared[-1])
        return results

    async def run_timed(self, program: Program, feeds: Mapping[str, Array]) -> TimedRun:
        program = require_own_program(self, ArrayProgram, program)
        clock = StepClock(len(program.plan.steps), self.copy_to_host)
        with self.library_context():
            _, values = self._bind_leaves(program, feeds)
            leaves = [clock.wait_for(leaf) for leaf in values.values()]
            clock.end_upload()
            outputs = self._compute_outputs(
                program.plan.graph, program.calls, values, clock
            )
            clock.end_work()
            results = self._caller_outputs(program.plan.graph, outputs, leaves)
            return clock.timed_run(results, program.call_variants)

    def _bind_leaves(
        self, program: ArrayProgram, feeds: Feeds
    ) -> tuple[Compute, dict[int, LibraryArray]]:
        """Return the function that a run computes and the values it starts from."""
        compute = program.compute
        # Taken before it is asked whether they are still there: runs need no turns.
        params, values = dict(program.params), dict(program.constants)
        if program.is_closed:
            raise closed_error(f"run '{program.plan.graph.name}' on {self.name}")
        for name, node_id in program.leaf_ids.items():
            values[node_id] = (
                params[name] if name in params else self.library_array(feeds[name])
            )
        return compute, values

    def _compute_outputs(
        self,
        graph: Graph,
        calls: Sequence[NodeCall],
        values: dict[int, LibraryArray],
        clock: StepClock | None = None,
    ) -> list[LibraryArray]:
        """Compute the outputs call by call, timed if a clock is given."""
        self.run_calls(calls, values, clock)
        return [values[i] for i in graph.outputs]

    def run_calls(
        self,
        calls: Sequence[NodeCall],
        values: dict[int, LibraryArray],
        clock: StepClock | None = None,
    ) -> None:
        """Run the calls in order and store each result in `values`."""
        check = cancellation_check()
        ndarray_type = np.ndarray if self.xp is np else None
        # A small network would feel every question that is asked twice.
        for call in calls:
            node, function, inputs, dead_values, dtype, step = call
            if check is not None:
                check()
            if len(inputs) == 1:
                result: Any = function(node.attrs, values[inputs[0]])
            elif len(inputs) == 2:
                result = function(node.attrs, values[inputs[0]], values[inputs[1]])
            else:
                result = function(node.attrs, *[values[i] for i in inputs])
            is_expected = type(result) is ndarray_type and result.dtype is dtype
            if not is_expected or result.shape != node.type.shape:
                result = self._check_result(call, result)
            values[node.id] = result
            if clock is not None:
                clock.end_call(step, result)
            for node_id in dead_values:
                values.pop(node_id, None)

    def _check_result(self, call: NodeCall, result: object) -> LibraryArray:
        """Return the result as an array; raise GraphError when a reference breaks its
        own shape rule.
        """
        array: LibraryArray = self.xp.asarray(result)
        if array.dtype != call.dtype or tuple(array.shape) != call.node.type.shape:
            raise result_type_error(call.node, array.shape, array.dtype)
        return array
