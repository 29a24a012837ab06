"""Arrays that stay on a port: what the port is told, and what is left behind.

Read from the fake's record; what every engine owes is in `test_residents.py`.
"""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rlxweb import Graph
from rlxweb.backends import webgpu_bindings
from rlxweb.backends.webgpu import UNWAITED, WebGpuBackend
from rlxweb.backends.webgpu_bindings import Bindings, BoundWork, Lying
from rlxweb.errors import (
    DeviceLost,
    IndexRefused,
    LimitExceeded,
    OutOfMemory,
    SessionClosed,
)
from rlxweb.gpu.drive import drive
from rlxweb.gpu.port import Clear, Copy, Dispatch, Range
from rlxweb.limits import Limits
from tests.fake_port import Failure, FakePort
from tests.ports import fake, prepared
from tests.threads import at_once
from tests.unit.backends.test_residents import X, kept, on_a_fake, with_ones


def port_of(engine: Any) -> FakePort:
    port: FakePort = engine.port
    return port


def test_what_stays_is_not_read_back() -> None:
    """A result that stays is not read: one submission, and a copy on the device."""
    engine = on_a_fake()
    program, port = with_ones(engine), port_of(engine)
    one = drive(engine.put(X))
    port.calls.clear()
    (two,) = kept(engine, program, one)
    assert port.calls == ["buffer", "submit"]
    (submitted,) = port.submissions[-1:]
    into, *work, out = submitted
    assert isinstance(into, Copy)
    assert (into.source, into.target) == (one.lying.span, program.inputs["x"])
    assert isinstance(out, Copy)
    assert out.target == two.lying.span.handle
    assert program.readback not in [getattr(c, "target", 0) for c in submitted]
    assert len(work) == 1


def copies_in(engine: Any, program: Any) -> int:
    """Copies of the last submission that go into a buffer of an input."""
    into = set(program.inputs.values())
    last = port_of(engine).submissions[-1]
    return sum(isinstance(c, Copy) and c.target in into for c in last)


def test_an_array_is_bound_from_its_second_run_on() -> None:
    """An array's first run makes a copy, the second commands, and the third nothing."""
    engine = on_a_fake()
    program, port = with_ones(engine), port_of(engine)
    one, other = drive(engine.put(X)), drive(engine.put(-X))
    copied, groups, lists = [], [], set()
    for _ in range(5):
        (back,) = kept(engine, program, one, False)
        np.testing.assert_array_equal(back, X * 2 + 1)
        copied.append(copies_in(engine, program))
        groups.append(port.created["bind_groups"])
        lists.add(id(program.bindings.over({program.inputs["x"]: one.lying})[1].work))
    assert copied == [1, 0, 0, 0, 0]
    assert groups == [1, 2, 2, 2, 2]
    assert len(lists) == 1
    np.testing.assert_array_equal(kept(engine, program, other, False)[0], 1 - X * 2)
    np.testing.assert_array_equal(
        drive(engine.run(program, {"x": 3 * X}))[0], X * 6 + 1
    )
    np.testing.assert_array_equal(drive(engine.get(one)), X)


def test_a_large_array_is_bound_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large array is bound at its first run; commands of a few sets are kept."""
    monkeypatch.setattr(webgpu_bindings, "WORTH_BINDING", X.nbytes)
    engine = on_a_fake()
    program, x, want = with_ones(engine), drive(engine.put(X)), X
    for _ in range(3 * webgpu_bindings.KEPT):
        (x,), want = kept(engine, program, x), want * 2 + 1
        assert copies_in(engine, program) == 0
    assert len(program.bindings._kept) == webgpu_bindings.KEPT
    np.testing.assert_array_equal(drive(engine.get(x)), want)
    gc.collect()
    drive(engine.run(program, {"x": X}))
    owned = len(program.owned) + len(program.params.owned)
    assert len(port_of(engine).live) == owned + len(program.pipelines) + 1


def test_an_array_that_cannot_be_bound_is_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An array is copied where its offset is unaligned or a kernel reaches too far."""
    monkeypatch.setattr(webgpu_bindings, "WORTH_BINDING", 0)
    engine = on_a_fake()
    program = with_ones(engine)
    whole = drive(engine.put(np.tile(X, (20, 1))))
    for first, copies in ((0, 0), (3, 1), (64, 0), (228, 1)):
        part = drive(engine.part(whole, first, (4, 3)))
        (back,) = kept(engine, program, part, False)
        want = np.tile(X, (20, 1)).reshape(-1)[first : first + 12].reshape(4, 3)
        np.testing.assert_array_equal(back, want * 2 + 1)
        assert copies_in(engine, program) == copies, first
    far = Bindings(BoundWork((), (Range(1, 0, 16),)), [1], 4)
    assert far.over({1: Lying(Range(7, 4, 4), 12)})[0] == [Copy(Range(7, 4, 4), 1)]
    assert far.over({1: Lying(Range(7, 4, 4), 16)})[0] == []


