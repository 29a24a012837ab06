"""int64, uint64 and float64 on a 32-bit device: inputs, computation and outputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlxweb import Graph, Session
from rlxweb.core.device import Device
from rlxweb.core.errors import DTypeError
from rlxweb.cost.decision import Candidate, Decision
from rlxweb.engines.pool import pool
from rlxweb.ir.dtype import DType
from rlxweb.runtime.compiled_graph import CompiledGraph
from rlxweb.runtime.device_array import put
from rlxweb.select.chooser import DevicePick
from rlxweb.select.graph_job import GraphJob
from tests.engines_under_test import Array

pytestmark = pytest.mark.requires_wgpu

TABLE = np.arange(50, dtype=np.float32).reshape(50, 1)
IDS = np.array([[3, -1, 49], [0, 7, -50]])


def embedding_graph() -> Graph:
    """Build rows by index with negative ones from the end, twice the indices and their
    maximum.
    """
    g = Graph("embedding")
    ids = g.input("ids", (2, 3), "i64")
    rows = g.gather(g.constant(TABLE), g.where(g.lt(ids, 0), ids + 50, ids))
    g.set_outputs([rows, ids + ids, g.max(ids, (1,))])
    return g


def compile_graph(graph: Graph, device: str = "vulkan") -> CompiledGraph:
    """Compile a graph for a device."""
    return Session(device).compile(graph)


def test_int64_indices_round_trip() -> None:
    """Indices go in and come back as int64; the explanation tells how they are
    stored.
    """
    compiled_graph = compile_graph(embedding_graph())
    for got, want in zip(
        compiled_graph.run({"ids": IDS}),
        compile_graph(embedding_graph(), "cpu").run({"ids": IDS}),
        strict=True,
    ):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)
    explanation = compiled_graph.explain()
    assert "i64 stored as i32: all computed values fit" in explanation
    assert "'ids' -1073741823 to 1073741823" in explanation


@pytest.mark.parametrize("large_value", [1 << 30, -(1 << 30), 1 << 40, -(1 << 63)])
def test_too_large_value_is_reported_with_position(large_value: int) -> None:
    """A too large value is reported before anything runs, with the limit and its
    cause.
    """
    compiled_graph, ids = compile_graph(embedding_graph()), IDS.copy()
    ids[1, 2] = large_value
    with pytest.raises(DTypeError) as caught:
        compiled_graph.run({"ids": ids})
    for message_part in (
        f"input 'ids' of 'embedding': the value is {large_value} at position [1, 2]",
        "accepts only values from -1073741823 to 1073741823, so that ",
        " = add(",
        "device='cpu'",
    ):
        assert message_part in str(caught.value)
    np.testing.assert_array_equal(compiled_graph.run({"ids": IDS})[1], IDS * 2)
    with pytest.raises(DTypeError, match="position"):
        list(compiled_graph.map([{"ids": IDS}, {"ids": ids}, {"ids": IDS}]))


def test_data_movement_accepts_all_32_bit_values() -> None:
    """Comparing, selecting, flipping and moving accept all values that fit 32 bits."""
    for dtype, low, high in (("i64", -(2**31) + 1, 2**31 - 1), ("u64", 0, 2**32 - 1)):
        g = Graph()
        x, y = (g.input(name, (2,), dtype) for name in "xy")
        g.set_outputs([g.maximum(g.abs(x), y), g.lt(x, y), g.flip(g.concat([x, y]), 0)])
        feeds = {
            "x": np.array(
                [low, high], dtype.replace("i", "int").replace("u64", "uint64")
            ),
            "y": np.array([5, high], x.dtype.numpy),
        }
        got, want = (
            compile_graph(g, device).run(feeds) for device in ("vulkan", "cpu")
        )
        for got_array, want_array in zip(got, want, strict=True):
            np.testing.assert_array_equal(got_array, want_array)


def test_possible_overflow_is_rejected_with_its_node() -> None:
    """Values not known to fit 32 bits are refused with their node and interval."""
    g = Graph()
    x = g.input("x", (1000,), "i64")
    g.set_outputs([g.sum(x * x * x)])
    with pytest.raises(DTypeError) as caught:
        compile_graph(g)
    message = str(caught.value)
    assert " = sum(" in message
    assert (
        "the values may not fit i32; the values may range from -16581375000 to"
        in message
    )


def test_device_arrays_keep_int64() -> None:
    """Device arrays keep int64; bounds too wide for the next graph are reported."""
    compiled_graph = compile_graph(embedding_graph())
    _, doubled_ids, maxima = compiled_graph.run({"ids": IDS}, keep=True)
    assert (doubled_ids.dtype, maxima.dtype) == (np.int64, np.int64)
    np.testing.assert_array_equal(doubled_ids.numpy(), IDS * 2)
    g = Graph("next")
    g.set_outputs([g.minimum(g.input("ids", (2, 3), "i64"), 40)])
    next_graph = compile_graph(g)
    np.testing.assert_array_equal(
        next_graph.run({"ids": doubled_ids})[0], np.minimum(IDS * 2, 40)
    )
    with pytest.raises(
        DTypeError, match=r"may lie anywhere from -2147483646 to .*read the array back"
    ):
        compiled_graph.run({"ids": doubled_ids})
    device_array = put(IDS, "vulkan")
    assert device_array.dtype == np.int64
    np.testing.assert_array_equal(compiled_graph.run({"ids": device_array})[1], IDS * 2)
    np.testing.assert_array_equal(device_array.numpy(), IDS)
    with pytest.raises(
        DTypeError, match=r"put an array on .*: the value is 4294967296 at .* \[1\]"
    ):
        put(np.array([1, 1 << 32]), "vulkan")


def test_rejected_param_keeps_previous_value() -> None:
    g = Graph("offsets")
    g.set_outputs([g.input("x", (2,), "i64") + g.param("w", (2,), "i64")])
    compiled_graph = compile_graph(g)
    compiled_graph.set_param("w", np.array([1, 2]))
    with pytest.raises(
        DTypeError, match=r"param 'w' .* the value is 1099511627776 at .*\[1\]"
    ):
        compiled_graph.set_param("w", np.array([1, 1 << 40]))
    np.testing.assert_array_equal(compiled_graph.params()["w"], [1, 2])
    assert compiled_graph.run({"x": np.array([3, 4])})[0].tolist() == [4, 6]


HALF_PRECISION_TIES = [1 + 2.0**-11, 1 + 2.0**-11 + 2.0**-40, 1 + 2.0**-11 - 2.0**-40]


@pytest.mark.parametrize("target_dtype", ["f32", "f16"])
def test_cast_doubles_are_rounded_once(target_dtype: str) -> None:
    """Doubles are rounded once, also when cast to f16 through f32."""
    x = np.array(
        [0.1, -1e300, np.nan, -np.inf, 1 / 3, 1e-320, -6e-8, *HALF_PRECISION_TIES]
    )
    g = Graph()
    x_input = g.input("x", x.shape, "f64")
    g.set_outputs([g.cast(g.flip(g.neg(x_input), 0), target_dtype)])
    if DType(target_dtype) not in pool.engine("vulkan").target.dtypes:
        pytest.skip("the device has no f16 support")
    got = compile_graph(g).run({"x": x})[0]
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(got, (-x[::-1]).astype(got.dtype))


def test_doubles_exact_in_f32_are_compared_and_selected() -> None:
    """Arithmetic on doubles is refused with its node; a value that would be rounded,
    with its position.
    """
    g = Graph("doubles")
    x = g.input("x", (3,), "f64")
    g.set_outputs([g.where(g.gt(x, 0.5), x, g.floor(x)), g.max(x)])
    got = compile_graph(g).run({"x": np.array([0.75, -0.25, 2.0**100])})
    assert got[0].dtype == np.float64
    assert [array.tolist() for array in got] == [[0.75, -1, 2.0**100], 2.0**100]
    for inexact_value in (0.1, 1e-320, 1e300):
        with pytest.raises(
            DTypeError, match=r"at position \[1\]; the device has no f64"
        ):
            compile_graph(g).run({"x": np.array([0.75, inexact_value, 1])})
    g.set_outputs([x + 1.0])
    with pytest.raises(
        DTypeError, match=r" = add\(.*has no f64 support; f32 would round"
    ):
        compile_graph(g)


def test_cpu_takes_over_after_automatic_choice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Values that do not fit move the run and later ones to the CPU; a strict run
    raises.
    """
    candidates = (
        Candidate(Device.VULKAN, Device.VULKAN.label),
        Candidate(Device.CPU, Device.CPU.label),
    )

    async def choose_vulkan(job: GraphJob, request: Any) -> DevicePick[GraphJob]:
        return DevicePick(
            job, candidates[0], Decision("device Vulkan", "for a test", {}, candidates)
        )

    monkeypatch.setattr("rlxweb.runtime.session.choose_place_async", choose_vulkan)
    g = Graph("sum")
    g.set_outputs([g.input("x", (2,), "i64") + g.param("w", (2,), "i64")])
    large_values: Array = np.array([1 << 40, 1])
    for method in ("run", "set_param"):
        compiled_graph = Session().compile(g)
        compiled_graph.set_param("w", np.array([1, 2]))
        assert compiled_graph.run({"x": np.array([1, 1])})[0].tolist() == [2, 3]
        assert compiled_graph.device is Device.VULKAN
        with pytest.raises(DTypeError):
            compiled_graph.run({"x": large_values}, strict=True)
        if method == "set_param":
            compiled_graph.set_param("w", large_values)
        else:
            assert compiled_graph.run({"x": large_values})[0].tolist() == [
                (1 << 40) + 1,
                3,
            ]
        assert compiled_graph.device is Device.CPU
        assert [a.device for a in compiled_graph.attempts] == [
            Device.VULKAN,
            Device.CPU,
        ]
        assert "cannot represent some of the given values" in compiled_graph.explain()
        assert compiled_graph.run({"x": np.array([1, 1])})[0].tolist()[1] in (2, 3)
