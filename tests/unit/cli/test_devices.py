"""`rlxweb devices`: every device, there or not, and why."""

from __future__ import annotations

import time
from unittest.mock import Mock

import pytest

from rlxweb.device import Device
from rlxweb.errors import AdapterMissing
from tests.command_line import Call, spawn


def test_the_report_names_every_device(call: Call) -> None:
    """A row for each; what is missing says why, what is there says what it is."""
    said = call("devices", "--json")
    assert said.code == 0
    record = said.record
    assert record["schema"] == "rlxweb.devices/1"
    assert [row["device"] for row in record["devices"]] == [d.label for d in Device]
    for row in record["devices"]:
        assert bool(row["engine"]) == row["available"]
        assert bool(row["blocker"]) != row["available"]
    assert record["devices"][0]["available"]
    assert {"python", "numpy", "wgpu"} <= set(record["versions"])


def test_the_table_holds_the_same(call: Call) -> None:
    said = call("devices")
    assert said.code == 0
    lines = said.out.splitlines()
    assert all(any(line.strip().startswith(d.label) for line in lines) for d in Device)
    assert "adapter:" not in said.out


@pytest.mark.requires_wgpu
def test_verbose_tells_limits_and_adapters(call: Call) -> None:
    said = call("devices", "-v")
    assert "max_compute_invocations_per_workgroup" in said.out
    assert "adapter: " in said.out
    record = call("devices", "--json").record
    assert {"name", "backend", "driver", "software", "vendor"} == set(
        record["adapters"][0]
    )


@pytest.mark.requires_wgpu
def test_the_process_ends_when_the_list_is_printed() -> None:
    """Open devices are closed at exit at once, not after a deadline of 30 s."""
    begun = time.monotonic()
    said = spawn("devices")
    assert said.code == 0
    assert time.monotonic() - begun < 20


def test_a_machine_without_wgpu_is_not_an_error(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list is what was asked for, and NumPy is always there."""
    none = AdapterMissing("looking for a GPU", "wgpu cannot be used")
    monkeypatch.setattr("rlxweb.cli.devices_command.adapters", Mock(side_effect=none))
    monkeypatch.setattr("rlxweb.devices.availability.pool.backend", _only_cpu)
    said = call("devices", "-v")
    assert said.code == 0
    assert "NumPy only: looking for a GPU: wgpu cannot be used" in said.out
    record = call("devices", "--json").record
    assert record["adapters"] == []
    assert "wgpu cannot be used" in record["no_adapters"]
    assert [r["device"] for r in record["devices"] if r["available"]] == ["cpu"]


def _only_cpu(label: str, adapter: str = "") -> object:
    from rlxweb.backends.cpu import CpuBackend

    if label != "cpu":
        raise AdapterMissing(f"open device '{label}'", "no driver")
    return CpuBackend()
