"""A small Llama and a small Mamba, a prompt and then word by word, against PyTorch.

What they remember (keys and values, the states of convolution and scan) stays on the
device between the runs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import rlxweb as rlx
from tests.agreement import Array

F = torch.nn.functional

WIDTH, HEADS, SHARED, SIZE, HIDDEN, LAYERS, WORDS = 32, 4, 2, 8, 48, 2, 17
ROOM = 16
INNER, STATE, RANK, TAPS = 24, 5, 3, 4
PROMPT, STEPS = 6, 4
DEVICES = ["cpu", pytest.param("vulkan", marks=pytest.mark.requires_wgpu)]

SHAPES_OF_LLAMA = {
    "norm1": (WIDTH,),
    "qkv": (WIDTH, (HEADS + 2 * SHARED) * SIZE),
    "out": (HEADS * SIZE, WIDTH),
    "norm2": (WIDTH,),
    "gate_up": (WIDTH, 2 * HIDDEN),
    "down": (HIDDEN, WIDTH),
}
SHAPES_OF_MAMBA = {
    "norm1": (WIDTH,),
    "in": (WIDTH, 2 * INNER),
    "taps": (INNER, TAPS),
    "taps_bias": (INNER,),
    "x": (INNER, RANK + 2 * STATE),
    "dt": (RANK, INNER),
    "dt_bias": (INNER,),
    "rates": (INNER, STATE),
    "skip": (INNER,),
    "out": (INNER, WIDTH),
}


def drawn(shapes: dict[str, Any]) -> dict[str, Array]:
    """Weights of every layer, and the words."""
    rng = np.random.default_rng(3)
    found = {"words": rng.standard_normal((WORDS, WIDTH))}
    for layer in range(LAYERS):
        for name, shape in shapes.items():
            scale = shape[0] ** -0.5 if len(shape) > 1 else 1.0
            found[f"{name}{layer}"] = rng.standard_normal(shape) * scale
        if "rates" in shapes:
            found[f"rates{layer}"] = -np.exp(found[f"rates{layer}"])
    return {name: a.astype(np.float32) for name, a in found.items()}


# --- Llama --------------------------------------------------------------------------


def llama(count: int) -> rlx.Graph:
    """Scores of the word after each of `count`, and the caches with them in."""
    g = rlx.Graph("llama")
    ids, at = g.input("ids", (count,), "i32"), g.input("at", (count,), "i32")
    words = g.param("words", (WORDS, WIDTH))
    table = g.rope_table(ROOM, SIZE)
    sees = g.le(g.constant(np.arange(ROOM, dtype=np.int32)), g.reshape(at, (count, 1)))
    x, kept = g.gather(words, ids), []
    for layer in range(LAYERS):
        w = {n: g.param(f"{n}{layer}", s) for n, s in SHAPES_OF_LLAMA.items()}
        made = g.rms_norm(x, w["norm1"]) @ w["qkv"]
        ends, heads = np.cumsum([HEADS, SHARED]) * SIZE, (HEADS, SHARED, SHARED)
        parts = [
            g.reshape(g.narrow(made, 1, int(first), n * SIZE), (count, n, SIZE))
            for first, n in zip((0, *ends), heads, strict=True)
        ]
        q, k = (g.transpose(one, (1, 0, 2)) for one in parts[:2])
        q, k = g.rope(q, *table, at), g.rope(k, *table, at)
        rows, caches = g.reshape(at, (count, 1)), []
        for name, new in (("k", g.transpose(k, (1, 0, 2))), ("v", parts[2])):
            cache = g.param(f"{name}_cache{layer}", (ROOM, SHARED, SIZE))
            caches.append(g.scatter_nd(cache, rows, new))
        keys, values = (g.transpose(one, (1, 0, 2)) for one in caches)
        operands = (g.reshape(one, (1, *one.shape)) for one in (q, keys, values))
        seen = g.scaled_dot_product_attention(*operands, sees)
        seen = g.reshape(g.transpose(seen, (0, 2, 1, 3)), (count, HEADS * SIZE))
        x = x + seen @ w["out"]
        inner = g.rms_norm(x, w["norm2"]) @ w["gate_up"]
        x = x + g.swiglu(inner, gate_first=True) @ w["down"]
        kept += caches
    g.set_outputs([x @ g.transpose(words, (1, 0)), *kept])
    return g


def llama_of_torch(w: dict[str, Any], ids: Any) -> Any:
    x, n = w["words"][ids], len(ids)
    half = torch.arange(SIZE // 2, dtype=torch.float64)
    angles = torch.arange(n)[:, None] * 10000.0 ** (-2 * half / SIZE)
    cos, sin = (torch.cat([f(angles)] * 2, -1) for f in (torch.cos, torch.sin))

    def turned(x: Any) -> Any:
        a, b = x.chunk(2, -1)
        return x * cos + torch.cat([-b, a], -1) * sin

    for layer in range(LAYERS):
        made = F.rms_norm(x, (WIDTH,), w[f"norm1{layer}"], 1e-5) @ w[f"qkv{layer}"]
        heads = made.reshape(n, -1, SIZE).transpose(0, 1)
        q, k, v = heads.split([HEADS, SHARED, SHARED])
        k, v = (one.repeat_interleave(HEADS // SHARED, 0) for one in (turned(k), v))
        seen = F.scaled_dot_product_attention(turned(q), k, v, is_causal=True)
        x = x + seen.transpose(0, 1).reshape(n, -1) @ w[f"out{layer}"]
        inner = F.rms_norm(x, (WIDTH,), w[f"norm2{layer}"], 1e-5) @ w[f"gate_up{layer}"]
        gate, up = inner.chunk(2, -1)
        x = x + (F.silu(gate) * up) @ w[f"down{layer}"]
    return x @ w["words"].T


# --- Mamba --------------------------------------------------------------------------


def mamba(count: int) -> rlx.Graph:
    """Scores of the word after each of `count`, and the states behind them."""
    g = rlx.Graph("mamba")
    ids = g.input("ids", (count,), "i32")
    words = g.param("words", (WORDS, WIDTH))
    x, kept = g.reshape(g.gather(words, ids), (1, count, WIDTH)), []
    for layer in range(LAYERS):
        w = {n: g.param(f"{n}{layer}", s) for n, s in SHAPES_OF_MAMBA.items()}
        before = g.param(f"conv_state{layer}", (1, TAPS - 1, INNER))
        state = g.param(f"scan_state{layer}", (1, STATE, INNER))
        made = g.rms_norm(x, w["norm1"]) @ w["in"]
        inner, gate = g.split(made, 2, axis=2)
        inner, before = g.causal_conv1d(inner, w["taps"], w["taps_bias"], before)
        inner = g.silu(inner)
        rank, b, c = g.split(inner @ w["x"], (RANK, STATE, STATE), axis=2)
        y, state = g.selective_scan(
            *(inner, rank @ w["dt"], w["rates"], b, c, w["skip"], gate, w["dt_bias"]),
            delta_softplus=True,
            state=state,
        )
        x = x + y @ w["out"]
        kept += [before, state]
    scores = g.reshape(x, (count, WIDTH)) @ g.transpose(words, (1, 0))
    g.set_outputs([scores, *kept])
    return g


def mamba_of_torch(w: dict[str, Any], ids: Any) -> Any:
    x, n = w["words"][ids], len(ids)
    for layer in range(LAYERS):
        one = {name: w[f"{name}{layer}"] for name in SHAPES_OF_MAMBA}
        made = F.rms_norm(x, (WIDTH,), one["norm1"], 1e-5) @ one["in"]
        inner, gate = made.chunk(2, -1)
        taps = one["taps"][:, None]
        padded = F.pad(inner.T[None], (TAPS - 1, 0))
        inner = F.conv1d(padded, taps, one["taps_bias"], groups=INNER)[0].T
        inner = F.silu(inner)
        rank, b, c = (inner @ one["x"]).split([RANK, STATE, STATE], -1)
        delta = F.softplus(rank @ one["dt"] + one["dt_bias"])
        h, made = torch.zeros(INNER, STATE, dtype=torch.float64), []
        for t in range(n):
            step = delta[t][:, None]
            h = torch.exp(step * one["rates"]) * h + step * inner[t][:, None] * b[t]
            made.append(h @ c[t] + one["skip"] * inner[t])
        x = x + (torch.stack(made) * F.silu(gate)) @ one["out"]
    return x @ w["words"].T


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["llama", "mamba"])
def test_a_prompt_and_then_word_by_word(name: str, device: str) -> None:
    build, want_of, shapes = {
        "llama": (llama, llama_of_torch, SHAPES_OF_LLAMA),
        "mamba": (mamba, mamba_of_torch, SHAPES_OF_MAMBA),
    }[name]
    weights = drawn(shapes)
    ids = np.random.default_rng(8).integers(0, WORDS, PROMPT + STEPS, np.int32)
    wide = {n: torch.from_numpy(a).double() for n, a in weights.items()}
    want = want_of(wide, torch.from_numpy(ids).long()).numpy()
    session, at, kept, found = rlx.Session(device), 0, {}, []
    ways = {count: session.compile(build(count)) for count in (PROMPT, 1)}
    states = [n for n in ways[1].graph.named("param") if n not in weights]
    for way in ways.values():
        for n, a in weights.items():
            way.set_param(n, a)
    for count in (PROMPT, *[1] * STEPS):
        way = ways[count]
        for n in states:
            shape = way.graph.named("param")[n].type.shape
            way.set_param(n, kept.get(n, np.zeros(shape, np.float32)))
        places = np.arange(at, at + count, dtype=np.int32)
        fed = {"ids": ids[places]} | ({"at": places} if name == "llama" else {})
        keep = tuple(range(1, 1 + len(states)))
        scores, *now = way.run(fed, keep=keep)
        assert all(isinstance(one, rlx.DeviceArray) for one in now)
        kept = dict(zip(states, now, strict=True))
        found.append(scores)
        at += count
    np.testing.assert_allclose(np.concatenate(found), want, rtol=1e-3, atol=1e-4)
