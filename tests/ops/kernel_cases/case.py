"""Cases of the kernel agreement suite: what is computed, on which values, and why."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np

from rlxweb.ir.dtype import DType, as_dtype
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.sample import Drawn
from rlxweb.ir.shape_arithmetic import Shape
from tests.engines_under_test import Array, graph_dtypes, reference_outputs
from tests.ops.op_cases import OpCase

MAX_CACHED_ELEMENTS = 100_000
"""Elements up to which the right outputs of a case are cached for the next kernel."""


@dataclass(frozen=True, eq=False)
class Trial:
    """A graph with the op whose kernels compute it, and its feeds.

    is_sample  whether it is one of the op's samples, which all engines keep to
    is_composed  whether the graph is more than the op
    is_exclusive  whether the kernel is more exact than what computes in its stead
    """

    label: str
    op: str
    graph: Graph
    feeds: Mapping[str, Array]
    make_expected: Callable[[], Sequence[Array]]
    is_sample: bool = False
    is_composed: bool = False
    is_exclusive: bool = False

    @cached_property
    def expected(self) -> Sequence[Array]:
        """The right outputs, computed once."""
        with np.errstate(all="ignore"):
            return self.make_expected()

    @property
    def node(self) -> Node:
        """The first node of the op."""
        return next(node for node in self.graph.nodes() if node.op == self.op)

    @property
    def dtypes(self) -> set[DType]:
        return graph_dtypes(self.graph)

    @classmethod
    def of_sample(cls, op: str, case: OpCase) -> Trial:
        def make_expected() -> list[Array]:
            return [case.expected]

        return cls(case.label, op, case.graph, case.feeds, make_expected, True)


@dataclass(frozen=True, eq=False)
class KernelCase:
    """Inputs at which kernels of one op may differ.

    op        op whose kernels compute the case; "copy" for copies between layouts, ""
              where no op of the graph has kernels
    why       what this case has that others have not
    operands  inputs of the graph, drawn at random
    attrs     attributes of the op
    kernels   parts of the names of kernels that have to take the case
    build     (graph, *inputs) → outputs, where the graph is more than the op
    edit      changes the drawn arrays in place: special values, memory layouts
    params    indices of the operands that are params; such a case is run three times
    torch     (torch, *tensors) → output, what PyTorch makes of the same
    is_exclusive  whether other kernels than these need not be that exact
    is_full   whether only the full tier takes it
    is_split  whether it exceeds small bindings and grids in every direction
    """

    op: str
    why: str
    operands: tuple[Drawn, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    kernels: tuple[str, ...] = ()
    build: Callable[..., Any] | None = None
    edit: Callable[[list[Array]], None] | None = None
    params: tuple[int, ...] = ()
    torch: Callable[..., Any] | None = None
    is_exclusive: bool = False
    is_full: bool = False
    is_split: bool = False

    @property
    def label(self) -> str:
        shapes = ", ".join(f"{[*d.shape]} {d.dtype}" for d in self.operands)
        attrs = ", ".join(f"{k}={v}" for k, v in self.attrs.items())
        return f"{self.op}, {self.why}: {shapes} {attrs}".rstrip()

    @property
    def numel(self) -> int:
        return sum(int(np.prod(operand.shape)) for operand in self.operands)

    def trial(self) -> Trial:
        """Return the case ready to be run."""
        return self._cached_trial if self.numel <= MAX_CACHED_ELEMENTS else self._make()

    @cached_property
    def _cached_trial(self) -> Trial:
        return self._make()

    def _make(self) -> Trial:
        rng = np.random.default_rng(7)
        arrays = [operand.draw(rng) for operand in self.operands]
        if self.edit is not None:
            self.edit(arrays)
        graph, tensors = Graph(self.why), []
        for index, array in enumerate(arrays):
            declare = graph.param if index in self.params else graph.input
            tensors.append(declare(f"x{index}", array.shape, as_dtype(array.dtype)))
        if self.build is None:
            outputs = graph.apply(self.op, *tensors, **self.attrs)
        else:
            outputs = self.build(graph, *tensors, **self.attrs)
        graph.set_outputs(outputs if isinstance(outputs, list) else [outputs])
        feeds = {f"x{index}": array for index, array in enumerate(arrays)}
        return Trial(
            self.label,
            self.op,
            graph,
            feeds,
            partial(reference_outputs, graph, feeds),
            is_composed=self.build is not None,
            is_exclusive=self.is_exclusive,
        )


def kernel_case(
    op: str,
    why: str,
    *operands: Shape | Drawn,
    build: Callable[..., Any] | None = None,
    edit: Callable[[list[Array]], None] | None = None,
    kernels: str | tuple[str, ...] = (),
    params: tuple[int, ...] = (),
    torch: Callable[..., Any] | None = None,
    is_exclusive: bool = False,
    is_full: bool = False,
    is_split: bool = False,
    **attrs: Any,
) -> KernelCase:
    """Return a case; a shape stands for float32 between -2 and 2."""
    return KernelCase(
        op,
        why,
        tuple(d if isinstance(d, Drawn) else Drawn(d) for d in operands),
        attrs,
        (kernels,) if isinstance(kernels, str) else kernels,
        build,
        edit,
        params,
        torch,
        is_exclusive,
        is_full,
        is_split,
    )
