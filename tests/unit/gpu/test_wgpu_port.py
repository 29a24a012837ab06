"""Port over wgpu-py, on each of the three software adapters by name."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from rlxweb.core.errors import (
    AdapterMissing,
    DeviceError,
    LimitExceeded,
    ShaderRejected,
)
from rlxweb.core.limits import Limits, tiny_limits
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.gpu.port_protocol import (
    AdapterRequest,
    BufferClear,
    BufferCopy,
    BufferRange,
    Command,
    Dispatch,
)
from rlxweb.gpu.wgpu_libraries import list_adapters
from rlxweb.gpu.wgpu_port import WgpuPort
from tests.cli_runners import run_python
from tests.gpu_ports import check_closed_port, check_not_open, open_native_port
from tests.run_in_threads import run_concurrently, submitting_threads

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
N_VALUES = 1000
NBYTES = N_VALUES * 4


def test_the_requested_adapter_is_opened(
    adapter: AdapterRequest, port: WgpuPort
) -> None:
    facts = port.facts
    assert facts.backend in adapter.backends
    assert adapter.name in facts.name
    assert facts.software
    assert facts.limits.max_compute_workgroups_per_dimension == 65_535
    assert facts.features <= set(AdapterRequest().features)
    assert any(listed_facts.name == facts.name for listed_facts in list_adapters())


@pytest.fixture(scope="module")
def port(adapter: AdapterRequest) -> Iterator[WgpuPort]:
    """Open one port per adapter; each test restores its state."""
    with open_native_port(adapter) as open_port:
        assert open_port.created_counts == {
            "buffers": 0,
            "pipelines": 0,
            "bind_groups": 0,
        }
        yield open_port


@pytest.fixture
def clean(port: WgpuPort) -> Iterator[WgpuPort]:
    """Yield the port and afterwards destroy everything a test created."""
    before = set(port.live_handles)
    yield port
    for handle in sorted(port.live_handles - before):
        port.destroy(handle)


def upload(port: WgpuPort, values: np.ndarray) -> BufferRange:
    """Return a storage buffer that holds the values."""
    span = BufferRange(port.create_buffer(values.nbytes, "storage"), 0, values.nbytes)
    port.write(span.handle, 0, memoryview(values))
    return span


def read_array(port: WgpuPort, span: BufferRange, dtype: str = "u4") -> np.ndarray:
    """Return the contents of a buffer range as an array."""
    got = run_blocking(port.read(span.handle, span.offset, span.nbytes))
    return np.frombuffer(got, dtype)


def upload_uniform(port: WgpuPort, count: int, step: float) -> BufferRange:
    """Return a uniform buffer with the shader's `count` and `step`."""
    record = np.zeros(1, np.dtype([("count", "<u4"), ("step", "<f4")]))
    record[0] = (count, step)
    handle = port.create_buffer(8, "uniform")
    port.write(handle, 0, memoryview(record.tobytes()))
    return BufferRange(handle, 0, 8)


