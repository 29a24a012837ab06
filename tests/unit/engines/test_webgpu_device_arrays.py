"""Device arrays on a fake port: the commands it receives, and the buffers left behind.

Read from the fake's record; what every engine owes is in
`test_device_array_contract.py`.
"""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rlxweb import Graph
from rlxweb.core.errors import (
    DeviceLost,
    IndexRefused,
    LimitExceeded,
    OutOfMemory,
    SessionClosed,
)
from rlxweb.core.limits import Limits
from rlxweb.engines.webgpu import input_bindings
from rlxweb.engines.webgpu.engine import MAX_UNAWAITED_RUNS, WebGpuEngine
from rlxweb.engines.webgpu.input_bindings import (
    BoundCommands,
    BufferPlacement,
    InputBindings,
)
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.gpu.port_protocol import BufferClear, BufferCopy, BufferRange, Dispatch
from tests.fake_gpu_port import FakePort, InjectedFailure
from tests.gpu_ports import open_fake_port, prepare_graph
from tests.run_in_threads import run_concurrently
from tests.unit.engines.test_device_array_contract import (
    X,
    fake_webgpu_engine,
    prepare_with_ones,
    run_keeping,
)


def fake_port(engine: Any) -> FakePort:
    port: FakePort = engine.port
    return port


def test_kept_result_is_not_read_back() -> None:
    """A kept result is not read back: one submission, and a copy on the device."""
    engine = fake_webgpu_engine()
    program, port = prepare_with_ones(engine), fake_port(engine)
    array = run_blocking(engine.put(X))
    port.calls.clear()
    (other_array,) = run_keeping(engine, program, array)
    assert port.calls == ["buffer", "submit"]
    (submitted,) = port.submissions[-1:]
    input_copy, *work, output_copy = submitted
    assert isinstance(input_copy, BufferCopy)
    assert (input_copy.source, input_copy.target) == (
        array.placement.span,
        program.input_handles["x"],
    )
    assert isinstance(output_copy, BufferCopy)
    assert output_copy.target == other_array.placement.span.handle
    assert program.readback_handle not in [
        getattr(command, "target", 0) for command in submitted
    ]
    assert len(work) == 1


def count_input_copies(engine: Any, program: Any) -> int:
    """Count the copies of the last submission that go into a buffer of an input."""
    input_buffers = set(program.input_handles.values())
    last = fake_port(engine).submissions[-1]
    return sum(
        isinstance(command, BufferCopy) and command.target in input_buffers
        for command in last
    )


def test_array_is_bound_from_its_second_run() -> None:
    """An array's first run copies it, the second builds commands that bind it, the
    third neither.
    """
    engine = fake_webgpu_engine()
    program, port = prepare_with_ones(engine), fake_port(engine)
    array, other = run_blocking(engine.put(X)), run_blocking(engine.put(-X))
    copy_counts, bind_groups, command_lists = [], [], set()
    for _ in range(5):
        (back,) = run_keeping(engine, program, array, False)
        np.testing.assert_array_equal(back, X * 2 + 1)
        copy_counts.append(count_input_copies(engine, program))
        bind_groups.append(port.created_counts["bind_groups"])
        command_lists.add(
            id(
                program.bindings.bind({program.input_handles["x"]: array.placement})[
                    1
                ].commands
            )
        )
    assert copy_counts == [1, 0, 0, 0, 0]
    assert bind_groups == [1, 2, 2, 2, 2]
    assert len(command_lists) == 1
    np.testing.assert_array_equal(
        run_keeping(engine, program, other, False)[0], 1 - X * 2
    )
    np.testing.assert_array_equal(
        run_blocking(engine.run(program, {"x": 3 * X}))[0], X * 6 + 1
    )
    np.testing.assert_array_equal(run_blocking(engine.get(array)), X)


