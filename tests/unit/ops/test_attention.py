"""Attention: reference and decomposition against plain loops, layouts, refusals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from rlxweb.core.errors import AttributeRefused, DTypeError, GraphError, ShapeError
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import registry
from rlxweb.ir.shape_arithmetic import Shape
from tests.engines_under_test import Array
from tests.unit.ops.single_op_runner import (
    build_op,
    op_decomposition,
    run,
    tensor_types,
)
from tests.unit.ops.single_op_runner import run_decomposition as by_decomposition

B, H, SQ, SK, D = 2, 4, 3, 5, 6


def is_visible(
    attrs: dict[str, Any], mask: Array | None, b: int, i: int, j: int
) -> bool:
    """Tell whether query i sees key j, as semantics §A.6 defines it."""
    kind = attrs.get("mask_kind", "none")
    position = i + attrs.get("offset", SK - SQ)
    if kind == "causal":
        return j <= position
    if kind == "sliding_window":
        return position - attrs["window"] <= j <= position
    if kind == "custom":
        assert mask is not None
        return bool(mask[b % mask.shape[0], j] >= 0.5)
    return True


def attention_by_loops(
    q: Array, k: Array, v: Array, mask: Array | None, attrs: dict[str, Any]
) -> Array:
    """Compute attention of [B, H, S, D] one score at a time."""
    out = np.zeros((B, H, SQ, v.shape[-1]))
    heads_per_key_head = H // k.shape[1]
    for b, h, i in np.ndindex(B, H, SQ):
        scores = np.empty(SK)
        for j in range(SK):
            s = q[b, h, i] @ k[b, h // heads_per_key_head, j]
            s *= attrs.get("score_scale") or D**-0.5
            if attrs.get("softcap"):
                s = attrs["softcap"] * np.tanh(s / attrs["softcap"])
            if mask is not None and attrs["mask_kind"] != "custom":
                s += np.broadcast_to(mask, (B, H, SQ, SK))[b, h, i, j]
            scores[j] = s if is_visible(attrs, mask, b, i, j) else -1e9
        weights = np.exp(scores - scores.max())
        out[b, h, i] = weights / weights.sum() @ v[b, h // heads_per_key_head]
    return out


def draw_arrays(*shapes: Shape) -> list[Array]:
    rng = np.random.default_rng(11)
    return [rng.uniform(-2, 2, s) for s in shapes]


HEADS = {"num_heads": H, "head_dim": D}


def reference_attention(arrays: list[Array], **attrs: Any) -> Array:
    return run("attention", *arrays, **HEADS, **attrs)


def composed_attention(arrays: list[Array], **attrs: Any) -> Array:
    return by_decomposition("attention", *arrays, **HEADS, **attrs)


MASKS: dict[str, tuple[dict[str, Any], Array | None]] = {
    "none": ({}, None),
    "causal": ({"mask_kind": "causal"}, None),
    "window": ({"mask_kind": "sliding_window", "window": 1}, None),
    "custom": (
        {"mask_kind": "custom"},
        np.array([[1, 0, 0.6, 0.4, 1], [0, 0, 0, 1, 1]]),
    ),
    "one custom row": ({"mask_kind": "custom"}, np.array([[1, 0, 1, 0, 1.0]])),
    "bias": ({"mask_kind": "bias"}, draw_arrays((B, H, SQ, SK))[0]),
    "bias per key": ({"mask_kind": "bias"}, draw_arrays((SK,))[0]),
    "bias per head": ({"mask_kind": "bias"}, draw_arrays((H, 1, SK))[0]),
    "causal and bias": ({"mask_kind": "causal"}, draw_arrays((B, 1, SQ, SK))[0]),
    "from the first key": ({"mask_kind": "causal", "offset": 0}, None),
    "window and bias": (
        {"mask_kind": "sliding_window", "window": 1, "offset": 1},
        draw_arrays((H, SQ, 1))[0],
    ),
    "beyond every key": ({"mask_kind": "causal", "offset": 2**40}, None),
    "before every key": ({"mask_kind": "causal", "offset": -(2**31)}, None),
    "window beyond 32 bits": (
        {"mask_kind": "sliding_window", "window": 2**31 + 1, "offset": 2**31 + 3},
        None,
    ),
    "window without keys": (
        {"mask_kind": "sliding_window", "window": 2, "offset": 2**31 - 1},
        None,
    ),
}
SCORES: list[dict[str, Any]] = [{}, {"score_scale": 0.3}, {"softcap": 1.2}]


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("scores", SCORES, ids=["plain", "scaled", "capped"])
@pytest.mark.parametrize("key_heads", [H, 2, 1])
def test_attention_matches_loops(
    kind: str, scores: dict[str, Any], key_heads: int
) -> None:
    """Reference and decomposition match the loops for every mask, scale, cap and head
    sharing.
    """
    mask_attrs, mask = MASKS[kind]
    attrs = {**mask_attrs, **scores}
    arrays = draw_arrays((B, H, SQ, D), (B, key_heads, SK, D), (B, key_heads, SK, 7))
    want = attention_by_loops(*arrays, mask, attrs)  # type: ignore[misc]
    operands = arrays if mask is None else [*arrays, mask]
    for method in (reference_attention, composed_attention):
        np.testing.assert_allclose(
            method(operands, **attrs), want, rtol=1e-10, atol=1e-12
        )


@pytest.mark.parametrize("causal", [False, True])
def test_the_three_layouts_are_one_computation(causal: bool) -> None:
    """[B, H, S, D], [B, S, H, D] and [B, S, H·D] give the same numbers."""
    arrays = draw_arrays((B, H, SQ, D), (B, 2, SK, D), (B, 2, SK, D))
    attrs = {"mask_kind": "causal" if causal else "none"}
    want = reference_attention(arrays, **attrs)
    rows = [np.ascontiguousarray(a.swapaxes(1, 2)) for a in arrays]
    flat = [a.reshape(*a.shape[:2], -1) for a in rows]
    for method in (reference_attention, composed_attention):
        np.testing.assert_allclose(
            method(rows, **attrs).swapaxes(1, 2), want, rtol=1e-12
        )
        got = method(flat, **attrs).reshape(B, SQ, H, D).swapaxes(1, 2)
        np.testing.assert_allclose(got, want, rtol=1e-12)


def test_heads_come_first_if_dimension_one_is_their_number() -> None:
    """Heads come first if dimension 1 is their number, whatever dimension 2 is."""
    q = draw_arrays((B, H, H, D))[0]
    first = reference_attention([q, q, q])
    scores = np.einsum("bhid,bhjd->bhij", q, q) * D**-0.5
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    np.testing.assert_allclose(first, weights @ q, rtol=1e-10)


@pytest.mark.parametrize("mask", [np.zeros((B, SK)), np.zeros((B, SK), bool)])
def test_a_fully_masked_row_is_the_mean_of_all_values(mask: Array) -> None:
    """A fully masked row has equal weights: its scores are all -1e9."""
    arrays = draw_arrays((B, H, SQ, D), (B, H, SK, D), (B, H, SK, D))
    want = np.broadcast_to(arrays[2].mean(2, keepdims=True), (B, H, SQ, D))
    for method in (reference_attention, composed_attention):
        got = method([*arrays, mask], mask_kind="custom")
        np.testing.assert_allclose(got, want, rtol=1e-12)


def test_a_query_before_the_first_key_averages_all_values() -> None:
    """Causal with fewer keys than queries: the first rows see nothing."""
    arrays = draw_arrays((1, H, 4, D), (1, H, 2, D), (1, H, 2, D))
    for method in (reference_attention, composed_attention):
        got = method(arrays, mask_kind="causal")
        want = arrays[2].mean(2)
        np.testing.assert_allclose(got[:, :, 0], want, rtol=1e-12)
        np.testing.assert_allclose(got[:, :, 1], want, rtol=1e-12)
        np.testing.assert_allclose(got[:, :, 2], arrays[2][:, :, 0], rtol=1e-12)


def test_bool_and_number_masks_agree() -> None:
    """1 keeps, below 0.5 masks; true keeps, false masks."""
    arrays = draw_arrays((B, H, SQ, D), (B, H, SK, D), (B, H, SK, D))
    keep = np.array(
        [[True, False, True, True, False], [False, True, True, False, True]]
    )
    want = reference_attention([*arrays, keep], mask_kind="custom")
    for mask in (keep.astype(np.float64), keep.astype(np.int32), keep * 0.5):
        for method in (reference_attention, composed_attention):
            got = method([*arrays, mask], mask_kind="custom")
            np.testing.assert_allclose(got, want, rtol=1e-12)


def test_without_keys_the_result_is_zero() -> None:
    """A sum over no values is 0."""
    arrays = draw_arrays((B, H, SQ, D), (B, H, 0, D), (B, H, 0, D))
    assert not reference_attention(arrays).any()
    assert reference_attention(arrays).shape == (B, H, SQ, D)


def test_no_constant_grows_with_queries_times_keys() -> None:
    """Positions are two vectors; the mask is compared on the fly."""
    g = Graph()
    q, k = g.input("q", (1, 1, 50, 4)), g.input("k", (1, 1, 70, 4))
    attrs = {"num_heads": 1, "head_dim": 4, "mask_kind": "sliding_window", "window": 3}
    checked_attrs = registry.get("attention").check_attrs(attrs)
    op_decomposition("attention").build(g, checked_attrs, q, k, k)
    sizes = [n.type.numel for n in g.nodes() if n.op == "constant"]
    assert max(sizes) == 70


def attention_shape(*types: Shape | tuple[Shape, str], **attrs: Any) -> Shape:
    return build_op(
        "attention", *types, **{"num_heads": 2, "head_dim": 4, **attrs}
    ).shape


Q, K = (3, 2, 5, 4), (3, 2, 7, 4)
WINDOW = {"mask_kind": "sliding_window"}


def test_the_output_has_the_queries_rows_and_the_values_size() -> None:
    """The output has the queries' rows and the values' size in every layout."""
    assert attention_shape(Q, K, (3, 2, 7, 9)) == (3, 2, 5, 9)
    assert attention_shape((3, 5, 2, 4), (3, 7, 2, 4), (3, 7, 2, 9)) == (3, 5, 2, 9)
    assert attention_shape((3, 5, 8), (3, 7, 8), (3, 7, 18)) == (3, 5, 18)


@pytest.mark.parametrize(
    ("shapes", "attrs", "error", "text"),
    [
        ((Q, K, (3, 2, 6, 4)), {}, ShapeError, "equal numbers of heads and keys"),
        ((Q, (2, 2, 7, 4), (2, 2, 7, 4)), {}, ShapeError, "batch size 3"),
        ((Q, (3, 2, 7, 5), K), {}, ShapeError, "k must have head size 4"),
        ((Q, K, K), {"head_dim": 5}, ShapeError, "head_dim is 5"),
        ((Q, K, K), {"num_heads": 3}, ShapeError, "num_heads is 3"),
        ((Q, (3, 7, 8), (3, 7, 8)), {}, ShapeError, "ranks 4, 3 and 3"),
        (((3, 5), (3, 5), (3, 5)), {}, ShapeError, "ranks 2, 2 and 2"),
        (
            ((3, 5, 9), (3, 7, 8), (3, 7, 8)),
            {},
            ShapeError,
            "9, must be a multiple of head_dim, 4",
        ),
        (
            (Q, *[(3, 3, 7, 4)] * 2),
            {},
            ShapeError,
            "must divide the number of query heads",
        ),
        ((Q, K, K), {"num_heads": 0}, AttributeRefused, "num_heads must be >= 1"),
        ((Q, K, K), {"head_dim": 0}, AttributeRefused, "head_dim must be >= 1"),
        (
            (Q, K, K),
            {"window": 2},
            AttributeRefused,
            "requires mask_kind='sliding_window'",
        ),
        ((Q, K, K), WINDOW | {"window": -1}, AttributeRefused, "window must be >= 0"),
        ((Q, K, K), {"mask_kind": "diagonal"}, AttributeRefused, "sliding_window"),
        ((Q, K, K), {"softcap": 0.0}, AttributeRefused, "softcap must be > 0 and <="),
        ((Q, K, K), {"softcap": 1e-300}, AttributeRefused, "is 0 in float32"),
        ((Q, K, K), {"score_scale": math.nan}, AttributeRefused, "finite"),
        ((Q, K, K, (3, 7)), {}, GraphError, "expected 0"),
        ((Q, K, K, (3, 8)), {"mask_kind": "causal"}, ShapeError, r"\[B, H, Sq, Sk\]"),
        ((Q, K, K), {"offset": 2}, AttributeRefused, "requires mask_kind='causal'"),
        ((Q, K, K), {"mask_kind": "custom"}, GraphError, "expected 1"),
        *(
            ((Q, K, K, mask), {"mask_kind": kind}, ShapeError, rf" = \[{wanted}\]")
            for mask, kind, wanted in [
                ((7, 3), "custom", "3, 7"),
                ((7,), "custom", "3, 7"),
                ((3, 2, 5, 6), "bias", "3, 2, 5, 7"),
                ((4, 3, 2, 5, 7), "bias", "3, 2, 5, 7"),
            ]
        ),
    ],
)
def test_invalid_operands_and_attributes_are_refused(
    shapes: tuple[Shape, ...], attrs: dict[str, Any], error: type[Exception], text: str
) -> None:
    """Operands, attributes and masks: the message names the sizes, nothing is ignored.

    A mask comes exactly with the kinds that take one.
    """
    with pytest.raises(error, match=text):
        attention_shape(*shapes, **attrs)


def test_dtypes_must_be_equal_floats() -> None:
    """Integers are refused, and a bias of another type than q."""
    with pytest.raises(DTypeError, match="bf16, f16, f32 or f64"):
        attention_shape((Q, "i32"), (K, "i32"), (K, "i32"))
    with pytest.raises(DTypeError, match="bias is f64"):
        attention_shape(Q, K, K, ((3, 2, 5, 7), "f64"), mask_kind="bias")


def test_flops_are_four_per_score_and_size() -> None:
    """4 · B · H · Sq · Sk · D when keys and values have one size."""
    op = registry.get("attention")
    inputs = tensor_types(Q, K, K)
    attrs = op.check_attrs({"num_heads": 2, "head_dim": 4})
    assert op.flops(inputs, inputs[0], attrs) == 4 * 3 * 2 * 5 * 7 * 4
