"""Kernel plan of RoIAlign, which pools regions of images.

An invocation has one bin of one region and channel, and walks its samples. Pure
arithmetic; knows no op's meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlxweb.ir.lowering import (
    BufferRef,
    IterationAxis,
    KernelDispatch,
    KernelPlan,
    OperandAccess,
)
from rlxweb.ir.op import TensorType, Types


def max_samples(size: int, sampling: int) -> int:
    """Return the maximum number of samples along an axis of a bin that may lie within
    -1 and `size`.

    Where there are several they lie more than half an element apart.
    """
    return sampling or 2 * (size + 1) + 5


def plan_roi_align(
    inputs: Types, out: TensorType, attrs: Mapping[str, Any]
) -> KernelPlan:
    """Return the plan of RoIAlign: one dispatch in which rows of samples and images are
    serial.
    """
    images, channels, rows, columns = inputs[0].shape
    count, _, bins_p, bins_q = out.shape
    sampling = attrs["sampling"]
    out_strides = (channels * bins_p * bins_q, bins_p * bins_q, bins_q)
    plane_size = rows * columns
    dispatch = KernelDispatch(
        shader="roi_align",
        axes=(
            IterationAxis("r", count),
            IterationAxis("c", channels),
            IterationAxis("p", bins_p),
            IterationAxis("q", bins_q),
            IterationAxis("image", images, "serial"),
            IterationAxis("s", max_samples(rows, sampling), "serial"),
        ),
        accesses=(
            OperandAccess(
                BufferRef("in"),
                (0, plane_size, 0, 0, channels * plane_size, 0),
                span=plane_size,
            ),
            OperandAccess(BufferRef("in", 1), (4, 0, 0, 0, 0, 0), span=4),
            OperandAccess(BufferRef("in", 2), (1, 0, 0, 0, 0, 0)),
            OperandAccess(BufferRef("out"), (*out_strides, 1, 0, 0), "update"),
        ),
        grid=(("r", 1), ("c", 1), ("p", 1), ("q", 1)),
        uniforms={
            "y_r": out_strides[0],
            "y_c": out_strides[1],
            "y_p": out_strides[2],
            "x_image": channels * plane_size,
            "x_c": plane_size,
            "images": images,
            "rows": rows,
            "columns": columns,
            "bins_p": bins_p,
            "bins_q": bins_q,
            "rows_walked": max_samples(rows, sampling),
            "columns_walked": max_samples(columns, sampling),
            "sampling": sampling,
            "aligned": int(attrs["aligned"]),
            "scale": float(attrs["scale"]),
        },
        overrides={"TAKES_LARGEST": int(attrs["mode"] == "max")},
        uses=("nan",),
        reports_faults=True,
        # Images are not walked: an invocation is at work in the piece of its own.
        iterations=max_samples(columns, sampling) / max(images, 1),
    )
    return KernelPlan((dispatch,))
