"""Adapter selection and its error when no adapter fits, on fake adapters."""

from __future__ import annotations

from dataclasses import fields, replace
from types import SimpleNamespace

import pytest

from rlxweb.core.limits import Limits, tiny_limits
from rlxweb.gpu import adapter_selection as choice
from rlxweb.gpu.port_protocol import AdapterRequest
from tests.cli_runners import run_python


def fake_adapter(
    device: str, backend: str, kind: str, invocations: int = 256
) -> SimpleNamespace:
    """Return a stand-in for a wgpu-py adapter, with the fields that selection reads."""
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


ADAPTERS = [
    fake_adapter("SwiftShader Device", "Vulkan", "CPU"),
    fake_adapter("llvmpipe", "OpenGL", "CPU", 1024),
    fake_adapter("llvmpipe", "Vulkan", "CPU", 1024),
    fake_adapter("Arc", "OpenGL", "IntegratedGPU"),
    fake_adapter("Arc", "Vulkan", "IntegratedGPU"),
    fake_adapter("Radeon", "OpenGL", "DiscreteGPU"),
    fake_adapter("Radeon", "Vulkan", "DiscreteGPU"),
    fake_adapter("Box", "Vulkan", "Unknown"),
    fake_adapter("Odd", "Null", "Unknown"),
]


def ranked_names(want: AdapterRequest) -> list[str]:
    return [f"{f.name}/{f.backend}" for f, _ in choice.rank_adapters(ADAPTERS, want)]


def test_discrete_and_modern_adapters_rank_first_and_software_last() -> None:
    assert ranked_names(AdapterRequest()) == [
        "Radeon/vulkan",
        "Radeon/opengl",
        "Arc/vulkan",
        "Arc/opengl",
        "Box/vulkan",
        "llvmpipe/vulkan",
        "SwiftShader Device/vulkan",
        "llvmpipe/opengl",
    ]


def test_requested_backends_restrict_and_order_adapters() -> None:
    assert (
        ranked_names(AdapterRequest(backends=("opengl", "vulkan")))[0]
        == "Radeon/opengl"
    )
    assert set(ranked_names(AdapterRequest(backends=("opengl",)))) == {
        "Radeon/opengl",
        "Arc/opengl",
        "llvmpipe/opengl",
    }
    assert ranked_names(AdapterRequest(backends=("metal",))) == []


@pytest.mark.parametrize(
    ("native_name", "backend"),
    [
        ("Vulkan", "vulkan"),
        ("OpenGL", "opengl"),
        ("D3D12", "directx"),
        ("Metal", "metal"),
    ],
)
def test_backend_types_have_our_names(native_name: str, backend: str) -> None:
    assert (
        choice.adapter_facts(fake_adapter("x", native_name, "Other")).backend == backend
    )


@pytest.mark.parametrize("part", ["RADEON", "maker", "driver 1", ""])
def test_a_name_may_match_part_of_device_vendor_or_driver(part: str) -> None:
    facts = choice.adapter_facts(fake_adapter("Radeon", "Vulkan", "DiscreteGPU"))
    assert choice.adapter_mismatch(facts, AdapterRequest(name=part)) == ""
    assert "'nvidia'" in choice.adapter_mismatch(facts, AdapterRequest(name="nvidia"))


def test_software_is_recognised_by_type_or_name() -> None:
    assert choice.adapter_facts(fake_adapter("anything", "Vulkan", "CPU")).software
    assert choice.adapter_facts(
        fake_adapter("llvmpipe (LLVM)", "OpenGL", "Unknown")
    ).software
    assert not choice.adapter_facts(
        fake_adapter("Arc", "Vulkan", "IntegratedGPU")
    ).software


def test_buffer_sizes_are_multiples_of_four() -> None:
    """A driver may report 2**31 - 1 bytes (llvmpipe does), no multiple of 4."""
    adapter_record = fake_adapter("x", "Vulkan", "CPU")
    adapter_record.limits["max-buffer-size"] = 2**31 - 1
    assert choice.adapter_facts(adapter_record).limits.max_buffer_size == 2**31 - 4


def test_shrunk_limits_are_not_requested_from_the_driver() -> None:
    """Shrunk limits bind our record; the request keeps WebGPU's defaults or the
    adapter's.
    """
    adapter_limits = choice.adapter_facts(
        fake_adapter("x", "Vulkan", "CPU", 1024)
    ).limits
    assert choice.limits_to_request(tiny_limits(), adapter_limits) == Limits()
    requested_limits = choice.limits_to_request(AdapterRequest().limits, adapter_limits)
    assert requested_limits.max_compute_invocations_per_workgroup == 1024
    assert requested_limits.min_storage_buffer_offset_alignment == 256


def test_a_weak_adapter_gets_a_request_for_its_own_limits() -> None:
    weak = replace(Limits(), max_compute_invocations_per_workgroup=128)
    assert choice.limits_to_request(AdapterRequest().limits, weak) == weak


def test_no_adapter_names_every_candidate_and_reason() -> None:
    rejected = [
        ("Arc (vulkan)", "lost"),
        ("Box (vulkan)", "its name does not contain 'x'"),
    ]
    error = choice.adapter_missing_error(
        AdapterRequest(backends=("vulkan",), name="x"), rejected
    )
    assert error.candidates == tuple(rejected)
    for part in ("vulkan", "'x'", "Arc (vulkan): lost", "rlxweb devices"):
        assert part in str(error)


WITHOUT_WGPU = """
import sys
sys.modules["wgpu"] = None
from rlxweb.core.errors import AdapterMissing
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.gpu.wgpu_libraries import list_adapters
from rlxweb.gpu.wgpu_port import WgpuPort
from rlxweb.gpu.port_protocol import AdapterRequest
for call in (list_adapters, lambda: run_blocking(WgpuPort().open(AdapterRequest()))):
    try:
        call()
    except AdapterMissing as error:
        print(error)
"""


def test_missing_wgpu_is_explained() -> None:
    result = run_python("-c", WITHOUT_WGPU)
    assert result.code == 0, result.err
    lines = result.out.splitlines()
    assert len(lines) == 2
    for line in lines:
        assert "wgpu cannot be used (ModuleNotFoundError" in line
        assert "pip install wgpu" in line


def test_importing_the_port_loads_no_wgpu() -> None:
    code = "import sys, rlxweb.gpu.wgpu_port; sys.exit('wgpu' in sys.modules)"
    assert run_python("-c", code).code == 0
