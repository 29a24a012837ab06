"""A result that unpacks into its arrays, and knows what they are besides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rlxweb.errors import UnknownName, UsageError, shown
from rlxweb.results.labels import UNNAMED, Labels
from rlxweb.results.ran import UNTOLD, Ran
from rlxweb.results.result import Result
from rlxweb.results.stored import State, check_kind, of_plain, plain_of
from rlxweb.results.units import power_unit

if TYPE_CHECKING:
    from typing import Self

_NO_MEAN = ("coherence", "angle", "phase")
_KEPT = ("quantity", "axis", "fs")


class Described(Result):
    """Beside a NamedTuple of arrays, the bases of a class of results.

    quantity what the values are: "density", "spectrum", "csd" …
    axis     of the values, where the frequencies lie; from the end
    fs       of the samples, in Hz
    labels   names of the batch's axes, and the unit of the samples
    ran      engine, decision and wall time
    """

    quantity: str = "density"
    axis: int
    fs: float = 0.0
    labels: Labels = UNNAMED
    ran: Ran = UNTOLD
    _fields: ClassVar[Any]

    @classmethod
    def of(cls, *arrays: Any, **about: Any) -> Self:
        """Of the arrays, with some of the attributes above."""
        own: Self = cls(*arrays)
        own.__dict__.update(about)
        return own

    def named(self, labels: Labels) -> Self:
        """The same with names for the axes of its batch."""
        arrays = (getattr(self, name) for name in self._fields)
        return type(self).of(*arrays, **{**self.__dict__, "labels": labels})

    def mean(self, dim: str = "epoch") -> Self:
        """The average along a named axis of the batch, such as epochs.

        Errors   UnknownName for an axis there is not; UsageError for values whose mean
                 means nothing: phases, and coherence
        """
        doing = f"averaging a {type(self).__name__}"
        if self.quantity in _NO_MEAN:
            said = f"the mean of {self.quantity} means nothing"
            raise UsageError(doing, said, hint="average before it is computed")
        *about, values = (getattr(self, name) for name in self._fields)
        last = type(self).axis
        if not values.size:
            raise UsageError(doing, "it holds nothing", hint="give samples")
        values = np.moveaxis(values, self.axis, last)
        labels = self.labels.fitted(values.shape[:last])
        if dim not in labels.dims:
            there = f"there are {', '.join(labels.dims) or 'none'}"
            raise UnknownName(doing, f"no axis is called {shown(dim)}", there)
        average = values.mean(axis=labels.dims.index(dim))
        kept = {**self.__dict__, "labels": labels.without(dim), "axis": last}
        return type(self).of(*about, average, **kept)

    @property
    def unit(self) -> str:
        """Of the values; "" where the unit of the samples is not known."""
        return power_unit(self.labels.unit, self.quantity)

    @property
    def engine(self) -> str:
        """That computed it."""
        return self.ran.engine

    def explain(self) -> str:
        """Where it was computed, and why there; "" where that is not known."""
        return self.ran.explain()

    def _state(self) -> State:
        arrays = {name: getattr(self, name) for name in self._fields}
        about = {name: getattr(self, name) for name in _KEPT}
        return State(arrays, {**about, **plain_of(self.labels, self.ran)})

    @classmethod
    def _of_state(cls, state: State) -> Self:
        about = {name: state.plain[name] for name in _KEPT}
        for name, kind in zip(_KEPT, (str, int, int | float), strict=True):
            check_kind(name, about[name], kind)
        labels, ran = of_plain(state.plain)
        arrays = (state.arrays[name] for name in cls._fields)
        return cls.of(*arrays, **about, labels=labels, ran=ran)
