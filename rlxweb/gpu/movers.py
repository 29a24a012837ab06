"""What moves bytes of an open native port, by the way it goes, and changing that way.

Works on wgpu objects it is handed and never imports wgpu.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlxweb.errors import DeviceLost
from rlxweb.gpu.host_path import HostPath
from rlxweb.gpu.mapping import Mapper, Submit
from rlxweb.gpu.quick import Quick
from rlxweb.gpu.readback import Reader
from rlxweb.gpu.staging import Uploads
from rlxweb.gpu.waiting import Waits

if TYPE_CHECKING:
    from rlxweb.gpu.native import NativePort


def movers(
    device: Any,
    waits: Waits,
    submit: Submit,
    is_polled: bool,
    path: HostPath,
    quick: Quick | None,
) -> tuple[Reader, Uploads]:
    """What reads and what writes by a way."""
    mapper = Mapper(waits, is_polled, path.threads)
    reader = Reader(device, mapper, submit, path.stages, quick)
    return reader, Uploads(device, mapper, submit)


def go_by(port: NativePort, path: HostPath) -> None:
    """From now on many bytes travel so; one of the port's `paths`.

    What is written in place is written to buffers made from now on.
    """
    with port._lock:
        port._check_open("go by another way")
        with port._ours("go by another way", DeviceLost):
            port._drain()
            port._uploads.free()
            port._reader.free()
        port._in_place.clear()
        port._go_by(path)
