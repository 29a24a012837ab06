"""Attention of one new token, as ONNX Runtime's CPU has it and as it is defined."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the extra onnx is not installed")
pytest.importorskip("onnxruntime", reason="it is not installed")

import rlxweb as rlx
from rlxweb.errors import ModelError, Unsupported
from tests.onnx.test_microsoft import DOMAIN, made, named, real, whole
from tests.onnx.test_saving import runtime

B, N, D, PAST, ROOM = 4, 3, 8, 3, 6
WIDE = N * D
Q, K, V = (real(B, 1, WIDE) for _ in range(3))
OLD = [real(B, N, ROOM, D) for _ in range(2)]
BEFORE = whole([PAST])
MASK = whole([[1, 1, 1, 1], [1, 0, 1, 1], [0, 1, 1, 1], [1, 1, 0, 1]])
BIAS, MORE = real(3 * WIDE), real(1, N, 1, PAST + 1)
ACROSS = [real(B, N, 5, D) for _ in range(2)]
FAR = whole(np.tri(5, dtype=np.int32)[1:])
MULTI, SELF = "DecoderMaskedMultiHeadAttention", "DecoderMaskedSelfAttention"
SHARED: dict[str, Any] = {"num_heads": N, "past_present_share_buffer": 1}


def run(op: str, fed: Any, outputs: int, device: str = "cpu", **how: Any) -> Any:
    data = made(op, fed, outputs, DOMAIN, **how).SerializeToString()
    given = {n: a for n, a in fed.items() if a is not None}
    return list(rlx.onnx.load(data).run(given, device=device).values())


def close(got: Any, want: Any) -> None:
    assert len(got) == len(want)
    for ours, theirs in zip(got, want, strict=True):
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-5)


CASES: dict[str, Any] = {
    "a buffer": (named(Q, K, V, None, None, *OLD, BEFORE), 3, SHARED),
    "an empty buffer": (named(Q, K, V, None, None, *OLD, whole([0])), 3, SHARED),
    "a full buffer": (named(Q, K, V, None, None, *OLD, whole([ROOM - 1])), 3, SHARED),
    "a mask": (named(Q, K, V, MASK, None, *OLD, BEFORE), 3, SHARED),
    "a mask and biases": (
        named(Q, K, V, MASK, MORE, *OLD, BEFORE, None, None, BIAS),
        3,
        {**SHARED, "scale": 0.3, "mask_filter_value": -5.0},
    ),
    "one beam": (named(Q, K, V, MASK, None, *OLD, BEFORE, whole([1])), 3, SHARED),
    "the products": (
        named(Q, K, V, None, MORE, *OLD, BEFORE),
        4,
        {**SHARED, "output_qk": 1},
    ),
    "across": (named(Q, *ACROSS), 1, {"num_heads": N}),
    "across, a mask and a bias": (
        named(Q, *ACROSS, FAR, None, None, None, None, None, None, BIAS),
        1,
        {"num_heads": N},
    ),
}
GPU = pytest.mark.requires_wgpu


@pytest.mark.parametrize("device", ["cpu", pytest.param("vulkan", marks=GPU)])
@pytest.mark.parametrize("case", CASES)
def test_as_onnx_runtime_does(case: str, device: str) -> None:
    fed, outputs, how = CASES[case]
    data = made(MULTI, fed, outputs, DOMAIN, **how).SerializeToString()
    want = runtime(data, {n: a for n, a in fed.items() if a is not None})
    close(run(MULTI, fed, outputs, device, **how), want)


def attended(q: Any, k: Any, v: Any) -> Any:
    """Queries [B, 1, N·D] over keys and values [B, N, T, D]."""
    apart = q.reshape(len(q), N, 1, D).astype(float)
    scores = apart @ k.swapaxes(-1, -2) / D**0.5
    raised = np.exp(scores - scores.max(-1, keepdims=True))
    made = raised / raised.sum(-1, keepdims=True) @ v
    return made.reshape(len(q), 1, WIDE)


def test_what_is_kept_grows() -> None:
    """ONNX Runtime's CPU has shared buffers alone."""
    old = [one[:, :, :PAST].copy() for one in OLD]
    kept = [
        np.concatenate([one, new.reshape(B, N, 1, D)], 2)
        for one, new in zip(old, (K, V), strict=True)
    ]
    got = run(MULTI, named(Q, K, V, None, None, *old), 3, num_heads=N)
    close(got, [attended(Q, *kept), *kept])
    packed = named(np.concatenate([Q, K, V], 2), *[None] * 4, *old)
    close(run(MULTI, packed, 3, num_heads=N), got)


