"""A small picture of values over time and frequency as SVG, for notebooks."""

from __future__ import annotations

import base64
import struct
import zlib
from html import escape
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.results.svg import Frame, opening

VIRIDIS: Final = np.array(
    [
        (68, 1, 84),
        (59, 82, 139),
        (33, 145, 140),
        (94, 201, 98),
        (253, 231, 37),
    ],
    np.float64,
)
"""Viridis at five places (van der Walt & Smith 2015): even for every eye."""
_MOST = 300, 120


def image(
    values: NDArray[Any],
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    title: str,
    labels: tuple[str, str],
) -> str:
    """Values (Y, X) as colours, from their faint to their strong; "" for nothing."""
    known = values[np.isfinite(values)]
    if not known.size:
        return ""
    low, high = np.percentile(known, [2.0, 99.8])
    small = _shrunk(np.asarray(values, np.float64)[::-1])
    share = np.clip((small - low) / max(high - low, 1e-300), 0.0, 1.0)
    frame = Frame((float(x[0]), float(x[-1])), (float(y[0]), float(y[-1])))
    left, top, wide, tall = frame.box
    data = base64.b64encode(_png(share)).decode()
    return "".join(
        (
            opening(),
            f"<title>{escape(title)}</title>",
            f'<image x="{left}" y="{top}" width="{wide}" height="{tall}" '
            f'preserveAspectRatio="none" href="data:image/png;base64,{data}"/>',
            *frame.axes(*labels, grid=False),
            "</svg>",
        )
    )


def _shrunk(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """At most so many columns and rows, the strongest of each kept."""
    for axis, most in ((1, _MOST[0]), (0, _MOST[1])):
        size = values.shape[axis]
        if size > most:
            starts = np.unique(np.linspace(0, size, most, endpoint=False).astype(int))
            values = np.fmax.reduceat(values, starts, axis=axis)
    return values


def _png(share: NDArray[np.float64]) -> bytes:
    """An image of shares 0 to 1 in colours; NaN is clear."""
    at = np.nan_to_num(share) * (len(VIRIDIS) - 1)
    below = np.minimum(at.astype(int), len(VIRIDIS) - 2)
    part = (at - below)[..., None]
    colour = VIRIDIS[below] * (1.0 - part) + VIRIDIS[below + 1] * part
    alpha = np.where(np.isnan(share), 0, 255)[..., None]
    pixels = np.concatenate([np.round(colour), alpha], axis=-1).astype(np.uint8)
    tall, wide = share.shape
    lines = np.concatenate(
        [np.zeros((tall, 1), np.uint8), pixels.reshape(tall, -1)], axis=1
    )
    header = struct.pack(">IIBBBBB", wide, tall, 8, 6, 0, 0, 0)
    packed = zlib.compress(lines.tobytes(), 9)
    chunks = (b"IHDR", header), (b"IDAT", packed), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*one) for one in chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    check = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)
