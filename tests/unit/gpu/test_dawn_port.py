"""Port over Dawn: another library and shader compiler behind the same methods.

Runs on SwiftShader: Dawn does without Mesa's lavapipe of 22.3, which lacks what it asks
of a Vulkan driver.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.core.errors import GpuTimeout, ShaderRejected
from rlxweb.engines.registry import is_named_only
from rlxweb.engines.webgpu.engine import WebGpuEngine
from rlxweb.gpu import upload_staging
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.gpu.port_protocol import AdapterRequest, BufferRange, Dispatch
from rlxweb.gpu.wgpu_libraries import list_adapters
from rlxweb.gpu.wgpu_port import WgpuPort
from rlxweb.smoke.case import case_of, checked_ops
from rlxweb.smoke.verdict import check_case
from tests.gpu_ports import check_closed_port, check_not_open, open_native_port
from tests.suite_tiers import Sampler

pytestmark = pytest.mark.requires_dawn
SLOW_SHADER = """
@group(0) @binding(0) var<storage, read_write> x: array<u32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    var n = x[0];
    for (var k = 0u; k < 4000000u; k++) { n = n * 1664525u + x[k % 64u]; }
    x[id.x % 64u] = n;
}
"""


@pytest.fixture
def port() -> Iterator[WgpuPort]:
    """Open Dawn's best adapter."""
    dawn = WgpuPort(library="wgpudawn")
    run_blocking(dawn.open(AdapterRequest()))
    yield dawn
    run_blocking(dawn.close())


def test_dawn_is_listed_opened_and_closed_like_every_port(port: WgpuPort) -> None:
    """Dawn has adapters and a compiler of its own, and opens and closes as any port."""
    assert port.facts.name in {facts.name for facts in list_adapters("wgpudawn")}
    assert port.compiler.startswith("Tint (wgpudawn 0.")
    assert WgpuPort().compiler.startswith("naga (wgpu-native ")
    check_not_open(WgpuPort(library="wgpudawn"))
    check_closed_port(port)


def test_a_refused_shader_reports_tints_message_and_source(port: WgpuPort) -> None:
    """A refused shader's error has Tint's message and the source."""
    with pytest.raises(ShaderRejected) as caught:
        run_blocking(port.create_pipeline("fn main() { let x: nothing = 1; }", (), {}))
    assert "nothing" in str(caught.value)
    assert caught.value.source.startswith("fn main")


def test_ops_are_correct(port: WgpuPort, sampled: Sampler) -> None:
    """Ops are correct on their last sample; `rlxweb smoke` runs all.

    Tint compiles every op in the browser's check as well.
    """
    engine = WebGpuEngine(port)
    for op in sampled(checked_ops(), 60, quick=20):
        verdict = run_blocking(check_case(case_of(op, len(op.samples) - 1), engine))
        assert verdict.word in ("right", "refused"), (op.name, verdict.why)


def test_dawn_is_a_named_only_device() -> None:
    """Dawn computes like every device when named; "auto" does not use it."""
    graph = rlx.Graph("product")
    graph.set_outputs([graph.input("x", (3, 5)) @ graph.input("y", (5, 7))])
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((3, 5)), rng.standard_normal((5, 7))
    feeds = {"x": x.astype(np.float32), "y": y.astype(np.float32)}
    (got,) = rlx.Session("dawn").compile(graph).run(feeds)
    np.testing.assert_allclose(got, x @ y, rtol=1e-4, atol=1e-5)
    assert is_named_only("dawn")


def test_a_hanging_shader_ends_by_the_deadline() -> None:
    """Dawn's own wait has no deadline; ours ends it, and the port counts as lost."""
    port = WgpuPort(library="wgpudawn")
    run_blocking(port.open(AdapterRequest()))
    pipeline = run_blocking(port.create_pipeline(SLOW_SHADER, ("write",), {}))
    handle = port.create_buffer(256, "storage")
    port.submit([Dispatch(pipeline, (BufferRange(handle, 0, 256),), (1, 1, 1))])
    port.deadline_s = 0.1
    with pytest.raises(GpuTimeout):
        run_blocking(port.read(handle, 0, 256))
    assert port.lost
    run_blocking(port.close())


def test_large_writes_go_through_staging_buffers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Staging buffers carry large writes, although maps end only during a wait."""
    monkeypatch.setattr(upload_staging, "MAX_STAGE_BYTES", 1 << 20)
    payloads = np.random.default_rng(1).integers(0, 256, (2, 3 << 20), np.uint8)
    with open_native_port(AdapterRequest(), library="wgpudawn") as port:
        handle = port.create_buffer(payloads.shape[1], "storage")
        for payload in payloads:
            port.write(handle, 0, memoryview(payload))
        got = run_blocking(port.read(handle, 0, payloads.shape[1]))
        np.testing.assert_array_equal(np.frombuffer(got, np.uint8), payloads[1])
