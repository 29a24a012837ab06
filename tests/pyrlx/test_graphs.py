"""Every op that pyrlx and rlxweb both have, called as pyrlx calls it, against NumPy.

Shapes and dtypes are asked for while the graph is built, arrays and bytes are compared
after it ran.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import rlxweb
from tests.pyrlx import shim as rlx
from tests.pyrlx.image_cases import IMAGES

RNG = np.random.default_rng(7)
A = RNG.standard_normal((2, 3)).astype(np.float32)
B = RNG.uniform(0.5, 2.0, (2, 3)).astype(np.float32)
SQUARE = RNG.standard_normal((3, 4)).astype(np.float32)
ROWS = RNG.standard_normal((2, 8)).astype(np.float32)
HEADS = [RNG.standard_normal((1, 2, 5, 4)).astype(np.float32) for _ in range(3)]

ELSEWHERE = {
    *("dense_solve", "batched_dense_solve", "custom_fn"),
    *("sample", "rope_n"),
}
"""Pyrlx's methods for which there is no op here."""
OTHERWISE = {"lora_matmul"}
"""Methods that here do not take what follows from the operands: a shape."""
HERE = {
    *("constant", "set_outputs", "shape_of", "matmul", "matmul_with_shape"),
    *("fused_matmul_bias_act", "binary", "add", "sub", "mul", "div", "activation"),
    *("gelu", "gelu_approx", "silu", "relu", "exp", "sqrt", "neg", "tanh", "compare"),
    "stop_gradient",
    *("eq_", "lt_", "gt_", "ge_", "ne_", "where_", "reduce", "sum", "mean", "softmax"),
    *("cumsum", "reshape", "transpose", "narrow", "concat", "gather", "cast", "fft"),
    *("fft_norm", "fft_real", "rfft", "irfft", "fftfreq", "rfftfreq", "psd"),
    *("psd_real", "layer_norm", "rms_norm", "attention", "attention_kind"),
    *("rope", "resize_nearest_2x"),
    *("input", "param", "conv2d", "conv_transpose2d", "layer_norm2d", "group_norm"),
}


@dataclass(frozen=True)
class Case:
    """A call, its operands, and what NumPy makes of them."""

    call: Callable[..., Any]
    operands: tuple[np.ndarray[Any, Any], ...]
    want: Any
    tolerance: float = 1e-5

    def run(self) -> tuple[list[Any], list[tuple[list[int], str]]]:
        """(outputs, what `shape_of` said of them)."""
        g = rlx.Graph("case")
        nodes = [
            g.input(f"x{i}", list(a.shape), rlx.dtype_str(a.dtype))
            for i, a in enumerate(self.operands)
        ]
        made = self.call(g, *nodes)
        made = made if isinstance(made, tuple) else (made,)
        assert all(isinstance(one, int) for one in made)
        g.set_outputs(made)
        said = [g.shape_of(one) for one in made]
        inputs = {f"x{i}": a for i, a in enumerate(self.operands)}
        return rlx.Session(device="cpu").compile(g).run(inputs), said


