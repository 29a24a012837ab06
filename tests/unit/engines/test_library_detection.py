"""Detection of an engine's missing libraries and drivers, without loading a library."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from importlib import invalidate_caches
from pathlib import Path
from types import ModuleType

import pytest

from rlxweb.engines import library_detection
from rlxweb.engines.registry import (
    ROWS,
    absence_reason,
    clear_detection_caches,
    is_named_only,
)
from rlxweb.select.device_report import device_report
from rlxweb.select.policy import DevicePolicy
from tests.cli_runners import ROOT

ConfigureMachine = Callable[..., None]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[ConfigureMachine]:
    """Return a function that simulates a machine with only these modules, drivers and
    system.
    """

    def configure(
        *modules: str,
        drivers: tuple[str, ...] = (),
        torch: str = "",
        system: str = "linux",
    ) -> None:
        monkeypatch.setattr(
            library_detection, "is_importable", lambda name: name in modules
        )
        monkeypatch.setattr(library_detection, "torch_version", lambda: torch)
        monkeypatch.setattr(
            library_detection, "_can_load_library", lambda name: name in drivers
        )
        monkeypatch.setattr(
            library_detection, "_path_exists", lambda name: name in drivers
        )
        mlx_file = "core.so" if "mlx" in modules else ""
        monkeypatch.setattr(library_detection, "_mlx_core_path", lambda: mlx_file)
        monkeypatch.setattr(
            library_detection, "_cached_version", lambda name, origin: ""
        )
        monkeypatch.setattr(library_detection.os, "access", lambda path, mode: True)
        monkeypatch.setattr(sys, "platform", system)
        clear_detection_caches()

    yield configure
    monkeypatch.undo()
    clear_detection_caches()


NVIDIA_DRIVER, AMD_DRIVER, TPU_DRIVER = "libcuda.so.1", "/dev/kfd", "/dev/accel[0-9]*"


@pytest.mark.parametrize(
    ("label", "modules", "drivers", "torch", "words"),
    [
        ("cuda", ("cupy",), (NVIDIA_DRIVER,), "", ""),
        ("cuda", ("torch",), (NVIDIA_DRIVER,), "2.9.0+cu128", ""),
        ("cuda", ("torch",), (NVIDIA_DRIVER,), "2.9.0", ""),
        (
            "cuda",
            ("torch",),
            (NVIDIA_DRIVER,),
            "2.9.0+cpu",
            "2.9.0+cpu is built without CUDA",
        ),
        ("cuda", ("torch",), (NVIDIA_DRIVER,), "2.9+rocm6.4", "built without CUDA"),
        (
            "cuda",
            (),
            (NVIDIA_DRIVER,),
            "",
            "CuPy is not installed; PyTorch is not installed",
        ),
        ("cuda", ("cupy",), (), "", "no NVIDIA driver (libcuda.so.1 not found)"),
        ("rocm", ("cupy",), (AMD_DRIVER,), "", ""),
        ("rocm", ("torch",), (AMD_DRIVER,), "2.9.0+rocm6.4", ""),
        (
            "rocm",
            ("torch",),
            (AMD_DRIVER,),
            "2.9.0+cu128",
            "2.9.0+cu128 is built without ROCm",
        ),
        ("rocm", ("cupy",), (), "", "no AMD driver (/dev/kfd not found)"),
        ("tpu", ("jax",), (TPU_DRIVER,), "", ""),
        ("tpu", ("jax",), (), "", "no TPU ("),
        ("tpu", (), (TPU_DRIVER,), "", "JAX is not installed"),
        ("mlx", (), (), "", "MLX is not installed; PyTorch's Metal engine needs macOS"),
        ("mlx", ("mlx",), (), "", ""),
        ("torch-cpu", ("torch",), (), "2.9.0", ""),
        ("torch-cpu", (), (), "", "PyTorch is not installed"),
        ("jax-cpu", (), (), "", "JAX is not installed"),
        ("ane", ("cupy", "torch", "jax", "mlx"), (), "", "only Core ML"),
    ],
)
def test_missing_requirement_is_named(
    machine: ConfigureMachine,
    label: str,
    modules: tuple[str, ...],
    drivers: tuple[str, ...],
    torch: str,
    words: str,
) -> None:
    machine(*modules, drivers=drivers, torch=torch)
    reason = absence_reason(label)
    assert words in reason
    assert bool(reason) == bool(words)


def test_metal_and_mlx_on_a_mac(
    machine: ConfigureMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MLX is the Apple GPU on a Mac; elsewhere it is the CPU and is used only when
    named.
    """
    machine("wgpu", system="darwin")
    assert absence_reason("metal") == ""
    assert "PyTorch's Metal engine needs Apple silicon" in absence_reason("mlx")
    monkeypatch.setattr("platform.machine", lambda: "arm64")
    clear_detection_caches()
    assert absence_reason("mlx") == "MLX is not installed; PyTorch is not installed"
    machine("torch", torch="2.9.0", system="darwin")
    assert absence_reason("mlx") == ""
    machine("mlx", system="darwin")
    assert (absence_reason("mlx"), is_named_only("mlx")) == ("", False)
    machine("mlx")
    assert is_named_only("mlx")


