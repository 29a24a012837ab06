"""One attempt to run on one device, and its outcome."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rlxweb.core.device import Device, parse_device


@dataclass(frozen=True, slots=True)
class Attempt:
    """Device that was tried and the outcome; `error` is "" where it succeeded."""

    device: Device
    error: str
    cause: BaseException | None = None

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle without the cause: a driver's exception need not be picklable."""
        return type(self), (self.device, self.error)

    def __str__(self) -> str:
        return f"{self.device.label}: {self.error or 'succeeded'}"

    def as_json(self) -> dict[str, str]:
        return {"device": self.device.label, "error": self.error}

    @classmethod
    def of_json(cls, document: Mapping[str, str]) -> Attempt:
        """Return the attempt that `as_json` described."""
        return cls(parse_device(document["device"]), document["error"])
