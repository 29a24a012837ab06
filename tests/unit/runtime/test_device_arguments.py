"""Arguments of device calls: names of devices, inputs by name and typed params."""

from __future__ import annotations

import inspect
import re
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rlxweb import (
    DevicePolicy,
    DeviceRouter,
    FlexibleSession,
    Graph,
    GraphDevices,
    Session,
    cost,
    devices,
)
from rlxweb.core.device import Device, fastest_among
from rlxweb.core.errors import (
    DeviceFallbackError,
    DTypeError,
    InputError,
    RlxError,
    ShapeError,
    UnknownDevice,
    UnknownName,
    Unsupported,
    UsageError,
)
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.ir.dtype import DType, DTypeLike
from rlxweb.select.fallback import run_with_fallback
from rlxweb.select.resolve import resolve_device_chain
from tests.unit.runtime.fake_machine import FakeMachine, add_graph, make_graph_devices
from tests.unit.runtime.fake_machine import machine as machine
from tests.unit.runtime.fake_machine import three_devices as three_devices

X = {"x": np.array([1, 2], np.float32)}


@pytest.fixture
def graph_devices(machine: FakeMachine) -> GraphDevices:
    """GraphDevices of x + [3, 4] on three devices."""
    return make_graph_devices()


@pytest.mark.parametrize("kind", [GraphDevices, DeviceRouter, FlexibleSession])
def test_device_comes_before_inputs_everywhere(kind: type) -> None:
    """Calls take `device` before `inputs`, under no other name."""
    checked_count = 0
    for name, method in inspect.getmembers(kind, callable):
        if name.startswith("_"):
            continue
        names = [n for n in inspect.signature(method).parameters if n != "self"]
        assert "hint" not in names, name
        if "device" in names and "inputs" in names:
            assert names[:2] == ["device", "inputs"], name
            checked_count += 1
    assert checked_count or kind is FlexibleSession


def test_inputs_may_come_first_as_in_pyrlx(graph_devices: GraphDevices) -> None:
    for call in (
        graph_devices.run_resolved,
        graph_devices.run_resolved_with_inputs,
        graph_devices.run,
    ):
        call(X, "opengl")
        assert graph_devices.last_device is Device.OPENGL
        call(X, device="vulkan")
        assert graph_devices.last_device is Device.VULKAN
        call(inputs=X, device="cpu")
        assert graph_devices.last_device is Device.CPU
    assert graph_devices.run_chain(X, "vulkan")[0] == "vulkan"
    assert graph_devices.run_chain(X, device=["tpu", "opengl"])[0] == "opengl"
    assert graph_devices.resolve_with_inputs(X) == "cpu"
    assert graph_devices.run_try(X, ["tpu", "opengl"])[0] == "opengl"
    assert graph_devices.run_try(X, device="vulkan")[0] == "vulkan"
    with pytest.warns(DeprecationWarning, match="chain= is deprecated, use device="):
        assert graph_devices.run_try(inputs=X, chain=("vulkan",))[0] == "vulkan"
    with pytest.raises(
        TypeError, match="multiple values for keyword argument 'inputs'"
    ):
        graph_devices.run_chain(X, inputs=X)
    with pytest.raises(TypeError, match="device"):
        graph_devices.run(X)


@pytest.mark.parametrize("argument", [X["x"], [X["x"]], [], 0, [1, 2]], ids=repr)
def test_argument_that_names_no_device_is_inputs(argument: object) -> None:
    """A first argument that names no device is refused as inputs without names."""
    graph_devices = GraphDevices(add_graph(), DevicePolicy.only("cpu"))
    graph_devices.set_param("w", [3, 4])
    for call in (
        graph_devices.run_resolved,
        graph_devices.run_chain,
        graph_devices.run_resolved_with_inputs,
    ):
        with pytest.raises(InputError, match=r"got a.* pass \{'x': …\}"):
            call(argument)
    with pytest.raises(DeviceFallbackError, match="empty fallback chain"):
        graph_devices.run_chain([], X)


