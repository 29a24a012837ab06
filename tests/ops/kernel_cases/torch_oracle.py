"""Cases that PyTorch judges too, through the methods of the same names."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from rlxweb.ir.sample import Drawn
from rlxweb.ir.shape_arithmetic import Shape
from tests.engines_under_test import Array
from tests.ops.kernel_cases.case import KernelCase, kernel_case

Options = dict[str, Any]

IMAGES: dict[int, Shape] = {1: (2, 6, 19), 2: (2, 6, 9, 11), 3: (1, 4, 6, 5, 7)}
CONV_OPTIONS: list[Options] = [
    {},
    {"stride": 2, "padding": 1},
    {"dilation": 2, "padding": 2},
    {"groups": 2},
    {"padding": "same"},
    {"padding": "valid", "stride": 3},
]
TRANSPOSED_CONV_OPTIONS: list[Options] = [
    {},
    {"stride": 2, "padding": 1},
    {"stride": 3, "output_padding": 2, "groups": 2},
    {"dilation": 2, "padding": 3},
    {"stride": 3, "dilation": 2, "output_padding": 1},
]
POOL_OPTIONS: list[Options] = [
    {},
    {"stride": 2, "padding": 1},
    {"stride": 2, "ceil_mode": True},
    {"stride": 3, "padding": 1, "ceil_mode": True},
]
FOLD_OPTIONS: list[Options] = [
    {"kernel_size": 2, "stride": 2},
    {"kernel_size": (3, 2), "padding": 1},
    {"kernel_size": 3, "dilation": 2, "padding": (2, 0), "stride": (1, 3)},
]
SIZE_OPTIONS: list[Options] = [
    {"size": 23},
    {"size": 4},
    {"scale_factor": 2.0},
    {"scale_factor": 3},
    {"scale_factor": 1.7},
    {"scale_factor": 0.45},
]
LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}


def call(method: str, g: Any, *tensors: Any, **options: Any) -> Any:
    """Apply the method of a graph."""
    return getattr(g, method)(*tensors, **options)


def torch_call(method: str, torch: Any, *tensors: Any, **options: Any) -> Any:
    """Call the function of PyTorch by the same name."""
    return getattr(torch.nn.functional, method)(*tensors, **options)


def same_call(
    method: str, why: str, *operands: Shape | Drawn, op: str = "", **options: Any
) -> KernelCase:
    """Return a case of a method that PyTorch has by the same name and options.

    op  the op whose kernels compute it; "": none has any
    """
    return kernel_case(
        op,
        f"{method} {why}".strip(),
        *operands,
        build=partial(call, method),
        torch=partial(torch_call, method),
        **options,
    )


def conv_cases() -> Iterator[KernelCase]:
    for rank, shape in IMAGES.items():
        for options in CONV_OPTIONS:
            w = (4, shape[1] // options.get("groups", 1), *(3, 5, 3)[:rank])
            operands = shape, w, (4,)
            yield same_call(f"conv{rank}d", "", *operands, op="conv", **options)
        for options in TRANSPOSED_CONV_OPTIONS:
            w = (shape[1], 2, *(3, 4, 2)[:rank])
            operands = shape, w, (2 * options.get("groups", 1),)
            method = f"conv_transpose{rank}d"
            yield same_call(method, "", *operands, op="conv_transpose", **options)


def torch_max_pool_indices(torch: Any, x: Any, **options: Any) -> Any:
    method = f"max_pool{x.ndim - 2}d"
    return torch_call(method, torch, x, return_indices=True, **options)[1].int()


def torch_lp_pool(torch: Any, x: Any, **options: Any) -> Any:
    """PyTorch's takes no absolute values."""
    return torch_call(f"lp_pool{x.ndim - 2}d", torch, x.abs(), **options)


