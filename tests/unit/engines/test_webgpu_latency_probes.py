"""Latency probes on the fake port: submissions, transferred bytes, and freed
buffers.
"""

from __future__ import annotations

import pytest

from rlxweb.core.errors import DeviceError, OutOfMemory
from rlxweb.engines.webgpu.engine import WebGpuEngine
from rlxweb.engines.webgpu.latency_probes import TRIVIAL_SHADER, WebGpuLatencyProbes
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.gpu.port_protocol import BufferCopy, Dispatch
from tests.fake_gpu_port import FakePort, InjectedFailure
from tests.gpu_ports import open_fake_port


def open_probes(*fail: InjectedFailure) -> tuple[FakePort, WebGpuLatencyProbes]:
    port = open_fake_port(*fail)
    probes = run_blocking(WebGpuEngine(port).latency_probes())
    port.calls.clear()
    return port, probes


def test_wait_probe_is_one_small_copy_and_its_read() -> None:
    port, probes = open_probes()
    run_blocking(probes.submit_and_wait())
    assert port.calls == ["submit", "read"]
    (command,) = port.submissions[-1]
    assert isinstance(command, BufferCopy)
    assert command.source.nbytes == 16


@pytest.mark.parametrize("count", [1, 64])
def test_dispatches_go_in_one_submission(count: int) -> None:
    """Dispatches of a nearly empty kernel go in one submission, with one wait."""
    port, probes = open_probes()
    run_blocking(probes.dispatch_and_wait(count))
    assert port.calls == ["submit", "read"]
    *kernels, last = port.submissions[-1]
    assert isinstance(last, BufferCopy)
    assert len(kernels) == count
    for dispatch in kernels:
        assert isinstance(dispatch, Dispatch)
        assert (dispatch.grid, port.pipelines[dispatch.pipeline].source) == (
            (1, 1, 1),
            TRIVIAL_SHADER,
        )


def test_transfers_move_their_bytes_each_time() -> None:
    """Transfers move their bytes each time; buffers are created once, before anything
    is timed.
    """
    port, probes = open_probes()
    upload, read_back = probes.upload_probe(4096), probes.readback_probe(8192)
    assert port.calls == ["buffer"] * 3
    for _ in range(2):
        port.calls.clear()
        run_blocking(upload())
        assert port.calls == ["write", "submit", "read"]
        port.calls.clear()
        run_blocking(read_back())
        assert port.calls == ["submit", "read"]
        (copy_command,) = port.submissions[-1]
        assert isinstance(copy_command, BufferCopy)
        assert copy_command.source.nbytes == 8192


def test_close_frees_everything() -> None:
    """Closing, once or twice, frees even the buffers of a transfer that ran out of
    memory.
    """
    port, probes = open_probes()
    probes.upload_probe(64)
    port._pending.append(InjectedFailure(len(port.calls) + 2, "out-of-memory"))
    with pytest.raises(OutOfMemory):
        probes.readback_probe(64)
    assert port.live_handles
    probes.close()
    probes.close()
    assert not port.live_handles


@pytest.mark.parametrize(
    "fail",
    [
        InjectedFailure("pipeline", "shader-refused"),
        InjectedFailure(3, "out-of-memory"),
        InjectedFailure("pipeline", "lost"),
    ],
    ids=str,
)
def test_failed_probes_leave_nothing(fail: InjectedFailure) -> None:
    """Probes that cannot be created leave nothing; on a lost device everything is
    lost.
    """
    port = open_fake_port(fail)
    with pytest.raises(DeviceError):
        run_blocking(WebGpuLatencyProbes.create(port))
    assert bool(port.live_handles) == bool(port.lost)