def test_hint_keyword_is_deprecated(graph_devices: GraphDevices) -> None:
    """RLX's keyword hint works with a warning, and not together with device."""
    for call in (
        graph_devices.resolve,
        graph_devices.resolve_chain,
        graph_devices.resolve_with_inputs,
    ):
        with pytest.warns(DeprecationWarning, match="hint= is deprecated, use device="):
            assert call(hint="opengl") is Device.OPENGL
    with pytest.warns(DeprecationWarning, match="run_chain: hint="):
        assert graph_devices.run_chain(X, hint="vulkan")[0] is Device.VULKAN
    with (
        pytest.warns(DeprecationWarning, match="resolve: hint="),
        pytest.raises(TypeError, match="pass only one of them"),
    ):
        graph_devices.resolve(hint="cpu", device="vulkan")


@pytest.mark.parametrize(
    "dtype", ["f32", "F32", "float32", np.float32, DType.F32, None]
)
def test_typed_params_are_bytes_of_a_named_dtype(
    graph_devices: GraphDevices, dtype: DTypeLike | None
) -> None:
    raw = np.array([7, 8], "<f4").tobytes()
    values = raw, bytearray(raw), memoryview(raw), [7, 8], np.array([7.0, 8.0])
    for value in (*values, values[-1].data, np.frombuffer(raw, "<f4").data):
        graph_devices.set_param("w", [0, 0])
        graph_devices.set_param_typed("w", value, dtype)
        np.testing.assert_array_equal(graph_devices.run("vulkan", X)[0], [8, 10])


PACKED_VALUES = {
    "bool": (b"\0\xff", [0, 1]),
    "f16": (struct.pack("<2e", 0.1, -65504), [0.0999755859375, -65504]),
    "bf16": (struct.pack("<2H", 0x3DCD, 0xC000), [0.10009765625, -2]),
    "f64": (struct.pack("<2d", 0.1, 1e-50), [0.100000001490116119384765625, 0]),
    "i8": (struct.pack("<2b", -128, 7), [-128, 7]),
    "i32": (struct.pack("<2i", 16777217, -3), [16777216, -3]),
    "u32": (struct.pack("<2I", 4294967295, 3), [4294967296, 3]),
    "i64": (struct.pack("<2q", 2**40 + 1, -3), [2**40, -3]),
}
"""Bytes packed by the standard library and their values in float32, by dtype."""


@pytest.mark.parametrize("dtype", PACKED_VALUES)
def test_bytes_of_other_dtype_are_converted(
    graph_devices: GraphDevices, dtype: str
) -> None:
    """RLX converts them to the declared one; here params and inputs of float32."""
    raw, values = PACKED_VALUES[dtype]
    want = np.array(values, np.float32)
    graph_devices.set_param_typed("w", raw, dtype)
    for label in ("cpu", "vulkan"):
        (got,) = graph_devices.run(label, {"x": [0, 0]})
        np.testing.assert_array_equal(got, want)
    graph = Graph()
    graph.set_outputs([graph.input("x", (2,)) * 1])
    ((out, name),) = Session("cpu").compile(graph).run_typed({"x": (raw, dtype)})
    assert (out, name) == (struct.pack("<2f", *want), "f32")


@pytest.mark.parametrize("declared", ["i32", "i64", "u8", "bool", "f16", "bf16"])
def test_bytes_are_converted_to_declared_dtype(declared: str) -> None:
    """Integers are converted by value; fractions that would be lost are refused."""
    graph = Graph()
    w = graph.param("w", (2,), declared)
    graph.set_outputs([w.cast("f32")])
    graph_devices = GraphDevices(graph, DevicePolicy.only(["cpu"]))
    for code, dtype in (("d", "f64"), ("e", "f16"), ("q", "i64"), ("?", "bool")):
        graph_devices.set_param_typed("w", struct.pack(f"<2{code}", 1, 0), dtype)
        np.testing.assert_array_equal(graph_devices.run("cpu", {})[0], [1, 0])
    fraction = struct.pack("<2d", 1.5, 0)
    if declared in ("f16", "bf16"):
        graph_devices.set_param_typed("w", fraction, "f64")
        np.testing.assert_array_equal(graph_devices.run("cpu", {})[0], [1.5, 0])
    else:
        with pytest.raises(
            DTypeError, match=f"1.5 cannot be represented as {declared};"
        ):
            graph_devices.set_param_typed("w", fraction, "f64")


