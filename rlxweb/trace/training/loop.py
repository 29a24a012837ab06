"""Training loop: one compiled step for each batch, with the state on the device."""

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

from rlxweb.core.argument_validation import coerce_integer
from rlxweb.core.array_coercion import describe_type
from rlxweb.core.device import Device, DeviceLike, none_if_auto
from rlxweb.core.environment import jit_mode
from rlxweb.core.errors import NotFinite, UsageError, shown
from rlxweb.runtime.session import Session
from rlxweb.trace.fixed_signature_call import BoundCall
from rlxweb.trace.function import function
from rlxweb.trace.training.nonfinite_search import describe_first_nonfinite
from rlxweb.trace.training.progress_bar import progress_bar
from rlxweb.trace.training.saved_training import (
    SavedTraining,
    load_training,
    save_training,
)
from rlxweb.trace.training.tree_map import map_trees

INTERRUPTED: Final = "Ctrl-C"
"""Reason recorded for a training that was interrupted."""
_WARM_UP_RUNS: Final = 2
"""Runs until compiled code is in use: code compiled in a first run is used from the
second on.
"""

Step = Callable[[Any, Any], Any]
Batches = Iterable[Any] | Callable[[int], Any]


@dataclass(frozen=True, slots=True)
class Trained:
    """Result of a training.

    state    after the last step, as NumPy arrays
    losses   [steps] float64, of every step, those before a resumption too
    steps    how many were made in all
    why      why it ended: "all steps are done", "there are no more batches", "no
             improvement in the last … steps", "Ctrl-C"
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
    """Rule for early stopping.

    steps   without a better loss, as the mean of so many steps, after which it stops
    least   how much better it must be
    over    steps whose mean loss is compared
    """

    steps: int
    least: float = 0.0
    over: int = 10

    def is_over(self, losses: list[float]) -> bool:
        """Return whether no mean of the last steps was better than the best before."""
        if len(losses) < self.steps + self.over:
            return False
        means = np.convolve(losses, np.ones(self.over) / self.over, "valid")
        earlier, late = means[: -self.steps], means[-self.steps :]
        return bool(late.min() >= earlier.min() - self.least)


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
    """Run a training step on each batch, from one state to the next.

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
    options = _TrainOptions(steps, patience, save_to, save_every, told)
    step_function = function(step, device=device, adapter=adapter, precision=precision)
    named_device = none_if_auto(device)
    if named_device is not None or adapter:
        # What cannot be opened is refused now: there may be no step to make.
        Session("gpu" if named_device is None else named_device, adapter=adapter)
    saved = SavedTraining(state, 0, np.empty(0))
    if options.file is not None and os.path.exists(options.file):
        saved = load_training(options.file, state)
    run = _TrainingRun(step_function, options, saved)
    return run.run_batches(_remaining_batches(batches, saved.step, steps), progress)


class _TrainOptions:
    """Validated options of `train`."""

    def __init__(
        self,
        steps: int | None,
        patience: Patience | int | None,
        save_to: str | PathLike[str] | None,
        save_every: int,
        on_step: Callable[[int, float], object] | None,
    ) -> None:
        self.steps = None if steps is None else coerce_integer("steps", steps, "train")
        self.save_every = coerce_integer("save_every", save_every, "train")
        if self.save_every < 1 or (self.steps is not None and self.steps < 0):
            problem = f"steps is {shown(steps)}, save_every is {shown(save_every)}"
            raise UsageError("train", problem, "expected steps ≥ 0 and save_every ≥ 1")
        if isinstance(patience, int):
            patience = Patience(patience)
        self.patience = patience
        self.file = None if save_to is None else Path(save_to)
        self.on_step = on_step


