"""One op alone in a graph: added, run by its reference, run by its composition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlxweb.backends.evaluate import evaluate
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import Compose, Kernel, Recipe
from rlxweb.ir.op import TensorType, registry
from rlxweb.ir.shape import Shape
from rlxweb.ir.tensor import Tensor
from tests.agreement import Array, feeds_of


def inputs_of(g: Graph, *arrays: Array) -> list[Tensor]:
    return [g.input(f"x{k}", a.shape, a.dtype) for k, a in enumerate(arrays)]


def added(op: str, *types: Shape | tuple[Shape, str], **attrs: Any) -> Tensor:
    """The op over inputs of these shapes, float32 where none is named; not run."""
    g = Graph(op)
    pairs = [t if t and isinstance(t[-1], str) else (t, "f32") for t in types]
    xs = [g.input(f"x{k}", *pair) for k, pair in enumerate(pairs)]
    made: Tensor = g.apply(op, *xs, **attrs)
    return made


def run(op: str, *arrays: Any, **attrs: Any) -> Array:
    """What the reference gives; its shape and type are those the op's rule says."""
    arrays = tuple(np.asarray(a) for a in arrays)
    g = Graph(op)
    out = g.apply(op, *inputs_of(g, *arrays), **attrs)
    g.set_outputs([out])
    made = np.asarray(evaluate(g, feeds_of(arrays))[0])
    assert (made.shape, made.dtype) == (out.shape, out.dtype.numpy)
    return made


def types_of(*shapes: Shape, dtype: DType = DType.F32) -> tuple[TensorType, ...]:
    return tuple(TensorType(shape, dtype) for shape in shapes)


def recipe_of(
    op: str, inputs: tuple[TensorType, ...], out: TensorType, attrs: Mapping[str, Any]
) -> Recipe:
    """What the op's own kernel is called with."""
    lower = registry.get(op).lower
    assert isinstance(lower, Kernel)
    made = lower.recipe(inputs, out, attrs)
    assert made is not None
    return made


def composition(op: str) -> Compose:
    """What stands for the op where it has no kernel."""
    lower = registry.get(op).lower
    if isinstance(lower, Kernel):
        lower = lower.otherwise
    assert isinstance(lower, Compose)
    return lower


def composed(op: str, *arrays: Array, **attrs: Any) -> Array:
    """What the composition gives, evaluated op by op."""
    g = Graph(op)
    xs = inputs_of(g, *arrays)
    given = registry.get(op).check_attrs(attrs)
    g.set_outputs([composition(op).build(g, given, *xs)])
    return np.asarray(evaluate(g, feeds_of(arrays))[0])
