"""A device goes while arrays lie on it: what is gone is named, the rest goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.backends.pool import pool
from rlxweb.errors import DeviceLost, GpuTimeout, InputError, OutOfMemory
from rlxweb.gpu.drive import drive
from tests.fake_port import KINDS, STRIKES, Failure, Kind
from tests.faults.test_session_faults import Workplace, layer, with_ones
from tests.faults.test_session_faults import workplace as workplace
from tests.ports import TELLS

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def workload() -> str:
    """Put, compile, run from there to there, hand a param over, read back."""
    session = rlx.Session("vulkan")
    told = ""
    with rlx.put(X, "vulkan") as x:
        compiled = with_ones(session.compile(layer(3)))
        try:
            first, _ = compiled.run({"x": x}, keep=True)
            compiled.set_param("w", first)
            second, back = compiled.run({"x": first}, keep=(0,))
            np.testing.assert_array_equal(second.numpy(), 3 * (X * 2 + 1))
            np.testing.assert_array_equal(back, X * 2 + 1)
            told = " ".join(map(str, compiled.attempts))
        finally:
            compiled.close()
    session.close()
    return told


@pytest.mark.parametrize("kind", KINDS)
def test_every_failure_at_every_call(
    kind: Kind, workplace: Callable[..., Workplace]
) -> None:
    """Every call may fail: the run is right or tells, and the next one is right.

    Nothing is left alive.
    """
    place = workplace()
    workload()
    verbs = list(place.ports[0].calls)
    for at, verb in enumerate(verbs, 1):
        if verb not in STRIKES[kind]:
            continue
        place, told = workplace(Failure(at, kind)), ""
        try:
            told = workload()
        except TELLS[kind] as error:
            told = str(error)
        assert told or kind == "lost-unseen", f"{kind} at call {at} ({verb}) was silent"
        if verb == "open":
            pool.close_all()
        workload()
        pool.close_all()
        assert all(not port.live for port in place.ports), f"{kind} at call {at}"


def lost_in(workplace: Any, kind: Kind = "lost") -> tuple[Any, Any]:
    """A compiled layer and an array, on a device whose next submission is its last."""
    place = workplace()
    compiled = with_ones(rlx.Session("vulkan").compile(layer(3)))
    x = rlx.put(X, "vulkan")
    verb = "read" if kind == "timeout" else "submit"
    place.ports[0]._pending.append(Failure(verb, kind))
    return compiled, x


@pytest.mark.parametrize(
    ("kind", "error"), [("lost", DeviceLost), ("timeout", GpuTimeout)]
)
def test_an_input_that_is_gone_is_named(
    kind: Kind, error: type[Exception], workplace: Callable[..., Workplace]
) -> None:
    """The run is not done again; with the input put anew it is."""
    compiled, x = lost_in(workplace, kind)
    said = "input 'x' lay on the device alone, so it cannot be done again; put what is"
    with pytest.raises(error, match=said):
        compiled.run({"x": x})
    with pytest.raises(DeviceLost, match=r"was lost with fake.*put it there again"):
        x.numpy()
    assert "lost" in repr(x)
    with pytest.raises(DeviceLost, match="input 'x': the array was lost"):
        compiled.run({"x": x})
    again = rlx.put(X, "vulkan")
    y, _ = compiled.run({"x": again}, keep=True)
    np.testing.assert_array_equal(y.numpy(), X * 2 + 1)
    assert [a.error == "" for a in compiled.attempts] == [False, True]
    x.close()


def test_a_run_from_the_host_is_done_again_and_stays_there(
    workplace: Callable[..., Workplace],
) -> None:
    """A lost run from the host is done again; its results lie on the new device."""
    compiled, _ = lost_in(workplace)
    y, _ = compiled.run({"x": X}, keep=True)
    np.testing.assert_array_equal(y.numpy(), X * 2 + 1)
    assert [str(a) for a in compiled.attempts][1:] == ["vulkan: succeeded"]


def test_a_run_that_must_not_be_done_again_is_not(
    workplace: Callable[..., Workplace],
) -> None:
    """A strict run is not done again, be its results or its inputs on the device."""
    compiled, _ = lost_in(workplace)
    with pytest.raises(DeviceLost, match="asked to go"):
        compiled.run({"x": X}, keep=True, strict=True)
    with pytest.raises(DeviceLost):
        compiled.run({"x": rlx.put(X, "vulkan")}, strict=True)


def test_a_param_that_is_gone_is_named(workplace: Callable[..., Workplace]) -> None:
    """A param that is gone is named by the run that finds it gone.

    Later runs ask for it, and it can be set again.
    """
    compiled, x = lost_in(workplace)
    place = compiled._placed.ready.backend.port
    place._pending.clear()
    compiled.set_param("w", x)
    place._pending.append(Failure("submit", "lost"))
    with pytest.raises(DeviceLost, match="param 'w' lay on the device alone"):
        compiled.run({"x": X})
    for keep in (False, True):
        with pytest.raises(InputError, match="param 'w' has no value; 1 of 1"):
            compiled.run({"x": X}, keep=keep)
    compiled.set_param("w", rlx.put(X, "vulkan"))
    np.testing.assert_array_equal(compiled.run({"x": X})[0], X * 3)
    compiled.set_param("w", X)
    np.testing.assert_array_equal(compiled.run({"x": X})[0], X * 3)


def test_a_run_that_follows_another_into_a_loss_asks_for_params_too(
    workplace: Callable[..., Workplace],
) -> None:
    """A param found gone by one thread is no row of zeros for the next."""
    compiled, x = lost_in(workplace)
    compiled._placed.ready.backend.port._pending.clear()
    compiled.set_param("w", x)
    compiled._placed.ready.backend.port._pending.append(Failure("submit", "lost"))
    before = compiled._placed.ready
    with pytest.raises(DeviceLost) as found:
        compiled.run({"x": X})

    async def work(now: Any) -> Any:
        raise AssertionError("it runs without the param")

    with pytest.raises(InputError, match="param 'w' has no value"):
        drive(compiled._placed.again(before, found.value, work))


def test_no_memory_for_put_is_said(workplace: Callable[..., Workplace]) -> None:
    """A `put` without memory is refused, and the next one works."""
    place = workplace()
    one = rlx.put(X, "vulkan")
    place.ports[0]._pending.append(Failure("buffer", "out-of-memory"))
    with pytest.raises(OutOfMemory):
        rlx.put(X, "vulkan")
    np.testing.assert_array_equal(rlx.put(one, "vulkan").numpy(), X)


def test_devices_that_share_a_graph_name_what_is_gone(
    workplace: Callable[..., Workplace],
) -> None:
    """An input that was lost with its device is named, and no other is tried.

    What the run needs lies on none.
    """
    place = workplace()
    runner = rlx.GraphDevices(layer(3), rlx.DevicePolicy.only(["cpu", "vulkan"]))
    runner.set_param("w", np.ones((3, 4), np.float32))
    x = rlx.put(X, "vulkan")
    y, _ = runner.run_resolved({"x": x}, keep=True)
    assert (runner.last_device, y.device) == (rlx.Device.VULKAN,) * 2
    assert "input 'x' lies there" in runner.explain()
    place.ports[-1]._pending.append(Failure("submit", "lost"))
    with pytest.raises(DeviceLost, match="input 'x' lay on the device alone"):
        runner.run_resolved({"x": x})


@pytest.mark.parametrize("call", [rlx.welch, rlx.welch_peaks])
def test_samples_that_are_gone_are_named(
    call: Callable[..., Any], workplace: Callable[..., Workplace]
) -> None:
    """Samples that were lost with their device are named, and no other way is tried."""
    place = workplace()
    x = rlx.put(np.zeros((3, 256), np.float32), "vulkan")
    call(x)
    for verb in ("submit", "read"):
        place.ports[-1]._pending.append(Failure(verb, "lost"))
        with pytest.raises(DeviceLost, match="x lay on the device alone"):
            call(x)
        with pytest.raises(DeviceLost, match=r"^welch.*: the array was lost.*x lay on"):
            call(x)
        x = rlx.put(np.zeros((3, 256), np.float32), "vulkan")
