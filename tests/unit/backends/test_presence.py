"""What is missing for an engine, seen without loading a library."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from importlib import invalidate_caches
from pathlib import Path
from types import ModuleType

import pytest

from rlxweb.backends import presence
from rlxweb.backends.registry import ROWS, blocker, look_again, named_only
from rlxweb.choose.report import device_report
from rlxweb.devices.policy import DevicePolicy
from tests.command_line import ROOT

Machine = Callable[..., None]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """A machine with these modules, driver files and system, and nothing else."""

    def make(
        *modules: str,
        drivers: tuple[str, ...] = (),
        torch: str = "",
        system: str = "linux",
    ) -> None:
        monkeypatch.setattr(presence, "importable", lambda name: name in modules)
        monkeypatch.setattr(presence, "torch_version", lambda: torch)
        monkeypatch.setattr(presence, "_loads", lambda name: name in drivers)
        monkeypatch.setattr(presence, "_there", lambda name: name in drivers)
        home = "core.so" if "mlx" in modules else ""
        monkeypatch.setattr(presence, "_mlx_home", lambda: home)
        monkeypatch.setattr(presence, "_version_beside", lambda name, origin: "")
        monkeypatch.setattr(presence.os, "access", lambda path, mode: True)
        monkeypatch.setattr(sys, "platform", system)
        look_again()

    yield make
    monkeypatch.undo()
    look_again()


NVIDIA, AMD, TPU = "libcuda.so.1", "/dev/kfd", "/dev/accel[0-9]*"


@pytest.mark.parametrize(
    ("label", "modules", "drivers", "torch", "words"),
    [
        ("cuda", ("cupy",), (NVIDIA,), "", ""),
        ("cuda", ("torch",), (NVIDIA,), "2.9.0+cu128", ""),
        ("cuda", ("torch",), (NVIDIA,), "2.9.0", ""),
        ("cuda", ("torch",), (NVIDIA,), "2.9.0+cpu", "2.9.0+cpu is built without CUDA"),
        ("cuda", ("torch",), (NVIDIA,), "2.9+rocm6.4", "built without CUDA"),
        ("cuda", (), (NVIDIA,), "", "CuPy is not installed; PyTorch is not installed"),
        ("cuda", ("cupy",), (), "", "no NVIDIA driver (libcuda.so.1 is not found)"),
        ("rocm", ("cupy",), (AMD,), "", ""),
        ("rocm", ("torch",), (AMD,), "2.9.0+rocm6.4", ""),
        (
            "rocm",
            ("torch",),
            (AMD,),
            "2.9.0+cu128",
            "2.9.0+cu128 is built without ROCm",
        ),
        ("rocm", ("cupy",), (), "", "no AMD driver (/dev/kfd is not there)"),
        ("tpu", ("jax",), (TPU,), "", ""),
        ("tpu", ("jax",), (), "", "no TPU here"),
        ("tpu", (), (TPU,), "", "JAX is not installed"),
        ("mlx", (), (), "", "MLX is not installed; PyTorch's Metal engine needs macOS"),
        ("mlx", ("mlx",), (), "", ""),
        ("torch-cpu", ("torch",), (), "2.9.0", ""),
        ("torch-cpu", (), (), "", "PyTorch is not installed"),
        ("jax-cpu", (), (), "", "JAX is not installed"),
        ("ane", ("cupy", "torch", "jax", "mlx"), (), "", "only Core ML"),
    ],
)
def test_what_is_missing_is_named(
    machine: Machine,
    label: str,
    modules: tuple[str, ...],
    drivers: tuple[str, ...],
    torch: str,
    words: str,
) -> None:
    machine(*modules, drivers=drivers, torch=torch)
    said = blocker(label)
    assert words in said
    assert bool(said) == bool(words)


def test_metal_and_mlx_on_a_mac(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a Mac MLX is the Apple GPU; elsewhere it is the CPU and waits to be named."""
    machine("wgpu", system="darwin")
    assert blocker("metal") == ""
    assert "PyTorch's Metal engine needs Apple silicon" in blocker("mlx")
    monkeypatch.setattr("platform.machine", lambda: "arm64")
    look_again()
    assert blocker("mlx") == "MLX is not installed; PyTorch is not installed"
    machine("torch", torch="2.9.0", system="darwin")
    assert blocker("mlx") == ""
    machine("mlx", system="darwin")
    assert (blocker("mlx"), named_only("mlx")) == ("", False)
    machine("mlx")
    assert named_only("mlx")


