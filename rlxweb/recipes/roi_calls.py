"""Geometry of pooling regions of images on a device.

An invocation has one bin of one region and channel, and walks its samples. Pure
arithmetic; knows no op's meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlxweb.ir.lowering import Access, Axis, Call, Recipe, Ref
from rlxweb.ir.op import TensorType, Types


def walked(size: int, sampling: int) -> int:
    """Samples along an axis of a bin that may lie within -1 and `size`, at most.

    Where there are several they lie more than half an element apart.
    """
    return sampling or 2 * (size + 1) + 5


def roi_recipe(inputs: Types, out: TensorType, attrs: Mapping[str, Any]) -> Recipe:
    """One call; rows of samples and images are serial."""
    images, channels, rows, columns = inputs[0].shape
    count, _, bins_p, bins_q = out.shape
    sampling = attrs["sampling"]
    made = (channels * bins_p * bins_q, bins_p * bins_q, bins_q)
    plane = rows * columns
    call = Call(
        shader="roi_align",
        axes=(
            Axis("r", count),
            Axis("c", channels),
            Axis("p", bins_p),
            Axis("q", bins_q),
            Axis("image", images, "serial"),
            Axis("s", walked(rows, sampling), "serial"),
        ),
        accesses=(
            Access(Ref("in"), (0, plane, 0, 0, channels * plane, 0), span=plane),
            Access(Ref("in", 1), (4, 0, 0, 0, 0, 0), span=4),
            Access(Ref("in", 2), (1, 0, 0, 0, 0, 0)),
            Access(Ref("out"), (*made, 1, 0, 0), "update"),
        ),
        grid=(("r", 1), ("c", 1), ("p", 1), ("q", 1)),
        values={
            "y_r": made[0],
            "y_c": made[1],
            "y_p": made[2],
            "x_image": channels * plane,
            "x_c": plane,
            "images": images,
            "rows": rows,
            "columns": columns,
            "bins_p": bins_p,
            "bins_q": bins_q,
            "rows_walked": walked(rows, sampling),
            "columns_walked": walked(columns, sampling),
            "sampling": sampling,
            "aligned": int(attrs["aligned"]),
            "scale": float(attrs["scale"]),
        },
        constants={"TAKES_LARGEST": int(attrs["mode"] == "max")},
        uses=("nan",),
        faults=True,
        # Images are not walked: an invocation is at work in the piece of its own.
        turns=walked(columns, sampling) / max(images, 1),
    )
    return Recipe((call,))
