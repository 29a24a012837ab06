"""What is taken as an array and what is refused, at every door the same."""

from __future__ import annotations

import array
import collections
import datetime
import decimal
import io
import pathlib
import re
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from rlxweb import DevicePolicy, DeviceRouter, Graph, GraphDevices, Session
from rlxweb.devices import benchmark_devices
from rlxweb.errors import DTypeError, InputError
from rlxweb.given import array_of
from rlxweb.io import Group, Recording
from tests.agreement import Array

ROW = np.arange(3, dtype=np.float32)


class Raw:
    """A recording as MNE's: a sequence, whose samples a method hands out."""

    def get_data(self) -> Array:
        return ROW

    def __len__(self) -> int:
        return 1

    def __getitem__(self, at: int) -> Array:
        return ROW


class Broken:
    """What a tensor on another device does when NumPy asks for its values."""

    def __array__(self, dtype: object = None, copy: object = None) -> Array:
        raise RuntimeError("it lies on cuda:0")


GROUP = Group("a.edf", 1.0, (), 9, np.dtype("f4"), reader=Mock())
OURS = Recording("a.edf", "EDF", (GROUP,), (), Mock())


class Gives:
    """What a variable of netCDF4 does: it is no array and gives a masked one."""

    def __init__(self, array: Array) -> None:
        self.array = array

    def __array__(self, dtype: object = None, copy: object = None) -> Array:
        return self.array


ITSELF: list[Any] = []
ITSELF.append(ITSELF)
REFUSED: dict[str, tuple[Any, str]] = {
    "nothing": (None, "None was given; an array of numbers is wanted"),
    "a type": (float, "a type was given"),
    "a dict": ({"left": ROW, "right": ROW}, "a dict .* keys: 'left', 'right'"),
    "a file's name": ("sleep.edf", "a str .* 'sleep.edf'; .*open_recording"),
    "a path": (pathlib.Path("sleep.edf"), "PosixPath .*'sleep.edf'; .*read it first"),
    "bytes": (b"\0\1\2", "3 bytes were given; .*frombuffer"),
    "rows of two lengths": ([[1, 2], [3, 4], [5]], "row 0 has 2 values, row 2 has 1 "),
    "deep down": (
        [[[1, 2], [3, 4]], [[5, 6], [7]]],
        "row 0 has 2 .* row 1 has 1 value;",
    ),
    "a number among rows": ([[1, 2], 3], "row 1 is one value"),
    "arrays of two shapes": ([ROW, ROW[:2]], "row 0 has 3 values, row 1 has 2"),
    "a ragged array": (np.array([[1, 2], [3]], object), "array of objects; row 0"),
    "objects": ([decimal.Decimal(1)], r"a list of objects was given: a decimal\.Dec"),
    "None inside": (np.array([1, None]), "objects was given: None"),
    "times of Python": ([datetime.date(2026, 1, 1)], r"a datetime\.date, 2026-01-01"),
    "too big for int64": ([10**30], "of objects was given: an int, 1000"),
    "text": (["1", "2"], r"a list of text .* np\.asarray\(x, float\)"),
    "a text array": (np.array(["a"]), "ndarray of text"),
    "dates": (np.array(["2026-01-01"], "M8[s]"), "of dates .* seconds"),
    "time differences": (np.array([1], "m8[s]"), "of time differences"),
    "fields": (np.zeros(2, [("x", "f4"), ("y", "f4")]), r"2 fields; .*x\['x'\]"),
    "masked": (np.ma.masked_array(ROW, [0, 1, 0]), "1 of 3 values masked; .*filled"),
    "masked in a list": ([np.ma.masked_array(ROW, [1, 1, 0])] * 2, "2 of 3 values"),
    "masked in a deque": (
        collections.deque([np.ma.masked_array(ROW, 1)]),
        "3 of 3 val",
    ),
    "masked behind __array__": (Gives(np.ma.masked_array(ROW, [0, 1, 0])), "1 of 3 va"),
    "that in a list": ([[Gives(np.ma.masked_array(ROW, [0, 1, 0]))]], "1 of 3 values"),
    "a masked record": (
        np.ma.array([(1, 2)], [("x", "f4"), ("y", "f4")], mask=1)[0],
        "2 f",
    ),
    "itself": (ITSELF, "a list cannot be read as an array; .* 64"),
    "the masked value": ([1.0, np.ma.masked], "values masked"),
    "a recording": (Raw(), r"Raw was given; .* x\.get_data\(\)"),
    "our recording": (OURS, r"Recording was given; .* x\.groups\[0\]\.read\(\)"),
    "a group of it": (GROUP, r"Group was given; .* x\.read\(\)"),
    "an open file": (io.BytesIO(b"RIFF"), "BytesIO was given; .* by its name: .*open_"),
    "a generator": ((i for i in ROW), r"a generator was given; .* list\(x\)"),
    "a set": ({1.0, 2.0}, "a set was given"),
    "a function": (print, "was given; an array"),
    "an object": (object(), "an object was given"),
    "elsewhere": (Broken(), "Broken cannot be read as an array; it lies on cuda:0"),
}
TAKEN: dict[str, Any] = {
    "array": ROW,
    "matrix": ROW.view(np.matrix),
    "nothing masked": np.ma.masked_array(ROW),
    "list": [0.0, 1.0, 2.0],
    "tuple of scalars": tuple(ROW),
    "rows": [ROW, [0, 1, 2]],
    "range": range(3),
    "deque": collections.deque([0, 1, 2]),
    "array.array": array.array("d", [0, 1, 2]),
    "buffer": memoryview(ROW),
    "byte-swapped": ROW.astype(">f4"),
}