class _TrainingRun:
    """One run of a training: the state on the device, the losses so far."""

    def __init__(
        self, step_function: Any, options: _TrainOptions, saved: SavedTraining
    ) -> None:
        self._step_function, self._options = step_function, options
        self._state, self._losses = saved.state, [float(x) for x in saved.losses]
        self._bound_step: BoundCall | None = None
        self._stop_reason = ""

    def run_batches(self, batches: Iterator[Any], progress: bool | None) -> Trained:
        """Train on all batches; the file is written however the run ends."""
        start_time, options = perf_counter(), self._options
        try:
            with progress_bar(
                progress, len(self._losses), options.steps
            ) as report_progress:
                for batch in batches:
                    loss = self._step(batch)
                    report_progress(len(self._losses), loss)
                    if options.on_step is not None:
                        options.on_step(len(self._losses), loss)
                    if not self._stop_reason and options.patience is not None:
                        if options.patience.is_over(self._losses):
                            patience_steps = options.patience.steps
                            self._stop_reason = (
                                f"no improvement in the last {patience_steps} steps"
                            )
                    if self._stop_reason:
                        break
                    if options.file and len(self._losses) % options.save_every == 0:
                        self._save()
        except KeyboardInterrupt:
            self._stop_reason = INTERRUPTED
        if not self._stop_reason:
            is_complete = (
                options.steps is not None and len(self._losses) >= options.steps
            )
            self._stop_reason = (
                "all steps are done" if is_complete else "there are no more batches"
            )
        state = self._host_state()
        if options.file:
            self._save(state)
        return Trained(
            state,
            np.array(self._losses),
            len(self._losses),
            self._stop_reason,
            "" if self._bound_step is None else self._bound_step.device.label,
            "" if self._bound_step is None else self._bound_step.compiled.engine,
            perf_counter() - start_time,
        )

    def _step(self, batch: Any) -> float:
        """Run one step. If it is interrupted, the state stays that before it."""
        state = self._state
        if self._bound_step is None:
            self._bound_step = self._step_function.held(state, batch)
            _warm_up(self._bound_step, state, batch)
        result = self._bound_step(state, batch, stay=1)
        if not isinstance(result, tuple) or len(result) != 2:
            problem = f"the step function returned {describe_type(result)}"
            raise UsageError("train", problem, "expected a tuple (state, loss)")
        loss = float(np.asarray(result[1]))
        if not math.isfinite(loss):
            self._raise_not_finite(state, batch, loss)
        self._state = result[0]
        self._losses.append(loss)
        return loss

    def _raise_not_finite(self, state: Any, batch: Any, loss: float) -> None:
        """Save the state and raise NotFinite, with the op where it began."""
        assert self._bound_step is not None
        if self._options.file:
            self._save()
        feeds = self._bound_step.feeds(_copy_to_host(state), batch)
        nonfinite_op = describe_first_nonfinite(
            self._bound_step.graph, {**self._bound_step.params, **feeds}
        )
        raise NotFinite(
            f"train, step {len(self._losses) + 1}",
            f"the loss is {loss}",
            nonfinite_op
            or "the loss is finite when NumPy computes it, but not on the device",
            "lower the learning rate"
            + (", or check the operands of that op" if nonfinite_op else "")
            + (
                "; the save_to file contains the state before this step"
                if self._options.file
                else ""
            ),
        )

    def _host_state(self) -> Any:
        return _copy_to_host(self._state)

    def _save(self, state: Any = None) -> None:
        assert self._options.file is not None
        state = self._host_state() if state is None else state
        losses = np.array(self._losses, np.float64)
        save_training(
            self._options.file, SavedTraining(state, len(self._losses), losses)
        )


def _copy_to_host(state: Any) -> Any:
    return map_trees(np.asarray, state, context="train")


def _remaining_batches(
    batches: Batches, n_done: int, steps: int | None
) -> Iterator[Any]:
    """Return the batches that are left. Errors  UsageError for an argument that gives
    none.
    """
    if callable(batches):
        if steps is None:
            hint = "pass the number of steps, for example steps=1000"
            raise UsageError(
                "train", "batches is a function, but steps is missing", hint=hint
            )
        return (batches(n) for n in range(n_done, steps))
    batches_object: object = batches
    if not isinstance(batches_object, Iterable):
        rule = "expected an iterable of batches, or a function of the step number"
        raise UsageError("train", f"batches is {describe_type(batches_object)}", rule)
    return islice(iter(batches_object), n_done, steps)


def _warm_up(bound_step: BoundCall, *args: Any) -> None:
    """Compile all of a step's code, by runs whose results are dropped.

    On the CPU code is compiled while NumPy computes, and small steps become one call
    after their first run. Either way rounds in its own way, so a training that goes on
    from a file would differ from one that was never interrupted.
    """
    if bound_step.device is not Device.CPU or jit_mode() == "off":
        return
    from rlxweb.engines.cpu import JIT_CACHES

    with ExitStack() as stack:
        for jit_cache in JIT_CACHES:
            stack.enter_context(jit_cache.wait_for_kernels())
        for _ in range(_WARM_UP_RUNS):
            bound_step(*args, stay=1)
