"""An engine to be tried: which device and adapter, and how a child process opens it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from rlxweb.backends.pool import pool
from rlxweb.backends.protocol import Backend
from rlxweb.backends.webgpu import WebGpuBackend
from rlxweb.gpu.libraries import Library
from rlxweb.gpu.native import NativePort
from rlxweb.gpu.port import BackendType, Want

DAWN = "dawn"


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine of a machine, or one that it has not.

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
        """What tells it from the others of a report, and in the next report as well."""
        if self.kind != "here":
            return self.kind
        twin = f" #{self.twin + 1}" if self.twin else ""
        is_adapter = self.at is not None
        return f"{self.device}:{self.adapter}{twin}" if is_adapter else self.device

    @property
    def can_be_tried(self) -> bool:
        return not (self.missing or self.fell)

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"environment": dict(self.environment)}


def engine_from(told: Mapping[str, Any]) -> Engine:
    """The engine that `as_json` told of."""
    return Engine(**{one.name: told[one.name] for one in fields(Engine)})


def library_of(device: str) -> Library:
    """What serves the adapters of a device: wgpu, or Dawn under the same interface."""
    return "wgpudawn" if device == DAWN else "wgpu"


async def opened(engine: Engine) -> Backend:
    """The engine, open in this process. Errors  AdapterMissing, DeviceLost."""
    if engine.at is None:
        return await pool.backend_async(engine.device, engine.adapter)
    port = NativePort(library=library_of(engine.device))
    api: Any = engine.backend
    backends: tuple[BackendType, ...] = (api,)
    await port.open(Want(backends=backends, name=engine.adapter, at=engine.at))
    return WebGpuBackend(port)


def told_of(backend: Backend) -> dict[str, Any]:
    """What an open engine says of itself, by the names of the report."""
    return {
        "adapter": backend.adapter,
        "backend": backend.api,
        "vendor": backend.vendor,
        "driver": backend.driver,
        "compiler": _compiler(backend),
        "software": backend.software,
    }


def _compiler(backend: Backend) -> str:
    """What turns a graph into code there, in words."""
    if not backend.compiler:
        return backend.driver
    return f"{backend.compiler}, then {backend.driver or backend.adapter}"