def test_misfitting_typed_params_are_rejected(graph_devices: GraphDevices) -> None:
    """Typed params that do not fit are refused with both numbers; nothing is kept."""
    with pytest.raises(ShapeError, match=r"7 bytes; \[2\] f32 takes 8 bytes"):
        graph_devices.set_param_typed("w", b"1234567", "f32")
    with pytest.raises(ShapeError, match=r"8 bytes; \[2\] f16 takes 4 bytes"):
        graph_devices.set_param_typed("w", b"12345678", "f16")
    with pytest.raises(
        DTypeError, match=r"1e\+300 cannot be represented as f32; .*range"
    ):
        graph_devices.set_param_typed("w", struct.pack("<2d", 1, 1e300), "f64")
    with pytest.raises(DTypeError, match="'f8' is 'f64' in rlxweb"):
        graph_devices.set_param_typed("w", np.zeros(2), "f8")
    with pytest.raises(DTypeError, match=r"0.5.* cannot be represented as i32"):
        graph_devices.set_param_typed("w", [0.5, 1], "i32")
    for name in ("W", 3, None, ["w"]):
        with pytest.raises(UnknownName, match=re.escape(f"no param '{name}'")):
            graph_devices.set_param_typed(name, b"", "f32")
    np.testing.assert_array_equal(graph_devices.run("cpu", X)[0], [4, 6])


def test_text_is_parsed_as_device_names(graph_devices: GraphDevices) -> None:
    """Text in place of a list is one or several device names, never single letters."""
    graph = graph_devices.graph
    assert graph_devices.run_try("vulkan", X)[0] == "vulkan"
    assert graph_devices.run_try("tpu, opengl", X)[0] == "opengl"
    assert resolve_device_chain(graph, "vk") == "vulkan"
    assert resolve_device_chain(graph, "tpu;gl") == "opengl"
    assert run_with_fallback(graph, "opengl", str)[0] == "opengl"
    assert fastest_among("cpu gl") == "opengl"
    for wrong in (None, 3):
        with pytest.raises(UnknownDevice, match=f"got {type(wrong).__name__}"):
            graph_devices.run_try(wrong, X)
    with pytest.raises(UnknownDevice, match="'abacus'"):
        graph_devices.run_try("abacus", X)


def test_device_chains_are_lists_or_text(graph_devices: GraphDevices) -> None:
    """A chain, as a list or text, resolves to its first usable device or fails."""
    for chain in (["tpu", "opengl", "cpu"], "tpu, gl, cpu"):
        assert graph_devices.resolve_chain(chain) is Device.OPENGL
        assert graph_devices.compile_chain(chain).device is Device.OPENGL
        assert graph_devices.run_chain(chain, X)[0] is Device.OPENGL
        assert [a.device for a in graph_devices.attempts] == [Device.TPU, Device.OPENGL]
    for chain in ([], ["tpu", "rocm"]):
        with pytest.raises(Unsupported, match="no device in chain"):
            graph_devices.resolve_chain(chain)
    assert (
        graph_devices.resolve_chain(["vulkan"])
        is graph_devices.resolve_chain("vk")
        is Device.VULKAN
    )


@pytest.mark.parametrize("kind", [GraphDevices, DeviceRouter])
def test_every_run_checks_strict(kind: type) -> None:
    """Every run takes `strict`, and no text or number in its place."""
    runner = kind(add_graph(), DevicePolicy.only("cpu"))
    runner.set_param("w", [3, 4])
    call_count = 0
    for name, call in inspect.getmembers(runner, callable):
        if name.startswith("run") and name != "runner":
            device_options = {} if name == "run_fastest" else {"device": "cpu"}
            for wrong in ("no", "False", 2, None):
                with pytest.raises(UsageError, match=r"strict is .* True or False"):
                    call(**device_options, inputs=X, strict=wrong)
            call(**device_options, inputs=X, strict=True)
            call_count += 1
    assert call_count >= 3


