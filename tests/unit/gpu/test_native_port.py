"""The port over wgpu-py, on each of the three software adapters by name."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from rlxweb.errors import (
    AdapterMissing,
    DeviceError,
    LimitExceeded,
    ShaderRejected,
)
from rlxweb.gpu.drive import drive
from rlxweb.gpu.libraries import adapters
from rlxweb.gpu.native import NativePort
from rlxweb.gpu.port import Clear, Command, Copy, Dispatch, Range, Want
from rlxweb.limits import Limits, shrunk
from tests.command_line import python
from tests.ports import check_closes, check_not_open, native
from tests.threads import at_once, submitting_threads

ADD = """
override WIDTH: u32 = 64;
override EXTRA: f32 = 0.0;
struct Uniforms { count: u32, step: f32 }
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(1) @binding(0) var<uniform> u: Uniforms;
@compute @workgroup_size(WIDTH)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= u.count) { return; }
    y[id.x] = x[id.x] + u.step + EXTRA;
}
"""
REVERSE = """
override N: u32 = 4;
@group(0) @binding(0) var<storage, read_write> x: array<u32>;
var<workgroup> held: array<u32, N>;
@compute @workgroup_size(N)
fn main(@builtin(local_invocation_index) at: u32) {
    held[at] = x[at];
    workgroupBarrier();
    x[at] = held[N - 1u - at];
}
"""
COUNT = 1000
SIZE = COUNT * 4


def test_the_adapter_is_the_one_that_was_asked_for(
    adapter: Want, port: NativePort
) -> None:
    facts = port.facts
    assert facts.backend in adapter.backends
    assert adapter.name in facts.name
    assert facts.software
    assert facts.limits.max_compute_workgroups_per_dimension == 65_535
    assert facts.features <= set(Want().features)
    assert any(found.name == facts.name for found in adapters())


@pytest.fixture(scope="module")
def port(adapter: Want) -> Iterator[NativePort]:
    """One open port per adapter; each test leaves it as it found it."""
    with native(adapter) as made:
        assert made.created == {"buffers": 0, "pipelines": 0, "bind_groups": 0}
        yield made


@pytest.fixture
def clean(port: NativePort) -> Iterator[NativePort]:
    """The port, with whatever a test made destroyed behind it."""
    before = set(port.live)
    yield port
    for handle in sorted(port.live - before):
        port.destroy(handle)


def put(port: NativePort, values: np.ndarray) -> Range:
    """A storage buffer that holds the values."""
    whole = Range(port.buffer(values.nbytes, "storage"), 0, values.nbytes)
    port.write(whole.handle, 0, memoryview(values))
    return whole


def numbers(port: NativePort, span: Range, dtype: str = "u4") -> np.ndarray:
    """What lies in the range."""
    got = drive(port.read(span.handle, span.offset, span.nbytes))
    return np.frombuffer(got, dtype)


def uniform(port: NativePort, count: int, step: float) -> Range:
    """A uniform buffer with the shader's `count` and `step`."""
    record = np.zeros(1, np.dtype([("count", "<u4"), ("step", "<f4")]))
    record[0] = (count, step)
    handle = port.buffer(8, "uniform")
    port.write(handle, 0, memoryview(record.tobytes()))
    return Range(handle, 0, 8)


