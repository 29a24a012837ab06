"""int64, uint64 and float64 on a device of 32 bits: given, computed and had back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlxweb import Graph, Session
from rlxweb.backends.pool import pool
from rlxweb.choose.chooser import Pick
from rlxweb.choose.graphs import GraphJob
from rlxweb.decision.candidate import Candidate
from rlxweb.decision.decision import Decision
from rlxweb.device import Device
from rlxweb.errors import DTypeError
from rlxweb.ir.dtype import DType
from rlxweb.runtime.compiled import CompiledGraph
from rlxweb.runtime.device_array import put
from tests.agreement import Array

pytestmark = pytest.mark.requires_wgpu

TABLE = np.arange(50, dtype=np.float32).reshape(50, 1)
IDS = np.array([[3, -1, 49], [0, 7, -50]])


def embedding() -> Graph:
    """Rows by index, negative ones from the end; twice the indices; the largest."""
    g = Graph("embedding")
    ids = g.input("ids", (2, 3), "i64")
    rows = g.gather(g.constant(TABLE), g.where(g.lt(ids, 0), ids + 50, ids))
    g.set_outputs([rows, ids + ids, g.max(ids, (1,))])
    return g


def compiled(graph: Graph, device: str = "vulkan") -> CompiledGraph:
    return Session(device).compile(graph)


def test_indices_are_given_and_had_back_as_int64() -> None:
    """Indices go in and come back as int64; how they are held is told."""
    made = compiled(embedding())
    for got, want in zip(
        made.run({"ids": IDS}),
        compiled(embedding(), "cpu").run({"ids": IDS}),
        strict=True,
    ):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)
    said = made.explain()
    assert "i64 held as i32: all values fit" in said
    assert "'ids' -1073741823 to 1073741823" in said


@pytest.mark.parametrize("far", [1 << 30, -(1 << 30), 1 << 40, -(1 << 63)])
def test_a_value_too_large_is_told_with_its_place(far: int) -> None:
    """A value too large is told before anything runs, with the limit and its cause."""
    made, ids = compiled(embedding()), IDS.copy()
    ids[1, 2] = far
    with pytest.raises(DTypeError) as raised:
        made.run({"ids": ids})
    for words in (
        f"input 'ids' of 'embedding': it is {far} at position [1, 2]",
        "takes -1073741823 to 1073741823, so that ",
        " = add(",
        "device='cpu'",
    ):
        assert words in str(raised.value)
    np.testing.assert_array_equal(made.run({"ids": IDS})[1], IDS * 2)
    with pytest.raises(DTypeError, match="position"):
        list(made.map([{"ids": IDS}, {"ids": ids}, {"ids": IDS}]))


def test_values_alone_take_all_that_fits() -> None:
    """Comparing, choosing, turning and moving take all values that fit 32 bits."""
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
        got, want = (compiled(g, d).run(feeds) for d in ("vulkan", "cpu"))
        for one, other in zip(got, want, strict=True):
            np.testing.assert_array_equal(one, other)


def test_what_is_not_known_to_fit_is_refused_with_the_node() -> None:
    """A value that is not known to fit is refused with its node and its reach."""
    g = Graph()
    x = g.input("x", (1000,), "i64")
    g.set_outputs([g.sum(x * x * x)])
    with pytest.raises(DTypeError) as raised:
        compiled(g)
    said = str(raised.value)
    assert " = sum(" in said
    assert (
        "its values are not known to fit i32; they may lie from -16581375000 to" in said
    )


def test_arrays_on_the_device_keep_their_type() -> None:
    """Arrays on a device keep int64; bounds that a next graph cannot take are told."""
    made = compiled(embedding())
    _, twice, most = made.run({"ids": IDS}, keep=True)
    assert (twice.dtype, most.dtype) == (np.int64, np.int64)
    np.testing.assert_array_equal(twice.numpy(), IDS * 2)
    g = Graph("next")
    g.set_outputs([g.minimum(g.input("ids", (2, 3), "i64"), 40)])
    following = compiled(g)
    np.testing.assert_array_equal(
        following.run({"ids": twice})[0], np.minimum(IDS * 2, 40)
    )
    with pytest.raises(DTypeError, match=r"may hold -2147483646 to .*read it back"):
        made.run({"ids": twice})
    there = put(IDS, "vulkan")
    assert there.dtype == np.int64
    np.testing.assert_array_equal(made.run({"ids": there})[1], IDS * 2)
    np.testing.assert_array_equal(there.numpy(), IDS)
    with pytest.raises(
        DTypeError, match=r"put an array on .*: it is 4294967296 at .* \[1\]"
    ):
        put(np.array([1, 1 << 32]), "vulkan")


def test_a_param_that_does_not_fit_leaves_the_one_before() -> None:
    g = Graph("offsets")
    g.set_outputs([g.input("x", (2,), "i64") + g.param("w", (2,), "i64")])
    made = compiled(g)
    made.set_param("w", np.array([1, 2]))
    with pytest.raises(
        DTypeError, match=r"param 'w' .* it is 1099511627776 at .*\[1\]"
    ):
        made.set_param("w", np.array([1, 1 << 40]))
    np.testing.assert_array_equal(made.params()["w"], [1, 2])
    assert made.run({"x": np.array([3, 4])})[0].tolist() == [4, 6]


HALFWAY = [1 + 2.0**-11, 1 + 2.0**-11 + 2.0**-40, 1 + 2.0**-11 - 2.0**-40]


@pytest.mark.parametrize("to", ["f32", "f16"])
def test_doubles_that_are_cast_are_rounded_once(to: str) -> None:
    """Doubles are rounded once, also into halves by way of f32."""
    x = np.array([0.1, -1e300, np.nan, -np.inf, 1 / 3, 1e-320, -6e-8, *HALFWAY])
    g = Graph()
    at = g.input("x", x.shape, "f64")
    g.set_outputs([g.cast(g.flip(g.neg(at), 0), to)])
    if DType(to) not in pool.backend("vulkan").target.dtypes:
        pytest.skip("the device has no f16")
    got = compiled(g).run({"x": x})[0]
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(got, (-x[::-1]).astype(got.dtype))


def test_doubles_are_compared_and_chosen_where_f32_holds_them() -> None:
    """Arithmetic is refused with its node; a value that is rounded, with its place."""
    g = Graph("doubles")
    x = g.input("x", (3,), "f64")
    g.set_outputs([g.where(g.gt(x, 0.5), x, g.floor(x)), g.max(x)])
    got = compiled(g).run({"x": np.array([0.75, -0.25, 2.0**100])})
    assert got[0].dtype == np.float64
    assert [one.tolist() for one in got] == [[0.75, -1, 2.0**100], 2.0**100]
    for odd in (0.1, 1e-320, 1e300):
        with pytest.raises(
            DTypeError, match=r"at position \[1\]; the device has no f64"
        ):
            compiled(g).run({"x": np.array([0.75, odd, 1])})
    g.set_outputs([x + 1.0])
    with pytest.raises(DTypeError, match=r" = add\(.*has no f64; f32 would round"):
        compiled(g)


def test_the_cpu_takes_over_where_the_device_was_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A run that does not fit is done there, and the next; a strict one raises."""
    ways = (
        Candidate(Device.VULKAN, Device.VULKAN.label),
        Candidate(Device.CPU, Device.CPU.label),
    )

    async def chosen(job: GraphJob, asked: Any) -> Pick[GraphJob]:
        return Pick(job, ways[0], Decision("device Vulkan", "for a test", {}, ways))

    monkeypatch.setattr("rlxweb.runtime.session.choose_async", chosen)
    g = Graph("sum")
    g.set_outputs([g.input("x", (2,), "i64") + g.param("w", (2,), "i64")])
    far: Array = np.array([1 << 40, 1])
    for way in ("run", "set_param"):
        made = Session().compile(g)
        made.set_param("w", np.array([1, 2]))
        assert made.run({"x": np.array([1, 1])})[0].tolist() == [2, 3]
        assert made.device is Device.VULKAN
        with pytest.raises(DTypeError):
            made.run({"x": far}, strict=True)
        if way == "set_param":
            made.set_param("w", far)
        else:
            assert made.run({"x": far})[0].tolist() == [(1 << 40) + 1, 3]
        assert made.device is Device.CPU
        assert [a.device for a in made.attempts] == [Device.VULKAN, Device.CPU]
        assert "cannot hold values that were given" in made.explain()
        assert made.run({"x": np.array([1, 1])})[0].tolist()[1] in (2, 3)