def test_sessions_check_boolean_options() -> None:
    graph = add_graph()
    compiled = Session("cpu").compile(graph)
    compiled.set_param("w", [3, 4])
    raw = {"x": (X["x"].tobytes(), "f32")}
    calls: list[Any] = [
        lambda s: Session("cpu", strict=s),
        lambda s: Session("cpu", optimise=s),
        lambda s: FlexibleSession(strict=s),
        lambda s: DeviceRouter(graph, rebench_on_throttle=s),
        lambda s: compiled.run(X, strict=s),
        lambda s: compiled.run_typed(raw, strict=s),
        lambda s: run_blocking(compiled.run_async(X, strict=s)),
        lambda s: run_with_fallback(graph, "cpu", str, strict=s),
    ]
    for call in calls:
        for wrong in ("no", 2, []):
            with pytest.raises(UsageError, match="True or False"):
                call(wrong)
    np.testing.assert_array_equal(compiled.run(X, strict=np.True_)[0], [4, 6])


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: Session(adapter=3), "adapter: got 3; .* as str"),
        (lambda: Session(limits=3), "limits is 3; expected a Limits"),
        (lambda: Session("cpu", limits={}), "limits is {}; expected a Limits"),
        (lambda: Session("cpu", cost_mode=np.zeros(2)), "cost_mode is .*'seed' or"),
        (lambda: Graph(3), "the name is 3; expected a string"),
        (lambda: devices.parse_device_list(3), "expected names or Devices, got int"),
        (lambda: devices.parse_device_list(None), "expected names .* NoneType"),
        (lambda: devices.parse_device_list([np.zeros(2)]), "a Device, got ndarray"),
    ],
)
def test_arguments_of_wrong_type_are_rejected_early(
    call: Callable[[], object], match: str
) -> None:
    with pytest.raises(RlxError, match=match):
        call()


@pytest.mark.parametrize("policy", ["cpu", ["cpu"], Device.CPU, 3])
def test_every_entry_point_checks_policy(policy: Any) -> None:
    graph = add_graph()
    calls: list[Any] = [
        lambda: FlexibleSession(policy),
        lambda: DeviceRouter(graph, policy),
        lambda: devices.devices_for(graph, policy),
        lambda: devices.fastest_device_for(graph, policy),
        lambda: cost.fastest_device_for(graph, policy, cost_mode="seed"),
        lambda: devices.resolve_device(graph, "cpu", policy),
        lambda: devices.resolve_device_chain(graph, ["cpu"], policy),
        lambda: devices.device_report(graph, policy),
        lambda: devices.benchmark_devices(graph, X, 1, policy),
        lambda: devices.warm_all(graph, policy),
        lambda: run_with_fallback(graph, ["cpu"], str, policy),
    ]
    for call in calls:
        with pytest.raises(UsageError, match="expected a DevicePolicy"):
            call()


def test_adapters_accept_device_aliases() -> None:
    """Adapters may be named by any alias of their device; a missing one is not
    ignored.
    """
    graph, only = add_graph(), DevicePolicy.only(["vulkan"])
    for names in ({"vk": "abacus"}, {"VULKAN": "abacus"}, {Device.VULKAN: "abacus"}):
        assert devices.devices_for(graph, only, names) == ()
        assert GraphDevices(graph, only, adapters=names).devices == ()
        rows = devices.device_report(graph, only, adapters=names)
        assert not any(row.supports_graph for row in rows if row.device == "vulkan")
        for mode in ("seed", "calibrated"):
            for fastest in (devices.fastest_device_for, cost.fastest_device_for):
                with pytest.raises(Unsupported):
                    fastest(graph, only, adapters=names, cost_mode=mode)
    for wrong in ("llvm", ["llvm"]):
        for constructor in (GraphDevices, DeviceRouter):
            with pytest.raises(UsageError, match=r"adapters: got .* expected a dict"):
                constructor(graph, adapters=wrong)
        with pytest.raises(UsageError, match=r"adapters: got .* expected a dict"):
            FlexibleSession(adapters=wrong)