def test_beams_read_the_tokens_of_those_they_came_from() -> None:
    whose = whole([[[1, 0, 1], [0, 0, 1]], [[0, 1, 0], [1, 1, 1]]])
    behind = np.zeros((2, 2, ROOM - PAST), np.int32)
    indirection = np.concatenate([whose, behind], 2)
    fed = named(Q, K, V, None, None, *OLD, BEFORE, whole([2]), indirection)
    source = whose.reshape(B, PAST) + np.array([0, 0, 2, 2])[:, None]
    seen, kept = [], []
    for one, new in zip(OLD, (K, V), strict=True):
        apart = new.reshape(B, N, 1, D)
        read = [
            np.stack([one[source[row, at], :, at] for at in range(PAST)], 1)
            for row in range(B)
        ]
        seen.append(np.concatenate([np.stack(read), apart], 2))
        kept.append(np.concatenate([one[:, :, :PAST], apart, one[:, :, PAST + 1 :]], 2))
    close(run(MULTI, fed, 3, **SHARED), [attended(Q, *seen), *kept])


@pytest.mark.parametrize("is_shared", [True, False])
def test_with_its_projection(is_shared: bool) -> None:
    """The same as projected before, which ONNX Runtime's CPU has."""
    x, weights = real(B, 1, 10), real(10, 3 * WIDE)
    q, k, v = np.split(x @ weights + BIAS, 3, -1)
    fed = named(q, k, v, MASK, MORE, *OLD, BEFORE)
    data = made(MULTI, fed, 3, DOMAIN, **SHARED).SerializeToString()
    out, *kept = runtime(data, fed)
    past, end = np.stack(OLD), ROOM if is_shared else PAST
    fed = named(
        *(x, weights, BIAS, MASK, past[..., :end, :].copy(), MORE),
        BEFORE if is_shared else None,
    )
    how = {"num_heads": N, "past_present_share_buffer": int(is_shared)}
    end = ROOM if is_shared else PAST + 1
    close(run(SELF, fed, 2, **how), [out, np.stack(kept)[..., :end, :]])


REFUSED: dict[str, Any] = {
    "2 new tokens": (MULTI, named(*[real(B, 2, WIDE)] * 3, None, None, *OLD), {}),
    "no keys or values are kept": (MULTI, named(Q, K, V), {}),
    "one of keys and values": (MULTI, named(Q, K, None, None, None, *OLD), {}),
    "past_sequence_length is left out": (
        MULTI,
        named(Q, K, V, None, None, *OLD),
        SHARED,
    ),
    "6 tokens before": (MULTI, named(Q, K, V, None, None, *OLD, whole([6])), SHARED),
    "3 beams of 4 rows": (
        MULTI,
        named(Q, K, V, None, None, *OLD, BEFORE, whole([3])),
        SHARED,
    ),
    "a bias [5]": (
        MULTI,
        named(Q, K, V, None, None, *OLD, BEFORE, None, None, real(5)),
        SHARED,
    ),
    "a mask [4]": (MULTI, named(Q, K, V, whole([4] * 4), None, *OLD, BEFORE), SHARED),
    "a past beside keys in heads": (MULTI, named(Q, *ACROSS, None, None, *OLD), {}),
    "do_rotary is 0": (
        SELF,
        named(Q, real(WIDE, 3 * WIDE), BIAS, None, np.stack(OLD), None, BEFORE),
        {**SHARED, "do_rotary": 1},
    ),
    "no pair of keys and values": (
        SELF,
        named(Q, real(WIDE, 3 * WIDE), BIAS, None, OLD[0], None, BEFORE),
        SHARED,
    ),
}


@pytest.mark.parametrize("says", REFUSED)
def test_what_is_not_done_is_refused(says: str) -> None:
    op, fed, how = REFUSED[says]
    with pytest.raises((Unsupported, ModelError)) as caught:
        run(op, fed, 2, **{"num_heads": N, **how})
    assert says in str(caught.value)
