"""Devices that RLX has no name for, and those that wait until somebody names them."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Iterator

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.backends.pool import pool
from rlxweb.backends.protocol import Backend
from rlxweb.backends.registry import ROWS, Row
from rlxweb.calibration.known import (
    CANNOT_WAIT,
    Priced,
    measure_if_worth_it,
    measure_now,
    priced,
)
from rlxweb.calibration.worth import Worth
from rlxweb.choose.fallback import run_with_fallback
from rlxweb.choose.resolve import resolve_device, resolve_device_chain
from rlxweb.device import Device, fastest_among, parse_device, parse_device_list
from rlxweb.devices.availability import DeviceRow, available_devices, is_available
from rlxweb.devices.place import (
    Place,
    available_places,
    distinct,
    identity_of,
    parse_place,
)
from rlxweb.devices.policy import DevicePolicy
from rlxweb.errors import DeviceError, UnknownDevice, Unsupported
from tests.made_engine import Shop

X = np.arange(8, dtype=np.float32)
SIGNAL = np.sin(np.arange(2048, dtype=np.float32) * 0.3)


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """A machine with a CPU and an engine "made" that waits to be named."""
    shop = Shop()
    for label in [label for label in ROWS if label != "cpu"]:
        monkeypatch.delitem(ROWS, label)
    monkeypatch.setitem(ROWS, "made", shop.row())
    pool.close_all()
    yield shop
    pool.close_all()


def doubled() -> rlx.Graph:
    graph = rlx.Graph("double")
    graph.set_outputs([graph.input("x", (8,)) * 2.0])
    return graph


def test_it_is_one_device_like_the_twelve(shop: Shop) -> None:
    """The device is one object by every way and across processes; no enum member."""
    made = parse_device("made")
    assert made is parse_device(" MADE ") is Device("made") is parse_device(made)
    assert made is pickle.loads(pickle.dumps(made))
    assert made is copy.copy(made) is copy.deepcopy(made)
    assert {made: 1}[parse_device("made")] == 1
    assert made == "made"
    assert isinstance(made, Device)
    assert (made.label, made.display, f"{made}", str(made)) == ("made", *["Made"] * 3)
    assert json.loads(json.dumps([made, Device.CPU])) == ["made", "cpu"]
    assert repr(made) == "<Device.MADE: 'made'>"
    assert made not in list(Device)
    assert len(Device) == 12
    for device in Device:
        assert pickle.loads(pickle.dumps(device)) is device


def test_its_name_is_known_only_while_it_has_an_engine(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name without an engine is unknown, and what is near it is suggested."""
    with pytest.raises(UnknownDevice, match=r"did you mean 'made'\?"):
        parse_device("maed")
    assert parse_device_list("cpu,made") == (Device.CPU, Device("made"))
    monkeypatch.delitem(ROWS, "made")
    with pytest.raises(UnknownDevice, match="unknown device 'made'"):
        parse_device("made")
    with pytest.raises(ValueError, match="'made' is not a valid Device"):
        Device("made")


def test_it_ranks_behind_what_rlx_ranks(shop: Shop) -> None:
    """One that "auto" may take comes before the CPU, one that waits after it."""
    assert fastest_among("made,cpu") is Device.CPU
    assert fastest_among(["made"]) == "made"
    ROWS["made"] = shop.row(named_only=False)
    assert fastest_among("made,cpu,opengl") is Device.OPENGL
    assert fastest_among("cpu,made") == "made"


def test_auto_leaves_it_alone(shop: Shop) -> None:
    """A device that is not named is not even opened."""
    runner = rlx.GraphDevices(doubled())
    assert runner.devices == available_devices() == (Device.CPU,)
    assert runner.run_chain({"x": X})[0] is Device.CPU
    assert [p.label for p in available_places()] == ["cpu"]
    rlx.Session("auto").compile(doubled()).run({"x": X})
    assert rlx.welch_peaks(SIGNAL, fs=256, k=2).device is Device.CPU
    rows = {row.label: row for row in rlx.device_report()}
    assert not rows["made"].available
    assert rows["made"].blocker.startswith("named only")
    assert shop.opened == []


def listed(row: DeviceRow) -> tuple[bool, bool, str]:
    return row.available, row.named_only, row.engine