def test_auto_lets_rlxweb_choose(graph_devices: GraphDevices) -> None:
    """The name "auto" leaves the device open and is refused where a device is
    required.
    """
    best = graph_devices.resolve()
    assert graph_devices.resolve("auto") is graph_devices.resolve_chain("Auto") is best
    assert (
        graph_devices.resolve_with_inputs("auto", X)
        is graph_devices.compile_chain("auto").device
    )
    assert (
        graph_devices.run_chain(X, device="auto")[0]
        is graph_devices.run_chain("auto", X)[0]
        is best
    )
    graph_devices.run_resolved("auto", X)
    assert graph_devices.last_device is best
    assert devices.resolve_device(add_graph(), "auto") is devices.resolve_device(
        add_graph()
    )
    assert graph_devices.compile("auto").device is best
    assert graph_devices.run_try("auto", X)[0] is best
    graph_devices.run("auto", X)
    assert graph_devices.last_device is best
    for call in (
        graph_devices.adapter_of,
        lambda auto: graph_devices.run_try(["cpu", auto], X),
    ):
        with pytest.raises(UnknownDevice, match="'auto' is not a specific device"):
            call("auto")


def test_auto_ignores_case_and_spaces() -> None:
    assert repr(Session(" AUTO ")) == repr(Session())
    rows = devices.benchmark_devices(double_graph(), X, 1, devices="cpu")
    assert [row.device for row in rows] == [Device.CPU]


def double_graph() -> Graph:
    """Build the graph x [2] * 2."""
    graph = Graph("one")
    graph.set_outputs([graph.input("x", (2,)) * 2.0])
    return graph


@pytest.mark.parametrize("runs", ["3", 2.5, True, None])
def test_benchmark_runs_must_be_an_integer(runs: Any) -> None:
    graph_devices = GraphDevices(add_graph(), DevicePolicy.only("cpu"))
    graph_devices.set_param("w", [3, 4])
    for call in (
        lambda: graph_devices.benchmark(X, runs),
        lambda: devices.benchmark_devices(graph_devices.graph, X, runs),
        lambda: DevicePolicy.all().with_benchmark_pick(runs),
    ):
        with pytest.raises(UsageError, match=r"runs is .* a whole number"):
            call()


def test_data_is_an_alias_of_value() -> None:
    graph_devices = GraphDevices(add_graph(), DevicePolicy.only("cpu"))
    router = DeviceRouter(add_graph(), DevicePolicy.only("cpu"))
    for runner in (graph_devices, router, Session("cpu").compile(add_graph())):
        runner.set_param("w", data=[3, 4])
        runner.set_param_typed(name="w", data=b"\0" * 8, dtype="f32")
        with pytest.raises(TypeError, match="pass only one of them"):
            runner.set_param("w", data=[3, 4], value=[3, 4])
    np.testing.assert_array_equal(graph_devices.run("cpu", X)[0], [1, 2])


def test_missing_forced_device_fails_the_chain(
    graph_devices: GraphDevices, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLX_FORCE_DEVICE", "rocm")
    with pytest.raises(DeviceFallbackError, match="all backends failed"):
        graph_devices.run_chain(X)
    assert len(graph_devices.attempts) == 1


def test_unknown_cost_mode_is_rejected_early() -> None:
    for constructor in (Session, FlexibleSession):
        for wrong in ("Seed", "", None):
            with pytest.raises(UsageError, match=r"cost_mode.*'seed' or 'calibrated'"):
                constructor(cost_mode=wrong)


@pytest.mark.parametrize("code", ["f2", "f4", "f8", "i4", "u4", "i8"])
def test_bytes_are_read_in_their_byte_order(code: str) -> None:
    graph = Graph()
    w = graph.param("w", (3,), np.dtype(code))
    graph.set_outputs([w, graph.input("x", (3,), np.dtype(code))])
    compiled = Session("cpu").compile(graph)
    for order in "<>=":
        sent = np.array([1, 2, 300], order + code)
        compiled.set_param_typed("w", sent.tobytes(), sent.dtype)
        for raw, label in compiled.run_typed({"x": (sent.tobytes(), sent.dtype)}):
            got = np.frombuffer(raw, DType(label).numpy)
            np.testing.assert_array_equal(got, [1, 2, 300])
