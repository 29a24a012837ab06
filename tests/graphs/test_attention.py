"""Compare scaled dot product attention with PyTorch's: masks, shared heads, causal
windows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import rlxweb as rlx
from rlxweb.core.errors import AttributeRefused, RlxError, ShapeError
from tests.conftest import ADAPTERS
from tests.engines_under_test import Array, engine

RNG = np.random.default_rng(8)


def random_array(rng: np.random.Generator, *shape: int) -> Array:
    return rng.normal(size=shape).astype(np.float32)


def random_bool_mask(rng: np.random.Generator, *shape: int) -> Array:
    """Return a mask of which half is true, and nothing in the first row."""
    mask = rng.random(shape) < 0.5
    mask[..., 0, :] = False
    return mask


def random_additive_mask(rng: np.random.Generator, *shape: int) -> Array:
    """Return an additive mask of which half is -infinity, and all of the last row."""
    mask = np.where(rng.random(shape) < 0.5, -np.inf, rng.normal(size=shape))
    mask[..., -1, :] = -np.inf
    return mask.astype(np.float32)


HEADS = ((2, 6, 19, 8), (2, 6, 23, 8), (2, 6, 23, 12))
GROUPED_HEADS = ((2, 6, 19, 8), (2, 2, 23, 8), (2, 2, 23, 12))
CASES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "plain": (HEADS, None, {}),
    "scaled": (HEADS, None, {"scale": 0.2}),
    "top-left": (HEADS, None, {"is_causal": True}),
    "shared": (GROUPED_HEADS, None, {"is_causal": True}),
    "bools": (HEADS, random_bool_mask(RNG, 19, 23), {}),
    "bools of batches": (GROUPED_HEADS, random_bool_mask(RNG, 2, 1, 19, 23), {}),
    "bools of keys": (HEADS, RNG.random((2, 1, 1, 23)) < 0.5, {}),
    "added": (HEADS, random_additive_mask(RNG, 2, 6, 19, 23), {}),
    "added to heads": (GROUPED_HEADS, random_additive_mask(RNG, 6, 19, 23), {}),
    "without heads": (
        ((3, 7, 8), (3, 5, 8), (3, 5, 8)),
        random_additive_mask(RNG, 3, 7, 5),
        {},
    ),
    "batches of two axes": (
        ((2, 4, 3, 7, 8), (2, 4, 3, 5, 8), (2, 4, 3, 5, 8)),
        random_bool_mask(RNG, 4, 1, 7, 5),
        {},
    ),
    "one for all": (((3, 7, 8), (3, 5, 8), (3, 5, 8)), np.array(True), {}),
    "a matrix": (((7, 8), (5, 8), (5, 4)), random_bool_mask(RNG, 7, 5), {}),
}
CASES["top-left, more queries"] = (
    ((2, 6, 23, 8), (2, 6, 19, 8), (2, 6, 19, 8)),
    None,
    {"is_causal": True},
)


@pytest.mark.requires_wgpu
@pytest.mark.parametrize("name", CASES)
def test_pytorch_agrees(name: str, rng: np.random.Generator) -> None:
    """Attention is PyTorch's; rows without an open key are 0."""
    shapes, mask, options = CASES[name]
    arrays = [random_array(rng, *shape) for shape in shapes]
    g = rlx.Graph(name)
    tensors = [g.input(n, a.shape) for n, a in zip("qkv", arrays, strict=True)]
    feeds = dict(zip("qkv", arrays, strict=True))
    if mask is not None:
        tensors.append(g.input("m", mask.shape, mask.dtype))
        feeds["m"] = mask
    out = g.scaled_dot_product_attention(*tensors, **options)
    g.set_outputs([out])
    q, k, v = map(torch.tensor, arrays)
    torch_mask = None if mask is None else torch.tensor(mask)
    gqa = len(shapes[0]) > 3 and shapes[0][1] != shapes[1][1]
    want = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, torch_mask, enable_gqa=gqa, **options
    ).numpy()
    for runner in (engine(None), engine(None, variants=False), *adapter_engines()):
        got = runner.run(g, feeds)[0]
        np.testing.assert_allclose(got, want, atol=3e-6, err_msg=runner.name)


