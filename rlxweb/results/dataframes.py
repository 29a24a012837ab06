"""Conversion of results to tables of other libraries: Arrow, pandas, polars, xarray.

The one place where these and MNE are loaded for results, each when it is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from rlxweb.core.errors import not_installed
from rlxweb.io.parquet_tables import build_arrow_table
from rlxweb.results.labelled_arrays import LabelledArrays, to_long_table


def to_arrow(labelled: LabelledArrays, context: str) -> Any:
    """Return a pyarrow.Table; raise Unsupported without pyarrow."""
    table = to_long_table(labelled)
    metadata = {name: str(value) for name, value in labelled.metadata.items()}
    return build_arrow_table(table.columns, table.values, metadata, context)


def to_pandas(labelled: LabelledArrays, context: str) -> Any:
    """Return a pandas.DataFrame with names as categories; raise Unsupported without
    pandas.
    """
    pandas = import_optional("pandas", context)
    table = to_long_table(labelled)
    frame = pandas.DataFrame(
        {
            column.name: _pandas_column(
                pandas, table.values[column.name], column.column_type
            )
            for column in table.columns
        }
    )
    frame.attrs = dict(labelled.metadata)
    return frame


def to_polars(labelled: LabelledArrays, context: str) -> Any:
    """Return a polars.DataFrame; raise Unsupported without polars."""
    polars = import_optional("polars", context)
    table = to_long_table(labelled)
    frame = polars.DataFrame(
        {column.name: table.values[column.name] for column in table.columns}
    )
    texts = [column.name for column in table.columns if column.column_type == "text"]
    return frame.with_columns(polars.col(texts).cast(polars.Categorical))


def to_xarray(labelled: LabelledArrays, context: str) -> Any:
    """Return an xarray.Dataset, or a DataArray if the result has one variable.

    Errors   Unsupported without xarray.
    """
    xarray = import_optional("xarray", context)
    coords = {
        axis.name: (
            axis.name,
            np.asarray(axis.values),
            _describe_variable(axis.unit, axis.description),
        )
        for axis in labelled.axes
    }
    dataset = xarray.Dataset(
        {
            variable.name: (
                variable.dims,
                variable.values,
                _describe_variable(variable.unit, variable.description),
            )
            for variable in labelled.variables
        },
        coords=coords,
        attrs=dict(labelled.metadata),
    )
    if len(labelled.variables) > 1:
        return dataset
    data_array = dataset[labelled.variables[0].name]
    data_array.attrs |= dataset.attrs
    return data_array


def _describe_variable(unit: str, description: str) -> dict[str, str]:
    """Return the attributes "units" and "long_name" as far as they are known."""
    attributes = {"units": unit, "long_name": description}
    return {name: text for name, text in attributes.items() if text}


def _pandas_column(pandas: Any, values: Any, kind: str) -> Any:
    """Return a column for pandas: text becomes a Categorical."""
    return pandas.Categorical(values) if kind == "text" else values


def import_optional(name: str, context: str, hint: str = "") -> Any:
    """Import an optional library; raise Unsupported if it is missing."""
    try:
        return import_module(name)
    except ImportError as error:
        raise not_installed(context, name, hint) from error
