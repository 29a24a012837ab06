"""Which adapter is taken, and what is said when none is; on made-up adapters."""

from __future__ import annotations

from dataclasses import fields, replace
from types import SimpleNamespace

import pytest

from rlxweb.gpu import adapters as choice
from rlxweb.gpu.port import Want
from rlxweb.limits import Limits, shrunk
from tests.command_line import python


def adapter(
    device: str, backend: str, kind: str, invocations: int = 256
) -> SimpleNamespace:
    """What wgpu-py hands out, as far as choosing looks at it."""
    limits = replace(Limits(), max_compute_invocations_per_workgroup=invocations)
    return SimpleNamespace(
        info={
            "device": device,
            "vendor": "maker",
            "description": "driver 1",
            "backend_type": backend,
            "adapter_type": kind,
        },
        features={"shader-f16"},
        limits={
            f.name.replace("_", "-"): getattr(limits, f.name) for f in fields(Limits)
        },
    )


MACHINE = [
    adapter("SwiftShader Device", "Vulkan", "CPU"),
    adapter("llvmpipe", "OpenGL", "CPU", 1024),
    adapter("llvmpipe", "Vulkan", "CPU", 1024),
    adapter("Arc", "OpenGL", "IntegratedGPU"),
    adapter("Arc", "Vulkan", "IntegratedGPU"),
    adapter("Radeon", "OpenGL", "DiscreteGPU"),
    adapter("Radeon", "Vulkan", "DiscreteGPU"),
    adapter("Box", "Vulkan", "Unknown"),
    adapter("Odd", "Null", "Unknown"),
]


def names(want: Want) -> list[str]:
    return [f"{f.name}/{f.backend}" for f, _ in choice.ranked(MACHINE, want)]


def test_the_best_is_discrete_and_modern_and_software_comes_last() -> None:
    assert names(Want()) == [
        "Radeon/vulkan",
        "Radeon/opengl",
        "Arc/vulkan",
        "Arc/opengl",
        "Box/vulkan",
        "llvmpipe/vulkan",
        "SwiftShader Device/vulkan",
        "llvmpipe/opengl",
    ]


def test_wanted_backends_bind_and_order() -> None:
    assert names(Want(backends=("opengl", "vulkan")))[0] == "Radeon/opengl"
    assert set(names(Want(backends=("opengl",)))) == {
        "Radeon/opengl",
        "Arc/opengl",
        "llvmpipe/opengl",
    }
    assert names(Want(backends=("metal",))) == []


@pytest.mark.parametrize(
    ("native_name", "ours"),
    [
        ("Vulkan", "vulkan"),
        ("OpenGL", "opengl"),
        ("D3D12", "directx"),
        ("Metal", "metal"),
    ],
)
def test_backend_types_have_our_names(native_name: str, ours: str) -> None:
    assert choice.facts_of(adapter("x", native_name, "Other")).backend == ours


@pytest.mark.parametrize("part", ["RADEON", "maker", "driver 1", ""])
def test_a_name_may_be_part_of_device_vendor_or_driver(part: str) -> None:
    facts = choice.facts_of(adapter("Radeon", "Vulkan", "DiscreteGPU"))
    assert choice.why_not(facts, Want(name=part)) == ""
    assert "'nvidia'" in choice.why_not(facts, Want(name="nvidia"))


def test_software_is_told_by_kind_or_by_name() -> None:
    assert choice.facts_of(adapter("anything", "Vulkan", "CPU")).software
    assert choice.facts_of(adapter("llvmpipe (LLVM)", "OpenGL", "Unknown")).software
    assert not choice.facts_of(adapter("Arc", "Vulkan", "IntegratedGPU")).software


def test_sizes_are_whole_words() -> None:
    """A driver may report 2**31 - 1 bytes (llvmpipe does), no multiple of 4."""
    odd = adapter("x", "Vulkan", "CPU")
    odd.limits["max-buffer-size"] = 2**31 - 1
    assert choice.facts_of(odd).limits.max_buffer_size == 2**31 - 4


def test_shrunk_limits_are_never_asked_of_the_driver() -> None:
    """The record shrinks; the request stays at WebGPU's defaults or the adapter's."""
    have = choice.facts_of(adapter("x", "Vulkan", "CPU", 1024)).limits
    assert choice.limits_to_ask(shrunk(), have) == Limits()
    asked = choice.limits_to_ask(Want().limits, have)
    assert asked.max_compute_invocations_per_workgroup == 1024
    assert asked.min_storage_buffer_offset_alignment == 256


def test_a_weak_adapter_is_asked_for_what_it_has() -> None:
    weak = replace(Limits(), max_compute_invocations_per_workgroup=128)
    assert choice.limits_to_ask(Want().limits, weak) == weak


def test_no_adapter_names_every_candidate_and_reason() -> None:
    passed = [("Arc (vulkan)", "lost"), ("Box (vulkan)", "its name has no 'x'")]
    error = choice.missing(Want(backends=("vulkan",), name="x"), passed)
    assert error.candidates == tuple(passed)
    for part in ("vulkan", "'x'", "Arc (vulkan): lost", "rlxweb devices"):
        assert part in str(error)


WITHOUT_WGPU = """
import sys
sys.modules["wgpu"] = None
from rlxweb.errors import AdapterMissing
from rlxweb.gpu.drive import drive
from rlxweb.gpu.libraries import adapters
from rlxweb.gpu.native import NativePort
from rlxweb.gpu.port import Want
for call in (adapters, lambda: drive(NativePort().open(Want()))):
    try:
        call()
    except AdapterMissing as error:
        print(error)
"""


def test_without_wgpu_the_reason_is_said() -> None:
    said = python("-c", WITHOUT_WGPU)
    assert said.code == 0, said.err
    lines = said.out.splitlines()
    assert len(lines) == 2
    for line in lines:
        assert "wgpu cannot be used (ModuleNotFoundError" in line
        assert "pip install wgpu" in line


def test_importing_the_port_loads_no_wgpu() -> None:
    code = "import sys, rlxweb.gpu.native; sys.exit('wgpu' in sys.modules)"
    assert python("-c", code).code == 0
