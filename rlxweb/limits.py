"""Limits of a WebGPU device: the public address of `Limits`."""

from __future__ import annotations

from rlxweb.core.limits import Limits, tiny_limits

__all__ = ["Limits", "tiny_limits"]
