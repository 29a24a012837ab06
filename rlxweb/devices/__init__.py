"""Devices of the machine: places, availability, and the policy of which may be used.

`rlxweb.devices` is also the public address of `GraphDevices`, `DeviceRouter` and the
functions over a graph and devices; the package's top file says where those live.
"""

from __future__ import annotations

from typing import Any

from rlxweb.names import found, published

__all__ = published(__name__)


def __getattr__(name: str) -> Any:
    return found(__name__, name)
