"""What goes to another process and comes back is what it was."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path

import numpy as np
import pytest

from rlxweb import errors
from rlxweb.advice import Advice, Blank
from rlxweb.decision.attempt import Attempt
from rlxweb.decision.decision import Decision
from rlxweb.device import Device
from rlxweb.errors import RlxError, RlxWarning, UsageError
from rlxweb.jobs.analysis import analyse_file
from rlxweb.jobs.results import Failure
from rlxweb.jobs.settings import Settings

HINT = Advice("use a smaller {} or {}", nperseg=Blank("N"), k=3)
PARTS = "opening 'x'", Advice("{} was given", fs=9.5), "1 of 2", HINT
OWN = {
    errors.AdapterMissing: {"candidates": (("llvmpipe", "software"),)},
    errors.ShaderRejected: {"source": "fn main() {}"},
}


def subclasses(root: type) -> Iterator[type]:
    yield root
    for one in root.__subclasses__():
        yield from subclasses(one)


def through(value: object) -> object:
    return pickle.loads(pickle.dumps(value))


ERRORS = [e for e in subclasses(RlxError) if e.__module__ == "rlxweb.errors"]


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_every_error_comes_through_whole(kind: type[RlxError]) -> None:
    """Errors keep what was put into them later, and what only some of them have."""
    if kind is errors.DeviceFallbackError:
        error: RlxError = kind("run", [(Device.CPU, "no"), (Device.GPU, "gone")])
    elif kind is errors.MissingOps:
        error = kind("loading 'x.onnx'", {"Bernoulli": ["node 3", "node 7"]})
    else:
        error = kind(*PARTS, **OWN.get(kind, {}))
    error.doing = f"'night/x.edf': {error.doing}"
    again = through(error)
    assert type(again) is kind
    assert vars(again) == vars(error)
    assert (str(again), again.with_flags) == (str(error), error.with_flags)
    assert again.exit_code == error.exit_code
    if kind not in (errors.DeviceFallbackError, errors.MissingOps):
        assert "--nperseg N" in again.with_flags


@pytest.mark.parametrize("kind", [*subclasses(RlxWarning)], ids=lambda k: k.__name__)
def test_every_warning_comes_through_whole(kind: type[RlxWarning]) -> None:
    warning = kind("it is not so", UsageError(*PARTS))
    again = through(warning)
    assert type(again) is kind
    assert (str(again), again.with_flags) == (str(warning), warning.with_flags)


def check_same(one: object, other: object) -> None:
    """Equal through and through, arrays by their bits."""
    assert type(one) is type(other)
    if isinstance(one, np.ndarray):
        np.testing.assert_array_equal(one, other, strict=True)
    elif isinstance(one, tuple):
        for a, b in zip(one, other, strict=True):
            check_same(a, b)
    elif is_dataclass(one):
        for field in fields(one):
            check_same(getattr(one, field.name), getattr(other, field.name))
    else:
        assert one == other


@pytest.mark.parametrize("mode", ["bins", "peaks"])
def test_settings_and_results_come_through_whole(tmp_path: Path, mode: str) -> None:
    """Results come through with spectra, peaks, floor, estimate and decision."""
    x = np.random.default_rng(8).standard_normal((3, 900))
    np.savez(tmp_path / "x.npz", x=x, fs=100.0, channels=np.array(["Fz", "Cz", "脳"]))
    settings = Settings(mode=mode, k=4, window=("kaiser", 8.6), preset="scipy", fmax=40)
    asked = through(settings)
    check_same(asked, settings)
    found = analyse_file(str(tmp_path / "x.npz"), asked)
    check_same(through(found), found)
    assert found.groups[0].decision.candidates


def test_an_attempt_leaves_the_exception_of_a_driver_at_home() -> None:
    """The cause of an attempt need not pickle; what was said of it does."""

    class OfADriver(Exception):
        def __reduce__(self) -> str:
            raise TypeError("no")

    tried = Attempt(Device.GPU, "it broke", OfADriver())
    there = through(Decision("cpu", "the rest failed", {"n": 1}, (), (tried,)))
    assert there == Decision(
        "cpu", "the rest failed", {"n": 1}, (), (Attempt(Device.GPU, "it broke"),)
    )
    check_same(through(Failure("x.edf", "bad")), Failure("x.edf", "bad"))
