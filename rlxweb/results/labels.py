"""Names of the axes of samples, and the unit of the samples."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any, Final

Names = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Labels:
    """Labels of the axes of a batch, which are all axes of the samples but time.

    dims    their names, from the first: ("epoch", "channel")
    names   along each of them; None where they are only counted
    unit    of the samples, such as "uV"; "" where nobody said
    origin  what the library that the samples came from wants back (an mne.Info)
    begins  seconds of the first sample: of epochs, from what they are around; of a
            stretch, from the first sample of its file
    event   times count from what epochs are around
    """

    dims: tuple[str, ...] = ()
    names: tuple[Names | None, ...] = ()
    unit: str = ""
    origin: Any = None
    begins: float = 0.0
    event: bool = False

    def without(self, dim: str) -> Labels:
        """Return the labels of a batch without this axis."""
        kept_axes = [axis for axis, name in enumerate(self.dims) if name != dim]
        return replace(
            self,
            dims=tuple(self.dims[axis] for axis in kept_axes),
            names=tuple(self.names[axis] for axis in kept_axes),
        )

    def fitted(self, batch: tuple[int, ...]) -> Labels:
        """Return these labels if they fit the batch, otherwise default names for its
        axes.
        """
        is_fitting = len(self.dims) == len(batch) and all(
            names is None or len(names) == size
            for names, size in zip(self.names, batch, strict=True)
        )
        if is_fitting:
            return self
        return replace(
            self,
            dims=_default_dims(len(batch)),
            names=(None,) * len(batch),
            origin=None,
        )

    def along(self, axis: int, size: int) -> Names:
        """Return the names along an axis of a batch, or numbers from 0 if it has
        none.
        """
        names = self.names[axis]
        return tuple(map(str, range(size))) if names is None else names

    def rows(self, batch: tuple[int, ...]) -> Names:
        """Return one name for each row of the flattened batch."""
        if not batch:
            return ("",)
        row_names: Names = ("",)
        for axis, size in enumerate(batch):
            axis_names = self.along(axis, size)
            row_names = tuple(f"{a} {b}".strip() for a in row_names for b in axis_names)
        assert len(row_names) == prod(batch)
        return row_names


NO_LABELS: Final = Labels()
"""Labels of plain arrays."""


def _default_dims(rank: int) -> tuple[str, ...]:
    """Return the default axis names of a batch of this rank."""
    default_names = ("channel",), ("epoch", "channel")
    if rank <= len(default_names):
        return default_names[rank - 1] if rank else ()
    return (*(f"axis_{axis}" for axis in range(rank - 2)), *default_names[1])
