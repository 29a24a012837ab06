"""A result as labelled arrays, and as a long table: one row for every value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlxweb.io.parquet import Column, Kind
from rlxweb.results.labels import Labels

Array = NDArray[Any]


class Axis(NamedTuple):
    """An axis of the result: its name, the values or names along it, their unit."""

    name: str
    values: Array | tuple[str, ...]
    unit: str = ""
    about: str = ""


class Variable(NamedTuple):
    """Values over some of the axes, in the order they are named."""

    name: str
    values: Array
    dims: tuple[str, ...]
    unit: str = ""
    about: str = ""


class Labelled(NamedTuple):
    """What a result holds.

    axes       every axis once, the slowest first
    variables  over them; a table has the first one's axes
    about      facts of the whole: its rate, its engine …
    keep       over the axes of the table: rows that hold something; None: all
    """

    axes: tuple[Axis, ...]
    variables: tuple[Variable, ...]
    about: Mapping[str, Any]
    keep: Array | None = None


class Table(NamedTuple):
    """Columns of equal length, each with its values."""

    columns: tuple[Column, ...]
    values: Mapping[str, Any]


def batch_axes(labels: Labels, batch: tuple[int, ...]) -> tuple[Axis, ...]:
    """Of the leading axes of a result."""
    return tuple(
        Axis(dim, np.arange(size) if names is None else names)
        for dim, names, size in zip(labels.dims, labels.names, batch, strict=True)
    )


def table_of(own: Labelled) -> Table:
    """One row for each value of the first variable, the others repeated along it."""
    dims = own.variables[0].dims
    axes = {axis.name: axis for axis in own.axes}
    shape = tuple(len(axes[dim].values) for dim in dims)
    keep = slice(None) if own.keep is None else own.keep.reshape(-1)
    columns: list[Column] = []
    values: dict[str, Any] = {}

    def add(name: str, flat: Array, unit: str, about: str) -> None:
        columns.append(Column(name, _kind(flat), unit, about))
        values[name] = flat

    for at, dim in enumerate(dims):
        axis = axes[dim]
        numbers = np.arange(shape[at]).reshape((-1,) + (1,) * (len(dims) - at - 1))
        flat = np.broadcast_to(numbers, shape).reshape(-1)[keep]
        add(dim, np.asarray(axis.values)[flat], axis.unit, axis.about)
    for one in own.variables:
        if not set(one.dims) <= set(dims):
            continue
        wide = one.values.reshape(
            [size if d in one.dims else 1 for d, size in zip(dims, shape, strict=True)]
        )
        flat = np.broadcast_to(wide, shape).reshape(-1)[keep]
        if np.iscomplexobj(flat):
            add(f"{one.name}_real", flat.real, one.unit, one.about)
            add(f"{one.name}_imag", flat.imag, one.unit, one.about)
        else:
            add(one.name, flat, one.unit, one.about)
    return Table(tuple(columns), values)


def _kind(values: Array) -> Kind:
    kinds: dict[str, Kind] = {"U": "text", "i": "int64", "b": "int64"}
    if values.dtype == np.float32:
        return "float32"
    return kinds.get(values.dtype.kind, "float64")