def test_large_array_is_bound_at_first_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large array is bound at its first run; commands of a few sets are cached."""
    monkeypatch.setattr(input_bindings, "MIN_BIND_BYTES", X.nbytes)
    engine = fake_webgpu_engine()
    program, x, want = prepare_with_ones(engine), run_blocking(engine.put(X)), X
    for _ in range(3 * input_bindings.MAX_CACHED_BINDINGS):
        (x,), want = run_keeping(engine, program, x), want * 2 + 1
        assert count_input_copies(engine, program) == 0
    assert len(program.bindings._cache) == input_bindings.MAX_CACHED_BINDINGS
    np.testing.assert_array_equal(run_blocking(engine.get(x)), want)
    gc.collect()
    run_blocking(engine.run(program, {"x": X}))
    owned = len(program.owned_handles) + len(program.params.owned_handles)
    assert len(fake_port(engine).live_handles) == owned + len(program.pipelines) + 1


def test_an_array_that_cannot_be_bound_is_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An array is copied where its offset is unaligned or a kernel reads past its
    end.
    """
    monkeypatch.setattr(input_bindings, "MIN_BIND_BYTES", 0)
    engine = fake_webgpu_engine()
    program = prepare_with_ones(engine)
    whole = run_blocking(engine.put(np.tile(X, (20, 1))))
    for offset, copies in ((0, 0), (3, 1), (64, 0), (228, 1)):
        part = whole.part(offset, (4, 3))
        (back,) = run_keeping(engine, program, part, False)
        want = np.tile(X, (20, 1)).reshape(-1)[offset : offset + 12].reshape(4, 3)
        np.testing.assert_array_equal(back, want * 2 + 1)
        assert count_input_copies(engine, program) == copies, offset
    bindings = InputBindings(BoundCommands((), (BufferRange(1, 0, 16),)), [1], 4)
    assert bindings.bind({1: BufferPlacement(BufferRange(7, 4, 4), 12)})[0] == [
        BufferCopy(BufferRange(7, 4, 4), 1)
    ]
    assert bindings.bind({1: BufferPlacement(BufferRange(7, 4, 4), 16)})[0] == []


def test_every_command_on_an_input_uses_the_array() -> None:
    """Kernels and copies that read the input, at any offset, read the array instead."""
    work = (
        BufferClear(BufferRange(9, 0, 4)),
        BufferCopy(BufferRange(1, 4, 8), 5, 12),
        BufferCopy(BufferRange(2, 0, 8), 5),
        Dispatch(3, (BufferRange(1, 0, 16), BufferRange(5, 0, 16)), (1, 2, 3), "it"),
    )
    bindings = InputBindings(
        BoundCommands(work, (BufferRange(1, 8, 4), None, BufferRange(5, 0, 4))),
        [1, 4],
        16,
    )
    copies, bound = bindings.bind(
        {1: BufferPlacement(BufferRange(7, 32, 1 << 20), 1 << 20)}
    )
    assert copies == []
    assert bound.commands == (
        work[0],
        BufferCopy(BufferRange(7, 36, 8), 5, 12),
        work[2],
        Dispatch(3, (BufferRange(7, 32, 16), BufferRange(5, 0, 16)), (1, 2, 3), "it"),
    )
    assert bound.output_ranges == (BufferRange(7, 40, 4), None, BufferRange(5, 0, 4))
    # What no command reads is neither bound nor copied, and so is nothing at all.
    assert bindings.bind({4: BufferPlacement(BufferRange(8, 0, 16), 16)}) == (
        [],
        bindings.default,
    )
    empty_array = {1: BufferPlacement(BufferRange(8, 0, 0), 16)}
    assert (
        bindings.bind(empty_array)
        == bindings.bind(empty_array)
        == ([], bindings.default)
    )


