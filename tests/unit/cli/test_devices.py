"""Command `rlxweb devices`: every device, available or not, and the reason."""

from __future__ import annotations

import re
import time
from unittest.mock import Mock

import pytest
from click.shell_completion import ShellComplete

from rlxweb.cli.main import LazyGroup
from rlxweb.core.device import Device
from rlxweb.core.errors import AdapterMissing
from rlxweb.engines import library_detection
from rlxweb.engines.pool import pool
from rlxweb.engines.registry import ROWS
from rlxweb.engines.registry_row import EngineLibrary, row_from_libraries
from rlxweb.gpu.adapter_selection import adapter_missing_error
from rlxweb.gpu.port_protocol import AdapterRequest
from tests.cli_runners import CommandRunner, check_rejected, run_cli
from tests.numpy_test_engine import NumpyTestEngineOpener
from tests.pseudo_terminal import run_in_terminal


def test_the_report_names_every_device(call: CommandRunner) -> None:
    """Each device has a row; a missing one has a reason, an available one its
    engine.
    """
    result = call("devices", "--json")
    assert result.code == 0
    document = result.document
    assert document["schema"] == "rlxweb.devices/1"
    labels = [row["device"] for row in document["devices"]]
    assert labels[: len(Device)] == [d.label for d in Device]
    for row in document["devices"]:
        assert bool(row["engine"]) == row["available"]
        assert bool(row["blocker"]) != row["available"]
    assert document["devices"][0]["available"]
    assert {"python", "numpy", "wgpu"} <= set(document["versions"])


def test_table_holds_every_device(call: CommandRunner) -> None:
    result = call("devices")
    assert result.code == 0
    lines = result.out.splitlines()
    assert all(any(line.strip().startswith(d.label) for line in lines) for d in Device)
    assert "adapter:" not in result.out


@pytest.mark.requires_wgpu
def test_verbose_shows_limits_and_adapters(call: CommandRunner) -> None:
    result = call("devices", "-v")
    assert "max_compute_invocations_per_workgroup" in result.out
    assert "adapter: " in result.out
    document = call("devices", "--json").document
    assert {"name", "backend", "driver", "software", "vendor"} == set(
        document["adapters"][0]
    )


@pytest.mark.requires_wgpu
def test_the_process_ends_when_the_list_is_printed() -> None:
    """Open devices are closed at exit at once, not after a deadline of 30 s."""
    start_s = time.monotonic()
    result = run_cli("devices")
    assert result.code == 0
    assert time.monotonic() - start_s < 20


def test_a_machine_without_wgpu_is_not_an_error(
    call: CommandRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list is printed all the same, and NumPy is always available."""
    error = AdapterMissing("looking for a GPU", "wgpu cannot be used")
    monkeypatch.setattr(
        "rlxweb.cli.devices_command.list_adapters", Mock(side_effect=error)
    )
    monkeypatch.setattr("rlxweb.select.availability.pool.engine", _open_cpu_only)
    result = call("devices", "-v")
    assert result.code == 0
    assert (
        "only NumPy is available: looking for a GPU: wgpu cannot be used" in result.out
    )
    document = call("devices", "--json").document
    assert document["adapters"] == []
    assert "wgpu cannot be used" in document["no_adapters"]
    assert [r["device"] for r in document["devices"] if r["available"]] == ["cpu"]


def _open_cpu_only(label: str, adapter: str = "") -> object:
    from rlxweb.engines.cpu import CpuEngine

    if label != "cpu":
        raise AdapterMissing(f"open device '{label}'", "no driver")
    return CpuEngine()


@pytest.mark.parametrize(
    ("words", "prefix", "included", "excluded"),
    [
        (["welch", "--device"], "", {"auto", "cpu", "cuda", "torch-cpu"}, set()),
        (["calibrate", "--device"], "to", {"torch-cpu"}, {"cpu", "auto"}),
        (["devices"], "", {"jax-cpu", "opengl"}, {"auto"}),
    ],
)
def test_a_shell_completes_the_names_of_all_devices(
    words: list[str], prefix: str, included: set[str], excluded: set[str]
) -> None:
    group = LazyGroup()
    items = ShellComplete(group, {}, "rlxweb", "X").get_completions(words, prefix)
    completions = {item.value for item in items}
    assert included <= completions
    assert not excluded & completions


def test_only_named_devices_are_opened(
    call: CommandRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A misspelled name gets a suggestion; a named-only device is opened when named,
    and marked.
    """
    shop = NumpyTestEngineOpener()
    monkeypatch.setitem(ROWS, "made", shop.registry_row())
    (row,) = call("devices", "made", "--json").document["devices"]
    assert (row["available"], row["named_only"]) == (True, True)
    assert len(shop.opened) == 1
    result = call("devices", "made", "cpu")
    assert "Made 1.0 (used only if named)" in result.out
    assert "vulkan" not in result.out
    pool.close_all()
    result = call("devices")
    (line,) = [line for line in result.out.splitlines() if line.strip()[:4] == "made"]
    assert "named only: its library is installed, but used only when" in line
    assert len(shop.opened) == 1
    check_rejected(call("devices", "maade"), 2, "did you mean 'made'?")


def test_verbose_shows_how_to_install_missing_library(
    call: CommandRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library_detection, "is_importable", lambda name: False)
    assert "pip install 'rlxweb[cuda]'" in call("devices", "cuda", "-v").out


def test_skipped_library_is_reported(
    call: CommandRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The report says which library serves the device, and why not the one before
    it.
    """
    shop = NumpyTestEngineOpener()
    first = EngineLibrary("First", lambda: "First is not installed", shop.open_engine)
    row = row_from_libraries(
        "made", first, EngineLibrary("Second", lambda: "", shop.open_engine)
    )
    monkeypatch.setitem(ROWS, "made", row)
    pool.close_all()
    output = " ".join(call("devices", "made", "-v").out.split())
    assert "yes Made 1.0" in output
    assert "passed over: First: First is not installed" in output
    pool.close_all()


def test_piped_lines_have_no_trailing_blanks(call: CommandRunner) -> None:
    lines = call("devices", "-v").out.splitlines()
    assert [line for line in lines if line != line.rstrip()] == []
    detail_lines = [line for line in lines if line.startswith(" " * 20)]
    assert max(map(len, detail_lines)) < 160


def test_device_list_does_not_advise_itself(call: CommandRunner) -> None:
    output = call("devices", "-v").out
    assert "`rlxweb devices`" not in output
    assert "metal" in output


def test_row_without_adapter_does_not_advise_device_list(
    call: CommandRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine without a driver is simulated, whatever this one has."""
    fail_to_open = Mock(
        side_effect=adapter_missing_error(AdapterRequest(("vulkan",)), ())
    )
    monkeypatch.setattr(pool, "engine", fail_to_open)
    output = call("devices", "vulkan", "-v").out
    assert "no adapter was found" in output
    assert "`rlxweb devices`" not in output


def test_eighty_columns_hold_every_fact() -> None:
    code, output = run_in_terminal("devices", "cpu", "gpu", "metal", "-v")
    assert code == 0
    table = re.sub(r"\x1b\[[0-9;]*m", "", output[: output.index("native CPU code")])
    assert max(len(line) for line in table.splitlines()) <= 80, table
    assert "dtypes:" in output
