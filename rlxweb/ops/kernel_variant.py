"""Faster kernels of ops: the record of one, and the choice among several.

Rule: deleting any record changes no result, only time. The op's own declaration (its
reference on arrays, its own kernel plan on a GPU) is always the last resort.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal, TypeVar
from zlib import crc32

from rlxweb.core.errors import UnknownOp, did_you_mean
from rlxweb.core.fork_safety import cached_property
from rlxweb.core.limits import Limits
from rlxweb.cost.calibration_record import AutotuneResult, nearest_result
from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import KernelPlan
from rlxweb.ir.op import Attrs, TensorType, Types, registry

T = TypeVar("T")
WgslPlanRule = Callable[
    [Types, TensorType, Mapping[str, Any], Limits], KernelPlan | None
]
"""Rule (input types, output type, attrs, limits) → kernel plan, None where it does not
fit.
"""
COPY = "copy"
"""Name by which copies between layouts, which are not an op, have kernels."""


@dataclass(frozen=True, slots=True)
class KernelVariant:
    """Faster kernel of an op on one kind of engine.

    name     unique in its table; measured results are stored under it
    op       name of the op, or `COPY`
    build    makes the kernel of a node; None where it does not fit:
             WGSL    a `WgslPlanRule`; of `COPY` (source layout, target layout, dtype,
                     limits) → dispatch
             arrays  (input types, output type, attrs) → function (attrs, *arrays) →
                     array, the reference's within the op's tolerance
             native program  (builder, node) adds the op to a program of small steps
    gate     (input types, output type, attrs) → may it be taken; None: always. A gate
             says where the kernel is worth its while: past it the result must still be
             right, as tests open the gate to every float type in `dtypes`
    feature  of the device that it uses, by the name of the port; of a processor
             "webassembly"; None: none
    dtypes   of the result; None: any
    """

    name: str
    op: str
    build: Callable[..., Any]
    gate: Callable[[Types, TensorType, Attrs], bool] | None = None
    feature: str | None = None
    dtypes: frozenset[DType] | None = None

    def is_supported(self, features: frozenset[str] | None) -> bool:
        """Return whether a device has the feature that it uses; None: all have."""
        return features is None or self.feature is None or self.feature in features

    def can_run(self, inputs: Types, out: TensorType, attrs: Attrs) -> bool:
        """Return whether the gate lets a node through."""
        if self.dtypes is not None and out.dtype not in self.dtypes:
            return False
        return self.gate is None or self.gate(inputs, out, attrs)


def for_every_node(function: Callable[..., Any]) -> Callable[..., Callable[..., Any]]:
    """Return a `build` that gives the same function (attrs, *arrays) for every node."""
    return lambda inputs, out, attrs: function


class KernelTable:
    """Kernel variants of one kind of engine, in the order in which they are tried.

    Errors   UnknownOp for a variant of an op that is not registered: it would never
    run.
    """

    def __init__(self, variants: Iterable[KernelVariant] = ()) -> None:
        self.variants = tuple(variants)
        self._by_op: dict[str, tuple[KernelVariant, ...]] = {}
        for variant in self.variants:
            others = self._by_op.get(variant.op, ())
            self._by_op[variant.op] = (*others, variant)
        if self._by_op:
            _check_ops(self.variants)

    def __bool__(self) -> bool:
        return bool(self.variants)

    def for_op(
        self, op: str, features: frozenset[str] | None = None
    ) -> tuple[KernelVariant, ...]:
        """Return the variants of an op whose feature a device has; all without
        `features`.
        """
        variants = self._by_op.get(op, ())
        if features is None or not variants:
            return variants
        return tuple(v for v in variants if v.is_supported(features))

    def with_name(
        self, name: str, features: frozenset[str] | None = None
    ) -> tuple[KernelVariant, ...]:
        """Return the variants of that name whose feature a device has."""
        return tuple(
            variant
            for variant in self.variants
            if variant.name == name and variant.is_supported(features)
        )

    def ordered(
        self,
        op: str,
        inputs: Types,
        features: frozenset[str] | None = None,
        results: Sequence[AutotuneResult] = (),
    ) -> list[KernelVariant | None]:
        """Return the variants of an op in the table's order and the op's own kernel
        (None) last, or all in the order of their autotuning results; those without a
        result come last, and those that computed wrong are left out.
        """
        variants: list[KernelVariant | None] = [*self.for_op(op, features), None]
        result = nearest_result(results, op, inputs) if results else None
        if result is None:
            return variants
        ranks = {name: rank for rank, (name, _) in enumerate(result.ways)}
        wrong_names = {name for name, _ in result.wrong}
        kept = [v for v in variants if v is None or v.name not in wrong_names]
        kept.sort(key=lambda v: ranks.get(v.name if v else op, len(ranks)))
        return kept

    @cached_property
    def id(self) -> str:
        """Identifier of the table: results measured with one are of no use to
        another.
        """
        names = {op: [v.name for v in self._by_op[op]] for op in sorted(self._by_op)}
        return f"{crc32(repr(names).encode()):08x}"


def _check_ops(variants: Iterable[KernelVariant]) -> None:
    """Raise UnknownOp unless each variant is of a registered op, by its name and no
    alias.
    """
    known = {op.name for op in registry} | {COPY}
    for variant in variants:
        if variant.op not in known:
            raise UnknownOp(
                f"kernel variant {variant.name!r}",
                f"it is for op {variant.op!r}, and no op has this name",
                hint=did_you_mean(variant.op, known),
            )


def select_kernel(
    ordered: Iterable[KernelVariant | None],
    inputs: Types,
    out: TensorType,
    attrs: Attrs,
    fit: Callable[[KernelVariant | None], T | None],
) -> T | None:
    """Return the first kernel whose gate lets the node through and which fits; None if
    there is none.

    ordered  as `KernelTable.ordered` gives them; None stands for the op's own kernel
    fit      builds a kernel for the engine; None where it does not fit
    """
    for variant in ordered:
        if variant is None or variant.can_run(inputs, out, attrs):
            kernel = fit(variant)
            if kernel is not None:
                return kernel
    return None


KERNEL_MODULES: dict[str, tuple[str, ...]] = {
    "wgsl": (
        "matmul.wgsl.blocked",
        "matmul.wgsl.variants",
        "quantized.wgsl",
        "conv.wgsl.variants",
        "layout.wgsl.padding",
        "pool.wgsl",
        "layout.wgsl.transpose",
        "sort.wgsl.topk",
        "sort.wgsl.merge_sort",
        "welch.wgsl.power_peaks",
        "vision.wgsl.non_max_suppression",
        "attention.wgsl.plan",
        "norm.wgsl.add_norm",
        "norm.wgsl.in_registers",
        "norm.wgsl.per_workgroup",
        "gather.wgsl.rows",
        "reduce.wgsl.variants",
        "recurrent.wgsl.plan",
        "recurrent.wgsl.linear_recurrence",
        "fft.wgsl.cooperative_plans",
        "fft.wgsl.variants",
        "welch.wgsl.psd",
        "welch.wgsl.cooperative",
        "welch.wgsl.workgroup",
    ),
    "cpu": (
        "attention.cpu.wasm",
        "matmul.cpu.wasm_on_web_workers",
        "norm.cpu",
        "attention.cpu.native",
        "matmul.cpu.epilogue",
        "matmul.cpu.wasm",
        "conv.cpu.wasm",
        "conv.cpu.native",
        "pool.cpu",
        "reduce.cpu.rows",
        "reduce.cpu.native",
        "reduce.cpu.numpy",
        "recurrent.cpu.native",
        "recurrent.cpu.numpy",
        "elementwise.cpu",
        "layout.cpu",
        "gather.cpu",
        "sort.cpu",
        "welch.cpu.numpy",
        "fft.cpu.numpy",
        "quantized.cpu",
    ),
    "native program": ("matmul.cpu.program", "conv.cpu.program", "reduce.cpu.program"),
}
"""Modules below `rlxweb.ops` whose `KERNELS` an engine may take. Of an op's kernels the
first that fits is taken, so the order counts within an op.
"""


def load_kernels(
    engine: Literal["wgsl", "cpu", "native program"],
) -> tuple[KernelVariant, ...]:
    """Return the kernel variants of all ops for one kind of engine."""
    return tuple(
        variant
        for name in KERNEL_MODULES[engine]
        for variant in import_module(f"rlxweb.ops.{name}").KERNELS
    )
