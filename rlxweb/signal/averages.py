"""Averages of spectra that come one by one: of all, of the last, or fading."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from rlxweb.arguments import number, whole
from rlxweb.errors import UsageError

Array = NDArray[Any]
Average = Literal["all", "last", "exponential", "none"]
AVERAGES: Final = ("all", "last", "exponential", "none")


def average_of(
    kind: str, last: int | None, half_life: float | None, step_s: float, doing: str
) -> SpectraAverage:
    """The average of a name.

    step_s   seconds from one spectrum to the next
    Errors   UsageError where `last` or `half_life` is missing, wrong or of no use.
    """
    for name, value, of in (
        ("last", last, "last"),
        ("half_life", half_life, "exponential"),
    ):
        if value is not None and kind != of:
            raise UsageError(
                doing, f"{name} was given for average={kind!r}", f"it is of {of!r}"
            )
        if value is None and kind == of:
            raise UsageError(
                doing, f"average={kind!r} needs {name}", hint=f"pass {name}=…"
            )
    if kind == "last":
        count = whole("last", last, doing)
        if count < 1:
            raise UsageError(doing, f"last is {count}", "it must be at least 1")
        return LastAverage(count)
    if kind == "exponential":
        seconds = number("half_life", half_life, doing)
        if seconds <= 0:
            raise UsageError(doing, f"half_life is {seconds:g} s", "it is above 0")
        return FadingAverage(0.5 ** (step_s / seconds))
    return FadingAverage(1.0 if kind == "all" else 0.0)


class SpectraAverage(ABC):
    """Spectra (C, F) and the mean squares (C,) of their samples, averaged alike."""

    @abstractmethod
    def add(
        self, power: Array, energy: Array, skipped: NDArray[np.bool_] | None
    ) -> None:
        """One more of each channel, but for those that are skipped."""

    @abstractmethod
    def mean(
        self, shape: tuple[int, int], dtype: str
    ) -> tuple[Array, NDArray[np.float64]]:
        """(C, F) of the dtype and (C,); NaN where a channel has none yet."""

    @property
    @abstractmethod
    def weights(self) -> NDArray[Any]:
        """(C,) what the sum of each channel is divided by; empty before the first."""

    @abstractmethod
    def clear(self) -> None:
        """As if nothing had been added."""

    @abstractmethod
    def state(self) -> Iterator[tuple[str, Array]]:
        """What it holds, by name."""

    @abstractmethod
    def restore(self, state: dict[str, Array]) -> None:
        """What `state` gave. Errors  KeyError."""


class FadingAverage(SpectraAverage):
    """Each spectrum weighs `keep` times the next one: 1 is the plain mean, 0 the last.

    Sums of weights and of weighed spectra: so the first ones weigh as they should.
    """

    def __init__(self, keep: float) -> None:
        self.keep = keep
        self.clear()

    def clear(self) -> None:
        self._sum: Array = np.zeros((0, 0))
        self._energy: Array = np.zeros(0)
        self._weight: Array = np.zeros(0)

    def add(
        self, power: Array, energy: Array, skipped: NDArray[np.bool_] | None
    ) -> None:
        if not self._weight.size:
            self._sum = np.zeros(power.shape)
            self._energy, self._weight = np.zeros(len(power)), np.zeros(len(power))
        own = np.ones(len(power), np.bool_) if skipped is None else ~skipped
        if self.keep == 0.0:  # and nothing stays of what was no number
            self._sum[own], self._energy[own], self._weight[own] = 0.0, 0.0, 0.0
        elif self.keep != 1.0:
            keep = np.where(own, self.keep, 1.0)
            self._sum *= keep[:, None]
            self._energy *= keep
            self._weight *= keep
        self._sum[own] += power[own]
        self._energy[own] += energy[own]
        self._weight[own] += 1.0

    @property
    def weights(self) -> NDArray[Any]:
        return self._weight

    def mean(
        self, shape: tuple[int, int], dtype: str
    ) -> tuple[Array, NDArray[np.float64]]:
        if not self._weight.size:
            return np.full(shape, np.nan, dtype), np.zeros(shape[0])
        with np.errstate(invalid="ignore", divide="ignore"):
            power = self._sum / self._weight[:, None]
            energy = self._energy / self._weight
        return power.astype(dtype), np.nan_to_num(energy)

    def state(self) -> Iterator[tuple[str, Array]]:
        yield "sum", self._sum.copy()
        yield "energy", self._energy.copy()
        yield "weight", self._weight.copy()

    def restore(self, state: dict[str, Array]) -> None:
        self._sum, self._energy = state["sum"], state["energy"]
        self._weight = state["weight"]


class LastAverage(SpectraAverage):
    """The mean of the last so many of each channel."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.clear()

    def clear(self) -> None:
        self._power: Array = np.zeros((0, 0, 0))
        self._energy: Array = np.zeros((0, 0))
        self._seen: NDArray[np.int64] = np.zeros(0, np.int64)

    def add(
        self, power: Array, energy: Array, skipped: NDArray[np.bool_] | None
    ) -> None:
        if not self._seen.size:
            self._power = np.zeros((*power.shape[:1], self.count, power.shape[1]))
            self._energy = np.zeros((len(power), self.count))
            self._seen = np.zeros(len(power), np.int64)
        own = np.arange(len(power))
        own = own if skipped is None else own[~skipped]
        at = self._seen[own] % self.count
        self._power[own, at] = power[own]
        self._energy[own, at] = energy[own]
        self._seen[own] += 1

    @property
    def weights(self) -> NDArray[Any]:
        return np.minimum(self._seen, self.count)

    def mean(
        self, shape: tuple[int, int], dtype: str
    ) -> tuple[Array, NDArray[np.float64]]:
        if not self._seen.size:
            return np.full(shape, np.nan, dtype), np.zeros(shape[0])
        held = self.weights
        # Places that are not filled yet hold zeros.
        with np.errstate(invalid="ignore", divide="ignore"):
            power = self._power.sum(axis=1) / held[:, None]
            energy = self._energy.sum(axis=1) / held
        return power.astype(dtype), np.nan_to_num(energy)

    def state(self) -> Iterator[tuple[str, Array]]:
        yield "power", self._power.copy()
        yield "energy", self._energy.copy()
        yield "seen", self._seen.copy()

    def restore(self, state: dict[str, Array]) -> None:
        self._power, self._energy = state["power"], state["energy"]
        self._seen = state["seen"].astype(np.int64)