def test_mlx_with_cuda_is_a_gpu(
    machine: ConfigureMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine("mlx", drivers=(NVIDIA_DRIVER,))
    assert is_named_only("mlx")
    versions = {"mlx-cuda-12": "0.32.4"}
    monkeypatch.setattr(
        library_detection, "_cached_version", lambda name, at: versions.get(name, "")
    )
    clear_detection_caches()
    assert not is_named_only("mlx")
    machine("mlx")
    assert is_named_only("mlx")


def test_driver_without_permission_is_missing(
    machine: ConfigureMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine("cupy", drivers=(AMD_DRIVER,))
    monkeypatch.setattr(library_detection.os, "access", lambda path, mode: False)
    clear_detection_caches()
    assert (
        "no permission to use /dev/kfd (add your user to the group 'render')"
        in absence_reason("rocm")
    )


def test_module_is_detected_without_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Detection imports nothing; a folder that happens to be called `mlx` is not
    MLX.
    """
    (tmp_path / "brokenlib.py").write_text("1 / 0")
    (tmp_path / "mlx").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert library_detection.is_importable("brokenlib")
    assert "brokenlib" not in sys.modules
    assert not library_detection.is_importable("no_such_library")
    assert library_detection.mlx_absence() == "MLX is not installed"
    (tmp_path / "mlx" / "core.py").write_text("1 / 0")
    invalidate_caches()  # a folder's time is too coarse to show that it changed
    assert library_detection.mlx_absence() == ""
    module_without_spec = ModuleType("by_hand")
    module_without_spec.__spec__ = None
    monkeypatch.setitem(sys.modules, "by_hand", module_without_spec)
    assert library_detection.is_importable("by_hand")


def test_every_optional_row_has_an_install_hint() -> None:
    """Every registry row has a hint except those that the system itself provides."""
    provided_by_system = {
        "cpu",
        "gpu",
        "vulkan",
        "opengl",
        "directx",
        "metal",
        "webgpu",
        "ane",
    }
    without_hint = {label for label, row in ROWS.items() if not row.hint}
    assert without_hint == provided_by_system


PAGE = ROOT / "site" / "pages" / "howto" / "choose-a-device.md"


def test_the_manual_has_a_line_for_every_row() -> None:
    """The manual says for every device whether "auto" uses it only when it is named."""
    lines = re.findall(r"^\| (`.*?) \|.*\| *(.*?) *\|$", PAGE.read_text(), re.M)
    table = {
        label: condition
        for labels, condition in lines
        for label in re.findall(r"`([\w-]+)`", labels)
        if label in ROWS
    }
    assert set(table) == set(ROWS)
    named_only_labels = {
        label for label, condition in table.items() if condition == "when it is named"
    }
    assert named_only_labels == {
        label for label, row in ROWS.items() if row.named_only is True
    }
    assert table["mlx"] == "where it has a GPU"
    assert callable(ROWS["mlx"].named_only)


def test_every_mentioned_extra_exists() -> None:
    """Extras mentioned in the manual or in a hint exist."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    texts = PAGE.read_text("utf-8") + "".join(row.hint for row in ROWS.values())
    extras = set(re.findall(r"rlxweb\[(\w+)\]", texts))
    assert extras
    assert extras <= set(project["optional-dependencies"])


def test_detection_is_cached_until_a_report(
    machine: ConfigureMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cheap detection for device choice is cached; a report looks again."""
    machine(drivers=(NVIDIA_DRIVER,))
    assert "CuPy is not installed" in absence_reason("cuda")
    monkeypatch.setattr(library_detection, "is_importable", lambda name: name == "cupy")
    assert "CuPy is not installed" in absence_reason("cuda")
    device_report(policy=DevicePolicy.only("cpu"))
    assert absence_reason("cuda") == ""
