"""Fake port: real bytes, recorded commands, and failures on request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rlxweb.core.errors import (
    AdapterMissing,
    DeviceError,
    DeviceLost,
    GpuTimeout,
    LimitExceeded,
    ShaderRejected,
    UsageError,
)
from rlxweb.core.limits import tiny_limits
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.gpu.port_protocol import (
    AdapterRequest,
    BufferClear,
    BufferCopy,
    BufferRange,
    Dispatch,
)
from tests.fake_gpu_port import (
    FAILING_VERBS,
    FAILURE_KINDS,
    FailureKind,
    FakePort,
    InjectedFailure,
)
from tests.gpu_ports import (
    ERROR_TYPES,
    check_closed_port,
    check_not_open,
    open_fake_port,
)

SOURCE = "@compute @workgroup_size(1) fn main() {}"


def emulate_add_shader(views: Any, constants: Any, grid: Any) -> None:
    """Emulate a shader that adds its constant K."""
    x, y = (np.frombuffer(view, np.float32) for view in views)
    np.add(x, constants["K"], out=y)


def test_bytes_come_back_as_written_and_padded_with_zeros() -> None:
    port = open_fake_port()
    handle = port.create_buffer(6, "storage")
    port.write(handle, 0, memoryview(b"\xff" * 8))
    port.write(handle, 4, memoryview(b"ab"))
    assert bytes(run_blocking(port.read(handle, 0, 8))) == b"\xff\xff\xff\xffab\0\0"
    assert bytes(run_blocking(port.read(handle, 3, 2))) == b"\xffa"
    assert run_blocking(port.read(handle, 8, 0)).nbytes == 0


def test_a_read_returns_a_copy() -> None:
    port = open_fake_port()
    handle = port.create_buffer(4, "storage")
    before = run_blocking(port.read(handle, 0, 4))
    port.write(handle, 0, memoryview(b"1234"))
    assert bytes(before) == bytes(4)


def test_copies_clears_and_kernels_run_in_order() -> None:
    port = open_fake_port(kernels={SOURCE: emulate_add_shader})
    x, y, back = (port.create_buffer(16, u) for u in ("storage", "storage", "readback"))
    port.write(x, 0, memoryview(np.arange(4, dtype=np.float32)))
    kernel = run_blocking(port.create_pipeline(SOURCE, ("read", "write"), {"K": 2.0}))
    commands = (
        Dispatch(
            kernel, (BufferRange(x, 0, 16), BufferRange(y, 0, 16)), (1, 1, 1), "add"
        ),
        BufferClear(BufferRange(y, 0, 4)),
        BufferCopy(BufferRange(y, 0, 12), back, 4),
    )
    port.submit(commands)
    result = np.frombuffer(run_blocking(port.read(back, 0, 16)), np.float32)
    assert result.tolist() == [0.0, 0.0, 3.0, 4.0]
    assert port.submissions == [commands]
    assert port.pipelines[kernel].constants == {"K": 2.0}
    assert port.calls[:2] == ["open", "buffer"]
    assert port.calls[-2:] == ["submit", "read"]


def test_a_kernel_cannot_write_its_read_only_binding() -> None:
    def bad(views: Any, *_: object) -> None:
        views[0][0] = 1

    port = open_fake_port(kernels={SOURCE: bad})
    x, y = port.create_buffer(4, "storage"), port.create_buffer(4, "storage")
    kernel = run_blocking(port.create_pipeline(SOURCE, ("read", "write"), {}))
    with pytest.raises(TypeError, match="read-only"):
        port.submit(
            [Dispatch(kernel, (BufferRange(x, 0, 4), BufferRange(y, 0, 4)), (1, 1, 1))]
        )


def test_nothing_runs_when_one_command_is_refused() -> None:
    port = open_fake_port()
    x = port.create_buffer(4, "storage")
    port.write(x, 0, memoryview(b"1234"))
    with pytest.raises(DeviceError):
        port.submit(
            [BufferClear(BufferRange(x, 0, 4)), BufferClear(BufferRange(x, 4, 4))]
        )
    assert bytes(run_blocking(port.read(x, 0, 4))) == b"1234"
    assert port.submissions == []


def test_bind_groups_are_reused_until_a_buffer_is_destroyed() -> None:
    port = open_fake_port()
    x, y = port.create_buffer(4, "storage"), port.create_buffer(4, "storage")
    kernel = run_blocking(port.create_pipeline(SOURCE, ("read", "write"), {}))
    dispatch = Dispatch(kernel, (BufferRange(x, 0, 4), BufferRange(y, 0, 4)), (1, 1, 1))
    for _ in range(3):
        port.submit([dispatch, dispatch])
    assert port.created_counts == {"buffers": 2, "pipelines": 1, "bind_groups": 1}
    port.destroy(y)
    other = port.create_buffer(4, "storage")
    port.submit(
        [Dispatch(kernel, (BufferRange(x, 0, 4), BufferRange(other, 0, 4)), (1, 1, 1))]
    )
    assert port.created_counts["bind_groups"] == 2


def test_limits_are_the_stricter_of_both_sides() -> None:
    port = FakePort(limits=tiny_limits())
    assert (
        run_blocking(port.open(AdapterRequest())).limits.max_compute_workgroup_size_x
        == 32
    )
    port = FakePort()
    assert (
        run_blocking(port.open(AdapterRequest(limits=tiny_limits()))).limits
        == tiny_limits()
    )
    with pytest.raises(LimitExceeded):
        run_blocking(port.create_pipeline(SOURCE, ("read",) * 4, {}))


def test_features_are_those_requested_and_available() -> None:
    port = FakePort(features=("shader-f16", "subgroup"))
    facts = run_blocking(
        port.open(AdapterRequest(features=("shader-f16", "timestamp-query")))
    )
    assert facts.features == {"shader-f16"}
    assert port.facts is facts


def test_an_unavailable_backend_is_refused() -> None:
    with pytest.raises(AdapterMissing, match="vulkan") as caught:
        run_blocking(FakePort().open(AdapterRequest(backends=("vulkan",))))
    assert caught.value.candidates == (("fake", "its backend is fake"),)
    assert (
        run_blocking(FakePort().open(AdapterRequest(backends=("vulkan", "fake")))).name
        == "fake"
    )


def test_a_shader_without_main_is_refused_with_its_source() -> None:
    with pytest.raises(ShaderRejected, match="main") as caught:
        run_blocking(open_fake_port().create_pipeline("fn other() {}", (), {}))
    assert caught.value.source == "fn other() {}"


def test_handles_live_until_destroyed() -> None:
    port = open_fake_port()
    x = port.create_buffer(4, "storage")
    kernel = run_blocking(port.create_pipeline(SOURCE, ("write",), {}))
    assert port.live_handles == {x, kernel}
    port.destroy(x)
    with pytest.raises(DeviceError, match="no buffer or pipeline with this handle"):
        port.destroy(x)
    with pytest.raises(DeviceError, match="does not exist"):
        port.write(x, 0, memoryview(b"1234"))
    port.destroy(kernel)
    assert port.live_handles == set()


def test_every_method_is_refused_before_open_and_after_close() -> None:
    check_not_open(FakePort())
    check_closed_port(open_fake_port())


CALLS: dict[str, Callable[[FakePort], object]] = {
    "open": lambda port: run_blocking(port.open(AdapterRequest())),
    "buffer": lambda port: port.create_buffer(4, "storage"),
    "write": lambda port: port.write(min(port.live_handles), 0, memoryview(b"1234")),
    "pipeline": lambda port: run_blocking(port.create_pipeline(SOURCE, ("write",), {})),
    "submit": lambda port: port.submit([]),
    "read": lambda port: run_blocking(port.read(min(port.live_handles), 0, 4)),
}


@pytest.mark.parametrize(
    ("kind", "method"),
    [(k, v) for k in ERROR_TYPES if k != "lost-unseen" for v in FAILING_VERBS[k]],
    ids=str,
)
def test_a_failure_is_injected_once_with_its_error(
    kind: FailureKind, method: str
) -> None:
    """A failure is injected once; after a loss only destroy and close still work."""
    port = FakePort([InjectedFailure(method, kind)])
    if method != "open":
        CALLS["open"](port)
    if method in ("write", "read"):
        CALLS["buffer"](port)
    with pytest.raises(ERROR_TYPES[kind]) as caught:
        CALLS[method](port)
    assert type(caught.value) is ERROR_TYPES[kind]
    if ERROR_TYPES[kind] in (DeviceLost, GpuTimeout):
        assert port.lost
        for handle in list(port.live_handles):
            port.destroy(handle)
        with pytest.raises(DeviceLost):
            port.create_buffer(4, "storage")
    else:
        CALLS[method](port)
    run_blocking(port.close())
    assert port.live_handles == set()


def test_every_kind_of_failure_is_tested_here() -> None:
    assert set(ERROR_TYPES) == set(FAILURE_KINDS) == set(FAILING_VERBS)


def test_an_unseen_loss_is_reported_at_the_next_read() -> None:
    port = open_fake_port(InjectedFailure("submit", "lost-unseen"))
    handle = port.create_buffer(4, "storage")
    port.submit([])
    port.write(handle, 0, memoryview(b"1234"))
    with pytest.raises(DeviceLost, match="unseen"):
        run_blocking(port.read(handle, 0, 4))


def test_a_failure_waits_for_a_matching_call() -> None:
    """Call 2 creates a buffer, so the shader failure is injected into the next
    pipeline.
    """
    port = open_fake_port(InjectedFailure(2, "shader-refused"))
    port.create_buffer(4, "storage")
    with pytest.raises(ShaderRejected):
        run_blocking(port.create_pipeline(SOURCE, (), {}))


def test_a_timeout_takes_only_simulated_time() -> None:
    port = open_fake_port(InjectedFailure("read", "timeout"), deadline_s=500.0)
    handle = port.create_buffer(4, "storage")
    with pytest.raises(GpuTimeout, match="deadline 500 s"):
        run_blocking(port.read(handle, 0, 4))
    assert port.clock_s == 500.0


def test_invalid_failure_plans_are_refused() -> None:
    with pytest.raises(UsageError, match="unknown failure 'fire'"):
        FakePort([InjectedFailure(1, "fire")])  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="cannot strike 'submit'"):
        FakePort([InjectedFailure("submit", "out-of-memory")])