def test_bound_array_can_be_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound array may be closed, and is then refused, or dropped, and is then
    freed.
    """
    monkeypatch.setattr(input_bindings, "MIN_BIND_BYTES", 0)
    engine = fake_webgpu_engine()
    program, port = prepare_with_ones(engine), fake_port(engine)
    before = len(port.live_handles)
    first, second = run_blocking(engine.put(X)), run_blocking(engine.put(X))
    for array in (first, second):
        run_keeping(engine, program, array, False)
    first.free()
    with pytest.raises(SessionClosed, match="the array was closed"):
        run_keeping(engine, program, first, False)
    del array, second
    gc.collect()
    np.testing.assert_array_equal(
        run_blocking(engine.run(program, {"x": X}))[0], X * 2 + 1
    )
    assert len(port.live_handles) == before


def test_array_may_be_two_inputs_and_an_output(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An array may be bound as two inputs; an output of it is a copy."""
    monkeypatch.setattr(input_bindings, "MIN_BIND_BYTES", 0)
    graph = Graph("same")
    x, y = graph.input("x", (4, 3)), graph.input("y", (4, 3))
    graph.set_outputs([x, graph.reshape(y, (12,)), x * y])
    engine = WebGpuEngine(open_fake_port())
    program, array = prepare_graph(engine, graph), run_blocking(engine.put(X))
    outs = run_blocking(
        engine.run(program, {"x": array, "y": array}, [True, False, True])
    )
    assert count_input_copies(engine, program) == 0
    array.free()
    np.testing.assert_array_equal(run_blocking(engine.get(outs[0])), X)
    np.testing.assert_array_equal(outs[1], X.reshape(-1))


def test_only_requested_outputs_are_read_back() -> None:
    """One of three outputs is read back, and only its bytes."""
    graph = Graph("three")
    x = graph.input("x", (4, 3))
    graph.set_outputs([x * 2.0, x, graph.reshape(x, (12,))[:4]])
    engine = WebGpuEngine(open_fake_port())
    program, port = prepare_graph(engine, graph), fake_port(engine)
    read_sizes: list[int] = []
    original_read = port.read

    async def count_read(handle: int, offset: int, nbytes: int) -> memoryview:
        read_sizes.append(nbytes)
        return await original_read(handle, offset, nbytes)

    port.read = count_read  # type: ignore[method-assign]
    _, host_output, _ = run_keeping(engine, program, X, True, False, True)
    np.testing.assert_array_equal(host_output, X)
    assert read_sizes == [48]


def test_unawaited_runs_do_not_pile_up() -> None:
    """Runs without readback are awaited now and then, without transferring data."""
    engine = fake_webgpu_engine()
    program, port = prepare_with_ones(engine), fake_port(engine)
    array = run_blocking(engine.put(0 * X))
    run_blocking(program.set_param("w", 0 * X))
    port.calls.clear()
    for _ in range(2 * MAX_UNAWAITED_RUNS):
        (array,) = run_keeping(engine, program, array)
    assert port.calls.count("read") == 2
    assert port.calls.count("submit") == 2 * MAX_UNAWAITED_RUNS


def test_buffer_is_freed_with_its_last_reference() -> None:
    """A buffer is freed by `free` or at the next call; a part keeps the whole alive."""
    engine = fake_webgpu_engine()
    program, port = prepare_with_ones(engine), fake_port(engine)
    before = len(port.live_handles)
    array = run_blocking(engine.put(X))
    part = array.part(0, (3,))
    assert len(port.live_handles) == before + 1
    del array
    gc.collect()
    (other_array,) = run_keeping(engine, program, X)
    assert len(port.live_handles) == before + 2
    np.testing.assert_array_equal(run_blocking(engine.get(part)), X[0])
    part.free()  # a part frees nothing
    assert len(port.live_handles) == before + 2
    other_array.free()
    other_array.free()
    assert len(port.live_handles) == before + 1
    del part
    gc.collect()
    run_keeping(engine, program, X)
    gc.collect()
    run_blocking(engine.put(X))
    gc.collect()
    run_blocking(engine.run(program, {"x": X}))
    assert len(port.live_handles) == before
    with pytest.raises(SessionClosed, match="the array was closed"):
        run_blocking(engine.get(other_array))


def test_results_outlive_their_program() -> None:
    """Results have their own buffers, which outlive the program."""
    engine = fake_webgpu_engine()
    program = prepare_with_ones(engine)
    (out,) = run_keeping(engine, program, X)
    run_blocking(program.close())
    np.testing.assert_array_equal(run_blocking(engine.get(out)), X * 2 + 1)
    with pytest.raises(SessionClosed, match="compiled graph was closed"):
        run_keeping(engine, program, X)
    with pytest.raises(SessionClosed, match="compiled graph was closed"):
        run_blocking(program.set_param("w", out))


