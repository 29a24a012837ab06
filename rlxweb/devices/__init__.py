"""What is THERE: places, availability, and the policy of who may be used.

`rlxweb.devices` is also the public address of the runners and of the questions about a
graph's devices; the package's top file says where those live.
"""

from __future__ import annotations

from typing import Any

from rlxweb.names import found, published

__all__ = published(__name__)


def __getattr__(name: str) -> Any:
    return found(__name__, name)