def addition_workload(port: WgpuPort) -> tuple[tuple[Command, ...], int]:
    """Return commands that add 2.75 to 0, 1, 2, … and their readback buffer."""
    x = upload(port, np.arange(N_VALUES, dtype=np.float32))
    y = BufferRange(port.create_buffer(NBYTES, "storage"), 0, NBYTES)
    readback = port.create_buffer(NBYTES, "readback")
    kernel = run_blocking(
        port.create_pipeline(
            ADD, ("read", "write", "uniform"), {"WIDTH": 32, "EXTRA": 0.25}
        )
    )
    spans = (x, y, upload_uniform(port, N_VALUES, 2.5))
    dispatch = Dispatch(kernel, spans, ((N_VALUES + 31) // 32, 1, 1), "add")
    return (dispatch, BufferCopy(y, readback)), readback


def test_bytes_come_back_at_any_offset_and_length(clean: WgpuPort) -> None:
    values = np.frombuffer(np.random.default_rng(1).bytes(4096), np.uint8)
    storage = clean.create_buffer(4096, "storage")
    back = clean.create_buffer(4096, "readback")
    clean.write(storage, 0, memoryview(values))
    clean.submit([BufferCopy(BufferRange(storage, 0, 4096), back)])
    for handle in (storage, back):
        for start, length in ((0, 4096), (0, 1), (1, 1), (5, 11), (12, 8), (4095, 1)):
            got = run_blocking(clean.read(handle, start, length))
            assert bytes(got) == values[start : start + length].tobytes()


def test_empty_reads_and_buffers_are_allowed(clean: WgpuPort) -> None:
    for usage in ("storage", "readback"):
        assert run_blocking(clean.read(clean.create_buffer(0, usage), 0, 0)).nbytes == 0


def test_a_short_tail_is_padded_with_zeros(clean: WgpuPort) -> None:
    handle = clean.create_buffer(8, "storage")
    clean.write(handle, 0, memoryview(b"\xff" * 8))
    clean.write(handle, 4, memoryview(b"abc"))
    assert bytes(run_blocking(clean.read(handle, 0, 8))) == b"\xff\xff\xff\xffabc\0"


def test_a_written_readback_buffer_is_read_without_a_submission(
    clean: WgpuPort,
) -> None:
    handle = clean.create_buffer(8, "readback")
    clean.write(handle, 0, memoryview(b"12345678"))
    assert bytes(run_blocking(clean.read(handle, 0, 8))) == b"12345678"


def test_a_read_longer_than_the_staging_buffer_is_complete(
    clean: WgpuPort, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlxweb.gpu.readback._STAGE_BYTES", 4096)
    values = np.arange(5000, dtype=np.uint32)
    span = upload(clean, values)
    got = np.frombuffer(run_blocking(clean.read(span.handle, 2, 19_990)), np.uint8)
    np.testing.assert_array_equal(got, values.view(np.uint8)[2:19_992])


def test_constants_and_uniforms_reach_the_shader(
    clean: WgpuPort,
) -> None:
    commands, back = addition_workload(clean)
    clean.submit(commands)
    got = read_array(clean, BufferRange(back, 0, NBYTES), "f4")
    np.testing.assert_array_equal(got, np.arange(N_VALUES, dtype=np.float32) + 2.75)


def test_an_override_may_size_a_workgroup_array(clean: WgpuPort) -> None:
    span = upload(clean, np.arange(16, dtype=np.uint32))
    kernel = run_blocking(clean.create_pipeline(REVERSE, ("write",), {"N": 16}))
    clean.submit([Dispatch(kernel, (span,), (1, 1, 1))])
    assert read_array(clean, span).tolist() == list(range(15, -1, -1))


def test_dispatches_copies_and_clears_keep_their_order(clean: WgpuPort) -> None:
    """Neighbouring dispatches share a pass, and each sees the writes of the one
    before.
    """
    span = upload(clean, np.arange(4, dtype=np.uint32))
    other = BufferRange(clean.create_buffer(16, "storage"), 0, 16)
    kernel = run_blocking(clean.create_pipeline(REVERSE, ("write",), {"N": 4}))
    reverse_dispatch = Dispatch(kernel, (span,), (1, 1, 1))
    clean.submit(
        [
            *[reverse_dispatch] * 3,
            BufferCopy(span, other.handle),
            BufferClear(BufferRange(span.handle, 4, 8)),
            reverse_dispatch,
        ]
    )
    assert [read_array(clean, s).tolist() for s in (span, other)] == [
        [0, 0, 0, 3],
        [3, 2, 1, 0],
    ]


@pytest.mark.parametrize("max_commands", [1, 2, 5])
def test_a_long_command_list_is_submitted_in_chunks(
    max_commands: int, clean: WgpuPort, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks of a long list keep its order and its writes, and none is lost."""
    monkeypatch.setattr(WgpuPort, "_max_commands_per_buffer", max_commands)
    queued: list[object] = []
    queue = clean._queue_commands

    def record_and_queue(encoded: object, handles: frozenset[int]) -> None:
        queued.append(encoded)
        queue(encoded, handles)

    monkeypatch.setattr(clean, "_queue_commands", record_and_queue)
    span = BufferRange(clean.create_buffer(16, "storage"), 0, 16)
    other = BufferRange(clean.create_buffer(16, "storage"), 0, 16)
    kernel = run_blocking(clean.create_pipeline(REVERSE, ("write",), {"N": 4}))
    reverse_dispatch = Dispatch(kernel, (span,), (1, 1, 1))
    for values in ([0, 1, 2, 3], [4, 5, 6, 7]):
        clean.write(span.handle, 0, memoryview(np.array(values, np.uint32)))
        before = len(queued)
        clean.submit(
            [reverse_dispatch] * 3, [BufferCopy(span, other.handle), reverse_dispatch]
        )
        assert len(queued) - before == {1: 5, 2: 2, 5: 1}[max_commands]
        assert read_array(clean, other).tolist() == values[::-1]
        assert read_array(clean, span).tolist() == values
    before = len(queued)
    clean.submit([])
    assert len(queued) == before + 1


def test_a_thousand_runs_create_no_objects(clean: WgpuPort) -> None:
    commands, back = addition_workload(clean)
    clean.submit(commands)
    live, created = set(clean.live_handles), dict(clean.created_counts)
    for _ in range(1000):
        clean.submit(commands)
    for _ in range(20):
        clean.submit(list(commands))
        run_blocking(clean.read(back, 0, 4))
    got = read_array(clean, BufferRange(back, 0, NBYTES), "f4")
    assert got[-1] == N_VALUES + 1.75
    assert clean.live_handles == live
    assert clean.created_counts == created


def test_a_bind_group_is_dropped_with_its_buffer(clean: WgpuPort) -> None:
    """Handles are never reused, so a stale bind group could only be a leak."""
    kernel = run_blocking(clean.create_pipeline(REVERSE, ("write",), {}))
    before = clean.created_counts["bind_groups"]
    binder = clean._binder
    n_groups = len(binder._bind_groups)
    for _ in range(3):
        span = upload(clean, np.arange(4, dtype=np.uint32))
        commands = (Dispatch(kernel, (span,), (1, 1, 1)),)
        clean.submit(commands)
        clean.submit(commands)
        clean.destroy(span.handle)
    assert clean.created_counts["bind_groups"] == before + 3
    assert len(binder._bind_groups) == n_groups
    assert not any(
        span.handle in prepared.handles for prepared in binder._prepared.values()
    )


def test_prepared_command_lists_are_bounded(clean: WgpuPort) -> None:
    span = upload(clean, np.zeros(4, np.uint32))
    for _ in range(200):
        clean.submit((BufferClear(span),))
    assert len(clean._binder._prepared) <= 64


@pytest.mark.parametrize(
    ("source", "layout", "constants", "message"),
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
    clean: WgpuPort,
    checked: bool,
    source: str,
    layout: tuple[str, ...],
    constants: dict[str, float],
    message: str,
) -> None:
    compilation = clean.create_pipeline(source, layout, constants, needs_checks=checked)  # type: ignore[arg-type]
    with pytest.raises(ShaderRejected, match=message) as caught:
        run_blocking(compilation)
    assert caught.value.source == source
    assert caught.value.problem
    assert clean.live_handles == set()


def test_driver_validation_errors_become_our_errors(
    clean: WgpuPort,
) -> None:
    """A uniform of 8 bytes in the shader and 4 here is refused; the port stays
    usable.
    """
    commands, back = addition_workload(clean)
    dispatch = commands[0]
    assert isinstance(dispatch, Dispatch)
    small = BufferRange(clean.create_buffer(4, "uniform"), 0, 4)
    bad = Dispatch(
        dispatch.pipeline, (*dispatch.bindings[:2], small), dispatch.grid, "add"
    )
    with pytest.raises(DeviceError, match=r"submit 1 commands: GPUValidationError"):
        clean.submit([bad])
    clean.submit(commands)
    assert np.frombuffer(run_blocking(clean.read(back, 0, 4)), np.float32)[0] == 2.75


def test_commands_are_validated_before_the_driver(clean: WgpuPort) -> None:
    span = upload(clean, np.zeros(4, np.uint32))
    kernel = run_blocking(clean.create_pipeline(REVERSE, ("write",), {}))
    with pytest.raises(LimitExceeded, match=r"needs 65536.*is 65535"):
        clean.submit([Dispatch(kernel, (span,), (65_536, 1, 1))])
    with pytest.raises(LimitExceeded, match="needs 4096, max_compute_workgroup_size_x"):
        run_blocking(clean.create_pipeline(REVERSE, ("write",), {"N": 4096.0}))
    with pytest.raises(LimitExceeded, match="max_buffer_size"):
        clean.create_buffer(1 << 50, "storage")
    clean.destroy(span.handle)
    with pytest.raises(DeviceError, match="does not exist"):
        clean.write(span.handle, 0, memoryview(b"1234"))
    with pytest.raises(DeviceError, match="no buffer or pipeline with this handle"):
        clean.destroy(span.handle)


def test_threads_share_a_port(clean: WgpuPort) -> None:
    mismatches: list[object] = []

    def work(seed: int) -> None:
        values = np.full(64, seed, np.uint32)
        for _ in range(20):
            span = upload(clean, values)
            got = read_array(clean, span)
            if not np.array_equal(got, values):
                mismatches.append(got)
            clean.destroy(span.handle)

    run_concurrently([partial(work, seed) for seed in range(8)])
    assert mismatches == []


def test_shrunk_limits_bind_the_plan_and_not_the_driver(
    adapter: AdapterRequest,
) -> None:
    with open_native_port(replace(adapter, limits=tiny_limits())) as port:
        limits = port.facts.limits
        assert limits.max_compute_workgroups_per_dimension == 7
        assert limits.max_storage_buffers_per_shader_stage == 3
        assert limits.min_storage_buffer_offset_alignment == 256
        assert port._device.limits["max-storage-buffer-binding-size"] >= 128 << 20
        span = upload(port, np.zeros(2048, np.uint32))
        kernel = run_blocking(port.create_pipeline(REVERSE, ("write",), {}))
        with pytest.raises(LimitExceeded, match=r"needs 8192 bytes.*is 4096"):
            port.submit([Dispatch(kernel, (span,), (1, 1, 1))])
        with pytest.raises(LimitExceeded, match="needs 4, max_storage"):
            run_blocking(port.create_pipeline(REVERSE, ("write",) * 4, {}))


def test_default_limits_are_the_minimum_requested(adapter: AdapterRequest) -> None:
    with open_native_port(
        AdapterRequest(adapter.backends, adapter.name, (), Limits())
    ) as port:
        assert port.facts.features == frozenset()
        assert port.facts.limits.max_compute_invocations_per_workgroup == 256


def test_every_method_is_refused_before_open_and_after_close(
    adapter: AdapterRequest,
) -> None:
    """Every method is refused before open and after close; no thread stays."""
    check_not_open(WgpuPort())
    threads = submitting_threads()
    with open_native_port(adapter) as port:
        commands, _ = addition_workload(port)
        port.submit(commands)
        check_closed_port(port)
    gc.collect()
    for thread in submitting_threads() - threads:
        thread.join(5)
        assert not thread.is_alive()


def test_opening_twice_is_refused(clean: WgpuPort, adapter: AdapterRequest) -> None:
    with pytest.raises(DeviceError, match="already open"):
        run_blocking(clean.open(adapter))


@pytest.mark.requires_wgpu
def test_an_unknown_adapter_name_lists_all_candidates() -> None:
    port = WgpuPort()
    with pytest.raises(AdapterMissing, match="not contain 'no such card'") as caught:
        run_blocking(port.open(AdapterRequest(name="no such card")))
    assert len(caught.value.candidates) == len(list_adapters())
    run_blocking(port.close())


@pytest.mark.requires_wgpu
def test_listing_adapters_prints_nothing() -> None:
    """Listing adapters prints no complaint of libwayland about the desktop."""
    code = (
        "import os; os.environ.pop('XDG_RUNTIME_DIR', None);"
        "from rlxweb.gpu.wgpu_libraries import list_adapters; "
        "print(len(list_adapters()))"
    )
    result = run_python("-c", code)
    assert (result.code, result.err) == (0, "")
    assert int(result.out) >= 1
