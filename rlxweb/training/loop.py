"""train: a step on batch after batch, with its state on the device."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from os import PathLike
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rlxweb.arguments import whole
from rlxweb.device import Device, DeviceLike, unless_open
from rlxweb.errors import NotFinite, UsageError, shown
from rlxweb.given import named
from rlxweb.machine.making import fast_mode
from rlxweb.runtime.session import Session
from rlxweb.tracing.function import function
from rlxweb.tracing.held_call import HeldCall
from rlxweb.training.first_bad import first_bad
from rlxweb.training.meter import meter
from rlxweb.training.saved import Saved, load, save
from rlxweb.training.trees import changed

STOPPED: Final = "Ctrl-C"
"""Why a training ended that was interrupted."""
_RUNS: Final = 2
"""What is compiled in a first run is used from the second on."""

Step = Callable[[Any, Any], Any]
Batches = Iterable[Any] | Callable[[int], Any]


@dataclass(frozen=True, slots=True)
class Trained:
    """What a training left.

    state    after the last step, as NumPy arrays
    losses   [steps] float64, of every step, those before a resumption too
    steps    how many were made in all
    why      why it ended: "all steps were made", "the batches ended", "no step of the
             last … was better", "Ctrl-C"
    device, engine   where it ran
    seconds  of this run of it
    """

    state: Any
    losses: npt.NDArray[np.float64]
    steps: int
    why: str
    device: str
    engine: str
    seconds: float

    def __repr__(self) -> str:
        last = f", loss {self.losses[-1]:.4g}" if self.steps else ""
        return (
            f"Trained({self.steps} steps{last} on {self.engine} in "
            f"{self.seconds:.3g} s: {self.why})"
        )


@dataclass(frozen=True, slots=True)
class Patience:
    """When to stop early.

    steps   without a better loss, as the mean of so many steps, after which it stops
    least   how much better it must be
    over    steps whose mean loss is compared
    """

    steps: int
    least: float = 0.0
    over: int = 10

    def is_over(self, losses: list[float]) -> bool:
        """Was no mean of the last steps better than the best before?"""
        if len(losses) < self.steps + self.over:
            return False
        means = np.convolve(losses, np.ones(self.over) / self.over, "valid")
        before, late = means[: -self.steps], means[-self.steps :]
        return bool(late.min() >= before.min() - self.least)


def train(
    step: Step,
    batches: Batches,
    state: Any,
    *,
    steps: int | None = None,
    device: DeviceLike | None = None,
    adapter: str = "",
    precision: str | None = None,
    patience: Patience | int | None = None,
    save_to: str | PathLike[str] | None = None,
    save_every: int = 100,
    progress: bool | None = None,
    told: Callable[[int, float], object] | None = None,
) -> Trained:
    """Make a step on each batch, from a state to the next.

    >>> def step(state, batch):
    ...     params, moments = state
    ...     loss, grads = rlx.value_and_grad(loss_of)(params, batch)
    ...     return adam.update(params, grads, moments), loss
    >>> rlx.train(step, batches, (params, adam.init(params)), steps=1000)

    step       (state, batch) → (state, loss), a function as `rlxweb.function` takes it.
               It is compiled once; the state stays on the device
    batches    of one structure, shapes and dtypes: an iterable, or a function of the
               number of the step (0, 1, …)
    state      arrays, in tuples, lists, dicts, dataclasses: parameters, an optimiser's
    steps      how many in all, those of the file included; None: until the batches end
    device, adapter, precision   as of `rlxweb.function`
    patience   stop early: a `Patience`, or its number of steps
    save_to    a file that has the state every `save_every` steps and at the end, whole
               or not at all. If it is there the training goes on from it, to the same
               bits as one that was never interrupted: an iterable skips the batches
               that were used
    progress   a bar on standard error; None: where that is a terminal
    told       called with the number of steps made and the loss of the last

    Ctrl-C ends it after the step at hand, with the file written.
    Errors     NotFinite for a loss that is no number, with the step and the op that
    made the first such; ShapeError for a batch unlike the first; those of
    `rlxweb.function`; RecordingError, InputError for the file.
    """
    asked = _Asked(steps, patience, save_to, save_every, told)
    make = function(step, device=device, adapter=adapter, precision=precision)
    named_device = unless_open(device)
    if named_device is not None or adapter:
        # What cannot be opened is refused now: there may be no step to make.
        Session("gpu" if named_device is None else named_device, adapter=adapter)
    at = Saved(state, 0, np.empty(0))
    if asked.file is not None and os.path.exists(asked.file):
        at = load(asked.file, state)
    run = _Run(make, asked, at)
    return run.over(_from(batches, at.step, steps), progress)


class _Asked:
    """What `train` was asked for, checked."""

    def __init__(
        self,
        steps: int | None,
        patience: Patience | int | None,
        save_to: str | PathLike[str] | None,
        save_every: int,
        told: Callable[[int, float], object] | None,
    ) -> None:
        self.steps = None if steps is None else whole("steps", steps, "train")
        self.every = whole("save_every", save_every, "train")
        if self.every < 1 or (self.steps is not None and self.steps < 0):
            problem = f"steps is {shown(steps)}, save_every {shown(save_every)}"
            raise UsageError("train", problem, "steps ≥ 0 and save_every ≥ 1")
        if isinstance(patience, int):
            patience = Patience(patience)
        self.patience = patience
        self.file = None if save_to is None else Path(save_to)
        self.told = told


class _Run:
    """One run of a training: the state on the device, the losses so far."""

    def __init__(self, make: Any, asked: _Asked, at: Saved) -> None:
        self._make, self._asked = make, asked
        self._state, self._losses = at.state, [float(x) for x in at.losses]
        self._call: HeldCall | None = None
        self._stopped = ""

    def over(self, batches: Iterator[Any], progress: bool | None) -> Trained:
        """All batches. What was done is in the file however it ends."""
        begun, asked = perf_counter(), self._asked
        try:
            with meter(progress, len(self._losses), asked.steps) as shown_on:
                for batch in batches:
                    loss = self._step(batch)
                    shown_on(len(self._losses), loss)
                    if asked.told is not None:
                        asked.told(len(self._losses), loss)
                    if not self._stopped and asked.patience is not None:
                        if asked.patience.is_over(self._losses):
                            last = asked.patience.steps
                            self._stopped = f"no step of the last {last} was better"
                    if self._stopped:
                        break
                    if asked.file and len(self._losses) % asked.every == 0:
                        self._save()
        except KeyboardInterrupt:
            self._stopped = STOPPED
        if not self._stopped:
            whole_ = asked.steps is not None and len(self._losses) >= asked.steps
            self._stopped = "all steps were made" if whole_ else "the batches ended"
        state = self._on_host()
        if asked.file:
            self._save(state)
        return Trained(
            state,
            np.array(self._losses),
            len(self._losses),
            self._stopped,
            "" if self._call is None else self._call.device.label,
            "" if self._call is None else self._call.compiled.engine,
            perf_counter() - begun,
        )

    def _step(self, batch: Any) -> float:
        """One step. Interrupted within it, the state is still that before it."""
        before = self._state
        if self._call is None:
            self._call = self._make.held(before, batch)
            _settle(self._call, before, batch)
        result = self._call(before, batch, stay=1)
        if not isinstance(result, tuple) or len(result) != 2:
            given = f"it returned {named(result)}"
            raise UsageError("train", given, "a step returns (state, loss)")
        loss = float(np.asarray(result[1]))
        if not math.isfinite(loss):
            self._refuse(before, batch, loss)
        self._state = result[0]
        self._losses.append(loss)
        return loss

    def _refuse(self, before: Any, batch: Any, loss: float) -> None:
        """Errors  NotFinite, with the place where it began."""
        assert self._call is not None
        if self._asked.file:
            self._save()
        feeds = self._call.feeds(_host(before), batch)
        place = first_bad(self._call.graph, {**self._call.params, **feeds})
        raise NotFinite(
            f"train, step {len(self._losses) + 1}",
            f"the loss is {loss}",
            place or "NumPy computes it finite: the device's numbers differ there",
            "lower the rate, or look at that op's operands"
            + ("; the file has the state before this step" if self._asked.file else ""),
        )

    def _on_host(self) -> Any:
        return _host(self._state)

    def _save(self, state: Any = None) -> None:
        assert self._asked.file is not None
        state = self._on_host() if state is None else state
        losses = np.array(self._losses, np.float64)
        save(self._asked.file, Saved(state, len(self._losses), losses))


def _host(state: Any) -> Any:
    return changed(np.asarray, state, doing="train")


def _from(batches: Batches, done: int, steps: int | None) -> Iterator[Any]:
    """The batches that are left. Errors  UsageError for what gives none."""
    if callable(batches):
        if steps is None:
            hint = "say how many: steps=1000"
            raise UsageError("train", "batches are made by a function", hint=hint)
        return (batches(n) for n in range(done, steps))
    given: object = batches
    if not isinstance(given, Iterable):
        wanted = "an iterable of batches, or a function"
        raise UsageError("train", f"{named(given)} was given", wanted)
    return islice(iter(given), done, steps)


def _settle(call: HeldCall, *args: Any) -> None:
    """Have all of a step's code compiled, by runs whose results are dropped.

    On the CPU code is compiled while NumPy computes, and small steps become one call
    after their first run. Either way rounds in its own way, so a training that goes on
    from a file would differ from one that was never interrupted.
    """
    if call.device is not Device.CPU or fast_mode() == "off":
        return
    from rlxweb.backends.cpu import WORKSHOPS

    with ExitStack() as stack:
        for shop in WORKSHOPS:
            stack.enter_context(shop.waiting())
        for _ in range(_RUNS):
            call(*args, stay=1)
