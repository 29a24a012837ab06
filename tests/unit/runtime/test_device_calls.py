"""How a device and inputs are named, and what typed params are read as."""

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
from rlxweb.choose.fallback import run_with_fallback
from rlxweb.choose.resolve import resolve_device_chain
from rlxweb.device import Device, fastest_among
from rlxweb.errors import (
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
from rlxweb.gpu.drive import drive
from rlxweb.ir.dtype import DType, DTypeLike
from tests.unit.runtime.fake_machine import FakeMachine, adding, runner
from tests.unit.runtime.fake_machine import machine as machine
from tests.unit.runtime.fake_machine import three_devices as three_devices

X = {"x": np.array([1, 2], np.float32)}


@pytest.fixture
def made(machine: FakeMachine) -> GraphDevices:
    """X + [3, 4] on three devices."""
    return runner()


@pytest.mark.parametrize("kind", [GraphDevices, DeviceRouter, FlexibleSession])
def test_one_word_and_one_order_for_the_device_everywhere(kind: type) -> None:
    """Calls take `device` before `inputs`, under no other name."""
    seen = 0
    for name, method in inspect.getmembers(kind, callable):
        if name.startswith("_"):
            continue
        names = [n for n in inspect.signature(method).parameters if n != "self"]
        assert "hint" not in names, name
        if "device" in names and "inputs" in names:
            assert names[:2] == ["device", "inputs"], name
            seen += 1
    assert seen or kind is FlexibleSession


def test_pyrlx_calls_with_the_inputs_first_mean_the_same(made: GraphDevices) -> None:
    for call in (made.run_resolved, made.run_resolved_with_inputs, made.run):
        call(X, "opengl")
        assert made.last_device is Device.OPENGL
        call(X, device="vulkan")
        assert made.last_device is Device.VULKAN
        call(inputs=X, device="cpu")
        assert made.last_device is Device.CPU
    assert made.run_chain(X, "vulkan")[0] == "vulkan"
    assert made.run_chain(X, device=["tpu", "opengl"])[0] == "opengl"
    assert made.resolve_with_inputs(X) == "cpu"
    assert made.run_try(X, ["tpu", "opengl"])[0] == "opengl"
    assert made.run_try(X, device="vulkan")[0] == "vulkan"
    with pytest.warns(DeprecationWarning, match="chain= is called device="):
        assert made.run_try(inputs=X, chain=("vulkan",))[0] == "vulkan"
    with pytest.raises(
        TypeError, match="multiple values for keyword argument 'inputs'"
    ):
        made.run_chain(X, inputs=X)
    with pytest.raises(TypeError, match="device"):
        made.run(X)


@pytest.mark.parametrize("given", [X["x"], [X["x"]], [], 0, [1, 2]], ids=repr)
def test_what_names_no_device_is_meant_as_inputs(given: object) -> None:
    """A first argument that names no device is refused as inputs without names."""
    made = GraphDevices(adding(), DevicePolicy.only("cpu"))
    made.set_param("w", [3, 4])
    for call in (made.run_resolved, made.run_chain, made.run_resolved_with_inputs):
        with pytest.raises(InputError, match=r"was given; .* pass \{'x': …\}"):
            call(given)
    with pytest.raises(DeviceFallbackError, match="empty fallback chain"):
        made.run_chain([], X)


def test_the_older_word_for_a_device_is_warned_about(made: GraphDevices) -> None:
    """RLX says hint; it works, once, and not beside the new word."""
    for call in (made.resolve, made.resolve_chain, made.resolve_with_inputs):
        with pytest.warns(DeprecationWarning, match="hint= is called device= here"):
            assert call(hint="opengl") is Device.OPENGL
    with pytest.warns(DeprecationWarning, match="run_chain: hint="):
        assert made.run_chain(X, hint="vulkan")[0] is Device.VULKAN
    with (
        pytest.warns(DeprecationWarning, match="resolve: hint="),
        pytest.raises(TypeError, match="both were given"),
    ):
        made.resolve(hint="cpu", device="vulkan")


@pytest.mark.parametrize(
    "dtype", ["f32", "F32", "float32", np.float32, DType.F32, None]
)
def test_typed_params_are_bytes_of_a_named_dtype(
    made: GraphDevices, dtype: DTypeLike | None
) -> None:
    raw = np.array([7, 8], "<f4").tobytes()
    values = raw, bytearray(raw), memoryview(raw), [7, 8], np.array([7.0, 8.0])
    for value in (*values, values[-1].data, np.frombuffer(raw, "<f4").data):
        made.set_param("w", [0, 0])
        made.set_param_typed("w", value, dtype)
        np.testing.assert_array_equal(made.run("vulkan", X)[0], [8, 10])


PACKED = {
    "bool": (b"\0\xff", [0, 1]),
    "f16": (struct.pack("<2e", 0.1, -65504), [0.0999755859375, -65504]),
    "bf16": (struct.pack("<2H", 0x3DCD, 0xC000), [0.10009765625, -2]),
    "f64": (struct.pack("<2d", 0.1, 1e-50), [0.100000001490116119384765625, 0]),
    "i8": (struct.pack("<2b", -128, 7), [-128, 7]),
    "i32": (struct.pack("<2i", 16777217, -3), [16777216, -3]),
    "u32": (struct.pack("<2I", 4294967295, 3), [4294967296, 3]),
    "i64": (struct.pack("<2q", 2**40 + 1, -3), [2**40, -3]),
}
"""By dtype, bytes packed by the standard library, and their values in float32."""


@pytest.mark.parametrize("dtype", PACKED)
def test_bytes_of_another_dtype_are_converted(made: GraphDevices, dtype: str) -> None:
    """RLX converts them to the declared one; here params and inputs of float32."""
    raw, values = PACKED[dtype]
    want = np.array(values, np.float32)
    made.set_param_typed("w", raw, dtype)
    for label in ("cpu", "vulkan"):
        (got,) = made.run(label, {"x": [0, 0]})
        np.testing.assert_array_equal(got, want)
    graph = Graph()
    graph.set_outputs([graph.input("x", (2,)) * 1])
    ((out, name),) = Session("cpu").compile(graph).run_typed({"x": (raw, dtype)})
    assert (out, name) == (struct.pack("<2f", *want), "f32")


@pytest.mark.parametrize("declared", ["i32", "i64", "u8", "bool", "f16", "bf16"])
def test_bytes_become_what_a_param_declares(declared: str) -> None:
    """Whole numbers by value; a fraction is refused where it would be lost."""
    graph = Graph()
    w = graph.param("w", (2,), declared)
    graph.set_outputs([w.cast("f32")])
    made = GraphDevices(graph, DevicePolicy.only(["cpu"]))
    for code, dtype in (("d", "f64"), ("e", "f16"), ("q", "i64"), ("?", "bool")):
        made.set_param_typed("w", struct.pack(f"<2{code}", 1, 0), dtype)
        np.testing.assert_array_equal(made.run("cpu", {})[0], [1, 0])
    fraction = struct.pack("<2d", 1.5, 0)
    if declared in ("f16", "bf16"):
        made.set_param_typed("w", fraction, "f64")
        np.testing.assert_array_equal(made.run("cpu", {})[0], [1.5, 0])
    else:
        with pytest.raises(DTypeError, match=f"1.5 is not a {declared} number"):
            made.set_param_typed("w", fraction, "f64")


def test_typed_params_that_do_not_fit_are_refused(made: GraphDevices) -> None:
    """Typed params that do not fit are refused with both numbers; nothing is kept."""
    with pytest.raises(ShapeError, match=r"7 bytes .* \[2\] f32 takes 8"):
        made.set_param_typed("w", b"1234567", "f32")
    with pytest.raises(ShapeError, match=r"8 bytes .* \[2\] f16 takes 4"):
        made.set_param_typed("w", b"12345678", "f16")
    with pytest.raises(DTypeError, match=r"1e\+300 is not a f32 number; .*range"):
        made.set_param_typed("w", struct.pack("<2d", 1, 1e300), "f64")
    with pytest.raises(DTypeError, match="'f8' is 'f64' here"):
        made.set_param_typed("w", np.zeros(2), "f8")
    with pytest.raises(DTypeError, match=r"0.5.* is not a i32 number"):
        made.set_param_typed("w", [0.5, 1], "i32")
    for name in ("W", 3, None, ["w"]):
        with pytest.raises(UnknownName, match=re.escape(f"no param '{name}'")):
            made.set_param_typed(name, b"", "f32")
    np.testing.assert_array_equal(made.run("cpu", X)[0], [4, 6])


def test_a_text_in_place_of_a_list_is_names_and_not_letters(made: GraphDevices) -> None:
    """A text in place of a list is one name or several, never letters."""
    graph = made.graph
    assert made.run_try("vulkan", X)[0] == "vulkan"
    assert made.run_try("tpu, opengl", X)[0] == "opengl"
    assert resolve_device_chain(graph, "vk") == "vulkan"
    assert resolve_device_chain(graph, "tpu;gl") == "opengl"
    assert run_with_fallback(graph, "opengl", str)[0] == "opengl"
    assert fastest_among("cpu gl") == "opengl"
    for wrong in (None, 3):
        with pytest.raises(UnknownDevice, match=f"got {type(wrong).__name__}"):
            made.run_try(wrong, X)
    with pytest.raises(UnknownDevice, match="'abacus'"):
        made.run_try("abacus", X)


def test_a_chain_is_a_list_wherever_one_is_taken(made: GraphDevices) -> None:
    """A chain, as a list or a text, gives its first device that can, or none."""
    for chain in (["tpu", "opengl", "cpu"], "tpu, gl, cpu"):
        assert made.resolve_chain(chain) is Device.OPENGL
        assert made.compile_chain(chain).device is Device.OPENGL
        assert made.run_chain(chain, X)[0] is Device.OPENGL
        assert [a.device for a in made.attempts] == [Device.TPU, Device.OPENGL]
    for chain in ([], ["tpu", "rocm"]):
        with pytest.raises(Unsupported, match="no device in chain"):
            made.resolve_chain(chain)
    assert made.resolve_chain(["vulkan"]) is made.resolve_chain("vk") is Device.VULKAN


@pytest.mark.parametrize("kind", [GraphDevices, DeviceRouter])
def test_strict_is_true_or_false_wherever_it_is_said(kind: type) -> None:
    """Every run takes `strict`, and no text or number in its place."""
    made = kind(adding(), DevicePolicy.only("cpu"))
    made.set_param("w", [3, 4])
    ran = 0
    for name, call in inspect.getmembers(made, callable):
        if name.startswith("run") and name != "runner":
            where = {} if name == "run_fastest" else {"device": "cpu"}
            for wrong in ("no", "False", 2, None):
                with pytest.raises(UsageError, match=r"strict is .* True or False"):
                    call(**where, inputs=X, strict=wrong)
            call(**where, inputs=X, strict=True)
            ran += 1
    assert ran >= 3


def test_strict_is_true_or_false_for_sessions_and_what_they_compile() -> None:
    graph = adding()
    compiled = Session("cpu").compile(graph)
    compiled.set_param("w", [3, 4])
    raw = {"x": (X["x"].tobytes(), "f32")}
    doors: list[Any] = [
        lambda s: Session("cpu", strict=s),
        lambda s: Session("cpu", optimise=s),
        lambda s: FlexibleSession(strict=s),
        lambda s: DeviceRouter(graph, rebench_on_throttle=s),
        lambda s: compiled.run(X, strict=s),
        lambda s: compiled.run_typed(raw, strict=s),
        lambda s: drive(compiled.run_async(X, strict=s)),
        lambda s: run_with_fallback(graph, "cpu", str, strict=s),
    ]
    for door in doors:
        for wrong in ("no", 2, []):
            with pytest.raises(UsageError, match="True or False"):
                door(wrong)
    np.testing.assert_array_equal(compiled.run(X, strict=np.True_)[0], [4, 6])


@pytest.mark.parametrize(
    ("door", "match"),
    [
        (lambda: Session(adapter=3), "adapter: it is 3; .* as text"),
        (lambda: Session(limits=3), "limits is 3; a Limits is wanted"),
        (lambda: Session("cpu", limits={}), "limits is {}; a Limits is wanted"),
        (lambda: Session("cpu", cost_mode=np.zeros(2)), "cost_mode is .*'seed' or"),
        (lambda: Graph(3), "its name is 3; a text is wanted"),
        (lambda: devices.parse_device_list(3), "expected names or Devices, got int"),
        (lambda: devices.parse_device_list(None), "expected names .* NoneType"),
        (lambda: devices.parse_device_list([np.zeros(2)]), "a Device, got ndarray"),
    ],
)
def test_what_is_of_another_type_is_refused_where_it_is_given(
    door: Callable[[], object], match: str
) -> None:
    with pytest.raises(RlxError, match=match):
        door()


@pytest.mark.parametrize("given", ["cpu", ["cpu"], Device.CPU, 3])
def test_a_policy_is_a_policy_at_every_door(given: Any) -> None:
    graph = adding()
    doors: list[Any] = [
        lambda: FlexibleSession(given),
        lambda: DeviceRouter(graph, given),
        lambda: devices.devices_for(graph, given),
        lambda: devices.fastest_device_for(graph, given),
        lambda: cost.fastest_device_for(graph, given, cost_mode="seed"),
        lambda: devices.resolve_device(graph, "cpu", given),
        lambda: devices.resolve_device_chain(graph, ["cpu"], given),
        lambda: devices.device_report(graph, given),
        lambda: devices.benchmark_devices(graph, X, 1, given),
        lambda: devices.warm_all(graph, given),
        lambda: run_with_fallback(graph, ["cpu"], str, given),
    ]
    for door in doors:
        with pytest.raises(UsageError, match="a DevicePolicy is wanted"):
            door()


def test_adapters_are_found_by_any_name_of_their_device() -> None:
    """Adapters are found by any name of the device, and not passed over if missing."""
    graph, only = adding(), DevicePolicy.only(["vulkan"])
    for names in ({"vk": "abacus"}, {"VULKAN": "abacus"}, {Device.VULKAN: "abacus"}):
        assert devices.devices_for(graph, only, names) == ()
        assert GraphDevices(graph, only, adapters=names).devices == ()
        rows = devices.device_report(graph, only, adapters=names)
        assert not any(row.supports_graph for row in rows if row.device == "vulkan")
        for mode in ("seed", "calibrated"):
            for ask in (devices.fastest_device_for, cost.fastest_device_for):
                with pytest.raises(Unsupported):
                    ask(graph, only, adapters=names, cost_mode=mode)
    for wrong in ("llvm", ["llvm"]):
        for door in (GraphDevices, DeviceRouter):
            with pytest.raises(UsageError, match=r"adapters: they are .* a dict"):
                door(graph, adapters=wrong)
        with pytest.raises(UsageError, match=r"adapters: they are .* a dict"):
            FlexibleSession(adapters=wrong)


def test_auto_leaves_the_device_open(made: GraphDevices) -> None:
    """The word "auto" leaves a device open; where one is needed it is no device."""
    best = made.resolve()
    assert made.resolve("auto") is made.resolve_chain("Auto") is best
    assert made.resolve_with_inputs("auto", X) is made.compile_chain("auto").device
    assert made.run_chain(X, device="auto")[0] is made.run_chain("auto", X)[0] is best
    made.run_resolved("auto", X)
    assert made.last_device is best
    assert devices.resolve_device(adding(), "auto") is devices.resolve_device(adding())
    assert made.compile("auto").device is best
    assert made.run_try("auto", X)[0] is best
    made.run("auto", X)
    assert made.last_device is best
    for call in (made.adapter_of, lambda auto: made.run_try(["cpu", auto], X)):
        with pytest.raises(UnknownDevice, match="'auto' leaves the device open"):
            call("auto")


def test_open_is_a_word_like_every_other() -> None:
    assert repr(Session(" AUTO ")) == repr(Session())
    rows = devices.benchmark_devices(one_input(), X, 1, devices="cpu")
    assert [row.device for row in rows] == [Device.CPU]


def one_input() -> Graph:
    graph = Graph("one")
    graph.set_outputs([graph.input("x", (2,)) * 2.0])
    return graph


@pytest.mark.parametrize("runs", ["3", 2.5, True, None])
def test_runs_of_a_benchmark_are_whole(runs: Any) -> None:
    made = GraphDevices(adding(), DevicePolicy.only("cpu"))
    made.set_param("w", [3, 4])
    for door in (
        lambda: made.benchmark(X, runs),
        lambda: devices.benchmark_devices(made.graph, X, runs),
        lambda: DevicePolicy.all().with_benchmark_pick(runs),
    ):
        with pytest.raises(UsageError, match=r"runs is .* a whole number"):
            door()


def test_pyrlx_calls_a_value_data() -> None:
    made = GraphDevices(adding(), DevicePolicy.only("cpu"))
    router = DeviceRouter(adding(), DevicePolicy.only("cpu"))
    for one in (made, router, Session("cpu").compile(adding())):
        one.set_param("w", data=[3, 4])
        one.set_param_typed(name="w", data=b"\0" * 8, dtype="f32")
        with pytest.raises(TypeError, match="both were given"):
            one.set_param("w", data=[3, 4], value=[3, 4])
    np.testing.assert_array_equal(made.run("cpu", X)[0], [1, 2])


def test_a_forced_device_that_is_missing_fails_the_chain(
    made: GraphDevices, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLX_FORCE_DEVICE", "rocm")
    with pytest.raises(DeviceFallbackError, match="all backends failed"):
        made.run_chain(X)
    assert len(made.attempts) == 1


def test_a_mode_of_costs_there_is_not_is_refused_when_it_is_said() -> None:
    for door in (Session, FlexibleSession):
        for wrong in ("Seed", "", None):
            with pytest.raises(UsageError, match=r"cost_mode.*'seed' or 'calibrated'"):
                door(cost_mode=wrong)


@pytest.mark.parametrize("code", ["f2", "f4", "f8", "i4", "u4", "i8"])
def test_bytes_are_read_in_the_order_their_dtype_says(code: str) -> None:
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