def pool_cases() -> Iterator[KernelCase]:
    for (rank, shape), options in product(IMAGES.items(), POOL_OPTIONS):
        window = {"kernel_size": 3, **options}
        for kind in ("max", "avg"):
            yield same_call(
                f"{kind}_pool{rank}d", "", shape, op=f"{kind}_pool", **window
            )
        yield kernel_case(
            "max_pool_indices",
            "indices",
            shape,
            build=partial(call, "max_pool_indices"),
            torch=torch_max_pool_indices,
            **window,
        )
        if "padding" not in options:
            yield kernel_case(
                "lp_pool",
                "a norm of windows",
                shape,
                build=partial(call, f"lp_pool{rank}d"),
                torch=torch_lp_pool,
                norm_type=3.0,
                kernel_size=2,
                stride=options.get("stride"),
            )
    yield same_call(
        "avg_pool2d",
        "of windows without their padding",
        IMAGES[2],
        op="avg_pool",
        kernel_size=3,
        stride=2,
        padding=1,
        count_include_pad=False,
    )
    for kind, kernel_size, stride in (
        ("max", 90, 3),
        ("avg", 90, 3),
        ("avg", (130, 140), None),
    ):
        yield same_call(
            f"{kind}_pool2d",
            "of too many elements to unroll",
            (1, 2, 130, 140),
            op=f"{kind}_pool",
            kernel_size=kernel_size,
            stride=stride,
        )


