"""Running averages of spectra: over all, over the last, or with exponential decay."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from rlxweb.core.argument_validation import coerce_float, coerce_integer
from rlxweb.core.errors import UsageError

Array = NDArray[Any]
AverageKind = Literal["all", "last", "exponential", "none"]
AVERAGES: Final = ("all", "last", "exponential", "none")


def make_average(
    kind: str, last: int | None, half_life: float | None, step_s: float, context: str
) -> SpectraAverage:
    """Create the average of a kind.

    step_s   seconds from one spectrum to the next
    Errors   UsageError where `last` or `half_life` is missing, wrong or of no use.
    """
    for name, value, required_kind in (
        ("last", last, "last"),
        ("half_life", half_life, "exponential"),
    ):
        if value is not None and kind != required_kind:
            raise UsageError(
                context,
                f"the argument {name!r} does not apply to average={kind!r}",
                f"{name}=… requires average={required_kind!r}",
            )
        if value is None and kind == required_kind:
            raise UsageError(
                context,
                f"average={kind!r} requires the argument {name!r}",
                hint=f"pass {name}=…",
            )
    if kind == "last":
        count = coerce_integer("last", last, context)
        if count < 1:
            raise UsageError(context, f"last is {count}", "must be at least 1")
        return LastAverage(count)
    if kind == "exponential":
        seconds = coerce_float("half_life", half_life, context)
        if seconds <= 0:
            raise UsageError(context, f"half_life is {seconds:g} s", "must be above 0")
        return FadingAverage(0.5 ** (step_s / seconds))
    return FadingAverage(1.0 if kind == "all" else 0.0)


class SpectraAverage(ABC):
    """Running average of spectra (C, F) and of the mean squares (C,) of their
    samples.
    """

    @abstractmethod
    def add(
        self, power: Array, energy: Array, skipped: NDArray[np.bool_] | None
    ) -> None:
        """Add one spectrum of each channel, except for those that are skipped."""

    @abstractmethod
    def mean(
        self, shape: tuple[int, int], dtype: str
    ) -> tuple[Array, NDArray[np.float64]]:
        """Return the means (C, F) of the dtype and (C,); NaN where a channel has no
        spectrum yet.
        """

    @property
    @abstractmethod
    def weights(self) -> NDArray[Any]:
        """Divisors (C,) of the sum of each channel; empty before the first spectrum."""

    @abstractmethod
    def clear(self) -> None:
        """Forget all spectra."""

    @abstractmethod
    def state(self) -> Iterator[tuple[str, Array]]:
        """Yield the arrays of the state by name."""

    @abstractmethod
    def restore(self, state: dict[str, Array]) -> None:
        """Restore the arrays that `state` yielded; raise KeyError for a missing one."""


class FadingAverage(SpectraAverage):
    """Average with exponential decay: a spectrum has `decay` times the weight of the
    next; 1 is the plain mean, 0 the last spectrum.

    Sums of weights and of weighed spectra: so the first ones weigh as they should.
    """

    def __init__(self, decay: float) -> None:
        self.decay = decay
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
        included = np.ones(len(power), np.bool_) if skipped is None else ~skipped
        if self.decay == 0.0:  # and nothing stays of what was no number
            self._sum[included], self._energy[included], self._weight[included] = (
                0.0,
                0.0,
                0.0,
            )
        elif self.decay != 1.0:
            decay = np.where(included, self.decay, 1.0)
            self._sum *= decay[:, None]
            self._energy *= decay
            self._weight *= decay
        self._sum[included] += power[included]
        self._energy[included] += energy[included]
        self._weight[included] += 1.0

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
    """Mean of the last `count` spectra of each channel."""

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
        included = np.arange(len(power))
        included = included if skipped is None else included[~skipped]
        slots = self._seen[included] % self.count
        self._power[included, slots] = power[included]
        self._energy[included, slots] = energy[included]
        self._seen[included] += 1

    @property
    def weights(self) -> NDArray[Any]:
        return np.minimum(self._seen, self.count)

    def mean(
        self, shape: tuple[int, int], dtype: str
    ) -> tuple[Array, NDArray[np.float64]]:
        if not self._seen.size:
            return np.full(shape, np.nan, dtype), np.zeros(shape[0])
        counts = self.weights
        # Places that are not filled yet hold zeros.
        with np.errstate(invalid="ignore", divide="ignore"):
            power = self._power.sum(axis=1) / counts[:, None]
            energy = self._energy.sum(axis=1) / counts
        return power.astype(dtype), np.nan_to_num(energy)

    def state(self) -> Iterator[tuple[str, Array]]:
        yield "power", self._power.copy()
        yield "energy", self._energy.copy()
        yield "seen", self._seen.copy()

    def restore(self, state: dict[str, Array]) -> None:
        self._power, self._energy = state["power"], state["energy"]
        self._seen = state["seen"].astype(np.int64)
