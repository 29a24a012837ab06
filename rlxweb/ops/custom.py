"""Ops of the user's own, registered in one statement.

A custom op is a record like any other: shape rule, NumPy-like reference and, if wanted,
WGSL. Without WGSL it runs wherever the reference runs and a GPU refuses it with the
reason. Nothing here knows a device.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace as changed
from typing import Any

import numpy as np

from rlxweb.errors import GraphError
from rlxweb.ir.batching import Batch
from rlxweb.ir.derivative import Vjp
from rlxweb.ir.graph import Node, typed
from rlxweb.ir.lowering import Compose, Expr, HostOnly, Kernel, Lowering
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
from rlxweb.ops.elementwise import same_shape

Arity = int | tuple[int, int | None]

# The operands an Expr can name: x, y, z.
EXPR_OPERANDS = 3
# A sample larger than this is left to the device that first runs the op.
CHECKED_ELEMENTS = 1 << 16
CUSTOM = Tolerance(rtol=1e-5, atol=1e-6)


def register_custom(
    name: str,
    *,
    arity: Arity,
    reference: Callable[..., Any],
    infer: InferRule = same_shape,
    attrs: Sequence[Attr] = (),
    wgsl: str | Expr | Kernel | Compose | None = None,
    samples: Sequence[Sample] = (),
    tolerance: Tolerance = CUSTOM,
    flops: FlopsRule | None = None,
    vjp: Vjp | None = None,
    batch: Batch | None = None,
    doc: str = "",
    replace: bool = False,
) -> Op:
    """Add an op to the vocabulary; `graph.custom_op(name, …)` and `apply` then know it.

    reference  (xp, attrs, *arrays) → array, written with functions of `xp`
    infer      (input types, attrs) → output type; elementwise when left out
    wgsl       a scalar expression in x, y, z and {attr}; or an Expr, Kernel or Compose;
               None: the op runs on the CPU only, and a GPU says so
    samples    cases on which the WGSL is compared with the reference where it first
               runs, beside arrays drawn in the types of the graph at hand
    tolerance  what it may be off by there, and in tests
    vjp        how a gradient is taken back through it (`rlxweb.ir.derivative`); None:
               by way of a Compose, or it has none
    batch      how it takes an axis of examples (`rlxweb.ir.batching`); None: as it
               broadcasts where it is an expression, or one example after the other
    replace    put this record in the place of one of the same name

    Errors   GraphError when the name is taken or no identifier, when an expression is
    given more operands than x, y, z, or when the reference makes another shape or dtype
    of a sample than `infer` says. WGSL that gives other numbers than the reference is
    refused, as Disagrees, by the first device that should run it.

    >>> halve = lambda xp, attrs, x: x / 2
    >>> register_custom("halve", arity=1, reference=halve, wgsl="x / F(2)")
    """
    doing = f"register op {name!r}"
    _check_name(name, doing)
    lower: Lowering = Expr(wgsl) if isinstance(wgsl, str) else wgsl or HostOnly()
    fused = isinstance(lower, Expr)
    record = Op(
        name=name,
        arity=arity,
        infer=infer,
        reference=reference,
        lower=lower,
        attrs=tuple(attrs),
        traits=frozenset({"custom", "elementwise"} if fused else {"custom"}),
        tolerance=tolerance,
        samples=tuple(samples),
        vjp=vjp,
        batch=batch,
        doc=doc,
    )
    if fused:
        _check_operands(record, doing)
    if flops is not None:
        record = changed(record, flops=flops)
    for sample in record.samples:
        _check_sample(record, sample)
    return registry.register(record, replace=replace)


def _check_name(name: str, doing: str) -> None:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.]*", name):
        raise GraphError(doing, "a name is letters, digits, '_' and '.'")
    if name in registry and registry.get(name).name != name:
        raise GraphError(
            doing,
            f"{name!r} is another name of op {registry.get(name).name!r}",
            hint="choose another name",
        )


def _check_operands(op: Op, doing: str) -> None:
    least, most = op.arity_range()
    if not 1 <= least <= (most or 99) <= EXPR_OPERANDS:
        raise GraphError(
            doing,
            f"an expression over {least} to {most or 'any'} operands",
            f"it can name {EXPR_OPERANDS}: x, y and z",
            "give a Compose or a Kernel",
        )


def _check_sample(op: Op, sample: Sample) -> None:
    """Errors  GraphError where the reference breaks the shape rule; the op's own."""
    types = tuple(TensorType(d.shape, d.dtype) for d in sample.inputs)
    attrs, kind = typed(op, types, sample.attrs)
    if max((t.numel for t in (*types, kind)), default=0) > CHECKED_ELEMENTS:
        return
    with np.errstate(all="ignore"):
        made = np.asarray(op.reference(np, attrs, *sample.draw()))
    node = Node(0, op.name, tuple(range(len(types))), attrs, kind)
    check_result(node, made)