def test_every_command_over_an_input_is_over_the_array() -> None:
    """Reads of the input by kernels and copies, at any offset, are over the array."""
    work = (
        Clear(Range(9, 0, 4)),
        Copy(Range(1, 4, 8), 5, 12),
        Copy(Range(2, 0, 8), 5),
        Dispatch(3, (Range(1, 0, 16), Range(5, 0, 16)), (1, 2, 3), "it"),
    )
    one = Bindings(BoundWork(work, (Range(1, 8, 4), None, Range(5, 0, 4))), [1, 4], 16)
    copies, bound = one.over({1: Lying(Range(7, 32, 1 << 20), 1 << 20)})
    assert copies == []
    assert bound.work == (
        work[0],
        Copy(Range(7, 36, 8), 5, 12),
        work[2],
        Dispatch(3, (Range(7, 32, 16), Range(5, 0, 16)), (1, 2, 3), "it"),
    )
    assert bound.sources == (Range(7, 40, 4), None, Range(5, 0, 4))
    # What no command reads is neither bound nor copied, and so is nothing at all.
    assert one.over({4: Lying(Range(8, 0, 16), 16)}) == ([], one.own)
    empty = {1: Lying(Range(8, 0, 0), 16)}
    assert one.over(empty) == one.over(empty) == ([], one.own)


def test_an_array_that_was_bound_can_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound array may be closed, and is refused, or dropped, and is freed."""
    monkeypatch.setattr(webgpu_bindings, "WORTH_BINDING", 0)
    engine = on_a_fake()
    program, port = with_ones(engine), port_of(engine)
    before = len(port.live)
    one, two = drive(engine.put(X)), drive(engine.put(X))
    for array in (one, two):
        kept(engine, program, array, False)
    drive(engine.free(one))
    with pytest.raises(SessionClosed, match="the array was closed"):
        kept(engine, program, one, False)
    del array, two
    gc.collect()
    np.testing.assert_array_equal(drive(engine.run(program, {"x": X}))[0], X * 2 + 1)
    assert len(port.live) == before


def test_an_input_may_be_two_inputs_and_an_output(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An array may be bound as two inputs; what is handed out is a copy of it."""
    monkeypatch.setattr(webgpu_bindings, "WORTH_BINDING", 0)
    graph = Graph("same")
    x, y = graph.input("x", (4, 3)), graph.input("y", (4, 3))
    graph.set_outputs([x, graph.reshape(y, (12,)), x * y])
    engine = WebGpuBackend(fake())
    program, one = prepared(engine, graph), drive(engine.put(X))
    outs = drive(
        engine.run_resident(program, {"x": one, "y": one}, [True, False, True])
    )
    assert copies_in(engine, program) == 0
    drive(engine.free(one))
    np.testing.assert_array_equal(drive(engine.get(outs[0])), X)
    np.testing.assert_array_equal(outs[1], X.reshape(-1))


def test_only_what_was_asked_for_is_read_back() -> None:
    """Of three outputs one comes back, and only its bytes are read."""
    graph = Graph("three")
    x = graph.input("x", (4, 3))
    graph.set_outputs([x * 2.0, x, graph.reshape(x, (12,))[:4]])
    engine = WebGpuBackend(fake())
    program, port = prepared(engine, graph), port_of(engine)
    read: list[int] = []
    inner = port.read

    async def counted(handle: int, offset: int, nbytes: int) -> memoryview:
        read.append(nbytes)
        return await inner(handle, offset, nbytes)

    port.read = counted  # type: ignore[method-assign]
    _, mine, _ = kept(engine, program, X, True, False, True)
    np.testing.assert_array_equal(mine, X)
    assert read == [48]


def test_runs_that_nobody_waits_for_do_not_pile_up() -> None:
    """Runs that nobody waits for are waited for now and then, without a byte."""
    engine = on_a_fake()
    program, port = with_ones(engine), port_of(engine)
    one = drive(engine.put(0 * X))
    drive(engine.set_param(program, "w", 0 * X))
    port.calls.clear()
    for _ in range(2 * UNWAITED):
        (one,) = kept(engine, program, one)
    assert port.calls.count("read") == 2
    assert port.calls.count("submit") == 2 * UNWAITED


