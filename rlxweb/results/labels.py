"""What the axes of samples are called, and the unit of the samples."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any, Final

Names = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Labels:
    """Of the axes of a batch: all of samples but time.

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
        """These of a batch that has no such axis."""
        kept = [at for at, own in enumerate(self.dims) if own != dim]
        return replace(
            self,
            dims=tuple(self.dims[at] for at in kept),
            names=tuple(self.names[at] for at in kept),
        )

    def fitted(self, batch: tuple[int, ...]) -> Labels:
        """These where they are of that batch; else names for axes nobody named."""
        own = len(self.dims) == len(batch) and all(
            names is None or len(names) == size
            for names, size in zip(self.names, batch, strict=True)
        )
        if own:
            return self
        return replace(
            self, dims=_dims(len(batch)), names=(None,) * len(batch), origin=None
        )

    def along(self, axis: int, size: int) -> Names:
        """Names along an axis of a batch, numbers from 0 where it has none."""
        own = self.names[axis]
        return tuple(map(str, range(size))) if own is None else own

    def rows(self, batch: tuple[int, ...]) -> Names:
        """One name for each row of the batch, flattened."""
        if not batch:
            return ("",)
        found: Names = ("",)
        for axis, size in enumerate(batch):
            own = self.along(axis, size)
            found = tuple(f"{a} {b}".strip() for a in found for b in own)
        assert len(found) == prod(batch)
        return found


UNNAMED: Final = Labels()
"""Of plain arrays."""


def _dims(rank: int) -> tuple[str, ...]:
    known = ("channel",), ("epoch", "channel")
    if rank <= len(known):
        return known[rank - 1] if rank else ()
    return (*(f"axis_{at}" for at in range(rank - 2)), *known[1])