def fold_cases() -> Iterator[KernelCase]:
    """Yield what lays windows back into an image, and values back into windows."""
    for options, windows in zip(
        FOLD_OPTIONS, ((2, 12, 20), (2, 18, 88), (2, 27, 16)), strict=True
    ):
        yield same_call("fold", "", windows, output_size=(8, 10), **options)
    for rank, has_output_size in product((1, 2, 3), (False, True)):
        # Windows do not overlap: with overlapping ones PyTorch may take any value.
        image = ((9, 10, 10) if has_output_size else (8, 11, 5))[:rank]
        pooled = tuple((n - 2) // 3 + 1 for n in image)
        yield kernel_case(
            "",
            f"max_unpool{rank}d",
            (2, 3, *pooled),
            Drawn((2, 3, *pooled), "i32", 0, 0),
            edit=partial(one_of_each_window, image=image),
            build=lambda g, x, indices, **options: g.max_unpool(x, indices, **options),
            torch=lambda torch, x, indices, **options: torch_call(
                f"max_unpool{x.ndim - 2}d", torch, x, indices.long(), **options
            ),
            kernel_size=2,
            stride=3,
            output_size=image if has_output_size else None,
        )


def one_of_each_window(arrays: list[Array], image: Shape) -> None:
    """Give each value a place in its window of the image."""
    shape = arrays[1].shape
    corners = np.indices(shape)[2:] * 3
    places = corners + np.random.default_rng(3).integers(0, 2, corners.shape)
    arrays[1][...] = np.ravel_multi_index(tuple(places), image)


NORM_AXES = [(3,), (2, 3), (1, 2, 3)]


def norm_over_axes(op: str, g: Any, *tensors: Any, axis: Shape) -> Any:
    return getattr(g, op)(*tensors, axis=axis)


def torch_norm_over_axes(op: str, torch: Any, x: Any, *rest: Any, axis: Shape) -> Any:
    sizes = [x.shape[a] for a in axis]
    weight, bias = rest or (None, None)
    if op == "layer_norm":
        return torch_call(op, torch, x, sizes, weight=weight, bias=bias, eps=1e-5)
    normalized = torch_call(op, torch, x, sizes, weight=weight, eps=1e-5)
    return normalized if bias is None else normalized + bias


def batch_norm_by_statistics(g: Any, x: Any) -> Any:
    return g.batch_norm(x, *g.batch_statistics(x))


def norm_cases() -> Iterator[KernelCase]:
    shape = (2, 3, 4, 5)
    for op, axes in product(("layer_norm", "rms_norm"), NORM_AXES):
        sizes = tuple(shape[a] for a in axes)
        for operands in ((shape, sizes, sizes), (shape,)):
            yield kernel_case(
                "",
                f"{op} over several axes",
                *operands,
                build=partial(norm_over_axes, op),
                torch=partial(torch_norm_over_axes, op),
                axis=axes,
            )
    for shape in ((5, 6), (2, 6, 7), (2, 6, 5, 4)):
        x, c = Drawn(shape, low=-1, high=3), shape[1:2]
        variance = Drawn(c, low=0.1, high=2.0)
        for parameters in ((c, variance, c, c), (c, variance)):
            yield same_call("batch_norm", "", x, *parameters)
        yield kernel_case(
            "",
            "batch_norm by the statistics of the batch",
            x,
            build=batch_norm_by_statistics,
            torch=lambda torch, x: torch_call(
                "batch_norm", torch, x, None, None, training=True
            ),
        )
        yield kernel_case(
            "",
            "group_norm",
            *(x, c, c),
            build=lambda g, x, w, b: g.group_norm(x, 3, w, b),
            torch=lambda torch, x, w, b: torch_call("group_norm", torch, x, 3, w, b),
        )
        if len(shape) > 2:
            yield kernel_case(
                "",
                "instance_norm",
                *(x, c, c),
                build=partial(call, "instance_norm"),
                torch=lambda torch, x, w, b: torch_call(
                    "instance_norm", torch, x, weight=w, bias=b
                ),
            )
    for size in (1, 3, 4):
        yield same_call(
            "local_response_norm",
            "",
            Drawn((2, 7, 4, 3), low=-10, high=10),
            size=size,
            alpha=0.2,
            beta=0.6,
            k=1.5,
        )
    for p in (1.0, 2.0, 3.0, np.inf):
        yield same_call(
            "normalize", "with a row of zeros", (4, 5, 3), edit=zero_row, p=p
        )


def zero_row(arrays: list[Array]) -> None:
    arrays[0][1] = 0


RESIZED: dict[int, Shape] = {1: (2, 3, 17), 2: (2, 3, 11, 16), 3: (1, 2, 5, 7, 6)}


def resize_cases() -> Iterator[KernelCase]:
    def resize(shape: Shape, why: str, **options: Any) -> KernelCase:
        # A factor that keeps every length leaves nothing to be resized.
        return same_call("interpolate", why, shape, **options)

    for (rank, shape), size in product(RESIZED.items(), SIZE_OPTIONS):
        for mode in ("nearest", "nearest-exact"):
            yield resize(shape, "over one to three axes", mode=mode, **size)
        for flag in (False, True):
            options = {"mode": LINEAR[rank], "align_corners": flag}
            yield resize(shape, "over one to three axes", **options, **size)
    for size, antialias, mode in product(
        SIZE_OPTIONS, (False, True), ("bilinear", "bicubic")
    ):
        options = {"mode": mode, "antialias": antialias, **size}
        yield resize(RESIZED[2], "cubic and antialiased", **options)
    # PyTorch copies in some modes, takes each element twice in one, else interpolates.
    for factor, rank, n in product(
        (1.0, 1.1, 1.3, 2.0, 2.1, 2.4), RESIZED, (2, 3, 4, 7)
    ):
        for mode in ("nearest", "nearest-exact", LINEAR[rank], "bicubic"):
            if mode == "bicubic" and rank != 2:
                continue
            has_antialias = rank == 2 and "nearest" not in mode
            for antialias in (False, True) if has_antialias else (False,):
                yield resize(
                    (1, 2, n, 3, 4)[: rank + 2],
                    "by a factor that keeps or doubles a length",
                    mode=mode,
                    antialias=antialias,
                    scale_factor=factor,
                )


def sampling_cases() -> Iterator[KernelCase]:
    """Yield positions inside and far outside the image."""
    for mode, padding, align_corners in product(
        ("bilinear", "nearest", "bicubic"),
        ("zeros", "border", "reflection"),
        (False, True),
    ):
        shapes: list[tuple[Shape, Shape]] = [((2, 3, 7, 6), (2, 5, 8, 2))]
        shapes += [((1, 2, 4, 5, 6), (1, 3, 2, 4, 3))] if mode != "bicubic" else []
        for image, grid in shapes:
            yield same_call(
                "grid_sample",
                "",
                image,
                Drawn(grid, low=-3, high=3),
                mode=mode,
                padding_mode=padding,
                align_corners=align_corners,
            )
    for size, align_corners in product(((2, 3, 5, 4), (2, 1, 3, 1, 4)), (False, True)):
        # PyTorch warns of axes of one element.
        wide = tuple(max(2, n) for n in size) if align_corners else size
        rank = len(size) - 2
        options = {"size": wide, "align_corners": align_corners}
        yield same_call("affine_grid", "", (2, rank, rank + 1), **options)


CASES = [
    *conv_cases(),
    *pool_cases(),
    *fold_cases(),
    *norm_cases(),
    *resize_cases(),
    *sampling_cases(),
]
