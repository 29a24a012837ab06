"""Op samples of the package as graphs and feeds, cached to be run on many engines."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property

from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import registry
from rlxweb.smoke import case as cases
from rlxweb.smoke import view_input_cases
from tests.engines_under_test import Array, reference_outputs


@dataclass(frozen=True)
class OpCase:
    """A prepared case of the package; the label says which sample it came from."""

    label: str
    prepared: cases.PreparedCase

    @property
    def graph(self) -> Graph:
        return self.prepared.graph

    @property
    def feeds(self) -> dict[str, Array]:
        return self.prepared.feeds

    @property
    def dtypes(self) -> set[DType]:
        return self.prepared.dtypes

    @property
    def is_small(self) -> bool:
        return self.prepared.is_small

    @property
    def output_dtype(self) -> DType:
        return self.prepared.output_dtype

    @cached_property
    def expected(self) -> Array:
        """Expected output in float64, computed once for all engines."""
        return reference_outputs(self.graph, self.feeds)[0]


def op_names() -> list[str]:
    """Return every op of the vocabulary that computes something."""
    return [op.name for op in cases.checked_ops()]


def _prepare_case(case: cases.SmokeCase) -> OpCase:
    shapes = ", ".join(f"{list(shape)} {dtype}" for shape, dtype in case.inputs)
    attrs = ", ".join(f"{k}={v}" for k, v in case.attrs.items())
    note = f" ({case.note})" if case.note else ""
    return OpCase(f"{case.name}: {shapes} {attrs}{note}", case.prepare())


@cache
def sample_cases(name: str) -> tuple[OpCase, ...]:
    """Return a graph of each sample's inputs and the op."""
    return tuple(map(_prepare_case, cases.sample_cases(registry.get(name))))


@cache
def view_cases(name: str) -> tuple[OpCase, ...]:
    """Return a graph of each small sample, whose inputs are views of each kind in
    turn.
    """
    return tuple(map(_prepare_case, view_input_cases.view_cases(registry.get(name))))
