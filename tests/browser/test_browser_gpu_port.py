"""Check the GPU port over navigator.gpu: leaks, device losses, refusals, limits,
deadlines.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.browser.conftest import PageMonitor, Tab, open_python_tab

pytestmark = pytest.mark.requires_browser


def test_many_runs_leave_nothing_behind(worker_tab: Tab, is_full_tier: bool) -> None:
    """Many runs leave no object, buffer or command list; closing frees all."""
    result = worker_tab.run(
        f"await tab_functions.leaks({1000 if is_full_tier else 300})"
    )
    assert result["right"]
    assert result["last"] == result["first"]
    # Less than none: the collector took what earlier tests had left.
    assert result["kept"] <= 0


def test_lost_device_is_reported_and_reopened(tab: Tab) -> None:
    """The run is repeated on the reopened device, and the attempts report the loss."""
    result = tab.run(
        """
feeds, w = tab_functions.layer_feeds()
runner = rlx.GraphDevices(tab_functions.layer())
runner.set_param("w", w)
device, outs = runner.run_try(["webgpu", "cpu"], feeds)
pool.engine("webgpu").port._js.lose()
device2, outs2 = runner.run_try(["webgpu", "cpu"], feeds)
said = [str(a) for a in runner.attempts]
json.dumps([device.label, device2.label, said, float(abs(outs[0] - outs2[0]).max())])
"""
    )
    first, second, messages, error = result
    assert first == "webgpu"
    assert second == "webgpu"
    assert "lost" in messages[0]
    assert error < 1e-5


def test_a_loss_while_a_run_waits_is_raised(tab: Tab) -> None:
    """A loss while a strict run waits is an error; a new device opens at once.

    Under load the read fails before the browser tells of the loss. Here it never does:
    a port that is closing does not listen.
    """
    message, is_old = tab.run(
        """
compiled, feeds = await tab_functions.compiled_layer()
await compiled.run_async(feeds)
task = asyncio.ensure_future(compiled.run_async(feeds, strict=True))
await asyncio.sleep(0)
port = pool.engine("webgpu").port
port._js.closing = True
port._js.lose()
(outcome,) = await asyncio.gather(task, return_exceptions=True)
await rlx.open_async("webgpu")
is_old = pool.engine("webgpu").port is port
json.dumps([f"{type(outcome).__name__}: {outcome}", is_old])
"""
    )
    assert message.startswith("DeviceLost: "), message
    assert "open the device again" in message
    assert not is_old


def test_a_refused_shader_gives_line_and_source(tab: Tab) -> None:
    """A shader error has the browser compiler's message and the generated source."""
    result = tab.run(
        """
from rlxweb.core.errors import ShaderRejected
await rlx.open_async("webgpu")
port = pool.engine("webgpu").port
source = "@compute @workgroup_size(1) fn main() {\\n  nonsense;\\n}"
try:
    await port.create_pipeline(source, (), {})
    said = ["compiled"]
except ShaderRejected as error:
    said = [str(error), error.source]
json.dumps(said)
"""
    )
    assert "line 2" in result[0]
    assert "expected '='" in result[0]
    assert result[1].startswith("@compute")


def test_scope_error_is_raised_by_the_affected_read(tab: Tab) -> None:
    """An error in a scope reaches the read that it spoils, and no other."""
    result = tab.run(
        """
from rlxweb.gpu.port_protocol import BufferCopy, BufferRange
from rlxweb.core.errors import DeviceError
await rlx.open_async("webgpu")
port = pool.engine("webgpu").port
a, b, other = (port.create_buffer(64, "storage") for _ in range(3))
port._js.ready(10**6, json.dumps([["c", a, 0, b, 0, 4096]]))
port._js.submit(10**6)
good = bytes(await port.read(other, 0, 64)) == bytes(64)
try:
    await port.read(b, 0, 64)
    said = "read"
except DeviceError as error:
    said = str(error)
port._js.forget(10**6)
again = bytes(await port.read(b, 0, 64)) == bytes(64)
for handle in (a, b, other):
    port.destroy(handle)
json.dumps([good, said, again])
"""
    )
    is_good_before, message, is_good_again = result
    assert is_good_before
    assert "validation" in message
    assert is_good_again


