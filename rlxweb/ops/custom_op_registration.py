"""Registration of user-defined ops in one statement.

A custom op is a record like any other: shape rule, NumPy-like reference and, if wanted,
WGSL. Without WGSL it runs wherever the reference runs and a GPU refuses it with the
reason. Nothing here knows a device.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlxweb.core.errors import GraphError
from rlxweb.ir.derivative import VjpRule
from rlxweb.ir.graph import Node, infer_type
from rlxweb.ir.lowering import (
    Compose,
    Expr,
    HostOnly,
    Kernel,
    Lowering,
    check_buffers,
)
from rlxweb.ir.op import (
    Attr,
    FlopsRule,
    InferRule,
    Op,
    TensorType,
    Tolerance,
    registry,
)
from rlxweb.ir.sample import Sample
from rlxweb.ir.verify import check_result
from rlxweb.ir.vmap_batching import BatchRule
from rlxweb.ops.elementwise.op import infer_broadcast

Arity = int | tuple[int, int | None]

# The operands an Expr can name: x, y, z.
MAX_EXPR_OPERANDS = 3
# A sample larger than this is left to the device that first runs the op.
MAX_CHECKED_ELEMENTS = 1 << 16
CUSTOM_TOLERANCE = Tolerance(rtol=1e-5, atol=1e-6)


def register_custom(
    name: str,
    *,
    arity: Arity,
    reference: Callable[..., Any],
    infer: InferRule = infer_broadcast,
    attrs: Sequence[Attr] = (),
    wgsl: str | Expr | Kernel | Compose | None = None,
    samples: Sequence[Sample] = (),
    tolerance: Tolerance = CUSTOM_TOLERANCE,
    flops: FlopsRule | None = None,
    vjp: VjpRule | None = None,
    batch: BatchRule | None = None,
    doc: str = "",
    replace: bool = False,
) -> Op:
    """Register a custom op, so that `graph.custom_op(name, …)` and `graph.apply` know
    it.

    reference  (xp, attrs, *arrays) → array, written with functions of `xp`
    infer      (input types, attrs) → output type; elementwise when left out
    wgsl       a scalar expression in x, y, z and {attr}; or an Expr, Kernel or Compose;
               None: the op runs on the CPU only, and a GPU says so
    samples    cases on which the WGSL is compared with the reference where it first
               runs, beside arrays drawn in the types of the graph at hand
    tolerance  what it may be off by there, and in tests
    vjp        how a gradient is taken back through it (`rlxweb.ir.derivative`); None:
               by way of a Compose, or it has none
    batch      how it takes an axis of examples (`rlxweb.ir.vmap_batching`); None: as it
               broadcasts where it is an expression, or one example after the other
    replace    put this record in the place of one of the same name

    Errors   GraphError when the name is taken or no identifier, when an expression is
    given more operands than x, y, z, or when for a sample the reference makes another
    shape or dtype than `infer` says, or a Kernel refers to a buffer that is not there.
    What only a GPU finds is refused by the first that should run the op: such a buffer
    where there are no samples, and, as Disagrees, WGSL that gives other numbers than
    the reference.

    >>> halve = lambda xp, attrs, x: x / 2
    >>> register_custom("halve", arity=1, reference=halve, wgsl="x / F(2)")
    """
    context = f"register op {name!r}"
    _check_name(name, context)
    lower: Lowering = Expr(wgsl) if isinstance(wgsl, str) else wgsl or HostOnly()
    is_elementwise = isinstance(lower, Expr)
    record = Op(
        name=name,
        arity=arity,
        infer=infer,
        reference=reference,
        lower=lower,
        attrs=tuple(attrs),
        traits=frozenset({"custom", "elementwise"} if is_elementwise else {"custom"}),
        tolerance=tolerance,
        samples=tuple(samples),
        vjp=vjp,
        batch=batch,
        doc=doc,
    )
    if is_elementwise:
        _check_operands(record, context)
    if flops is not None:
        record = dataclasses.replace(record, flops=flops)
    for sample in record.samples:
        _check_sample(record, sample)
    return registry.register(record, replace=replace)


def _check_name(name: str, context: str) -> None:
    """Check that the name is an identifier and no alias of another op. Errors
    GraphError.
    """
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.]*", name):
        raise GraphError(
            context,
            "an op name must start with a letter or '_' and contain only letters, "
            "digits, '_' and '.'",
        )
    if name in registry and registry.get(name).name != name:
        raise GraphError(
            context,
            f"{name!r} is an alias of op {registry.get(name).name!r}",
            hint="choose another name",
        )


def _check_operands(op: Op, context: str) -> None:
    """Check that an expression can name all operands. Errors  GraphError."""
    min_count, max_count = op.arity_range()
    if not 1 <= min_count <= (max_count or 99) <= MAX_EXPR_OPERANDS:
        upper = "or more" if max_count is None else f"to {max_count}"
        count = min_count if min_count == max_count else f"{min_count} {upper}"
        raise GraphError(
            context,
            f"the op accepts {count} operands",
            f"an expression supports 1 to {MAX_EXPR_OPERANDS} operands, named x, y "
            "and z",
            "use a Compose or a Kernel instead of an Expr",
        )


def _check_sample(op: Op, sample: Sample) -> None:
    """Check that the reference gives the inferred type on a sample, and that the kernel
    has the buffers it refers to. Errors  GraphError where not; the op's own.
    """
    types = tuple(TensorType(d.shape, d.dtype) for d in sample.inputs)
    attrs, out_type = infer_type(op, types, sample.attrs)
    kernel_plan = op.kernel_plan(types, out_type, attrs)
    if kernel_plan is not None:
        check_buffers(kernel_plan, op.name, len(types))
    if max((t.numel for t in (*types, out_type)), default=0) > MAX_CHECKED_ELEMENTS:
        return
    with np.errstate(all="ignore"):
        result = np.asarray(op.reference(np, attrs, *sample.draw()))
    node = Node(0, op.name, tuple(range(len(types))), attrs, out_type)
    check_result(node, result)
