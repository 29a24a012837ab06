"""One try at a run on one device, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rlxweb.device import Device, parse_device


@dataclass(frozen=True, slots=True)
class Attempt:
    """One device that was tried and what came of it; error is "" where it succeeded."""

    device: Device
    error: str
    cause: BaseException | None = None

    def __reduce__(self) -> tuple[object, ...]:
        """Without its cause: a driver's exception need not pickle."""
        return type(self), (self.device, self.error)

    def __str__(self) -> str:
        return f"{self.device.label}: {self.error or 'succeeded'}"

    def as_json(self) -> dict[str, str]:
        return {"device": self.device.label, "error": self.error}

    @classmethod
    def of_json(cls, told: Mapping[str, str]) -> Attempt:
        """What `as_json` told."""
        return cls(parse_device(told["device"]), told["error"])