def erf(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.vectorize(math.erf)(x)


def norm(x: Any, gamma: Any, beta: Any, centred: bool, eps: float) -> Any:
    middle = x.mean(-1, keepdims=True) if centred else 0.0
    spread = np.sqrt(((x - middle) ** 2).mean(-1, keepdims=True) + eps)
    return (x - middle) / spread * gamma + beta


def attended(keep: Any) -> Any:
    """Scaled scores of HEADS, where `keep` holds."""
    q, k, v = (x.astype(float) for x in HEADS)
    scores = np.where(keep, q @ np.swapaxes(k, 2, 3) / 2.0, -1e9)
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v


def block(z: Any) -> Any:
    return np.concatenate([z.real, z.imag], -1)


TIMES = {"add": A + B, "sub": A - B, "mul": A * B, "div": A / B}
HOLDS = {
    **{"eq": A == B, "ne": A != B, "lt": A < B},
    **{"le": A <= B, "gt": A > B, "ge": A >= B},
}
REDUCED = {name: getattr(np, name) for name in ("sum", "mean", "max", "min", "prod")}
KINDS = {
    "gelu": B / 2 * (1 + erf(B / math.sqrt(2))),
    "gelu_approx": B
    / 2
    * (1 + np.tanh(math.sqrt(2 / math.pi) * (B + 0.044715 * B**3))),
    "silu": B / (1 + np.exp(-B)),
    "relu": np.maximum(A, 0),
    "sigmoid": 1 / (1 + np.exp(-B)),
    "tanh": np.tanh(B),
    "exp": np.exp(B),
    "log": np.log(B),
    "sqrt": np.sqrt(B),
    "rsqrt": 1 / np.sqrt(B),
    "neg": -B,
    "abs": np.abs(A),
}
NAMED = ("gelu", "gelu_approx", "silu", "relu", "exp", "sqrt", "neg", "tanh")
OF_A = ("relu", "abs")
INDEX = np.array([2, 0], np.int64)
GAMMA, BETA = B[0], A[1]
SPECTRUM = np.fft.fft(ROWS)
HALF = np.fft.rfft(ROWS)
CAUSAL = np.tril(np.ones((5, 5), bool))
NEAR = CAUSAL & ~np.tril(np.ones((5, 5), bool), -3)
KEPT = np.array([[1, 1, 0, 1, 0]], np.float32)

ANGLES = RNG.uniform(0, 7, (5, 2))
COS, SIN = np.cos(ANGLES).astype(np.float32), np.sin(ANGLES).astype(np.float32)
PLACES = RNG.standard_normal((2, 5, 12)).astype(np.float32)


def turned(x: Any) -> Any:
    """Heads of 4 elements: element i and i + 2 turned by the angle of place and i."""
    heads = x.reshape(*x.shape[:2], -1, 2, 2)
    cos, sin = COS[:, None], SIN[:, None]
    first, second = heads[..., 0, :], heads[..., 1, :]
    both = first * cos - second * sin, second * cos + first * sin
    return np.stack(both, -2).reshape(x.shape)


CASES = {
    **{
        f"rope {count} heads": Case(
            lambda g, x, c, s: g.rope(x, c, s, head_dim=4),
            (PLACES[..., : 4 * count], COS, SIN),
            turned(PLACES[..., : 4 * count]),
        )
        for count in (1, 2, 3)
    },
    **{
        f"binary {n}": Case(lambda g, x, y, n=n: g.binary(n, x, y), (A, B), want)
        for n, want in TIMES.items()
    },
    **{
        n: Case(lambda g, x, y, n=n: getattr(g, n)(x, y), (A, B), want)
        for n, want in TIMES.items()
    },
    "binary max": Case(lambda g, x, y: g.binary("max", x, y), (A, B), np.maximum(A, B)),
    "binary min": Case(lambda g, x, y: g.binary("min", x, y), (A, B), np.minimum(A, B)),
    "binary pow": Case(lambda g, x, y: g.binary("pow", x, y), (B, A), B**A),
    "binary -": Case(lambda g, x, y: g.binary("-", x, y), (A, B), A - B),
    "stop_gradient": Case(lambda g, x: g.stop_gradient(x), (A,), A),
    "mul broadcast": Case(lambda g, x, y: g.mul(x, y), (A, B[0]), A * B[0]),
    **{
        f"compare {n}": Case(lambda g, x, y, n=n: g.compare(n, x, y), (A, B), want)
        for n, want in HOLDS.items()
    },
    "compare <=": Case(lambda g, x, y: g.compare("<=", x, y), (A, B), A <= B),
    **{
        f"{n}_": Case(lambda g, x, y, n=n: getattr(g, n + "_")(x, y), (A, B), HOLDS[n])
        for n in ("eq", "lt", "gt", "ge", "ne")
    },
    "where_": Case(
        lambda g, c, x, y: g.where_(c, x, y), (A > 0, A, B), np.where(A > 0, A, B)
    ),
    **{
        f"activation {n}": Case(
            lambda g, x, n=n: g.activation(n, x), (A if n in OF_A else B,), want
        )
        for n, want in KINDS.items()
    },
    **{
        n: Case(lambda g, x, n=n: getattr(g, n)(x), (A if n in OF_A else B,), KINDS[n])
        for n in NAMED
    },
    **{
        f"reduce {n}": Case(
            lambda g, x, n=n: g.reduce(x, n, [1], True), (A,), f(A, 1, keepdims=True)
        )
        for n, f in REDUCED.items()
    },
    "sum": Case(lambda g, x: g.sum(x, [0], keep_dim=False), (A,), A.sum(0)),
    "mean": Case(
        lambda g, x: g.mean(x, [0, 1], keep_dim=True), (A,), A.mean(keepdims=True)
    ),
    "softmax": Case(
        lambda g, x: g.softmax(x), (A,), np.exp(A) / np.exp(A).sum(-1, keepdims=True)
    ),
    "cumsum": Case(lambda g, x: g.cumsum(x, axis=-1), (A,), A.cumsum(-1)),
    "cumsum exclusive": Case(
        lambda g, x: g.cumsum(x, 1, exclusive=True), (A,), A.cumsum(1) - A, 1e-4
    ),
    "matmul": Case(lambda g, x, y: g.matmul(x, y), (A, SQUARE), A @ SQUARE),
    "matmul_with_shape": Case(
        lambda g, x, y: g.matmul_with_shape(x, y, [2, 4], "f32"),
        (A, SQUARE),
        A @ SQUARE,
    ),
    "fused_matmul_bias_act": Case(
        lambda g, x, w, b: g.fused_matmul_bias_act(x, w, b, [2, 4], "f32", "relu"),
        (A, SQUARE, SQUARE[0]),
        np.maximum(A @ SQUARE + SQUARE[0], 0),
    ),
    "reshape": Case(lambda g, x: g.reshape(x, [3, 2]), (A,), A.reshape(3, 2)),
    "transpose": Case(lambda g, x: g.transpose(x, [1, 0]), (A,), A.T),
    "narrow": Case(lambda g, x: g.narrow(x, 1, 1, 2), (A,), A[:, 1:3]),
    "concat": Case(lambda g, x, y: g.concat([x, y], axis=1), (A, B), np.hstack([A, B])),
    "gather": Case(
        lambda g, t, i: g.gather(t, i, axis=0), (SQUARE, INDEX), SQUARE[INDEX]
    ),
    "cast": Case(lambda g, x: g.cast(x, "f16"), (A,), A.astype(np.float16), 0),
    "layer_norm": Case(
        lambda g, x, c, b: g.layer_norm(x, c, b),
        (A, GAMMA, BETA),
        norm(A, GAMMA, BETA, True, 1e-5),
    ),
    "layer_norm eps": Case(
        lambda g, x, c, b: g.layer_norm(x, c, b, -1, 0.5),
        (A, GAMMA, BETA),
        norm(A, GAMMA, BETA, True, 0.5),
    ),
    "rms_norm": Case(
        lambda g, x, c, b: g.rms_norm(x, c, b, 1e-3),
        (A, GAMMA, BETA),
        norm(A, GAMMA, BETA, False, 1e-3),
    ),
    **{name: Case(*case) for name, case in IMAGES.items()},
    "attention": Case(
        lambda g, q, k, v, m: g.attention(q, k, v, m, 2, 4),
        (*HEADS, KEPT),
        attended(KEPT > 0),
    ),
    "attention_kind none": Case(
        lambda g, q, k, v: g.attention_kind(q, k, v, 2, 4, "none"),
        (*HEADS,),
        attended(True),
    ),
    "attention_kind causal": Case(
        lambda g, q, k, v: g.attention_kind(
            q, k, v, num_heads=2, head_dim=4, mask_kind="causal"
        ),
        (*HEADS,),
        attended(CAUSAL),
    ),
    "attention_kind sliding": Case(
        lambda g, q, k, v: g.attention_kind(q, k, v, 2, 4, "sliding:2"),
        (*HEADS,),
        attended(NEAR),
    ),
    "fft_real": Case(
        lambda g, x: g.fft_real(x, norm="forward"),
        (ROWS,),
        (SPECTRUM.real, SPECTRUM.imag),
    ),
    "rfft": Case(lambda g, x: g.rfft(x), (ROWS,), (HALF.real, HALF.imag)),
    "rfft forward": Case(
        lambda g, x: g.rfft(x, norm="forward"), (ROWS,), (HALF.real, HALF.imag)
    ),
    "rfft ortho": Case(
        lambda g, x: g.rfft(x, norm="ortho"),
        (ROWS,),
        (HALF.real / 8**0.5, HALF.imag / 8**0.5),
    ),
    **{
        f"irfft {n}": Case(
            lambda g, x, n=n: g.irfft(*g.rfft(x, norm=n), 8, norm=n),
            (ROWS,),
            ROWS * scale,
        )
        for n, scale in (
            ("backward", 8),
            ("none", 8),
            ("forward", 1),
            ("ortho", 1),
            ("orthonormal", 1),
        )
    },
    "psd": Case(lambda g, x, y: g.psd(x, y), (A, B), (A**2 + B**2) / 3),
    "psd_real": Case(lambda g, x: g.psd_real(x), (ROWS,), np.abs(HALF) ** 2 / 5),
    "fftfreq": Case(
        lambda g: g.fftfreq(8),
        (),
        np.append(np.fft.fftfreq(8)[:4], [0.5, -0.375, -0.25, -0.125]),
    ),
    "fftfreq odd": Case(lambda g: g.fftfreq(5), (), np.fft.fftfreq(5)),
    "rfftfreq": Case(lambda g: g.rfftfreq(8), (), np.fft.rfftfreq(8)),
}


@pytest.mark.parametrize("name", CASES)
def test_an_op_gives_what_numpy_gives(name: str) -> None:
    """An op gives NumPy's value, and tells its shape and dtype beforehand."""
    case = CASES[name]
    outs, said = case.run()
    wanted = case.want if isinstance(case.want, tuple) else (case.want,)
    for out, want, (shape, dtype) in zip(outs, wanted, said, strict=True):
        assert list(out.shape) == shape == list(np.shape(want))
        assert rlx.dtype_str(out.dtype) == dtype
        close = {"rtol": case.tolerance, "atol": case.tolerance}
        np.testing.assert_allclose(out, want, **close)


@pytest.mark.parametrize(
    ("norm_name", "there", "back"),
    [
        ("backward", 1, 8),
        ("none", 1, 8),
        ("forward", 1, 1),
        ("ortho", 8**-0.5, 1),
        ("orthonormal", 8**-0.5, 1),
    ],
)
def test_norm_names_are_rlx_s(
    norm_name: str, there: float, back: float, rng: np.random.Generator
) -> None:
    """A norm's name scales the transform as RLX does, and there and back."""
    z = rng.standard_normal((2, 8)) + 1j * rng.standard_normal((2, 8))
    x = block(z).astype(np.float32)

    def both(g: Any, node: int) -> tuple[int, int]:
        once = g.fft_norm(node, inverse=False, norm=norm_name)
        return once, g.fft_norm(once, inverse=True, norm=norm_name)

    (once, twice), _ = Case(both, (x,), None).run()
    np.testing.assert_allclose(once, block(np.fft.fft(z)) * there, atol=1e-4)
    np.testing.assert_allclose(twice, x * back, atol=1e-4)


def test_fft_there_and_back() -> None:
    """Pyrlx divides nowhere unless it is told to; ours divides the inverse by N."""
    for both in (
        lambda g, x: g.fft(g.fft(x), True),
        lambda g, x: g.fft_norm(g.fft_norm(x), inverse=True),
        lambda g, x: g.mul(g.constant(4.0), g.own.fft(g.own.fft(g.tensor(x)), True).id),
    ):
        (out,), _ = Case(both, (ROWS,), None).run()
        np.testing.assert_allclose(out, 4 * ROWS, atol=1e-4)


def test_every_method_of_pyrlx_is_tried_or_known_to_be_missing() -> None:
    """Every method of pyrlx is in the table above or known to be missing."""
    assert not ELSEWHERE & {n for n in dir(rlxweb.rlx.Graph) if n[0] != "_"}
    tried = {name.split()[0] for name in CASES} | {"fft", "fft_norm"}
    leaves = {"input", "param", "constant", "set_outputs", "shape_of"}
    assert HERE == tried | leaves
    assert {n for n in dir(rlxweb.rlx.Graph) if n[0] != "_"} >= OTHERWISE


@pytest.mark.parametrize(
    ("value", "dtype"),
    [(2.5, "f32"), (-1.0, "f64"), (7.0, "i32"), (1.0, "bool"), (1.5, "f16")],
)
def test_constants_take_their_dtype(value: float, dtype: str) -> None:
    g = rlx.Graph("constant")
    node = g.constant(value, dtype)
    assert g.shape_of(node) == ([], dtype)
    assert g.shape_of(g.constant(2.0)) == ([], "f32")
    g.set_outputs([node])
    ((raw, label),) = rlx.Session().compile(g).run_typed({})
    assert label == dtype
    assert np.frombuffer(raw, rlx.numpy_dtype(dtype))[0] == value


@pytest.mark.parametrize(
    ("value", "dtype", "said"),
    [
        (3e9, "i32", "out of range"),
        (-1.0, "u32", "out of range"),
        (2.5, "i32", "integral"),
        (2.0, "bool", "out of range"),
        (10**30, "i64", r"2\*\*53"),
    ],
)
def test_constants_that_do_not_fit(value: float, dtype: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        rlx.Graph("constant").constant(value, dtype)


def test_mistakes_are_value_errors() -> None:
    g = rlx.Graph("mistakes")
    x, y = g.input("x", [2, 3], "f32"), g.input("y", [4], "f32")
    for call in (
        lambda: g.matmul(x, x),
        lambda: g.add(x, y),
        lambda: g.compare("=>", x, x),
        lambda: g.binary("plus", x, x),
        lambda: g.reduce(x, "median", [0], False),
        lambda: g.reshape(x, [5]),
        lambda: g.cast(x, "i7"),
        lambda: g.input("x", [1], "f32"),
        lambda: g.attention_kind(x, x, x, 1, 3, "diagonal"),
    ):
        with pytest.raises(ValueError, match=r"."):
            call()


def test_a_whole_graph_with_params() -> None:
    """A whole graph is compiled once, with params by name, as bytes or arrays.

    The graph is used up by it.
    """
    g = rlx.Graph("layer")
    x = g.input("x", [2, 3], "f32")
    w, b = g.param("w", [3, 4], "f32"), g.param("b", [4], "f32")
    g.set_outputs([g.softmax(g.gelu(g.add(g.matmul(x, w), b)))])
    assert len(g) == 7
    session = rlx.Session(device="cpu", precision="f32")
    compiled = session.compile(g)
    compiled.set_param("w", SQUARE.ravel())
    compiled.set_param_typed("b", SQUARE[0].tobytes(), "f32")
    (out,) = compiled.run({"x": A})
    h = A @ SQUARE + SQUARE[0]
    h = np.exp(h / 2 * (1 + erf(h / math.sqrt(2))))
    np.testing.assert_allclose(out, h / h.sum(-1, keepdims=True), rtol=1e-5)
    (flat,) = compiled.run_flat({"x": A.ravel()})
    np.testing.assert_array_equal(flat, out.ravel())
    ((raw, dtype),) = compiled.run_typed({"x": (A.tobytes(), "f32")})
    assert (raw, dtype) == (out.tobytes(), "f32")
    plain = rlx.FusionOptions(skip_fusion=True)
    for options in (plain, rlx.FusionOptions(), None):
        g = rlx.Graph("same")
        x = g.input("x", [2, 3], "f32")
        g.set_outputs([g.mul(g.add(x, x), x)])
        (again,) = session.compile_with(g, fusion_options=options).run({"x": A})
        np.testing.assert_allclose(again, (A + A) * A, rtol=1e-6)
    with pytest.raises(RuntimeError, match="compiled already"):
        session.compile(g)
    assert (session.device, session.precision, compiled.device) == ("cpu", "f32", "cpu")
    assert "cpu" in repr(session)


def of_cubes() -> tuple[rlx.Graph, int, int]:
    """The sum of w x³, with the numbers of x and w."""
    g = rlx.Graph("cubes")
    x, w = g.input("x", [4], "f32"), g.param("w", [4], "f32")
    cube = g.mul(g.mul(x, x), x)
    g.set_outputs([g.sum(g.mul(w, cube), [0], False)])
    return g, x, w


@pytest.mark.parametrize("name", ["grad", "jvp", "hvp", "nth", "directional", "vmap"])
def test_derivatives_of_graphs(name: str) -> None:
    """Pyrlx's names for inputs and its order of outputs; the graph stays usable."""
    x, v, w = np.random.default_rng(3).standard_normal((3, 4)).astype(np.float32)
    loss, slope, bent = np.sum(w * x**3), 3 * w * x**2, 6 * w * x
    g, at_x, at_w = of_cubes()
    made, more, want = {
        "grad": lambda: (
            rlx.grad(g, [at_x, at_w]),
            {"d_output": np.float32(2)},
            [loss, 2 * slope, 2 * x**3],
        ),
        "jvp": lambda: (rlx.jvp(g, [at_x]), {"tangent_x": v}, [loss, slope @ v]),
        "hvp": lambda: (
            rlx.hvp(g, [at_x]),
            {"tangent_x": v},
            [loss, slope, slope @ v, bent * v],
        ),
        "nth": lambda: (rlx.nth_order_grad(g, "x", 2), {}, [bent]),
        "directional": lambda: (
            rlx.directional_nth_grad(g, "x", 3),
            {"dir_0": v, "dir_1": v, "dir_2": x},
            [np.sum(6 * w * v * v * x)],
        ),
        "vmap": lambda: (
            rlx.vmap(g, ["x"], 2),
            {"x": np.stack([x, v])},
            [np.array([loss, np.sum(w * v**3)])],
        ),
    }[name]()
    compiled = rlx.Session(device="cpu").compile(made)
    compiled.set_param("w", w)
    outs = compiled.run({"x": x, **more})
    for out, one in zip(outs, want, strict=True):
        np.testing.assert_allclose(out, one, rtol=1e-5, atol=1e-5)
    assert g.shape_of(at_x) == ([4], "f32")


def test_what_head_dim_and_resize_refuse() -> None:
    g = rlxweb.Graph("refused")
    x, c = g.input("x", (2, 5, 12)), g.input("c", (5, 2))
    for how in ({"head_dim": 5}, {"head_dim": 0}, {"head_dim": 4, "num_heads": 2}):
        with pytest.raises(ValueError, match="is num_heads times head_dim"):
            g.rope(x, c, c, **how)
    assert g.rope(x, c, c, head_dim=4, num_heads=3).shape == (2, 5, 12)
    with pytest.raises(ValueError, match=r"it has 3 axes; \[N, C, H, W\]"):
        g.resize_nearest_2x(x)