def adapter_engines() -> list[Any]:
    """Return engines for the adapter: with its default kernels, and with the first
    attention variant.
    """
    from tests.kernel_tables import WGSL_VARIANTS

    default = engine(ADAPTERS["lavapipe"])
    variant = next(
        variant.name for variant in WGSL_VARIANTS if variant.op == "attention"
    )
    single_kernel = type(default)("in one kernel", default.engine.with_variant(variant))
    return [default, single_kernel]


@pytest.mark.parametrize(("offset", "window"), [(3, 4), (15, 4), (2**70, 2**70 - 3)])
@pytest.mark.parametrize("mask", [None, "added", "bools"])
def test_causal_windows_combine_with_masks(
    mask: str | None, offset: int, window: int, rng: np.random.Generator
) -> None:
    """Causal windows, offsets and masks together are one mask of PyTorch's."""
    L, S = 9, 14
    arrays = [
        random_array(rng, 1, 2, L, 4),
        random_array(rng, 1, 2, S, 4),
        random_array(rng, 1, 2, S, 4),
    ]
    distance = np.array([[i + offset - j for j in range(S)] for i in range(L)])
    keep = (distance >= 0) & (distance <= window)
    mask_array = {
        "added": random_additive_mask(rng, L, S),
        "bools": random_bool_mask(rng, L, S),
    }.get(mask or "")
    g = rlx.Graph("window")
    q, k, v = (g.input(n, a.shape) for n, a in zip("qkv", arrays, strict=True))
    mask_tensor = None if mask_array is None else g.constant(mask_array)
    g.set_outputs(
        [
            g.scaled_dot_product_attention(
                *(q, k, v, mask_tensor), is_causal=True, offset=offset, window=window
            )
        ]
    )
    got = engine(None).run(g, dict(zip("qkv", arrays, strict=True)))[0]
    bias = np.where(keep, 0.0, -np.inf)
    if mask_array is not None:
        bias = bias + (
            np.where(mask_array, 0, -np.inf) if mask_array.dtype == bool else mask_array
        )
    q2, k2, v2 = (torch.tensor(a, dtype=torch.float64) for a in arrays)
    want = torch.nn.functional.scaled_dot_product_attention(
        q2, k2, v2, torch.tensor(bias)
    )
    np.testing.assert_allclose(got, want, atol=3e-6)


def build_attention(*shapes: Any, **options: Any) -> None:
    g = rlx.Graph("refused")
    g.scaled_dot_product_attention(
        *(g.input(f"x{index}", shape) for index, shape in enumerate(shapes)), **options
    )


def test_mismatched_operands_are_refused() -> None:
    """Operands of attention that do not fit are refused with the shapes expected."""
    with pytest.raises(ShapeError, match=r"the same rank, .*heads, length, size"):
        build_attention((2, 3, 4, 5), (3, 4, 5), (3, 4, 5))
    for options in ({"window": 3}, {"offset": 3}, {"window": -1, "is_causal": True}):
        with pytest.raises(AttributeRefused, match="requires is_causal"):
            build_attention((3, 4, 5), (3, 4, 5), (3, 4, 5), **options)
    with pytest.raises(ShapeError, match="must divide the number of query heads"):
        build_attention((2, 3, 4, 5), (2, 2, 4, 5), (2, 2, 4, 5))
    with pytest.raises(ShapeError, match=r"shape \[1, 4, 4\], the query \[4, 5\]"):
        build_attention((4, 5), (4, 5), (4, 5), (1, 4, 4))
    with pytest.raises(RlxError, match=r"mask \[4, 9\]"):
        build_attention((2, 3, 4, 5), (2, 3, 4, 5), (2, 3, 4, 5), (4, 9))
