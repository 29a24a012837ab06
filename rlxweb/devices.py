"""Devices of the machine: places, availability, and the policy which may be used.

`rlxweb.devices` is also the public address of `GraphDevices`, `DeviceRouter` and the
functions over a graph and devices; the package's top file says where those live.
"""

from __future__ import annotations

from typing import Any

from rlxweb.core.lazy_names import load_published, published_names

__all__ = published_names(__name__)


def __getattr__(name: str) -> Any:
    return load_published(__name__, name)
