"""The port over Dawn: another library and another compiler of shaders, the same verbs.

Runs on SwiftShader: Dawn does without Mesa's lavapipe of 22.3, which lacks what it asks
of a Vulkan driver.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.backends.registry import named_only
from rlxweb.backends.webgpu import WebGpuBackend
from rlxweb.errors import GpuTimeout, ShaderRejected
from rlxweb.gpu import staging
from rlxweb.gpu.drive import drive
from rlxweb.gpu.libraries import adapters
from rlxweb.gpu.native import NativePort
from rlxweb.gpu.port import Dispatch, Range, Want
from rlxweb.smoke.case import case_of, checked_ops
from rlxweb.smoke.verdict import check_case
from tests.ports import check_closes, check_not_open, native
from tests.tiers import Sampler

pytestmark = pytest.mark.requires_dawn
LOOP = """
@group(0) @binding(0) var<storage, read_write> x: array<u32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    var n = x[0];
    for (var k = 0u; k < 4000000u; k++) { n = n * 1664525u + x[k % 64u]; }
    x[id.x % 64u] = n;
}
"""


@pytest.fixture
def port() -> Iterator[NativePort]:
    """Dawn's best adapter, open."""
    made = NativePort(library="wgpudawn")
    drive(made.open(Want()))
    yield made
    drive(made.close())


def test_it_is_listed_opened_and_closed_like_every_port(port: NativePort) -> None:
    """Dawn has adapters and a compiler of its own, and opens and closes as any port."""
    assert port.facts.name in {one.name for one in adapters("wgpudawn")}
    assert port.compiler.startswith("Tint (wgpudawn 0.")
    assert NativePort().compiler.startswith("naga (wgpu-native ")
    check_not_open(NativePort(library="wgpudawn"))
    check_closes(port)


def test_a_shader_it_refuses_comes_with_its_words(port: NativePort) -> None:
    """A refused shader comes with Tint's words and the source."""
    with pytest.raises(ShaderRejected) as told:
        drive(port.pipeline("fn main() { let x: nothing = 1; }", (), {}))
    assert "nothing" in str(told.value)
    assert told.value.source.startswith("fn main")


def test_ops_are_right(port: NativePort, sampled: Sampler) -> None:
    """Ops are right on their last sample; `rlxweb smoke` runs all.

    Tint compiles every op in the browser's check as well.
    """
    backend = WebGpuBackend(port)
    for op in sampled(checked_ops(), 60, quick=20):
        found = drive(check_case(case_of(op, len(op.samples) - 1), backend))
        assert found.word in ("right", "refused"), (op.name, found.why)


def test_it_is_a_device_that_is_named_only() -> None:
    """A named Dawn computes like every device; "auto" leaves it alone."""
    graph = rlx.Graph("product")
    graph.set_outputs([graph.input("x", (3, 5)) @ graph.input("y", (5, 7))])
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((3, 5)), rng.standard_normal((5, 7))
    feeds = {"x": x.astype(np.float32), "y": y.astype(np.float32)}
    (got,) = rlx.Session("dawn").compile(graph).run(feeds)
    np.testing.assert_allclose(got, x @ y, rtol=1e-4, atol=1e-5)
    assert named_only("dawn")


def test_what_hangs_ends_by_the_deadline() -> None:
    """The wait is Dawn's own and has none; the port counts as lost then."""
    port = NativePort(library="wgpudawn")
    drive(port.open(Want()))
    pipeline = drive(port.pipeline(LOOP, ("write",), {}))
    handle = port.buffer(256, "storage")
    port.submit([Dispatch(pipeline, (Range(handle, 0, 256),), (1, 1, 1))])
    port.deadline_s = 0.1
    with pytest.raises(GpuTimeout):
        drive(port.read(handle, 0, 256))
    assert port.lost
    drive(port.close())


def test_many_bytes_go_through_staging_buffers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Staging buffers carry many bytes, though maps end only while somebody waits."""
    monkeypatch.setattr(staging, "STAGE_BYTES", 1 << 20)
    sent = np.random.default_rng(1).integers(0, 256, (2, 3 << 20), np.uint8)
    with native(Want(), library="wgpudawn") as port:
        handle = port.buffer(sent.shape[1], "storage")
        for one in sent:
            port.write(handle, 0, memoryview(one))
        got = drive(port.read(handle, 0, sent.shape[1]))
        np.testing.assert_array_equal(np.frombuffer(got, np.uint8), sent[1])