def test_a_policy_or_a_variable_that_names_it_opens_it(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = parse_device("made")
    assert is_available("made")
    assert DevicePolicy.all().permits("made")
    assert not DevicePolicy.all().with_deny("made").permits("made")
    assert DevicePolicy.only("made").candidates == (made,)
    assert DevicePolicy.all().with_prefer("made").candidates[0] is made
    assert rlx.GraphDevices(doubled(), DevicePolicy.only("made")).devices == (made,)
    (row,) = rlx.device_report(policy=DevicePolicy.only("made"))
    assert listed(row) == (True, True, "Made 1.0")
    monkeypatch.setenv("RLX_DEVICES", "made")
    assert rlx.welch_peaks(SIGNAL, fs=256, k=2).device is made


def test_naming_it_runs_there_by_every_way(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, graph = parse_device("made"), doubled()
    runner = rlx.GraphDevices(graph)
    router = rlx.DeviceRouter(graph)
    ran = {
        "session": rlx.Session("made").compile(graph).run({"x": X})[0],
        "run": runner.run("made", {"x": X})[0],
        "resolved": runner.run_resolved("made", {"x": X})[0],
        "try": runner.run_try(["made", "cpu"], {"x": X})[1][0],
        "chain": runner.run_chain(["made"], {"x": X})[1][0],
        "router": router.run_chain(["made"], {"x": X})[1][0],
    }
    for how, out in ran.items():
        np.testing.assert_array_equal(out, X * 2, how)
    assert runner.last_device is made
    assert runner.run_chain("made", {"x": X})[0] is made
    assert runner.devices == (Device.CPU,)
    assert resolve_device(graph, "made") is made
    assert resolve_device_chain(graph, "made,cpu") is made
    assert run_with_fallback(graph, "made", lambda d: d.label)[1] == "made"
    found = rlx.welch_peaks(SIGNAL, fs=256, k=2, device="made")
    assert found.device is made
    assert "Made" in found.explain() or "made" in found.explain()
    monkeypatch.setenv("RLX_DEVICE", "made")
    assert resolve_device(graph) is made
    assert rlx.GraphDevices(graph).resolve() is made
    monkeypatch.delenv("RLX_DEVICE")
    monkeypatch.setenv("RLX_DEVICE_CHAIN", "made")
    assert rlx.GraphDevices(graph).run_chain({"x": X})[0] is made


def test_a_policy_that_denies_it_is_kept_where_it_is_named(shop: Shop) -> None:
    runner = rlx.GraphDevices(doubled(), DevicePolicy.all().with_deny("made"))
    with pytest.raises(Unsupported, match="Made"):
        runner.run("made", {"x": X})
    assert shop.opened == []


def test_a_device_that_is_missing_says_why_wherever_it_is_asked_for(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing device is refused with the reason and how to get it."""

    async def never(adapter: str) -> Backend:
        raise AssertionError("it was tried")

    gone = Row(never, present=lambda: "no driver", hint="install one")
    monkeypatch.setitem(ROWS, "cuda", gone)
    runner = rlx.GraphDevices(doubled())
    for ask in (
        lambda: rlx.Session("cuda"),
        lambda: runner.run("cuda", {"x": X}),
        lambda: runner.resolve("cuda"),
        lambda: rlx.welch_peaks(SIGNAL, fs=256, k=2, device="cuda"),
    ):
        with pytest.raises(DeviceError, match=r"no driver;.* install one"):
            ask()


def test_in_a_tab_only_what_must_wait_is_kept_from_blocking_code(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that computes then and there is priced and measured as elsewhere."""
    place = parse_place("made")
    for name in ("can_wait", "can_block"):
        monkeypatch.setattr(f"rlxweb.calibration.known.{name}", lambda: False)
    monkeypatch.setattr("rlxweb.calibration.known.UNASKED_S", 0.1)
    monkeypatch.setenv("RLX_CALIBRATION", "lazy")
    before = priced(place, ())
    assert isinstance(before, Priced)
    assert before.source == "assumed"
    shop.opened[0].waits = True
    assert priced(place, ()) == CANNOT_WAIT
    places = Place(Device.CPU), place
    measure_if_worth_it(places, lambda p: ("run",), 1e12, Worth())
    assert priced(place, ()) == CANNOT_WAIT
    shop.opened[0].waits = False
    measure_if_worth_it(places, lambda p: ("run",), 1e12, Worth())
    now = priced(place, ())
    assert isinstance(now, Priced)
    assert now.source == "calibrated"


def test_two_compilers_on_one_driver_are_two_engines(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was measured of shaders by the one says nothing of the other."""
    monkeypatch.setitem(ROWS, "other", shop.row())
    places = parse_place("made"), parse_place("other")
    assert distinct(places) == places[:1]
    shop.opened[1].compiler = "Tint 7"
    assert distinct(places) == places
    assert identity_of(places[0]) != identity_of(places[1])
    shop.opened[0].compiler = "Tint 7"
    assert distinct(places) == places[:1]


def test_it_is_measured_and_priced(shop: Shop) -> None:
    """A record is kept under the engine's own name, and `explain` shows its price."""
    assert parse_place("made:x") == Place(parse_device("made"), "x")
    record, _ = measure_now(parse_place("made"), budget_s=0.2)
    assert (record.engine, record.backend, record.device) == (
        "Made 1.0",
        "made",
        "made",
    )
    runner = rlx.GraphDevices(doubled(), DevicePolicy.only(["made", "cpu"]))
    runner.run_resolved({"x": X})
    assert "Made 1.0     predicted" in runner.explain()


@pytest.mark.parametrize(
    ("label", "engine"),
    [
        pytest.param("torch-cpu", "PyTorch", marks=pytest.mark.requires_torch),
        pytest.param("jax-cpu", "JAX", marks=pytest.mark.requires_jax),
        pytest.param("mlx", "MLX", marks=pytest.mark.requires_mlx),
    ],
)
def test_the_engines_of_other_libraries_are_used_where_they_are_named(
    label: str, engine: str
) -> None:
    """An engine of a library runs peaks and a graph in a chain, right and by name."""
    x = np.random.default_rng(5).standard_normal((3, 2048)).astype(np.float32)
    found = rlx.welch_peaks(x, fs=256, k=3, device=label)
    right = rlx.welch_peaks(x, fs=256, k=3, device="cpu")
    assert (found.device.label, found.engine.partition(" ")[0]) == (label, engine)
    np.testing.assert_array_equal(found.bins, right.bins)
    np.testing.assert_allclose(found.power, right.power, rtol=1e-4)
    graph = rlx.Graph("product")
    a = graph.input("a", (8, 16))
    graph.set_outputs([graph.softmax(a @ graph.param("w", (16, 4)))])
    runner = rlx.GraphDevices(graph)
    w = x[0, :64].reshape(16, 4)
    runner.set_param("w", w)
    given = {"a": x[1, :128].reshape(8, 16)}
    device, (out,) = runner.run_chain([label, "cpu"], given)
    assert device.label == label
    np.testing.assert_allclose(out, runner.run("cpu", given)[0], rtol=1e-4, atol=1e-6)
