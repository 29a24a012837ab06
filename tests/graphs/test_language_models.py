"""Run a small Llama and a small Mamba on a prompt and then token by token, against
PyTorch.

What they remember (keys and values, the states of convolution and scan) stays on the
device between the runs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import rlxweb as rlx
from tests.engines_under_test import Array

F = torch.nn.functional

WIDTH = 32
HEADS = 4
KV_HEADS = 2
HEAD_SIZE = 8
HIDDEN = 48
LAYERS = 2
VOCABULARY_SIZE = 17
CACHE_LENGTH = 16
INNER, STATE_SIZE, DT_RANK, CONV_TAPS = 24, 5, 3, 4
PROMPT, STEPS = 6, 4
DEVICES = ["cpu", pytest.param("vulkan", marks=pytest.mark.requires_wgpu)]

LLAMA_SHAPES = {
    "norm1": (WIDTH,),
    "qkv": (WIDTH, (HEADS + 2 * KV_HEADS) * HEAD_SIZE),
    "out": (HEADS * HEAD_SIZE, WIDTH),
    "norm2": (WIDTH,),
    "gate_up": (WIDTH, 2 * HIDDEN),
    "down": (HIDDEN, WIDTH),
}
MAMBA_SHAPES = {
    "norm1": (WIDTH,),
    "in": (WIDTH, 2 * INNER),
    "taps": (INNER, CONV_TAPS),
    "taps_bias": (INNER,),
    "x": (INNER, DT_RANK + 2 * STATE_SIZE),
    "dt": (DT_RANK, INNER),
    "dt_bias": (INNER,),
    "rates": (INNER, STATE_SIZE),
    "skip": (INNER,),
    "out": (INNER, WIDTH),
}


def random_weights(shapes: dict[str, Any]) -> dict[str, Array]:
    """Return the weights of every layer, and the word embeddings."""
    rng = np.random.default_rng(3)
    weights = {"words": rng.standard_normal((VOCABULARY_SIZE, WIDTH))}
    for layer in range(LAYERS):
        for name, shape in shapes.items():
            scale = shape[0] ** -0.5 if len(shape) > 1 else 1.0
            weights[f"{name}{layer}"] = rng.standard_normal(shape) * scale
        if "rates" in shapes:
            weights[f"rates{layer}"] = -np.exp(weights[f"rates{layer}"])
    return {name: a.astype(np.float32) for name, a in weights.items()}


# --- Llama --------------------------------------------------------------------------


def llama(count: int) -> rlx.Graph:
    """Return a graph of the scores after each of `count` tokens, and of the updated
    caches.
    """
    g = rlx.Graph("llama")
    ids, positions = g.input("ids", (count,), "i32"), g.input("at", (count,), "i32")
    words = g.param("words", (VOCABULARY_SIZE, WIDTH))
    table = g.rope_table(CACHE_LENGTH, HEAD_SIZE)
    causal_mask = g.le(
        g.constant(np.arange(CACHE_LENGTH, dtype=np.int32)),
        g.reshape(positions, (count, 1)),
    )
    x, all_caches = g.gather(words, ids), []
    for layer in range(LAYERS):
        w = {n: g.param(f"{n}{layer}", s) for n, s in LLAMA_SHAPES.items()}
        projected = g.rms_norm(x, w["norm1"]) @ w["qkv"]
        ends = np.cumsum([HEADS, KV_HEADS]) * HEAD_SIZE
        heads = (HEADS, KV_HEADS, KV_HEADS)
        parts = [
            g.reshape(
                g.narrow(projected, 1, int(first), n * HEAD_SIZE), (count, n, HEAD_SIZE)
            )
            for first, n in zip((0, *ends), heads, strict=True)
        ]
        q, k = (g.transpose(tensor, (1, 0, 2)) for tensor in parts[:2])
        q, k = g.rope(q, *table, positions), g.rope(k, *table, positions)
        rows, caches = g.reshape(positions, (count, 1)), []
        for name, new in (("k", g.transpose(k, (1, 0, 2))), ("v", parts[2])):
            cache = g.param(f"{name}_cache{layer}", (CACHE_LENGTH, KV_HEADS, HEAD_SIZE))
            caches.append(g.scatter_nd(cache, rows, new))
        keys, values = (g.transpose(tensor, (1, 0, 2)) for tensor in caches)
        operands = (
            g.reshape(tensor, (1, *tensor.shape)) for tensor in (q, keys, values)
        )
        attended = g.scaled_dot_product_attention(*operands, causal_mask)
        attended = g.reshape(
            g.transpose(attended, (0, 2, 1, 3)), (count, HEADS * HEAD_SIZE)
        )
        x = x + attended @ w["out"]
        inner = g.rms_norm(x, w["norm2"]) @ w["gate_up"]
        x = x + g.swiglu(inner, gate_first=True) @ w["down"]
        all_caches += caches
    g.set_outputs([x @ g.transpose(words, (1, 0)), *all_caches])
    return g


def torch_llama(w: dict[str, Any], ids: Any) -> Any:
    x, n = w["words"][ids], len(ids)
    half = torch.arange(HEAD_SIZE // 2, dtype=torch.float64)
    angles = torch.arange(n)[:, None] * 10000.0 ** (-2 * half / HEAD_SIZE)
    cos, sin = (torch.cat([f(angles)] * 2, -1) for f in (torch.cos, torch.sin))

    def rotate(x: Any) -> Any:
        a, b = x.chunk(2, -1)
        return x * cos + torch.cat([-b, a], -1) * sin

    for layer in range(LAYERS):
        projected = F.rms_norm(x, (WIDTH,), w[f"norm1{layer}"], 1e-5) @ w[f"qkv{layer}"]
        heads = projected.reshape(n, -1, HEAD_SIZE).transpose(0, 1)
        q, k, v = heads.split([HEADS, KV_HEADS, KV_HEADS])
        k, v = (
            tensor.repeat_interleave(HEADS // KV_HEADS, 0) for tensor in (rotate(k), v)
        )
        attended = F.scaled_dot_product_attention(rotate(q), k, v, is_causal=True)
        x = x + attended.transpose(0, 1).reshape(n, -1) @ w[f"out{layer}"]
        inner = F.rms_norm(x, (WIDTH,), w[f"norm2{layer}"], 1e-5) @ w[f"gate_up{layer}"]
        gate, up = inner.chunk(2, -1)
        x = x + (F.silu(gate) * up) @ w[f"down{layer}"]
    return x @ w["words"].T


# --- Mamba --------------------------------------------------------------------------


def mamba(count: int) -> rlx.Graph:
    """Return a graph of the scores after each of `count` tokens, and of the updated
    states.
    """
    g = rlx.Graph("mamba")
    ids = g.input("ids", (count,), "i32")
    words = g.param("words", (VOCABULARY_SIZE, WIDTH))
    x, states = g.reshape(g.gather(words, ids), (1, count, WIDTH)), []
    for layer in range(LAYERS):
        w = {n: g.param(f"{n}{layer}", s) for n, s in MAMBA_SHAPES.items()}
        conv_state = g.param(f"conv_state{layer}", (1, CONV_TAPS - 1, INNER))
        state = g.param(f"scan_state{layer}", (1, STATE_SIZE, INNER))
        projected = g.rms_norm(x, w["norm1"]) @ w["in"]
        inner, gate = g.split(projected, 2, axis=2)
        inner, conv_state = g.causal_conv1d(
            inner, w["taps"], w["taps_bias"], conv_state
        )
        inner = g.silu(inner)
        rank, b, c = g.split(inner @ w["x"], (DT_RANK, STATE_SIZE, STATE_SIZE), axis=2)
        y, state = g.selective_scan(
            *(inner, rank @ w["dt"], w["rates"], b, c, w["skip"], gate, w["dt_bias"]),
            delta_softplus=True,
            state=state,
        )
        x = x + y @ w["out"]
        states += [conv_state, state]
    scores = g.reshape(x, (count, WIDTH)) @ g.transpose(words, (1, 0))
    g.set_outputs([scores, *states])
    return g


def torch_mamba(w: dict[str, Any], ids: Any) -> Any:
    x, n = w["words"][ids], len(ids)
    for layer in range(LAYERS):
        layer_weights = {name: w[f"{name}{layer}"] for name in MAMBA_SHAPES}
        outputs = (
            F.rms_norm(x, (WIDTH,), layer_weights["norm1"], 1e-5) @ layer_weights["in"]
        )
        inner, gate = outputs.chunk(2, -1)
        taps = layer_weights["taps"][:, None]
        padded = F.pad(inner.T[None], (CONV_TAPS - 1, 0))
        inner = F.conv1d(padded, taps, layer_weights["taps_bias"], groups=INNER)[0].T
        inner = F.silu(inner)
        rank, b, c = (inner @ layer_weights["x"]).split(
            [DT_RANK, STATE_SIZE, STATE_SIZE], -1
        )
        delta = F.softplus(rank @ layer_weights["dt"] + layer_weights["dt_bias"])
        h, outputs = torch.zeros(INNER, STATE_SIZE, dtype=torch.float64), []
        for t in range(n):
            step = delta[t][:, None]
            h = (
                torch.exp(step * layer_weights["rates"]) * h
                + step * inner[t][:, None] * b[t]
            )
            outputs.append(h @ c[t] + layer_weights["skip"] * inner[t])
        x = x + (torch.stack(outputs) * F.silu(gate)) @ layer_weights["out"]
    return x @ w["words"].T


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["llama", "mamba"])
def test_prompt_then_token_by_token(name: str, device: str) -> None:
    build, torch_model, shapes = {
        "llama": (llama, torch_llama, LLAMA_SHAPES),
        "mamba": (mamba, torch_mamba, MAMBA_SHAPES),
    }[name]
    weights = random_weights(shapes)
    ids = np.random.default_rng(8).integers(
        0, VOCABULARY_SIZE, PROMPT + STEPS, np.int32
    )
    f64_weights = {n: torch.from_numpy(a).double() for n, a in weights.items()}
    want = torch_model(f64_weights, torch.from_numpy(ids).long()).numpy()
    session, start, device_states, all_scores = rlx.Session(device), 0, {}, []
    models = {count: session.compile(build(count)) for count in (PROMPT, 1)}
    state_names = [n for n in models[1].graph.named("param") if n not in weights]
    for model in models.values():
        for n, a in weights.items():
            model.set_param(n, a)
    for count in (PROMPT, *[1] * STEPS):
        model = models[count]
        for n in state_names:
            shape = model.graph.named("param")[n].type.shape
            model.set_param(n, device_states.get(n, np.zeros(shape, np.float32)))
        positions = np.arange(start, start + count, dtype=np.int32)
        feeds = {"ids": ids[positions]} | ({"at": positions} if name == "llama" else {})
        keep = tuple(range(1, 1 + len(state_names)))
        scores, *new_states = model.run(feeds, keep=keep)
        assert all(isinstance(state, rlx.DeviceArray) for state in new_states)
        device_states = dict(zip(state_names, new_states, strict=True))
        all_scores.append(scores)
        start += count
    np.testing.assert_allclose(np.concatenate(all_scores), want, rtol=1e-3, atol=1e-4)
