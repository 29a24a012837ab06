"""Check the tally of recordings by device, and the names that `rlxweb.dask`
publishes.
"""

from __future__ import annotations

from importlib import import_module

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rlxweb.dask
from rlxweb.batch.cluster.device_usage_counts import DeviceShare, DeviceTally
from rlxweb.core.lazy_names import _published_names
from rlxweb.cost.decision import Decision


def tally_shares(devices: list[tuple[str, str]]) -> list[DeviceShare]:
    """Return the shares of these devices and reasons."""
    tally = DeviceTally()
    for device, why in devices:
        tally.add(device, Decision(f"device {device}", why))
    return tally.shares()


def test_reasons_differing_only_in_numbers_are_merged() -> None:
    """Reasons that differ in numbers only are merged and given as the first of them."""
    decisions = [("cpu", "no other device is available")]
    decisions += [("cuda", f"predicted {ms} ms, next 4.{ms} s") for ms in (1.5, 2, 3)]
    decisions += [("cuda", "it was asked for")] * 2
    decisions += [("cuda", "slower, and the rest failed")]
    shares = tally_shares(decisions)
    assert [(share.device, share.count) for share in shares] == [
        ("cuda", 6),
        ("cpu", 1),
    ]
    assert shares[0].why == "predicted 1.5 ms, next 4.1.5 s"
    assert str(shares[1]) == "14 % ran on cpu: no other device is available"
    assert shares[1].as_json()["share"] == pytest.approx(1 / 7)


@given(st.lists(st.sampled_from(["cpu", "cuda", "vulkan"]), min_size=1))
def test_shares_add_up_to_the_whole(devices: list[str]) -> None:
    shares = tally_shares([(device, "why") for device in devices])
    assert {share.device: share.count for share in shares} == {
        device: devices.count(device) for device in devices
    }
    assert sum(share.share for share in shares) == pytest.approx(1)
    assert [share.count for share in shares] == sorted(
        (o.count for o in shares), reverse=True
    )


def test_nothing_ran() -> None:
    assert tally_shares([]) == []


@pytest.mark.parametrize("name", rlxweb.dask.__all__)
def test_every_public_name_is_defined_in_its_declared_module(name: str) -> None:
    home = _published_names["rlxweb.dask"][name]
    assert getattr(rlxweb.dask, name) is getattr(import_module(home), name)
    assert getattr(rlxweb.dask, name).__module__ == home