def test_reads_of_any_offset_and_size_are_exact(tab: Tab) -> None:
    """Reads of any offset and size are exact, in one piece and in many.

    They go through the staging pool and from mappable buffers.
    """
    wrong_reads = tab.run(
        """
from rlxweb.gpu.port_protocol import BufferCopy, BufferRange
await rlx.open_async("webgpu")
port = pool.engine("webgpu").port
size = (32 << 20) + 4096
data = np.arange(size, dtype=np.uint32).view(np.uint8)[:size].copy()
a, back = port.create_buffer(size, "storage"), port.create_buffer(4096, "readback")
port.write(a, 0, data.data)
port.submit([BufferCopy(BufferRange(a, 4096, 4096), back)])
wrong = []
odd = [(0, 0), (0, 4), (5, 3), (4, 1001), (7, 4090), (0, size), (4094, size - 5000)]
for offset, nbytes in odd:
    right = bytes(data[offset : offset + nbytes])
    if bytes(await port.read(a, offset, nbytes)) != right:
        wrong.append(["storage", offset, nbytes])
for offset, nbytes in [(0, 4096), (4, 8), (9, 3), (12, 4084)]:
    right = bytes(data[4096 + offset : 4096 + offset + nbytes])
    if bytes(await port.read(back, offset, nbytes)) != right:
        wrong.append(["readback", offset, nbytes])
port.write(a, 8, memoryview(b"abc"))
if bytes(await port.read(a, 8, 4)) != b"abc" + bytes(1):
    wrong.append("a tail that is no word")
port.destroy(a); port.destroy(back)
json.dumps(wrong)
"""
    )
    assert wrong_reads == []


def test_unresponsive_device_times_out(tab: Tab) -> None:
    """A port past its deadline counts as lost, and a new one opens."""
    result = tab.run(
        """
await rlx.open_async("webgpu")
port = pool.engine("webgpu").port
handle = port.create_buffer(64, "storage")
port.deadline_s = 0.0
try:
    for _ in range(50):
        await port.read(handle, 0, 64)
    said = "read"
except Exception as error:
    said = f"{type(error).__name__}: {error}"
row = await rlx.open_async("webgpu")
json.dumps([said, row.available, pool.engine("webgpu").port is port])
"""
    )
    message, available, is_old = result
    assert message.startswith("GpuTimeout: ")
    assert "did not answer within 0 s" in message
    assert available
    assert not is_old


def test_a_tab_opens_its_gpu_once(tab: Tab) -> None:
    """A tab opens its GPU once by either name; the more specific one is listed."""
    result = tab.run(
        """
from rlxweb.select.device_and_adapter import available_places
await rlx.open_async("gpu")
await rlx.open_async("webgpu")
same = pool.engine("gpu") is pool.engine("webgpu")
json.dumps([same, [p.label for p in available_places()]])
"""
    )
    assert result == [True, ["cpu", "webgpu"]]


def test_handles_are_checked_before_reaching_javascript(tab: Tab) -> None:
    """A wrong handle raises the same error as on every other port."""
    messages = tab.run(
        """
from rlxweb.gpu.port_protocol import BufferCopy, BufferRange
await rlx.open_async("webgpu")
port = pool.engine("webgpu").port
json.dumps([
    caught(lambda: port.destroy(987654)),
    caught(lambda: port.write(987654, 0, memoryview(b"1234"))),
    caught(lambda: port.submit([BufferCopy(BufferRange(987654, 0, 4), 987655)])),
    caught(lambda: port.create_buffer(1 << 45, "storage")),
])
"""
    )
    assert "no buffer or pipeline with this handle exists" in messages[0]
    assert "buffer 987654 does not exist" in messages[1]
    assert "buffer 987654 does not exist" in messages[2]
    assert messages[3].startswith("LimitExceeded: ")
    assert "max_buffer_size is" in messages[3]


@pytest.fixture
def without_gpu(browser: Browser, watch: PageMonitor) -> Iterator[Tab]:
    """Yield Python on a page of a browser that has no WebGPU."""
    tab = open_python_tab(browser, watch, "page", "delete Navigator.prototype.gpu")
    yield tab
    tab.page.context.close()


def test_without_webgpu_numpy_works_and_the_report_says_why(without_gpu: Tab) -> None:
    row, label = without_gpu.run(
        """
row = await rlx.open_async("webgpu")
p = rlx.welch_peaks(np.ones((2, 512), np.float32), k=1)
json.dumps([row.as_json(), p.device.label])
"""
    )
    assert not row["available"]
    assert "navigator.gpu" in row["blocker"]
    assert "choose device 'cpu'" in row["blocker"]
    assert label == "cpu"
