"""`rlxweb devices`: every device, there or not, and why."""

from __future__ import annotations

import re
import time
from unittest.mock import Mock

import pytest
from click.shell_completion import ShellComplete

from rlxweb.backends import presence
from rlxweb.backends.pool import pool
from rlxweb.backends.registry import ROWS
from rlxweb.backends.row import Way, by_libraries
from rlxweb.cli.main import LazyGroup
from rlxweb.device import Device
from rlxweb.errors import AdapterMissing
from rlxweb.gpu.adapters import missing
from rlxweb.gpu.port import Want
from tests.command_line import Call, check_refused, spawn
from tests.made_engine import Shop
from tests.terminal import finished


def test_the_report_names_every_device(call: Call) -> None:
    """A row for each; what is missing says why, what is there says what it is."""
    said = call("devices", "--json")
    assert said.code == 0
    record = said.record
    assert record["schema"] == "rlxweb.devices/1"
    labels = [row["device"] for row in record["devices"]]
    assert labels[: len(Device)] == [d.label for d in Device]
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


@pytest.mark.parametrize(
    ("words", "begun", "some", "not_these"),
    [
        (["welch", "--device"], "", {"auto", "cpu", "cuda", "torch-cpu"}, set()),
        (["calibrate", "--device"], "to", {"torch-cpu"}, {"cpu", "auto"}),
        (["devices"], "", {"jax-cpu", "opengl"}, {"auto"}),
    ],
)
def test_a_shell_completes_the_names_of_all_devices(
    words: list[str], begun: str, some: set[str], not_these: set[str]
) -> None:
    group = LazyGroup()
    found = ShellComplete(group, {}, "rlxweb", "X").get_completions(words, begun)
    said = {item.value for item in found}
    assert some <= said
    assert not not_these & said


def test_devices_that_are_named_are_opened_alone(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A typing error is answered; what waits is opened, and marked."""
    shop = Shop()
    monkeypatch.setitem(ROWS, "made", shop.row())
    (row,) = call("devices", "made", "--json").record["devices"]
    assert (row["available"], row["named_only"]) == (True, True)
    assert len(shop.opened) == 1
    said = call("devices", "made", "cpu")
    assert "Made 1.0 (named only)" in said.out
    assert "vulkan" not in said.out
    pool.close_all()
    said = call("devices")
    (line,) = [line for line in said.out.splitlines() if line.strip()[:4] == "made"]
    assert "named only: it is installed, and opened when somebody names it" in line
    assert len(shop.opened) == 1
    check_refused(call("devices", "maade"), 2, "did you mean 'made'?")


def test_verbose_tells_how_to_get_what_is_missing(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presence, "importable", lambda name: False)
    assert "pip install 'rlxweb[cuda]'" in call("devices", "cuda", "-v").out


def test_what_was_passed_over_is_told(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The report tells which library serves, and why not the one before it."""
    shop = Shop()
    first = Way("First", lambda: "First is not installed", shop.open)
    row = by_libraries("made", first, Way("Second", lambda: "", shop.open))
    monkeypatch.setitem(ROWS, "made", row)
    pool.close_all()
    said = " ".join(call("devices", "made", "-v").out.split())
    assert "yes Made 1.0" in said
    assert "passed over: First: First is not installed" in said
    pool.close_all()


def test_a_pipe_gets_no_blanks_at_line_ends(call: Call) -> None:
    lines = call("devices", "-v").out.splitlines()
    assert [line for line in lines if line != line.rstrip()] == []
    told = [line for line in lines if line.startswith(" " * 20)]
    assert max(map(len, told)) < 160


def test_the_list_of_devices_sends_nobody_to_itself(call: Call) -> None:
    said = call("devices", "-v").out
    assert "`rlxweb devices`" not in said
    assert "metal" in said


def test_nor_does_the_row_of_a_device_without_adapters(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine without a driver is simulated, whatever this one has."""
    none = Mock(side_effect=missing(Want(("vulkan",)), ()))
    monkeypatch.setattr(pool, "backend", none)
    said = call("devices", "vulkan", "-v").out
    assert "no adapter was found" in said
    assert "`rlxweb devices`" not in said


def test_eighty_columns_hold_every_fact() -> None:
    code, said = finished("devices", "cpu", "gpu", "metal", "-v")
    assert code == 0
    table = re.sub(r"\x1b\[[0-9;]*m", "", said[: said.index("compiled code")])
    assert max(len(line) for line in table.splitlines()) <= 80, table
    assert "dtypes:" in said
