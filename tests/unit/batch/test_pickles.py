"""Errors, warnings, settings and results sent to another process are unchanged by
pickling.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path

import numpy as np
import pytest

from rlxweb.batch.recording_analysis import analyse_file
from rlxweb.batch.results import Failure
from rlxweb.batch.settings import Settings
from rlxweb.core import errors
from rlxweb.core.device import Device
from rlxweb.core.errors import RlxError, RlxWarning, UsageError
from rlxweb.core.message_text import Advice, Blank
from rlxweb.cost.decision import Attempt, Decision

HINT = Advice("use a smaller {} or {}", nperseg=Blank("N"), k=3)
ERROR_PARTS = "opening 'x'", Advice("{} was given", fs=9.5), "1 of 2", HINT
EXTRA_ARGUMENTS = {
    errors.AdapterMissing: {"candidates": (("llvmpipe", "software"),)},
    errors.ShaderRejected: {"source": "fn main() {}"},
}


def subclasses(root: type) -> Iterator[type]:
    yield root
    for subclass in root.__subclasses__():
        yield from subclasses(subclass)


def pickle_round_trip(value: object) -> object:
    return pickle.loads(pickle.dumps(value))


ERRORS = [e for e in subclasses(RlxError) if e.__module__ == "rlxweb.core.errors"]


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_every_error_survives_pickling(kind: type[RlxError]) -> None:
    """Errors keep attributes that were set later and those that only some classes
    have.
    """
    if kind is errors.DeviceFallbackError:
        error: RlxError = kind("run", [(Device.CPU, "no"), (Device.GPU, "gone")])
    elif kind is errors.MissingOps:
        error = kind("loading 'x.onnx'", {"Bernoulli": ["node 3", "node 7"]})
    else:
        error = kind(*ERROR_PARTS, **EXTRA_ARGUMENTS.get(kind, {}))
    error.doing = f"'night/x.edf': {error.doing}"
    restored = pickle_round_trip(error)
    assert type(restored) is kind
    assert vars(restored) == vars(error)
    assert (str(restored), restored.with_flags) == (str(error), error.with_flags)
    assert restored.exit_code == error.exit_code
    if kind not in (errors.DeviceFallbackError, errors.MissingOps):
        assert "--nperseg N" in restored.with_flags


@pytest.mark.parametrize("kind", [*subclasses(RlxWarning)], ids=lambda k: k.__name__)
def test_every_warning_survives_pickling(kind: type[RlxWarning]) -> None:
    warning = kind("it is not so", UsageError(*ERROR_PARTS))
    restored = pickle_round_trip(warning)
    assert type(restored) is kind
    assert (str(restored), restored.with_flags) == (str(warning), warning.with_flags)


def check_same(actual: object, expected: object) -> None:
    """Check that two objects are equal in type and in every field, arrays element by
    element.
    """
    assert type(actual) is type(expected)
    if isinstance(actual, np.ndarray):
        np.testing.assert_array_equal(actual, expected, strict=True)
    elif isinstance(actual, tuple):
        for a, b in zip(actual, expected, strict=True):
            check_same(a, b)
    elif is_dataclass(actual):
        for field in fields(actual):
            check_same(getattr(actual, field.name), getattr(expected, field.name))
    else:
        assert actual == expected


@pytest.mark.parametrize("mode", ["bins", "peaks"])
def test_settings_and_results_survive_pickling(tmp_path: Path, mode: str) -> None:
    """Pickled results keep spectra, peaks, floor, estimate and decision."""
    x = np.random.default_rng(8).standard_normal((3, 900))
    np.savez(tmp_path / "x.npz", x=x, fs=100.0, channels=np.array(["Fz", "Cz", "脳"]))
    settings = Settings(mode=mode, k=4, window=("kaiser", 8.6), preset="scipy", fmax=40)
    restored = pickle_round_trip(settings)
    check_same(restored, settings)
    result = analyse_file(str(tmp_path / "x.npz"), restored)
    check_same(pickle_round_trip(result), result)
    assert result.groups[0].decision.candidates


def test_an_attempt_drops_an_exception_that_cannot_be_pickled() -> None:
    """The cause of an attempt need not be picklable; its message is kept."""

    class UnpicklableError(Exception):
        def __reduce__(self) -> str:
            raise TypeError("no")

    attempt = Attempt(Device.GPU, "it broke", UnpicklableError())
    restored = pickle_round_trip(
        Decision("cpu", "the rest failed", {"n": 1}, (), (attempt,))
    )
    assert restored == Decision(
        "cpu", "the rest failed", {"n": 1}, (), (Attempt(Device.GPU, "it broke"),)
    )
    check_same(pickle_round_trip(Failure("x.edf", "bad")), Failure("x.edf", "bad"))
