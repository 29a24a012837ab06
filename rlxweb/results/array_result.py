"""Base class of results that unpack into arrays and carry metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rlxweb.core.errors import UnknownName, UsageError, shown
from rlxweb.results.labels import NO_LABELS, Labels
from rlxweb.results.power_units import power_unit
from rlxweb.results.ran import UNKNOWN_RUN, Ran
from rlxweb.results.result import Result
from rlxweb.results.result_files import (
    ResultState,
    check_field_type,
    labels_and_run_from_json,
    labels_and_run_to_json,
)

if TYPE_CHECKING:
    from typing import Self

_UNAVERAGEABLE = ("coherence", "angle", "phase")
_STORED_ATTRIBUTES = ("quantity", "axis", "fs")


class ArrayResult(Result):
    """Mix-in for result classes that are also a NamedTuple of arrays.

    quantity what the values are: "density", "spectrum", "csd" …
    axis     of the values, where the frequencies lie; from the end
    fs       of the samples, in Hz
    labels   names of the batch's axes, and the unit of the samples
    ran      engine, decision and wall time
    """

    quantity: str = "density"
    axis: int
    fs: float = 0.0
    labels: Labels = NO_LABELS
    ran: Ran = UNKNOWN_RUN
    _fields: ClassVar[Any]

    @classmethod
    def of(cls, *arrays: Any, **attributes: Any) -> Self:
        """Make a result of these arrays, with some of the attributes above."""
        result: Self = cls(*arrays)
        result.__dict__.update(attributes)
        return result

    def named(self, labels: Labels) -> Self:
        """Return the same result with names for the axes of its batch."""
        arrays = (getattr(self, name) for name in self._fields)
        return type(self).of(*arrays, **{**self.__dict__, "labels": labels})

    def mean(self, dim: str = "epoch") -> Self:
        """Return the average along a named axis of the batch, such as epochs.

        Errors   UnknownName for an axis there is not; UsageError for values whose mean
                 means nothing: phases, and coherence
        """
        context = f"averaging a {type(self).__name__}"
        if self.quantity in _UNAVERAGEABLE:
            problem = f"the mean of {self.quantity} is not meaningful"
            raise UsageError(
                context, problem, hint=f"average before computing {self.quantity}"
            )
        *coordinates, values = (getattr(self, name) for name in self._fields)
        last = type(self).axis
        if not values.size:
            raise UsageError(
                context,
                "the result is empty",
                hint="pass at least one channel and one sample",
            )
        values = np.moveaxis(values, self.axis, last)
        labels = self.labels.fitted(values.shape[:last])
        if dim not in labels.dims:
            known_axes = f"known axes: {', '.join(labels.dims) or 'none'}"
            raise UnknownName(context, f"no axis is named {shown(dim)}", known_axes)
        average = values.mean(axis=labels.dims.index(dim))
        attributes = {**self.__dict__, "labels": labels.without(dim), "axis": last}
        return type(self).of(*coordinates, average, **attributes)

    @property
    def unit(self) -> str:
        """Unit of the values; "" if the unit of the samples is unknown."""
        return power_unit(self.labels.unit, self.quantity)

    @property
    def engine(self) -> str:
        """Engine that computed the result."""
        return self.ran.engine

    def explain(self) -> str:
        """Return where and why there the result was computed; "" if that is unknown."""
        return self.ran.explain()

    def _to_state(self) -> ResultState:
        arrays = {name: getattr(self, name) for name in self._fields}
        attributes = {name: getattr(self, name) for name in _STORED_ATTRIBUTES}
        return ResultState(
            arrays, {**attributes, **labels_and_run_to_json(self.labels, self.ran)}
        )

    @classmethod
    def _from_state(cls, state: ResultState) -> Self:
        attributes = {name: state.json_data[name] for name in _STORED_ATTRIBUTES}
        for name, kind in zip(_STORED_ATTRIBUTES, (str, int, int | float), strict=True):
            check_field_type(name, attributes[name], kind)
        labels, ran = labels_and_run_from_json(state.json_data)
        arrays = (state.arrays[name] for name in cls._fields)
        return cls.of(*arrays, **attributes, labels=labels, ran=ran)
