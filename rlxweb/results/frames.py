"""Results as other libraries' tables: Arrow, pandas, polars, xarray.

The one place where these and MNE are loaded for results, each when it is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from rlxweb.errors import not_installed
from rlxweb.io.parquet import arrow_table
from rlxweb.results.tables import Labelled, table_of


def to_arrow(own: Labelled, doing: str) -> Any:
    """A pyarrow.Table. Errors  Unsupported without pyarrow."""
    table = table_of(own)
    about = {name: str(value) for name, value in own.about.items()}
    return arrow_table(table.columns, table.values, about, doing)


def to_pandas(own: Labelled, doing: str) -> Any:
    """A pandas.DataFrame; names are categories. Errors  Unsupported without pandas."""
    pandas = library("pandas", doing)
    table = table_of(own)
    frame = pandas.DataFrame(
        {
            column.name: _plain(pandas, table.values[column.name], column.kind)
            for column in table.columns
        }
    )
    frame.attrs = dict(own.about)
    return frame


def to_polars(own: Labelled, doing: str) -> Any:
    """A polars.DataFrame. Errors  Unsupported without polars."""
    polars = library("polars", doing)
    table = table_of(own)
    frame = polars.DataFrame(
        {column.name: table.values[column.name] for column in table.columns}
    )
    texts = [column.name for column in table.columns if column.kind == "text"]
    return frame.with_columns(polars.col(texts).cast(polars.Categorical))


def to_xarray(own: Labelled, doing: str) -> Any:
    """An xarray.Dataset, or a DataArray of what is alone in it.

    Errors   Unsupported without xarray.
    """
    xarray = library("xarray", doing)
    coords = {
        axis.name: (axis.name, np.asarray(axis.values), _told(axis.unit, axis.about))
        for axis in own.axes
    }
    found = xarray.Dataset(
        {
            one.name: (one.dims, one.values, _told(one.unit, one.about))
            for one in own.variables
        },
        coords=coords,
        attrs=dict(own.about),
    )
    if len(own.variables) > 1:
        return found
    alone = found[own.variables[0].name]
    alone.attrs |= found.attrs
    return alone


def _told(unit: str, about: str) -> dict[str, str]:
    told = {"units": unit, "long_name": about}
    return {name: text for name, text in told.items() if text}


def _plain(pandas: Any, values: Any, kind: str) -> Any:
    return pandas.Categorical(values) if kind == "text" else values


def library(name: str, doing: str, hint: str = "") -> Any:
    """A library of somebody else's. Errors  Unsupported where it is missing."""
    try:
        return import_module(name)
    except ImportError as error:
        raise not_installed(doing, name, hint) from error