def test_its_buffer_goes_with_the_last_reference() -> None:
    """A buffer is freed by `free` or at the next call; a part keeps the whole."""
    engine = on_a_fake()
    program, port = with_ones(engine), port_of(engine)
    before = len(port.live)
    one = drive(engine.put(X))
    part = drive(engine.part(one, 0, (3,)))
    assert len(port.live) == before + 1
    del one
    gc.collect()
    (two,) = kept(engine, program, X)
    assert len(port.live) == before + 2
    np.testing.assert_array_equal(drive(engine.get(part)), X[0])
    drive(engine.free(part))  # a part frees nothing
    assert len(port.live) == before + 2
    drive(engine.free(two))
    drive(engine.free(two))
    assert len(port.live) == before + 1
    del part
    gc.collect()
    kept(engine, program, X)
    gc.collect()
    drive(engine.put(X))
    gc.collect()
    drive(engine.run(program, {"x": X}))
    assert len(port.live) == before
    with pytest.raises(SessionClosed, match="the array was closed"):
        drive(engine.get(two))


def test_a_program_may_go_before_its_results() -> None:
    """Results have buffers of their own, which outlive the program."""
    engine = on_a_fake()
    program = with_ones(engine)
    (out,) = kept(engine, program, X)
    drive(engine.release(program))
    np.testing.assert_array_equal(drive(engine.get(out)), X * 2 + 1)
    with pytest.raises(SessionClosed, match="compiled graph was closed"):
        kept(engine, program, X)
    with pytest.raises(SessionClosed, match="compiled graph was closed"):
        drive(engine.set_param_resident(program, "w", out))


def test_a_refused_index_is_still_refused() -> None:
    """The flag alone is read; a result that may be wrong is not handed over."""
    graph = Graph("pick")
    table, at = graph.input("x", (4, 3)), graph.input("at", (2,), "i32")
    graph.set_outputs([graph.gather(table, at)])
    engine = WebGpuBackend(fake())
    program, port = prepared(engine, graph), port_of(engine)
    feeds = {"x": X, "at": np.zeros(2, np.int32)}
    port.calls.clear()
    drive(engine.run_resident(program, feeds, [True]))
    assert port.calls.count("read") == 1
    flag = program.fault
    inner = port.submit

    def flagged(*lists: Any) -> None:
        commands = [c for one in lists for c in one]
        inner(*[[c] for c in commands[:-1]])
        port.write(flag, 0, memoryview(b"\1\0\0\0"))
        inner(commands[-1:])

    port.submit = flagged  # type: ignore[method-assign]
    with pytest.raises(IndexRefused, match="outside its table"):
        drive(engine.run_resident(program, feeds, [True]))


def test_a_lost_device_takes_its_arrays_with_it() -> None:
    """The error says what is gone and what to do; freeing is quiet."""
    engine = on_a_fake(Failure("submit", "lost"))
    program, one = with_ones(engine), drive(engine.put(X))
    with pytest.raises(DeviceLost, match="asked to go"):
        kept(engine, program, one)
    for verb in (lambda: engine.get(one), lambda: engine.part(one, 0, (3,))):
        with pytest.raises(DeviceLost, match="array was lost with fake") as found:
            drive(verb())
        assert found.value.hint == "put it there again"
    drive(engine.free(one))
    drive(engine.close())
    drive(engine.free(one))
    with pytest.raises(DeviceLost):
        drive(engine.put(X))


def test_no_memory_is_said_by_put_and_by_run() -> None:
    """OutOfMemory leaves what was on the device before as it was."""
    engine = on_a_fake()
    program, one = with_ones(engine), drive(engine.put(X))
    port, before = port_of(engine), len(engine.port.live)
    for verb in (
        lambda: engine.put(X),
        lambda: engine.run_resident(program, {"x": one}, [True]),
    ):
        port._pending.append(Failure(len(port.calls) + 1, "out-of-memory"))
        with pytest.raises(OutOfMemory):
            drive(verb())
    assert len(port.live) == before
    np.testing.assert_array_equal(drive(engine.get(one)), X)


def test_an_array_beyond_the_largest_buffer_is_refused() -> None:
    """An array too large is refused with both numbers before the device is asked."""
    engine = WebGpuBackend(fake(limits=replace(Limits(), max_buffer_size=1 << 10)))
    with pytest.raises(LimitExceeded, match=r"it needs 4,000 bytes.*allows 1,024"):
        drive(engine.put(np.zeros(1000, np.float32)))


def test_stricter_limits_are_the_same_device() -> None:
    """What lies there can be used by a session that pretends to have less."""
    engine = on_a_fake()
    less = engine.limited(Limits())
    one = drive(engine.put(X))
    assert less.holds(one)
    np.testing.assert_array_equal(drive(less.get(one)), X)


def test_a_freed_array_is_no_crash() -> None:
    """One thread closes what others run with: a result or an error, nothing else."""
    engine = on_a_fake()
    program, one = with_ones(engine), drive(engine.put(X))

    def work() -> None:
        try:
            (out,) = kept(engine, program, one)
            np.testing.assert_array_equal(drive(engine.get(out)), X * 2 + 1)
        except SessionClosed:
            pass
        drive(engine.free(one))

    at_once([work] * 6)
    with pytest.raises(SessionClosed, match="was closed"):
        drive(engine.get(one))