@pytest.mark.parametrize("what", TAKEN)
def test_what_holds_numbers_becomes_a_plain_array(what: str) -> None:
    """Values stay; a subclass of ndarray loses its own arithmetic."""
    made = array_of(TAKEN[what])
    assert type(made) is np.ndarray
    np.testing.assert_array_equal(made, np.broadcast_to(ROW, made.shape))


def test_a_plain_array_is_handed_back() -> None:
    """No copy, not even a view."""
    assert array_of(ROW) is ROW


@pytest.mark.parametrize("what", REFUSED)
def test_what_holds_none_is_named(what: str) -> None:
    """The message says what was wanted, what came and what to do."""
    value, words = REFUSED[what]
    with pytest.raises(DTypeError, match=f"(?s)^weigh: .*{words}"):
        array_of(value, "weigh")


Door = Callable[[Any], object]


def _run() -> Door:
    graph = Graph("net")
    graph.set_outputs([graph.neg(graph.input("x", 3))])
    compiled = Session("cpu").compile(graph)
    return lambda value: compiled.run({"x": value})


def _set_param() -> Door:
    graph = Graph("net")
    graph.set_outputs([graph.neg(graph.param("w", 3))])
    compiled = Session("cpu").compile(graph)
    return lambda value: compiled.set_param("w", value)


DOORS: dict[str, Callable[[], Door]] = {
    "a run's input": _run,
    "a param": _set_param,
    "a constant": lambda: Graph("net").constant,
}


@pytest.mark.parametrize("name", DOORS)
def test_every_door_of_a_graph_refuses_the_same(name: str) -> None:
    """Every door refuses the same inputs and says which graph it was."""
    door, wrong = DOORS[name](), {}
    for what, (value, words) in REFUSED.items():
        if what != "a generator":
            try:
                wrong[what] = f"taken: {door(value)}"
            except DTypeError as error:
                if not re.search(f"(?s)'net'.*{words}", str(error)):
                    wrong[what] = str(error)
    assert wrong == {}


def net() -> Graph:
    graph = Graph("net")
    graph.set_outputs([graph.neg(graph.input("x", 3))])
    return graph


CPU = DevicePolicy.only(["cpu"])
RUNS: dict[str, Callable[[Any], object]] = {
    "run": lambda given: Session("cpu").compile(net()).run(given),
    "on a device": lambda given: GraphDevices(net(), CPU).run("cpu", given),
    "resolved": lambda given: GraphDevices(net(), CPU).run_resolved(None, given),
    "chain": lambda given: GraphDevices(net(), CPU).run_chain(None, given),
    "benchmark": lambda given: GraphDevices(net(), CPU).benchmark(given),
    "benchmark_devices": lambda given: benchmark_devices(net(), given, policy=CPU),
    "router": lambda given: DeviceRouter(net(), CPU).run(None, given),
    "router's chain": lambda given: DeviceRouter(net(), CPU).run_chain(None, given),
}


@pytest.mark.parametrize("door", RUNS)
@pytest.mark.parametrize("given", [ROW, ROW[:0], [ROW], [], 0, "x"], ids=repr)
def test_inputs_without_names_are_shown_how_to_be_named(door: str, given: Any) -> None:
    """Inputs without names are refused, also empty ones or without a single truth."""
    with pytest.raises(InputError, match=r"was given; .* pass \{'x': …\}"):
        RUNS[door](given)
