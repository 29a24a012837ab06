"""One op in a graph of its own: built, run by its reference or by its decomposition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlxweb.engines.evaluate import evaluate
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import Compose, Kernel, KernelPlan
from rlxweb.ir.op import TensorType, registry
from rlxweb.ir.shape_arithmetic import Shape
from rlxweb.ir.tensor import Tensor
from tests.engines_under_test import Array, named_feeds


def add_inputs(g: Graph, *arrays: Array) -> list[Tensor]:
    return [g.input(f"x{k}", a.shape, a.dtype) for k, a in enumerate(arrays)]


def build_op(op: str, *types: Shape | tuple[Shape, str], **attrs: Any) -> Tensor:
    """Return the op over inputs of these shapes, float32 where no dtype is given; it is
    not run.
    """
    g = Graph(op)
    pairs = [t if t and isinstance(t[-1], str) else (t, "f32") for t in types]
    xs = [g.input(f"x{k}", *pair) for k, pair in enumerate(pairs)]
    output: Tensor = g.apply(op, *xs, **attrs)
    return output


def run(op: str, *arrays: Any, **attrs: Any) -> Array:
    """Run the op's reference, and check its shape and dtype against the op's rule."""
    arrays = tuple(np.asarray(a) for a in arrays)
    g = Graph(op)
    out = g.apply(op, *add_inputs(g, *arrays), **attrs)
    g.set_outputs([out])
    output = np.asarray(evaluate(g, named_feeds(arrays))[0])
    assert (output.shape, output.dtype) == (out.shape, out.dtype.numpy)
    return output


def tensor_types(*shapes: Shape, dtype: DType = DType.F32) -> tuple[TensorType, ...]:
    return tuple(TensorType(shape, dtype) for shape in shapes)


def op_kernel_plan(
    op: str, inputs: tuple[TensorType, ...], out: TensorType, attrs: Mapping[str, Any]
) -> KernelPlan:
    """Return the kernel plan of the op's own kernel."""
    lower = registry.get(op).lower
    assert isinstance(lower, Kernel)
    plan = lower.plan(inputs, out, attrs)
    assert plan is not None
    return plan


def op_decomposition(op: str) -> Compose:
    """Return the decomposition that replaces the op where it has no kernel."""
    decomposition = registry.get(op).decomposition
    assert decomposition is not None
    return decomposition


def run_decomposition(op: str, *arrays: Array, **attrs: Any) -> Array:
    """Run the op's decomposition, evaluated op by op."""
    g = Graph(op)
    xs = add_inputs(g, *arrays)
    checked_attrs = registry.get(op).check_attrs(attrs)
    g.set_outputs([op_decomposition(op).build(g, checked_attrs, *xs)])
    return np.asarray(evaluate(g, named_feeds(arrays))[0])
