"""Selection of the kernel that runs an op on one device, with a cache of the choices.

Asked twice about the same op and types: by the compiler ("can this stay one step?") and
by the program builder ("then give me the launches"). The first variant whose feature
the device has and whose launches fit is taken, then the op's own kernel, else nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from rlxweb.codegen.elementwise_wgsl import copy_dispatch
from rlxweb.codegen.epilogue import apply_epilogue, build_epilogue
from rlxweb.codegen.kernel_launch_records import (
    ComputeShader,
    KernelLaunch,
    MergedOperands,
    build_launches,
    element_nbytes,
)
from rlxweb.codegen.row_reduction_dispatch import (
    MAX_SHARED_ARRAYS,
    MIN_SHARED_ROW_LENGTH,
    row_reduction_dispatch,
)
from rlxweb.compiler.plan import PlanStep
from rlxweb.core.device import Device
from rlxweb.core.errors import LimitExceeded
from rlxweb.core.limits import Limits
from rlxweb.core.lru_cache import LruCache
from rlxweb.cost.calibration_record import AutotuneResult
from rlxweb.cost.device_models import WgpuCostModel
from rlxweb.cost.fusion_gate import IoFusionGate
from rlxweb.cost.work_kinds import assumed_gpu
from rlxweb.gpu.port_protocol import DeviceFacts
from rlxweb.ir.dtype import DType, as_dtype
from rlxweb.ir.graph import Graph, Node, node_signature
from rlxweb.ir.layout import Layout
from rlxweb.ir.lowering import (
    TRANSPOSED_ATTR,
    BufferRef,
    Compose,
    Epilogue,
    HostOnly,
    Kernel,
    KernelDispatch,
    KernelPlan,
    View,
    check_buffers,
)
from rlxweb.ir.op import Attrs, Op, TensorType, Types
from rlxweb.ops.kernel_variant import (
    COPY,
    KernelTable,
    KernelVariant,
    load_kernels,
    select_kernel,
)

_MAX_LINE_PER_INVOCATION, _MAX_LINE_PER_WORKGROUP = 1 << 12, 1 << 13
"""Elements of the longest line of one invocation, and of a workgroup."""
MAX_CACHE_ENTRIES, MAX_CACHE_BYTES = 1024, 64 << 20


@cache
def assumed_fusion_gate() -> IoFusionGate:
    """Fusion gate for a device that is not measured; a calibrated one replaces it."""
    model = WgpuCostModel.from_record(assumed_gpu(), Device.GPU)
    return IoFusionGate.calibrated(model, "assumed")


@dataclass(frozen=True, slots=True)
class Hardware:
    """Device properties by which kernels are chosen.

    features  what the device was opened with, by the names of the port
    """

    limits: Limits
    features: frozenset[str] = frozenset()


def kernel_hardware(facts: DeviceFacts, limits: Limits) -> Hardware:
    """Return the description of the hardware by which kernels are selected.

    Browsers have drivers zero workgroup memory. A software one compiles that cell by
    cell, seconds long for some KiB, and does it for every workgroup: none is used.
    """
    if facts.software and facts.backend == "webgpu":
        limits = replace(limits, max_compute_workgroup_storage_size=0)
    features = facts.features
    if facts.backend == "webgpu":
        # A browser wants them enabled by a directive that wgpu's compiler has not.
        features -= {"subgroup"}
    return Hardware(limits, features)


def _tensor_bytes(tensor_type: TensorType) -> int:
    """Bytes of a tensor of that type."""
    return tensor_type.numel * element_nbytes(tensor_type.dtype)


@dataclass(frozen=True, slots=True)
class SelectedKernel:
    """Kernel plan that fits the device, its launches in order and the variant's name.

    kernel_plan  without its calls, which became the launches
    """

    kernel_plan: KernelPlan
    launches: tuple[KernelLaunch, ...]
    variant: str


class KernelSelector:
    """Kernel selection for one device, with an LRU cache.

    variants  the kernels that may be taken, tried in this order; None: all
    """

    def __init__(
        self,
        hardware: Hardware,
        variants: Sequence[KernelVariant] | None = None,
    ) -> None:
        self.hardware = hardware
        self.kernels = KernelTable(
            load_kernels("wgsl") if variants is None else variants
        )
        # The op is kept beside its answer: its id is in the key and must stay taken.
        self._selected: LruCache[Any, tuple[Op, SelectedKernel | None]] = LruCache(
            MAX_CACHE_ENTRIES, MAX_CACHE_BYTES
        )
        self._last_results: Sequence[AutotuneResult] = ()
        self._table_results: tuple[AutotuneResult, ...] = ()
        self._interned_shaders: LruCache[ComputeShader, ComputeShader] = LruCache(
            MAX_CACHE_ENTRIES, MAX_CACHE_BYTES
        )

    def is_native(self, op: Op, inputs: Types, out: TensorType, attrs: Attrs) -> bool:
        """Return True if the compiler may keep this node as one step."""
        if not isinstance(op.lower, Kernel | Compose):
            return not isinstance(op.lower, HostOnly)
        if out.numel == 0 and isinstance(op.lower, Kernel):
            return True
        return self.select_kernel(op, inputs, out, attrs) is not None

    def select_kernel(
        self,
        op: Op,
        inputs: Types,
        out: TensorType,
        attrs: Attrs,
        epilogue: Epilogue | None = None,
    ) -> SelectedKernel | None:
        """Return the launches of an op, or None if no kernel fits the device.

        epilogue  what is done on its result before it is stored, if anything
        """
        attribute_key = tuple(
            sorted((name, _attribute_text(value)) for name, value in attrs.items())
        )
        key = (op.name, id(op), inputs, out, attribute_key, epilogue)

        def search() -> tuple[Op, SelectedKernel | None]:
            return op, self._first_fitting_kernel(op, inputs, out, attrs, epilogue)

        return self._selected.get_or_create(key, search, _host_bytes)[1]

    def select_for_step(self, graph: Graph, step: PlanStep) -> SelectedKernel | None:
        """Return the launches of a kernel step, with its epilogue."""
        node = graph.node(step.nodes[0])
        layouts = [operand.layout for operand in step.inputs[: len(node.inputs)]]
        return self.select_kernel(
            *_selection_arguments(graph, node, layouts), step.epilogue
        )

    def launch_count(self, op: Op, inputs: Types, out: TensorType, attrs: Attrs) -> int:
        """Number of dispatches of the op."""
        if out.numel == 0:
            return 0
        kernel = self.select_kernel(op, inputs, out, attrs)
        return 1 if kernel is None else len(kernel.launches)

    def extra_bytes(self, op: Op, inputs: Types, out: TensorType, attrs: Attrs) -> int:
        """Return the bytes that the op's dispatches bind beyond one pass over its
        operands and result: scratch, tables, and operands that are bound again.
        """
        kernel = None if out.numel == 0 else self.select_kernel(op, inputs, out, attrs)
        if kernel is None:
            return 0
        bound_bytes = Counter[BufferRef]()
        for launch in kernel.launches:
            for binding in launch.bindings:
                parts = (
                    binding.parts
                    if isinstance(binding, MergedOperands)
                    else ((binding, 0),)
                )
                for part, _ in parts:
                    bound_bytes[part.ref] += part.nbytes
        tensor_bytes = {
            BufferRef("in", index): _tensor_bytes(tensor_type)
            for index, tensor_type in enumerate(inputs)
        }
        tensor_bytes[BufferRef("out")] = _tensor_bytes(out)
        return sum(
            max(0, nbytes - tensor_bytes.get(ref, 0))
            for ref, nbytes in bound_bytes.items()
        )

    def apply_autotuning(self, results: Sequence[AutotuneResult]) -> None:
        """Try the kernels of an op in the order of its autotuning results.

        This changes later selections only. Results of another table of kernels are
        ignored.
        """
        if results is self._last_results:  # asked at every compilation
            return
        table_results = tuple(r for r in results if r.table == self.kernels.id)
        if table_results != self._table_results:
            self._selected.clear()
        self._last_results, self._table_results = results, table_results

    def candidate_variants(
        self, op: Op, inputs: Types, out: TensorType, attrs: Attrs
    ) -> tuple[str, ...]:
        """Names of the kernels that may be taken here; the op's own kernel goes by the
        op's name.
        """
        candidates = (
            self._try_variant(variant, op, inputs, out, attrs)
            for variant in (*self._supported_variants(op.name), None)
        )
        return tuple(
            candidate.variant for candidate in candidates if candidate is not None
        )

    def _supported_variants(self, op: str) -> tuple[KernelVariant, ...]:
        """Return the variants of an op that this hardware supports."""
        return self.kernels.for_op(op, self.hardware.features)

    def epilogue(
        self,
        graph: Graph,
        ids: Sequence[int],
        layouts: Sequence[Layout],
        reads: Sequence[tuple[int, Layout]],
    ) -> Epilogue | None:
        """Return the epilogue by which the nodes after a kernel become one step with
        it; None if they cannot.

        The arguments are described at `Target.epilogue`.
        """
        epilogue = build_epilogue(graph, ids, reads)
        if epilogue is None:
            return None
        arguments = _selection_arguments(graph, graph.node(ids[0]), layouts)
        has_kernel = self.select_kernel(*arguments, epilogue) is not None
        return epilogue if has_kernel else None

    @property
    def line_length(self) -> int:
        """Elements of the longest line that one pass goes along."""
        max_elements = self.hardware.limits.max_storage_buffer_binding_size // 8
        return min(
            max_elements,
            _MAX_LINE_PER_INVOCATION
            if self._line_invocations < MIN_SHARED_ROW_LENGTH
            else _MAX_LINE_PER_WORKGROUP,
        )

    @property
    def _line_invocations(self) -> int:
        """Invocations that may share a line, as far as their workgroup memory
        allows.
        """
        limits = self.hardware.limits
        max_invocations = (
            limits.max_compute_workgroup_storage_size // 16 // MAX_SHARED_ARRAYS
        )
        return max(1, min(limits.max_linear_workgroup_size, max_invocations))

    def line_dispatch(self, graph: Graph, step: PlanStep) -> KernelDispatch:
        """Return the dispatch of a pass of nodes along lines."""
        layouts = [operand.layout for operand in step.inputs]
        return row_reduction_dispatch(
            graph, step.nodes, layouts, self._line_invocations
        )

    def _first_fitting_kernel(
        self,
        op: Op,
        inputs: Types,
        out: TensorType,
        attrs: Attrs,
        epilogue: Epilogue | None,
    ) -> SelectedKernel | None:
        """Return the first kernel that fits, in the order of preference."""
        return select_kernel(
            self.kernels.ordered(
                op.name, inputs, self.hardware.features, self._table_results
            ),
            inputs,
            out,
            attrs,
            lambda variant: self._try_variant(
                variant, op, inputs, out, attrs, epilogue
            ),
        )

    def _try_variant(
        self,
        variant: KernelVariant | None,
        op: Op,
        inputs: Types,
        out: TensorType,
        attrs: Attrs,
        epilogue: Epilogue | None = None,
    ) -> SelectedKernel | None:
        """Return the kernel of that variant, or the op's own for None; None if it does
        not fit.
        """
        if variant is not None:
            return self._fit_variant(variant, inputs, out, attrs, epilogue)
        kernel_plan = op.kernel_plan(inputs, out, attrs)
        kernel = self._fit_plan(kernel_plan, inputs, out, op.name, epilogue)
        return kernel if isinstance(kernel, SelectedKernel) else None

    def copy_dispatch(
        self, source: Layout, target: Layout, dtype: DType
    ) -> KernelDispatch:
        """Return the dispatch that copies from one layout to another of the same
        shape.
        """
        for variant in self._supported_variants(COPY):
            dispatch = self._try_copy_variant(variant, source, target, dtype)
            if dispatch is not None:
                return dispatch
        return copy_dispatch(source, target, dtype)

    def _try_copy_variant(
        self, variant: KernelVariant, source: Layout, target: Layout, dtype: DType
    ) -> KernelDispatch | None:
        """Return the dispatch of a copy variant; None if it does not fit the device."""
        dispatch: KernelDispatch | None = variant.build(
            source, target, dtype, self.hardware.limits
        )
        try:
            fits = dispatch and build_launches(
                dispatch, (dtype, dtype), self.hardware.limits
            )
        except LimitExceeded:
            return None
        return dispatch if fits else None

    def _fit_variant(
        self,
        variant: KernelVariant,
        inputs: Types,
        out: TensorType,
        attrs: Attrs,
        epilogue: Epilogue | None = None,
    ) -> SelectedKernel | None:
        """Return the kernel of a variant; None if it does not fit the device."""
        kernel_plan = variant.build(inputs, out, attrs, self.hardware.limits)
        kernel = self._fit_plan(kernel_plan, inputs, out, variant.name, epilogue)
        return kernel if isinstance(kernel, SelectedKernel) else None

    def applicable_variants(
        self, op: Op, inputs: Types, out: TensorType, attrs: Attrs
    ) -> tuple[str, ...]:
        """Names of the variants that could run the op here."""
        if out.numel == 0:
            return ()
        variants = self._supported_variants(op.name)
        names = [
            variant.name
            for variant in variants
            if self._fit_variant(variant, inputs, out, attrs)
        ]
        return (*names, *self._applicable_copy_variants(op, inputs, out, attrs))

    def _applicable_copy_variants(
        self, op: Op, inputs: Types, out: TensorType, attrs: Attrs
    ) -> list[str]:
        """Names of the variants that could make a dense array of a view of another."""
        if not isinstance(op.lower, View):
            return []
        view_layout = op.lower.layout(Layout.dense(inputs[0].shape), out.shape, attrs)
        if view_layout is None:
            return []
        dense_layout = Layout.dense(out.shape)
        return [
            variant.name
            for variant in self._supported_variants(COPY)
            if self._try_copy_variant(variant, view_layout, dense_layout, out.dtype)
        ]

    def _fit_plan(
        self,
        kernel_plan: KernelPlan | None,
        inputs: Types,
        out: TensorType,
        name: str,
        epilogue: Epilogue | None = None,
    ) -> SelectedKernel | LimitExceeded | None:
        """Return the launches of a kernel plan, or the limit that keeps it off this
        device.
        """
        if kernel_plan is not None and epilogue is not None:
            max_buffers = self.hardware.limits.max_storage_buffers_per_shader_stage
            kernel_plan = apply_epilogue(
                kernel_plan, epilogue, len(inputs), max_buffers
            )
            side_types = (
                TensorType((side.numel,), side.dtype) for side in epilogue.operands
            )
            inputs = (*inputs, *side_types)
        if kernel_plan is None:
            return None
        plan_launches: list[KernelLaunch] = []
        try:
            for dispatch in kernel_plan.dispatches:
                dtypes = [
                    _ref_dtype(access.ref, kernel_plan, inputs, out)
                    for access in dispatch.accesses
                ]
                plan_launches += build_launches(dispatch, dtypes, self.hardware.limits)
        except LimitExceeded as error:
            return error
        except IndexError:
            check_buffers(kernel_plan, name, len(inputs))
            raise
        shared_launches = tuple(
            self._with_interned_shader(launch) for launch in plan_launches
        )
        return SelectedKernel(
            replace(kernel_plan, dispatches=()), shared_launches, name
        )

    def _with_interned_shader(self, launch: KernelLaunch) -> KernelLaunch:
        """Return a launch that shares its shader with equal ones: sizes are uniforms,
        so the same long text is generated for every size.
        """
        launch_shader = launch.shader
        shader = self._interned_shaders.get_or_create(
            launch_shader,
            lambda: launch_shader,
            lambda cached_shader: len(cached_shader.source),
        )
        return launch if shader is launch_shader else replace(launch, shader=shader)

    def exceeded_limit(
        self, op: Op, inputs: Types, out: TensorType, attrs: Attrs
    ) -> LimitExceeded | None:
        """Limit that keeps the op's own kernel off this device, if there is one."""
        kernel = self._fit_plan(
            op.kernel_plan(inputs, out, attrs), inputs, out, op.name
        )
        return kernel if isinstance(kernel, LimitExceeded) else None


