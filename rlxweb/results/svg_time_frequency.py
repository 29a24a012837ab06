"""Small SVG image of values over time and frequency, for notebooks."""

from __future__ import annotations

import base64
import struct
import zlib
from html import escape
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.results.svg_charts import SvgAxes, svg_header

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
"""Five stops of the colour map Viridis (van der Walt & Smith 2015)."""
_MAX_COLUMNS_ROWS = 300, 120


def svg_image(
    values: NDArray[Any],
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    title: str,
    labels: tuple[str, str],
) -> str:
    """Return an SVG image of values (Y, X) as colours scaled to their range; "" if none
    is finite.
    """
    finite = values[np.isfinite(values)]
    if not finite.size:
        return ""
    low, high = np.percentile(finite, [2.0, 99.8])
    small = _shrink(np.asarray(values, np.float64)[::-1])
    share = np.clip((small - low) / max(high - low, 1e-300), 0.0, 1.0)
    frame = SvgAxes((float(x[0]), float(x[-1])), (float(y[0]), float(y[-1])))
    left, top, width, height = frame.plot_box
    data = base64.b64encode(_encode_png(share)).decode()
    return "".join(
        (
            svg_header(),
            f"<title>{escape(title)}</title>",
            f'<image x="{left}" y="{top}" width="{width}" height="{height}" '
            f'preserveAspectRatio="none" href="data:image/png;base64,{data}"/>',
            *frame.axis_elements(*labels, grid=False),
            "</svg>",
        )
    )


def _shrink(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Reduce to at most `_MAX_COLUMNS_ROWS` columns and rows, keeping the maximum of
    neighbours.
    """
    for axis, max_size in ((1, _MAX_COLUMNS_ROWS[0]), (0, _MAX_COLUMNS_ROWS[1])):
        size = values.shape[axis]
        if size > max_size:
            starts = np.unique(
                np.linspace(0, size, max_size, endpoint=False).astype(int)
            )
            values = np.fmax.reduceat(values, starts, axis=axis)
    return values


def _encode_png(share: NDArray[np.float64]) -> bytes:
    """Return a PNG of shares 0 to 1 in colours; NaN is transparent."""
    position = np.nan_to_num(share) * (len(VIRIDIS) - 1)
    stop = np.minimum(position.astype(int), len(VIRIDIS) - 2)
    fraction = (position - stop)[..., None]
    colour = VIRIDIS[stop] * (1.0 - fraction) + VIRIDIS[stop + 1] * fraction
    alpha = np.where(np.isnan(share), 0, 255)[..., None]
    pixels = np.concatenate([np.round(colour), alpha], axis=-1).astype(np.uint8)
    height, width = share.shape
    scanlines = np.concatenate(
        [np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], axis=1
    )
    header = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    packed = zlib.compress(scanlines.tobytes(), 9)
    chunks = (b"IHDR", header), (b"IDAT", packed), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(_png_chunk(*chunk) for chunk in chunks)


def _png_chunk(kind: bytes, data: bytes) -> bytes:
    """Return a PNG chunk with its length and checksum."""
    checksum = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", checksum)
