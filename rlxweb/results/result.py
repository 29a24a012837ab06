"""What every result can do, whatever it holds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from html import escape
from typing import TYPE_CHECKING, Any

from rlxweb.names import from_above
from rlxweb.results import stored
from rlxweb.results.tables import Labelled

if TYPE_CHECKING:
    from typing import Self

    from rlxweb.results.stored import Path_, State


class Result(ABC):
    """A result as a table, a file, a picture.

    Its table has one row for each value, the names of its place beside it: `channel`,
    `frequency` … Whatever knows Arrow's stream takes a result as it is (DuckDB; polars
    and pyarrow too, but take one that unpacks, as a Spectrum does, for a sequence: give
    them `to_arrow()`).
    """

    __slots__ = ()

    @abstractmethod
    def labelled(self) -> Labelled:
        """Axes with their names, values over them."""

    @abstractmethod
    def _state(self) -> State:
        """All that is stored."""

    @classmethod
    @abstractmethod
    def _of_state(cls, state: State) -> Self:
        """Back from it."""

    def _picture(self) -> str:
        """SVG of what a look would want to see; "" for none."""
        return ""

    def to_pandas(self) -> Any:
        """The table as a pandas.DataFrame.

        Errors   Unsupported where pandas is missing.
        """
        from rlxweb.results.frames import to_pandas

        return to_pandas(self.labelled(), _doing(self, "to_pandas"))

    def to_polars(self) -> Any:
        """The table as a polars.DataFrame.

        Errors   Unsupported where polars is missing.
        """
        from rlxweb.results.frames import to_polars

        return to_polars(self.labelled(), _doing(self, "to_polars"))

    def to_xarray(self) -> Any:
        """An xarray.Dataset, or a DataArray where there is one thing in it.

        Errors   Unsupported where xarray is missing.
        """
        from rlxweb.results.frames import to_xarray

        return to_xarray(self.labelled(), _doing(self, "to_xarray"))

    def to_arrow(self) -> Any:
        """The table as a pyarrow.Table, units in the metadata of its columns.

        Errors   Unsupported where pyarrow is missing.
        """
        from rlxweb.results.frames import to_arrow

        return to_arrow(self.labelled(), _doing(self, "to_arrow"))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """For whoever takes Arrow's tables without a copy."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def save(self, path: Path_) -> None:
        """Write all of it to an .npz or a .parquet file; `load` gives it back.

        Errors   UsageError for another suffix; Unsupported for Parquet without pyarrow;
                 RecordingError when the file cannot be written.
        """
        stored.save(path, type(self).__name__, self._state(), self.labelled())

    @classmethod
    def load(cls, path: Path_) -> Self:
        """What `save` wrote.

        Errors   RecordingError for a file that is damaged or none of ours; UsageError
                 for one that holds another kind of result.
        """
        state = stored.load(path, cls.__name__)
        with stored.foreign(path):
            return cls._of_state(state)

    def plot(self, ax: Any = None, **options: Any) -> Any:
        """Draw it with matplotlib; see `rlxweb.plot`.

        ax       axes to draw into; None: a figure of its own
        → the axes

        Errors   Unsupported where matplotlib is missing.
        """
        return from_above("plot_result")(self, ax, **options)

    def _repr_html_(self) -> str:
        text = escape(repr(self))
        return f"<div><pre>{text}</pre>{self._picture()}</div>"


def _doing(own: object, what: str) -> str:
    return f"{type(own).__name__}.{what}"
