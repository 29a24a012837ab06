"""Array inputs: what is accepted and what is refused, the same at every entry point."""

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
from rlxweb.core.array_coercion import as_array
from rlxweb.core.errors import DTypeError, InputError
from rlxweb.devices import benchmark_devices
from rlxweb.io import Group, Recording
from tests.engines_under_test import Array

ROW = np.arange(3, dtype=np.float32)


class MneLikeRaw:
    """A recording like MNE's: a sequence whose samples a method returns."""

    def get_data(self) -> Array:
        return ROW

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> Array:
        return ROW


class UnreadableTensor:
    """Array of another device that raises when NumPy asks for its values."""

    def __array__(self, dtype: object = None, copy: object = None) -> Array:
        raise RuntimeError("it lies on cuda:0")


CHANNEL_GROUP = Group("a.edf", 1.0, (), 9, np.dtype("f4"), reader=Mock())
RECORDING = Recording("a.edf", "EDF", (CHANNEL_GROUP,), (), Mock())


class ArrayProvider:
    """Object like a variable of netCDF4: no array itself, but its `__array__` returns
    one.
    """

    def __init__(self, array: Array) -> None:
        self.array = array

    def __array__(self, dtype: object = None, copy: object = None) -> Array:
        return self.array


SELF_CONTAINING_LIST: list[Any] = []
SELF_CONTAINING_LIST.append(SELF_CONTAINING_LIST)
REFUSED: dict[str, tuple[Any, str]] = {
    "nothing": (None, "got None; expected an array of numbers"),
    "a type": (float, "got a type"),
    "a dict": ({"left": ROW, "right": ROW}, "got a dict; .* keys: 'left', 'right'"),
    "a file's name": ("sleep.edf", "a str: 'sleep.edf'; .*open_recording"),
    "a path": (pathlib.Path("sleep.edf"), "PosixPath.*'sleep.edf'; .*read the file"),
    "bytes": (b"\0\1\2", "got 3 bytes; .*frombuffer"),
    "rows of two lengths": ([[1, 2], [3, 4], [5]], "row 0 has 2 values, row 2 has 1 "),
    "deep down": (
        [[[1, 2], [3, 4]], [[5, 6], [7]]],
        "row 0 has 2 .* row 1 has 1 value;",
    ),
    "a number among rows": ([[1, 2], 3], "row 1 is a scalar"),
    "arrays of two shapes": ([ROW, ROW[:2]], "row 0 has 3 values, row 1 has 2"),
    "a ragged array": (np.array([[1, 2], [3]], object), "array of objects; row 0"),
    "objects": ([decimal.Decimal(1)], r"got a list of objects: a decimal\.Dec"),
    "None inside": (np.array([1, None]), "ndarray of objects: None"),
    "times of Python": ([datetime.date(2026, 1, 1)], r"a datetime\.date, 2026-01-01"),
    "too big for int64": ([10**30], "of objects: an int, 1000"),
    "text": (["1", "2"], r"a list of text; .* np\.asarray\(x, float\)"),
    "a text array": (np.array(["a"]), "ndarray of text"),
    "dates": (np.array(["2026-01-01"], "M8[s]"), "of dates; .* seconds"),
    "time differences": (np.array([1], "m8[s]"), "of time differences"),
    "fields": (np.zeros(2, [("x", "f4"), ("y", "f4")]), r"2 fields; .*x\['x'\]"),
    "masked": (np.ma.masked_array(ROW, [0, 1, 0]), "1 of 3 values masked; .*filled"),
    "masked in a list": ([np.ma.masked_array(ROW, [1, 1, 0])] * 2, "2 of 3 values"),
    "masked in a deque": (
        collections.deque([np.ma.masked_array(ROW, 1)]),
        "3 of 3 val",
    ),
    "masked behind __array__": (
        ArrayProvider(np.ma.masked_array(ROW, [0, 1, 0])),
        "1 of 3 va",
    ),
    "that in a list": (
        [[ArrayProvider(np.ma.masked_array(ROW, [0, 1, 0]))]],
        "1 of 3 values",
    ),
    "a masked record": (
        np.ma.array([(1, 2)], [("x", "f4"), ("y", "f4")], mask=1)[0],
        "2 f",
    ),
    "itself": (SELF_CONTAINING_LIST, "a list cannot be converted to an array; .* 64"),
    "the masked value": ([1.0, np.ma.masked], "values masked"),
    "a recording": (MneLikeRaw(), r"Raw; .* x\.get_data\(\)"),
    "our recording": (RECORDING, r"Recording; .* x\.groups\[0\]\.read\(\)"),
    "a group of it": (CHANNEL_GROUP, r"Group; .* x\.read\(\)"),
    "an open file": (io.BytesIO(b"RIFF"), "BytesIO; .* file by name with .*open_"),
    "a generator": ((i for i in ROW), r"got a generator; .* list\(x\)"),
    "a set": ({1.0, 2.0}, "got a set"),
    "a function": (print, "got a builtin_function_or_method; expected an array"),
    "an object": (object(), "got an object"),
    "elsewhere": (
        UnreadableTensor(),
        "UnreadableTensor cannot be converted to an array; it lies on cuda:0",
    ),
}
ACCEPTED: dict[str, Any] = {
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


@pytest.mark.parametrize("case_name", ACCEPTED)
def test_accepted_inputs_become_plain_arrays(case_name: str) -> None:
    """Values stay; a subclass of ndarray loses its own arithmetic."""
    array = as_array(ACCEPTED[case_name])
    assert type(array) is np.ndarray
    np.testing.assert_array_equal(array, np.broadcast_to(ROW, array.shape))


def test_a_plain_array_is_returned_itself() -> None:
    """No copy, not even a view."""
    assert as_array(ROW) is ROW


@pytest.mark.parametrize("case_name", REFUSED)
def test_refused_inputs_are_named_in_the_error(case_name: str) -> None:
    """The message says what was expected, what was given and what to do."""
    value, words = REFUSED[case_name]
    with pytest.raises(DTypeError, match=f"(?s)^weigh: .*{words}"):
        as_array(value, "weigh")


InputFunction = Callable[[Any], object]


def _run_input() -> InputFunction:
    graph = Graph("net")
    graph.set_outputs([graph.neg(graph.input("x", 3))])
    compiled = Session("cpu").compile(graph)
    return lambda value: compiled.run({"x": value})


def _param_setter() -> InputFunction:
    graph = Graph("net")
    graph.set_outputs([graph.neg(graph.param("w", 3))])
    compiled = Session("cpu").compile(graph)
    return lambda value: compiled.set_param("w", value)


INPUT_FUNCTIONS: dict[str, Callable[[], InputFunction]] = {
    "a run's input": _run_input,
    "a param": _param_setter,
    "a constant": lambda: Graph("net").constant,
}


@pytest.mark.parametrize("input_name", INPUT_FUNCTIONS)
def test_every_input_of_a_graph_refuses_the_same_values(input_name: str) -> None:
    """Each input of a graph refuses the same values, and the error names the graph."""
    pass_value, mismatches = INPUT_FUNCTIONS[input_name](), {}
    for case_name, (value, words) in REFUSED.items():
        if case_name != "a generator":
            try:
                mismatches[case_name] = f"taken: {pass_value(value)}"
            except DTypeError as error:
                if not re.search(f"(?s)'net'.*{words}", str(error)):
                    mismatches[case_name] = str(error)
    assert mismatches == {}


def negation_graph() -> Graph:
    graph = Graph("net")
    graph.set_outputs([graph.neg(graph.input("x", 3))])
    return graph


CPU = DevicePolicy.only(["cpu"])
RUN_FUNCTIONS: dict[str, Callable[[Any], object]] = {
    "run": lambda given: Session("cpu").compile(negation_graph()).run(given),
    "on a device": lambda given: GraphDevices(negation_graph(), CPU).run("cpu", given),
    "resolved": lambda given: GraphDevices(negation_graph(), CPU).run_resolved(
        None, given
    ),
    "chain": lambda given: GraphDevices(negation_graph(), CPU).run_chain(None, given),
    "benchmark": lambda given: GraphDevices(negation_graph(), CPU).benchmark(given),
    "benchmark_devices": lambda given: benchmark_devices(
        negation_graph(), given, policy=CPU
    ),
    "router": lambda given: DeviceRouter(negation_graph(), CPU).run(None, given),
    "router's chain": lambda given: DeviceRouter(negation_graph(), CPU).run_chain(
        None, given
    ),
}


@pytest.mark.parametrize("run_name", RUN_FUNCTIONS)
@pytest.mark.parametrize("inputs", [ROW, ROW[:0], [ROW], [], 0, "x"], ids=repr)
def test_error_for_unnamed_inputs_shows_how_to_name_them(
    run_name: str, inputs: Any
) -> None:
    """Inputs without names are refused, also empty ones and those without a single
    truth value.
    """
    with pytest.raises(InputError, match=r"got an? .*; pass \{'x': …\}"):
        RUN_FUNCTIONS[run_name](inputs)
