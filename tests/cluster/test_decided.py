"""Which device ran what share, and the names that the room publishes."""

from __future__ import annotations

from importlib import import_module

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rlxweb.dask
from rlxweb.dask.decided import Decided, Tally
from rlxweb.decision.decision import Decision
from rlxweb.names import _published


def told(devices: list[tuple[str, str]]) -> list[Decided]:
    tally = Tally()
    for device, why in devices:
        tally.note(device, Decision(f"device {device}", why))
    return tally.shares()


def test_reasons_that_differ_in_numbers_only_are_one() -> None:
    """Reasons that differ in numbers only are one, told as the first of them."""
    ran = [("cpu", "no other device is available")]
    ran += [("cuda", f"predicted {ms} ms, next 4.{ms} s") for ms in (1.5, 2, 3)]
    ran += [("cuda", "it was asked for")] * 2
    ran += [("cuda", "slower, and the rest failed")]
    found = told(ran)
    assert [(one.device, one.count) for one in found] == [("cuda", 6), ("cpu", 1)]
    assert found[0].why == "predicted 1.5 ms, next 4.1.5 s"
    assert str(found[1]) == "14 % ran on cpu: no other device is available"
    assert found[1].as_json()["share"] == pytest.approx(1 / 7)


@given(st.lists(st.sampled_from(["cpu", "cuda", "vulkan"]), min_size=1))
def test_shares_are_of_the_whole(devices: list[str]) -> None:
    found = told([(device, "why") for device in devices])
    assert {one.device: one.count for one in found} == {
        device: devices.count(device) for device in devices
    }
    assert sum(one.share for one in found) == pytest.approx(1)
    assert [one.count for one in found] == sorted(
        (o.count for o in found), reverse=True
    )


def test_nothing_ran() -> None:
    assert told([]) == []


@pytest.mark.parametrize("name", rlxweb.dask.__all__)
def test_every_public_name_is_defined_where_it_is_said_to_live(name: str) -> None:
    home = _published["rlxweb.dask"][name]
    assert getattr(rlxweb.dask, name) is getattr(import_module(home), name)
    assert getattr(rlxweb.dask, name).__module__ == home
