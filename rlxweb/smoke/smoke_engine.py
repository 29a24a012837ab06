"""Engine of a smoke test: its device and adapter, and how a child process opens it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from rlxweb.engines.pool import pool
from rlxweb.engines.protocol import Engine, EngineIdentity
from rlxweb.engines.webgpu.engine import WebGpuEngine
from rlxweb.gpu.port_protocol import AdapterRequest, BackendType
from rlxweb.gpu.wgpu_libraries import WgpuLibrary
from rlxweb.gpu.wgpu_port import WgpuPort

DAWN = "dawn"


@dataclass(frozen=True, slots=True)
class SmokeEngine:
    """One engine of the machine, or one that is unavailable.

    device       the device's label: "cpu", "vulkan"
    adapter      the adapter's whole name, or the library's; "" until it was opened
    at           which of the adapters whose names hold that one; None where no adapter
                 of wgpu is meant
    backend      interface: "vulkan", "numpy"; vendor, driver and compiler in words
    kind         "here": in a process of this machine; "browser": in a tab
    twin         how many adapters before it have the very same name
    missing      why it cannot be tried; "" where it can
    fell         how the process ended that only looked for it: "crashed", "hung"; and
    why_fell     why it did
    environment  what its process needs besides the parent's variables
    launch       what it takes to start one of another kind
    """

    device: str
    adapter: str = ""
    at: int | None = None
    backend: str = ""
    vendor: str = ""
    driver: str = ""
    compiler: str = ""
    software: bool = False
    kind: str = "here"
    twin: int = 0
    missing: str = ""
    fell: str = ""
    why_fell: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    launch: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Key of the engine, unique within a report and stable between reports."""
        if self.kind != "here":
            return self.kind
        twin_suffix = f" #{self.twin + 1}" if self.twin else ""
        is_adapter = self.at is not None
        return (
            f"{self.device}:{self.adapter}{twin_suffix}" if is_adapter else self.device
        )

    @property
    def is_testable(self) -> bool:
        """Report whether the engine was found and did not fail during discovery."""
        return not (self.missing or self.fell)

    def as_json(self) -> dict[str, Any]:
        """Return the fields as JSON values, for the child process."""
        return asdict(self) | {"environment": dict(self.environment)}


def engine_from_json(record: Mapping[str, Any]) -> SmokeEngine:
    """Return the engine that `as_json` described."""
    return SmokeEngine(
        **{attribute.name: record[attribute.name] for attribute in fields(SmokeEngine)}
    )


def adapter_library(device: str) -> WgpuLibrary:
    """Return the library that lists the device's adapters: wgpu, or Dawn with the same
    interface.
    """
    return "wgpudawn" if device == DAWN else "wgpu"


async def open_engine(engine: SmokeEngine) -> Engine:
    """Open the engine in this process. Raises AdapterMissing or DeviceLost."""
    if engine.at is None:
        return await pool.engine_async(engine.device, engine.adapter)
    port = WgpuPort(library=adapter_library(engine.device))
    api: Any = engine.backend
    backends: tuple[BackendType, ...] = (api,)
    await port.open(
        AdapterRequest(backends=backends, name=engine.adapter, index=engine.at)
    )
    return WebGpuEngine(port)


def identity_fields(identity: EngineIdentity) -> dict[str, Any]:
    """Return the report fields that say which engine it is."""
    return {
        "adapter": identity.adapter,
        "backend": identity.api,
        "vendor": identity.vendor,
        "driver": identity.driver,
        "compiler": _compiler_description(identity),
        "software": identity.software,
    }


def _compiler_description(identity: EngineIdentity) -> str:
    """Describe how the engine turns a graph into code."""
    if not identity.compiler:
        return identity.driver
    return f"{identity.compiler}, then {identity.driver or identity.adapter}"