def workload(port: NativePort) -> tuple[tuple[Command, ...], int]:
    """Commands that add 2.75 to 0, 1, 2, … and the readback buffer they end in."""
    x = put(port, np.arange(COUNT, dtype=np.float32))
    y = Range(port.buffer(SIZE, "storage"), 0, SIZE)
    back = port.buffer(SIZE, "readback")
    kernel = drive(
        port.pipeline(ADD, ("read", "write", "uniform"), {"WIDTH": 32, "EXTRA": 0.25})
    )
    spans = (x, y, uniform(port, COUNT, 2.5))
    run = Dispatch(kernel, spans, ((COUNT + 31) // 32, 1, 1), "add")
    return (run, Copy(y, back)), back


def test_bytes_come_back_at_any_offset_and_length(clean: NativePort) -> None:
    values = np.frombuffer(np.random.default_rng(1).bytes(4096), np.uint8)
    storage, back = clean.buffer(4096, "storage"), clean.buffer(4096, "readback")
    clean.write(storage, 0, memoryview(values))
    clean.submit([Copy(Range(storage, 0, 4096), back)])
    for handle in (storage, back):
        for start, length in ((0, 4096), (0, 1), (1, 1), (5, 11), (12, 8), (4095, 1)):
            got = drive(clean.read(handle, start, length))
            assert bytes(got) == values[start : start + length].tobytes()


def test_an_empty_read_and_an_empty_buffer_are_fine(clean: NativePort) -> None:
    for usage in ("storage", "readback"):
        assert drive(clean.read(clean.buffer(0, usage), 0, 0)).nbytes == 0


def test_a_short_tail_is_padded_with_zeros(clean: NativePort) -> None:
    handle = clean.buffer(8, "storage")
    clean.write(handle, 0, memoryview(b"\xff" * 8))
    clean.write(handle, 4, memoryview(b"abc"))
    assert bytes(drive(clean.read(handle, 0, 8))) == b"\xff\xff\xff\xffabc\0"


def test_a_written_readback_buffer_is_read_without_a_submission(
    clean: NativePort,
) -> None:
    handle = clean.buffer(8, "readback")
    clean.write(handle, 0, memoryview(b"12345678"))
    assert bytes(drive(clean.read(handle, 0, 8))) == b"12345678"


def test_a_read_longer_than_the_staging_buffer_is_whole(
    clean: NativePort, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlxweb.gpu.readback._STAGE_BYTES", 4096)
    values = np.arange(5000, dtype=np.uint32)
    span = put(clean, values)
    got = np.frombuffer(drive(clean.read(span.handle, 2, 19_990)), np.uint8)
    np.testing.assert_array_equal(got, values.view(np.uint8)[2:19_992])


def test_constants_and_a_uniform_in_group_one_reach_the_shader(
    clean: NativePort,
) -> None:
    commands, back = workload(clean)
    clean.submit(commands)
    got = numbers(clean, Range(back, 0, SIZE), "f4")
    np.testing.assert_array_equal(got, np.arange(COUNT, dtype=np.float32) + 2.75)


def test_an_override_may_size_a_workgroup_array(clean: NativePort) -> None:
    span = put(clean, np.arange(16, dtype=np.uint32))
    kernel = drive(clean.pipeline(REVERSE, ("write",), {"N": 16}))
    clean.submit([Dispatch(kernel, (span,), (1, 1, 1))])
    assert numbers(clean, span).tolist() == list(range(15, -1, -1))


def test_dispatches_copies_and_clears_keep_their_order(clean: NativePort) -> None:
    """Neighbouring dispatches share a pass, and each sees what the one before wrote."""
    span = put(clean, np.arange(4, dtype=np.uint32))
    other = Range(clean.buffer(16, "storage"), 0, 16)
    kernel = drive(clean.pipeline(REVERSE, ("write",), {"N": 4}))
    turn = Dispatch(kernel, (span,), (1, 1, 1))
    clean.submit(
        [*[turn] * 3, Copy(span, other.handle), Clear(Range(span.handle, 4, 8)), turn]
    )
    assert [numbers(clean, s).tolist() for s in (span, other)] == [
        [0, 0, 0, 3],
        [3, 2, 1, 0],
    ]


@pytest.mark.parametrize("most", [1, 2, 5])
def test_a_long_list_goes_out_in_pieces(
    most: int, clean: NativePort, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pieces of a long list keep its order, its writes and its whole."""
    monkeypatch.setattr(NativePort, "_at_once", most)
    queued: list[object] = []
    queue = clean._queue

    def kept(encoded: object, handles: frozenset[int]) -> None:
        queued.append(encoded)
        queue(encoded, handles)

    monkeypatch.setattr(clean, "_queue", kept)
    span = Range(clean.buffer(16, "storage"), 0, 16)
    other = Range(clean.buffer(16, "storage"), 0, 16)
    kernel = drive(clean.pipeline(REVERSE, ("write",), {"N": 4}))
    turn = Dispatch(kernel, (span,), (1, 1, 1))
    for values in ([0, 1, 2, 3], [4, 5, 6, 7]):
        clean.write(span.handle, 0, memoryview(np.array(values, np.uint32)))
        before = len(queued)
        clean.submit([turn] * 3, [Copy(span, other.handle), turn])
        assert len(queued) - before == {1: 5, 2: 2, 5: 1}[most]
        assert numbers(clean, other).tolist() == values[::-1]
        assert numbers(clean, span).tolist() == values
    before = len(queued)
    clean.submit([])
    assert len(queued) == before + 1


def test_a_thousand_runs_make_nothing_new(clean: NativePort) -> None:
    commands, back = workload(clean)
    clean.submit(commands)
    live, made = set(clean.live), dict(clean.created)
    for _ in range(1000):
        clean.submit(commands)
    for _ in range(20):
        clean.submit(list(commands))
        drive(clean.read(back, 0, 4))
    got = numbers(clean, Range(back, 0, SIZE), "f4")
    assert got[-1] == COUNT + 1.75
    assert clean.live == live
    assert clean.created == made


def test_a_bind_group_goes_with_its_buffer(clean: NativePort) -> None:
    """Handles are never used twice, so a stale group could only be a leak."""
    kernel = drive(clean.pipeline(REVERSE, ("write",), {}))
    before = clean.created["bind_groups"]
    binder = clean._binder
    held = len(binder._groups)
    for _ in range(3):
        span = put(clean, np.arange(4, dtype=np.uint32))
        commands = (Dispatch(kernel, (span,), (1, 1, 1)),)
        clean.submit(commands)
        clean.submit(commands)
        clean.destroy(span.handle)
    assert clean.created["bind_groups"] == before + 3
    assert len(binder._groups) == held
    assert not any(span.handle in kept.handles for kept in binder._ready.values())


def test_ready_command_lists_are_bounded(clean: NativePort) -> None:
    span = put(clean, np.zeros(4, np.uint32))
    for _ in range(200):
        clean.submit((Clear(span),))
    assert len(clean._binder._ready) <= 64


@pytest.mark.parametrize(
    ("source", "layout", "constants", "said"),
    [
        ("fn main( {", (), {}, "expected identifier"),
        ("@compute @workgroup_size(1) fn other() {}", (), {}, "main"),
        (REVERSE, ("write",), {"M": 4.0}, "'M'"),
        (REVERSE, ("read",), {}, "binding"),
    ],
    ids=["syntax", "no-main", "unknown-constant", "wrong-access"],
)
@pytest.mark.parametrize("checked", [True, False])
def test_a_bad_shader_is_refused_with_message_and_source(
    clean: NativePort,
    checked: bool,
    source: str,
    layout: tuple[str, ...],
    constants: dict[str, float],
    said: str,
) -> None:
    made = clean.pipeline(source, layout, constants, checked=checked)  # type: ignore[arg-type]
    with pytest.raises(ShaderRejected, match=said) as caught:
        drive(made)
    assert caught.value.source == source
    assert caught.value.problem
    assert clean.live == set()


def test_what_only_the_driver_can_refuse_is_one_of_our_errors(
    clean: NativePort,
) -> None:
    """The uniform is 8 bytes in the shader and 4 here; the port survives it."""
    commands, back = workload(clean)
    run = commands[0]
    assert isinstance(run, Dispatch)
    small = Range(clean.buffer(4, "uniform"), 0, 4)
    bad = Dispatch(run.pipeline, (*run.bindings[:2], small), run.grid, "add")
    with pytest.raises(DeviceError, match=r"submit 1 commands: GPUValidationError"):
        clean.submit([bad])
    clean.submit(commands)
    assert np.frombuffer(drive(clean.read(back, 0, 4)), np.float32)[0] == 2.75


def test_rules_are_checked_before_the_driver(clean: NativePort) -> None:
    span = put(clean, np.zeros(4, np.uint32))
    kernel = drive(clean.pipeline(REVERSE, ("write",), {}))
    with pytest.raises(LimitExceeded, match=r"needs 65536.*is 65535"):
        clean.submit([Dispatch(kernel, (span,), (65_536, 1, 1))])
    with pytest.raises(LimitExceeded, match="needs 4096, max_compute_workgroup_size_x"):
        drive(clean.pipeline(REVERSE, ("write",), {"N": 4096.0}))
    with pytest.raises(LimitExceeded, match="max_buffer_size"):
        clean.buffer(1 << 50, "storage")
    clean.destroy(span.handle)
    with pytest.raises(DeviceError, match="no live buffer"):
        clean.write(span.handle, 0, memoryview(b"1234"))
    with pytest.raises(DeviceError, match="no live buffer or pipeline"):
        clean.destroy(span.handle)


def test_threads_share_a_port(clean: NativePort) -> None:
    wrong: list[object] = []

    def work(seed: int) -> None:
        values = np.full(64, seed, np.uint32)
        for _ in range(20):
            span = put(clean, values)
            got = numbers(clean, span)
            if not np.array_equal(got, values):
                wrong.append(got)
            clean.destroy(span.handle)

    at_once([partial(work, seed) for seed in range(8)])
    assert wrong == []


def test_shrunk_limits_bind_the_plan_and_not_the_driver(adapter: Want) -> None:
    with native(replace(adapter, limits=shrunk())) as port:
        limits = port.facts.limits
        assert limits.max_compute_workgroups_per_dimension == 7
        assert limits.max_storage_buffers_per_shader_stage == 3
        assert limits.min_storage_buffer_offset_alignment == 256
        assert port._device.limits["max-storage-buffer-binding-size"] >= 128 << 20
        span = put(port, np.zeros(2048, np.uint32))
        kernel = drive(port.pipeline(REVERSE, ("write",), {}))
        with pytest.raises(LimitExceeded, match=r"needs 8192 bytes.*is 4096"):
            port.submit([Dispatch(kernel, (span,), (1, 1, 1))])
        with pytest.raises(LimitExceeded, match="needs 4, max_storage"):
            drive(port.pipeline(REVERSE, ("write",) * 4, {}))


def test_default_limits_are_the_least_that_is_asked(adapter: Want) -> None:
    with native(Want(adapter.backends, adapter.name, (), Limits())) as port:
        assert port.facts.features == frozenset()
        assert port.facts.limits.max_compute_invocations_per_workgroup == 256


def test_before_open_and_after_close_every_verb_says_so(adapter: Want) -> None:
    """Every verb is refused before opening and after closing; no thread stays."""
    check_not_open(NativePort())
    threads = submitting_threads()
    with native(adapter) as port:
        commands, _ = workload(port)
        port.submit(commands)
        check_closes(port)
    gc.collect()
    for thread in submitting_threads() - threads:
        thread.join(5)
        assert not thread.is_alive()


def test_opening_twice_is_refused(clean: NativePort, adapter: Want) -> None:
    with pytest.raises(DeviceError, match="open already"):
        drive(clean.open(adapter))


@pytest.mark.requires_wgpu
def test_a_name_nobody_has_lists_who_was_asked() -> None:
    port = NativePort()
    with pytest.raises(AdapterMissing, match="no 'no such card'") as caught:
        drive(port.open(Want(name="no such card")))
    assert len(caught.value.candidates) == len(adapters())
    drive(port.close())


@pytest.mark.requires_wgpu
def test_looking_for_adapters_prints_nothing() -> None:
    """Looking for adapters prints no complaint of libwayland's about the desktop."""
    code = (
        "import os; os.environ.pop('XDG_RUNTIME_DIR', None);"
        "from rlxweb.gpu.libraries import adapters; print(len(adapters()))"
    )
    said = python("-c", code)
    assert (said.code, said.err) == (0, "")
    assert int(said.out) >= 1