def test_bad_index_is_refused_for_kept_results() -> None:
    """Only the error flag is read; a result that may be wrong is not returned."""
    graph = Graph("pick")
    table, indices = graph.input("x", (4, 3)), graph.input("at", (2,), "i32")
    graph.set_outputs([graph.gather(table, indices)])
    engine = WebGpuEngine(open_fake_port())
    program, port = prepare_graph(engine, graph), fake_port(engine)
    feeds = {"x": X, "at": np.zeros(2, np.int32)}
    port.calls.clear()
    run_blocking(engine.run(program, feeds, [True]))
    assert port.calls.count("read") == 1
    flag = program.fault_handle
    original_submit = port.submit

    def submit_and_flag(*command_lists: Any) -> None:
        commands = [
            command for command_list in command_lists for command in command_list
        ]
        original_submit(*[[command] for command in commands[:-1]])
        port.write(flag, 0, memoryview(b"\1\0\0\0"))
        original_submit(commands[-1:])

    port.submit = submit_and_flag  # type: ignore[method-assign]
    with pytest.raises(IndexRefused, match="out of range for its table"):
        run_blocking(engine.run(program, feeds, [True]))


def test_arrays_are_lost_with_their_device() -> None:
    """The error says that the array is lost and what to do; freeing raises nothing."""
    engine = fake_webgpu_engine(InjectedFailure("submit", "lost"))
    program, array = prepare_with_ones(engine), run_blocking(engine.put(X))
    with pytest.raises(DeviceLost, match="asked to go"):
        run_keeping(engine, program, array)
    for verb in (
        lambda: run_blocking(engine.get(array)),
        lambda: array.part(0, (3,)),
    ):
        with pytest.raises(DeviceLost, match="lost with its device, fake") as caught:
            verb()
        assert caught.value.hint == "upload the array again"
    array.free()
    run_blocking(engine.close())
    array.free()
    with pytest.raises(DeviceLost):
        run_blocking(engine.put(X))


def test_put_and_run_raise_out_of_memory() -> None:
    """OutOfMemory leaves earlier device arrays as they were."""
    engine = fake_webgpu_engine()
    program, array = prepare_with_ones(engine), run_blocking(engine.put(X))
    port, before = fake_port(engine), len(engine.port.live_handles)
    for verb in (
        lambda: engine.put(X),
        lambda: engine.run(program, {"x": array}, [True]),
    ):
        port._pending.append(InjectedFailure(len(port.calls) + 1, "out-of-memory"))
        with pytest.raises(OutOfMemory):
            run_blocking(verb())
    assert len(port.live_handles) == before
    np.testing.assert_array_equal(run_blocking(engine.get(array)), X)


def test_an_array_beyond_the_largest_buffer_is_refused() -> None:
    """An array that is too large is refused with both numbers, before the device is
    called.
    """
    engine = WebGpuEngine(
        open_fake_port(limits=replace(Limits(), max_buffer_size=1 << 10))
    )
    with pytest.raises(LimitExceeded, match=r"it needs 4,000 bytes.*allows 1,024"):
        run_blocking(engine.put(np.zeros(1000, np.float32)))


def test_stricter_limits_are_the_same_device() -> None:
    """An engine with stricter limits can use the arrays of the original one."""
    engine = fake_webgpu_engine()
    limited = engine.with_limits(Limits())
    array = run_blocking(engine.put(X))
    assert array.is_usable_by(limited)
    np.testing.assert_array_equal(run_blocking(limited.get(array)), X)


def test_freeing_an_array_in_use_never_crashes() -> None:
    """One thread closes the array that others run with: they get a result or an
    error.
    """
    engine = fake_webgpu_engine()
    program, array = prepare_with_ones(engine), run_blocking(engine.put(X))

    def work() -> None:
        try:
            (out,) = run_keeping(engine, program, array)
            np.testing.assert_array_equal(run_blocking(engine.get(out)), X * 2 + 1)
        except SessionClosed:
            pass
        array.free()

    run_concurrently([work] * 6)
    with pytest.raises(SessionClosed, match="was closed"):
        run_blocking(engine.get(array))
