"""The cases of the package as graphs and feeds, kept: each is run on many engines."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property

from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import registry
from rlxweb.smoke import case as cases
from rlxweb.smoke import views
from tests.agreement import Array, oracle


@dataclass(frozen=True)
class Case:
    """A case of the package, made; the label says which sample it came from."""

    label: str
    trial: cases.Trial

    @property
    def graph(self) -> Graph:
        return self.trial.graph

    @property
    def feeds(self) -> dict[str, Array]:
        return self.trial.feeds

    @property
    def dtypes(self) -> set[DType]:
        return self.trial.dtypes

    @property
    def is_small(self) -> bool:
        return self.trial.is_small

    @property
    def out(self) -> DType:
        return self.trial.out

    @cached_property
    def right(self) -> Array:
        """The output in float64, computed once for all engines."""
        return oracle(self.graph, self.feeds)[0]


def names() -> list[str]:
    """Every op of the vocabulary that computes something."""
    return [op.name for op in cases.checked_ops()]


def _made(case: cases.Case) -> Case:
    shapes = ", ".join(f"{list(shape)} {dtype}" for shape, dtype in case.inputs)
    attrs = ", ".join(f"{k}={v}" for k, v in case.attrs.items())
    note = f" ({case.note})" if case.note else ""
    return Case(f"{case.name}: {shapes} {attrs}{note}", case.make())


@cache
def plain(name: str) -> tuple[Case, ...]:
    """A graph of each sample's inputs and the op."""
    return tuple(map(_made, cases.plain(registry.get(name))))


@cache
def through_views(name: str) -> tuple[Case, ...]:
    """A graph of each small sample, whose inputs are views of each kind in turn."""
    return tuple(map(_made, views.through_views(registry.get(name))))
