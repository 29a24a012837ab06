"""Results as labelled arrays, and as long tables with one row for every value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlxweb.io.parquet_tables import ColumnType, TableColumn
from rlxweb.results.labels import Labels

Array = NDArray[Any]


class ResultAxis(NamedTuple):
    """Axis of a result: its name, the values or names along it, and their unit."""

    name: str
    values: Array | tuple[str, ...]
    unit: str = ""
    description: str = ""


class ResultVariable(NamedTuple):
    """Values over some of a result's axes, whose names are in `dims`."""

    name: str
    values: Array
    dims: tuple[str, ...]
    unit: str = ""
    description: str = ""


class LabelledArrays(NamedTuple):
    """Contents of a result as variables over named axes.

    axes       every axis once, the slowest first
    variables  over them; a table has the first one's axes
    metadata   facts of the whole: its rate, its engine …
    row_mask   over the axes of the table: rows that hold something; None: all
    """

    axes: tuple[ResultAxis, ...]
    variables: tuple[ResultVariable, ...]
    metadata: Mapping[str, Any]
    row_mask: Array | None = None


class LongTable(NamedTuple):
    """Table of columns of equal length and their values."""

    columns: tuple[TableColumn, ...]
    values: Mapping[str, Any]


def batch_axes(labels: Labels, batch: tuple[int, ...]) -> tuple[ResultAxis, ...]:
    """Return the leading axes of a result, those of its batch."""
    return tuple(
        ResultAxis(dim, np.arange(size) if names is None else names)
        for dim, names, size in zip(labels.dims, labels.names, batch, strict=True)
    )


def to_long_table(labelled: LabelledArrays) -> LongTable:
    """Return a table with one row for each value of the first variable; the others are
    broadcast along it.
    """
    dims = labelled.variables[0].dims
    axes = {axis.name: axis for axis in labelled.axes}
    shape = tuple(len(axes[dim].values) for dim in dims)
    row_filter = (
        slice(None) if labelled.row_mask is None else labelled.row_mask.reshape(-1)
    )
    columns: list[TableColumn] = []
    values: dict[str, Any] = {}

    def add_column(name: str, flat: Array, unit: str, description: str) -> None:
        """Append a column."""
        columns.append(TableColumn(name, _column_kind(flat), unit, description))
        values[name] = flat

    for axis_index, dim in enumerate(dims):
        axis = axes[dim]
        numbers = np.arange(shape[axis_index]).reshape(
            (-1,) + (1,) * (len(dims) - axis_index - 1)
        )
        flat = np.broadcast_to(numbers, shape).reshape(-1)[row_filter]
        add_column(dim, np.asarray(axis.values)[flat], axis.unit, axis.description)
    for variable in labelled.variables:
        if not set(variable.dims) <= set(dims):
            continue
        expanded = variable.values.reshape(
            [
                size if d in variable.dims else 1
                for d, size in zip(dims, shape, strict=True)
            ]
        )
        flat = np.broadcast_to(expanded, shape).reshape(-1)[row_filter]
        if np.iscomplexobj(flat):
            add_column(
                f"{variable.name}_real", flat.real, variable.unit, variable.description
            )
            add_column(
                f"{variable.name}_imag", flat.imag, variable.unit, variable.description
            )
        else:
            add_column(variable.name, flat, variable.unit, variable.description)
    return LongTable(tuple(columns), values)


def _column_kind(values: Array) -> ColumnType:
    """Return the column type in which values are stored."""
    kinds: dict[str, ColumnType] = {"U": "text", "i": "int64", "b": "int64"}
    if values.dtype == np.float32:
        return "float32"
    return kinds.get(values.dtype.kind, "float64")