def _selection_arguments(
    graph: Graph, node: Node, layouts: Sequence[Layout]
) -> tuple[Op, Types, TensorType, Attrs]:
    """Return the op, types and attributes by which a kernel is selected, with the
    operands' layouts unless they are dense.
    """
    op, inputs, out, attrs = node_signature(graph, node)
    is_transposed = tuple([o.without_offset.is_transposed for o in layouts])
    if any(is_transposed):
        attrs = {**attrs, TRANSPOSED_ATTR: is_transposed}
    return op, inputs, out, attrs


def _ref_dtype(
    ref: BufferRef,
    kernel_plan: KernelPlan,
    inputs: Sequence[TensorType],
    out: TensorType,
) -> DType:
    """Return the dtype of what a kernel plan refers to."""
    if ref.kind == "in":
        return inputs[ref.index].dtype
    if ref.kind == "out":
        return out.dtype
    if ref.kind == "scratch":
        return as_dtype(kernel_plan.scratch[ref.index].scalar)
    return as_dtype(kernel_plan.tables[ref.index].dtype)


def _host_bytes(entry: tuple[Op, SelectedKernel | None]) -> int:
    """Bytes of a cached choice on the host: tables of a long transform, and shader
    text.
    """
    kernel = entry[1]
    if kernel is None:
        return 0
    texts = {
        id(launch.shader.source): len(launch.shader.source)
        for launch in kernel.launches
    }
    tables = sum(table.nbytes for table in kernel.kernel_plan.tables)
    return sum(texts.values()) + tables


def _attribute_text(value: Any) -> str:
    """Return a text that identifies an attribute's value, also that of a long array."""
    # repr leaves the middle of a long array out.
    return repr((value, value.tobytes())) if hasattr(value, "tobytes") else repr(value)