def test_mlx_with_cuda_is_a_gpu(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine("mlx", drivers=(NVIDIA,))
    assert named_only("mlx")
    has = {"mlx-cuda-12": "0.32.4"}
    monkeypatch.setattr(presence, "_version_beside", lambda name, at: has.get(name, ""))
    look_again()
    assert not named_only("mlx")
    machine("mlx")
    assert named_only("mlx")


def test_no_permission_is_no_driver(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine("cupy", drivers=(AMD,))
    monkeypatch.setattr(presence.os, "access", lambda path, mode: False)
    look_again()
    assert "no permission to use /dev/kfd (join the group 'render')" in blocker("rocm")


def test_a_module_is_found_without_being_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that happens to have MLX's name is not MLX; nor is it imported."""
    (tmp_path / "brokenlib.py").write_text("1 / 0")
    (tmp_path / "mlx").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert presence.importable("brokenlib")
    assert "brokenlib" not in sys.modules
    assert not presence.importable("no_such_library")
    assert presence.mlx() == "MLX is not installed"
    (tmp_path / "mlx" / "core.py").write_text("1 / 0")
    invalidate_caches()  # a folder's time is too coarse to show that it changed
    assert presence.mlx() == ""
    made = ModuleType("by_hand")
    made.__spec__ = None
    monkeypatch.setitem(sys.modules, "by_hand", made)
    assert presence.importable("by_hand")


def test_every_row_that_can_be_missing_says_how_to_get_it() -> None:
    """Every row of the table has a hint but those that the system itself brings."""
    own = {"cpu", "gpu", "vulkan", "opengl", "directx", "metal", "webgpu", "ane"}
    silent = {label for label, row in ROWS.items() if not row.hint}
    assert silent == own


PAGE = ROOT / "site" / "pages" / "howto" / "choose-a-device.md"


def test_the_manual_has_a_line_for_every_row() -> None:
    """The manual says of every device whether "auto" waits for its name."""
    lines = re.findall(r"^\| (`.*?) \|.*\| *(.*?) *\|$", PAGE.read_text(), re.M)
    table = {
        label: takes
        for labels, takes in lines
        for label in re.findall(r"`([\w-]+)`", labels)
        if label in ROWS
    }
    assert set(table) == set(ROWS)
    waits = {label for label, takes in table.items() if takes == "when it is named"}
    assert waits == {label for label, row in ROWS.items() if row.named_only is True}
    assert table["mlx"] == "where it has a GPU"
    assert callable(ROWS["mlx"].named_only)


def test_every_extra_that_is_named_exists() -> None:
    """Extras that the manual or a hint names exist."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    said = PAGE.read_text("utf-8") + "".join(row.hint for row in ROWS.values())
    named = set(re.findall(r"rlxweb\[(\w+)\]", said))
    assert named
    assert named <= set(project["optional-dependencies"])


def test_what_was_missing_is_looked_for_once_until_a_report(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A choice among devices asks of each what is cheap; a report looks anew."""
    machine(drivers=(NVIDIA,))
    assert "CuPy is not installed" in blocker("cuda")
    monkeypatch.setattr(presence, "importable", lambda name: name == "cupy")
    assert "CuPy is not installed" in blocker("cuda")
    device_report(policy=DevicePolicy.only("cpu"))
    assert blocker("cuda") == ""
