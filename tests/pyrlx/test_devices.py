"""Devices, policies, runners and routers through the pyrlx API."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.pyrlx import shim as rlx

X = np.array([1.0, 2.0, 3.0, 4.0], np.float32)
CPU = ["cpu"]


def identity_graph() -> rlx.Graph:
    g = rlx.Graph("same")
    g.set_outputs([g.input("x", [4], "f32")])
    return g


def add_param_graph() -> rlx.Graph:
    g = rlx.Graph("shifted")
    g.set_outputs([g.add(g.input("x", [4], "f32"), g.param("w", [4], "f32"))])
    return g


def test_device_names() -> None:
    """Device labels are found in any case and by alias; unknown ones raise
    ValueError.
    """
    assert "cpu" in rlx.available_devices()
    assert rlx.is_available("cpu")
    assert [rlx.parse_device(n) for n in ("CUDA", "wgpu", " vk ")] == [
        *("cuda", "gpu", "vulkan")
    ]
    for function in (rlx.is_available, rlx.parse_device):
        with pytest.raises(ValueError, match="unknown device 'abacus'"):
            function("abacus")
    assert "cpu" in json.loads(rlx.backends_manifest())["backends"]


def test_missing_device_error_names_its_feature() -> None:
    with pytest.raises(RuntimeError, match="--features cuda"):
        rlx.Session(device="cuda")


def test_fastest_device_and_device_report() -> None:
    assert rlx.fastest_device_for(identity_graph()) == "cpu"
    assert (
        rlx.fastest_device_for(identity_graph(), policy=rlx.DevicePolicy.only(CPU))
        == "cpu"
    )
    rows = rlx.device_report(identity_graph(), policy=rlx.DevicePolicy.only(CPU))
    assert [(r.label, r.recommended) for r in rows if r.recommended] == [("cpu", True)]
    assert all(r.reason is None for r in rows if r.device == "cpu")


@pytest.mark.parametrize("policy", [None, rlx.DevicePolicy.only(CPU)])
def test_graph_devices_runner(policy: rlx.DevicePolicy | None) -> None:
    """A chain returns (device, outputs); every other run method returns the outputs."""
    runner = rlx.GraphDevices(identity_graph(), policy=policy)
    assert "cpu" in runner.devices()
    assert runner.fastest() == "cpu"
    np.testing.assert_array_equal(runner.run("cpu", {"x": X})[0], X)
    for device, outs in (
        runner.run_try(CPU, {"x": X}),
        runner.run_chain({"x": X}),
        runner.run_chain({"x": X}, device="cpu"),
    ):
        assert device == "cpu"
        np.testing.assert_array_equal(outs[0], X)
    for outs in (
        runner.run_resolved({"x": X}),
        runner.run_resolved({"x": X}, device="cpu"),
        runner.run_resolved_with_inputs({"x": X}),
    ):
        np.testing.assert_array_equal(outs[0], X)


def test_params_as_bytes_or_arrays() -> None:
    w = np.array([1, 0, 0, 1], np.float32)
    runner = rlx.GraphDevices(add_param_graph(), policy=rlx.DevicePolicy.only(CPU))
    router = rlx.DeviceRouter(add_param_graph(), policy=rlx.DevicePolicy.only(CPU))
    for target in (runner, router):
        target.set_param("w", np.zeros(4, np.float32))
        target.set_param_typed("w", w.tobytes(), "f32")
        with pytest.raises(ValueError, match=r"got 15 bytes; .* takes 16"):
            target.set_param_typed("w", w.tobytes()[1:], "f32")
    np.testing.assert_array_equal(runner.run("cpu", {"x": X})[0], X + w)
    np.testing.assert_array_equal(router.run({"x": X})[1][0], X + w)
    assert runner.warm_all() == ("cpu",)
    (row,) = runner.benchmark({"x": X}, runs=2)
    assert row.device == "cpu"
    assert row.median_ns > 0


def test_device_router() -> None:
    router = rlx.DeviceRouter(identity_graph(), policy=rlx.DevicePolicy.only(CPU))
    router.with_rebench_on_throttle(False)
    assert "cpu" in router.devices()
    for device, outs in (router.run({"x": X}), router.run_chain({"x": X})):
        assert device == "cpu"
        np.testing.assert_array_equal(outs[0], X)
    np.testing.assert_array_equal(router.run_on("cpu", {"x": X})[0], X)


def test_flexible_session(monkeypatch: pytest.MonkeyPatch) -> None:
    for session in (
        rlx.FlexibleSession(rlx.DevicePolicy.only(CPU)),
        rlx.FlexibleSession.from_env(),
    ):
        compiled = session.compile_resolved(identity_graph(), device="cpu")
        assert compiled.device == "cpu"
        np.testing.assert_array_equal(compiled.run({"x": X})[0], X)
    monkeypatch.setenv("RLX_DEVICE", "cpu")
    assert (
        rlx.FlexibleSession.from_env().compile_resolved(identity_graph()).device
        == "cpu"
    )


def test_policies_are_chained() -> None:
    policy = rlx.DevicePolicy.all().with_deny(["vulkan"]).with_prefer(["cpu"])
    runner = rlx.GraphDevices(identity_graph(), policy.with_benchmark_pick(1))
    assert "vulkan" not in runner.devices()
    runner.run_resolved_with_inputs({"x": X})
    assert runner.last_device in runner.devices()


def test_compiling_for_the_best_device() -> None:
    """A session compiles for the best device of a policy, with options for fusion."""
    batch = np.linspace(-1, 1, 2 * 3 * 4 * 5, dtype=np.float32).reshape(2, 3, 4, 5)
    assert rlx.FusionOptions.native_fk().native_fk_regions
    assert not rlx.FusionOptions().native_fk_regions
    session = rlx.FlexibleSession(rlx.DevicePolicy.only(CPU))
    compiled = session.compile_with_resolved(
        rlx.batch_narrow_relu_graph("pictures", *batch.shape),
        fusion_options=rlx.FusionOptions.native_fk(),
    )
    assert compiled.device == "cpu"
    np.testing.assert_array_equal(compiled.run({"batch": batch})[0], batch.clip(0))
