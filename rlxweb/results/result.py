"""Abstract base class of all results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from html import escape
from typing import TYPE_CHECKING, Any

from rlxweb.core.lazy_names import load_provider
from rlxweb.results import result_files
from rlxweb.results.labelled_arrays import LabelledArrays

if TYPE_CHECKING:
    from typing import Self

    from rlxweb.results.result_files import FilePath, ResultState


class Result(ABC):
    """Result that converts to a table, a file or a picture.

    Its table has one row for each value, the names of its place beside it: `channel`,
    `frequency` … Whatever knows Arrow's stream takes a result as it is (DuckDB; polars
    and pyarrow too, but take one that unpacks, as a Spectrum does, for a sequence: give
    them `to_arrow()`).
    """

    __slots__ = ()

    @abstractmethod
    def labelled(self) -> LabelledArrays:
        """Return the named axes of the result and the values over them."""

    @abstractmethod
    def _to_state(self) -> ResultState:
        """Return everything that is stored in a file."""

    @classmethod
    @abstractmethod
    def _from_state(cls, state: ResultState) -> Self:
        """Rebuild the result from its stored state."""

    def _svg(self) -> str:
        """Return an SVG preview; "" if there is none."""
        return ""

    def to_pandas(self) -> Any:
        """Return the table as a pandas.DataFrame.

        Errors   Unsupported where pandas is missing.
        """
        from rlxweb.results.dataframes import to_pandas

        return to_pandas(self.labelled(), _error_context(self, "to_pandas"))

    def to_polars(self) -> Any:
        """Return the table as a polars.DataFrame.

        Errors   Unsupported where polars is missing.
        """
        from rlxweb.results.dataframes import to_polars

        return to_polars(self.labelled(), _error_context(self, "to_polars"))

    def to_xarray(self) -> Any:
        """Return an xarray.Dataset, or a DataArray if the result has one variable.

        Errors   Unsupported where xarray is missing.
        """
        from rlxweb.results.dataframes import to_xarray

        return to_xarray(self.labelled(), _error_context(self, "to_xarray"))

    def to_arrow(self) -> Any:
        """Return the table as a pyarrow.Table, with units in the metadata of its
        columns.

        Errors   Unsupported where pyarrow is missing.
        """
        from rlxweb.results.dataframes import to_arrow

        return to_arrow(self.labelled(), _error_context(self, "to_arrow"))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Export the table through the Arrow C stream interface, without a copy."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def save(self, path: FilePath) -> None:
        """Write the result to an .npz or a .parquet file; `load` reads it back.

        Errors   UsageError for another suffix; Unsupported for Parquet without pyarrow;
                 RecordingError when the file cannot be written.
        """
        result_files.save_result(
            path, type(self).__name__, self._to_state(), self.labelled()
        )

    @classmethod
    def load(cls, path: FilePath) -> Self:
        """Read a result that `save` wrote.

        Errors   RecordingError for a file that is damaged or none of ours; UsageError
                 for one that holds another kind of result.
        """
        state = result_files.load_result(path, cls.__name__)
        with result_files.report_malformed_file(path):
            return cls._from_state(state)

    def plot(self, ax: Any = None, **options: Any) -> Any:
        """Draw it with matplotlib; see `rlxweb.plot`.

        ax       axes to draw into; None: a figure of its own
        → the axes

        Errors   Unsupported where matplotlib is missing.
        """
        return load_provider("plot_result")(self, ax, **options)

    def _repr_html_(self) -> str:
        text = escape(repr(self))
        return f"<div><pre>{text}</pre>{self._svg()}</div>"


def _error_context(result: object, method: str) -> str:
    """Return the error context of a method of a result."""
    return f"{type(result).__name__}.{method}"
